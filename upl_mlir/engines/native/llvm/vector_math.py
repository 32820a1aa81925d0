"""Elementary functions as inline LLVM IR, which LLVM vectorises with the loop around it; the rest from libm.

`exp`, `expm1`, `log`, `log1p`, `tanh`, `sigmoid` and `erf` are branch-free polynomials after range reduction (Cody and
Waite), inlined before the vectoriser runs.  `sin`, `cos` and `pow` need a branch for arguments that ask for libm: large
ones, and powers that are not finite, positive and normal or whose base is not.  They are functions of their own with vector
versions that the vectoriser is told of.  All other functions call libm, one element at a time.

Largest errors in units in the last place, measured over dense samples of all magnitudes:
`test/native/test_math_functions.py` holds them to the bounds stated in `BOUND`; results below the smallest normal
number are rounded correctly to 1 ulp of the subnormal. Signed zeros, infinities, NaN and arguments outside the domain
give what IEEE 754 says. The coefficients are minimax fits (Remez, 200 bits) of the function named beside them; their
own error is below 0.06 ulp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from upl_mlir.engines.native.llvm.lanes import F64, FORMATS, Lanes
from upl_mlir.ops.functions import TWO_ARGUMENTS

LOG2E = 1.4426950408889634
"""log2(e), in binary64."""


@dataclass(frozen=True)
class Constants:
    """Coefficients and limits for one format."""

    ln2: tuple[float, float]
    """Parts of ln 2; the first has so few bits that its products with exponents are exact."""
    exp: tuple[float, ...]
    """(exp(r) - 1 - r) / r² for |r| ≤ ln(2)/2, relative to exp(r)."""
    expm1: tuple[float, ...]
    """The same, relative to exp(r) - 1."""
    log: tuple[float, ...]
    """(2·atanh(s)/s - 2) / s² in s², for (1+s)/(1-s) between sqrt(1/2) and sqrt(2)."""
    erf: tuple[float, ...]
    """erf(x)/x - 1 in x², for |x| ≤ 1."""
    log_erfc: tuple[float, ...]
    """log(1 - erf(x)) for x from 1 to `erf_limit`; the error is that of erf(x)."""
    erf_limit: float
    """Beyond, erf is 1."""
    exp_range: tuple[float, float]
    """Outside, exp is 0 or infinite."""
    expm1_least: float
    """Below, exp(x) - 1 is -1."""
    tanh_limit: float
    """Beyond, tanh is 1."""
    sqrt_half_bits: int
    smallest_normal: float


# fmt: off
CONSTANTS = {
    "f64": Constants(
        (0.6931471805598903, 5.497923018708371e-14),
        (0.5000000000000011, 0.1666666666666641, 0.04166666666652973, 0.00833333333349498, 0.001388888894375969,
         0.0001984126950576586, 2.480149294987594e-05, 2.7557586812894924e-06, 2.7630306178626537e-07,
         2.5000015510719588e-08),
        (0.5000000000000001, 0.1666666666666667, 0.041666666666652245, 0.00833333333332613, 0.001388888889561318,
         0.00019841269874844905, 2.4801574517656775e-05, 2.755725536056358e-06, 2.7567935760643254e-07,
         2.5105236375078356e-08, 1.768769119018657e-09),
        (0.6666666666666735, 0.3999999999940748, 0.2857142874414219, 0.22222198378416588, 0.18183575167850166,
         0.15313755713952776, 0.14799066454086648),
        (0.12837916709551256, -0.3761263890318352, 0.112837916709442, -0.026866170643113415, 0.005223977606130842,
         -0.0008548325929766244, 0.0001205529358693695, -1.4924712439534814e-05, 1.6447132699786621e-06,
         -1.6206318752969208e-07, 1.3710988704190523e-08, -7.779462971761597e-10),
        (-1.7962477457410596e-07, -1.1283773292158341, -0.6366284891568282, -0.10274725138377, 0.019078153343988016,
         0.0002804924514626529, -0.0017690052826499153, 0.0006411769755730554, -4.482557293167891e-05,
         -7.036481948547494e-05, 4.503652456764111e-05, -1.6513624954573774e-05, 4.326953512960783e-06,
         -8.505555719018416e-07, 1.257020651142033e-07, -1.3626384296271018e-08, 1.0256767527430516e-09,
         -4.795925781849726e-11, 1.0495970869229545e-12), 6.0,
        (-746.0, 710.0), -40.0, 22.0, 0x3FE6A09E00000000, 2.2250738585072014e-308,
    ),
    "f32": Constants(
        (0.693145751953125, 1.428606765330187e-06),
        (0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.00836874544620514, 0.0013814537087455392),
        (0.5, 0.1666666567325592, 0.04166635870933533, 0.008333389647305012, 0.0013940668432042003,
         0.00019845881615765393),
        (0.6666666269302368, 0.4000033736228943, 0.28537169098854065, 0.23584988713264465),
        (0.12837916612625122, -0.3761262595653534, 0.1128358542919159, -0.026853814721107483, 0.005188330542296171,
         -0.0008010202436707914, 7.853849820094183e-05),
        (-0.00034158528433181345, -1.1270889043807983, -0.6381452679634094, -0.10310638695955276, 0.021837888285517693,
         -0.0029476138297468424, 0.0001863746001617983), 4.0,
        (-104.0, 89.0), -18.0, 10.0, 0x3F3504F3, 1.1754943508222875e-38,
    ),
}

PIO2 = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32)
"""Parts of π/2 of 33 bits each (the last one is the rest): products with integers below 2**20 are exact."""
SIN = (-0.1666666666666663, 0.008333333333322063, -0.00019841269829542612, 2.7557313604527764e-06,
       -2.5050745038045423e-08, 1.5896067523650042e-10)
"""(sin(r) - r) / r³ in r², for |r| ≤ π/4."""
COS = (0.041666666666666595, -0.0013888888888872975, 2.4801587288800025e-05, -2.755731416397642e-07,
       2.087569870858128e-09, -1.1358423521865225e-11)
"""(cos(r) - 1 + r²/2) / r⁴ in r², for |r| ≤ π/4."""
# fmt: on
TRIG_LIMIT = 1.6e6
"""Larger arguments of sin and cos go to libm."""

BOUND = {
    "exp": 1.0, "expm1": 1.5, "log": 1.0, "log1p": 1.0, "tanh": 1.0, "sigmoid": 1.5, "erf": 1.5, "sin": 1.0, "cos": 1.0,
    "pow": 1.5,
}  # fmt: skip
"""Bounds on the error in ulp, for both formats, where the machine fuses multiply and add.  What comes from libm has libm's:
glibc states 1 ulp for tan, pow and atan2 on x86-64."""
BOUND_WITHOUT_FMA = {"tanh": 2.0, "sigmoid": 2.5}
"""Where it does not, if the bound differs."""


# -- formulas ----------------------------------------------------------------------------------------------------
def _reduce(b: Lanes, x: str, more: str | None = None) -> tuple[str, str, str]:
    """x + more = n·ln 2 + (r + e) with an integer n and |r| ≤ ln(2)/2: returns r, its correction e, and n."""
    c = CONSTANTS[b.format.suffix]
    real, whole = b.nearest(b.mul(x, LOG2E))
    high = b.muladd(real, -c.ln2[0], x)
    low = b.mul(real, c.ln2[1])
    low = low if more is None else b.sub(low, more)
    r = b.sub(high, low)
    return r, b.sub(b.sub(high, r), low), whole


def _exp(b: Lanes, x: str) -> str:
    return _exp_of(b, *_reduce(b, b.clamp(x, *CONSTANTS[b.format.suffix].exp_range)))


def _exp_of(b: Lanes, r: str, e: str, n: str) -> str:
    """2**n·exp(r + e)"""
    c = CONSTANTS[b.format.suffix]
    power = b.add(1.0, b.add(r, b.muladd(b.mul(r, r), b.polynomial(r, c.exp), e)))
    half = b.int_op("ashr", n, 1)  # two steps, so that subnormal results are rounded once
    scaled = b.mul(power, b.power_of_two(half))
    return b.mul(scaled, b.power_of_two(b.int_op("sub", n, half)))


def _tanh(b: Lanes, x: str) -> str:
    """t/(t+2) with t = exp(2|x|) - 1 = 2**n·(exp(r) - 1) + (2**n - 1)."""
    c = CONSTANTS[b.format.suffix]
    size = b.abs(x)
    size = b.choose(b.test("ogt", size, c.tanh_limit), c.tanh_limit, size)
    r, e, n = _reduce(b, b.add(size, size))
    w = b.muladd(b.mul(r, r), b.polynomial(r, c.expm1), e)
    q = b.add(r, w)
    lost = b.sub(w, b.sub(q, r))
    scale = b.power_of_two(n)
    base = b.sub(scale, 1.0)
    t = b.muladd(scale, q, base)
    t_lost = b.muladd(scale, lost, b.muladd(scale, q, b.sub(base, t)))
    d, d_lost = _sum(b, t, 2.0)
    return b.copysign(_quotient(b, t, t_lost, d, b.add(d_lost, t_lost)), x)


def _sum(b: Lanes, x: float | str, y: float | str) -> tuple[str, str]:
    """x + y without error, as a sum of two reals (Knuth)."""
    s = b.add(x, y)
    v = b.sub(s, x)
    return s, b.add(b.sub(x, b.sub(s, v)), b.sub(y, v))


def _sigmoid(b: Lanes, x: str) -> str:
    """1/(1+e) for x ≥ 0 and e/(1+e) below, with e = exp(-|x|)."""
    e = _exp(b, b.negative(b.abs(x)))
    d = b.add(1.0, e)
    d_lost = b.sub(e, b.sub(d, 1.0))
    return _quotient(b, b.choose(b.test("oge", x, 0.0), 1.0, e), 0.0, d, d_lost)


def _quotient(b: Lanes, n: str, n_lost: float | str, d: str, d_lost: str) -> str:
    """(n + n_lost) / (d + d_lost), almost correctly rounded where the machine fuses multiply and add."""
    inverse = b.div(1.0, d)
    first = b.mul(n, inverse)
    minus = b.negative(first)
    rest = b.muladd(minus, d_lost, b.muladd(minus, d, n))
    return b.muladd(b.add(rest, n_lost), inverse, first)


def _expm1(b: Lanes, x: str) -> str:
    """2·(2**(n-1)·(exp(r) - 1) + (2**(n-1) - 1/2)), which does not overflow before the result does."""
    c = CONSTANTS[b.format.suffix]
    r, e, n = _reduce(b, b.clamp(x, c.expm1_least, c.exp_range[1]))
    w = b.muladd(b.mul(r, r), b.polynomial(r, c.expm1), e)
    q = b.add(r, w)
    lost = b.sub(w, b.sub(q, r))
    scale = b.power_of_two(b.int_op("sub", n, 1))
    base = b.sub(scale, 0.5)
    half = b.muladd(scale, q, base)
    half = b.add(half, b.muladd(scale, lost, b.muladd(scale, q, b.sub(base, half))))
    tiny = b.test("olt", b.abs(x), c.smallest_normal / 2.0**-23)  # half of a subnormal number has a digit less
    return b.choose(tiny, x, b.add(half, half))


def _erf(b: Lanes, x: str) -> str:
    """x + x·P(x²) up to 1, then 1 - exp(Q(|x|))."""
    c = CONSTANTS[b.format.suffix]
    size = b.abs(x)
    size = b.choose(b.test("ogt", size, c.erf_limit), c.erf_limit, size)
    near = b.muladd(size, b.polynomial(b.mul(size, size), c.erf), size)
    far = b.sub(1.0, _exp(b, b.polynomial(size, c.log_erfc)))
    return b.copysign(b.choose(b.test("olt", size, 1.0), near, far), x)


def _parts(b: Lanes, x: str) -> tuple[str, str]:
    """m and k of a normal x = 2**k·m, sqrt(1/2) ≤ m < sqrt(2); k as an integer."""
    c, f = CONSTANTS[b.format.suffix], b.format
    one = f.bias << f.mantissa
    shifted = b.int_op("add", b.bits(x), one - c.sqrt_half_bits)
    exponent = b.int_op("sub", b.int_op("lshr", shifted, f.mantissa), f.bias)
    return b.from_bits(b.int_op("add", b.int_op("and", shifted, (1 << f.mantissa) - 1), c.sqrt_half_bits)), exponent


def _log_of(b: Lanes, m: str, k: str, more: str | None = None) -> str:
    """k·ln 2 + log(1 + m) + more."""
    c = CONSTANTS[b.format.suffix]
    s = b.div(m, b.add(2.0, m))
    z = b.mul(s, s)
    rest = b.mul(z, b.polynomial(z, c.log))
    half_square = b.mul(b.mul(0.5, m), m)
    low = b.mul(k, c.ln2[1])
    low = b.muladd(s, b.add(half_square, rest), low if more is None else b.add(low, more))
    return b.sub(b.mul(k, c.ln2[0]), b.sub(b.sub(half_square, low), m))


def _log(b: Lanes, x: str) -> str:
    """k·ln 2 + log(m) for x = 2**k·m, sqrt(1/2) ≤ m < sqrt(2)."""
    c = CONSTANTS[b.format.suffix]
    tiny = b.test("olt", x, c.smallest_normal)
    m, exponent = _parts(b, b.choose(tiny, b.mul(x, 2.0**54), x))
    exponent = b.int_choose(tiny, b.int_op("sub", exponent, 54), exponent)
    found = _log_of(b, b.sub(m, 1.0), b.to_real(exponent))
    found = b.choose(b.test("oeq", x, float("inf")), x, found)
    found = b.choose(b.test("oeq", x, 0.0), float("-inf"), found)
    return b.choose(b.test("ult", x, 0.0), float("nan"), found)


def _log1p(b: Lanes, x: str) -> str:
    """The logarithm of the sum 1 + x = u + lost; of x itself where that is near 1."""
    u, lost = _sum(b, x, 1.0)
    m, exponent = _parts(b, u)
    near = b.int_test("eq", exponent, 0)
    f = b.choose(near, x, b.sub(m, 1.0))
    low = b.mul(lost, b.power_of_two(b.int_op("sub", 0, exponent)))
    low = b.choose(near, 0.0, b.mul(low, b.sub(1.0, b.mul(f, b.sub(1.0, f)))))  # low / (1 + f), almost
    low = b.choose(b.test("ogt", x, 1e18), 0.0, low)  # too small to count, and 2**-k may be no normal number
    found = _log_of(b, f, b.to_real(exponent), low)
    found = b.choose(b.test("oeq", x, float("inf")), x, found)
    found = b.choose(b.test("oeq", x, 0.0), x, found)
    found = b.choose(b.test("oeq", x, -1.0), float("-inf"), found)
    return b.choose(b.test("ult", x, -1.0), float("nan"), found)


def _difference(b: Lanes, x: str, y: str) -> tuple[str, str]:
    """x - y without error, as a sum of two reals (Knuth)."""
    d = b.sub(x, y)
    v = b.sub(d, x)
    return d, b.sub(b.sub(x, b.sub(d, v)), b.add(y, v))


def _quarter_turns(b: Lanes, x: str) -> tuple[str, str, str]:
    """x = n·π/2 + (r + e), |r| ≤ π/4: returns r, its correction e, and n; |x| ≤ TRIG_LIMIT."""
    real, n = b.nearest(b.mul(x, 0.6366197723675814))
    t = b.sub(x, b.mul(real, PIO2[0]))  # exact
    r, e = _difference(b, t, b.mul(real, PIO2[1]))
    r, e2 = _difference(b, r, b.mul(real, PIO2[2]))
    e = b.sub(b.add(e, e2), b.mul(real, PIO2[3]))
    total = b.add(r, e)
    return total, b.sub(e, b.sub(total, r)), n


def _trig(b: Lanes, x: str, turn: int) -> str:
    """sin(x + turn·π/2)."""
    r, e, n = _quarter_turns(b, x)
    z = b.mul(r, r)
    # sin(r+e) = r + (r³·S(z) + e·(1 - z/2)),  cos(r+e) = 1 - z/2 + (z²·C(z) - r·e)
    half = b.mul(0.5, z)
    sine = b.add(r, b.muladd(b.mul(z, r), b.polynomial(z, SIN), b.mul(e, b.sub(1.0, half))))
    w = b.sub(1.0, half)
    lost = b.sub(b.sub(1.0, w), half)
    cosine = b.add(w, b.add(lost, b.muladd(b.mul(z, z), b.polynomial(z, COS), b.negative(b.mul(r, e)))))
    n = b.int_op("add", n, turn)
    odd = b.int_test("ne", b.int_op("and", n, 1), 0)
    found = b.choose(odd, cosine, sine)
    flip = b.int_op("shl", b.int_op("and", n, 2), 62)
    found = b.from_bits(b.int_op("xor", b.bits(found), flip))
    return found if turn else b.choose(b.test("oeq", x, 0.0), x, found)  # sin(-0) is -0


THIRD = (0.3333333333333333, 1.850371707708594e-17)
"""1/3 as a sum of two reals."""
ATANH = tuple(1 / n for n in range(5, 27, 2))
"""(atanh(s)/s - 1 - s²/3) / s⁴ in s², its series: for |s| ≤ 0.172 what is left out is below 2**-64 of atanh(s)."""
POW_LIMIT = 708.0
"""Powers whose logarithm is larger are libm's: they may be infinite or subnormal."""


