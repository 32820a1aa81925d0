"""First gradients and calls of the ten models of test/frontend/jaxpr, imported from JAX, beside JAX itself.

python -m bench.jax_models               # the table, one process for each figure, the two in turn; needs the extra `jax`
python -m bench.jax_models lenet upl     # one figure, as JSON
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).parent.parent / "test" / "frontend" / "jaxpr"
SIDES = ("upl", "jax")
ROUNDS = 3
CALLS = 200
LIBRARY = "product"
"""A program of which only the library of matrix products stays in the cache."""


def product(a: Any, b: Any) -> Any:
    """That program."""
    return (a @ b).sum()


def models() -> Any:
    """Name, function, arguments and positions of what is differentiated by."""
    sys.path.insert(0, str(TESTS))
    found = import_module("jax_models").MODELS
    sys.path.pop(0)
    return found


def measure(name: str, side: str) -> dict[str, float]:
    """Seconds of the first value and gradient, imports left out, and of a call afterwards."""
    jax = import_module("jax")
    jax.config.update("jax_enable_x64", True)
    f, args, wrt = (product, (np.ones((3, 4)), np.ones((4, 5))), (0, 1)) if name == LIBRARY else models()[name]
    upl = import_module("upl_mlir")
    compiled = upl.value_and_grad(upl.from_jax(f), wrt) if side == "upl" else jax.jit(jax.value_and_grad(f, wrt))

    def g(*a: Any) -> Any:
        return jax.block_until_ready(compiled(*a)) if side == "jax" else compiled(*a)

    begin = time.perf_counter()
    g(*args)
    first = time.perf_counter() - begin
    times: list[float] = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        g(*args)
        times.append(time.perf_counter() - begin)
    return {"first": first, "call": statistics.median(times)}


def apart(name: str, side: str, cache: Path) -> dict[str, float]:
    """The same in a process of its own that finds the compiled library of matrix products, and nothing of the model."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(cache, folder, dirs_exist_ok=True)
        command = [sys.executable, "-m", "bench.jax_models", name, side]
        out = subprocess.run(
            command, env=os.environ | {"XDG_CACHE_HOME": folder}, check=True, capture_output=True, text=True
        )
        return json.loads(out.stdout)


def main() -> None:
    """The table, in Markdown."""
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], sys.argv[2])))
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"XDG_CACHE_HOME": folder}
        command = [sys.executable, "-m", "bench.jax_models", LIBRARY, "upl"]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        print("| model | first gradient, s | JAX's | a call, µs | JAX's |")
        print("|---|---|---|---|---|")
        for name in models():
            rows: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
            for _ in range(ROUNDS):
                for side in SIDES:
                    rows[side].append(apart(name, side, Path(folder)))
            upl, jax = ({k: statistics.median(r[k] for r in rows[s]) for k in ("first", "call")} for s in SIDES)
            print(
                f"| {name} | {upl['first']:.2f} | {jax['first']:.2f} | {upl['call'] * 1e6:.0f} | {jax['call'] * 1e6:.0f} |"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
