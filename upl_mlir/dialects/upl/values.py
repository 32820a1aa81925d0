"""Operations on values inside a body that `arith` and `math` do not have: names, constants, a few functions."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import StringAttr, SymbolRefAttr, i64
from xdsl.ir import Attribute, OpResult, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from upl_mlir.dialects.bases import Entry, Remainder, Unary


def hint(name: str) -> str | None:
    """A name as MLIR text can show it at a value; None for what cannot stand there, such as `δ`."""
    return name if OpResult.is_valid_name(name) else None


@irdl_op_definition
class LetOp(IRDLOperation):
    """Names a value of a body: the assignment ``var = value``."""

    name = "upl.let"
    T: ClassVar = VarConstraint("T", AnyAttr())
    var = prop_def(StringAttr)
    value = operand_def(T)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$var $value attr-dict `:` type($value)"

    def __init__(self, var: str, value: SSAValue):
        super().__init__(operands=[value], result_types=[value.type], properties={"var": StringAttr(var)})
        self.result.name_hint = hint(var)


@irdl_op_definition
class RefOp(IRDLOperation):
    """The value of a constant (i64 or f64) or of a parameter (i64)."""

    name = "upl.ref"
    symbol = prop_def(SymbolRefAttr)
    result = result_def(AnyAttr())
    traits = traits_def(Pure())
    assembly_format = "$symbol attr-dict `:` type($result)"

    def __init__(self, symbol: str, type_: Attribute):
        super().__init__(properties={"symbol": SymbolRefAttr(symbol)}, result_types=[type_])


@irdl_op_definition
class LookupOp(Entry):
    """An entry of a constant array."""

    name = "upl.lookup"
    at = operand_def(i64)


@irdl_op_definition
class ModOp(Remainder):
    """``a mod b``: the remainder that `floordiv` leaves; never negative for positive `b`, as MLIR's affine `mod`."""

    name = "upl.mod"
    lhs = operand_def(i64)
    rhs = operand_def(i64)
    result = result_def(i64)


@irdl_op_definition
class SigmoidOp(Unary):
    """The logistic function ``1/(1+exp(-x))``."""

    name = "upl.sigmoid"


@irdl_op_definition
class StopGradientOp(Unary):
    """Its operand, through which no derivative passes."""

    name = "upl.stop_gradient"


@irdl_op_definition
class AlongOp(IRDLOperation):
    """`value`; its derivative is that of `value` plus `slope` times that of `at`.

    ``with_derivative(v, x, s)``, a derivative that the user gives, is ``along s, x, stop_gradient(v)``.
    """

    name = "upl.along"
    T: ClassVar = VarConstraint("T", AnyAttr())
    slope = operand_def(T)
    at = operand_def(T)
    value = operand_def(T)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$slope `,` $at `,` $value attr-dict `:` type($value)"

    def __init__(self, slope: SSAValue, at: SSAValue, value: SSAValue):
        super().__init__(operands=[slope, at, value], result_types=[value.type])