def _pow(b: Lanes, x: str, y: str) -> tuple[str, str]:
    """exp(y·log(x)) with the logarithm as a sum of two reals, right to 2**-62; and where libm is to be asked instead.

    log(m) = 2·atanh(s) with s = (m-1)/(m+1); sums and products without error by Dekker 1971, with fused operations.
    """
    c = CONSTANTS[b.format.suffix]
    m, exponent = _parts(b, x)
    f = b.sub(m, 1.0)
    d = b.add(f, 2.0)
    d_low = b.sub(f, b.sub(d, 2.0))
    inverse = b.div(1.0, d)
    s = b.mul(f, inverse)
    minus = b.negative(s)
    s_low = b.mul(b.fma(minus, d_low, b.fma(minus, d, f)), inverse)
    z = b.mul(s, s)
    z_low = b.fma(b.add(s, s), s_low, b.fma(s, s, b.negative(z)))
    third = b.mul(z, THIRD[0])
    third_low = b.fma(z_low, THIRD[0], b.fma(z, THIRD[1], b.fma(z, THIRD[0], b.negative(third))))
    rest = b.mul(b.mul(z, z), b.polynomial(z, ATANH))
    w = b.add(third, rest)
    w_low = b.add(b.sub(rest, b.sub(w, third)), third_low)
    tail = b.mul(s, w)
    tail_low = b.fma(s_low, w, b.fma(s, w_low, b.fma(s, w, b.negative(tail))))
    half = b.add(s, tail)  # of log(m)
    half_low = b.add(b.sub(tail, b.sub(half, s)), b.add(tail_low, s_low))
    k = b.to_real(exponent)
    high, lost = _sum(b, b.mul(k, c.ln2[0]), b.add(half, half))
    low = b.add(lost, b.fma(k, c.ln2[1], b.add(half_low, half_low)))
    log = b.add(high, low)
    log_low = b.sub(low, b.sub(log, high))
    found = b.mul(y, log)
    more = b.fma(y, log_low, b.fma(y, log, b.negative(found)))
    no_base = b.either(b.test("ult", x, c.smallest_normal), b.test("oeq", x, float("inf")))
    return b.either(no_base, b.test("uge", b.abs(found), POW_LIMIT)), _exp_of(b, *_reduce(b, found, more))


