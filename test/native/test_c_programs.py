"""Programs as C files (`upl-opt -t c`) against the interpreter: compiled strictly, results equal bit for bit."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context

import upl_mlir as upl
from upl_mlir.api.programs import reverse
from upl_mlir.engines.native.c.c_source import emit, emit_one_file
from upl_mlir.engines.native.signature import arguments_of, function_of
from upl_mlir.passes.lower_to_loops import LowerLoopsPass
from upl_mlir.tools.upl_opt import main as upl_opt

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STRICT = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"]
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
CASES: list[tuple[str, str, str, Any]] = [  # in f64 functions of libm are the interpreter's
    *((*case, "f64") for case in (
        ("perceptron", "R", "X W"), ("matmul", "C", "A B"), ("training", "", ""), ("cholesky", "L", "A"),
        ("jacobi2d", "B", "A"), ("mds", "Stress", "X"), ("lstm", "Y", "W"), ("diagonal", "R", "A"),
        ("softmax", "Loss", "X"), ("floyd_warshall", "S", "W"), ("iris_batch", "", ""), ("upsample", "Y", "X"),
    )),
    ("perceptron", "R", "X W", "f32"), ("matmul", "C", "A B", "f32"), ("cholesky", "L", "A", "f32"),
    ("cholesky", "L", "A", "bf16"), ("cholesky", "L", "A", "q8.20"), ("softmax", "Loss", "X", "f16"),
]  # fmt: skip


@cache
def data() -> ModuleType:
    spec = importlib.util.spec_from_file_location("data_for_c", EXAMPLES / "data.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture(params=COMPILERS or ["cc"])
def compiler(request: pytest.FixtureRequest) -> str:
    return request.param


def compiled(p: upl.Program, compiler: str, folder: Path, real: str, gather: str = "ordered") -> tuple[Any, Any]:
    """The C function, from the one file; its header is included in front, so that both must agree."""
    module = p.module.clone()
    LowerLoopsPass(real=real, gather=gather).apply(Context(), module)
    (folder / "program.c").write_text(emit_one_file(module))
    (folder / "program.h").write_text(emit(module)[1])
    command = [compiler, *STRICT, "-include", "program.h", "-shared", "-fPIC", "program.c", "-o", "program.so", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert not done.returncode, done.stderr
    function = function_of(module)
    return ctypes.CDLL(str(folder / "program.so"))[function.sym_name.data], arguments_of(function)


@pytest.mark.parametrize(("name", "of", "wrt", "real"), CASES)
def test_a_program_as_c(name: str, of: str, wrt: str, real: Any, compiler: str, tmp_path: Path) -> None:
    d = data().generate(name)
    p = upl.load(EXAMPLES / f"{name}.upl")
    params = {n: v for n, v in d.params.items() if n in p.params}
    p = reverse(p, of=of, wrt=wrt.split()) if of else p.expanded()
    rng = np.random.default_rng(3)
    t = np.dtype(np.float32 if real == "f32" else np.float64)
    given = {n: np.ascontiguousarray(v, t) for n, v in d.inputs.items()}
    given |= {n: rng.standard_normal(v.shape(**params)).astype(t) for n, v in p.inputs.items() if n not in given}
    wanted = upl.compile(p, real=real, gather="ordered")(**given, **params)
    function, arguments = compiled(p, compiler, tmp_path, real)
    found = {n: np.full(v.shape, 7, v.dtype) for n, v in wanted.items()}
    call(function, arguments, params, given | found)
    for n, v in wanted.items():
        np.testing.assert_array_equal(found[n], v, err_msg=n)


def call(function: Any, arguments: Any, params: dict[str, int], arrays: dict[str, Any]) -> None:
    """Run a C function."""
    status = np.zeros((), np.int64)
    values: list[Any] = []
    for a in arguments:
        if a.rank is None:
            values.append(ctypes.c_int64(params[a.name]))
            continue
        array = status if a.name == "status" else arrays[a.name]
        values.append(ctypes.c_void_p(array.ctypes.data))
        values += [ctypes.c_int64(n) for n, known in zip(array.shape, a.shape, strict=True) if known < 0]
    function.restype = None
    function(*values)
    assert not status


def test_a_port_in_f32_rounds_as_c(compiler: str, tmp_path: Path) -> None:
    """gcc 12 forgets `(float)` where it computes two such numbers at once."""
    p = upl.load("""program rounds
