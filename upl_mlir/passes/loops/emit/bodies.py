# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""Bodies of nodes as terms, with the precision that each value has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import BlockArgument, Operation, SSAValue

from upl_mlir.dialects.upl import AlongOp, LookupOp, RefOp, StopGradientOp
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.dialects.upl.precision import WEAK, Kinds, needed, resolve
from upl_mlir.passes.loops.known import folded
from upl_mlir.passes.loops.terms import Apply, Convert, Entry, IndexValue, Number, Term, inner_first
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Cons

# Types of operations have no subclasses: they are compared, as `isinstance` takes thrice as long.
_WITHOUT_OPERANDS = (arith.ConstantOp, RefOp, LookupOp)
_NAMES = (arith.ExtFOp, arith.TruncFOp, StopGradientOp)  # their operand, in the precision of the result


class Names(Protocol):
    """What a body takes from outside of it; `real` is what the type `real` means, `split` whether terms are simplified by
    what is known of indices."""

    real: Kind
    split: bool

    def argument(self, arg: BlockArgument, env: Mapping[str, IndexExpr], at: Cons) -> Term:
        """The term of an argument of a node's block at the instance `env`, under the constraints `at`."""
        ...

    def symbol(self, name: str) -> Term:
        """The term of a parameter or a constant."""
        ...

    def holds(self, condition: Term, at: Cons) -> bool | None:
        """Whether a condition holds throughout the constraints `at`, or nowhere; None if it is not known."""
        ...


class Bodies:
    """Turns SSA values into terms; `builder` says what the arguments of a block are."""

    def __init__(self, builder: Names):
        self.builder = builder
        self.kind = Kinds(builder.real)

    def compute(self, v: SSAValue, env: Mapping[str, IndexExpr], at: Cons) -> Term:
        """The term of a value at the instance `env`, under the constraints `at`."""
        memo: dict[SSAValue, Term] = {}
        for part in inner_first(resolve(v), _operands):
            self._term(part, env, at, memo)
        return memo[resolve(v)]

    def _term(self, v: SSAValue, env: Mapping[str, IndexExpr], at: Cons, memo: dict[SSAValue, Term]) -> Term:
        if v not in memo:
            if isinstance(v, BlockArgument):
                memo[v] = self.builder.argument(v, env, at)
            else:
                op = v.owner
                assert isinstance(op, Operation)
                memo[v] = self._operation(op, env, at, memo)
        return memo[v]

    def _operation(self, op: Operation, env: Mapping[str, IndexExpr], at: Cons, memo: dict[SSAValue, Term]) -> Term:
        result = op.results[0]
        kind = self.kind(result)
        match op if type(op) in _WITHOUT_OPERANDS else None:
            case arith.ConstantOp():
                assert isinstance(op.value, FloatAttr | IntegerAttr)
                value = op.value.value.data
                return Number(kind, bool(value) if kind is Kind.BOOL else value)
            case RefOp():
                term = self.builder.symbol(op.symbol.root_reference.data)
                return Number(kind, term.value) if isinstance(term, Number) else term
            case LookupOp():
                at_ = self._term(resolve(op.at), env, at, memo)
                if isinstance(at_, Number):
                    at_ = IndexValue(IndexExpr.of(int(at_.value)))
                return Entry(kind, op.symbol.root_reference.data, at_)
            case _:
                pass
        kinds = [self.kind(o) for o in op.operands]
        wanted = Kind.F64 if Kind.F64 in (*kinds, kind) else Kind.F32 if Kind.F32 in (*kinds, kind) else None
        args = tuple(
            self._as(resolve(o), wanted if k.is_float else None, env, at, memo)
            for o, k in zip(op.operands, kinds, strict=True)
            if type(op) is not AlongOp or o is op.value
        )
        if type(op) is AlongOp:
            return args[0]
        if type(op) in _NAMES:
            return args[0] if args[0].kind is kind else Convert(kind, args[0])
        if type(op) is arith.SelectOp and (first := self.builder.holds(args[0], at)) is not None:
            return args[1] if first else args[2]
        return folded(Apply(kind, op, args)) if self.builder.split else Apply(kind, op, args)

    def _as(
        self, v: SSAValue, wanted: Kind | None, env: Mapping[str, IndexExpr], at: Cons, memo: dict[SSAValue, Term]
    ) -> Term:
        """A value in the wanted precision; literals and converted integers are made in it."""
        term = self._term(v, env, at, memo)
        if wanted is None or term.kind is wanted:
            return term
        op = v.owner
        if isinstance(term, Number):
            return Number(wanted, op.value.value.data if _is_literal(op) else term.value)
        if isinstance(op, WEAK) and isinstance(term, Apply):
            return Apply(wanted, term.op, term.args)
        return Convert(wanted, term)


def _operands(v: SSAValue) -> list[SSAValue]:
    """The values that a value is computed from in its body."""
    if isinstance(v, BlockArgument):
        return []
    op = v.owner
    assert isinstance(op, Operation)
    return [resolve(o) for o in needed(op)]


def _is_literal(op: object) -> bool:
    return isinstance(op, arith.ConstantOp) and isinstance(op.value, FloatAttr)
