"""How kernels are called, kept and shared: the call path, the workspace, threads, and the cache on disk."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from upl_mlir.engines.native import backend, call, target
from upl_mlir.engines.native.backend import Kernel, compile_module
from upl_mlir.host.cache import MAGIC, Cache, digest, open_cache

SCALARS = """
func.func @f(%a: memref<f64>, %b: memref<f64>, %y: memref<f64>, %z: memref<i64>, %status: memref<i64>)
    attributes {upl.inputs = ["a", "b"], upl.outputs = ["y", "z"], upl.parameters = []} {
  %w1 = memref.load %a[] : memref<f64>
  %w2 = memref.load %b[] : memref<f64>
  %one = arith.constant 1.0 : f64
  %seven = arith.constant 7 : i64
  %r = arith.divf %w1, %w2 : f64
  memref.store %r, %y[] : memref<f64>
  %i = arith.fptosi %r : f64 to i64
  memref.store %i, %z[] : memref<i64>
  %large = arith.cmpf ogt, %r, %one : f64
  scf.if %large {
    memref.store %seven, %status[] : memref<i64>
  }
  func.return
}"""

TWICE = """
  "scf.parallel"(%c1, %c0, %n, %m, %c1, %c1) <{operandSegmentSizes = array<i32: 2, 2, 2, 0>}> ({
  ^bb0(%i: index, %j: index):
    %a = memref.load %y[%i, %j] : memref<?x?xf64>
    %b = arith.addf %a, %a : f64
    memref.store %b, %y[%i, %j] : memref<?x?xf64>
    "scf.reduce"() : () -> ()
  }) : (index, index, index, index, index, index) -> ()
  func.return
}"""


def rows(modules: Any) -> str:
    """tanh(exp(x)) by rows with scratch, then twice that in place."""
    return modules.rows("math.exp %a : f64", "math.tanh %a : f64") + TWICE


class _Stop(Exception):
    """Raised by `fail` below."""


def _fail(code: int, args: tuple[Any, ...]) -> Any:
    raise _Stop(code, args)


@pytest.fixture(params=["extension", "ctypes"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both call paths; the tests run on machines with a C compiler, as the package does."""
    if request.param == "ctypes":
        monkeypatch.setattr(call, "extension", lambda: call.Extension(None, "switched off by the test"))
    return request.param


def test_the_call_path_is_told(modules: Any, path: str) -> None:
    kernel = modules.kernel(SCALARS)
    assert kernel.call_path == ("extension" if path == "extension" else "ctypes: switched off by the test")


def test_calls_with_numbers(modules: Any, path: str) -> None:
    f = modules.kernel(SCALARS).scalar(_fail)
    assert f(1.0, 4.0) == (0.25, 0)
    assert f(1, 2) == (0.5, 0)
    assert f(np.float64(-3), 2.0) == (-1.5, -1)
    assert [type(v) for v in f(1.0, 4.0)] == [float, int]


def test_a_call_that_fails_says_why(modules: Any, path: str) -> None:
    f = modules.kernel(SCALARS).scalar(_fail)
    for args, code in (((3.0, 2.0), 7), ((1.0,), -1), ((1.0, 2.0, 3.0), -1), (("1", 2.0), -1), ((None, 2.0), -1)):
        with pytest.raises(_Stop) as caught:
            f(*args)
        assert caught.value.args == (code, args)
    assert f(1.0, 2.0) == (0.5, 0)  # the status is clear again
    assert modules.kernel(SCALARS).scalar(lambda code, args: ("instead", code))(3.0, 2.0) == ("instead", 7)


