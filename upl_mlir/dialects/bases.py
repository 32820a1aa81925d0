"""What operations of all dialects share: names, whole programs with their checks, a few functions of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from xdsl.dialects.builtin import SymbolNameConstraint, SymbolRefAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.irdl import AnyAttr, IRDLOperation, VarConstraint, operand_def, prop_def, region_def, result_def, traits_def
from xdsl.traits import NoTerminator, Pure, SymbolTable
from xdsl.utils.exceptions import VerifyException


class RuleError(VerifyException):
    """A broken rule of a whole program; `culprit` is the operation at fault, whose location a driver can show."""

    def __init__(self, message: str, culprit: Operation):
        super().__init__(message)
        self.culprit: Operation = culprit


class Named(IRDLOperation):
    """Something that has a name."""

    sym_name = prop_def(SymbolNameConstraint())

    @property
    def symbol(self) -> str:
        """The declared name."""
        return self.sym_name.data


_N = TypeVar("_N", bound=Named)


def by_symbol(block: Block, kind: type[_N]) -> dict[str, _N]:
    """The declarations of a kind in a block, by name."""
    return {o.symbol: o for o in block.ops if isinstance(o, kind)}


class Program(Named):
    """A whole program: one block of declarations and the like.

    `RULES` are the checks of whole programs, of each dialect its own.  They know all operations, so its package adds them.
    """

    body = region_def("single_block")
    traits = traits_def(SymbolTable(), NoTerminator())
    RULES: ClassVar[list[Callable[[Any], None]]] = []

    def verify_(self) -> None:
        for rule in self.RULES:
            rule(self)


class Unary(IRDLOperation):
    """A function of one value, whose type is that of the result."""

    T: ClassVar = VarConstraint("T", AnyAttr())
    value = operand_def(T)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `:` type($value)"

    def __init__(self, value: SSAValue):
        super().__init__(operands=[value], result_types=[value.type])


class Remainder(IRDLOperation):
    """``a mod b``: the remainder that `floordiv` leaves; operands and result have one type, which a subclass gives."""

    traits = traits_def(Pure())
    assembly_format = "$lhs `,` $rhs attr-dict"

    def __init__(self, lhs: SSAValue, rhs: SSAValue):
        super().__init__(operands=[lhs, rhs], result_types=[lhs.type])


class Entry(IRDLOperation):
    """An entry of a constant array; a subclass gives the type of the index, `at`."""

    symbol = prop_def(SymbolRefAttr)
    result = result_def(AnyAttr())
    traits = traits_def(Pure())
    assembly_format = "$symbol `[` $at `]` attr-dict `:` type($result)"

    def __init__(self, symbol: str, at: SSAValue, type_: Attribute):
        super().__init__(operands=[at], properties={"symbol": SymbolRefAttr(symbol)}, result_types=[type_])
