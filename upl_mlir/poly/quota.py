# pyright: reportUnknownMemberType=false
# (islpy ships no usable types)
"""A limit on how long isl may work: some questions about sets take exponential time, and a compiler must answer.

isl counts its own operations; beyond the limit every call fails.  The count is of one analysis, from entering `limited` to
leaving it; nested uses belong to the outermost.  The limit is raised by the environment variable `UPL_MAX_OPERATIONS`.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

import islpy as isl

DEFAULT_OPERATIONS = 12_000_000
"""Three to five seconds of isl's work."""

VARIABLE = "UPL_MAX_OPERATIONS"
OPERATIONS_PER_PIECE = 6000  # what a convex piece of a set counts for
FEW = 64


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
    can grow by powers while isl counts few operations."""
    n = s.n_basic_set()
    if n > FEW and n * OPERATIONS_PER_PIECE > limit() and isl.DEFAULT_CONTEXT.get_max_operations():
        raise TooComplex(f"a set of {n} pieces")


@contextmanager
def limited() -> Generator[None]:
    """Bound isl's work inside the block.  Raises TooComplex where it does not suffice."""
    context = isl.DEFAULT_CONTEXT
    if context.get_max_operations():
        yield
        return
    context.reset_operations()
    context.set_max_operations(limit())
    try:
        yield
    except isl.Error as e:
        if not _exhausted():
            raise  # not the quota: a mistake of ours
        raise TooComplex(str(e).splitlines()[0]) from e
    finally:
        context.set_max_operations(0)
        context.reset_operations()
