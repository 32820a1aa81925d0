"""What a simulated machine of either engine can do: be loaded, run, and be looked at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from upl_mlir.hw.core.code.encode import Write
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


def seen_dtype(words: int) -> np.dtype[Any]:
    """What one core did in one cycle, for traces: the records in its store then, and `words` words of 32 bits, the lowest
    first, which are the port `watch` of a core (`watch_layout` says what they mean)."""
    return np.dtype([("cycle", np.uint64), ("core", np.uint32), ("used", np.uint32), ("words", np.uint32, (words,))])


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
class CoreReport:
    """What happened in one core: how many cycles had which pattern of events (bit n: event n), firings and tokens taken by
    number of the node, records in use (greatest, summed over cycles), the longest queue; at the end records in
    backing memory and in all (`left`), and why it has failed, if it has.
    """

    patterns: dict[int, int] = field(default_factory=dict[int, int])
    fired: list[int] = field(default_factory=list[int])
    taken: list[int] = field(default_factory=list[int])
    used_peak: int = 0
    used_sum: int = 0
    queued_peak: int = 0
    spilled: int = 0
    failure: Failure = Failure.NONE
    failing_node: int = 0
    failing_input: int = 0
    failing_tag: int = 0
    left: int = 0

    def count(self, event: int) -> int:
        """Cycles in which an event happened."""
        return sum(times for pattern, times in self.patterns.items() if pattern >> event & 1)


@dataclass
class Report:
    """What happened: cycles until now, tokens taken from the host, tokens for the host in order, the cycle in which the
    last token of the host was taken, the cycles in which each port of the host was used, and in which all
    were, tokens that went into each link and cycles in which one had to wait for it, tokens between cores (greatest,
    summed over cycles), why the run has stopped, the cores; checksums of the first cycles, and what cores did (see
    `seen_dtype`), if they were asked for.
    """

    cycles: int
    injected: int
    outputs: Tokens
    last_injection: int
    ended: Ended
    cores: list[CoreReport]
    ports: list[int]
    injection_bound: int = 0
    moved: list[int] = field(default_factory=list[int])
    waits: list[int] = field(default_factory=list[int])
    under_way_peak: int = 0
    under_way_sum: int = 0
    checksums: list[int] = field(default_factory=list[int])
    seen: NDArray[Any] | None = None

    def count(self, event: int) -> int:
        """Cycles in which an event happened, summed over the cores."""
        return sum(core.count(event) for core in self.cores)

    @property
    def failed(self) -> CoreReport | None:
        """The first core that has failed."""
        return next((core for core in self.cores if core.failure is not Failure.NONE), None)


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

    def run(self, tokens: Tokens, limit: int, checks: int = 0, watch: bool = False) -> Report:
        """Feed tokens, one a cycle to each port when the machine takes them, until it is idle or has failed, or for `limit`
        cycles. The report has the checksums of the first `checks` cycles, and with `watch` what the cores did."""
        ...

    def look(self, core: int, set_: int, way: int, spilled: int = 0) -> Record:
        """A record of the store of a machine that is idle; of the backing memory if `spilled` is not 0."""
        ...
