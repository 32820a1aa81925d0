"""What goes into a simulation and what comes out: tokens of the host, elements of outputs, figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from upl_mlir.hw.execute import Scalar


class HostToken(NamedTuple):
    """A token from the host: number of the node and the input, index (None = `*`), value, and multiplicity (None =
    unbounded; for a gathering input the number of summands, for an open gather its rank, plus 1). `present`: no summand, but
    the open gather exists.
    """

    node: int
    input: int
    index: tuple[int | None, ...]  # pyright: ignore[reportIncompatibleMethodOverride]
    value: float | int | bool | np.float32
    multiplicity: int | None = 1
    present: bool = False


class OutputElement(NamedTuple):
    """What came out: name of the host output, index, value (float32, int or bool)."""

    output: str
    index: tuple[int, ...]  # pyright: ignore[reportIncompatibleMethodOverride]
    value: Scalar


@dataclass(frozen=True)
class Occupancy:
    """Entries of the matching store in use: the most at any time, and the mean over the cycles."""

    peak: int
    mean: float


@dataclass(frozen=True)
class Stats:
    """Figures of a run; `seconds` is the time the simulation took, `cycles` the machine's, first token to rest.

    `tokens` counts tokens that a node received, a multicast once; `stalls` has cycles by `unit.cause`; `utilisation`
    has, for each port, the part of the cycles in which something went through.  `queue_peak` is the longest that the
    token queue before the matching unit became; `spills` and `queue_spills` count records and tokens
    that went to backing memory. `cores` and `links`
    have the same figures for each core and each link of the network, as far as they apply; `injection_bound` are the
    cycles in which the host gave as many tokens as it has ports.
    """

    cycles: int
    matches: int
    firings: dict[str, int]
    tokens: dict[str, int]
    peak_waiting: int
    occupancy: Occupancy
    stalls: dict[str, int]
    utilisation: dict[str, float]
    queue_peak: int
    seconds: float
    simulator: str = "amaranth"
    elements: dict[str, int] = field(default_factory=dict[str, int])
    """Of each host output, those that came."""
    spills: int = 0
    queue_spills: int = 0
    injection_bound: int = 0
    cores: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    links: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    store: dict[str, Any] = field(default_factory=dict[str, Any])
    """Of a direct store: `places` of each bank, and last of the gather store; `rows` of ranks; `nodes`, by name."""
    throttle: dict[str, Any] = field(default_factory=dict[str, Any])
    """If the host is held back: the field whose values are the stages (`along`), and how many it may send (`window`)."""
    attribution: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """By unit: what core-cycles were used for or lost to; see `engines/rtl/observe/attribution.py`."""
    activity: dict[str, int] = field(default_factory=dict[str, int])
    """What the energy proxy weights; see `engines/rtl/observe/activity.py`."""

    def to_dict(self) -> dict[str, Any]:
        """The contents of `stats.json`."""
        return {
            "engine": "rtl",
            "firings": dict(self.firings),
            "tokens": {**self.tokens, **self.elements},
            "tokens_sent": sum(self.tokens.values()) + sum(self.elements.values()),
            "peak_waiting": self.peak_waiting,
            "seconds": self.seconds,
            "cycles": self.cycles,
            "matches": self.matches,
            "occupancy": {"peak": self.occupancy.peak, "mean": self.occupancy.mean},
            "stalls": dict(self.stalls),
            "spills": self.spills,
            "queue_spills": self.queue_spills,
            "utilisation": dict(self.utilisation),
            "queue_peak": self.queue_peak,
            "simulator": self.simulator,
            "injection_bound": self.injection_bound,
            "cores": list(self.cores),
            "links": list(self.links),
            **({"store": dict(self.store)} if self.store else {}),
            "attribution": dict(self.attribution),
            **({"throttle": dict(self.throttle)} if self.throttle else {}),
            "activity": dict(self.activity),
        }


@dataclass(frozen=True)
class SimulationResult:
    """What a run gave: the outputs in order of leaving, and its figures."""

    outputs: list[OutputElement]
    stats: Stats
