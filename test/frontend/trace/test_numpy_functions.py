"""numpy's functions in traced functions: values against numpy, derivatives against JAX, on the interpreter and natively."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

jax: Any = pytest.importorskip("jax")
jnp: Any = importlib.import_module("jax.numpy")
jax.config.update("jax_enable_x64", True)
sys.path.insert(0, str(Path(__file__).parent))
REAL, OTHER = (getattr(importlib.import_module("numpy_functions"), name) for name in ("REAL", "OTHER"))
sys.path.pop(0)
X = np.random.default_rng(0).normal(size=(3, 4))


def near(name: str, got: Any, want: Any, part: float) -> None:
    """Up to a part of the greatest element; what is no number, and the infinite, in the same places."""
    got, want = np.asarray(got, float), np.asarray(want, float)
    assert got.shape == want.shape, name
    most = np.max(np.abs(want[np.isfinite(want)]), initial=1e-3)
    np.testing.assert_allclose(got, want, rtol=0, atol=part * most, err_msg=name)


def all_of(cases: Any, module: Any) -> Any:
    """The functions of a group as one of all their arguments."""

    def run(*args: Any) -> Any:
        return [f(module, *given) for (f, _), given in zip(cases.values(), args, strict=True)]

    return run


@pytest.mark.parametrize("engine", ["interp", "native"], indirect=True)
@pytest.mark.parametrize("group", [*REAL, *(f"other {name}" for name in OTHER)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning:numpy")
def test_values(group: str, engine: str) -> None:
    cases = REAL[group] if group in REAL else OTHER[group.removeprefix("other ")]
    args = [given for _, given in cases.values()]
    for name, got, want in zip(cases, upl.function(all_of(cases, np))(*args), all_of(cases, np)(*args), strict=True):
        near(name, got, want, 3e-14)


def of_sines(group: str, module: Any) -> Any:
    """The sum of the sines of all elements that the functions of a group give."""
    return lambda *args: sum(module.sum(module.sin(y)) for y in all_of(REAL[group], module)(*args))


@cache
def derivatives_in_jax(group: str) -> Any:
    """Compiled as a whole: by itself JAX compiles each operation, which takes longer."""
    args = [tuple(map(jnp.asarray, given)) for _, given in REAL[group].values()]
    return jax.jit(jax.grad(of_sines(group, jnp), tuple(range(len(args)))))(*args)


@pytest.mark.parametrize("engine", ["interp", "native"], indirect=True)
@pytest.mark.parametrize("group", REAL)
def test_derivatives(group: str, engine: str) -> None:
    args = [given for _, given in REAL[group].values()]
    got = upl.grad(of_sines(group, np), tuple(range(len(args))))(*args)
    for name, found, wanted in zip(REAL[group], got, derivatives_in_jax(group), strict=True):
        for a, b in zip(found, wanted, strict=True):
            near(name, a, b, 1e-12)


@pytest.mark.parametrize("matrix", [np.eye(3), np.triu(np.arange(9.0).reshape(3, 3) + 1), np.arange(1.0, 7).reshape(2, 3)])
def test_derivatives_of_qr_where_nothing_turns(matrix: Any) -> None:
    """Of triangular matrices, too, and of wide ones; by differences, as JAX has none of the latter."""
    weights = np.random.default_rng(2).normal(size=matrix.shape)

    def f(module: Any, a: Any) -> Any:
        q, r = module.linalg.qr(a)
        return module.sum(module.sin(r) * weights) + module.sum(q * q * weights[: len(q), : len(q)])

    got = upl.grad(lambda a: f(np, a))(matrix)
    if matrix.shape == (3, 3):
        near("qr", got, jax.grad(lambda a: f(jnp, a))(jnp.asarray(matrix)), 1e-12)
        return
    steps = 1e-6 * np.eye(matrix.size).reshape(-1, *matrix.shape)
    want = [(f(np, matrix + h) - f(np, matrix - h)) / 2e-6 for h in steps]
    near("qr", got, np.reshape(want, matrix.shape), 1e-7)


def test_qr_without_full_rank_has_no_derivative() -> None:
    """Its value is a value; its derivative is not a number, rather than a wrong one."""
    a = np.outer([1.0, 2.0, 3.0], [1.0, 0.0])
    q, r = upl.function(np.linalg.qr)(a)
    near("qr", q @ r, a, 1e-15)
    assert not np.isfinite(upl.grad(lambda a: np.sum(np.linalg.qr(a)[1]))(a)).all()


def test_determinants_of_singular_matrices() -> None:
    """The derivative is right, or not a number: where the last pivot is 0, and where an earlier one is."""
    a = np.arange(16.0).reshape(4, 4) ** 2
    a[3] = a[:3].sum(axis=0)
    near("det", upl.grad(np.linalg.det)(a), jax.grad(jnp.linalg.det)(jnp.asarray(a)), 1e-11)
    assert not np.isfinite(upl.grad(np.linalg.det)(a * np.array([1.0, 0.0, 1.0, 1.0]))).all()


def test_second_derivatives_of_a_median() -> None:
    x = np.random.default_rng(3).normal(size=(5,))
    got = upl.hessian(lambda x: np.median(x) ** 3 + np.sum(np.sort(x)[:2] ** 3))(x)
    near("median", got, jax.hessian(lambda x: jnp.median(x) ** 3 + jnp.sum(jnp.sort(x)[:2] ** 3))(jnp.asarray(x)), 1e-13)


def test_sorting_in_loops() -> None:
    """In a loop that is traced once, and in one that data end."""

    def f(x: Any) -> Any:
        for k in upl.range(1, 4):
            x[:] = np.sort(np.cos(x * k))
        return x

    def g(x: Any) -> Any:
        return upl.while_loop(lambda s: np.sum(s) < 40, lambda s: np.sort(s)[::-1] * 2, x)

    x = np.array([0.3, 2.0, -1.0, 1.5])
    for h in (f, g):
        np.testing.assert_array_equal(upl.function(h)(x), h(x.copy()))


@pytest.mark.parametrize("engine", ["token", "rtl"], indirect=True)
def test_sorting_on_other_engines(engine: str) -> None:
    x = np.array([[3.0, 1.0, 2.0, 1.0], [0.0, 5.0, 4.0, -1.0]])
    np.testing.assert_array_equal(upl.function(np.sort)(x), np.sort(x))
    got = upl.grad(lambda x: np.sum(np.sort(x, axis=0) * x))(x)
    np.testing.assert_array_equal(got, jax.grad(lambda x: jnp.sum(jnp.sort(x, axis=0) * x))(x))


def test_sorting_is_proved() -> None:
    program = upl.grad(lambda x: np.sum(np.sort(x) * np.argsort(x))).program(np.ones((2, 5)))
    assert program.check().ok


def test_methods() -> None:
    x = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])

    def f(x: Any) -> Any:
        y = x.copy()
        y.sort(axis=0)
        return y, x.argsort(), x.argmax(axis=1), x.argmin(), x.cumprod(axis=1), (x / 3).round(2)

    for got, want in zip(upl.function(f)(x), f(x), strict=True):
        near("a method", got, want, 1e-15)


def test_options_are_not_passed_over() -> None:
    """A diagonal, an order and weights along an axis were."""
    x = np.arange(16.0).reshape(4, 4)
    for f in (
        lambda x: np.trace(x, 1), lambda x: np.average(x, axis=0, weights=np.arange(4.0)),
        lambda x: np.cumsum(np.where(x > 14, np.inf, x))[:3],
    ):  # fmt: skip
        np.testing.assert_array_equal(upl.function(f)(x), f(x))
    with pytest.raises(upl.UplError, match="transpose before"):
        upl.function(lambda x: np.ravel(x, order="F"))(x)


@pytest.mark.parametrize(
    ("f", "code", "text"),
    [
        (lambda x: np.fft.rfft(x).real, "UPL1932", "numbers are real"),
        (lambda x: np.subtract.accumulate(x) + 1, "UPL1932", "upl.scan"),
        (lambda x: np.quantile(x, x[0, 0]), "UPL1932", "np.quantile(x, 0.9)"),
        (lambda x: np.quantile(x, 1.5), "UPL1931", "1.5 is not between 0 and 1"),
        (lambda x: np.linalg.norm(x, 2), "UPL1932", "np.linalg.svdvals"),
        (lambda x: np.linalg.svd(x)[1], "UPL1932", "full_matrices=False"),
        (lambda x: np.linalg.eigvalsh(x) + 1, "UPL1931", "(3, 4) is not square"),
        (lambda x: np.linalg.lstsq(x, x[0])[0], "UPL1931", "as many rows"),
        (lambda x: np.linalg.inv(x) + 1, "UPL1931", "(3, 4) is not square"),
        (lambda x: np.linalg.cholesky(x[0]), "UPL1931", "(4,) is no matrix"),
        (lambda x: np.linalg.solve(x[:, :3], x[0]), "UPL1931", "as many rows"),
        (lambda x: np.linalg.solve(np.stack([x[:, :3]] * 2), np.stack([x] * 3)), "UPL1931", "(2,) and (3,) do not"),
        (lambda x: np.linalg.qr(x, mode="raw"), "UPL1932", "mode='raw'"),
        (lambda x: np.cross(x[:, :2], x[:, 2:]), "UPL1931", "vectors of 2 and 2 elements"),
        (lambda x: np.select([x > 0, x > 1], [x]), "UPL1931", "2 conditions and 1 values"),
        (lambda x: np.piecewise(x, [x > 0, x > 1], [x]), "UPL1931", "2 conditions and 1 functions"),
        (lambda x: np.repeat(x, [1, 2], axis=0), "UPL1931", "2 numbers for 3 elements"),
        (lambda x: x.astype(int), "UPL1932", "np.floor"),
        (lambda x: np.gradient(x[0], x[1]), "UPL1932", "one distance for each axis"),
        (lambda x: np.interp(x, x[0], x[:, 0]), "UPL1931", "values of shape (3,)"),
        (lambda x: np.convolve(x, x[0]), "UPL1932", "(3, 4) and (4,)"),
    ],
)
def test_what_is_refused(f: Any, code: str, text: str) -> None:
    """With the line, and what to write instead."""
    with pytest.raises(upl.UplError) as found:
        upl.function(f)(X)
    (d,) = found.value.diagnostics
    assert d.code == code and d.help and text in str(found.value), str(found.value)
    assert d.span is not None and d.span.file == __file__


def test_suggestions_are_near_in_meaning() -> None:
    """Not in spelling: a function that is called alike does something else."""
    near = ((np.linalg.eigvals, "np.linalg.eigh"), (np.digitize, "np.searchsorted"), (np.bincount, "upl.segment_sum"))
    for f, text in near:
        with pytest.raises(upl.UplError, match=text):
            upl.function(f if f is not np.digitize else lambda x: np.digitize(x, [0.0]))(X[0] if f is np.bincount else X)
    with pytest.raises(upl.UplError) as found:
        upl.function(np.spacing)(X)
    assert "did you mean" not in str(found.value)
