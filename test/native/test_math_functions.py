"""Elementary functions of native code: errors in ulp against long double arithmetic, and special values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from upl_mlir.engines.interp import ieee
from upl_mlir.engines.native.backend import Kernel, compile_module
from upl_mlir.engines.native.llvm.vector_math import BOUND, BOUND_WITHOUT_FMA, TRIG_LIMIT
from upl_mlir.engines.native.target import Machine, host

Long = np.longdouble
Floats = NDArray[Any]
OPERATIONS = {
    "sigmoid": "%r = upl.sigmoid %a : {0}",
    **{n: f"%r = math.{n} %a : {{0}}" for n in ("exp", "expm1", "log", "log1p", "tanh", "erf", "sin", "cos")},
}
FORMATS = {"f64": np.float64, "f32": np.float32}

needs_long_double = pytest.mark.skipif(
    np.finfo(Long).nmant < 63, reason="errors in ulp are measured against 80-bit arithmetic, which this machine lacks"
)


def _sigmoid(x: Floats) -> Floats:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, Long(1) / (1 + e), e / (1 + e))


def _erf(x: Floats) -> Floats:
    """The series of x up to 2 (Abramowitz and Stegun 7.1.6), then the continued fraction of erfc (7.1.14)."""
    size = np.abs(x)
    term = total = np.minimum(size, Long(2)) * 2 / np.sqrt(Long("3.14159265358979323846264338327950288"))
    square = 2 * np.minimum(size, Long(2)) ** 2
    for n in range(60):
        term = term * square / (2 * n + 3)
        total = total + term
    near = total * np.exp(-np.minimum(size, Long(2)) ** 2)
    far = np.maximum(size, Long(2))
    rest = far
    for n in range(120, 0, -1):
        rest = far + (Long(n) / 2) / rest
    tail = np.exp(-far * far) / rest / np.sqrt(Long("3.14159265358979323846264338327950288"))
    return np.copysign(np.where(size < 2, near, 1 - tail), x)


REFERENCE: dict[str, Callable[[Floats], Floats]] = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "tanh": np.tanh, "sin": np.sin, "cos": np.cos,
    "sigmoid": _sigmoid, "erf": _erf,
}  # fmt: skip


def _samples(name: str, dtype: type) -> Floats:
    """Dense samples where the function changes, and of all magnitudes."""
    rng = np.random.default_rng(7)
    count = 100_000
    limit = np.log(float(np.finfo(dtype).max))
    magnitudes = 10 ** rng.uniform(np.log10(float(np.finfo(dtype).smallest_subnormal)) + 1, limit / math.log(10), count)
    signed = magnitudes * rng.choice([-1, 1], count)
    match name:
        case "exp" | "expm1" | "sigmoid":
            parts = [rng.uniform(-1.06 * limit, 1.01 * limit, count), rng.uniform(-2, 2, count), signed]
        case "log":
            parts = [rng.uniform(0, 3, count), 1 + rng.uniform(-1e-3, 1e-3, count), magnitudes]
        case "log1p":
            parts = [rng.uniform(-1, 3, count), rng.uniform(-1e-3, 1e-3, count), -1 + magnitudes[magnitudes < 1], signed]
            parts = [p[p > -1] for p in parts]
        case "erf":
            parts = [rng.uniform(-7, 7, count), rng.uniform(-1.2, 1.2, count), signed]
        case "tanh":
            parts = [rng.uniform(-25, 25, count), rng.uniform(-1, 1, count), signed]
        case _:
            near_zeros = np.round(rng.uniform(-1e6, 1e6, count)) * (np.pi / 2)
            parts = [rng.uniform(-10, 10, count), rng.uniform(-TRIG_LIMIT, TRIG_LIMIT, count), near_zeros, signed]
            parts = [p[np.abs(p) < TRIG_LIMIT] for p in parts]
    with np.errstate(over="ignore"):
        return np.concatenate(parts).astype(dtype)


def _errors(found: Floats, exact: Floats, dtype: type) -> Floats:
    """Distance from the exact values in units in the last place; infinite where one overflows and the other does not."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = exact.astype(dtype)
        distance = np.abs(found.astype(Long) - exact) / np.spacing(np.abs(rounded))
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    return np.where(
        same & ~np.isfinite(rounded), 0, np.where(np.isfinite(rounded) & np.isfinite(found), distance, np.inf)
    )


