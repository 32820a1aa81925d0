"""The functions that the core has no operation for, as sequences of its instructions: exp, log, sin, tanh, …

A sequence is straight-line code on binary32 bits: nothing branches, cases are selected. It is put in place where a
function is used. `evaluate` runs the same sequences on arrays, bit for bit. Bounds are in units in the last place (ulp) of
the exact result; the tests measure them on dense samples. Polynomials are minimax (the greatest relative error is as small
as it can be for the degree), their coefficients rounded to binary32 one after the other, lowest degree first, and the rest
fitted anew each time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

from upl_mlir.hw.core.alu import Code
from upl_mlir.hw.microcode import Op
from upl_mlir.numbers.floats import as_single

SIGN, INFINITY, NAN = 1 << 31, 0x7F800000, 0x7FC00000
LIMIT = float(1 << 20)
"""sin, cos and tan of anything beyond are NaN: the reduction by multiples of pi/2 holds up to here."""


@dataclass(frozen=True)
class Bits:
    """32 bits in the instruction, only as operand b."""

    bits: int


@dataclass(frozen=True)
class Line:
    """One instruction; its operands are values: those of the function's arguments first, then one a line."""

    code: Code
    a: int | None = None
    b: int | Bits | None = None
    c: int | None = None


@dataclass
class Program:
    """A function: the number of its arguments, its lines, of which the last one gives the result."""

    arguments: int
    lines: list[Line] = field(default_factory=list[Line])

    def do(self, code: Code, a: int | None = None, b: int | Bits | None = None, c: int | None = None) -> int:
        """Add a line; its value."""
        self.lines.append(Line(code, a, b, c))
        return self.arguments + len(self.lines) - 1

    # -- abbreviations; a float where a value may stand is an immediate
    def set(self, value: float) -> int:
        """A constant in a register."""
        return self.do(Code.MOVE, b=real(value))

    def add(self, a: int, b: int | float) -> int:
        """a + b."""
        return self.do(Code.ADD_F32, a, _second(b))

    def sub(self, a: int, b: int | float) -> int:
        """a - b."""
        return self.do(Code.SUB_F32, a, _second(b))

    def mul(self, a: int, b: int | float) -> int:
        """a * b."""
        return self.do(Code.MUL_F32, a, _second(b))

    def div(self, a: int, b: int) -> int:
        """a / b."""
        return self.do(Code.DIV_F32, a, b)

    def fma(self, a: int, b: int | float, c: int) -> int:
        """a * b + c."""
        return self.do(Code.FMA_F32, a, _second(b), c)

    def less(self, a: int, b: int | float) -> int:
        """a < b."""
        return self.do(Code.LT_F32, a, _second(b))

    def same(self, a: int, b: int | float) -> int:
        """a == b, as reals."""
        return self.do(Code.EQ_F32, a, _second(b))

    def size(self, a: int) -> int:
        """|a|."""
        return self.do(Code.ABS_F32, a)

    def select(self, condition: int, yes: int | float, no: int) -> int:
        """`yes` if the lowest bit of the condition is 1."""
        return self.do(Code.SELECT, condition, _second(yes), no)

    def polynomial(self, x: int, coefficients: Sequence[float]) -> int:
        """By Horner's rule; coefficients from the lowest degree up, at least two."""
        *rest, last, highest = coefficients
        total = self.add(self.mul(x, highest), last)
        for c in reversed(rest):
            total = self.do(Code.FMC_F32, total, real(c), x)
        return total

    def integer(self, code: Code, a: int, b: int | Bits) -> int:
        """An operation on bits."""
        return self.do(code, a, b)

    def sign_of(self, a: int) -> int:
        """The sign bit."""
        return self.integer(Code.AND_BOOL, a, Bits(SIGN))


def real(value: float) -> Bits:
    """The binary32 nearest to a number."""
    return Bits(struct.unpack("<I", struct.pack("<f", as_single(value)))[0])


def _second(value: int | float) -> int | Bits:
    return real(value) if isinstance(value, float) else value


_ROUND = 12582912.0
"""1.5 * 2**23: a sum with it has the nearest whole number in its lowest bits."""


