"""Elementary functions as inline LLVM IR, which LLVM vectorises with the loop around it; the rest from libm.

`exp`, `log`, `tanh` and `sigmoid` are branch-free polynomials after range reduction (Cody and Waite), inlined before the
vectoriser runs.  `sin` and `cos` need a branch for large arguments, which ask for libm's reduction; they are functions of
their own with vector versions that the vectoriser is told of.  All other functions call libm, one element at a time.

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
    exp_range: tuple[float, float]
    """Outside, exp is 0 or infinite."""
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
        (-746.0, 710.0), 22.0, 0x3FE6A09E00000000, 2.2250738585072014e-308,
    ),
    "f32": Constants(
        (0.693145751953125, 1.428606765330187e-06),
        (0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.00836874544620514, 0.0013814537087455392),
        (0.5, 0.1666666567325592, 0.04166635870933533, 0.008333389647305012, 0.0013940668432042003,
         0.00019845881615765393),
        (0.6666666269302368, 0.4000033736228943, 0.28537169098854065, 0.23584988713264465),
        (-104.0, 89.0), 10.0, 0x3F3504F3, 1.1754943508222875e-38,
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

BOUND = {"exp": 1.0, "log": 1.0, "tanh": 1.0, "sigmoid": 1.5, "sin": 1.0, "cos": 1.0}
"""Bounds on the error in ulp, for both formats, where the machine fuses multiply and add.  What comes from libm has libm's:
glibc states 1 ulp for erf, pow and atan2 on x86-64."""
BOUND_WITHOUT_FMA = {"tanh": 2.0, "sigmoid": 2.5}
"""Where it does not, if the bound differs."""


# -- formulas ----------------------------------------------------------------------------------------------------
def _reduce(b: Lanes, x: str) -> tuple[str, str, str]:
    """x = n·ln 2 + (r + e) with an integer n and |r| ≤ ln(2)/2: returns r, its correction e, and n."""
    c = CONSTANTS[b.format.suffix]
    real, whole = b.nearest(b.mul(x, LOG2E))
    high = b.muladd(real, -c.ln2[0], x)
    low = b.mul(real, c.ln2[1])
    r = b.sub(high, low)
    return r, b.sub(b.sub(high, r), low), whole


def _exp(b: Lanes, x: str) -> str:
    c = CONSTANTS[b.format.suffix]
    r, e, n = _reduce(b, b.clamp(x, *c.exp_range))
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


def _log(b: Lanes, x: str) -> str:
    """k·ln 2 + log(1+f) for x = 2**k·(1+f), sqrt(1/2) ≤ 1+f < sqrt(2)."""
    c, f = CONSTANTS[b.format.suffix], b.format
    tiny = b.test("olt", x, c.smallest_normal)
    raised = b.choose(tiny, b.mul(x, 2.0**54), x)
    one = f.bias << f.mantissa
    shifted = b.int_op("add", b.bits(raised), one - c.sqrt_half_bits)
    exponent = b.int_op("sub", b.int_op("lshr", shifted, f.mantissa), f.bias)
    exponent = b.int_choose(tiny, b.int_op("sub", exponent, 54), exponent)
    part = b.int_op("add", b.int_op("and", shifted, (1 << f.mantissa) - 1), c.sqrt_half_bits)
    m, k = b.sub(b.from_bits(part), 1.0), b.to_real(exponent)
    s = b.div(m, b.add(2.0, m))
    z = b.mul(s, s)
    rest = b.mul(z, b.polynomial(z, c.log))
    half_square = b.mul(b.mul(0.5, m), m)
    low = b.muladd(s, b.add(half_square, rest), b.mul(k, c.ln2[1]))
    found = b.sub(b.mul(k, c.ln2[0]), b.sub(b.sub(half_square, low), m))
    found = b.choose(b.test("oeq", x, float("inf")), x, found)
    found = b.choose(b.test("oeq", x, 0.0), float("-inf"), found)
    return b.choose(b.test("ult", x, 0.0), float("nan"), found)


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


# -- functions of the module -------------------------------------------------------------------------------------
INLINE: dict[str, Callable[[Lanes, str], str]] = {"exp": _exp, "log": _log, "tanh": _tanh, "sigmoid": _sigmoid}
TRIG = {"sin": 0, "cos": 1}


def definition(name: str, type_: str, vector_bytes: int, *, scalar: bool = False) -> tuple[str, dict[str, str]]:
    """The name to call for a function on `double` or `float`, and the texts that define it, by key.

    `vector_bytes` is the width of the machine's vectors, for which sin and cos get versions.  Where no vectors can be made
    (`scalar`), sin and cos stand where they are called, so that those of one number share their work.
    """
    b = Lanes(FORMATS[type_])
    if name in INLINE:
        full = f"@upl.{name}.{b.format.suffix}"
        result = INLINE[name](b, "%x")
        body = [f"define internal {type_} {full}({type_} %x) #1 {{", *b.code.lines, f"  ret {type_} {result}", "}"]
        return full, {full: "\n".join(body)}
    if name in TRIG:
        if scalar:
            own = f"upl.{name}.{FORMATS[type_].suffix}.here"
            library = {f"@{name}": f"declare double @{name}(double) #3"}
            return f"@{own}", library | {f"@{own}": _trig_function(name, type_, 1, own, "#1")}
        return _trig_definitions(name, type_, vector_bytes)
    full = f"@{name}" + ("f" if type_ == "float" else "")
    args = ", ".join([type_] * (2 if name in TWO_ARGUMENTS else 1))
    return full, {full: f"declare {type_} {full}({args}) #3"}


def _trig_definitions(name: str, type_: str, vector_bytes: int) -> tuple[str, dict[str, str]]:
    full = f"upl.{name}.{FORMATS[type_].suffix}"
    widths = [1, vector_bytes // 8, *([vector_bytes // 4] if type_ == "float" else [])]
    texts = {f"@{name}": f"declare double @{name}(double) #3"}
    variants = [f"_ZGV_LLVM_N{w}v_{full}({full}.v{w})" for w in widths[1:]]
    kept = ", ".join(f"ptr @{full}.v{w}" for w in widths[1:])
    for width in widths:
        own = full if width == 1 else f"{full}.v{width}"
        attributes = f'#4 "vector-function-abi-variant"="{",".join(variants)}"' if width == 1 else "#4"
        texts[f"@{own}"] = _trig_function(name, type_, width, own, attributes)
    texts[f"used {full}"] = kept
    return f"@{full}", texts


def _trig_function(name: str, type_: str, width: int, own: str, attributes: str) -> str:
    """sin or cos of `width` numbers; those of f32 are computed in f64 and rounded."""
    b = Lanes(F64, width)
    code, outer = b.code, Lanes(FORMATS[type_], width).type
    code.begin("start")
    x = "%x" if type_ == "double" else code.let(f"fpext {outer} %x to {b.type}")
    large = b.test("ogt", b.abs(x), TRIG_LIMIT)
    fast = _trig(b, x, TRIG[name])
    if width > 1:
        large = code.let(f"call i1 @llvm.vector.reduce.or.v{width}i1(<{width} x i1> {large})", "c")
    code.branch(large, "slow", "end")
    code.begin("slow")
    if width == 1:
        slow, last = code.let(f"call double @{name}(double {x})"), "slow"
        code.jump("end")
    else:
        code.jump("lane")
        code.begin("lane")
        lane, done = code.phi("i64"), code.phi(b.type)
        one = code.let(f"call double @{name}(double {code.let(f'extractelement {b.type} {x}, i64 {lane.name}')})")
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
    head = f"define internal {outer} @{own}({outer} %x) {attributes} {{"
    return "\n".join([head, *code.lines, f"  ret {outer} {found}", "}"])
