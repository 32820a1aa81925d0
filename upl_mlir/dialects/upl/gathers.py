"""The operators of gathering inputs, one row each (LANGUAGE 3.3).

A row names the operations that join two summands; each engine knows already what these compute.  A new operator is a new
row: it then stands in all texts and runs on all engines.  One of reals needs its two derivative rules as well
(`passes/autodiff/adjoint_gather.py`, `passes/autodiff/tangent_gather.py`), and an operation that no gather folded with
before needs its circuit (`hw/core/inplace.py`).
"""

from __future__ import annotations

from enum import Enum

from xdsl.dialects import arith
from xdsl.ir import Operation

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
_INFINITE = float("inf")


class Gather(Enum):
    """An operator.  Its value is the symbol in `@(...)`.

    `real`, `integer`, `truth`: the operation that joins two values of a type, None where the operator is not of that type.
    `empty`: the result of no summands; infinities stand for the least and the greatest integer as well.
    `neutral`: what leaves every summand as it is, bit for bit.
    """

    #          symbol  reals             integers        truth values   empty
    SUM =     ("+",    arith.AddfOp,     arith.AddiOp,   None,          0, -0.0)
    PRODUCT = ("*",    arith.MulfOp,     arith.MuliOp,   None,          1)
    MIN =     ("min",  arith.MinimumfOp, arith.MinSIOp,  None,          _INFINITE)
    MAX =     ("max",  arith.MaximumfOp, arith.MaxSIOp,  None,          -_INFINITE)
    AND =     ("&&",   None,             None,           arith.AndIOp,  1)
    OR =      ("||",   None,             None,           arith.OrIOp,   0)
    PARITY =  ("!=",   None,             None,           arith.XOrIOp,  0)

    real: type[Operation] | None
    integer: type[Operation] | None
    truth: type[Operation] | None
    empty: float
    neutral: float

    def __new__(
        cls, symbol: str, real: type[Operation] | None, integer: type[Operation] | None, truth: type[Operation] | None,
        empty: float, neutral: float | None = None,
    ) -> Gather:  # fmt: skip
        """A member from its row."""
        out = object.__new__(cls)
        out._value_ = symbol
        out.real, out.integer, out.truth = real, integer, truth
        out.empty, out.neutral = empty, empty if neutral is None else neutral
        return out

    @property
    def rounds(self) -> bool:
        """Whether the result on reals depends on the order of the summands, and on integers may overflow."""
        return self.real in (arith.AddfOp, arith.MulfOp)

    @property
    def of_truths(self) -> bool:
        """Whether it gathers truth values, not numbers."""
        return self.truth is not None

    def empty_integer(self, least: int = INT_MIN, greatest: int = INT_MAX) -> int:
        """The result of no summands on integers of a range."""
        return {_INFINITE: greatest, -_INFINITE: least}[self.empty] if abs(self.empty) == _INFINITE else int(self.empty)
