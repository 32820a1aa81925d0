"""The start of a later process: what is known from an earlier one is not made again, and nothing else is taken for known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.api import origin
from upl_mlir.api.programs import Compiled
from upl_mlir.engines.native import engine, whole

TEXT = """program squares
param n >= 1
const K = 3
input X<i> in 0<=i<n { -> S.x }
output Y
node S<i> in 0<=i<n { in x; K*x*x -> T.s }
node T { in @(+) s[n]; -> Y }
"""
X = np.arange(1.0, 6.0)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and nothing in memory."""
    monkeypatch.setenv("UPL_CACHE_DIR", str(tmp_path / "cache"))
    _forget(monkeypatch)
    return tmp_path / "cache"


def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "_in_memory", {})


def _gradient(text: str = TEXT, **constants: Any) -> upl.Program:
    return upl.grad(upl.load(text, **constants), "Y", "X")


def _first(text: str = TEXT, x: Any = X, factor: float = 3.0, **constants: Any) -> Compiled:
    f = upl.compile(_gradient(text, **constants), engine="native")
    _right(f, x, factor)
    return f


def _right(f: Compiled, x: Any, factor: float = 3.0) -> None:
    out = f(X=x)
    np.testing.assert_allclose(out["Y"], factor * (x * x).sum())
    np.testing.assert_allclose(out["d_X"], 2 * factor * x)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were read, in order."""
    from upl_mlir.frontend.upl_text import load

    found, real = list[str](), load.load_text

    def seen(text: str, *args: Any) -> Any:
        found.append(text)
        return real(text, *args)

    monkeypatch.setattr(load, "load_text", seen)
    return found


def test_a_later_process_makes_nothing(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = _first()
    assert (len(made), first.stats["cached"]) == (1, False)
    _forget(monkeypatch)
    again = _first()
    assert len(made) == 1, "neither read nor derived"
    assert again.stats["cached"]
    assert len(made) == 2, "the figures ask for the program"
    assert again.stats["firings"] == first.stats["firings"] and again.stats["tokens"] == first.stats["tokens"]


def test_other_sizes_ask_for_the_program(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _first()
    _forget(monkeypatch)
    f = upl.compile(_gradient(), engine="native")
    _right(f, X[:3])
    assert len(made) == 2
    _right(f, X)
    _right(f, X.tolist() and np.asfortranarray(X)[::-1])  # not in place
    with pytest.raises(upl.UplError, match="UPL1502"):
        f(X=X, Z=X)
    assert len(made) == 2


def test_what_is_known_can_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    p = _gradient()
    _first()
    q = _gradient()
    assert p.origin and q.origin and p.origin.key == q.origin.key
    assert (q.name, q.params, list(q.inputs), list(q.outputs)) == (p.name, p.params, list(p.inputs), list(p.outputs))
    assert q.inputs["X"].fields == ("i",) and q.outputs["d_X"].shape(n=4) == (4,)
    assert str(q.infer_domains()) == str(p.infer_domains())
    assert q.to_mlir() == p.to_mlir()
    assert str(q.check()) == str(p.check())
    np.testing.assert_allclose(upl.compile(_gradient())(X=X)["d_X"], 6 * X)  # the interpreter needs it all
    assert str(q.clone()) == str(p)


def test_options_and_texts_are_told_apart() -> None:
    _first()
    _first(TEXT.replace("K*x*x", "2*K*x*x"), factor=6.0)
    _first(K=5, factor=5.0)
    f = upl.compile(_gradient(), engine="native", real="f32")
    assert f(X=X.astype(np.float32))["d_X"].dtype == np.float32
    assert f(X=X)["Y"].dtype == np.float32
    _right(upl.compile(_gradient(), engine="native", gather="ordered", n=5), X)
    with pytest.raises(upl.UplError, match="UPL1503"):
        upl.compile(_gradient(), engine="native", n=4)(X=X)
    assert "d_X" not in upl.compile(upl.load(TEXT), engine="native")(X=X)


def test_who_has_the_module_may_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _first()
    p = upl.load(TEXT)
    q = upl.load(TEXT, K=4)
    assert p.origin is not None and q.origin is not None
    body, other = p.op.body.block, q.op.body.block
    assert p.origin is None
    constant = next(op for op in body.ops if op.properties.get("sym_name") and "K" in str(op.properties["sym_name"]))
    changed = next(op for op in other.ops if op.properties.get("sym_name") and "K" in str(op.properties["sym_name"]))
    constant.properties["value"] = changed.properties["value"]
    _right(upl.compile(upl.grad(p, "Y", "X"), engine="native"), X, 4.0)
    _right(upl.compile(_gradient(), engine="native"), X, 3.0)


def test_what_is_wrong_is_never_known() -> None:
    for _ in range(2):
        with pytest.raises(upl.UplError, match="UPL1002"):
            upl.load(TEXT + "node")
        with pytest.raises(upl.UplError, match="UPL14"):
            upl.grad(upl.load(TEXT), "Y", "Z")
        with pytest.raises(upl.UplError, match="UPL1406"):
            upl.grad(_gradient(), "d_X", "X")
        with pytest.raises(upl.UplError, match=r"<string>:7:.*error\[UPL13"):
            upl.compile(upl.load(TEXT.replace("s[n]", "s[n+1]")), engine="native")(X=X)
        _first()


def test_another_version_of_the_package_begins_anew(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _first()
    monkeypatch.setattr(origin, "package_key", lambda: "another")
    _first()
    assert len(made) == 2


def test_values_that_are_not_plain_have_no_key() -> None:
    assert upl.load(TEXT, K=3).origin is not None
    assert origin.key_of_text("text", "", "", {"N": [1, 2]}) is not None
    assert origin.key_of_text("text", "", "", {"N": np.arange(2)}) is None
    assert origin.key_of_text("text", "", "", {"K": 1}) != origin.key_of_text("text", "", "", {"K": 1.0})
    assert origin.key_of_text("text", "", "", {"K": 1}) != origin.key_of_text("text", "", "", {"K": True})


@pytest.mark.parametrize("suffix", ["program", "native", "call", "json"])
@pytest.mark.parametrize("damage", ["cut", "empty", "foreign"])
def test_damaged_files_are_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, damage: str) -> None:
    _first()
    files = list(folder.glob(f"*.{suffix}"))
    assert files
    for file in files:
        data = file.read_bytes()
        file.unlink()
        file.write_bytes({"cut": data[:-3], "empty": b"", "foreign": b'{"name": 1}'}[damage])
        _forget(monkeypatch)
        _first()
        assert file.read_bytes() == data


def test_sizes_beyond_memory_are_refused_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _first()
    _forget(monkeypatch)
    monkeypatch.setattr(engine, "_memory", lambda: 16)
    with pytest.raises(upl.UplError, match="UPL1827"):
        upl.compile(_gradient(), engine="native")(X=X)


def test_few_kinds_of_calls_are_kept(folder: Path) -> None:
    f = upl.compile(_gradient(), engine="native")
    for n in range(1, engine.MAX_KEPT + 9):
        _right(f, np.ones(n))
    assert len(list(folder.glob("*.call"))) == engine.MAX_KEPT


def test_in_a_process_of_its_own(folder: Path) -> None:
    program = (
        "import sys, numpy as np, upl_mlir as upl\n"
        "f = upl.compile(upl.grad(upl.load(sys.argv[1]), 'Y', 'X'), engine='native')\n"
        "assert np.allclose(f(X=np.arange(3.0))['d_X'], 6 * np.arange(3.0))\n"
        "print(f.program._module is None)\n"
    )
    for expected in ("False", "True"):
        done = subprocess.run([sys.executable, "-c", program, TEXT], capture_output=True, text=True, check=False)
        assert done.stdout.strip() == expected, done.stderr
