"""`upl run`: arrays in and out in every form, statistics, orders, precisions, engines; nothing half-written."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from upl_mlir.engines.names import EngineName

EXAMPLES = Path(__file__).parents[2] / "examples"
Tool = Callable[..., Any]
X, n = np.array([1.0, -2.0, 0.5]), 3
R = X * n + 2.5


def test_npz(upl: Tool, scale: Path, tmp_path: Path) -> None:
    """All arrays from one file, all results into one."""
    data, out = tmp_path / "data.npz", tmp_path / "out.npz"
    np.savez(data, X=X, n=n)
    done = upl("run", scale, "--input", data, "--output", out)
    assert (done.status, done.out, done.err) == (0, "", "")
    with np.load(out) as got:
        assert set(got.files) == {"R", "S"}
        np.testing.assert_array_equal(got["R"], R)
        assert got["R"].dtype == np.float64
        np.testing.assert_allclose(got["S"], R.sum(), rtol=1e-15)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.npz", "out.npz", "scale.upl"]


@pytest.mark.parametrize("form", ["npy", "npz", "json"])
def test_one_by_one(upl: Tool, scale: Path, tmp_path: Path, form: str) -> None:
    """An array at a time: from a file of one, from a file of several, or written out; results printed."""
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", X=X, other=1)
    value = {"npy": tmp_path / "x.npy", "npz": tmp_path / "x.npz", "json": "[1, -2, 0.5]"}[form]
    done = upl("run", scale, "--input", f"X={value}", "--input", "n=3")
    assert done.status == 0
    assert done.out == f"R =\n{R}\nS = {R.sum()}\n"


def test_directory(upl: Tool, scale: Path, tmp_path: Path) -> None:
    """A name without .npz is a directory with one .npy file for each output."""
    to = tmp_path / "results" / "first"
    assert upl("run", scale, "--input", "X=[1,-2,0.5]", "--input", "n=3", "--output", to).status == 0
    assert sorted(p.name for p in to.iterdir()) == ["R.npy", "S.npy"]
    np.testing.assert_array_equal(np.load(to / "R.npy"), R)


def test_stats(upl: Tool, scale: Path, tmp_path: Path) -> None:
    """Statistics of the run with the keys that readers rely on."""
    to = tmp_path / "s.json"
    done = upl("run", scale, "--input", "X=[1,-2,0.5]", "--input", "n=3", "--stats", to)
    assert done.status == 0
    stats = json.loads(to.read_text(encoding="utf-8"))
    assert stats["engine"] == "interp"
    assert stats["firings"] == {"M": 3, "Sum": 1}
    assert stats["tokens"]["Sum"] == 3
    assert stats["tokens"]["M"] == 4  # three of X, one of n for all
    assert stats["peak_waiting"] >= 1
    assert stats["seconds"] >= 0


def test_orders(upl: Tool, examples: Path, tmp_path: Path) -> None:
    """Ordered gathers give the same bits in every order of arrival; a seed makes a random order repeatable."""
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "d.npz", X=rng.normal(size=(2, 4)), W=rng.normal(size=(2, 6, 6, 6)))
    got: dict[str, Any] = {}
    for name, options in {
        "fifo": (), "1": ("--order", "random", "--seed", "1"), "2": ("--order", "random", "--seed", "2"),
    }.items():  # fmt: skip
        to = tmp_path / f"{name}.npz"
        done = upl("run", examples / "perceptron.upl", "--input", tmp_path / "d.npz", "--gather", "ordered",
                   *options, "--output", to)  # fmt: skip
        assert done.status == 0
        got[name] = np.load(to)["R"]
    assert got["fifo"].shape == (2, 3)
    assert got["fifo"].any()
    np.testing.assert_array_equal(got["fifo"], got["1"])
    np.testing.assert_array_equal(got["fifo"], got["2"])


def test_f32(upl: Tool, scale: Path, tmp_path: Path) -> None:
    """`--real f32` computes in single precision."""
    to = tmp_path / "o.npz"
    assert upl("run", scale, "--input", "X=[0.1]", "--input", "n=3", "--real", "f32", "--output", to).status == 0
    got = np.load(to)["R"]
    assert got.dtype == np.float32
    assert got[0] == np.float32(0.1) * np.float32(3) + np.float32(2.5)
    assert float(got[0]) != 0.1 * 3 + 2.5


def test_rtl(upl: Tool, scale: Path, tmp_path: Path) -> None:
    """The simulated machine gives what the interpreter gives in single precision, and counts the same firings."""
    to, stats = tmp_path / "o.npz", tmp_path / "s.json"
    done = upl("run", scale, "--engine", "rtl", "--input", "X=[1,-2]", "--input", "n=3", "--output", to, "--stats", stats)
    assert (done.status, done.err) == (0, "")
    with np.load(to) as got:
        np.testing.assert_array_equal(got["R"], [5.5, -3.5])
        assert got["S"] == 2.0
    found = json.loads(stats.read_text(encoding="utf-8"))
    assert found["engine"] == "rtl"
    assert found["firings"] == {"M": 2, "Sum": 1}
    assert found["cycles"] > 0


def test_expands_directives(upl: Tool, examples: Path, tmp_path: Path) -> None:
    """A program that holds `adjoint of` runs as it is: LANGUAGE section 5 has its firings."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", X=rng.normal(size=(1, 4)), W=rng.normal(size=(6, 6, 6)), Y=rng.normal(size=(1, 3)))
    done = upl("run", examples / "training.upl", "--input", tmp_path / "d.npz", "--output", tmp_path / "o.npz",
               "--stats", tmp_path / "s.json")  # fmt: skip
    assert done.status == 0
    stats = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    assert sum(stats["firings"].values()) == 493