def test_integers_and_truth_values_are_taken_exactly(modules: Any, path: str) -> None:
    f = modules.kernel("""
func.func @f(%n: index, %a: memref<i64>, %b: memref<i1>, %c: memref<f32>, %y: memref<i64>, %z: memref<i1>, %w: memref<f32>,
    %status: memref<i64>)
    attributes {upl.inputs = ["a", "b", "c"], upl.outputs = ["y", "z", "w"], upl.parameters = ["n"]} {
  %i = memref.load %a[] : memref<i64>
  %n64 = arith.index_cast %n : index to i64
  %s = arith.addi %i, %n64 : i64
  memref.store %s, %y[] : memref<i64>
  %t = memref.load %b[] : memref<i1>
  %true = arith.constant true
  %u = arith.xori %t, %true : i1
  memref.store %u, %z[] : memref<i1>
  %r = memref.load %c[] : memref<f32>
  memref.store %r, %w[] : memref<f32>
  func.return
}""").scalar(_fail)
    assert f(1, 2**62, True, 0.1) == (2**62 + 1, False, float(np.float32(0.1)))
    for wrong in ((1, 2**63, True, 0.1), (1, 1.0, True, 0.1), (1, 1, 2.0, 0.1)):
        with pytest.raises(_Stop):
            f(*wrong)


def test_arrays_are_used_in_place_or_refused(modules: Any, path: str) -> None:
    kernel = modules.kernel(rows(modules))
    x = np.random.default_rng(0).standard_normal((4, 6))
    good = [x, np.zeros_like(x), modules.status()]
    kernel.run(good)
    assert good[1].any()
    read_only = np.zeros_like(x)
    read_only.flags.writeable = False
    for at, wrong in (
        (0, x.astype(np.float32)), (0, x.T), (0, x[0]), (0, x[:, ::2]), (0, x.tolist()), (1, read_only),
        (2, np.zeros((), np.int32)), (2, np.zeros(1, np.int64)),
    ):  # fmt: skip
        args = list(good)
        args[at] = wrong
        with pytest.raises((TypeError, ValueError, BufferError)):
            kernel.run(args)
    with pytest.raises(TypeError):
        kernel.run(good[:2])
    x.flags.writeable = False  # inputs may be read-only
    kernel.run([x, np.zeros((4, 6)), modules.status()])


def _rows(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    y = np.tanh(np.exp(x))
    y[1:] *= 2
    return y


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_change_nothing(modules: Any, threads: int) -> None:
    kernel = modules.kernel(rows(modules), threads=threads)
    one = modules.kernel(rows(modules))
    assert kernel.threads == threads
    assert ("@part0" in kernel.ir) == (threads > 1)
    assert ("mul nsw i64 %thread, " in kernel.ir) == (threads > 1), "scratch of a loop's body belongs to a thread"
    for shape in ((0, 3), (1, 10), (3, 5), (300, 400), (2, 60_000), (3000, 100)):
        x = np.random.default_rng(1).standard_normal(shape)
        y, alone = np.zeros_like(x), np.zeros_like(x)
        kernel.run([x, y, modules.status()])
        one.run([x, alone, modules.status()])
        np.testing.assert_array_equal(y, alone)
        np.testing.assert_allclose(y, _rows(x), rtol=1e-14)


WINDOW = """
func.func @f(%steps: index, %u: memref<2x?xf64>, %status: memref<i64>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %half = arith.constant 0.5 : f64
  %n = memref.dim %u, %c1 : memref<2x?xf64>
  %last = arith.subi %n, %c1 : index
  scf.for %t = %c0 to %steps step %c1 {
    %old = arith.remsi %t, %c2 : index
    %new = arith.subi %c1, %old : index
    "scf.parallel"(%c1, %last, %c1) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
    ^bb0(%i: index):
      %left = arith.subi %i, %c1 : index
      %right = arith.addi %i, %c1 : index
      %a = memref.load %u[%old, %left] : memref<2x?xf64>
      %b = memref.load %u[%old, %right] : memref<2x?xf64>
      %s = arith.addf %a, %b : f64
      %h = arith.mulf %s, %half : f64
      memref.store %h, %u[%new, %i] : memref<2x?xf64>
      "scf.reduce"() : () -> ()
    }) : (index, index, index) -> ()
  }
  func.return
}"""


@pytest.mark.parametrize("threads", [1, 2])
def test_independent_iterations_are_told_to_llvm(modules: Any, threads: int) -> None:
    """Two time steps in one array: LLVM cannot see that reading and writing do not meet, the loop says so."""
    kernel = modules.kernel(WINDOW, threads=threads)
    found = kernel.ir.count('!"llvm.loop.parallel_accesses"')
    assert found == threads, "with two, the loop that is shared and the one for work that is too little"
    for n in (3, 50, 100_003):
        u = np.random.default_rng(n).standard_normal((2, n))
        u[1, [0, -1]] = u[0, [0, -1]]
        expected = u.copy()
        for t in range(5):
            old, new = expected[t % 2], expected[1 - t % 2]
            new[1:-1] = (old[:-2] + old[2:]) * 0.5
        kernel.run([5, u, modules.status()])
        np.testing.assert_array_equal(u, expected)


def test_shared_scratch_makes_iterations_dependent(modules: Any) -> None:
    assert modules.kernel(rows(modules)).ir.count('!"llvm.loop.parallel_accesses"') == 1  # the second loop, not the first


@pytest.mark.parametrize("shape", [(200, 150, 300), (30, 1500, 100), (1500, 30, 100), (61, 67, 1100)])
def test_products_on_threads(modules: Any, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    module = modules.product(["(i,j,k)->(i,k)", "(i,j,k)->(k,j)", "(i,j,k)->(i,j)"], "ppr")
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    found: list[np.ndarray[Any, Any]] = []
    for threads in (1, 3):
        c = np.zeros((m, n))
        compile_module(module, threads=threads).run([a, b, c, modules.status()])
        found.append(c)
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], a @ b, rtol=1e-11, atol=1e-11)


