"""The first gradient in a fresh process, everything included: `python -m bench.native.first KEY native|CONTENDER [--tiny]`.

Prints JSON: seconds to import the library, and from the program's text (a peer: its Python function) to the arrays.
"""

from __future__ import annotations

import argparse
import json
import sys
import time


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
