"""Operations whose meaning is an expression of UPL: the text as an expression on tensors' elements."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from upl_mlir.diagnostics import Sources, UplError, did_you_mean, error
from upl_mlir.frontend.graph.node import Node, Op
from upl_mlir.frontend.graph.ops import Elementwise
from upl_mlir.frontend.tensor import Apply, Expr, Number
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.parser import parse_expression


@cache
def elementwise_of(kind: type[Op]) -> Elementwise:
    """A class of operations with `upl` as an operation on elements; with a gradient of its own, it passes no other.

    Raises UplError: what is wrong with the text, with its position.
    """
    assert kind.upl is not None
    file = f"{kind.__name__}.upl"
    try:
        tree = parse_expression(kind.upl, file)
        _read(tree, {n: Number(0) for n in kind.operands})  # whether it can be read
    except UplError as e:
        e.sources.texts.setdefault(file, kind.upl)
        raise
    own = kind.gradient is not Op.gradient

    def make(*args: Expr) -> Expr:
        value = _read(tree, dict(zip(kind.operands, args, strict=True)))
        return Apply("stop_gradient", (value,)) if own else value

    return Elementwise(kind.__name__, "{}", make)


def meaning(node: Node) -> Op:
    """What computes a node in UPL: its operation, or what its text says."""
    return node.op if node.op.upl is None else elementwise_of(type(node.op))


def _read(e: ast.Expr, operands: Mapping[str, Expr]) -> Expr:
    """An expression of the text form with elements in the place of names."""

    def read(part: ast.Expr) -> Expr:
        return _read(part, operands)

    match e:
        case ast.Number(value=value):
            return Number(value, e.span)
        case ast.BoolLit(value=value):
            return Apply("==" if value else "!=", (Number(0), Number(0)), e.span)
        case ast.Name(name=name):
            if name not in operands:
                known = ", ".join(f"`{n}`" for n in operands)
                help = did_you_mean(name, operands) or (f"they are {known}" if known else 'name them: operands = ("x",)')
                raise error("UPL1924", f"`{name}` is none of the operands", e.span, help=help)
            return operands[name]
        case ast.Unary(op=op, operand=operand):
            return Apply("neg" if op is ast.UnaryOp.NEG else "!", (read(operand),), e.span)
        case ast.Binary(op=op, left=left, right=right) | ast.Logical(op=op, left=left, right=right):
            return Apply(op.value, (read(left), read(right)), e.span)
        case ast.Compare(first=first, rest=rest):
            left, out = read(first), None
            for op, operand in rest:
                right = read(operand)
                one = Apply(op.value, (left, right), e.span)
                out, left = one if out is None else Apply("&&", (out, one), e.span), right
            assert out is not None
            return out
        case ast.Conditional(condition=condition, then=then, otherwise=otherwise):
            return Apply("?:", (read(condition), read(then), read(otherwise)), e.span)
        case ast.Call(function=function, arguments=arguments):
            return Apply(function.name, tuple(map(read, arguments)), e.span)
        case ast.Lookup():
            raise error("UPL1924", "an operation on elements has no arrays of its own", e.span, help="make it an operand")


def sources_of(ops: Mapping[str, str]) -> Sources:
    """The texts of operations, for messages."""
    return Sources({f"{name}.upl": text for name, text in ops.items()})
