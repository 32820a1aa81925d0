# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Loops that become recurrences: the body is traced once, for all rounds, with an index field for the round.

Arrays that exist before the loop and are written in its body are carried from round to round.  Which ones these are is
found by running the body once and forgetting what it did; the second time they stand for the values at the start of a round.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterator
from typing import Any

from upl_mlir.frontend.trace import tree
from upl_mlir.frontend.trace.array import as_array, computed, made, numbers
from upl_mlir.frontend.trace.indexing import LoopIndex
from upl_mlir.frontend.trace.node import Fill, Last, Loop, Node, Operand, State, Storage, Trace, recording, whole
from upl_mlir.poly.expr import IndexExpr


def range(start: Any, stop: Any = None, step: int = 1) -> Iterator[Any]:
    """As Python's range, for `for` loops in traced functions: the loop is traced once and becomes a recurrence.

    Indices of arrays may be linear in the loop's index, which has no value while tracing; what a round needs from earlier
    ones is written into arrays that exist before the loop (``x[:] = …``, not ``x = …``).  Outside of traced functions it
    is Python's range.
    """
    trace = recording()
    rounds = builtins.range(start) if stop is None else builtins.range(start, stop, step)
    if trace is None or len(rounds) < 2:
        yield from rounds
        return
    name = f"k{next(trace.numbers)}"
    loop = Loop(name, len(rounds))
    index = LoopIndex(IndexExpr.of(name) * rounds.step + rounds.start, {name: loop})
    outer, mark, log = trace.loops, next(trace.numbers), len(trace.writes)
    trace.loops = (*outer, loop)
    yield index
    before: dict[Storage, Node] = {}
    for storage, node in trace.writes[log:]:
        if storage.number < mark:
            before.setdefault(storage, node)
    del trace.writes[log:]
    trace.dropped.append(builtins.range(mark, next(trace.numbers)))
    trace.loops = outer
    firsts = {storage: _standing(trace, node) for storage, node in before.items()}
    trace.loops = (*outer, loop)
    states = {storage: State(*_parts(trace, first), first=whole(first)) for storage, first in firsts.items()}
    for storage, state in states.items():
        storage.node = state
    yield index
    nexts = {storage: _standing(trace, storage.node) for storage in states}
    trace.loops = outer
    del trace.writes[log:]
    for storage, state in states.items():
        state.next = whole(nexts[storage])
        trace.writes.append((storage, before[storage]))
        storage.node = Last(*_parts(trace, state), state=state)


def _parts(trace: Trace, like: Node) -> Any:
    number, loops, span = trace.common()
    return number, like.shape, loops, span


def _standing(trace: Trace, node: Node) -> Node:
    """The node, or a copy of it in the present loops, if it cannot be carried as it is."""
    if node.loops == trace.loops and not isinstance(node, Fill | State) and not getattr(node, "boolean", False):
        return node
    value: Operand = computed(lambda a: a, numbers(made(node)), word="copy").operand()
    return value.node


def fori_loop(lower: int, upper: int, body_fun: Callable[[Any, Any], Any], init_val: Any) -> Any:
    """``val = body_fun(k, val)`` for k from `lower` to below `upper`, as in JAX: traced once, a recurrence in UPL.

    `init_val` and the values may be tuples, lists and dicts of arrays; shapes stay the same.  Outside of traced functions
    it is an ordinary loop.
    """
    low, high = operator.index(lower), operator.index(upper)
    if recording() is None:
        for k in builtins.range(low, high):
            init_val = body_fun(k, init_val)
        return init_val
    carried = tree.map_tree(lambda a: numbers(as_array(a)).copy(), init_val)
    arrays = [a for _, a in tree.leaves(carried)]
    for k in range(low, high):
        new = body_fun(k, tree.map_tree(lambda a: a.copy(), carried))
        values = [as_array(v).copy() for _, v in tree.leaves(new)]
        for array, value in zip(arrays, values, strict=True):
            array[...] = value
    return carried