def _run(kernel: Kernel, modules: Any, *arrays: Floats) -> Floats:
    out = np.empty_like(arrays[0])
    kernel.run([*arrays, out, modules.status()])
    return out


@needs_long_double
@pytest.mark.parametrize("type_", FORMATS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_errors_stay_within_the_stated_bounds(modules: Any, machine: Machine, name: str, type_: str) -> None:
    dtype = FORMATS[type_]
    kernel = compile_module(modules.elementwise(OPERATIONS[name].format(type_), type_), machine=machine)
    x = _samples(name, dtype)
    with np.errstate(all="ignore"):
        errors = _errors(_run(kernel, modules, x), REFERENCE[name](x.astype(Long)), dtype)
    worst = int(np.argmax(errors))
    fused = "+fma" in machine.features.split(",")
    bound = BOUND[name] if fused else BOUND_WITHOUT_FMA.get(name, BOUND[name])
    assert errors[worst] <= bound, f"{name}({x[worst]!r}) is wrong by {errors[worst]:.2f} ulp"
    assert errors.max() > 0.4, "an error below half an ulp everywhere: this measures nothing"


@pytest.mark.parametrize("type_", FORMATS)
@pytest.mark.parametrize("name", [*OPERATIONS, "tan", "atan", "exp2", "cbrt", "asin", "acosh"])
def test_special_values_are_those_of_the_interpreter(modules: Any, machine: Machine, name: str, type_: str) -> None:
    dtype = FORMATS[type_]
    info = np.finfo(dtype)
    x = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, info.max, -info.max, info.tiny, -info.tiny,
         info.smallest_subnormal, -info.smallest_subnormal, 1e30, -1e30, 88.0, -88.0, 100.0, -104.0, 709.5, -745.0, 750.0,
         -750.0, 3e-320],
        dtype,
    )  # fmt: skip
    x = np.concatenate([x] * 3)  # longer than any vector, with a rest
    operation = OPERATIONS.get(name, f"%r = math.{name} %a : {{0}}").format(type_)
    found = _run(compile_module(modules.elementwise(operation, type_), machine=machine), modules, x)
    reference = ieee.FUNCTIONS[name]
    with np.errstate(all="ignore"):
        expected = np.array([reference(float(v)) for v in x]).astype(dtype)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    numbers = ~np.isnan(expected)
    np.testing.assert_array_max_ulp(found[numbers], expected[numbers], maxulp=3, dtype=dtype)
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))
    exact = ~np.isfinite(expected) | (expected == 0)
    np.testing.assert_array_equal(found[exact], expected[exact])


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_large_arguments_have_the_values_of_libm(modules: Any, machine: Machine, name: str) -> None:
    rng = np.random.default_rng(3)
    large = 10 ** rng.uniform(6.3, 308, 1000) * rng.choice([-1, 1], 1000)
    hard = np.array([6381956970095103.0 * 2.0**797, 5.319372648326541e255])
    x = np.concatenate([large, hard])
    x[::7] = rng.uniform(-5, 5, len(x[::7]))  # both sorts in one vector
    found = _run(compile_module(modules.elementwise(OPERATIONS[name].format("f64")), machine=machine), modules, x)
    expected = np.array([getattr(math, name)(v) for v in x])
    is_large = np.abs(x) > TRIG_LIMIT
    np.testing.assert_array_equal(found[is_large], expected[is_large])
    np.testing.assert_array_max_ulp(found[~is_large], expected[~is_large], maxulp=2)


