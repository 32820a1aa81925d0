"""Python's cyclic garbage collector, which runs less often while a program is compiled."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

ALLOCATIONS = 100_000
"""Objects made between two collections.  Python's own 700 (2,000 since 3.13) cost 8 % of the time of a first gradient, as a
compiler makes many objects that stay."""


class _Collector:
    """The functions that compile now, in all threads, and the thresholds from before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.before = (0, 0, 0)
        self.froze = False

    def enter(self) -> None:
        with self.lock:
            self.inside += 1
            if self.inside == 1:
                self.before = gc.get_threshold()
                if 0 < self.before[0] < ALLOCATIONS:  # 0: no collections at all, as the caller wishes
                    gc.set_threshold(ALLOCATIONS, *self.before[1:])
                self.froze = not gc.get_freeze_count()
                if self.froze:  # what is there stays: JAX's objects alone take longer to go through than all of ours
                    gc.freeze()

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                gc.set_threshold(*self.before)
                if self.froze:
                    gc.unfreeze()


_collector = _Collector()


def rarely_collecting(f: Callable[P, R]) -> Callable[P, R]:
    """A function that compiles: while one runs, the collector waits for more objects.  Leaves it as it was found."""

    @wraps(f)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        _collector.enter()
        try:
            return f(*args, **kwargs)
        finally:
            _collector.leave()

    return run
