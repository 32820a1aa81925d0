"""How fast the interpreter is: one number, for benchmarks and for the test that keeps it from being lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.engines.interp.engine import Engine


def firings_per_second(
    program: ProgramOp, params: Mapping[str, int], arrays: Mapping[str, NDArray[Any]], *, runs: int = 3, **options: Any
) -> float:
    """Firings per second of wall time in the best of several runs; `arrays` are dense, `options` those of `Engine`.

    The time includes handing the host tokens over and collecting the outputs, not the specialisation of the program.
    """
    engine = Engine(program, params, **options)
    best = 0.0
    for _ in range(runs):
        stats = engine.run(arrays).stats
        best = max(best, sum(stats.firings.values()) / stats.seconds)
    return best
