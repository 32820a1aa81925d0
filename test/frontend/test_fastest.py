"""The engine that front ends choose by themselves: native code, or the interpreter with the reason; for all three."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.api import fastest as chosen
from upl_mlir.api.programs import Compiled, Program
from upl_mlir.diagnostics import error
from upl_mlir.frontend import einsum
from upl_mlir.frontend import graph as ad

A, B = np.random.default_rng(0).normal(size=(2, 3, 3))


def refused(code: str) -> Any:
    """A `compile` whose native engine refuses every program."""
    compile = chosen.compile

    def instead(p: Program, engine: Any = "interp", **options: Any) -> Compiled:
        if engine == "native":
            raise error(code, "not this one")
        return compile(p, engine, **options)

    return instead


def einsum_product() -> tuple[Any, str]:
    kernel = "C<3, 3>[i, j] = A<3, 3>[i, k] * B<3, 3>[k, j];"
    case = {"name": "f", "ins": ["A", "B"], "outs": ["C"], "data_type": "float", "kernel": kernel, "grad_to": ["A"]}
    f = chosen.fastest(einsum.gradient(json.dumps(case)))
    return f(A=A, B=B, d_C=np.ones((3, 3)))["d_A"], f.engine


def graph_product() -> tuple[Any, str]:
    a, b = ad.Variable("a"), ad.Variable("b")
    e = ad.Executor(ad.gradients(ad.matmul_op(a, b), [a]))
    (d,) = e.run({a: A, b: B})
    ((_, _, compiled),) = e._stages[0].built.values()
    return d, compiled.engine


def traced_product() -> tuple[Any, str]:
    f = upl.function(lambda a, b: np.sum(a @ b))
    d = upl.grad(f)(A, B)
    (compiled,) = f._compiled.values()
    return d, compiled.engine


FRONT_ENDS = [einsum_product, graph_product, traced_product]


@pytest.mark.parametrize("product", FRONT_ENDS)
def test_native_code(product: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        d, engine = product()
    assert engine == "native"
    np.testing.assert_allclose(d, np.ones((3, 3)) @ B.T, rtol=1e-5)


@pytest.mark.parametrize("product", FRONT_ENDS)
def test_the_interpreter_where_there_is_no_native_code(product: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "compile", refused("UPL1822"))
    with pytest.warns(RuntimeWarning, match="runs on the interpreter, because native code .* UPL1822: not this one"):
        d, engine = product()
    assert engine == "interp"
    np.testing.assert_allclose(d, np.ones((3, 3)) @ B.T, rtol=1e-5)


def test_a_program_that_is_wrong_stays_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "compile", refused("UPL1301"))
    with pytest.raises(upl.UplError, match="UPL1301"):
        graph_product()


def test_an_engine_that_is_named_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "compile", refused("UPL1822"))
    with pytest.raises(upl.UplError, match="UPL1822"):
        upl.function(np.sum, engine="native")(A)


def test_reads_that_native_code_does_not_know() -> None:
    """Whatever engine it is in the end: the result is right, without an error."""

    def f(x: Any) -> Any:
        return np.repeat(x, 3)[:4] * np.repeat(x * 2, 3)[1:9].reshape(2, 4)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        np.testing.assert_allclose(upl.function(f)(A[0]), f(A[0]), rtol=1e-15)
