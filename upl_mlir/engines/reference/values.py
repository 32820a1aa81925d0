"""Values: how a scalar operation computes (LANGUAGE 1, 2 and 3.6).

Reals are IEEE numbers without traps: what has no value is NaN, what is too large is infinite.  Integers have 64 bits; an
operation without a value raises `NoValue`.  A real of 32 bits is a Python float that was rounded.
"""

from __future__ import annotations

import math
import operator
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

from xdsl.dialects import arith
from xdsl.dialects import math as mlir_math
from xdsl.ir import Operation

from upl_mlir.dialects.upl import AlongOp, Gather, ModOp, StopGradientOp, UplType
from upl_mlir.engines.reference.points import NoValue, compared, divided
from upl_mlir.engines.reference.small import exactly, nearest
from upl_mlir.numbers.formats import FixedFormat, FloatFormat, Format, small_format
from upl_mlir.ops import FUNCTIONS, Function

Value = bool | int | float
INT_LEAST, INT_GREATEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Form:
    """How a value is represented; `small` describes f16, bf16 and fixed point."""

    name: str
    small: Format | None = None

    BOOL: ClassVar[Form]
    INT: ClassVar[Form]
    F32: ClassVar[Form]
    F64: ClassVar[Form]

    @property
    def real(self) -> bool:
        """Whether it is a real."""
        return self not in (Form.BOOL, Form.INT)


Form.BOOL, Form.INT, Form.F32, Form.F64 = map(Form, ("bool", "int", "f32", "f64"))
_FORMS = {f.name: f for f in (Form.BOOL, Form.INT, Form.F32, Form.F64)}


def named(name: str) -> Form:
    """The form of a name.  Raises ValueError for a name of none."""
    small = small_format(name)
    if small is not None:
        return Form(name, small)
    if name not in _FORMS:
        raise ValueError(f"real={name!r}: there is no such type")
    return _FORMS[name]


def form_of(type_: UplType, real: Form) -> Form:
    """The form of a type; `real` is what the type `real` means."""
    return real if type_ is UplType.REAL else _FORMS[type_.value]


def single(x: float) -> float:
    """The nearest number of 32 bits; an infinity where there is none."""
    return array("f", (x,))[0]


def fitted(x: Any, form: Form) -> Value:
    """A result in its form: rounded, or held to 64 bits.  Raises NoValue."""
    match form:
        case Form.BOOL:
            return bool(x)
        case Form(_, FloatFormat() | FixedFormat() as small):
            return nearest(x, small)
        case Form.F32:
            return single(float(x))
        case Form.F64:
            return float(x)
        case Form.INT:
            if not INT_LEAST <= x <= INT_GREATEST:
                raise NoValue(f"integer overflow: {x} does not fit 64 bits")
            return int(x)
        case _:
            raise AssertionError(form)


# -- reals ---------------------------------------------------------------------------------------------------------
def quotient(a: float, b: float) -> float:
    """``a / b``; a zero divisor gives an infinity of the right sign, or NaN."""
    if b != 0.0:
        return a / b
    return math.nan if a == 0.0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


def lesser(a: float, b: float) -> float:
    """`min`: NaN if one is NaN; -0.0 is below 0.0."""
    if math.isnan(a) or math.isnan(b):
        return math.nan
    return a if (a, math.copysign(1.0, a)) <= (b, math.copysign(1.0, b)) else b


def greater(a: float, b: float) -> float:
    """`max`: NaN if one is NaN; 0.0 is above -0.0."""
    return -lesser(-a, -b)


def _unless_nan(f: Callable[[float, float], float]) -> Callable[[float, float], float]:
    def g(a: float, b: float) -> float:
        return b if math.isnan(a) else a if math.isnan(b) else f(a, b)

    return g


def _anywhere(f: Callable[..., float], too_large: Callable[..., float] | None = None) -> Callable[..., float]:
    """The function with NaN outside its domain, and `too_large` (infinity) where its result has no finite number."""

    def g(*args: float) -> float:
        try:
            return f(*args)
        except OverflowError:
            return math.inf if too_large is None else too_large(*args)
        except ValueError:
            return math.nan

    return g


def _power(a: float, b: float) -> float:
    odd = math.isfinite(b) and b % 2 == 1
    if a == 0.0 and b < 0:  # a pole
        return math.copysign(math.inf, a) if odd else math.inf
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and odd else math.inf
    except ValueError:
        return math.nan


def _infinite(x: float) -> float:
    return math.copysign(math.inf, x)


def _one_by_root(x: float) -> float:
    return quotient(1.0, _anywhere(math.sqrt)(x))


def _fused(a: float, b: float, c: float) -> float:
    if not all(map(math.isfinite, (a, b, c))) or a == 0.0 or b == 0.0:
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _whole(f: Callable[[float], int]) -> Callable[[float], float]:
    """A rounding function; infinities, NaN and the sign of zero stay."""
    def g(x: float) -> float:
        return math.copysign(f(x), x) if math.isfinite(x) else x

    return g


def _halves_away(x: float) -> int:
    down = math.floor(abs(x))
    return down + (abs(x) - down >= 0.5)


# -- integers ------------------------------------------------------------------------------------------------------
def _towards_zero(a: int, b: int) -> int:
    if b == 0:
        raise NoValue(f"integer division by zero: {a} / {b}")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int:
    if b == 0:
        raise NoValue(f"integer division by zero: {a} rem {b}")
    return a - b * _towards_zero(a, b)