@pytest.mark.parametrize(("name", "reference"), [("powf", ieee.power), ("atan2", ieee.FUNCTIONS["atan2"])])
def test_functions_of_two_arguments(modules: Any, name: str, reference: Callable[[float, float], float]) -> None:
    values = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -3.0, 1e300, -1e300, 1e-300, np.inf, -np.inf, np.nan, 3.7]
    a, b = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(values, values))
    found = _run(compile_module(modules.elementwise(f"%r = math.{name} %a, %b : f64", arity=2)), modules, a, b)
    expected = np.array([reference(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.signbit(found[expected == 0]), np.signbit(expected[expected == 0]))
    numbers = ~np.isnan(expected)
    np.testing.assert_array_max_ulp(found[numbers], expected[numbers], maxulp=2)


@needs_long_double
@pytest.mark.parametrize("type_", FORMATS)
def test_errors_of_powers(modules: Any, machine: Machine, type_: str) -> None:
    """Of moderate powers; and of those with logarithms up to the greatest: of all bases, of those near 1, and of those with
    significands at the ends."""
    rng, dtype = np.random.default_rng(7), FORMATS[type_]
    limit, n = np.log(float(np.finfo(dtype).max)), 100_000
    x = np.concatenate([np.exp(rng.uniform(-3, 3, n)), np.exp(rng.uniform(-limit, limit, n)) / 1.1,
                        1 + rng.uniform(-1e-3, 1e-3, n), rng.uniform(1.39, 1.43, n)]).astype(dtype)  # fmt: skip
    with np.errstate(all="ignore"):
        y = np.concatenate([rng.uniform(-5, 5, n), *rng.uniform(-limit, limit, (3, n)) / np.log(x[n:].reshape(3, n))])
        y = np.where(np.isfinite(y), y, 1.0).astype(dtype)
        exact = np.power(x.astype(Long), y.astype(Long))
        found = _run(compile_module(modules.elementwise(f"%r = math.powf %a, %b : {type_}", type_, 2), machine=machine),
                     modules, x, y)  # fmt: skip
        errors = _errors(found, exact, dtype)
    worst = int(np.argmax(errors))
    assert errors[worst] <= BOUND["pow"], f"{x[worst]!r}**{y[worst]!r} is wrong by {errors[worst]:.2f} ulp"
    assert errors.max() > 0.4


def test_whole_powers_are_exact(modules: Any) -> None:
    """As libm's are: 10**3 is 1000; and one that libm is asked for changes none beside it."""
    x, y = (v.ravel() for v in np.meshgrid(np.arange(1.0, 40), np.arange(10.0)))
    kernel = compile_module(modules.elementwise("%r = math.powf %a, %b : f64", arity=2))
    exact = np.array([float(int(a) ** int(b)) for a, b in zip(x, y, strict=True)])
    small = exact < 2**53
    np.testing.assert_array_equal(_run(kernel, modules, x, y)[small], exact[small])
    x[::7] = -x[::7]
    np.testing.assert_array_equal(np.abs(_run(kernel, modules, x, y))[small], exact[small])


def test_powers_in_vectors(modules: Any) -> None:
    """Also with one exponent for all, which LLVM would like to write into the function."""
    if host().vector_bytes < 32:
        pytest.skip("only x86-64 with AVX names its vector registers so")
    register = "zmm" if host().vector_bytes == 64 else "ymm"
    for text in ("%r = math.powf %a, %a : f64", "%e = arith.constant 2.3 : f64\n %r = math.powf %a, %e : f64"):
        assert compile_module(modules.elementwise(text)).asm.count(register) > 20


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 4.0, -1.0, -2.0, 0.5, 2.5, -3.0])
def test_constant_exponents(modules: Any, exponent: float) -> None:
    operation = f"""%s = arith.constant {exponent + 1} : f64
    %one = arith.constant 1.0 : f64
    %e = arith.subf %s, %one : f64
    %r = math.powf %a, %e : f64"""
    kernel = compile_module(modules.elementwise(operation))
    assert ("@pow" in kernel.ir) == (exponent in (2.5, -3.0))
    x = np.concatenate([np.linspace(-3, 3, 1001), [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e160, 1e-160, 5e-324, 1e300]])
    found = _run(kernel, modules, x)
    expected = np.array([ieee.power(v, exponent) for v in x.tolist()])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    numbers = ~np.isnan(found)
    np.testing.assert_array_max_ulp(found[numbers], expected[numbers], maxulp=2)
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))


@pytest.mark.parametrize("name", OPERATIONS)
def test_loops_over_functions_are_vectorised(modules: Any, name: str) -> None:
    if host().vector_bytes < 32:
        pytest.skip("only x86-64 with AVX names its vector registers so")
    kernel = compile_module(modules.elementwise(OPERATIONS[name].format("f64")))
    register = "zmm" if host().vector_bytes == 64 else "ymm"
    assert kernel.asm.count(register) > 20