# -- functions of the module -------------------------------------------------------------------------------------
INLINE: dict[str, Callable[[Lanes, str], str]] = {
    "exp": _exp, "expm1": _expm1, "log": _log, "log1p": _log1p, "tanh": _tanh, "sigmoid": _sigmoid, "erf": _erf,
}  # fmt: skip
TRIG = {"sin": 0, "cos": 1}


def _turned(turn: int) -> Callable[[Lanes, str], tuple[str, str]]:
    return lambda b, x: (b.test("ogt", b.abs(x), TRIG_LIMIT), _trig(b, x, turn))


GUARDED: dict[str, Callable[..., tuple[str, str]]] = {**{name: _turned(n) for name, n in TRIG.items()}, "pow": _pow}
"""Where libm is to be asked, and the result elsewhere, in f64."""


def definition(
    name: str, type_: str, vector_bytes: int, *, scalar: bool = False, fuses: bool = True
) -> tuple[str, dict[str, str]]:  # fmt: skip
    """The name to call for a function on `double` or `float`, and the texts that define it, by key.

    `vector_bytes` is the width of the machine's vectors, for which sin, cos and pow get versions.  Where no vectors can be
    made (`scalar`), sin and cos stand where they are called, so that those of one number share their work; pow is libm's,
    and so it is where the machine does not fuse products and sums (`fuses`), which its formula asks for.
    """
    b = Lanes(FORMATS[type_])
    if name in INLINE:
        full = f"@upl.{name}.{b.format.suffix}"
        result = INLINE[name](b, "%x")
        body = [f"define internal {type_} {full}({type_} %x) #1 {{", *b.code.lines, f"  ret {type_} {result}", "}"]
        return full, {full: "\n".join(body)}
    arguments = 2 if name in TWO_ARGUMENTS else 1
    if name in TRIG and scalar:
        own = f"upl.{name}.{FORMATS[type_].suffix}.here"
        library = {f"@{name}": f"declare double @{name}(double) #3"}
        return f"@{own}", library | {f"@{own}": _guarded_function(name, type_, 1, own, "#1")}
    if name in TRIG or (name in GUARDED and fuses and not scalar):
        return _guarded_definitions(name, type_, vector_bytes)
    full = f"@{name}" + ("f" if type_ == "float" else "")
    args = ", ".join([type_] * arguments)
    return full, {full: f"declare {type_} {full}({args}) #3"}


