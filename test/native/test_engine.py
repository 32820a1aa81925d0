"""The engine "native" from outside: what it returns, refuses, counts and keeps; its calls from threads."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.engines.native import call, target
from upl_mlir.engines.native.call import Extension

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

SCALE = """program scale
param n >= 2
input  X<i> in 1<=i<=n { -> F.x }
output Y<i>
output Z<i>
node F<i> { in x; 2*x -> Y; x+1 -> Z }
"""
ADD = """program add
input A: int { -> F.a }
input B: int { -> F.b }
output S: int
node F { in a: int, b: int; a+b -> S }
"""


def native(text: str, **options: Any) -> upl.Compiled:
    return upl.compile(upl.load(text), engine="native", **options)


# -- arrays ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "x",
    [
        np.arange(12.0)[::3], np.arange(8.0).reshape(4, 2)[:, 1], np.arange(4), np.arange(4, dtype=np.float32),
        np.arange(4.0).astype(">f8"), [0.0, 3.0, 1.0, 2.0],
        np.frombuffer(b"x" + np.arange(4.0).tobytes(), np.float64, offset=1),
        np.ma.masked_array(np.arange(4.0)), {(i,): 7.0 * i for i in range(1, 5)},
    ],
    ids=["strided", "column", "integers", "f32", "big-endian", "list", "unaligned", "subclass", "by index"],
)  # fmt: skip
def test_inputs_of_other_forms_are_converted(x: Any) -> None:
    f = native(SCALE)
    wanted = upl.compile(upl.load(SCALE))(X=x)
    for _ in range(2):  # the second call knows the shapes
        found = f(X=x)
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize(
    ("arrays", "code"),
    [
        ({"X": np.zeros(1)}, "UPL1505"), ({"X": np.zeros((2, 2))}, "UPL1503"), ({"X": np.array(["a", "b"])}, "UPL1504"),
        ({"X": np.zeros(3, complex)}, "UPL1504"), ({}, "UPL1501"), ({"n": 3}, "UPL1501"),
        ({"X": np.zeros(3), "n": 4}, "UPL1503"),
        ({"X": np.zeros(3), "Q": 1}, "UPL1502"), ({"X": np.zeros(3), "n": -1}, "UPL1505"),
        ({"X": np.zeros(3), "n": 2.5}, "UPL1505"), ({"X": None, "n": 3}, "UPL1501"),
    ],
)  # fmt: skip
def test_wrong_inputs_are_refused(arrays: dict[str, Any], code: str) -> None:
    f = native(SCALE)
    f(X=np.ones(3))  # a right call before changes nothing
    with pytest.raises(upl.UplError) as e:
        f(**arrays)
    assert e.value.diagnostics[0].code == code


def test_outputs_go_where_the_caller_says() -> None:
    f = native(SCALE)
    y = np.empty(3)
    found = f(X=np.arange(3.0), out={"Y": y})
    assert found["Y"] is y
    np.testing.assert_array_equal(y, [0, 2, 4])
    np.testing.assert_array_equal(found["Z"], [1, 2, 3])


def test_an_output_in_the_place_of_an_input() -> None:
    """The results are those of separate arrays, whatever the order in which they are written."""
    f = native(SCALE)
    x = np.arange(3.0)
    f(X=x, out={"Y": x})
    np.testing.assert_array_equal(x, [0, 2, 4])
    both = np.arange(5.0)
    found = f(X=both[:4], out={"Y": both[1:]})
    np.testing.assert_array_equal(both, [0, 0, 2, 4, 6])
    np.testing.assert_array_equal(found["Z"], [1, 2, 3, 4])


BUFFER = np.zeros(4)
LOCKED = np.zeros(3)
LOCKED.flags.writeable = False


@pytest.mark.parametrize(
    ("out", "code", "words"),
    [
        ({"Y": np.zeros(4)}, "UPL1503", "expected an array of shape (3,)"),
        ({"Y": np.zeros(3, np.float32)}, "UPL1503", "float64"),
        ({"Y": [0, 0, 0]}, "UPL1503", "found list"), ({"Y": np.zeros(6)[::2]}, "UPL1503", "must be contiguous"),
        ({"Y": LOCKED}, "UPL1503", "writeable"), ({"Y": BUFFER[:3], "Z": BUFFER[1:]}, "UPL1503", "share memory"),
        ({"W": np.zeros(3)}, "UPL1502", "there is no such output"), ({1: np.zeros(3)}, "UPL1502", "there is no such output"),
        ([np.zeros(3)], "UPL1503", "expected arrays by output name"),
    ],
)  # fmt: skip
def test_wrong_outputs_are_refused(out: Any, code: str, words: str) -> None:
    engines = [native(SCALE), *([upl.compile(upl.load(SCALE))] if words != "must be contiguous" else [])]
    for f in engines:
        with pytest.raises(upl.UplError) as e:
            f(X=np.zeros(3), out=out)
        assert e.value.diagnostics[0].code == code
        assert words in str(e.value)


def test_sizes_beyond_memory_are_refused_before_anything_is_made() -> None:
    """The message states the bytes; nothing of that kind is allocated first."""
    f = upl.compile(upl.load(SCALE), engine="native")
    lstm = upl.compile(upl.load(EXAMPLES / "lstm.upl"), engine="native")
    steps = 10**6
    arrays = {n: np.zeros(v.shape(T=2, E=1, H=1)) for n, v in lstm.program.inputs.items()}
    tracemalloc.start()
    try:
        with pytest.raises(upl.UplError, match=r"UPL1506.*8000000000000 bytes|UPL1827.*16000000000000 bytes"):
            f(X={(1,): 1.0, (10**12,): 1.0}, n=10**12)
        with pytest.raises(upl.UplError, match=r"UPL150[356]|UPL1827.*bytes"):
            lstm(**arrays, T=steps * steps, E=1, H=1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 2**20


def test_memory_of_intermediate_arrays() -> None:
    """All of Step's times have to be kept for the way back: more than the machine has."""
    g = upl.compile(upl.grad(upl.load("""program steps
param T >= 1
input A { -> U.u<0> }
output L
node U<t> in 0<=t<=T { in u; if t<T: u*u -> U.u<t+1>; if t==T: u -> L }
"""), of="L", wrt="A"), engine="native")  # fmt: skip
    with pytest.raises(upl.UplError, match=r"UPL1827.*need \d{13,} bytes \(`U.u` alone 8\d{12}\)"):
        g(A=1.0, T=10**12)
    assert g(A=1.0, T=10)["d_A"] == 1024


