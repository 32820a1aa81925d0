"""The representation of each value in the bodies of a program."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type, IntegerType, i1
from xdsl.ir import BlockArgument, Operation, SSAValue

from upl_mlir.dialects.upl.kinds import Kind, kind_of
from upl_mlir.dialects.upl.ops import InputOp, NodeOp
from upl_mlir.dialects.upl.values import LetOp, LookupOp, RefOp

WEAK = (arith.ConstantOp, RefOp, arith.SIToFPOp, arith.UIToFPOp)
"""Operations whose results take the precision of where they are used."""


def resolve(v: SSAValue) -> SSAValue:
    """The value itself, through the names that `upl.let` gives it."""
    while not isinstance(v, BlockArgument) and isinstance(v.owner, LetOp):
        v = v.owner.value
    return v


class Kinds:
    """How values are represented: `real` has the engine's precision unless a declared f64 takes part."""

    def __init__(self, real: Kind):
        self.real = real
        self._known: dict[SSAValue, Kind] = {}

    def __call__(self, v: SSAValue) -> Kind:
        """How a value is represented."""
        v = resolve(v)
        if v not in self._known:
            self._known[v] = self._kind(v)
        return self._known[v]

    def _kind(self, v: SSAValue) -> Kind:
        if isinstance(v, BlockArgument):
            owner = v.block.parent_op()
            assert isinstance(owner, NodeOp | InputOp)
            n = len(owner.fields)
            if v.index < n:
                return Kind.INT
            return kind_of(owner.type if isinstance(owner, InputOp) else owner.ports[v.index - n].type, self.real)
        if isinstance(v.type, IntegerType):
            return Kind.BOOL if v.type == i1 else Kind.INT
        if isinstance(v.type, Float32Type):
            return Kind.F32
        op = v.owner
        assert isinstance(op, Operation)
        if self.real is Kind.F64:
            return Kind.F64
        if isinstance(op, (*WEAK, LookupOp)):
            return Kind.F32
        return Kind.F64 if Kind.F64 in map(self, op.operands) else Kind.F32
