"""When what happens in a run of a circuit whose ports never wait, slot by slot: exact, as the schedule is static."""

from __future__ import annotations

import numpy as np

from upl_mlir.passes.circuit.nest import Ints
from upl_mlir.passes.circuit.plan import ARRIVES, LEAVES, QUEUED, Plan
from upl_mlir.passes.circuit.ports import LEAD, Input, Output, deadlines


def begins(plan: Plan) -> Ints:
    """The slot in which each instance begins, over loops and lanes; the first lane's first one is slot 0."""
    nest = plan.nest
    return np.broadcast_to(nest.slot[..., None] + nest.skew * np.arange(nest.lanes), nest.shape)


def due(plan: Plan, i: Input) -> Ints:
    """The slot in which each word of an input must have come, in the order of the port; -1 is before the first one."""
    return deadlines(plan.nest, i.need)


def leave(plan: Plan, o: Output) -> Ints:
    """The slot in which each word of an output leaves its lane, in the order of the port."""
    nest = plan.nest
    if len(o.lanes) == 1:
        return np.sort(LEAD + plan.at.result + begins(plan)[o.when])
    at_once = o.when.reshape(-1, nest.lanes)
    turn, lane = np.nonzero(at_once[at_once.any(axis=-1)])
    return LEAD + plan.at.result + o.wait + turn * nest.lanes + lane + QUEUED


def clock(plan: Plan, slots: Ints) -> Ints:
    """The clock in which slots of the first lane pass: a slot comes later by as much as the words due before it were late.

    Word n of a port comes in clock n.
    """
    late = np.full(int(slots.max(initial=0)) + 2, -1, dtype=np.int64)
    for i in plan.inputs:
        d = due(plan, i)
        behind, near = np.arange(len(d)) + ARRIVES - d, d + 1 < len(late)
        np.maximum.at(late, d[near] + 1, behind[near])
    return slots + np.maximum.accumulate(late)[slots]


def arrives(plan: Plan, o: Output) -> Ints:
    """The clock in which each word of an output is at its port, if nothing waits there."""
    return clock(plan, leave(plan, o)) + plan.nest.lanes + LEAVES
