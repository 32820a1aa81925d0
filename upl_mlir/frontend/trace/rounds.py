# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""`while_loop`: how often the loop goes round is decided by data.

The condition and the body are traced once each.  In the graph a state is a `State` when the condition is asked for and a
`Passed` in a round that takes place; in UPL nodes with a field for the round, without a bound.  Few operations on elements
become one node (`frontend.tensor.While`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from upl_mlir.frontend.tensor import STATE, Apply, Expr, Number, Read
from upl_mlir.frontend.trace import tree
from upl_mlir.frontend.trace.array import Array, as_array, broadcast, made, numbers, real_numbers, truths
from upl_mlir.frontend.trace.loops import carried, checked, standing
from upl_mlir.frontend.trace.node import (
    After,
    Compute,
    Few,
    Fill,
    Node,
    Operand,
    Passed,
    Phase,
    Rounds,
    Shape,
    State,
    Trace,
    current,
    places,
    recording,
    whole,
)
from upl_mlir.frontend.trace.position import fail
from upl_mlir.poly.expr import IndexExpr

LIMIT = 40
"""A loop of more operations, counted as often as they are read, is a node for each statement."""

WORD = "upl.while_loop"
"""The name in errors."""

What = Callable[[Any], Any]


def while_loop(cond_fun: What, body_fun: What, init_val: Any) -> Any:
    """``while cond_fun(val): val = body_fun(val)``, as in JAX; nothing but the condition bounds the rounds.

    `init_val` is a tree of arrays (tuples, lists, dicts); shapes stay the same.  `cond_fun` returns one truth value.  If it
    returns an array of the shape to which all states broadcast, they are broadcast, and each element goes round as often as
    it takes; then `body_fun` is made of operations on elements.  What the functions read from outside is the same in each
    round.  Outside of traced functions it is an ordinary loop.

    Raises UplError: UPL1931 for shapes that change, another tree, or a condition of another shape; UPL1932 for a body that
    writes into an array from outside, and for one that mixes elements which have rounds of their own.
    """
    if recording() is None:
        return _in_turn(cond_fun, body_fun, init_val)
    init = carried(init_val)
    if not any(True for _ in tree.leaves(init)):
        raise fail("UPL1931", f"{WORD}: the state has no array", help="give at least one array as init_val")
    trace = current()
    elements: Shape | None = None
    rounds, states = _begun(trace, cond_fun, init, elements)
    assert rounds.holds is not None
    if rounds.holds.node.shape:
        elements = _common([a.shape for _, a in tree.leaves(init)], rounds.holds.node.shape)
        init = tree.map_tree(lambda a: broadcast(a, elements).copy(), init)
        rounds, states = _begun(trace, cond_fun, init, elements)
        assert rounds.holds is not None
        if rounds.holds.node.shape != elements:
            raise _no_condition(rounds.holds.node.shape, [elements])

    def body() -> Any:
        return _next(states, body_fun(tree.map_tree(lambda s: made(rounds.passing(trace, s)), states)))

    new = _inside(trace, rounds.body, body)
    for (_, state), (_, node) in zip(tree.leaves(states), tree.leaves(new), strict=True):
        state.next = whole(node)
    for state in rounds.outside.values():
        state.next = whole(rounds.passing(trace, state))
    named = [state for _, state in tree.leaves(states)]
    reached = _reached(rounds, named)
    if elements is not None:
        _refuse_mixed(reached, elements)
    few = _few(rounds, named, reached)

    def after(state: State) -> Array:
        number, loops, span = trace.common()
        return made(After(number, state.shape, loops, span, rounds.passing(trace, state), named.index(state), few))

    return tree.map_tree(after, states)


def _in_turn(cond_fun: What, body_fun: What, init: Any) -> Any:
    """The loop on arrays that have values."""
    state = tree.map_tree(np.asarray, init)
    holds = _value(cond_fun(state))
    if holds.shape:
        elements = _common([a.shape for _, a in tree.leaves(state)], holds.shape)
        state = tree.map_tree(lambda a: np.broadcast_to(a, elements), state)
    while holds.any():
        new = checked(state, body_fun(tree.map_tree(np.copy, state)), WORD)
        state = tree.map_tree(lambda a, b, holds=holds: _chosen(holds, a, b), new, state)
        holds = _value(cond_fun(state))
    return state


def _chosen(holds: Any, new: Any, old: Any) -> Any:
    if np.broadcast_shapes(np.shape(new), old.shape) != old.shape:
        raise _another_shape(np.shape(new), old.shape)
    return np.where(holds, new, old)


def _value(holds: Any) -> Any:
    if not _is_one(holds):
        raise _no_truth(holds)
    return np.asarray(holds) != 0


def _is_one(found: Any) -> bool:
    """Whether it is one array of truth values or numbers."""
    if found is None or isinstance(found, tuple | list | dict):
        return False
    return isinstance(found, Array) or real_numbers(found) is not None


def _no_truth(found: Any) -> Exception:
    message = f"{WORD}: the condition is {type(found).__name__}, no truth value"
    return fail("UPL1934", message, help="return a comparison, or one combined with & and |")


def _no_condition(found: Shape, states: Sequence[Shape]) -> Exception:
    shown = " and ".join(map(str, dict.fromkeys(states)))
    return fail(
        "UPL1931", f"{WORD}: the condition has shape {found}, the states have {shown}",
        help="return one truth value (np.any, np.all), or one for each element of the states",
    )  # fmt: skip


def _common(shapes: Sequence[Shape], condition: Shape) -> Shape:
    """The shape of all states where each element has rounds of its own."""
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        shape = None
    if shape != condition:
        raise _no_condition(condition, shapes)
    return condition


# -- tracing -----------------------------------------------------------------------------------------------------------


def _begun(trace: Trace, cond_fun: What, init: Any, elements: Shape | None) -> tuple[Rounds, Any]:
    """A loop whose condition has been traced, and its states."""
    firsts = tree.map_tree(lambda a: standing(trace, a.operand().node), init)
    rounds = Rounds(f"k{next(trace.numbers)}", trace.loops, elements)
    states = tree.map_tree(lambda n: rounds.state(trace, whole(n), n.shape), firsts)
    rounds.holds = _inside(trace, rounds.test, lambda: _condition(cond_fun(tree.map_tree(made, states))))
    return rounds, states


def _condition(found: Any) -> Operand:
    if not _is_one(found):
        raise _no_truth(found)
    condition = numbers(truths(as_array(found))).own().operand()
    return whole(current().standing(condition.node))


def _next(states: Any, found: Any) -> Any:
    def one(state: State, new: Any) -> Node:
        array = numbers(as_array(new))
        try:
            array = broadcast(array, state.shape)
        except ValueError:
            raise _another_shape(array.shape, state.shape) from None
        return standing(current(), array.own().operand().node)

    return tree.map_tree(one, states, checked(states, found, WORD))


def _another_shape(found: Shape, shape: Shape) -> Exception:
    message = f"{WORD}: a round returns an array of shape {found} for a state of shape {shape}"
    return fail("UPL1931", message, help="shapes stay the same: make the array so large before the loop")


def _inside(trace: Trace, phase: Phase, run: Callable[[], Any]) -> Any:
    """What `run` returns, run inside a phase."""
    mark, log = next(trace.numbers), len(trace.writes)
    trace.loops = (*phase.rounds.outer, phase)
    try:
        found = run()
    finally:
        trace.loops = phase.rounds.outer
    for storage, _ in trace.writes[log:]:
        if storage.number < mark:
            raise fail(
                "UPL1932", f"{WORD}: a round writes into an array from outside", storage.node.span,
                help="make the array part of the state, and return it",
            )  # fmt: skip
    return found


# -- loops of operations on elements -----------------------------------------------------------------------------------


def _reached(rounds: Rounds, states: Sequence[State]) -> list[Node]:
    """What is computed inside the loop."""
    assert rounds.holds is not None
    found: dict[Node, None] = {}
    todo = [rounds.holds.node, *(s.next.node for s in states if s.next)]
    while todo:
        n = todo.pop()
        inside = rounds.test in n.loops or rounds.body in n.loops
        if inside and n not in found and not isinstance(n, State | Passed | Fill):
            found[n] = None
            todo += [o.node for o in n.operands]
    return list(found)


def _refuse_mixed(nodes: Sequence[Node], elements: Shape) -> None:
    """Raise UplError (UPL1932) for what is no operation on elements at one place."""
    for n in nodes:
        if not _at_one_place(n, elements):
            raise fail(
                "UPL1932", f"{WORD}: this mixes elements, which have rounds of their own", n.span,
                help="return one truth value from the condition (np.any, np.all): then all elements go round together",
            )  # fmt: skip


def _at_one_place(n: Node, elements: Shape) -> bool:
    if not isinstance(n, Compute) or n.over or n.shape != elements:
        return False
    return all(isinstance(o.node, Fill) or o.index == places(elements) for o in n.reads)


def _few(rounds: Rounds, states: Sequence[State], nodes: Sequence[Node]) -> Few | None:
    """The loop as expressions, if it is one of few operations on elements."""
    shape = rounds.elements if rounds.elements is not None else ()
    if any(s.shape != shape for s in states) or any(not isinstance(n, Compute) or n.over or n.shape != shape for n in nodes):
        return None
    return _Elements(rounds, states, shape).few()


class _TooMany(Exception):
    """A loop that is not small."""


class _Elements:
    """Expressions of a loop's condition and body at one element; what comes from outside is a state for each place at which
    it is read."""

    def __init__(self, rounds: Rounds, states: Sequence[State], shape: Shape):
        self.rounds, self.states, self.left = rounds, states, LIMIT
        self.index = (*(IndexExpr.of(x.name) for x in rounds.outer), *places(shape))
        self.first = {whole(s): s.first for s in states}  # by where they are read

    def few(self) -> Few | None:
        assert self.rounds.holds is not None
        try:
            condition = self._read(self.rounds.holds)
            body = [self._read(s.next) for s in self.states if s.next is not None]
        except _TooMany:
            return None
        outside = [self._state(o) for o in list(self.first)[len(self.states) :]]
        return Few(tuple(self.first.values()), condition, (*body, *outside))

    def _state(self, o: Operand) -> Expr:
        return Read(f"{STATE}{list(self.first).index(o)}", self.index)

    def _read(self, o: Operand) -> Expr:
        node = o.node
        if isinstance(node, Fill):
            return Number(node.value, node.span)
        if isinstance(node, Passed):
            node = node.state
        if isinstance(node, State):
            at = Operand(node, o.index)
            if at not in self.first and node in self.states:
                raise _TooMany  # another element of a state
            if at not in self.first:
                own = {f"i{n}": e for n, e in enumerate(o.index)}
                self.first[at] = Operand(node.first.node, tuple(e.substitute(own) for e in node.first.index))
            read = self._state(at)
            return Apply("!=", (read, Number(0))) if node.boolean else read
        assert isinstance(node, Compute)
        self.left -= 1
        if self.left < 0 or o.index != places(node.shape):
            raise _TooMany
        return node.make(*map(self._read, node.reads))
