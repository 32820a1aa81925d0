"""MPI: whether it is there, and how `upl run --ranks` starts a run on it."""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# mpi4py is the extra "mpi".

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.upl import Gather

INSTALL = "pip install 'upl-mlir[mpi]' installs mpich and mpi4py; with an MPI of the system: pip install mpi4py"


def world() -> Any:
    """The communicator of all ranks (`mpi4py.MPI.COMM_WORLD`).  Raises UplError (UPL2103) without mpi4py or MPI."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as e:  # mpi4py raises RuntimeError if it finds no MPI library
        why = (str(e).strip().splitlines() or [""])[0]
        raise error("UPL2103", f'engine="mpi" needs mpi4py and an MPI library: {why}', help=INSTALL) from None
    comm: Any = MPI.COMM_WORLD
    return comm


def in_place() -> Any:
    """What MPI takes for a buffer that is sent and received."""
    from mpi4py import MPI

    return MPI.IN_PLACE


def buffer_at(address: int, size: int) -> Any:
    """The bytes at an address, as mpi4py takes them."""
    from mpi4py import MPI

    return MPI.buffer.fromaddress(address, size)


def wait_for_messages(requests: Sequence[Any]) -> None:
    """Go on when all of these are sent or received."""
    from mpi4py import MPI

    MPI.Request.Waitall(requests)


@cache
def operator(gather: Gather, dtype: str) -> Any:
    """The operator of MPI that does what a gather does.  MPI's own least and greatest do not say what they make of NaN."""
    from mpi4py import MPI

    if gather is Gather.SUM:
        return MPI.SUM
    if gather is Gather.PRODUCT:
        return MPI.PROD
    better = np.minimum if gather is Gather.MIN else np.maximum

    def combine(a: Any, b: Any, _: Any) -> None:
        into = np.frombuffer(b, dtype)
        better(np.frombuffer(a, dtype), into, out=into)

    return MPI.Op.Create(combine, commute=True)


PAUSE_S = 0.002
"""So long a rank sleeps while it waits for what takes another one seconds: MPI itself waits with a busy loop."""


def wait_for_all(comm: Any) -> None:
    """Go on when every rank has come here; what waits leaves its core to the others."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(PAUSE_S)


def launcher() -> str:
    """The command that starts a program on several ranks.  Raises UplError (UPL2103) if there is none."""
    beside = Path(sys.executable).parent / "mpiexec"  # of the package mpich
    found = str(beside) if beside.exists() else shutil.which("mpiexec") or shutil.which("mpirun")
    if found is None:
        raise error("UPL2103", "`--ranks` needs `mpiexec`, which is not installed", help=INSTALL)
    return found


def start(ranks: int, arguments: Sequence[str]) -> int:
    """Run `upl` with these arguments on several ranks; returns the exit status.

    Raises UplError: UPL2103 without MPI, UPL1802 for a number of ranks below 1, UPL2104 if a rank ended by a signal.
    """
    if ranks < 1:
        raise error("UPL1802", f"--ranks {ranks}: expected 1 or more")
    command = [launcher(), "-n", str(ranks), sys.executable, "-m", "upl_mlir", *arguments]
    _require_mpi4py()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, "UPL_RANKS": str(ranks)})
    try:
        status = child.wait()
    except BaseException:
        child.terminate()
        child.wait()
        raise
    if status not in (0, 1, 2):
        raise ended(status)
    return status


def ended(status: int) -> UplError:
    """The error for a run of which a rank died."""
    what = f"signal {status - 128 if status > 128 else -status if status < 0 else status}"
    return error("UPL2104", f"a rank ended before its time ({what}); the others were stopped", help="see what it printed")


def _require_mpi4py() -> None:
    from importlib.util import find_spec

    if find_spec("mpi4py") is None:
        raise error("UPL2103", "`--ranks` needs the Python package mpi4py, which is not installed", help=INSTALL)
