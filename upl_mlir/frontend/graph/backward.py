"""Derivatives in a graph: requests that UPL answers, and the way back through operations with a `gradient` of their own.

UPL differentiates what lies between such operations; each of them is cut off there, as an input.  So with ``c = op(a)``

    d(y)/d(x) = the derivative of y by x, with c held fixed
              + the derivative of a by x, seeded with ``op.gradient(c, d(y)/d(c))``

The operations are taken in reverse order, so that d(y)/d(c) is whole when `gradient` is asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from typing import cast

from upl_mlir.diagnostics import error
from upl_mlir.frontend.graph.node import Node, Op, Shape
from upl_mlir.frontend.graph.ops import add_op, need_node, stop_gradient_op, zeroslike_op


class Gradient(Op):
    """A derivative of its first operand by its second; a third one weights the elements of the first."""

    word = "gradient"

    def shape(self, node: Node, shapes: Sequence[Shape]) -> Shape:
        return shapes[1]


class Request:
    """Derivatives that are computed together: of the sum of the elements of `of`, each times its element of `seed`, by
    each of `wrt`.  `by` is the operation that made the seed, for messages."""

    def __init__(self, of: Node, wrt: Sequence[Node], seed: Node | None = None, by: Node | None = None):
        self.of, self.wrt, self.seed, self.by = of, tuple(wrt), seed, by

    @property
    def given(self) -> list[Node]:
        """What the derivatives are computed from, without `wrt`."""
        return [self.of] if self.seed is None else [self.of, self.seed]


_gradient = Gradient()


def gradients(output_node: Node, node_list: Sequence[Node]) -> list[Node]:
    """For each node of the list the derivative of `output_node` by it, as a node of the same shape.

    Where `output_node` is not a number, the derivative is that of the sum of its elements.  The results are nodes like any
    others: they can be differentiated again.  Raises UplError: UPL1923 for what is no node, UPL1924 for operations without
    a gradient, or with one that does not fit.
    """
    need_node(_gradient, output_node)
    for n in node_list:
        need_node(_gradient, n)
    leading = [n for n in _moving(output_node, node_list) if n.op.leads]
    if not leading:
        return [_renamed(n, output_node, w) for n, w in zip(_asked(Request(output_node, node_list)), node_list, strict=True)]
    parts: dict[Node, list[Node]] = {n: [] for n in (*node_list, *leading)}
    _add(parts, output_node, leading)
    for c in reversed(leading):
        if parts[c]:
            whole = reduce(add_op, parts[c])
            for operand, seed in zip(c.inputs, _by_operands(c, whole), strict=True):
                if seed is not None:
                    _add(parts, operand, leading, seed, c)
    return [_renamed(reduce(add_op, parts[w]) if parts[w] else zeroslike_op(w), output_node, w) for w in node_list]


def _renamed(node: Node, of: Node, by: Node) -> Node:
    node.name = Node(node.op, (), None, f"d({of.name})/d({by.name})").name
    return node


def _asked(request: Request) -> list[Node]:
    """A node for each derivative of a request."""
    given = request.given
    return [Node(_gradient, [given[0], w, *given[1:]], request) for w in request.wrt]


def _moving(output: Node, wrt: Iterable[Node]) -> list[Node]:
    """The nodes that `output` depends on and that are computed from one of `wrt`, operands first."""
    moving: list[Node] = []
    seen = set(wrt)
    for n in find_topo_sort([output]):
        if n.op is not stop_gradient_op and not seen.isdisjoint(n.inputs):
            moving.append(n)
            seen.add(n)
    return moving


def _add(
    parts: dict[Node, list[Node]], of: Node, leading: Collection[Node], seed: Node | None = None, by: Node | None = None
) -> None:
    """Add the derivatives of a node by all that it depends on without passing an operation with its own gradient."""
    found: dict[Node, None] = {}
    seen, stack = {of}, [of]
    while stack:
        n = stack.pop()
        if n in parts:
            found[n] = None
        if n not in leading and n.op is not stop_gradient_op:
            stack += [m for m in n.inputs if m not in seen]
            seen |= set(n.inputs)
    wrt = [n for n in parts if n in found]
    for w, d in zip(wrt, _asked(Request(of, wrt, seed, by)), strict=True):
        parts[w].append(d)


def _by_operands(node: Node, output_grad: Node) -> Sequence[Node | None]:
    """What the operation says of its derivatives, one for each operand."""
    op, word = node.op, type(node.op).__name__
    if type(op).gradient is Op.gradient:
        raise error(
            "UPL1924", f"the operation `{word}` has no gradient, and `{node.name}` is differentiated",
            help="give it `gradient(self, node, output_grad)`; stop_gradient_op says that no derivative shall pass",
        )  # fmt: skip
    found = cast(object, op.gradient(node, output_grad))
    parts = cast("Sequence[object]", found) if isinstance(found, list | tuple) else ()
    nodes = [d for d in parts if d is None or isinstance(d, Node)]
    if not isinstance(found, list | tuple) or not len(nodes) == len(parts) == len(node.inputs):
        raise error(
            "UPL1924", f"`gradient` of the operation `{word}` returned {found!r} for `{node.name}`",
            help=f"return a list of {len(node.inputs)} nodes, one for each operand; None where the derivative is 0",
        )  # fmt: skip
    return nodes


def find_topo_sort(node_list: Sequence[Node]) -> list[Node]:
    """The nodes and all that they depend on, each once, operands first (in post-order)."""
    return ordered(node_list)


def ordered(nodes: Sequence[Node], leaves: Collection[Node] = ()) -> list[Node]:
    """The nodes and all that they depend on, operands first; what `leaves` depend on is left out."""
    needed: set[Node] = set()
    todo = list(nodes)
    while todo:
        n = todo.pop()
        if n not in needed:
            needed.add(n)
            todo += n.inputs if n not in leaves else ()
    joint: dict[Request, list[Node]] = {}  # the derivatives of one request are computed together
    for n in needed:
        if isinstance(n.op, Gradient):
            joint.setdefault(n.const_attr, []).append(n)
    out: dict[Node, None] = {}
    stack = [(n, False) for n in reversed(nodes)]
    while stack:
        n, done = stack.pop()
        if done:
            out[n] = None
        elif n not in out:
            operands = n.inputs if n not in leaves else []
            if isinstance(n.op, Gradient):
                wanted = {m.inputs[1] for m in joint[n.const_attr]}
                operands = [*n.const_attr.given, *(x for x in n.const_attr.wrt if x in wanted)]
            stack.append((n, True))
            stack += [(m, False) for m in reversed(operands) if m not in out]
    return list(out)
