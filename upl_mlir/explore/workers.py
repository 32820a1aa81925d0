"""Where the points of a sweep are run: processes of this machine, or the workers of a Dask cluster."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import active_children, get_context
from types import FrameType
from typing import Any, cast

from upl_mlir.diagnostics import error


def _begin() -> None:
    """A worker stops when its parent says so, and takes what it has started with it."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        sys.exit(1)

    def ignored(what: sys.UnraisableHookArgs) -> None:
        # The signal came while a finaliser ran, which swallows exceptions: leave a moment later.
        if issubclass(what.exc_type, SystemExit):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
        else:
            sys.__unraisablehook__(what)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGALRM, leave)
    sys.unraisablehook = ignored


@contextmanager
def local(jobs: int) -> Generator[Executor]:
    """So many processes; if the block is left by an exception, they are stopped at once."""
    before = set(active_children())
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(active_children()) - before:
            process.terminate()
        raise
    pool.shutdown()


@contextmanager
def dask(address: str) -> Generator[Executor]:
    """The workers of the cluster whose scheduler is there; they need this package, of the same version."""
    try:
        distributed = cast(Any, import_module("distributed"))
    except ImportError as cause:
        message = "a Dask cluster needs the Python package `distributed`, which is not installed"
        raise error("UPL1804", message, help="pip install 'upl-mlir[dask]'") from cause
    try:
        client = distributed.Client(address, timeout=10)
    except (OSError, TimeoutError, ValueError) as cause:
        raise error("UPL1744", f"there is no Dask scheduler at {address}: {cause}") from None
    with client:
        yield client.get_executor()
