"""Nodes of a static graph, their operators, and what an operation has to know."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from upl_mlir.diagnostics import UplError, error

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from upl_mlir.frontend.tensor import Branch, Expr, Statement
    from upl_mlir.poly.expr import IndexExpr

Shape = tuple[int, ...]
Reader: TypeAlias = "Callable[[tuple[IndexExpr, ...]], Expr]"
"""An operand: its element at an index, as an expression."""
MAX_NAME = 60
"""Names are made of the operands' names; longer ones are cut in the middle."""


OPERATORS: dict[str, Callable[..., Node]] = {}
"""What Python's operators on nodes make, by the names of the operations; `ops` puts them here, as it knows nodes."""


class Node:
    """A value of the graph: an operation on other nodes.  Nodes are equal only to themselves.

    `inputs` are the operands, `const_attr` what the operation has besides (a number, transposition flags), `name` is for
    people and for error messages.
    """

    __array_ufunc__: ClassVar[None] = None  # numpy leaves `array * node` to us
    __slots__ = ("const_attr", "inputs", "name", "op")

    def __init__(self, op: Op, inputs: Sequence[Node] = (), const_attr: Any = None, name: str = ""):
        self.op = op
        self.inputs = list(inputs)
        self.const_attr = const_attr
        self.name = name if len(name) <= MAX_NAME else f"{name[: MAX_NAME // 2]}…{name[-MAX_NAME // 2 + 1 :]}"

    def fail(self, what: str, shapes: Sequence[Shape]) -> UplError:
        """The error that this node's operands have shapes that do not fit; the caller raises it."""
        parts = ", ".join(f"{n.name} {s}" for n, s in zip(self.inputs, shapes, strict=True))
        return error("UPL1921", f"{self.op.word} `{self.name}`: {what}; the operands are {parts}")

    def __add__(self, other: Node | float) -> Node:
        return OPERATORS["add_op"](self, other) if isinstance(other, Node) else OPERATORS["add_byconst_op"](self, other)

    __radd__ = __add__

    def __sub__(self, other: Node | float) -> Node:
        return OPERATORS["sub_op"](self, other) if isinstance(other, Node) else OPERATORS["sub_byconst_op"](self, other)

    def __rsub__(self, other: float) -> Node:
        return OPERATORS["rsub_byconst_op"](self, other)

    def __mul__(self, other: Node | float) -> Node:
        return OPERATORS["mul_op"](self, other) if isinstance(other, Node) else OPERATORS["mul_byconst_op"](self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Node | float) -> Node:
        return OPERATORS["div_op"](self, other) if isinstance(other, Node) else OPERATORS["div_byconst_op"](self, other)

    def __rtruediv__(self, other: float) -> Node:
        return OPERATORS["rdiv_byconst_op"](self, other)

    def __neg__(self) -> Node:
        return OPERATORS["neg_op"](self)

    def __matmul__(self, other: Node) -> Node:
        return OPERATORS["matmul_op"](self, other)

    def _compared(self, name: str, other: Node | float) -> Node:
        return OPERATORS[f"{name}_op" if isinstance(other, Node) else f"{name}_byconst_op"](self, other)

    def __gt__(self, other: Node | float) -> Node:
        return self._compared("gt", other)

    def __ge__(self, other: Node | float) -> Node:
        return self._compared("ge", other)

    def __lt__(self, other: Node | float) -> Node:
        return self._compared("lt", other)

    def __le__(self, other: Node | float) -> Node:
        return self._compared("le", other)

    def __bool__(self) -> bool:
        help = "write where_op, cond_op or while_op"
        raise error("UPL1925", f"the value of `{self.name}` is not known while the graph is built", help=help)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


class Op:
    """An operation: makes nodes, and knows the shape and the meaning of what it makes.

    Who wants another one derives a class from this and says what it computes, in one of two ways:

    * `upl`, an expression of UPL over the elements of its operands, whose names are `operands`; operands broadcast.  It
      becomes part of the program, and has derivatives.
    * `compute`, a Python function of arrays.  The program is cut there, and the function called.

    `gradient` says what the derivatives by the operands are; one with `compute` has none without it.

        class Square(Op):
            def compute(self, node, input_vals):
                return input_vals[0] ** 2

            def gradient(self, node, output_grad):
                return [2 * node.inputs[0] * output_grad]

        class Softplus(Op):
            operands, upl = ("x",), "log1p(exp(x))"
    """

    word: str = "operation"
    """What error messages call it."""
    upl: ClassVar[str | None] = None
    operands: ClassVar[tuple[str, ...]] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Node:
        """A node of this operation on the operands `args`, with the attributes `const_attr` and `name` if they are given.

        All of it may also be set later.  Classes override this with what they take.
        """
        node = Node(self, args, None, f"{type(self).__name__}({','.join(map(str, args))})")
        for name, value in kwargs.items():
            if name not in ("const_attr", "name"):
                raise TypeError(f"{type(self).__name__}() got an unexpected argument {name!r}")
            setattr(node, name, value)
        return node

    def compute(self, node: Node, input_vals: Sequence[NDArray[np.float64]]) -> Any:
        """The value of a node, an array of numbers of any shape, from those of its operands, f64 arrays."""
        raise NotImplementedError

    def gradient(self, node: Node, output_grad: Node) -> Sequence[Node | None]:
        """For each operand of a node a node for the derivative by it, of the operand's shape, where `output_grad` is the
        derivative by the node's value; None for 0."""
        raise NotImplementedError

    @property
    def called(self) -> bool:
        """Whether its values come from `compute`."""
        return self.upl is None and type(self).compute is not Op.compute

    @property
    def leads(self) -> bool:
        """Whether derivatives go through it as its `gradient` says, if they go at all."""
        return self.called or type(self).gradient is not Op.gradient

    def shape(self, node: Node, shapes: Sequence[Shape]) -> Shape:
        """The shape of a node's value from those of its operands.  Raises UplError (UPL1921)."""
        raise self._no_meaning()

    def statement(self, node: Node, target: str, reads: Sequence[Reader], shapes: Sequence[Shape]) -> Statement | Branch:
        """The assignment that computes the node: `reads` give the operands' elements, `shapes` are their shapes."""
        raise self._no_meaning()

    def _no_meaning(self) -> UplError:
        help = "give it `compute(self, node, input_vals)`, or `operands` and `upl`"
        return error("UPL1924", f"the operation `{type(self).__name__}` does not say what it computes", help=help)


class PlaceholderOp(Op):
    """A value that is fed at `run`."""

    word = "placeholder"

    def __call__(self, name: str = "placeholder") -> Node:
        """A new placeholder."""
        return Node(self, (), None, name)


def Variable(name: str) -> Node:
    """A placeholder with a name: the value that is fed for it may have any shape."""
    return PlaceholderOp()(name)


def number(node: Node, value: Any) -> float:
    """A constant operand.  Raises UplError (UPL1923) for what is no number."""
    item = getattr(value, "item", None)
    if item is not None and getattr(value, "size", 0) == 1 and getattr(value, "ndim", 1) == 0:
        value = item()
    shape: Any = getattr(value, "shape", None)
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not abs(float(value)) < float("inf"):
        what = repr(value) if shape is None else f"an array of shape {shape}"
        help = "constants are finite numbers; feed arrays through a placeholder"
        raise error("UPL1923", f"`{node.name}` cannot be combined with {what}", help=help)
    return float(value)