def test_stranded(upl: Tool, tmp_path: Path) -> None:
    """A run that ends with tokens left over is an error that names the instance, and writes nothing."""
    path = tmp_path / "stranded.upl"
    path.write_text(
        "program s\ninput X<i> in 0<=i<3 { if X > 0: -> M.x }\noutput R<i>\nnode M<i> in 0<=i<3 { in x; x -> R }\n"
    )
    done = upl("run", path, "--input", "X=[1,-1,1]", "--output", tmp_path / "o.npz")
    assert (done.status, done.out) == (1, "")
    assert "error[UPL16" in done.err
    assert "<1>" in done.err
    assert not (tmp_path / "o.npz").exists()


def test_files_are_ordinary(upl: Tool, scale: Path, tmp_path: Path) -> None:
    """A written file has the usual permissions, keeps those of the file it replaces, and goes through a link."""
    to, link = tmp_path / "o.npz", tmp_path / "link.npz"
    args = ("run", scale, "--input", "X=[1]", "--input", "n=3", "--output")
    assert upl(*args, to).status == 0
    (tmp_path / "plain").touch()
    assert stat.S_IMODE(to.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    to.chmod(0o640)
    link.symlink_to(to)
    assert upl(*args, link).status == 0
    assert link.is_symlink()
    assert stat.S_IMODE(to.stat().st_mode) == 0o640


def test_devices_stay_devices(upl: Tool, upl_opt: Tool, scale: Path, tmp_path: Path) -> None:
    """Writing to what is no regular file does not put a file in its place."""
    fifo = Path("/dev/null")
    if not fifo.is_char_device():
        pytest.skip("no /dev/null here")
    link = tmp_path / "null"
    link.symlink_to(fifo)
    assert upl_opt(scale, "-o", link).status == 0
    assert fifo.is_char_device()
    assert link.is_symlink()


@pytest.mark.parametrize("bad", ["stats", "output"])
def test_all_or_nothing(upl: Tool, scale: Path, tmp_path: Path, bad: str) -> None:
    """If one of the files cannot be written, none is."""
    where = {"stats": tmp_path / "s.json", "output": tmp_path / "o.npz"}
    where[bad] = tmp_path / "missing" / where[bad].name
    done = upl("run", scale, "--input", "X=[1]", "--input", "n=3", "--stats", where["stats"], "--output", where["output"])
    assert done.status == 1
    assert f"{where[bad]}: error[UPL1001]: No such file or directory" in done.err
    assert [p.name for p in tmp_path.iterdir()] == ["scale.upl"]


@pytest.mark.parametrize(
    "content",
    [b"", b"junk", b"PK\x03\x04junk", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x01\x00\x10\x00{'descr': 1}    \n"],
)
@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_broken_array_files(upl: Tool, scale: Path, tmp_path: Path, content: bytes, kind: str) -> None:
    """A file that is no array file is an error about that file."""
    path = tmp_path / f"x.{kind}"
    path.write_bytes(content)
    for item in (f"X={path}", str(path)):
        done = upl("run", scale, "--input", item, "--input", "n=1")
        assert (done.status, done.out) == (1, "")
        assert f"error[UPL1504]: {path} is not an array file of numpy" in done.err


def test_objects_are_not_unpickled(upl: Tool, scale: Path, tmp_path: Path) -> None:
    """Arrays of Python objects are refused, in either kind of file."""
    path = tmp_path / "x.npz"
    np.savez(path, X=np.array([None, 1.0], dtype=object))
    done = upl("run", scale, "--input", path, "--input", "n=1")
    assert (done.status, done.out) == (1, "")
    assert f"{path} is not an array file of numpy: it holds Python objects" in done.err


def test_letters_of_any_alphabet(upl: Tool, upl_opt: Tool, tmp_path: Path) -> None:
    """Names with Greek and Cyrillic letters: printed, differentiated, and run on both engines."""
    path, again = tmp_path / "д.upl", tmp_path / "again.upl"
    path.write_text(
        "program дельта\nparam Ш >= 1\ninput δX<ж> in 1<=ж<=Ш { -> Узел.вход }\noutput Й<ж>\n"
        "node Узел<ж> { in вход; δ = 2*вход; δ -> Й }\n", encoding="utf-8"
    )  # fmt: skip
    assert upl_opt(path, "-t", "upl", "-o", again).status == 0
    assert upl_opt(again, "-t", "upl").out == again.read_text(encoding="utf-8")
    assert "2*d_δ -> d_δX<ж>" in upl("grad", path, "--of", "Й", "--wrt", "δX").out
    for engine in ("interp", "rtl"):
        assert upl("run", path, "--engine", engine, "--input", "δX=[1, 2]").out == "Й =\n[2. 4.]\n"


@pytest.mark.parametrize("engine", ["interp", "token", "native"])
def test_a_refuted_program_is_run_by_force_alone(upl: Tool, tmp_path: Path, engine: str) -> None:
    """The engine then stops at the token that is left over; native code has no tokens to count."""
    program, out = tmp_path / "p.upl", tmp_path / "o.npz"
    program.write_text(
        "program p\nparam n >= 1\ninput X<i> in 0<=i<n { X -> A.x }\ninput a { a #n+1 -> A.a<*> }\noutput Y<i>\n"
        "node A<i> in 0<=i<n { in x, a; a*x -> Y<i> }\n", encoding="utf-8",
    )  # fmt: skip
    command = ["run", program, "--engine", engine, "--input", "X=[1,2]", "--input", "a=3", "--output", out]
    done = upl(*command)
    assert done.status == 1 and "error[UPL1304]: multiplicity n+1 of a<>" in done.err and not out.exists()
    assert ("`--force` runs it" in done.err) == (engine != "native")
    forced = upl(*command, "--force")
    assert forced.status == 1 and not out.exists()
    assert ("UPL1304" if engine == "native" else "UPL1601") in forced.err


def test_every_engine_writes_the_same_statistics(upl: Tool, tmp_path: Path) -> None:
    """The first entries are the same, with the same counts; what is known of one engine only comes after them."""
    found: dict[str, dict[str, Any]] = {}
    for engine in EngineName:
        if engine is EngineName.MPI and find_spec("mpi4py") is None:
            continue  # the extra "mpi"
        path = tmp_path / f"{engine}.json"
        arrays = ("--input", "A=[[1,2],[3,4]]", "--input", "B=[[1,2],[3,4]]")
        assert upl("run", EXAMPLES / "matmul.upl", "--engine", engine, *arrays, "--stats", path).status == 0
        found[engine] = json.loads(path.read_text())
    common = ["engine", "firings", "tokens", "tokens_sent", "peak_waiting", "seconds"]
    for engine, stats in found.items():
        assert list(stats)[:6] == common and stats["engine"] == engine
        assert stats["firings"] == {"Mul": 8, "Acc": 4}
        assert stats["tokens"] == {"Mul": 8, "Acc": 8, "C": 4} and stats["tokens_sent"] == 20
        assert isinstance(stats["seconds"], float)
        assert stats["peak_waiting"] is None if engine in ("native", "mpi", "circuit") else stats["peak_waiting"] > 0
