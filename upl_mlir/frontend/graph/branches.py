"""Branches and loops that data decide, element by element: `cond_op` and `while_op`.

Each is made of functions on nodes, which are called once, with a parameter for each operand; what they return has to be made
of operations on elements.  In UPL a branch is two nodes of which one fires, and a loop one with a field for the round: see
`frontend/tensor/decided.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from upl_mlir.diagnostics import error
from upl_mlir.frontend.graph.backward import find_topo_sort
from upl_mlir.frontend.graph.node import Node, Op, PlaceholderOp, Reader, Shape, number
from upl_mlir.frontend.graph.ops import Elementwise, broadcast, indices, need_node, ranges
from upl_mlir.frontend.graph.text import meaning
from upl_mlir.frontend.tensor import STATE, Branch, Expr, Number, Read, While
from upl_mlir.poly.expr import IndexExpr


class Parameter(PlaceholderOp):
    """What stands for an operand inside the functions of a branch or a loop."""

    word = "parameter"


class Cond(Op):
    """The element of one of two branches, which the first operand decides."""

    word = "cond"

    def __call__(self, condition: Node, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Node) -> Node:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The node of ``then(*operands)`` where `condition` is not 0, of ``otherwise(*operands)`` elsewhere, element by
        element; only what is chosen is computed.  Operands broadcast.  Raises UplError (UPL1925)."""
        for n in (condition, *operands):
            need_node(self, n)
        params = [_parameter(n.name) for n in operands]
        arms = [_made(self.word, f(*params), params) for f in (then, otherwise)]
        return Node(self, [condition, *operands], (params, arms), f"Cond({condition.name})")

    def shape(self, node: Node, shapes: Sequence[Shape]) -> Shape:
        return _common(node, shapes)

    def statement(self, node: Node, target: str, reads: Sequence[Reader], shapes: Sequence[Shape]) -> Branch:
        params, arms = node.const_attr
        shape = self.shape(node, shapes)
        index = indices(shape)
        condition, *values = [read(broadcast(index, shape, s)) for read, s in zip(reads, shapes, strict=True)]
        known = dict(zip(params, values, strict=True))
        then, otherwise = (_expression(arm, known, shape) for arm in arms)
        names = tuple(str(i) for i in index)
        return Branch(target, names, condition, then, otherwise, ranges(shape))


class Loop:
    """One call of `while_op`: the states, the functions as nodes, and the parameters in them."""

    def __init__(
        self, states: Sequence[Node], params: Sequence[Node], condition: Node | float, body: Sequence[Node | float]
    ):
        self.states, self.params, self.condition, self.body = states, params, condition, body


class State(Op):
    """A state of a loop after its last round; `const_attr` is the loop and which state it is."""

    word = "while"

    def shape(self, node: Node, shapes: Sequence[Shape]) -> Shape:
        return _common(node, shapes)


def while_statement(
    loop: Loop, node: Node, targets: Sequence[str], reads: Sequence[Reader], shapes: Sequence[Shape]
) -> While:
    """The statement that computes all states of a loop, one of whose nodes is `node`."""
    shape = _common(node, shapes)
    index = indices(shape)
    first = tuple(read(broadcast(index, shape, s)) for read, s in zip(reads, shapes, strict=True))
    known = {p: Read(f"{STATE}{n}", index) for n, p in enumerate(loop.params)}
    body = tuple(_expression(e, known, shape) for e in loop.body)
    names = tuple(str(i) for i in index)
    return While(tuple(targets), names, first, _expression(loop.condition, known, shape), body, ranges(shape))


cond_op = Cond()
_state = State()


def while_op(condition: Callable[..., Any], body: Callable[..., Any], *states: Node) -> list[Node]:
    """The states after ``while condition(*states): states = body(*states)``, each element in as many rounds as it takes.

    `body` returns as many nodes as there are states (one node, if there is one); what a round reads is a state, which `body`
    may return as it is.  States broadcast.  Nothing bounds the rounds but `condition`.  Raises UplError (UPL1925).
    """
    if not states:
        raise error("UPL1925", "while_op: a loop has at least one state", help="while_op(condition, body, x)")
    for n in states:
        need_node(_state, n)
    params = [_parameter(n.name) for n in states]
    holds = _made("while", condition(*params), params)
    found = body(*params)
    found = list(cast("Sequence[Any]", found)) if isinstance(found, list | tuple) else [found]
    if len(found) != len(states):
        raise error(
            "UPL1925", f"while_op: `body` returned {len(found)} nodes for {len(states)} states",
            help="return one for each; a state that stays as it is, too",
        )  # fmt: skip
    loop = Loop(states, params, holds, [_made("while", e, params) for e in found])
    return [Node(_state, states, (loop, n), f"While({s.name})") for n, s in enumerate(states)]


def _parameter(name: str) -> Node:
    return Node(Parameter(), (), None, name)


def _made(word: str, value: Any, params: Sequence[Node]) -> Node | float:
    """What a function returned, if it is made of operations on the elements of its parameters."""
    if not isinstance(value, Node):
        return number(Node(Parameter(), (), None, word), value)
    for n in find_topo_sort([value]):
        if n in params:
            continue
        if isinstance(n.op, PlaceholderOp):
            help = "make it an operand, and a parameter of the functions"
            raise error("UPL1925", f"{word}: `{n.name}` comes from outside", help=help)
        if not isinstance(meaning(n), Elementwise) or n.op.leads:
            raise error(
                "UPL1925", f"{word}: `{n.name}` is no operation on elements ({n.op.word})",
                help="compute it before, and make it an operand; rounds that mix elements are "
                "call_op(f, …) of a function with upl.while_loop",
            )  # fmt: skip
    return value


def _common(node: Node, shapes: Sequence[Shape]) -> Shape:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise node.fail("the shapes do not broadcast", shapes) from None


def _expression(value: Node | float, known: Mapping[Node, Expr], shape: Shape) -> Expr:
    """A function's result at an element, all of whose parameters have one shape."""
    if not isinstance(value, Node):
        return Number(value)
    if value in known:
        return known[value]
    op = meaning(value)
    assert isinstance(op, Elementwise)

    def reader(n: Node) -> Reader:
        def read(_index: tuple[IndexExpr, ...]) -> Expr:
            return _expression(n, known, shape)

        return read

    return op.element(value, indices(shape), [reader(n) for n in value.inputs], [shape] * len(value.inputs))
