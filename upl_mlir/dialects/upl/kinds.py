"""How values of UPL's types are represented: what `real` means is chosen when a program is run or lowered."""

from __future__ import annotations

from enum import Enum

from xdsl.dialects.builtin import f32, f64, i1, i64
from xdsl.ir import Attribute, Operation

from upl_mlir.dialects.upl.attributes import UplType
from upl_mlir.dialects.upl.gathers import Gather


class Kind(Enum):
    """How a value is represented and rounded."""

    BOOL = "bool"
    INT = "int"
    F32 = "f32"
    F64 = "f64"

    @property
    def is_float(self) -> bool:
        """Whether values are reals."""
        return self in (Kind.F32, Kind.F64)

    @property
    def mlir(self) -> Attribute:
        """The MLIR type of a value."""
        return _MLIR[self]

    @property
    def bytes(self) -> int:
        """The size of an element in an array."""
        return {Kind.BOOL: 1, Kind.F32: 4}.get(self, 8)


_MLIR: dict[Kind, Attribute] = {Kind.BOOL: i1, Kind.INT: i64, Kind.F32: f32, Kind.F64: f64}


def kind_of(type_: UplType, real: Kind) -> Kind:
    """The representation of a type; `real` is what `real` means."""
    match type_:
        case UplType.REAL:
            return real
        case UplType.F32:
            return Kind.F32
        case UplType.F64:
            return Kind.F64
        case UplType.INT:
            return Kind.INT
        case UplType.BOOL:
            return Kind.BOOL


def folding(gather: Gather, kind: Kind) -> type[Operation]:
    """The operation with which a gather joins two summands."""
    op = gather.real if kind.is_float else gather.truth if kind is Kind.BOOL else gather.integer
    assert op is not None, (gather, kind)
    return op
