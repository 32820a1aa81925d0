"""The operations of static graphs: each with its shapes and, as a statement on tensors, its meaning.

Elementwise operations broadcast as numpy does.  None of them has a derivative here: that is UPL's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from upl_mlir.diagnostics import error
from upl_mlir.frontend.graph.node import OPERATORS, Node, Op, PlaceholderOp, Reader, Shape, number
from upl_mlir.frontend.tensor import Apply, Expr, Number, Statement, Sum
from upl_mlir.ops import SPOKEN
from upl_mlir.poly.expr import IndexExpr


def indices(shape: Shape, prefix: str = "i") -> tuple[IndexExpr, ...]:
    """One index for each dimension: ``i0, i1, …``."""
    return tuple(IndexExpr.of(f"{prefix}{n}") for n in range(len(shape)))


def ranges(shape: Shape, prefix: str = "i") -> dict[str, tuple[int, int]]:
    """The ranges of `indices`."""
    return {f"{prefix}{n}": (0, extent - 1) for n, extent in enumerate(shape)}


class Elementwise(Op):
    """A function of the operands' elements at one place; `pattern` makes the name, `make` the expression."""

    def __init__(self, word: str, pattern: str, make: Callable[..., Expr], *, constant: bool = False):
        self.word, self.pattern, self.make, self.constant = word, pattern, make, constant

    def __call__(self, *operands: Any) -> Node:
        """The node of the operation on nodes, the last operand being a number if it takes one."""
        nodes = operands[:-1] if self.constant else operands
        for n in nodes:
            need_node(self, n)
        value = number(nodes[0], operands[-1]) if self.constant else None
        names = [n.name for n in nodes] + ([f"{value:g}"] if value is not None else [])
        return Node(self, nodes, value, self.pattern.format(*names))

    def shape(self, node: Node, shapes: Sequence[Shape]) -> Shape:
        try:
            return np.broadcast_shapes(*shapes)
        except ValueError:
            raise node.fail("the shapes do not broadcast", shapes) from None

    def statement(self, node: Node, target: str, reads: Sequence[Reader], shapes: Sequence[Shape]) -> Statement:
        shape = self.shape(node, shapes)
        index = indices(shape)
        return Statement(target, index, self.element(node, index, reads, shapes), ranges(shape))

    def element(
        self, node: Node, index: tuple[IndexExpr, ...], reads: Sequence[Reader], shapes: Sequence[Shape]
    ) -> Expr:
        """The node's element at an index."""
        shape = self.shape(node, shapes)
        args = [read(broadcast(index, shape, s)) for read, s in zip(reads, shapes, strict=True)]
        if self.constant:
            args.append(Number(cast(float, node.const_attr)))
        return self.make(*args)


def broadcast(index: tuple[IndexExpr, ...], shape: Shape, own: Shape) -> tuple[IndexExpr, ...]:
    """The element that an operand of shape `own` has at an index of the result."""
    last = index[len(index) - len(own) :]
    wide = shape[len(shape) - len(own) :]
    return tuple(IndexExpr.of(0) if m == 1 < n else e for e, m, n in zip(last, own, wide, strict=True))


def need_node(op: Op, x: Any) -> None:
    """Raise UplError (UPL1923) for what is no node."""
    if not isinstance(x, Node):
        help = "make a Variable and feed the value; for a number there is the operation with `byconst` in its name"
        raise error("UPL1923", f"{op.word}: expected a node, found {type(x).__name__}", help=help)


def _apply(op: str) -> Callable[..., Expr]:
    return lambda *args: Apply(op, args)


def _compare(op: str) -> Callable[..., Expr]:
    """1 where a comparison holds, else 0."""
    return lambda *args: Apply("?:", (Apply(op, args), Number(1), Number(0)))


def _logical(op: str) -> Callable[..., Expr]:
    """1 where a combination of truth values holds, else 0; what is not 0 is true."""
    return lambda *args: Apply("?:", (Apply(op, tuple(map(_true, args))), Number(1), Number(0)))


def _true(x: Expr) -> Expr:
    return Apply("!=", (x, Number(0)))


def _choice(c: Expr, a: Expr, b: Expr) -> Expr:
    return Apply("?:", (_true(c), a, b))


def _swapped(op: str) -> Callable[..., Expr]:
    return lambda *args: Apply(op, args[::-1])


