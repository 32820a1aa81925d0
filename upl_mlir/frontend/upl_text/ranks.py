"""The types of values in bodies and how they promote: the one table that `to_ir` and the printer share.

LANGUAGE section 2: promotion bool → int → f32 → f64 (`real` is f64 here).  The printer leaves a conversion out of the
text exactly where these rules put it back, so both must read them from one place.
"""

from __future__ import annotations

from enum import IntEnum

from xdsl.dialects.builtin import Float32Type, FloatAttr, IntegerAttr, IntegerType, f32, f64, i1, i64
from xdsl.ir import Attribute

from upl_mlir.dialects.upl.attributes import UplType
from upl_mlir.numbers.floats import as_single


class Rank(IntEnum):
    """A type of values; a greater one holds every value of a smaller one (up to rounding)."""

    BOOL = 0
    INT = 1
    F32 = 2
    REAL = 3

    @property
    def word(self) -> str:
        """The type's name in UPL."""
        return self.name.lower()

    @property
    def mlir(self) -> IntegerType | Float32Type | Attribute:
        """The MLIR type of a value."""
        return (i1, i64, f32, f64)[self]

    @property
    def is_float(self) -> bool:
        """Whether values are floating-point numbers."""
        return self >= Rank.F32

    @property
    def described(self) -> str:
        """The type in a sentence: "`x` is …"."""
        return ("a truth value", "an integer", "an f32", "real")[self]


UPL_RANK = {
    UplType.BOOL: Rank.BOOL, UplType.INT: Rank.INT, UplType.F32: Rank.F32, UplType.F64: Rank.REAL,
    UplType.REAL: Rank.REAL,
}  # fmt: skip


def rank_of(t: Attribute) -> Rank:
    """The rank of a value of an MLIR type."""
    if isinstance(t, IntegerType):
        return Rank.BOOL if t.width.data == 1 else Rank.INT
    return Rank.F32 if isinstance(t, Float32Type) else Rank.REAL


def arithmetic(*ranks: Rank) -> Rank:
    """The type of ``a+b``, ``min(a,b)``, ``-a``: as in C, truth values count as integers."""
    return max(Rank.INT, *ranks)


def real_valued(*ranks: Rank) -> Rank:
    """The type of ``a/b``, ``exp(a)``: integers count as reals."""
    widest = max(ranks)
    return widest if widest.is_float else Rank.REAL


def power(base: Rank, exponent: Rank, *, literal: bool) -> Rank:
    """The type of ``a**b``; `literal`: the exponent is a non-negative integer literal."""
    if base <= Rank.INT and exponent <= Rank.INT and literal:
        return Rank.INT
    return real_valued(base, exponent)


def converts(given: Rank, wanted: Rank) -> bool:
    """Whether a value of type `given` becomes one of type `wanted` without being asked to (a token, an assignment)."""
    return given == wanted or (wanted is not Rank.BOOL and (wanted.is_float or given <= wanted))


def literal(value: float, rank: Rank) -> IntegerAttr | FloatAttr | None:
    """The attribute of a number as a value of a type; None if it is not exactly one.

    An integer beyond 2**24 as f32 is None: it would be rounded twice.
    """
    match rank:
        case Rank.BOOL:
            return IntegerAttr(int(value), i1)
        case Rank.INT:
            return IntegerAttr(int(value), i64)
        case Rank.F32:
            return None if isinstance(value, int) and abs(value) > 2**24 else FloatAttr(as_single(float(value)), f32)
        case Rank.REAL:
            return FloatAttr(float(value), f64)