def test_a_program_decided_by_data() -> None:
    p = upl.load(EXAMPLES / "newton.upl")
    f, rng = upl.compile(p, engine="native"), np.random.default_rng(1)
    for n in (1, 7):
        m, e = rng.random(n) * 6, rng.random(n) * 0.9
        steps = np.zeros(n, np.int64)
        out = f(M=m, e=e, out={"Steps": steps})
        expected = upl.compile(p)(M=m, e=e)
        np.testing.assert_allclose(out["E"], expected["E"], rtol=1e-14)
        np.testing.assert_array_equal(out["Steps"], expected["Steps"])
        assert out["Steps"] is steps
        assert f.stats["firings"] == {"It": None}  # loops pass what could be there, and count nothing
    small = upl.compile(p, engine="native", real="f16")(M=m, e=e)
    assert all(np.array_equal(v, small[name]) for name, v in upl.compile(p, real="f16")(M=m, e=e).items())
    with pytest.raises(upl.UplError, match="UPL1502"):
        f(M=m, e=e, out={"Step": steps})
    with pytest.raises(upl.UplError, match="UPL1503"):
        f(M=m, e=e, out={"Steps": np.zeros(3)})


def test_a_refuted_program_does_not_run() -> None:
    with pytest.raises(upl.UplError, match="UPL13"):
        native("program p\nparam n >= 2\ninput X<i> in 0<=i<n-1 { -> Y }\noutput Y<i> in 0<=i<n\n")


@pytest.mark.parametrize(
    ("text", "given", "words"),
    [
        (ADD, {"A": 2**63 - 1, "B": 1}, "integer overflow"),
        (ADD.replace("a+b", "a floordiv b"), {"A": -(2**63), "B": -1}, "integer overflow"),
        (ADD.replace("a+b", "a mod b"), {"A": 1, "B": 0}, "division by zero"),
        (ADD.replace("a+b", "int(exp(a))"), {"A": 100, "B": 0}, "no 64-bit integer value"),
    ],
)
def test_faults_of_integers(text: str, given: dict[str, int], words: str) -> None:
    f = native(text)
    for run in (lambda: f(**given), lambda: f.scalar(*given.values())):
        with pytest.raises(upl.UplError, match=rf"UPL1604.*{words}"):
            run()


# -- scalars --------------------------------------------------------------------------------------------------------------
def test_scalars() -> None:
    p = upl.load(EXAMPLES / "scalars.upl")
    f = upl.compile(p, engine="native")
    assert f.scalar(2.0, 3.0) == pytest.approx(upl.compile(p).scalar(2.0, 3.0), rel=1e-15)
    for values in ((2.0,), (1.0, 2.0, 3.0), ("1", 2.0)):
        with pytest.raises(upl.UplError, match=r"UPL150[14]"):
            f.scalar(*values)
    with pytest.raises(upl.UplError, match="UPL1503"):
        native(SCALE).scalar(1.0)


