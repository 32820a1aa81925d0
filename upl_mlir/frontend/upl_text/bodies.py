"""Expressions of bodies as SSA: `arith`, `math` and a few operations of the `upl` dialect.

Operands are made left to right, each followed at once by the conversion it needs, so that a printed program gives
the same operations in the same order when it is read again.  A literal is made in the type that is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IntegerAttr, i1
from xdsl.ir import Attribute, Block, Operation, SSAValue

from upl_mlir.diagnostics import Span
from upl_mlir.dialects.upl import AlongOp, LookupOp, ModOp, RefOp, StopGradientOp
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.ranks import Rank, arithmetic, literal, rank_of
from upl_mlir.frontend.upl_text.scope import loc
from upl_mlir.frontend.upl_text.typing_rules import CASTS, Typer
from upl_mlir.ops import SPOKEN

INT_OPS: dict[ast.BinaryOp, type[Operation]] = {
    ast.BinaryOp.ADD: arith.AddiOp, ast.BinaryOp.SUB: arith.SubiOp, ast.BinaryOp.MUL: arith.MuliOp,
    ast.BinaryOp.FLOORDIV: arith.FloorDivSIOp, ast.BinaryOp.CEILDIV: arith.CeilDivSIOp, ast.BinaryOp.MOD: ModOp,
    ast.BinaryOp.POW: math.IPowIOp,
}  # fmt: skip
FLOAT_OPS: dict[ast.BinaryOp, type[Operation]] = {
    ast.BinaryOp.ADD: arith.AddfOp, ast.BinaryOp.SUB: arith.SubfOp, ast.BinaryOp.MUL: arith.MulfOp,
    ast.BinaryOp.DIV: arith.DivfOp, ast.BinaryOp.POW: math.PowFOp,
}  # fmt: skip
INT_PREDICATES = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
FLOAT_PREDICATES = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq", "!=": "une"}
EXTREMA: dict[tuple[str, bool], type[Operation]] = {
    ("min", False): arith.MinSIOp, ("max", False): arith.MaxSIOp,
    ("min", True): arith.MinimumfOp, ("max", True): arith.MaximumfOp,
}  # fmt: skip


@dataclass
class BodyBuilder:
    """Appends the operations of expressions to a block."""

    block: Block
    typer: Typer

    def add(self, op: Operation, span: Span) -> SSAValue:
        """Append an operation with one result."""
        op.location = loc(span)
        self.block.add_op(op)
        return op.results[0]

    def emit(self, e: ast.Expr, want: Rank | None = None) -> SSAValue:
        """The value of an expression, converted to `want` if that is another type.

        Raises UplError, as `Typer.rank` does; the caller has checked that the conversion is allowed.
        """
        rank = self.typer.rank(e)
        value, target = literal_value(e), rank if want is None else want
        if value is not None and (target.is_float or target is rank):
            attr = literal(value, target)
            if attr is not None:
                return self.add(arith.ConstantOp(attr), e.span)
        made = self._emit(e, rank)
        return made if want is None else self.convert(made, want, e.span)

    def convert(self, value: SSAValue, want: Rank, span: Span) -> SSAValue:
        """The value as one of another type; reals become integers by truncation."""
        given = rank_of(value.type)
        if given is want:
            return value
        target: Attribute = want.mlir
        op: Operation
        if want is Rank.INT:
            kind = arith.ExtUIOp if given is Rank.BOOL else arith.FPToSIOp
        elif given.is_float:
            kind = arith.ExtFOp if want > given else arith.TruncFOp
        else:
            kind = arith.UIToFPOp if given is Rank.BOOL else arith.SIToFPOp
        op = kind.build(operands=[value], result_types=[target])
        return self.add(op, span)

    def conjunction(self, parts: Sequence[ast.Expr], span: Span) -> SSAValue | None:
        """The truth value of all parts together; None if there are none."""
        out: SSAValue | None = None
        for part in parts:
            value = self.emit(part)
            out = value if out is None else self.add(arith.AndIOp(out, value), span)
        return out

    def _emit(self, e: ast.Expr, rank: Rank) -> SSAValue:
        match e:
            case ast.Number(value=value) | ast.BoolLit(value=value):
                attr = literal(value, rank)
                assert attr is not None, value
                return self.add(arith.ConstantOp(attr), e.span)
            case ast.Name(name=name):
                symbol = self.typer.symbol(name, e.span)
                return symbol.value if symbol.value is not None else self.add(RefOp(name, rank.mlir), e.span)
            case ast.Lookup(array=array, index=index):
                return self.add(LookupOp(array.name, self.emit(index, Rank.INT), rank.mlir), e.span)
            case ast.Unary():
                return self._unary(e, rank)
            case ast.Binary(op=op, left=left, right=right):
                table = FLOAT_OPS if rank.is_float else INT_OPS
                return self._apply(table[op], [self.emit(left, rank), self.emit(right, rank)], e.span)
            case ast.Compare():
                return self._compare(e)
            case ast.Logical(op=op, left=left, right=right):
                kind = arith.AndIOp if op is ast.LogicalOp.AND else arith.OrIOp
                return self._apply(kind, [self.emit(left), self.emit(right)], e.span)
            case ast.Conditional(condition=condition, then=then, otherwise=otherwise):
                values = [self.emit(condition), self.emit(then, rank), self.emit(otherwise, rank)]
                return self.add(arith.SelectOp(*values), e.span)
            case ast.Call():
                return self._call(e, rank)

    def _apply(self, kind: type[Operation], operands: Sequence[SSAValue], span: Span) -> SSAValue:
        build = cast("Callable[..., Operation]", kind)
        return self.add(build(*operands), span)

    def _unary(self, e: ast.Unary, rank: Rank) -> SSAValue:
        if e.op is ast.UnaryOp.NOT:
            operand = self.emit(e.operand)
            true = self.add(arith.ConstantOp(IntegerAttr(1, i1)), e.span)
            return self.add(arith.XOrIOp(operand, true), e.span)
        if rank.is_float:
            return self.add(arith.NegfOp(self.emit(e.operand, rank)), e.span)
        zero = literal(0, Rank.INT)
        assert zero is not None
        made = self.add(arith.ConstantOp(zero), e.span)
        return self.add(arith.SubiOp(made, self.emit(e.operand, rank)), e.span)

    def _compare(self, e: ast.Compare) -> SSAValue:
        """Neighbours compared, all results joined; an operand in the middle is computed once (a literal twice)."""
        out: SSAValue | None = None
        left_expr, left = e.first, None
        for i, (op, right_expr) in enumerate(e.rest):
            joint = arithmetic(self.typer.rank(left_expr), self.typer.rank(right_expr))
            lhs = self.emit(left_expr, joint) if left is None else self.convert(left, joint, left_expr.span)
            right: SSAValue | None = None
            if i == len(e.rest) - 1 or literal_value(right_expr) is not None:
                rhs = self.emit(right_expr, joint)
            else:
                right = self.emit(right_expr)
                rhs = self.convert(right, joint, right_expr.span)
            if joint.is_float:
                test: Operation = arith.CmpfOp(lhs, rhs, FLOAT_PREDICATES[op.value])
            else:
                test = arith.CmpiOp(lhs, rhs, INT_PREDICATES[op.value])
            value = self.add(test, e.span)
            out = value if out is None else self.add(arith.AndIOp(out, value), e.span)
            left_expr, left = right_expr, right
        assert out is not None
        return out

    def _call(self, e: ast.Call, rank: Rank) -> SSAValue:
        name, args = e.function.name, e.arguments
        if name in CASTS:
            return self.emit(args[0], rank)
        if name == "floor":
            value = self.emit(args[0])
            if not rank_of(value.type).is_float:
                return self.convert(value, rank, e.span)
            return self.convert(self.add(math.FloorOp(value), e.span), rank, e.span)
        if name == "abs":
            value = self.emit(args[0], rank)
            return self.add(math.AbsFOp(value) if rank.is_float else math.AbsIOp(value), e.span)
        if name == "stop_gradient":
            return self.add(StopGradientOp(self.emit(args[0])), e.span)
        if name == "with_derivative":
            out = self.add(StopGradientOp(self.emit(args[0], rank)), e.span)
            for at, slope in zip(args[1::2], args[2::2], strict=True):
                x = self.emit(at, rank)
                out = self.add(AlongOp(self.emit(slope, rank), x, out), e.span)
            return out
        if name in ("min", "max"):
            kind = EXTREMA[name, rank.is_float]
            out = self.emit(args[0], rank)
            for arg in args[1:]:
                out = self._apply(kind, [out, self.emit(arg, rank)], e.span)
            return out
        return self._apply(SPOKEN[name].op, [self.emit(a, rank) for a in args], e.span)


def literal_value(e: ast.Expr) -> int | float | None:
    """The number that an expression states outright: a literal, also with a minus sign or a conversion."""
    match e:
        case ast.Number(value=value):
            return value
        case ast.Unary(op=ast.UnaryOp.NEG, operand=operand):
            inner = literal_value(operand)
            return None if inner is None else -inner
        case ast.Call(function=function, arguments=(argument,)):
            inner = literal_value(argument)
            if inner is None:
                return None
            if function.name in ("real", "f64"):
                return float(inner)
            return inner if function.name in ("int", "floor") and isinstance(inner, int) else None
        case _:
            return None
