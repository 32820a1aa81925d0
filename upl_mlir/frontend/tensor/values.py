"""The scalar part of a tensor expression as operations in a node's body, by way of UPL's own expressions.

The expression becomes a tree of `.upl` syntax in which inputs stand for reads and sums; typing, promotion and the
choice of operations are then those of the text form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, i1
from xdsl.ir import SSAValue

from upl_mlir.diagnostics import Span
from upl_mlir.dialects.upl import NodeOp, UplType
from upl_mlir.frontend.tensor.form import Apply, Expr, Number, Position
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.bodies import BodyBuilder
from upl_mlir.frontend.upl_text.ranks import UPL_RANK, Rank
from upl_mlir.frontend.upl_text.scope import Role, Scope, Symbol
from upl_mlir.frontend.upl_text.typing_rules import Typer
from upl_mlir.poly.expr import IndexExpr, Var

_NOWHERE = Span("<tensor program>", 1, 1)
_BINARY = {op.value: op for op in ast.BinaryOp}
_COMPARE = {op.value: op for op in ast.CompareOp}
_LOGICAL = {op.value: op for op in ast.LogicalOp}


class ValueWriter:
    """Writes expressions into the body of one node whose inputs all have type `type_`."""

    def __init__(self, op: NodeOp, type_: UplType):
        self.rank = UPL_RANK[type_]
        self.type = type_
        fields = zip(op.fields, op.block.args, strict=False)
        scope: Scope = {f: Symbol(f, Role.FIELD, None, Rank.INT, value) for f, value in fields}
        for port in op.ports:
            scope[port.name] = Symbol(port.name, Role.INPUT, None, UPL_RANK[port.type], op.arg(port.name))
        self.builder = BodyBuilder(op.block, Typer(scope))

    def emit(self, e: Expr, names: Mapping[Expr, str], span: Span | None) -> SSAValue:
        """The value of an expression; `names` has the input for each read and each sum in it."""
        return self.builder.emit(self._tree(e, names, span or _NOWHERE), self.rank)

    def truth(self, e: Expr, names: Mapping[Expr, str], span: Span | None) -> SSAValue:
        """Whether an expression holds: a comparison, or a number that is not 0."""
        tree = self._tree(e, names, span or _NOWHERE)
        value = self.builder.emit(tree)
        if value.type == i1:
            return value
        zero = ast.Number(tree.span, 0.0, True)
        return self.builder.emit(ast.Compare(tree.span, tree, ((ast.CompareOp.NE, zero),)))

    def negation(self, truth: SSAValue, span: Span | None) -> SSAValue:
        """Whether a truth value does not hold."""
        one = self.builder.add(arith.ConstantOp(IntegerAttr(1, i1)), span or _NOWHERE)
        return self.builder.add(arith.XOrIOp(truth, one), span or _NOWHERE)

    def _tree(self, e: Expr, names: Mapping[Expr, str], span: Span) -> ast.Expr:
        span = e.span or span
        if e in names:
            return ast.Name(span, names[e])
        match e:
            case Number(value=value):
                return self._number(value, span)
            case Position(e=at):
                return self._real(_index(at, span), span)
            case Apply(op=op, args=args) if op in _COMPARE and _are_indices(args):
                first, second = (self._whole(a, names, span) for a in args)
                return ast.Compare(span, first, ((_COMPARE[op], second),))
            case Apply(op=op, args=args):
                return _operation(op, [self._tree(a, names, span) for a in args], span)
            case _:
                raise AssertionError(f"no input brings {e}")

    def _whole(self, e: Expr, names: Mapping[Expr, str], span: Span) -> ast.Expr:
        """A whole number as an integer."""
        match e:
            case Position(e=at):
                return _index(at, span)
            case Number(value=value):
                return _index(IndexExpr.of(int(value)), span)
            case _:
                return self._tree(e, names, span)

    def _real(self, e: ast.Expr, span: Span) -> ast.Expr:
        """A whole number in the program's type."""
        return e if self.type is UplType.INT else ast.Call(span, ast.Ident(span, self.type.value), (e,))

    def _number(self, value: float, span: Span) -> ast.Expr:
        """A literal in the program's type, so that arithmetic with it stays in that type."""
        if self.type is UplType.INT:
            out: ast.Expr = ast.Number(span, abs(int(value)), False)
        else:
            out = ast.Number(span, abs(float(value)), True)
            if self.type is UplType.F32:
                out = ast.Call(span, ast.Ident(span, "f32"), (out,))
        return ast.Unary(span, ast.UnaryOp.NEG, out) if math.copysign(1, value) < 0 else out


def _are_indices(args: Sequence[Expr]) -> bool:
    """Whether an index is compared with an index, a literal without a fraction, or what is made an integer."""
    return all(map(_is_whole, args)) and any(isinstance(e, Position) for e in args)


def _is_whole(e: Expr) -> bool:
    match e:
        case Position() | Apply(op="int"):
            return True
        case Number(value=value):
            return float(value).is_integer()
        case _:
            return False


def _index(e: IndexExpr, span: Span) -> ast.Expr:
    """An affine expression of fields."""
    out: ast.Expr | None = None
    for monomial, factor in e.terms:
        (variable,) = monomial or (None,)
        part: ast.Expr = ast.Number(span, abs(factor), False)
        if isinstance(variable, Var):
            name = ast.Name(span, variable.name)
            part = name if abs(factor) == 1 else ast.Binary(span, ast.BinaryOp.MUL, part, name)
        if out is None:
            out = ast.Unary(span, ast.UnaryOp.NEG, part) if factor < 0 else part
        else:
            out = ast.Binary(span, ast.BinaryOp.SUB if factor < 0 else ast.BinaryOp.ADD, out, part)
    return out or ast.Number(span, 0, False)


def _operation(op: str, args: list[ast.Expr], span: Span) -> ast.Expr:
    if op in ("neg", "!"):
        return ast.Unary(span, ast.UnaryOp.NEG if op == "neg" else ast.UnaryOp.NOT, args[0])
    if op in _LOGICAL:
        return ast.Logical(span, _LOGICAL[op], *args)
    if op == "?:":
        return ast.Conditional(span, *args)
    if op in _BINARY:
        return ast.Binary(span, _BINARY[op], *args)
    if op in _COMPARE:
        return ast.Compare(span, args[0], ((_COMPARE[op], args[1]),))
    return ast.Call(span, ast.Ident(span, op), tuple(args))
