"""Calls like an earlier one: what they take in place, what they leave to the long way, whose memory the results are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.api.programs import Compiled
from upl_mlir.engines.native.engine import NativeEngine

SCALED = """program scaled
param n >= 1
input X<i> in 0<=i<n { -> P.x }
input s { #n -> P.a<*> }
output Y<i>
node P<i> in 0<=i<n { in x, a; x*a -> Y }
"""


def _program() -> upl.Program:
    return upl.load("examples/matmul.upl")


def _engine(f: Compiled) -> NativeEngine:
    assert f._native is not None  # pyright: ignore[reportPrivateUsage]
    return f._native  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def product(monkeypatch: pytest.MonkeyPatch) -> tuple[Compiled, NativeEngine, list[Any]]:
    """A product of matrices, and a list of the calls that went the long way."""
    f = upl.compile(_program(), engine="native")
    engine, long = _engine(f), list[Any]()
    run = engine._run  # pyright: ignore[reportPrivateUsage]

    def seen(*args: Any) -> Any:
        long.append(args)
        return run(*args)

    monkeypatch.setattr(engine, "_run", seen)
    return f, engine, long


def _arrays(m: int, n: int, r: int, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {"A": random.standard_normal((m, n)), "B": random.standard_normal((n, r))}


def test_arrays_that_fit_are_used_in_place(product: Any) -> None:
    f, engine, long = product
    for shape in ((3, 4, 5), (3, 4, 5), (7, 2, 3), (3, 4, 5), (7, 2, 3)):  # sizes may take turns
        given = _arrays(*shape)
        np.testing.assert_allclose(f(**given)["C"], given["A"] @ given["B"], rtol=1e-13)
        assert engine.bound == dict(zip("mrn", shape, strict=True))
        assert engine.seconds > 0
    assert not long


@pytest.mark.parametrize(
    "what", ["transposed", "f32", "swapped", "strided", "list", "subclass", "unaligned", "integers"]
)
def test_other_arrays_are_converted(product: Any, what: str) -> None:
    f, _, long = product
    given = _arrays(4, 4, 4)
    expected = given["A"] @ given["B"]
    f(**given)
    a = given["A"]
    moved = np.empty(a.nbytes + 8, np.uint8)[1 : 1 + a.nbytes].view(np.float64).reshape(a.shape)
    moved[...] = a
    wide = np.empty((4, 8))
    wide[:, ::2] = a

    class Mine(np.ndarray[Any, Any]):
        pass

    other = {
        "transposed": np.asfortranarray(a), "f32": a.astype(np.float32), "swapped": a.astype(">f8"), "strided": wide[:, ::2],
        "list": a.tolist(), "subclass": a.view(Mine), "unaligned": moved, "integers": a.astype(np.int64),
    }[what]  # fmt: skip
    wanted = np.asarray(other, np.float64) @ given["B"]
    np.testing.assert_allclose(f(A=other, B=given["B"])["C"], wanted, rtol=1e-6)
    assert len(long) == 1
    np.testing.assert_allclose(f(**given)["C"], expected, rtol=1e-13)
    assert len(long) == 1


def test_wrong_arrays_are_refused_after_a_right_call(product: Any) -> None:
    f, _, _ = product
    given = _arrays(3, 4, 5)
    f(**given)
    for wrong, code in (
        ({"A": given["A"]}, "UPL1501"), ({**given, "D": given["A"]}, "UPL1502"), ({**given, "B": given["A"]}, "UPL1505"),
        ({"A": given["A"], "B": None}, "UPL15"), ({"A": given["A"], "C": given["B"]}, "UPL1502"),
    ):  # fmt: skip
        with pytest.raises(upl.UplError, match=code):
            f(**wrong)


def test_results_go_to_arrays_of_the_caller(product: Any) -> None:
    f, _, long = product
    given, c = _arrays(3, 4, 5), np.zeros((3, 5))
    f(**given)
    assert f(**given, out={"C": c})["C"] is c
    np.testing.assert_allclose(c, given["A"] @ given["B"], rtol=1e-13)
    assert not long
    fixed = c.copy()
    fixed.flags.writeable = False
    for wrong, code in (
        ({"C": np.zeros((5, 3))}, "UPL1503"), ({"C": c.astype(np.float32)}, "UPL1503"), ({"C": fixed}, "UPL1503"),
        ({"D": c}, "UPL1502"), ({"C": c, "D": c}, "UPL1502"), ({"C": c.tolist()}, "UPL1503"),
    ):  # fmt: skip
        with pytest.raises(upl.UplError, match=code):
            f(**given, out=wrong)


def test_an_input_that_is_an_output_is_copied_first(product: Any) -> None:
    f, _, long = product
    square = _arrays(6, 6, 6)
    f(**square)
    for name in "AB":
        given = {n: a.copy() for n, a in square.items()}
        assert f(**given, out={"C": given[name]})["C"] is given[name]
        np.testing.assert_allclose(given[name], square["A"] @ square["B"], rtol=1e-13)
    assert len(long) == 2
    both = np.zeros(100)
    a, c = both[:36].reshape(6, 6), both[35:71].reshape(6, 6)  # one element in common
    a[...] = square["A"]
    f(A=a, B=square["B"], out={"C": c})
    np.testing.assert_allclose(c, square["A"] @ square["B"], rtol=1e-13)
    f(A=square["A"], B=square["B"], out={"C": both[64:].reshape(6, 6)})
    assert len(long) == 3, "what only stands beside an input is no reason to copy"


def test_numbers_for_ports_without_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    p = upl.load(SCALED)
    x = np.arange(4.0)
    for real, wanted in (("f64", 0.1), ("f32", float(np.float32(0.1)))):
        f = upl.compile(p, engine="native", real=real)
        given = x.astype(real.replace("f", "float"))
        f(X=given, s=0.1)
        monkeypatch.setattr(_engine(f), "_run", None)  # not the long way
        out = f(X=given, s=0.1)
        np.testing.assert_array_equal(out["Y"], given * given.dtype.type(wanted))
        assert out["Y"].dtype == given.dtype


def test_large_results_get_the_memory_of_those_that_are_gone() -> None:
    f = upl.compile(_program(), engine="native")
    given = _arrays(200, 10, 200)
    f(**given)
    first = f(**given)["C"]
    second = f(**given)["C"]
    places = {a.ctypes.data for a in (first, second)}
    assert len(places) == 2
    kept = first.copy()
    np.testing.assert_array_equal(first, second)
    view = second[1:]
    place = second.ctypes.data
    del second
    third = f(**given)["C"]
    assert third.ctypes.data != place, "a view still shows it"
    del view
    assert f(**given)["C"].ctypes.data == place
    np.testing.assert_array_equal(first, kept)
    assert first.flags.owndata and first.base is None
    third.resize((100, 400), refcheck=False)
    np.testing.assert_array_equal(third.ravel(), kept.ravel())
    third.resize((300, 400), refcheck=False)
    assert not third[100:].any()
    other = np.empty(40_000)  # numpy's own memory is as before
    assert other.ctypes.data != place or other.flags.owndata


def test_memory_that_waits_is_bounded() -> None:
    f = upl.compile(_program(), engine="native")
    given = _arrays(1024, 2, 1024)  # 8 MiB each
    out = [f(**given)["C"] for _ in range(12)]
    expected = given["A"] @ given["B"]
    assert all(np.allclose(c, expected) for c in out)
    out.clear()
    before = _resident()
    large = _arrays(4096, 1, 4096)  # 128 MiB: more than may wait
    c = f(**large)["C"]
    assert _resident() - before > 100 << 20
    del c
    assert _resident() - before < 20 << 20, "it has gone back"


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_results_made_on_several_threads(at_once: Any) -> None:
    f = upl.compile(_program(), engine="native")

    def work(seed: int) -> None:
        given = _arrays(120, 30, 150, seed)
        expected = given["A"] @ given["B"]
        for _ in range(200):
            np.testing.assert_allclose(f(**given)["C"], expected, rtol=1e-12)

    at_once(work)
