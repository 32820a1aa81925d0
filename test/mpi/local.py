"""What runs on each rank: `mpiexec -n N python test/mpi/local.py` gives each rank blocks of inputs, of different lengths,
and compares its blocks of results with those of native code.  Prints a line for each case, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "test")]
import upl_mlir as upl  # noqa: E402
from mpi.ranks import case  # noqa: E402
from upl_mlir.diagnostics import UplError  # noqa: E402

COMM = MPI.COMM_WORLD
RANK, RANKS = COMM.Get_rank(), COMM.Get_size()


def ends(n: int) -> list[int]:
    """Where the blocks of n indices begin, and the end: the first rank has one index, the last one most."""
    return [0, *[min(n, k + 1) for k in range(RANKS - 1)], n]


def block(a: Any, axis: int) -> Any:
    """The rank's block of an array."""
    at = ends(a.shape[axis])
    return a[(slice(None),) * axis + (slice(at[RANK], at[RANK + 1]),)].copy()


def compared(text: str, inputs: dict[str, int], outputs: dict[str, int]) -> str:
    """Whether a case has native code's bits; `inputs` and `outputs` say along which axis they are cut."""
    p, arrays, params = case(text)
    f = upl.compile(p, engine="mpi", gather="ordered", local=True)
    given = {n: block(a, inputs[n]) if n in inputs else a for n, a in arrays.items()}
    for _ in range(2):  # the second call finds what the first one has worked out
        found = f(**given, **params)
    wanted = upl.compile(p, engine="native", gather="ordered")(**arrays, **params)
    wrong = [n for n, a in wanted.items() if found[n].tobytes() != (block(a, outputs[n]) if n in outputs else a).tobytes()]
    everywhere = sorted({n for names in COMM.allgather(wrong) for n in names})
    return f"WRONG {everywhere}" if everywhere else "equal"


ODD = """param n >= 1
input X<i> in 0<=i<n { -> A.x<i> }
output Y<i>
node A<i> in 0<=i<n { in x; if i mod 2 != 0: 2*x -> Y<i> }
"""


def joined(text: str, **arrays: Any) -> str:
    """Whether the blocks of results, one behind the other, are native code's, of arrays that are larger in the code."""
    p = upl.load(text)
    found = upl.compile(p, engine="mpi", gather="ordered", local=True)(**{n: block(a, 0) for n, a in arrays.items()})
    wanted = upl.compile(p, engine="native", gather="ordered")(**arrays)
    same = [np.array_equal(np.concatenate(COMM.allgather(found[n])), a) for n, a in wanted.items()]
    return "equal" if all(same) else "WRONG"


def refused(text: str, **arrays: Any) -> str:
    """With which code blocks are refused."""
    p, known, params = case(text)
    try:
        upl.compile(p, engine="mpi", gather="ordered", local=True)(**{**known, **arrays}, **params)
    except UplError as e:
        return e.diagnostics[0].code
    return "taken"


if __name__ == "__main__":
    lines = {
        "stencil": compared("jacobi2d", {"A": 0}, {"B": 0}),
        "stencil, gradient": compared("jacobi2d:B:A", {"A": 0, "d_B": 0}, {"B": 0, "d_A": 0}),
        "paths": compared("floyd_warshall", {"W": 0}, {"S": 0}),
        "heat": compared("bench:heat3d", {"A": 0}, {"B": 0}),
        "every second element": joined(ODD, X=np.arange(8.0)),
        "another row length on one rank": refused("floyd_warshall", W=np.ones((2, 7 if RANK else 2 * RANKS))),
        "a number for an array": refused("floyd_warshall", W=1.0),
    }
    if RANK == 0:
        print(*(f"{name}: {line}" for name, line in lines.items()), sep="\n")