def _power_of_e(s: Program, x: int, tail: int | None = None) -> int:
    """exp(x), times 1 + tail; what overflows or is subnormal is rounded once, at the end."""
    near = s.do(Code.MIN_F32, s.do(Code.MAX_F32, x, real(-104.0)), real(89.0))
    shifted = s.add(s.mul(near, 1.4426950408889634), _ROUND)
    k = s.sub(shifted, _ROUND)
    r = _reduced(s, k, near)
    q = s.polynomial(r, (0.5, 0.16666518, 0.041666415, 0.008368994, 0.0013939759))
    p = s.do(Code.FMC_F32, s.do(Code.FMC_F32, q, real(1.0), r), real(1.0), r)
    if tail is not None:
        p = s.fma(p, tail, p)
    # 2**k as two factors, so that neither is out of range
    places = s.integer(Code.SHL_I32, shifted, Bits(23))
    half = s.integer(Code.AND_BOOL, s.integer(Code.SHR_I32, places, Bits(1)), Bits(0xFF800000))
    rest = s.integer(Code.ADD_I32, s.integer(Code.SUB_I32, places, half), real(1.0))
    return s.mul(s.integer(Code.ADD_I32, p, half), rest)


def _reduced(s: Program, k: int, x: int) -> int:
    """x - k ln 2, by two parts of ln 2, of which the first has so few bits that the product is exact."""
    high = 0.693359375
    return s.fma(k, high - 0.6931471805599453, s.fma(k, -high, x))


def _exp(s: Program) -> None:
    _power_of_e(s, 0)


def _sigmoid(s: Program) -> None:
    """e / (1 + e) or 1 / (1 + e), with e = exp(-|x|) at most 1."""
    e = _power_of_e(s, s.integer(Code.OR_BOOL, s.size(0), Bits(SIGN)))
    s.div(s.select(s.less(0, 0.0), e, s.set(1.0)), s.add(e, 1.0))


def _tanh(s: Program) -> None:
    """1 - 2 / (exp(2 |x|) + 1), or near 0 a polynomial."""
    a = s.size(0)
    e = _power_of_e(s, s.add(a, a))
    big = s.do(Code.FMC_F32, s.div(s.set(-2.0), s.add(e, 1.0)), real(1.0), s.set(1.0))
    square = s.mul(a, a)
    p = s.polynomial(square, (-0.33333284, 0.13331485, -0.053743005, 0.020649103, -0.005715499))
    small = s.fma(s.mul(square, p), a, a)
    s.integer(Code.OR_BOOL, s.select(s.less(a, 0.625), small, big), s.sign_of(0))


def _split(s: Program, positive: int) -> tuple[int, int]:
    """e and m in [2/3, 4/3) with positive = m * 2**e; a subnormal is made normal first."""
    zero = s.set(0.0)
    small = s.less(positive, 2.0**-126)
    normal = s.select(small, s.mul(positive, 2.0**24), positive)
    moved = s.select(small, -24.0, zero)
    field_ = s.integer(Code.AND_BOOL, s.integer(Code.SUB_I32, normal, Bits(0x3F2AAAAB)), Bits(0xFF800000))
    m = s.integer(Code.SUB_I32, normal, field_)
    return s.fma(s.do(Code.I32_TO_F32, field_), 2.0**-23, moved), m


def _log(s: Program) -> None:
    a = s.size(0)
    e, m = _split(s, a)
    f = s.sub(m, 1.0)
    q = s.polynomial(f, (-0.5, 0.33333224, -0.24999689, 0.20010033, -0.16685472, 0.14011076, -0.1211505, 0.13961747,
                         -0.13191941))  # fmt: skip
    value = s.fma(e, 0.6931471805599453, s.fma(s.mul(f, f), q, f))
    finite = s.select(s.less(a, float("inf")), value, a)
    nan = s.set(float("nan"))
    below = s.select(s.same(0, 0.0), float("-inf"), nan)
    s.select(s.do(Code.LE_F32, 0, real(0.0)), below, finite)


_HALF_PI = (1.57079637050628662109375, -4.37113882867379e-8, -1.71512451258e-15)
"""pi/2 as a sum of three binary32, each the nearest to what the ones before leave."""


def _quadrant(s: Program) -> tuple[int, int, int, int]:
    """For an angle: the angle, or NaN, with its sign; for its size a word whose lowest bits are the quadrant, and sine and
    cosine of what is left of it.

    That lies in ±1.06 pi/4: 2/pi as a binary32 is off by 4e-8, which counts when the angle is large. A sine of -0 keeps its
    sign, as the sign comes last.
    """
    angle = s.select(s.less(s.size(0), LIMIT), 0, s.mul(s.sub(0, 0), float("nan")))
    x = s.size(angle)
    word = s.do(Code.FMC_F32, x, real(_ROUND), s.set(0.6366197723675814))
    k = s.sub(word, _ROUND)
    r = x
    for part in _HALF_PI:
        r = s.fma(k, -part, r)
    square = s.mul(r, r)
    sine = s.fma(s.mul(square, r), s.polynomial(square, (-0.16666651, 0.008331905, -0.00019480266)), r)
    p = s.polynomial(square, (0.041666638, -0.0013886947, 2.4391515e-05))
    cosine = s.do(Code.FMC_F32, s.do(Code.FMC_F32, p, real(-0.5), square), real(1.0), square)
    return angle, word, sine, cosine