def _guarded_definitions(name: str, type_: str, vector_bytes: int) -> tuple[str, dict[str, str]]:
    full, arguments = f"upl.{name}.{FORMATS[type_].suffix}", 2 if name in TWO_ARGUMENTS else 1
    widths = [1, vector_bytes // 8, *([vector_bytes // 4] if type_ == "float" else [])]
    texts = {f"@{name}": f"declare double @{name}({', '.join(['double'] * arguments)}) #3"}
    variants = [f"_ZGV_LLVM_N{w}{'v' * arguments}_{full}({full}.v{w})" for w in widths[1:]]
    kept = ", ".join([f"ptr @{full}", *(f"ptr @{full}.v{w}" for w in widths[1:])])  # LLVM then keeps their arguments
    for width in widths:
        own = full if width == 1 else f"{full}.v{width}"
        attributes = f'#4 "vector-function-abi-variant"="{",".join(variants)}"' if width == 1 else "#4"
        texts[f"@{own}"] = _guarded_function(name, type_, width, own, attributes)
    texts[f"used {full}"] = kept
    return f"@{full}", texts


def _guarded_function(name: str, type_: str, width: int, own: str, attributes: str) -> str:
    """A function of `width` numbers that asks libm for all of them where one is `GUARDED`; those of f32 are computed in f64
    and rounded."""
    b = Lanes(F64, width)
    code, outer = b.code, Lanes(FORMATS[type_], width).type
    given = ["%x", "%y"][: 2 if name in TWO_ARGUMENTS else 1]
    code.begin("start")
    args = given if type_ == "double" else [code.let(f"fpext {outer} {x} to {b.type}") for x in given]
    asked, fast = GUARDED[name](b, *args)
    if width > 1:
        asked = code.let(f"call i1 @llvm.vector.reduce.or.v{width}i1(<{width} x i1> {asked})", "c")
    code.branch(asked, "slow", "end")
    code.begin("slow")
    if width == 1:
        slow, last = code.let(f"call double @{name}({', '.join(f'double {x}' for x in args)})"), "slow"
        code.jump("end")
    else:
        code.jump("lane")
        code.begin("lane")
        lane, done = code.phi("i64"), code.phi(b.type)
        elements = [code.let(f"extractelement {b.type} {x}, i64 {lane.name}") for x in args]
        one = code.let(f"call double @{name}({', '.join(f'double {x}' for x in elements)})")
        slow = code.let(f"insertelement {b.type} {done.name}, double {one}, i64 {lane.name}")
        following = code.let(f"add i64 {lane.name}, 1")
        lane.close(("0", "slow"), (following, "lane"))
        done.close(("zeroinitializer", "slow"), (slow, "lane"))
        code.branch(code.let(f"icmp ult i64 {following}, {width}"), "lane", "end")
        last = "lane"
    code.begin("end")
    result = code.phi(b.type)
    result.close((fast, "start"), (slow, last))
    found = result.name
    if type_ == "float":
        found = code.let(f"fptrunc {b.type} {found} to {outer}")
    head = f"define internal {outer} @{own}({', '.join(f'{outer} {x}' for x in given)}) {attributes} {{"
    return "\n".join([head, *code.lines, f"  ret {outer} {found}", "}"])
