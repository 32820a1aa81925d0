"""Operations of small types against NumPy's float16, and against rationals."""

import math
from fractions import Fraction

import numpy as np
import pytest
from small.pointwise import pointwise
from xdsl.dialects import arith
from xdsl.dialects import math as mlir_math

import upl_mlir as upl
from upl_mlir.engines.reference.small import exactly, nearest
from upl_mlir.numbers.formats import BF16, F16, FixedFormat, FloatFormat, Format, small_format
from upl_mlir.numbers.rounding import arithmetic

FIXED = ("q1.1", "q2.0", "q8.8", "q1.17", "q4.14", "q6.20", "q13.14", "q16.16", "q2.30", "q1.31", "q32.0")


def numbers(f: Format, count: int, seed: int) -> list[float]:
    """Numbers of a type: the extreme ones, powers of two and their neighbours, others at random over all exponents."""
    rng = np.random.default_rng(seed)
    if isinstance(f, FixedFormat):
        steps = [f.least_step, f.least_step + 1, -1, 0, 1, f.greatest_step - 1, f.greatest_step]
        steps += [s * (1 << k) + d for k in range(f.bits - 1) for s in (1, -1) for d in (-1, 0, 1)]
        widths = rng.integers(1, f.bits, count)
        steps += [int(rng.integers(-(1 << w), 1 << w)) for w in widths]
        return [s / f.scale for s in steps if f.least_step <= s <= f.greatest_step]
    low, high = f.least_place, f.greatest_exponent
    found = [0.0, -0.0, math.inf, -math.inf, f.greatest, -f.greatest, 2.0**low]
    for _ in range(count):
        significand = int(rng.integers(1, 1 << f.precision))
        place = int(rng.integers(low, high - f.precision + 2))
        found.append(math.ldexp(significand, place) * (1 if rng.random() < 0.5 else -1))
    return found