def _signed(s: Program, value: int, signs: int) -> int:
    """The value, its sign changed if the highest bit of `signs` is 1."""
    return s.integer(Code.XOR_BOOL, value, s.integer(Code.AND_BOOL, signs, Bits(SIGN)))


def _sin(s: Program) -> None:
    angle, word, sine, cosine = _quadrant(s)
    signs = s.integer(Code.XOR_BOOL, s.integer(Code.SHL_I32, word, Bits(30)), angle)
    _signed(s, s.select(word, cosine, sine), signs)


def _cos(s: Program) -> None:
    _, word, sine, cosine = _quadrant(s)
    next_ = s.integer(Code.ADD_I32, word, Bits(1))
    _signed(s, s.select(word, sine, cosine), s.integer(Code.SHL_I32, next_, Bits(30)))


def _tan(s: Program) -> None:
    angle, word, sine, cosine = _quadrant(s)
    signs = s.integer(Code.XOR_BOOL, s.integer(Code.SHL_I32, word, Bits(31)), angle)
    above = _signed(s, s.select(word, cosine, sine), signs)
    s.div(above, s.select(word, sine, cosine))


def _erf(s: Program) -> None:
    """1 - erfc(|x|), where a polynomial gives the logarithm of erfc; or near 0 a polynomial."""
    a = s.size(0)
    q = s.polynomial(s.do(Code.MIN_F32, a, real(4.0)), (0.00018846849, -1.1295803, -0.6332166, -0.10842172, 0.025210006,
                     -0.0042051245, 0.00044143273, -2.1693575e-05))  # fmt: skip
    rest = _power_of_e(s, q)
    big = s.do(Code.FMC_F32, s.integer(Code.XOR_BOOL, rest, Bits(SIGN)), real(1.0), s.set(1.0))
    p = s.polynomial(s.mul(a, a), (0.12837917, -0.3761263, 0.11283618, -0.026855126, 0.005190734, -0.00080307614,
                                   7.920368e-05))  # fmt: skip
    small = s.fma(a, p, a)
    chosen = s.select(s.less(a, 1.0), small, big)
    s.integer(Code.OR_BOOL, s.select(s.less(a, 4.0), chosen, s.do(Code.MIN_F32, a, real(1.0))), s.sign_of(0))


def _atan2(s: Program) -> None:
    """The angle of (x, y) from the quotient of the smaller by the greater of |x|, |y|."""
    y, x = 0, 1
    ay, ax = s.size(y), s.size(x)
    great, small = s.do(Code.MAX_F32, ax, ay), s.do(Code.MIN_F32, ax, ay)
    # Two infinities or two zeros have no quotient: they count as 1 and 0.
    q = s.select(s.same(great, small), 1.0, s.div(small, great))
    q = s.select(s.same(great, 0.0), 0.0, q)
    square = s.mul(q, q)
    p = s.polynomial(square, (-0.33333302, 0.19998626, -0.14265092, 0.10956658, -0.08416461, 0.0581781, -0.031394538,
                              0.011029044, -0.0018187419))  # fmt: skip
    angle = s.fma(s.mul(square, q), p, q)
    high, low = _HALF_PI[:2]
    steep = s.add(s.add(s.integer(Code.XOR_BOOL, angle, Bits(SIGN)), low), high)
    angle = s.select(s.less(ax, ay), steep, angle)
    back = s.add(s.add(s.integer(Code.XOR_BOOL, angle, Bits(SIGN)), 2 * low), 2 * high)
    angle = s.select(s.integer(Code.SHR_I32, x, Bits(31)), back, angle)
    s.add(s.integer(Code.OR_BOOL, angle, s.sign_of(y)), -0.0)  # which makes a NaN the canonical one


