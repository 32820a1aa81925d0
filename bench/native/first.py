"""The first gradient in a fresh process, everything included: `python -m bench.native.first KEY native|CONTENDER [--tiny]`.

Prints JSON: seconds to import the library, and from the program's text (a peer: its Python function) to the arrays.  The
modules that a library loads only when a first call needs them are imported, too, before the clock starts, ours and JAX's.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib import import_module

LATE = {
    "native": (
        "upl_mlir.dialects.upl.verify",
        "upl_mlir.api.fastest",
        "upl_mlir.frontend.trace",
        "upl_mlir.frontend.upl_text.load",
        "upl_mlir.engines.native.products.contraction",
        "upl_mlir.engines.native.llvm.emit",
        "upl_mlir.engines.native.engine",
        "upl_mlir.engines.native.llvm.entry",
        "upl_mlir.engines.native.llvm.parallel",
        "upl_mlir.engines.native.products.products",
        "upl_mlir.engines.native.whole",
        "upl_mlir.passes.autodiff.differentiate",
        "upl_mlir.passes.autodiff.eliminate_dead_derivatives",
        "upl_mlir.passes.lower_to_loops",
        "upl_mlir.passes.analysis.proved",
        "upl_mlir.universe",
        "xdsl.dialects.linalg",
        "xdsl.universe",
    ),
    "jax": ("jaxlib.mlir.dialects.builtin", "jaxlib.mlir.dialects.mhlo"),
}
"""Modules that are loaded on the way: these, and what they import."""


def main() -> None:
    """Measure once; a contender that is not there says so in `absent`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("key")
    parser.add_argument("contender")
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    json.dump(measure(given.key, given.contender, given.tiny), sys.stdout)


def measure(key: str, contender: str, tiny: bool) -> dict[str, object]:
    """Seconds, or why there are none."""
    import numpy  # noqa: F401  (all need it)

    start = time.perf_counter()
    ours = contender == "native"
    try:
        if ours:
            import upl_mlir as upl
        elif contender.startswith("jax"):
            import jax  # noqa: F401
        for name in LATE.get(contender.partition(",")[0], ()):
            import_module(name)
    except ModuleNotFoundError as e:
        return {"absent": str(e)}
    imported = time.perf_counter() - start

    from bench.native.case import Absent
    from bench.native.cases import by_key

    case = by_key(key)
    task = case.task(case.tiny if tiny else case.sizes)
    start = time.perf_counter()
    try:
        if ours:
            f = upl.compile(case.gradient(task.sizes), "native", real=task.real, **case.bound(task.sizes))
            f(**task.arrays)
        else:
            case.contenders[contender](task).outputs()
    except Absent as e:
        return {"absent": str(e)}
    except Exception as e:
        return {"absent": "not available"} if "UPL1802" in str(e) else {"failed": f"{type(e).__name__}: {e}"[:300]}
    return {"import": imported, "first": time.perf_counter() - start}


if __name__ == "__main__":
    main()