def same(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@pytest.mark.parametrize("name", ["f16", "bf16", *FIXED])
def test_operations_round_once(name: str) -> None:
    f = small_format(name)
    assert f is not None
    a, given = arithmetic(f), numbers(f, 120, seed=1)
    rng = np.random.default_rng(2)
    for x in given:
        if 0 < x < math.inf:
            exact = exactly(mlir_math.SqrtOp, x)
            assert exact is not None
            assert same(a.root(x), nearest(exact, f)), (x, a.root(x))
        for k in rng.integers(0, len(given), 25):
            y = given[k]
            for op, got in (
                (arith.AddfOp, a.round(x + y)), (arith.SubfOp, a.round(x - y)), (arith.MulfOp, a.product(x, y)),
                (arith.DivfOp, a.quotient(x, y)),
            ):  # fmt: skip
                exact = exactly(op, x, y)
                if exact is not None:
                    assert same(got, nearest(exact, f)), (op.name, x, y, got)


OPERATIONS = pointwise(
    "operations", "Sum Less Times By Root", "a+b -> Sum; a-b -> Less; a*b -> Times; a/b -> By; sqrt(a) -> Root\n"
)


@pytest.mark.parametrize("name", ["f16", "bf16", *FIXED])
def test_native_operations_are_the_interpreter_s(name: str) -> None:
    f = small_format(name)
    assert f is not None
    p, given = upl.load(OPERATIONS), np.array(numbers(f, 300, seed=5))
    rng = np.random.default_rng(6)
    a, b = rng.choice(given, 4000), rng.choice(given, 4000)
    wanted, got = (upl.compile(p, engine, real=name)(A=a, B=b) for engine in ("interp", "native"))
    for n, v in wanted.items():
        equal = (v.view(np.uint64) == got[n].view(np.uint64)) | (np.isnan(v) & np.isnan(got[n]))
        assert equal.all(), (n, a[~equal][:3], b[~equal][:3], v[~equal][:3], got[n][~equal][:3])


def test_halves_go_to_the_even_number() -> None:
    q = arithmetic(FixedFormat(8, 8))
    assert q.product(1.5, 2.0**-8) == 2 * 2.0**-8
    assert q.product(0.5, 2.0**-8) == 0.0
    assert q.product(2.5, 2.0**-8) == 2 * 2.0**-8
    assert q.product(-1.5, 2.0**-8) == -2 * 2.0**-8
    assert q.quotient(2.0**-8, 2.0) == 0.0
    assert arithmetic(F16).round(2049.0) == 2048.0
    assert arithmetic(F16).round(2051.0) == 2052.0
    assert arithmetic(BF16).round(1 + 2.0**-8) == 1.0
    assert arithmetic(BF16).round(1 + 3 * 2.0**-8) == 1 + 2.0**-6


def test_fixed_point_saturates_and_has_no_nan() -> None:
    q = arithmetic(FixedFormat(8, 8))
    top, least = 128 - 2.0**-8, -128.0
    assert q.round(math.inf) == q.round(1e300) == top and q.round(-math.inf) == least
    assert q.product(100.0, 100.0) == top and q.product(-100.0, 100.0) == least
    assert q.quotient(1.0, 0.0) == top and q.quotient(-1.0, 0.0) == least
    for none in (q.quotient(0.0, 0.0), q.root(-1.0), q.round(math.nan), q.round(-0.0), q.product(-1.0, 0.0)):
        assert same(none, 0.0)


@pytest.mark.parametrize("subnormal", [False, True])
def test_f16_is_that_of_numpy(subnormal: bool) -> None:
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 1 << 16, 4000).astype(np.uint16)
    if subnormal:
        bits &= 0x87FF
    x = bits.view(np.float16)
    y = np.roll(x, 1)
    a = arithmetic(F16)
    with np.errstate(all="ignore"):
        rows = [
            (x + y, lambda p, q: a.round(p + q)), (x - y, lambda p, q: a.round(p - q)), (x * y, a.product),
            (x / y, a.quotient), (np.sqrt(x), lambda p, _: a.root(p)),
        ]  # fmt: skip
    for expected, compute in rows:
        for p, q, e in zip(x.tolist(), y.tolist(), expected.tolist(), strict=True):
            got = compute(p, q)
            assert same(got, e), (p, q, got, e)


@pytest.mark.parametrize("f", [F16, BF16, FixedFormat(8, 8)])
def test_integers_are_rounded_once(f: FloatFormat | FixedFormat) -> None:
    given = [0, 1, -1, 257, 2**62 + 2**54 + 1, 2**62 + 2**54, -(2**62) - 2**54 - 1, 2**63 - 1, -(2**63)]
    for n in given:
        assert arithmetic(f).of_integer(n) == nearest(Fraction(n) if n else 0.0, f), n


INTEGERS = """program integers
param n >= 1
input A<i>: int in 0<=i<n { -> F.a }
output R<i>
node F<i> in 0<=i<n { in a: int; real(a) -> R }
"""


@pytest.mark.parametrize("name", ["f16", "bf16", "q8.8", "q31.1"])
def test_native_code_rounds_integers_once(name: str) -> None:
    f = small_format(name)
    assert f is not None
    sizes = [0, 1, 3, 5, 257, 1025, 2049, 2**24 + 1, 2**53, 2**53 + 1, 2**62 + 2**54 + 1, 2**62 + 2**54, 2**63 - 1]
    given = np.array([s * n for n in sizes for s in (1, -1)])
    found = upl.compile(upl.load(INTEGERS), "native", real=name)(A=given)["R"]
    assert found.tolist() == [nearest(Fraction(n) if n else 0.0, f) for n in given.tolist()]


@pytest.mark.parametrize("name", ["q0.8", "q20.20", "q1.0"])
def test_widths_that_there_are_not(name: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        small_format(name)


@pytest.mark.parametrize("name", ["q8", "q<8.8", "q8.8>", "f8", "qa.b", ""])
def test_names_that_there_are_not(name: str) -> None:
    assert small_format(name) is None
