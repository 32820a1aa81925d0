"""The representation of each value in the bodies of a program."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import Float32Type, IntegerType, i1
from xdsl.ir import BlockArgument, Operation, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl.attributes import Port, UplType
from upl_mlir.dialects.upl.kinds import Kind, kind_of
from upl_mlir.dialects.upl.ops import InputOp, NodeOp, OutputOp, ProgramOp
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.dialects.upl.values import AlongOp, LetOp, LookupOp, RefOp

WEAK = (arith.ConstantOp, RefOp, arith.SIToFPOp, arith.UIToFPOp)
"""Operations whose results take the precision of where they are used."""


def resolve(v: SSAValue) -> SSAValue:
    """The value itself, through the names that `upl.let` gives it."""
    while type(v) is not BlockArgument and type(owner := v.owner) is LetOp:  # no subclasses: faster
        v = owner.value
    return v


def needed(op: Operation) -> Sequence[SSAValue]:
    """The operands that the value of an operation is computed from: not the slopes of `with_derivative`, which only its
    derivative needs (LANGUAGE 2)."""
    return (op.value,) if type(op) is AlongOp else op.operands


def require_one_real(program: ProgramOp, real: Kind) -> None:
    """Raise UplError (UPL1808) if `real` is a small type and the program declares another one, or fuses a product and a sum.

    A product that is not rounded before the sum has no meaning in arithmetic that rounds each operation to the type.
    """
    if real.format is None:
        return
    help_ = f"write `real`, which is {real.value} here, or run it with --real f64 or f32"
    for op in program.body.block.ops:
        if not isinstance(op, InputOp | OutputOp | NodeOp):
            continue
        ports = op.ports if isinstance(op, NodeOp) else (op,)
        for port in ports:
            if port.type in (UplType.F32, UplType.F64):
                name = f"{op.symbol}.{port.name}" if isinstance(port, Port) else op.symbol
                message = f"`{name}` is declared {port.type.value}: where `real` is {real.value} there is no other real"
                raise error("UPL1808", message, span_of(op), help=help_)
        for inner in () if isinstance(op, OutputOp) else op.block.ops:
            if isinstance(inner, math.FmaOp) or any(isinstance(v.type, Float32Type) for v in inner.results):
                message = f"`{inner.name}` has no meaning where `real` is {real.value}"
                raise error("UPL1808", message, span_of(inner), help=help_)


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
        if self.real is not Kind.F32:  # f64, or a small type, with which no other real stands (`require_one_real`)
            return self.real
        if isinstance(op, (*WEAK, LookupOp)):
            return Kind.F32
        return Kind.F64 if Kind.F64 in map(self, op.operands) else Kind.F32