def _pow(s: Program) -> None:
    """exp(y log |x|), the logarithm and its product with y as sums of two binary32; then the cases of C's `pow`."""
    x, y = 0, 1
    a = s.size(x)
    e, m = _split(s, a)
    f, sum_ = s.sub(m, 1.0), s.add(m, 1.0)
    q = s.div(f, sum_)
    # m - 1 = q sum + left exactly; sum itself may have been rounded by `lost`.
    lost = s.sub(m, s.sub(sum_, 1.0))
    left = s.fma(s.integer(Code.XOR_BOOL, q, Bits(SIGN)), sum_, f)
    left = s.fma(s.integer(Code.XOR_BOOL, q, Bits(SIGN)), lost, left)
    q_low = s.div(left, sum_)
    square = s.mul(q, q)
    t = s.polynomial(square, (0.6666666, 0.40000933, 0.28503516, 0.24151592))
    # log x = e ln 2 + 2 q + (2 q_low + q^3 t), the first two summed exactly
    ln2_high = 0.693359375
    first, twice = s.mul(e, ln2_high), s.add(q, q)
    cubed = s.mul(s.mul(square, q), t)
    tail = s.fma(q_low, 2.0, s.fma(e, 0.6931471805599453 - ln2_high, cubed))
    high, low = _exact_sum(s, first, twice)
    high, low2 = _exact_sum(s, high, tail)
    low = s.add(low, low2)
    # times y
    product = s.mul(high, y)
    rest = s.fma(low, y, s.fma(high, y, s.integer(Code.XOR_BOOL, product, Bits(SIGN))))
    inside = s.less(s.size(product), 110.0)
    rest = s.select(inside, rest, s.set(0.0))
    # the logarithm of 0 and of infinity
    infinite = s.set(float("inf"))
    log_sign = s.less(a, 1.0)
    plain = s.do(Code.AND_BOOL, s.less(a, float("inf")), s.less(s.set(0.0), a))
    end = s.mul(y, s.select(log_sign, float("-inf"), infinite))
    power = _power_of_e(s, s.select(plain, product, end), s.select(plain, rest, s.set(0.0)))
    # the sign: whole exponents, odd ones
    whole = s.same(s.do(Code.FLOOR_F32, y), y)
    half = s.mul(y, 0.5)
    odd = s.do(Code.XOR_BOOL, s.same(s.do(Code.FLOOR_F32, half), half), Bits(1))
    odd = s.do(Code.AND_BOOL, odd, whole)
    minus = s.do(Code.AND_BOOL, s.integer(Code.SHL_I32, odd, Bits(31)), x)
    power = s.integer(Code.OR_BOOL, power, s.sign_of(minus))
    wrong = s.do(Code.AND_BOOL, s.less(x, 0.0), s.do(Code.XOR_BOOL, whole, Bits(1)))
    wrong = s.do(Code.AND_BOOL, wrong, s.less(a, float("inf")))
    power = s.select(wrong, float("nan"), power)
    unordered = s.do(Code.OR_BOOL, s.do(Code.NE_F32, x, x), s.do(Code.NE_F32, y, y))
    power = s.select(unordered, float("nan"), power)
    one = s.do(Code.OR_BOOL, s.same(x, 1.0), s.same(y, 0.0))
    steady = s.do(Code.AND_BOOL, s.same(x, -1.0), s.same(s.size(y), float("inf")))
    s.select(s.do(Code.OR_BOOL, one, steady), 1.0, power)


def _exact_sum(s: Program, a: int, b: int) -> tuple[int, int]:
    """a + b rounded, and what the rounding left out, whichever is greater (Knuth)."""
    total = s.add(a, b)
    b_part = s.sub(total, a)
    a_part = s.sub(total, b_part)
    return total, s.add(s.sub(a, a_part), s.sub(b, b_part))


@dataclass(frozen=True)
class Function:
    """A function: how its code is written, the number of its arguments, its bound in ulp."""

    write: Callable[[Program], None]
    arguments: int
    ulp: float


FUNCTIONS: dict[Op, Function] = {
    Op.EXP_F32: Function(_exp, 1, 1.0),
    Op.LOG_F32: Function(_log, 1, 1.0),
    Op.SIN_F32: Function(_sin, 1, 1.6),
    Op.COS_F32: Function(_cos, 1, 1.6),
    Op.TAN_F32: Function(_tan, 1, 3.2),
    Op.TANH_F32: Function(_tanh, 1, 1.5),
    Op.SIGMOID_F32: Function(_sigmoid, 1, 2.5),
    Op.ERF_F32: Function(_erf, 1, 1.25),
    Op.ATAN2_F32: Function(_atan2, 2, 1.6),
    Op.POW_F32: Function(_pow, 2, 2.5),
}


@cache
def lines_of(op: Op) -> tuple[Line, ...]:
    """The code of a function."""
    sequence = Program(FUNCTIONS[op].arguments)
    FUNCTIONS[op].write(sequence)
    return tuple(sequence.lines)