param n >= 1
input X<d,k> in 1<=d<=n, 1<=k<=2 { X -> F.x<d,k>; X -> F.y<d,k> }
output R<d,k>
node F<d,k> { in x: f32, y; x + (1 + y) -> R<d,k> }
""")
    given = {"X": np.random.default_rng(3).standard_normal((3, 2))}
    wanted = upl.compile(p, gather="ordered")(**given)
    function, arguments = compiled(p, compiler, tmp_path, "f64")
    found = {"R": np.zeros((3, 2))}
    call(function, arguments, {"n": 3}, given | found)
    assert found["R"].tobytes() == wanted["R"].tobytes()


@pytest.mark.parametrize("kernel", [1.0, np.inf])
def test_the_gradient_of_a_convolution_as_c(kernel: float, compiler: str, tmp_path: Path) -> None:
    """Relaxed: by a copy with zeros round it, or tap by tap."""
    p = upl.vjp(upl.load(EXAMPLES.parent / "bench" / "native" / "programs" / "convolution.upl"), of="R", wrt=["X", "W"])
    rng = np.random.default_rng(3)
    params = {"n": 2, "c": 3, "k": 2, "o": 4}
    given = {n: rng.standard_normal(v.shape(**params)) for n, v in p.inputs.items()}
    given["W"][1, 2, 0, 1] = kernel
    wanted = upl.compile(p)(**given, **params)
    function, arguments = compiled(p, compiler, tmp_path, "f64", "relaxed")
    found = {n: np.full(v.shape, 7, v.dtype) for n, v in wanted.items()}
    call(function, arguments, params, given | found)
    for n, v in wanted.items():
        np.testing.assert_allclose(found[n], v, rtol=1e-12, atol=1e-12, err_msg=n)


@pytest.mark.parametrize("vertex", [0, 4, -1])
def test_what_data_decide_as_c(vertex: int, compiler: str, tmp_path: Path) -> None:
    """Rows that data choose are read and added to, in the gradient, too; one that does not exist is a fault."""
    p = upl.vjp(upl.load(EXAMPLES / "sparse" / "message_passing.upl"), of="Out", wrt=["H", "W"])
    (tmp_path / "p.upl").write_text(str(p), encoding="utf-8")
    command = [str(tmp_path / "p.upl"), "--if-convert=compared=true", "-t", "upl", "-o", str(tmp_path / "q.upl")]
    assert not upl_opt(command)
    function, arguments = compiled(upl.load(tmp_path / "q.upl").infer_domains(), compiler, tmp_path, "f64", "relaxed")
    rng = np.random.default_rng(3)
    params = {"n": 4, "m": 6, "d": 3}
    given = {n: rng.standard_normal(v.shape(**params)) for n, v in p.inputs.items() if v.dtype.kind == "f"}
    given |= {"From": rng.integers(0, 4, 6), "To": rng.integers(0, 4, 6)}
    given["To"][3] = vertex
    found = {n: np.full(v.shape(**params), 7, v.dtype) for n, v in p.outputs.items()} | {"fault": np.zeros((), bool)}
    call(function, arguments, params, given | found)
    assert found["fault"] == (vertex not in range(4))
    if vertex in range(4):
        for n, v in upl.compile(p, engine="interp")(**given, **params).items():
            np.testing.assert_allclose(found[n], v, rtol=1e-12, atol=1e-12, err_msg=n)


@pytest.mark.parametrize("column", [1, 3, 4, -1])
def test_rows_that_data_order_as_c(column: int, compiler: str, tmp_path: Path) -> None:
    """A triangular solve and its gradient: rows are read, and added to ahead of the loop; one behind is a fault."""
    p = upl.vjp(upl.load(EXAMPLES / "sparse" / "lower_solve.upl"), of="X", wrt=["V", "B"])
    (tmp_path / "p.upl").write_text(str(p), encoding="utf-8")
    command = [str(tmp_path / "p.upl"), "--if-convert=compared=true", "-t", "upl", "-o", str(tmp_path / "q.upl")]
    assert not upl_opt(command)
    function, arguments = compiled(upl.load(tmp_path / "q.upl").infer_domains(), compiler, tmp_path, "f64", "relaxed")
    rng = np.random.default_rng(3)
    params = {"n": 5, "w": 2}
    given = {n: 1 + rng.random(v.shape(**params)) for n, v in p.inputs.items() if v.dtype.kind == "f"}
    given |= {"Col": np.array([[9, 9], [0, 9], [1, 0], [2, 0], [2, 3]]), "Count": np.array([0, 1, 2, 1, 2])}
    given["Col"][3, 0] = column
    found = {n: np.full(v.shape(**params), 7, v.dtype) for n, v in p.outputs.items()} | {"fault": np.zeros((), bool)}
    call(function, arguments, params, given | found)
    assert found["fault"] == (column not in range(3))
    if column in range(3):
        for n, v in upl.compile(p, engine="interp")(**given, **params).items():
            np.testing.assert_allclose(found[n], v, rtol=1e-12, atol=1e-12, err_msg=n)


@pytest.mark.parametrize(("steps", "m"), [(1, 3), (23, 12)])
def test_states_made_again_as_c(steps: int, m: int, compiler: str, tmp_path: Path) -> None:
    p = upl.grad(upl.load(EXAMPLES.parent / "bench" / "native" / "programs" / "reaction.upl"), "L", ["U0"])
    params = {"T": steps, "m": m}
    given = {"U0": np.random.default_rng(3).uniform(size=(m, m))}
    wanted = upl.compile(p, gather="ordered")(**given, **params)
    function, arguments = compiled(p, compiler, tmp_path, "f64")
    found = {n: np.full(v.shape, 7, v.dtype) for n, v in wanted.items()}
    call(function, arguments, params, given | found)
    for n, v in wanted.items():
        np.testing.assert_array_equal(found[n], v, err_msg=n)


FAR = """program far
param n >= 1
input X<i> in 0<=i<n { -> F.x; -> G.x }
output Y<i>
output Z<i>: f32
node F<i> { in x; (x > 1e39 ? 1.0 : x*1e300) -> Y }
node G<i> { in x: f32; v: f32 = -1e39; (x > f32(1e300) ? v : x*f32(3.4028234e38)) -> Z }
"""


@pytest.mark.parametrize("real", ["f64", "f32"])
def test_a_literal_beyond_the_numbers_of_its_type(real: Any, compiler: str, tmp_path: Path) -> None:
    """It is an infinity; the greatest number is itself, though fewer digits would be one."""
    p = upl.load(FAR)
    x = np.array([0.5, -0.5, 0.0, np.inf, 3e38], np.float32 if real == "f32" else np.float64)
    wanted = upl.compile(p, engine="reference", real=real, gather="ordered")(X=x)
    for q, engine in ((p, "interp"), (p, "native"), (upl.load(str(p)), "interp")):
        found = upl.compile(q, engine=engine, real=real, gather="ordered")(X=x)
        assert all(found[n].tobytes() == v.tobytes() for n, v in wanted.items())
    function, arguments = compiled(p, compiler, tmp_path, real)
    found = {n: np.zeros(v.shape, v.dtype) for n, v in wanted.items()}
    call(function, arguments, {"n": 5}, {"X": x} | found)
    assert all(found[n].tobytes() == v.tobytes() for n, v in wanted.items())
