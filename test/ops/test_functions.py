"""The registry of elementary functions: each row on every engine, against numpy; and what rows and engines leave out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

import upl_mlir as upl
from upl_mlir.engines.native.llvm import vector_math
from upl_mlir.engines.native.llvm.vector_loops import LANE_ROWS
from upl_mlir.hw.assemble import OPERATIONS
from upl_mlir.ops import FUNCTIONS, SPOKEN, Function

EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 3e38, 100.0, -100.0, -0.9999999]
rng = np.random.default_rng(5)
SAMPLES = np.concatenate([EDGES, rng.uniform(-4, 4, 60), 10.0 ** rng.uniform(-12, 4, 60)]).astype(np.float32).astype(float)
PAIRS = (np.tile(SAMPLES, 2), np.concatenate([SAMPLES, SAMPLES[::-1]]))
BITS = [("interp", {}), ("token", {}), ("native", {"gather": "ordered"})]
"""Engines that call C's library as the reference does."""
CLOSE: list[tuple[str, dict[str, Any], float]] = [("native", {}, 4e-16), ("rtl", {}, 4e-7)]
"""Engines with functions of their own: the relative error that is theirs at most (docs/native.md, docs/machine_core.md)."""


def program(f: Function) -> str:
    """The function of every element of X, or of X and Y."""
    more = "input Y<n> in 0<=n<N { -> F.y }\n" if f.arity == 2 else ""
    args = "x, y" if f.arity == 2 else "x"
    return (
        f"program p\nparam N >= 1\ninput X<n> in 0<=n<N {{ -> F.x }}\n{more}output R<n>\n"
        f"node F<n> {{ in {args}; {f.name}({args}) -> R }}\n"
    )


def given(f: Function, engine: str) -> dict[str, Any]:
    """The samples; the machine is f32, with sin, cos, tan of moderate arguments."""
    x, y = PAIRS if f.arity == 2 else (SAMPLES, None)
    if f.name in ("sin", "cos", "tan") and engine not in ("interp", "token", "native"):
        x = x[~(np.abs(x) > 1e5)]
    out = {"X": x} if y is None else {"X": x, "Y": y}
    return out if engine in ("interp", "token", "native") else {n: v.astype(np.float32) for n, v in out.items()}


def numpys(f: Function, arrays: dict[str, Any]) -> Any:
    """What numpy or scipy computes, in double precision."""
    with np.errstate(all="ignore"):
        ufunc = getattr(np, f.ufuncs[0], None) or getattr(scipy.special, f.ufuncs[0])
        return ufunc(*(a.astype(float) for a in arrays.values()))


@pytest.mark.parametrize("f", SPOKEN.values(), ids=lambda f: f.name)
def test_a_function_on_every_engine(f: Function) -> None:
    p = upl.load(program(f))
    reference = upl.compile(p, engine="reference")(**given(f, "interp"))["R"]
    np.testing.assert_allclose(reference, numpys(f, given(f, "interp")), rtol=1e-15, atol=1e-320)
    for engine, options in BITS:
        found = upl.compile(p, engine=engine, **options)(**given(f, engine))["R"]
        np.testing.assert_array_equal(found, reference, err_msg=engine)
        np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(reference[reference == 0]), err_msg=engine)
    for engine, options, error in CLOSE:
        arrays = given(f, engine)
        found = upl.compile(p, engine=engine, **options)(**arrays)["R"]
        with np.errstate(over="ignore"):
            wanted = numpys(f, arrays).astype(found.dtype)
        np.testing.assert_allclose(found, wanted, rtol=error, atol=1e-44, err_msg=engine)
        zeros = wanted == 0
        np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(wanted[zeros]), err_msg=engine)


@pytest.mark.parametrize("f", SPOKEN.values(), ids=lambda f: f.name)
def test_a_function_in_text_and_as_numpys(f: Function) -> None:
    assert f"{f.name}(x" in str(upl.load(program(f)))
    for ufunc in f.ufuncs:
        call = getattr(np, ufunc, None) or getattr(scipy.special, ufunc)
        args = [np.array([0.3, 0.7])] * f.arity
        traced = upl.function(lambda *x, call=call: call(*x))
        np.testing.assert_allclose(traced(*args), call(*args), rtol=1e-15)


@pytest.mark.parametrize("f", SPOKEN.values(), ids=lambda f: f.name)
def test_a_constant_has_the_value_of_the_reference(f: Function) -> None:
    args = ", ".join(["0.3", "0.7"][: f.arity])
    p = upl.load(f"program p\nconst c = {f.name}({args})\ninput a {{ -> F.a }}\noutput R\nnode F {{ in a; a*c -> R }}\n")
    assert upl.compile(p)(a=1.0)["R"] == f.compute(*[0.3, 0.7][: f.arity])


def test_what_rows_leave_out() -> None:
    assert {f.name for f in FUNCTIONS if not f.partials} == {f.name for f in FUNCTIONS if not f.spoken}
    assert all(len(f.partials) == f.arity and f.ufuncs for f in SPOKEN.values())
    silent = {"exp2", "log2", "log10", "cbrt", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"}
    assert {f.name for f in FUNCTIONS} - SPOKEN.keys() == silent


def test_what_engines_do_themselves() -> None:
    """Native code calls C's library but for nine functions; the machine has microcode for all but two."""
    own = {"exp", "expm1", "log", "log1p", "tanh", "sigmoid", "erf", "sin", "cos"}
    assert vector_math.INLINE.keys() | vector_math.TRIG.keys() == own
    assert {f.name for f in FUNCTIONS if f.op in LANE_ROWS} == {"sqrt", *vector_math.INLINE}
    micro = {f.name for f in FUNCTIONS if f.op in OPERATIONS} | {"sigmoid"}  # ttm has an operation of its own for it
    assert {f.name for f in SPOKEN.values() if f.machine} == SPOKEN.keys() - micro == {"log1p", "expm1"}


def test_the_language_page_lists_the_functions() -> None:
    from pathlib import Path

    text = (Path(__file__).resolve().parents[2] / "docs/language.md").read_text(encoding="utf-8")
    calls = text.partition("calls `")[2].partition("`")[0].split()
    assert set(calls) == {"min", "max", "abs", "floor", *SPOKEN}
