"""What runs on each rank: `mpiexec -n N python test/mpi/ranks.py CASE…` compares the engine "mpi" with native code.

A case is one of `programs.py`; with `~` before it sums are relaxed: results are compared within rounding.  The first rank
prints a line for each: `equal`, `WRONG` with the outputs that differ on some rank, or the code with which the program is
refused; then the bytes that all ranks sent, and the bytes that the exact sets of what they need say.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "test")]
import upl_mlir as upl  # noqa: E402
from bench.ranks.predicted import bytes_received  # noqa: E402
from mpi.programs import case  # noqa: E402
from upl_mlir.diagnostics import UplError  # noqa: E402
from upl_mlir.engines.mpi.world import wait_for_all  # noqa: E402

COMM = MPI.COMM_WORLD


def equal(a: Any, b: Any) -> bool:
    """Whether two arrays have the same bits."""
    return a.tobytes() == b.tobytes()


def close(a: Any, b: Any) -> bool:
    """Whether two arrays are the same but for rounding."""
    return np.allclose(a, b, rtol=1e-11, atol=1e-11 * max(1.0, float(np.max(np.abs(a), initial=0.0))))


def compared(text: str) -> str:
    """The line of a case."""
    p, inputs, params = case(text)
    gather = "relaxed" if text.startswith("~") else "ordered"
    try:
        f = upl.compile(p, engine="mpi", gather=gather)
        found = f(**inputs, **params)
    except UplError as e:
        return e.diagnostics[0].code
    wanted = upl.compile(p, engine="native", gather="ordered")(**inputs, **params)
    same = close if gather == "relaxed" else equal
    wrong = [n for n in wanted if not same(wanted[n], found[n])]
    everywhere = sorted({n for names in COMM.allgather(wrong) for n in names})
    sent = f.stats["bytes_sent_by_all"]
    predicted = bytes_received(p, inputs, params, COMM.Get_size(), gather) if COMM.Get_rank() == 0 else None
    wait_for_all(COMM)
    return f"{'WRONG ' + ','.join(everywhere) if everywhere else 'equal'} {sent} {predicted}"


if __name__ == "__main__":
    for each in sys.argv[1:]:
        line = compared(each)
        if COMM.Get_rank() == 0:
            print(f"{each} {line}", flush=True)
