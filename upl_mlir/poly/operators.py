"""The operators of index expressions and formulas: integer divisions, extrema, comparisons, connectives."""

from __future__ import annotations

from enum import Enum


class DivKind(Enum):
    """The integer divisions of MLIR's affine expressions; the divisor is a positive constant."""

    FLOORDIV = "floordiv"
    CEILDIV = "ceildiv"
    MOD = "mod"

    def apply(self, a: int, b: int) -> int:
        """The value for integers; `mod` is never negative.  Raises ZeroDivisionError for b == 0."""
        match self:
            case DivKind.FLOORDIV:
                return a // b
            case DivKind.CEILDIV:
                return -(-a // b)
            case DivKind.MOD:
                return a % b


class Extremum(Enum):
    """Which of several values an `MinMax` atom takes."""

    MIN = "min"
    MAX = "max"


class CmpOp(Enum):
    """Comparison operators."""

    LE = "<="
    LT = "<"
    EQ = "=="
    NE = "!="
    GE = ">="
    GT = ">"

    def holds(self, a: int, b: int) -> bool:
        """The comparison of two integers."""
        return {"<=": a <= b, "<": a < b, "==": a == b, "!=": a != b, ">=": a >= b, ">": a > b}[self.value]

    @property
    def flipped(self) -> CmpOp:
        """The operator with its sides exchanged."""
        return {"<=": CmpOp.GE, "<": CmpOp.GT, ">=": CmpOp.LE, ">": CmpOp.LT}.get(self.value, self)

    @property
    def negated(self) -> CmpOp:
        """The operator that holds exactly where this one does not."""
        return {
            "<=": CmpOp.GT, "<": CmpOp.GE, "==": CmpOp.NE, "!=": CmpOp.EQ, ">=": CmpOp.LT, ">": CmpOp.LE,
        }[self.value]  # fmt: skip


class Connective(Enum):
    """How the parts of a `Formula` combine."""

    CMP = "cmp"
    AND = "&&"
    OR = "||"
    NOT = "!"
