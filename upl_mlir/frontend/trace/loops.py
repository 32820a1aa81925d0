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

import numpy as np

from upl_mlir.frontend.trace import tree
from upl_mlir.frontend.trace.array import Array, as_array, computed, made, numbers, truths
from upl_mlir.frontend.trace.indexing import LoopIndex
from upl_mlir.frontend.trace.node import (
    Fill,
    Last,
    Loop,
    Node,
    Operand,
    Stacked,
    State,
    Storage,
    Trace,
    current,
    recording,
    whole,
)
from upl_mlir.frontend.trace.position import fail
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
    firsts = {storage: standing(trace, node) for storage, node in before.items()}
    trace.loops = (*outer, loop)
    of_truths = {storage: getattr(node, "boolean", False) for storage, node in before.items()}
    states = {
        storage: State(*_parts(trace, first), first=whole(first), boolean=of_truths[storage])
        for storage, first in firsts.items()
    }
    for storage, state in states.items():
        storage.node = state
    yield index
    nexts = {storage: standing(trace, storage.node) for storage in states}
    trace.loops = outer
    del trace.writes[log:]
    for storage, state in states.items():
        state.next = whole(nexts[storage])
        trace.writes.append((storage, before[storage]))
        last = Last(*_parts(trace, state), state=state)
        storage.node = truths(made(last)).operand().node if of_truths[storage] else last


def _parts(trace: Trace, like: Node) -> Any:
    number, loops, span = trace.common()
    return number, like.shape, loops, span


def standing(trace: Trace, node: Node) -> Node:
    """The node, or a copy of it in the present loops, if it cannot be carried as it is."""
    node = trace.standing(node)
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
    state = carried(init_val)
    for k in range(low, high):
        _carry(state, body_fun(k, tree.map_tree(lambda a: a.copy(), state)), "upl.fori_loop")
    return state


def scan(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any = None, length: int | None = None) -> tuple[Any, Any]:
    """``carry, y = f(carry, x)`` for each x along the first axis of `xs`, as in JAX: the last carry, and all y, stacked.

    Without `xs`, `length` says how many rounds there are, and x is None.  `init`, `xs` and what `f` returns may be tuples,
    lists and dicts of arrays.  Traced once, a recurrence in UPL; outside of traced functions an ordinary loop.

    Raises UplError: UPL1931 where there is no round, or extents or shapes differ, UPL1934 where `f` returns no pair.
    """
    trace = recording()
    arrays = tree.map_tree(np.asarray if trace is None else as_array, xs)
    extents = {len(a) if a.shape else 0 for _, a in tree.leaves(arrays)} | ({length} if length is not None else set())
    if len(extents) != 1 or 0 in extents:
        found = " and ".join(str(n) for n in sorted(extents)) or "no"
        help = "the arrays of `xs` have one first extent, which is 1 or more; without `xs`, give length=…"
        raise fail("UPL1931", f"upl.scan: there are {found} rounds", help=help)
    rounds = extents.pop()
    if trace is None or rounds == 1:
        return _in_turn(f, init, arrays, rounds)
    return _traced_scan(lambda carry, k, xs: f(carry, xs), init, arrays, rounds)


def counted_scan(
    f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, rounds: int
) -> tuple[Any, Any]:  # fmt: skip
    """As `scan`, in a traced function, but `f` gets pairs: the round, from 0, which may be an index, and x."""
    if rounds > 1:
        return _traced_scan(lambda carry, k, x: f(carry, (k, x)), init, xs, rounds)
    results: list[Any] = []
    for k in builtins.range(rounds):
        init, y = _pair(f(init, (k, tree.map_tree(lambda a, k=k: a[k], xs))))
        results.append(y)
    return init, tree.map_tree(lambda *ys: np.stack(ys), *results) if results else None


def _traced_scan(
    f: Callable[[Any, Any, Any], tuple[Any, Any]], init: Any, arrays: Any, rounds: int
) -> tuple[Any, Any]:  # fmt: skip
    """The body once, for all rounds."""
    carry, ys = carried(init), None
    for k in range(rounds):
        new, ys = _pair(f(tree.map_tree(lambda a: a.copy(), carry), k, tree.map_tree(lambda a, k=k: a[k], arrays)))
        ys = tree.map_tree(lambda y: standing(current(), numbers(as_array(y)).own().operand().node), ys)
        _carry(carry, new, "upl.scan")
    return carry, tree.map_tree(lambda y: _stacked(y, rounds), ys)


def _in_turn(f: Callable[[Any, Any], tuple[Any, Any]], carry: Any, xs: Any, rounds: int) -> tuple[Any, Any]:
    """The rounds of `scan` one by one."""
    results: list[Any] = []
    for k in builtins.range(rounds):
        carry, y = _pair(f(carry, tree.map_tree(lambda a, k=k: a[k], xs)))
        results.append(y)
    return carry, tree.map_tree(lambda *ys: np.stack(ys), *results)


def _pair(found: Any) -> tuple[Any, Any]:
    if not isinstance(found, tuple) or len(found) != 2:
        raise fail("UPL1934", "upl.scan: the function returns no pair", help="return carry, y; y may be None")
    return found


def _stacked(inner: Node, rounds: int) -> Array:
    number, loops, span = current().common()
    return made(Stacked(number, (rounds, *inner.shape), loops, span, inner))


def carried(values: Any) -> Any:
    """Arrays of their own, which a loop writes."""
    return tree.map_tree(lambda a: numbers(as_array(a)).copy(), values)


def checked(old: Any, new: Any, what: str) -> Any:
    """What a round has returned.  Raises UplError (UPL1931) unless it is such a tree of arrays as it was given."""
    if tree.structure(new) != tree.structure(old):
        help = "return arrays in the same tuples, lists and dicts as they were given"
        raise fail("UPL1931", f"{what}: a round returns another structure than it was given", help=help)
    return new


def _carry(arrays: Any, new: Any, what: str) -> None:
    """Write what a round has returned into the arrays that the loop carries.  Raises UplError (UPL1931)."""
    values = tree.map_tree(lambda v: as_array(v).copy(), checked(arrays, new, what))
    for (_, array), (_, value) in zip(tree.leaves(arrays), tree.leaves(values), strict=True):
        array[...] = value