# -- figures --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["perceptron", "training", "cholesky", "wave"])
def test_counts_are_those_of_the_interpreter(name: str) -> None:
    """Counted by polynomials, not by running."""
    sys.path.insert(0, str(EXAMPLES))
    import data

    d = data.generate(name)
    p = upl.load(EXAMPLES / f"{name}.upl")
    f, reference = upl.compile(p, engine="native"), upl.compile(p)
    f(**d.inputs, **d.params)
    reference(**d.inputs, **d.params)
    for key in ("firings", "tokens", "tokens_sent"):
        assert f.stats[key] == reference.stats[key]
    assert f.stats["engine"] == "native"
    assert f.stats["seconds"] > 0 and f.stats["compile_seconds"] > 0
    assert f.stats["peak_waiting"] is None


# -- compilations ---------------------------------------------------------------------------------------------------------
def test_one_compilation_serves_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    f = native(SCALE)

    def never(*_args: Any, **_options: Any) -> Any:
        raise AssertionError("compiled again")

    monkeypatch.setattr(target, "compile_object", never)
    for n in (2, 3, 100, 7):
        np.testing.assert_array_equal(f(X=np.arange(n))["Y"], 2.0 * np.arange(n))


def test_code_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory for another object of the same program, on disk for another process."""
    text = SCALE.replace("2*x", "2*x*1.5")
    first = native(text)
    assert not first.stats["cached"]
    calls: list[str] = []
    real = target.compile_object
    monkeypatch.setattr(target, "compile_object", lambda *a, **o: calls.append("x") or real(*a, **o))
    assert native(text).stats["cached"]
    assert native(text, gather="ordered")(X=[1.0, 2.0])["Y"][1] == 6
    assert not native(text.replace("2*x", "3*x")).stats["cached"]
    assert calls
    code = f"import upl_mlir as u; f = u.compile(u.load({text!r}), engine='native'); print(f.stats['cached'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "True"


def test_what_llvm_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: Any, **_options: Any) -> Any:
        raise RuntimeError("LLVM IR parsing error\nmore")

    monkeypatch.setattr(target, "compile_object", broken)
    with pytest.raises(upl.UplError, match=r"UPL1828.*LLVM cannot compile the program: LLVM IR parsing error"):
        native(SCALE.replace("2*x", "5*x + 1"))


def test_without_a_compiler_calls_go_by_ctypes_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "extension", lambda: Extension(None, "no C compiler found (cc, gcc or clang)"))
    f = native(SCALE)
    np.testing.assert_array_equal(f(X=np.arange(3.0))["Y"], [0, 2, 4])
    assert f.stats["calls"] == "ctypes: no C compiler found (cc, gcc or clang)"
    with pytest.warns(RuntimeWarning, match="one thread instead of 4: no C compiler found"):
        f = native(SCALE, threads=4)
    assert f.stats["threads"] == 1
    with pytest.raises(upl.UplError, match="UPL1802"):
        native(SCALE, threads=0)


# -- threads --------------------------------------------------------------------------------------------------------------
MATVEC = """program work
param n >= 1
param m >= 1
input X<i> in 0<=i<n { -> F.x<i,k> for k in 0..m-1 }
output Y<i>
node F<i,k> in 0<=i<n, 0<=k<m { in x; sin(x*k) -> S.s<i> }
node S<i> { in @(+) s[m]; s -> Y }
"""


def test_more_threads_give_the_same_bits_in_order() -> None:
    x = np.linspace(0, 1, 3000)
    one = native(MATVEC, gather="ordered")(X=x, m=500)["Y"]
    two = native(MATVEC, gather="ordered", threads=2)(X=x, m=500)["Y"]
    np.testing.assert_array_equal(one, two)


def test_calls_from_many_threads(at_once: Any) -> None:
    """One callable in several Python threads at once: each call has its own results and faults."""
    f = native(ADD)
    g = native(MATVEC)

    def work(k: int) -> None:
        for i in range(200):
            assert f(A=k, B=i)["S"] == k + i
            with pytest.raises(upl.UplError):
                f(A=2**63 - 1, B=k + 1)
        x = np.full(50, float(k))
        for _ in range(5):
            np.testing.assert_allclose(g(X=x, m=20)["Y"], np.sin(k * np.arange(20)).sum(), rtol=1e-5, atol=1e-8)

    at_once(work)


def test_the_interpreter_lock_is_released() -> None:
    """While a long call runs, another Python thread counts."""
    g = native(MATVEC)
    x = np.linspace(0, 1, 4000)
    g(X=x[:10], m=10)
    done = threading.Event()
    counted = 0

    def run() -> None:
        g(X=x, m=20000)
        done.set()

    t = threading.Thread(target=run)
    t.start()
    while not done.is_set():
        counted += 1
        time.sleep(0.001)
    t.join()
    assert counted > 20  # a call of half a second or more; with the lock held it would be 1 or 2
