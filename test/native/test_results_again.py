"""Small results that nobody has any more become results again: nobody who has one may see it change."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import upl_mlir as upl
from upl_mlir.engines.native import call

TEXT = """program twice
param n >= 1
input X<i> in 0<=i<n { 2.0*X -> R; -X -> S<i> }
output R<i>
output S<i>
"""
Run = Callable[[float], dict[str, NDArray[Any]]]


@pytest.fixture
def run() -> Run:
    """The program on three equal numbers, at least once called before."""
    if call.extension().module is None:
        pytest.skip("the extension cannot be built here: " + call.extension().why)
    f = upl.compile(upl.load(TEXT), engine="native")
    f(X=np.zeros(3))
    return lambda x: f(X=np.full(3, x))


def place(array: NDArray[Any]) -> int:
    return array.ctypes.data


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="counts of references are not exact")
def test_forgotten_results_come_again(run: Run) -> None:
    places: set[int] = set()
    for i in range(20):
        out = run(float(i))  # the one before is still there while this one is made
        places.add(place(out["R"]))
        np.testing.assert_array_equal(out["R"], [2.0 * i] * 3)
        np.testing.assert_array_equal(out["S"], [-float(i)] * 3)
    assert len(places) == 2


def test_what_somebody_has_stays(run: Run) -> None:
    kept: list[tuple[float, Any]] = []
    memory: Any = memoryview
    ways: tuple[Callable[[Any], Any], ...] = (lambda a: a, lambda a: a[1:], memory, lambda a: a.reshape(3, 1))
    for i in range(12):
        kept.append((2.0 * i, ways[i % 4](run(float(i))["R"])))
    for value, what in kept:
        assert (np.asarray(what) == value).all()


def test_what_a_weak_reference_finds_stays(run: Run) -> None:
    found = weakref.ref(run(5.0)["R"])
    for _ in range(4):
        run(6.0)
    left = found()
    assert left is None or (left == 10.0).all()


def read_only(a: Any) -> None:
    a.setflags(write=False)


def other_shape(a: Any) -> None:
    a.shape = (3, 1)


def other_type(a: Any) -> None:
    a.dtype = np.int64


def longer(a: Any) -> None:
    a.resize(5, refcheck=False)


@pytest.mark.parametrize("spoil", [read_only, other_shape, other_type, longer])
def test_what_was_changed_does_not_come_again(run: Run, spoil: Callable[[NDArray[Any]], None]) -> None:
    for i in range(4):
        out = run(float(i))["R"]
        assert (out.shape, out.dtype, out.flags.carray) == ((3,), np.float64, True)
        np.testing.assert_array_equal(out, [2.0 * i] * 3)
        spoil(out)