def test_one_kernel_from_several_python_threads(modules: Any, at_once: Any) -> None:
    """The workspace of a kernel is one call's at a time: the others get one of their own."""
    kernel = modules.kernel(rows(modules), threads=2)

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((200, 300))
        expected = _rows(x)
        for _ in range(30):
            y = np.zeros_like(x)
            kernel.run([x, y, modules.status()])
            np.testing.assert_allclose(y, expected, rtol=1e-13)

    at_once(work)


def test_threads_after_fork(modules: Any) -> None:
    kernel = modules.kernel(rows(modules), threads=3)
    x = np.random.default_rng(5).standard_normal((300, 400))
    kernel.run([x, np.zeros_like(x), modules.status()])  # the workers exist
    child = os.fork()
    if not child:  # pragma: no cover
        signal.alarm(30)  # workers that are waited for in vain
        y = np.zeros_like(x)
        kernel.run([x, y, modules.status()])
        os._exit(0 if np.allclose(y, _rows(x), rtol=1e-13) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_extension_compiles_without_a_warning(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler is not None
    include = sysconfig.get_paths()["include"]
    command = [
        compiler,
        "-std=c11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pthread",
        f"-I{include}",
        "-isystem",
        np.get_include(),
        "-c",
        str(call.SOURCE),
    ]
    done = subprocess.run([*command, "-o", str(tmp_path / "call.o")], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


# -- the cache -----------------------------------------------------------------------------------------------------
@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and nothing in memory."""
    monkeypatch.setenv("UPL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(backend, "_in_memory", {})
    return tmp_path / "cache"


def _count(folder: Path) -> int:
    return len(list(folder.glob("*.o")))


def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_in_memory", {})


def _works(kernel: Kernel) -> bool:
    return kernel.scalar(_fail)(1.0, 4.0) == (0.25, 0)


def test_code_is_found_in_memory_and_on_disk(modules: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = modules.kernel(SCALARS)
    again = modules.kernel(SCALARS)
    assert (first.cached, again.cached) == (False, True)
    assert first.loaded is again.loaded
    _forget(monkeypatch)
    from_disk = modules.kernel(SCALARS)
    assert from_disk.cached and from_disk.loaded is not first.loaded
    assert _works(from_disk)
    other = modules.kernel(SCALARS.replace("7 :", "8 :"))
    assert not other.cached
    assert _count(folder) == 2
    assert not modules.kernel(SCALARS, cache=False).cached


def test_code_for_another_machine_is_not_taken(modules: Any, folder: Path, machine: target.Machine) -> None:
    modules.kernel(SCALARS)
    assert modules.kernel(SCALARS, machine=machine).cached == (machine == target.host())


@pytest.mark.parametrize("damage", ["cut", "empty", "foreign", "flipped", "magic only", "a folder"])
def test_damaged_files_are_made_again(modules: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    modules.kernel(SCALARS)
    (file,) = folder.glob("*.o")
    data = file.read_bytes()
    damaged = {
        "cut": data[:-10], "empty": b"", "foreign": b"\x7fELF" + bytes(500), "magic only": MAGIC,
        "flipped": data[:-1] + bytes([data[-1] ^ 1]),
    }  # fmt: skip
    file.unlink()
    if damage in damaged:
        file.write_bytes(damaged[damage])
    else:
        file.mkdir()
    _forget(monkeypatch)
    kernel = modules.kernel(SCALARS)
    assert not kernel.cached
    assert _works(kernel)
    if damage in damaged:
        assert file.read_bytes() == data
    assert not list(folder.glob(".new-*"))


def test_without_a_usable_folder_nothing_is_kept(
    modules: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)  # anybody could put code there
    a_file = tmp_path / "file"
    a_file.write_text("")
    for place in (shared, a_file, a_file / "below"):
        monkeypatch.setenv("UPL_CACHE_DIR", str(place))
        _forget(monkeypatch)
        assert open_cache() == Cache(None)
        kernel = modules.kernel(SCALARS)
        assert not kernel.cached
        assert _works(kernel)
    assert not list(shared.iterdir())


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("UPL_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert open_cache().folder == tmp_path / "upl_mlir"
    assert (tmp_path / "upl_mlir").stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert open_cache().folder == tmp_path / "home" / ".cache" / "upl_mlir"


def test_old_files_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("upl_mlir.host.cache.LIMIT_BYTES", 5000)
    cache = Cache(tmp_path)
    for i in range(5):
        cache.write(f"{i}.o", bytes(900))
        os.utime(tmp_path / f"{i}.o", (i, i))
    cache.write("5.o", bytes(900))
    assert cache.read("0.o") is None
    assert cache.read("5.o") == bytes(900)
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= 5000


def test_names_follow_from_all_parts() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("a", b"b") == digest(b"a", "b")


_WRITER = """
import sys
from pathlib import Path
from upl_mlir.host.cache import Cache
cache = Cache(Path(sys.argv[1]))
for i in range(300):
    cache.write("same.o", sys.argv[2].encode() * (1000 + i))
    found = cache.read("same.o")
    assert found is not None and len(set(found)) == 1, "half of one file and half of another"
"""


def test_several_processes_write_one_file(tmp_path: Path) -> None:
    workers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path), name]) for name in "ab"]
    assert [w.wait(60) for w in workers] == [0, 0]
    assert [p.name for p in tmp_path.iterdir()] == ["same.o"]


def test_without_compiler_or_headers_it_says_so(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    build = call.build
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "which", lambda name: None)
        assert "no C compiler" in build().why
    with monkeypatch.context() as patch:
        patch.setattr(call.sysconfig, "get_paths", lambda: {"include": "nowhere"})
        assert "Python.h" in build().why
    with monkeypatch.context() as patch:
        patch.setenv("CC", "false")
        assert "false failed" in build().why
    found = build()
    assert found.module is not None and not found.why
    (file,) = folder.glob("call-*")
    data = file.read_bytes()
    for damage in (b"no library", data[:-5000], data[: len(data) // 2]):  # built again
        file.unlink()  # never written in place: the library is in use
        file.write_bytes(damage)
        assert build().module is not None
        assert file.read_bytes() == data
