"""What a simulated machine of either engine can do: be loaded, run, and be looked at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from upl_mlir.hw.core.encode import Write
from upl_mlir.hw.core.layouts import Failure

TOKEN = np.dtype(
    [
        ("tag", np.uint64),
        ("kind", np.uint32),
        ("node", np.uint32),
        ("input", np.uint32),
        ("multiplicity", np.uint32),
        ("value", np.uint32),
        ("unused", np.uint32),
    ]
)
"""A token as arrays hold it; of a token that came out, `node` is the number of the output."""

Tokens = NDArray[Any]
"""A one-dimensional array of `TOKEN`."""


class Ended(IntEnum):
    """Why a run has stopped."""

    LIMIT = 0
    IDLE = 1
    FAILURE = 2
    NO_ROOM = 3
    STUCK = 4


PATIENCE = 20_000
"""Cycles without any token, firing or instruction after which a machine that is not idle is stuck."""


@dataclass
class Report:
    """What happened: cycles until now, tokens taken from the host, tokens for the host in order, events by number,
    firings and tokens taken by number of the node, records in use (greatest, summed over cycles), the longest queue, the
    cycle in which the last token of the host was taken, why the run has stopped and where, and how many records
    are in backing memory then.
    """

    cycles: int
    injected: int
    outputs: Tokens
    events: list[int]
    fired: list[int]
    taken: list[int]
    used_peak: int
    used_sum: int
    queued_peak: int
    last_injection: int
    ended: Ended
    spilled: int = 0
    failure: Failure = Failure.NONE
    failing_node: int = 0
    failing_input: int = 0
    failing_tag: int = 0
    checksums: list[int] = field(default_factory=list[int])


@dataclass(frozen=True)
class Record:
    """A record of the store: valid, class (an input, or the number of inputs for a shared record), node, tag, and what is
    counted (see `state_layout`)."""

    valid: bool
    kind: int
    node: int
    tag: int
    left: int
    present: int
    total: int


class Simulation(Protocol):
    """A machine that was reset."""

    def configure(self, writes: Iterable[Write]) -> None:
        """Load words through the configuration bus."""
        ...

    def run(self, tokens: Tokens, limit: int, checks: int = 0) -> Report:
        """Feed tokens, one a cycle when the machine takes them, until it is idle or has failed, or for `limit` cycles.
        The report has the checksums of the first `checks` cycles."""
        ...

    def look(self, set_: int, way: int, spilled: int = 0) -> Record:
        """A record of the store of a machine that is idle; of the backing memory if `spilled` is not 0."""
        ...
