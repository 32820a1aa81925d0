"""When what happens in a run of a circuit whose ports never wait, clock by clock: exact, as the schedule is static."""

from __future__ import annotations

import numpy as np

from upl_mlir.passes.circuit.channels.outputs import Output
from upl_mlir.passes.circuit.nest import Ints
from upl_mlir.passes.circuit.plan import ARRIVES, BEGINS, LEAVES, Plan, due, leaves


def clock(plan: Plan, slots: Ints) -> Ints:
    """The clock in which slots of the first lane pass: as much later as the words that are due by then come late.

    Word n of a port comes in clock n.
    """
    late = np.full(int(slots.max(initial=0)) + 1, BEGINS, dtype=np.int64)
    for i in plan.inputs:
        d = due(plan, i)
        behind, near = np.arange(len(d)) + ARRIVES - d, d < len(late)
        np.maximum.at(late, np.maximum(d[near], 0), behind[near])
    return slots + np.maximum.accumulate(late)[slots]


def arrives(plan: Plan, o: Output) -> Ints:
    """The clock in which each word of an output is at its port, if nothing waits there."""
    return clock(plan, leaves(plan, o)) + plan.parts[o.part].nest.lanes + LEAVES
