# pyright: reportUnknownMemberType=false
# (islpy ships no usable types)
"""A limit on how long isl may work: some questions about sets take exponential time, and a compiler must answer.

isl counts its own operations; beyond the limit every call fails.  The count is of one analysis, from entering `limited` to
leaving it; nested uses belong to the outermost.  The limit is raised by the environment variable `UPL_MAX_OPERATIONS`.

Some calls take long and count little: so sets of many pieces are met and subtracted piece by piece, and between the calls
the number of pieces and the thread's time are looked at as well.  (The time of the whole process would count what LLVM does
beside.  Asking for the thread's may take 240 µs where there are many threads: so only once as much time has gone by.)
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import contextmanager

import islpy as isl

DEFAULT_OPERATIONS = 16_000_000
"""Four to six seconds of isl's work."""

VARIABLE = "UPL_MAX_OPERATIONS"
OPERATIONS_PER_PIECE = 6000  # what a convex piece of a set counts for
FEW = 64
"""Pieces up to which the work on a set is not estimated. Chosen, not measured."""
SECONDS = 8.0  # of the thread's time for the default limit: far beyond what its operations take as a rule

_until = [float("inf"), float("inf")]  # the time, and the thread's, at which the analysis that runs gives up


class TooComplex(Exception):
    """isl gave up; the argument says why."""


def limit() -> int:
    """The number of operations in force."""
    text = os.environ.get(VARIABLE, "")
    return int(text) if text.isdigit() else DEFAULT_OPERATIONS


def _exhausted() -> bool:
    """Whether the operations are used up: then the plainest question fails, whatever the message of the first failure."""
    try:
        return not isl.Set("{ [i] : 0 <= i <= 1 }").is_subset(isl.Set("{ [i] : i <= 1 }"))
    except isl.Error:
        return True


def check_pieces(s: isl.Set) -> None:
    """Raise TooComplex inside `limited` where a set falls into more convex pieces than the limit has room for: their number
    can grow by powers while isl counts few operations.  Likewise where the time is over."""
    n = s.n_basic_set()
    if n > FEW and n * OPERATIONS_PER_PIECE > limit() and isl.DEFAULT_CONTEXT.get_max_operations():
        raise TooComplex(f"a set of {n} pieces")
    if time.perf_counter() > _until[0] and time.thread_time() > _until[1]:
        raise TooComplex("out of time")


AT_ONCE = 8  # pieces that are subtracted in one call
MANY = 100  # pieces of which isl takes too long to see which could be one


def difference(a: isl.Set, b: isl.Set) -> isl.Set:
    """``a - b``.  Raises TooComplex inside `limited`."""
    if b.n_basic_set() <= AT_ONCE:
        return a.subtract(b)
    for piece in b.get_basic_sets():
        gone = isl.Set.from_basic_set(piece)
        if a.n_basic_set() <= FEW:
            a = a.subtract(gone)
        else:
            left = isl.Set.empty(a.get_space())
            for part in a.get_basic_sets():
                left = left.union(isl.Set.from_basic_set(part).subtract(gone))
                check_pieces(left)
            a = left
        check_pieces(a)
    return a


def included(a: isl.Set, b: isl.Set) -> bool:
    """Whether `a` is a subset of `b`.  Raises TooComplex inside `limited`."""
    return a.is_subset(b) if b.n_basic_set() <= AT_ONCE else difference(a, b).is_empty()


def intersection(a: isl.Set, b: isl.Set) -> isl.Set:
    """The points of both.  Raises TooComplex inside `limited`."""
    if a.n_basic_set() * b.n_basic_set() <= FEW * AT_ONCE:
        return a.intersect(b)
    out: isl.Set | None = None
    for piece in b.get_basic_sets():
        part = a.intersect(isl.Set.from_basic_set(piece))
        out = part if out is None else out.union(part)
        check_pieces(out)
    assert out is not None
    return out


@contextmanager
def limited(times: int = 1) -> Generator[None]:
    """Bound isl's work inside the block, by so many times the limit.  Raises TooComplex where it does not suffice."""
    context = isl.DEFAULT_CONTEXT
    if context.get_max_operations():
        yield
        return
    context.reset_operations()
    context.set_max_operations(times * limit())
    seconds = SECONDS * times * limit() / DEFAULT_OPERATIONS
    _until[:] = time.perf_counter() + seconds, time.thread_time() + seconds
    try:
        yield
    except isl.Error as e:
        if not _exhausted():
            raise  # not the quota: a mistake of ours
        raise TooComplex(str(e).splitlines()[0]) from e
    finally:
        _until[0] = float("inf")
        context.set_max_operations(0)
        context.reset_operations()
