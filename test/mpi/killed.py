"""A run that is killed: `mpiexec -n N python test/mpi/killed.py RANK CALL COMMAND…` runs `upl COMMAND…`; rank number RANK
kills itself in call number CALL of what the compiled code asks the ranks to do (exchanges, and arrays of checkpoints)."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from upl_mlir.engines.mpi import routes
from upl_mlir.tools.upl import main

rank, call = map(int, sys.argv[1:3])
run: Any = routes.Exchanges
old, seen = run.exchange, list[int]()


def exchange(self: Any, number: int, address: int, variables: Any) -> None:
    """The engine's own, but for one rank at one time."""
    seen.append(number)
    if self.comm.Get_rank() == rank and len(seen) == call:
        print(f"killed at {time.time()}", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    old(self, number, address, variables)


run.exchange = exchange
sys.exit(main(sys.argv[3:]))