class ReduceSum(Op):
    """The sum of all elements, or along axes."""

    word = "sum"

    def __call__(self, node: Node, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Node:
        """The node; `axis` and `keepdims` as in numpy."""
        need_node(self, node)
        where = None if axis is None else tuple(axis) if isinstance(axis, Sequence) else (axis,)
        text = f"Sum({node.name})" if where is None else f"Sum({node.name},axis={','.join(map(str, where))})"
        return Node(self, [node], (where, keepdims), text)

    def _axes(self, node: Node, shape: Shape) -> tuple[int, ...]:
        where = node.const_attr[0]
        if where is None:
            return tuple(range(len(shape)))
        if any(not -len(shape) <= a < len(shape) for a in where):
            raise node.fail(f"there is no axis {where}", [shape])
        axes = tuple(sorted(a % len(shape) for a in where))
        if len(set(axes)) < len(axes):
            raise node.fail(f"an axis is given twice: {where}", [shape])
        return axes

    def shape(self, node: Node, shapes: Sequence[Shape]) -> Shape:
        axes, keep = self._axes(node, shapes[0]), node.const_attr[1]
        return tuple(1 if d in axes else n for d, n in enumerate(shapes[0]) if keep or d not in axes)

    def statement(self, node: Node, target: str, reads: Sequence[Reader], shapes: Sequence[Shape]) -> Statement:
        axes, keep = self._axes(node, shapes[0]), node.const_attr[1]
        index = indices(shapes[0])
        read = reads[0](index)
        over = tuple(f"i{a}" for a in axes)
        left = tuple(IndexExpr.of(0) if d in axes else e for d, e in enumerate(index) if keep or d not in axes)
        return Statement(target, left, Sum(over, read) if over else read, ranges(shapes[0]))


class MatMul(Op):
    """The product of two matrices, each transposed first if asked; vectors as in numpy."""

    word = "matmul"

    def __call__(self, node_A: Node, node_B: Node, trans_A: bool = False, trans_B: bool = False) -> Node:
        """The node of ``A @ B``, ``A.T @ B``, …"""
        need_node(self, node_A)
        need_node(self, node_B)
        flags = f",{trans_A},{trans_B}" if trans_A or trans_B else ""
        return Node(self, [node_A, node_B], (trans_A, trans_B), f"MatMul({node_A.name},{node_B.name}{flags})")

    def _operands(self, node: Node, shapes: Sequence[Shape]) -> tuple[list[Shape], list[tuple[str, ...]]]:
        """Shapes and index names of the operands, as they are stored: the index ``k`` is summed over."""
        for s in shapes:
            if len(s) not in (1, 2):
                raise node.fail("the operands must be matrices or vectors", shapes)
        (trans_a, trans_b), (a, b) = node.const_attr, shapes
        left = ("k",) if len(a) == 1 else ("k", "i") if trans_a else ("i", "k")
        right = ("k",) if len(b) == 1 else ("j", "k") if trans_b else ("k", "j")
        inner = a[left.index("k")], b[right.index("k")]
        if inner[0] != inner[1]:
            raise node.fail(f"the inner extents {inner[0]} and {inner[1]} differ", shapes)
        return [a, b], [left, right]

    def shape(self, node: Node, shapes: Sequence[Shape]) -> Shape:
        operands, names = self._operands(node, shapes)
        sides = zip(operands, names, "ij", strict=False)
        return tuple(s[n.index(free)] for s, n, free in sides if free in n)

    def statement(self, node: Node, target: str, reads: Sequence[Reader], shapes: Sequence[Shape]) -> Statement:
        operands, index = self._operands(node, shapes)
        factors = tuple(read(tuple(map(IndexExpr.of, n))) for read, n in zip(reads, index, strict=True))
        extents = {i: (0, s - 1) for shape, n in zip(operands, index, strict=True) for i, s in zip(n, shape, strict=True)}
        left = tuple(IndexExpr.of(i) for i in "ij" if i in extents)
        return Statement(target, left, Sum(("k",), Apply("*", factors)), extents)


class Transpose(Op):
    """The axes in another order; reversed, if no order is given."""

    word = "transpose"

    def __call__(self, node: Node, axes: Sequence[int] | None = None) -> Node:
        """The node; `axes` as in numpy."""
        need_node(self, node)
        return Node(self, [node], None if axes is None else tuple(axes), f"Transpose({node.name})")

    def _order(self, node: Node, shape: Shape) -> tuple[int, ...]:
        order = tuple(reversed(range(len(shape)))) if node.const_attr is None else node.const_attr
        if sorted(order) != list(range(len(shape))):
            raise node.fail(f"{order} is no order of the axes", [shape])
        return order

    def shape(self, node: Node, shapes: Sequence[Shape]) -> Shape:
        return tuple(shapes[0][a] for a in self._order(node, shapes[0]))

    def statement(self, node: Node, target: str, reads: Sequence[Reader], shapes: Sequence[Shape]) -> Statement:
        index = indices(shapes[0])
        left = tuple(index[a] for a in self._order(node, shapes[0]))
        return Statement(target, left, reads[0](index), ranges(shapes[0]))


class Print(Elementwise):
    """The operand itself; `run` prints its value, each time, once it is known."""

    def __init__(self) -> None:
        super().__init__("print", "Print({})", _same)

    def __call__(self, node: Node, label: str | None = None) -> Node:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The node; `label` stands in front of the value, else the operand's name."""
        out = super().__call__(node)
        out.const_attr = node.name if label is None else label
        return out

    def seen(self, node: Node, value: Any) -> None:
        """Print a value."""
        print(f"{node.const_attr} = {value}")


class Filled(Op):
    """A constant of the operand's shape."""

    def __init__(self, word: str, value: float):
        self.word, self.value = word, value

    def __call__(self, node: Node) -> Node:
        """The node."""
        need_node(self, node)
        return Node(self, [node], None, f"{self.word}({node.name})")

    def shape(self, node: Node, shapes: Sequence[Shape]) -> Shape:
        return shapes[0]

    def statement(self, node: Node, target: str, reads: Sequence[Reader], shapes: Sequence[Shape]) -> Statement:
        return Statement(target, indices(shapes[0]), Number(self.value), ranges(shapes[0]))


def _same(x: Expr) -> Expr:
    return x


def _relu(x: Expr) -> Expr:
    return Apply("?:", (Apply(">", (x, Number(0))), x, Number(0)))


placeholder_op = PlaceholderOp()
add_op = Elementwise("sum of nodes", "({}+{})", _apply("+"))
add_byconst_op = Elementwise("sum with a number", "({}+{})", _apply("+"), constant=True)
sub_op = Elementwise("difference", "({}-{})", _apply("-"))
sub_byconst_op = Elementwise("difference with a number", "({}-{})", _apply("-"), constant=True)
rsub_byconst_op = Elementwise("difference from a number", "({1}-{0})", _swapped("-"), constant=True)
mul_op = Elementwise("product", "({}*{})", _apply("*"))
mul_byconst_op = Elementwise("product with a number", "({}*{})", _apply("*"), constant=True)
div_op = Elementwise("quotient", "({}/{})", _apply("/"))
div_byconst_op = Elementwise("quotient by a number", "({}/{})", _apply("/"), constant=True)
rdiv_byconst_op = Elementwise("quotient of a number", "({1}/{0})", _swapped("/"), constant=True)
neg_op = Elementwise("negation", "(-{})", _apply("neg"))
ELEMENTARY = {
    name: Elementwise(name, f"{name.capitalize()}({{}})", _apply(name)) for name, f in SPOKEN.items() if f.arity == 1
}
"""Operations of elementary functions; as attributes of this module they are called `exp_op`, `log_op`, …"""
stop_gradient_op = Elementwise("stop_gradient", "StopGradient({})", _apply("stop_gradient"))
print_op = Print()
COMPARISONS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}
gt_op, ge_op, lt_op, le_op, eq_op, ne_op = (
    Elementwise(name, f"({{}}{sign}{{}})", _compare(sign)) for name, sign in COMPARISONS.items()
)
gt_byconst_op, ge_byconst_op, lt_byconst_op, le_byconst_op, eq_byconst_op, ne_byconst_op = (
    Elementwise(f"{name} with a number", f"({{}}{sign}{{}})", _compare(sign), constant=True)
    for name, sign in COMPARISONS.items()
)
and_op, or_op = Elementwise("and", "({}&&{})", _logical("&&")), Elementwise("or", "({}||{})", _logical("||"))
not_op = Elementwise("not", "(!{})", _logical("!"))
where_op = Elementwise("where", "Where({},{},{})", _choice)
relu_op = Elementwise("relu", "Relu({})", _relu)
sum_op = ReduceSum()
matmul_op = MatMul()
transpose_op = Transpose()
oneslike_op = Filled("Oneslike", 1)
zeroslike_op = Filled("Zeroslike", 0)
OPERATORS.update(
    add_op=add_op,
    add_byconst_op=add_byconst_op,
    sub_op=sub_op,
    sub_byconst_op=sub_byconst_op,
    rsub_byconst_op=rsub_byconst_op,
    mul_op=mul_op,
    mul_byconst_op=mul_byconst_op,
    div_op=div_op,
    div_byconst_op=div_byconst_op,
    rdiv_byconst_op=rdiv_byconst_op,
    neg_op=neg_op,
    matmul_op=matmul_op,
    gt_op=gt_op,
    ge_op=ge_op,
    lt_op=lt_op,
    le_op=le_op,
    gt_byconst_op=gt_byconst_op,
    ge_byconst_op=ge_byconst_op,
    lt_byconst_op=lt_byconst_op,
    le_byconst_op=le_byconst_op,
)


def __getattr__(name: str) -> Elementwise:
    """`exp_op` and so on: an elementary function of UPL as an operation."""
    found = ELEMENTARY.get(name.removesuffix("_op")) if name.endswith("_op") else None
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