def _int_power(a: int, b: int) -> int:
    if b < 0:
        if a == 0:
            raise NoValue(f"integer division by zero: {a} ** {b}")
        return a if abs(a) == 1 and b % 2 else 1 if abs(a) == 1 else 0
    if abs(a) > 1 and b > 64:
        raise NoValue(f"integer overflow: {a} ** {b} does not fit 64 bits")
    return a**b


def _to_int(x: float) -> int:
    if not -(2.0**63) <= x < 2.0**63:
        raise NoValue(f"{x!r} has no 64-bit integer value")
    return int(x)


# -- the operations ------------------------------------------------------------------------------------------------
def _and(a: Any, b: Any) -> Any:
    return a & b


def _or(a: Any, b: Any) -> Any:
    return a | b


def _xor(a: Any, b: Any) -> Any:
    return a ^ b


def _chosen(cond: bool, then: Value, other: Value) -> Value:
    return then if cond else other


def _last(*values: Value) -> Value:
    return values[-1]


def _elementary(f: Function) -> Callable[..., float]:
    inside = _anywhere(f.compute, _infinite if f.odd else None)
    return lambda *args: f.poles[args[0]] if args[0] in f.poles else inside(*args)


COMPUTE: Mapping[type[Operation], Callable[..., Any]] = {
    # reals
    arith.AddfOp: operator.add,
    arith.SubfOp: operator.sub,
    arith.MulfOp: operator.mul,
    arith.DivfOp: quotient,
    arith.NegfOp: operator.neg,
    arith.MinimumfOp: lesser,
    arith.MaximumfOp: greater,
    arith.MinnumfOp: _unless_nan(lesser),
    arith.MaxnumfOp: _unless_nan(greater),
    mlir_math.AbsFOp: abs,
    mlir_math.CopySignOp: math.copysign,
    mlir_math.FloorOp: _whole(math.floor),
    mlir_math.CeilOp: _whole(math.ceil),
    mlir_math.TruncOp: _whole(math.trunc),
    mlir_math.RoundOp: _whole(_halves_away),
    mlir_math.RoundEvenOp: _whole(round),
    mlir_math.FmaOp: _fused,
    mlir_math.PowFOp: _power,
    mlir_math.FPowIOp: _power,
    mlir_math.RsqrtOp: _one_by_root,
    **{f.op: _elementary(f) for f in FUNCTIONS},
    # integers
    arith.AddiOp: operator.add,
    arith.SubiOp: operator.sub,
    arith.MuliOp: operator.mul,
    arith.FloorDivSIOp: partial(divided, "floordiv"),
    arith.CeilDivSIOp: partial(divided, "ceildiv"),
    ModOp: partial(divided, "mod"),
    arith.DivSIOp: _towards_zero,
    arith.RemSIOp: _remainder,
    mlir_math.IPowIOp: _int_power,
    mlir_math.AbsIOp: abs,
    arith.MinSIOp: min,
    arith.MaxSIOp: max,
    # truth values, or integers bit by bit
    arith.AndIOp: _and,
    arith.OrIOp: _or,
    arith.XOrIOp: _xor,
    # conversions
    arith.SIToFPOp: float,
    arith.UIToFPOp: float,
    arith.FPToSIOp: _to_int,
    arith.ExtUIOp: int,
    arith.ExtFOp: float,
    arith.TruncFOp: float,
    # choice
    arith.SelectOp: _chosen,
    StopGradientOp: _last,
    AlongOp: _last,
}
"""What each operation computes, before its result is fitted to its form."""

_ALWAYS = {"false": False, "ordered": True, "unordered": False, "true": True}
"""Comparisons of reals that say the same of all numbers, if none is NaN."""
_INTEGERS = ("==", "!=", "<", "<=", ">", ">=")
_ORDERED = ("false", "==", ">", ">=", "<", "<=", "!=", "ordered")
_UNORDERED = ("==", ">", ">=", "<", "<=", "!=", "unordered", "true")


def comparison(op: Operation) -> Callable[[Any, Any], bool] | None:
    """What a comparison computes; None for another operation, or one of integers without a sign."""
    match op:
        case arith.CmpiOp() if (at := op.predicate.value.data) < len(_INTEGERS):
            return partial(compared, _INTEGERS[at])
        case arith.CmpfOp():
            at = op.predicate.value.data
            sign, if_nan = (_ORDERED[at], False) if at < 8 else (_UNORDERED[at - 8], True)

            def real(a: float, b: float) -> bool:
                if math.isnan(a) or math.isnan(b):
                    return if_nan
                return _ALWAYS[sign] if sign in _ALWAYS else compared(sign, a, b)

            return real
        case _:
            return None


def computed(op: type[Operation], compute: Callable[..., Any], form: Form, *args: Any) -> Value:
    """What an operation computes, in its form."""
    exact = None if form.small is None else exactly(op, *args)
    return fitted(compute(*args) if exact is None else exact, form)


# -- gathers (LANGUAGE 3.3) ----------------------------------------------------------------------------------------
def identity(op: Gather, form: Form) -> Value:
    """The result of no summands."""
    return fitted(op.empty_integer() if form is Form.INT else op.empty, form)


def folded(op: Gather, form: Form, summands: list[Value]) -> Value:
    """All summands, from the left.  Raises NoValue for an integer overflow."""
    if not summands:
        return identity(op, form)
    step = op.real if form.real else op.truth if form is Form.BOOL else op.integer
    assert step is not None, (op, form)
    total = summands[0]
    for x in summands[1:]:
        total = computed(step, COMPUTE[step], form, total, x)
    return total
