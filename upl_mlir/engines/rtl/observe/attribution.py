"""Where the cycles went: each cycle of each core was used, or was lost for exactly one reason.

The simulation counts which events happened together in a cycle; the first cause of a list that fits takes the cycle.
"""

from __future__ import annotations

from collections.abc import Sequence

from upl_mlir.hw.core.core import Event
from upl_mlir.hw.sim.interface import CoreReport

Causes = tuple[tuple[str, tuple[Event, ...]], ...]
"""Names, and the events of which one must have happened."""

BUSY = "busy"
MATCH: Causes = (
    (BUSY, (Event.TAKEN,)),
    ("activation", (Event.WAIT_ACTIVATION,)),  # a firing waits for room in the execution unit
    ("backing", (Event.WAIT_BACKING,)),
    ("reducer", (Event.WAIT_REDUCER,)),
    ("walk", (Event.WALKED,)),  # one token goes through the indices that it covers
    ("probe", (Event.PROBED,)),  # one token needs further probes; results of the reducer
    ("send", (Event.SENT, Event.WAIT_QUEUE, Event.WAIT_NETWORK)),  # nothing to take: tokens are on their way here
    ("execute", (Event.EXECUTING,)),  # nothing to take: activations are being computed
    ("reduce", (Event.MATCHING,)),  # nothing to take: sums are being computed
    ("queue", (Event.QUEUED, Event.HOST_IN, Event.WAIT_HOST)),  # tokens pass the queue
)
"""Of the matching unit; busy: it takes a token.  What is left waits for other cores or the host."""
EXECUTE: Causes = (
    (BUSY, (Event.ISSUED,)),
    ("queue", (Event.WAIT_QUEUE,)),  # a token cannot leave
    ("network", (Event.WAIT_NETWORK,)),
    ("send", (Event.SENT,)),  # all contexts wait, and the send engine works
    ("latency", (Event.EXECUTING,)),  # all contexts wait for results
    ("backing", (Event.WAIT_BACKING,)),  # no activation: the matching unit waits
    ("match", (Event.TAKEN, Event.PROBED, Event.WALKED, Event.WAIT_REDUCER)),  # no activation: it works
    ("reduce", (Event.MATCHING,)),  # no activation: sums are being computed
    ("queue", (Event.QUEUED, Event.HOST_IN, Event.WAIT_HOST)),  # no activation: tokens pass the queue
)
"""Of the execution unit; busy: it issues an instruction."""
OUTSIDE = "outside"
"""Nothing in the core is under way: it waits for tokens of other cores or of the host."""


def attribution(cores: Sequence[CoreReport]) -> dict[str, dict[str, int]]:
    """For the units `match` and `execute`: core-cycles by cause; all causes of a unit, `busy` included, sum to the cycles
    times the cores."""
    return {
        unit: _attribute(causes, [c.patterns for c in cores])
        for unit, causes in (("match", MATCH), ("execute", EXECUTE))
    }


def _attribute(causes: Causes, patterns: Sequence[dict[int, int]]) -> dict[str, int]:
    masks = [(name, sum(1 << e for e in events)) for name, events in causes]
    out = {name: 0 for name, _ in (*causes, (OUTSIDE, ()))}
    for counts in patterns:
        for pattern, times in counts.items():
            out[next((name for name, mask in masks if pattern & mask), OUTSIDE)] += times
    return out
