"""Writing bodies from Python: values whose operators append operations to a block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, FloatAttr, IntegerAttr, IntegerType, LocationAttr, f32, f64
from xdsl.ir import Attribute, Block, Operation, SSAValue

from upl_mlir.numbers.floats import as_single


@dataclass
class Body:
    """Appends operations to a block, giving each the same location."""

    block: Block
    location: LocationAttr | None = None

    def add(self, op: Operation) -> SSAValue:
        """Append an operation with one result."""
        if self.location is not None:
            op.location = self.location
        self.block.add_op(op)
        return op.results[0]

    def emit(self, op: Operation) -> None:
        """Append an operation for its effect."""
        if self.location is not None:
            op.location = self.location
        self.block.add_op(op)

    def constant(self, value: float, type_: Attribute) -> SSAValue:
        """A literal of a float or integer type."""
        if isinstance(type_, AnyFloat):
            number = as_single(value) if type_ == f32 else float(value)
            return self.add(arith.ConstantOp(FloatAttr(number, type_)))  # pyright: ignore
        return self.add(arith.ConstantOp(IntegerAttr(int(value), cast("IntegerType[int]", type_))))

    def like(self, d: SSAValue, wanted: Attribute) -> SSAValue:
        """A derivative in the type of what takes it: f32 or f64."""
        if d.type == wanted or not isinstance(wanted, AnyFloat):
            return d
        return self.add(arith.ExtFOp(d, wanted) if wanted == f64 else arith.TruncFOp(d, wanted))

    def val(self, value: SSAValue) -> Val:
        """A value with operators."""
        return Val(self, value)


@dataclass(frozen=True)
class Val:
    """A real SSA value whose Python operators append `arith` and `math` operations."""

    body: Body
    ssa: SSAValue

    def _lift(self, other: Val | float) -> SSAValue:
        return other.ssa if isinstance(other, Val) else self.body.constant(other, self.ssa.type)

    def _op(self, make: Callable[[SSAValue, SSAValue], Operation], other: Val | float) -> Val:
        return Val(self.body, self.body.add(make(self.ssa, self._lift(other))))

    def __add__(self, other: Val | float) -> Val:
        return self._op(arith.AddfOp, other)

    def __sub__(self, other: Val | float) -> Val:
        return self._op(arith.SubfOp, other)

    def __rsub__(self, other: float) -> Val:
        return Val(self.body, self._lift(other)) - self

    def __mul__(self, other: Val | float) -> Val:
        return self._op(arith.MulfOp, other)

    def __rmul__(self, other: float) -> Val:
        return Val(self.body, self._lift(other)) * self

    def __truediv__(self, other: Val | float) -> Val:
        return self._op(arith.DivfOp, other)

    def __pow__(self, other: Val | float) -> Val:
        return self._op(math.PowFOp, other)

    def __neg__(self) -> Val:
        return Val(self.body, self.body.add(arith.NegfOp(self.ssa)))

    def compare(self, predicate: str, other: Val | float) -> SSAValue:
        """A comparison by its `arith.cmpf` predicate."""
        return self.body.add(arith.CmpfOp(self.ssa, self._lift(other), predicate))

    def where(self, cond: SSAValue, other: Val | float) -> Val:
        """This value where `cond` holds, else the other."""
        return Val(self.body, self.body.add(arith.SelectOp(cond, self.ssa, self._lift(other))))

    def call(self, make: Callable[[SSAValue], Operation]) -> Val:
        """A unary function given by its operation."""
        return Val(self.body, self.body.add(make(self.ssa)))
