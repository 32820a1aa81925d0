"""Lowered modules as C files: they compile without a warning, and give what the machine code gives."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

import upl_mlir as upl
from upl_mlir.engines.interp import ieee
from upl_mlir.engines.native.backend import compile_module
from upl_mlir.engines.native.c import c_source
from upl_mlir.engines.native.c.c_expressions import real_text
from upl_mlir.engines.native.signature import arguments_of, function_of
from upl_mlir.passes.lower_to_loops import LowerLoopsPass

STRICT = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror"]


COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]


@pytest.fixture(params=COMPILERS or ["cc"])
def compiler(request: pytest.FixtureRequest) -> str:
    """The compilers that the C is meant for, as far as they are installed."""
    return request.param


@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_the_compilers_are_there(name: str) -> None:
    if name not in COMPILERS:
        pytest.skip(f"{name} is not installed: the tests below run without it")


def run(module: ModuleOp, args: list[Any], compiler: str, folder: Path) -> None:
    """Write the module as C, compile it strictly, and call it; `args` as for a kernel."""
    source, header = c_source.emit(module, "kernel")
    (folder / "kernel.c").write_text(source)
    (folder / "kernel.h").write_text(header)
    library = folder / f"kernel{len(list(folder.iterdir()))}.so"  # a name that the loader does not know yet
    command = [compiler, *STRICT, "-shared", "-fPIC", "kernel.c", "-o", library.name, "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr + source
    call: list[Any] = []
    for formal, arg in zip(arguments_of(function_of(module)), args, strict=True):
        if formal.rank is None:
            call.append(ctypes.c_int64(arg))
            continue
        call.append(ctypes.c_void_p(arg.ctypes.data))
        call += [ctypes.c_int64(n) for n, known in zip(arg.shape, formal.shape, strict=True) if known < 0]
    ctypes.CDLL(str(library)).kernel(*call)


def both(module: ModuleOp, args: list[Any], compiler: str, folder: Path, ulp: int = 0) -> list[Any]:
    """Run a module as C and as machine code, compare all that they wrote, and return it."""
    here, there = ([a.copy() if isinstance(a, np.ndarray) else a for a in args] for _ in range(2))
    compile_module(module).run(here)
    run(module, there, compiler, folder)
    for a, b in zip(here, there, strict=True):
        if not isinstance(a, np.ndarray) or not ulp:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_array_max_ulp(a, b, maxulp=ulp)
    return there


CONTROL = """
"memref.global"() <{sym_name = "order", sym_visibility = "private", type = memref<3xi64>,
  initial_value = dense<[2, 0, 1]> : tensor<3xi64>, constant}> : () -> ()
"memref.global"() <{sym_name = "weights", sym_visibility = "private", type = memref<2x2xf32>,
  initial_value = dense<[[0.1, 0x7F800000], [-0.0, 3.0]]> : tensor<2x2xf32>, constant}> : () -> ()
func.func @f(%rows: index, %x: memref<?x3xf64>, %y: memref<?x3xf64>, %n: memref<?xi64>, %w: memref<2x2xf32>,
    %status: memref<i64>) attributes {upl.parameters = ["rows"], upl.inputs = ["x"], upl.outputs = ["y", "for", "weights"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %zero = arith.constant 0.0 : f64
  %one = arith.constant 1 : i64
  %two = arith.constant 2 : i64
  %three = arith.constant 3 : i64
  %none = arith.constant 0 : i64
  %order = memref.get_global @order : memref<3xi64>
  %weights = memref.get_global @weights : memref<2x2xf32>
  "memref.copy"(%weights, %w) : (memref<2x2xf32>, memref<2x2xf32>) -> ()
  %t = memref.alloc(%rows) : memref<?x3xf64>
  scf.for %i = %c0 to %rows step %c1 {
    %row = memref.subview %x[%i, 0] [1, 3] [1, 1] : memref<?x3xf64> to memref<3xf64, strided<[1], offset: ?>>
    %size = arith.addi %i, %c3 : index
    %own = memref.alloc(%size) : memref<?xf64>
    scf.for %j = %c0 to %c3 step %c1 {
      %a = memref.load %row[%j] : memref<3xf64, strided<[1], offset: ?>>
      memref.store %a, %own[%j] : memref<?xf64>
    }
    scf.for %j = %c0 to %c3 step %c1 {
      %a = memref.load %own[%j] : memref<?xf64>
      memref.store %a, %t[%i, %j] : memref<?x3xf64>
    }
  }
  // a swap in the loop's registers, and a load that must stay before a store
  %last:2 = scf.for %i = %c0 to %rows step %c1 iter_args(%p = %zero, %q = %zero) -> (f64, f64) {
    %old = memref.load %t[%i, %c0] : memref<?x3xf64>
    memref.store %q, %t[%i, %c0] : memref<?x3xf64>
    %s = arith.addf %p, %old : f64
    scf.yield %q, %s : f64, f64
  }
  %sub = arith.subf %last#0, %last#1 : f64
  %neg = arith.negf %sub : f64
  %nested = arith.subf %zero, %neg : f64
  scf.for %i = %c0 to %rows step %c1 {
    scf.for %j = %c0 to %c3 step %c1 {
      %k = memref.load %order[%j] : memref<3xi64>
      %kk = arith.index_cast %k : i64 to index
      %a = memref.load %t[%i, %kk] : memref<?x3xf64>
      %b = arith.addf %a, %nested : f64
      memref.store %b, %y[%i, %j] : memref<?x3xf64>
    }
    %start = arith.index_cast %i : index to i64
    %value = arith.addi %start, %one : i64
    %steps:2 = scf.while (%v = %value, %count = %none) : (i64, i64) -> (i64, i64) {
      %more = arith.cmpi ne, %v, %one : i64
      scf.condition(%more) %v, %count : i64, i64
    } do {
    ^bb0(%v: i64, %count: i64):
      %bit = arith.remsi %v, %two : i64
      %odd = arith.cmpi eq, %bit, %one : i64
      %next = scf.if %odd -> (i64) {
        %tripled = arith.muli %v, %three : i64
        %up = arith.addi %tripled, %one : i64
        scf.yield %up : i64
      } else {
        %half = arith.divsi %v, %two : i64
        scf.yield %half : i64
      }
      %count2 = arith.addi %count, %one : i64
      scf.yield %next, %count2 : i64, i64
    }
    memref.store %steps#1, %n[%i] : memref<?xi64>
    %many = arith.cmpi sgt, %steps#1, %three : i64
    scf.if %many {
      memref.store %steps#1, %status[] : memref<i64>
    }
  }
  func.return
}"""


def test_control_and_memory(modules: Any, compiler: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((9, 3))
    args = [9, x, np.zeros((9, 3)), np.zeros(9, np.int64), np.zeros((2, 2), np.float32), modules.status()]
    out = both(modules.parse(CONTROL), args, compiler, tmp_path)
    assert out[3].tolist() == [0, 1, 7, 2, 5, 8, 16, 3, 19]
    assert out[5] == 19
    # what numpy makes of the same: the first column was shifted down through the loop's two registers
    p, q, column = 0.0, 0.0, x[:, 0].copy()
    for i in range(9):
        column[i], p, q = q, q, p + column[i]
    expected = np.stack([x[:, 2], column, x[:, 1]], axis=1) + (p - q)
    np.testing.assert_allclose(out[2], expected, rtol=1e-15)


def test_one_file_is_the_same_code(modules: Any, compiler: str, tmp_path: Path) -> None:
    module = modules.parse(CONTROL)
    (tmp_path / "one.c").write_text(c_source.emit_one_file(module))
    done = subprocess.run([compiler, *STRICT, "-c", "one.c"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    function = c_source.emit(module)[0].partition("void f(")[2]
    assert function and c_source.emit_one_file(module).endswith(function)


def test_names_are_those_of_the_ports(modules: Any) -> None:
    source, header = c_source.emit(modules.parse(CONTROL))
    assert re.search(
        r"void f\(int64_t rows, const double \*restrict x, int64_t x_size0, double \*restrict y, int64_t y_size0,\s+"
        r"int64_t \*restrict for_2, int64_t for_2_size0, float \*restrict weights, int64_t \*restrict status\);",
        header,
    )
    assert "x: input, x_size0 x 3" in header
    assert '#include "f.h"' in source
    assert "[i * 3 + j]" in source


def test_the_comment_says_which_elements_an_array_holds(tmp_path: Path) -> None:
    """Neighbours change places: isl knows the exact box of the output, bounds of each half alone are too wide."""
    text = """program swapped
param n >= 1
input X<i> in 1<=i<=2*n { -> A.x<i-1> }
output Y<a>
node A<i> { in x; x -> B.x<i+1-2*(i mod 2)> }
node B<a> { in x; -> Y }
"""
    module = upl.load(text).infer_domains().module.clone()
    LowerLoopsPass().apply(Context(), module)
    source = c_source.emit_one_file(module)
    assert "X: input, X_size0; X<i> in 1<=i<=2*n" in source
    assert "Y: result, Y_size0; Y<a> in 0<=a<2*n" in source
    (tmp_path / "p.c").write_text(source)
    subprocess.run([COMPILERS[0], *STRICT, "-shared", "-fPIC", "p.c", "-o", "p.so", "-lm"], cwd=tmp_path, check=True)
    x, y, status = np.arange(6.0), np.zeros(6), np.zeros((), np.int64)
    size, at = ctypes.c_int64, (lambda a: ctypes.c_void_p(a.ctypes.data))
    ctypes.CDLL(str(tmp_path / "p.so")).swapped(size(3), at(x), size(6), at(y), size(6), at(status))
    np.testing.assert_array_equal(y, [1, 0, 3, 2, 5, 4])


def _grid(values: list[Any], dtype: Any) -> tuple[Any, Any]:
    a, b = np.meshgrid(np.array(values, dtype), np.array(values, dtype))
    return np.ascontiguousarray(a.ravel()), np.ascontiguousarray(b.ravel())


INTEGERS = [
    0,
    1,
    -1,
    2,
    -2,
    7,
    -7,
    64,
    ieee.INT_MAX,
    ieee.INT_MIN,
    ieee.INT_MAX - 1,
    ieee.INT_MIN + 1,
    2**33 + 5,
    -(2**40),
]
REALS = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, np.inf, -np.inf, np.nan, 1e308, 5e-324, 3.0, 0.1]
INTEGER_OPERATIONS = {
    "wrapping": "%s = arith.addi %a, %b : i64\n%t = arith.muli %s, %a : i64\n%r = arith.subi %t, %b : i64",
    "plain": "%t = arith.shrsi %a, %c : i64\n%r = arith.subi %t, %c overflow<nsw> : i64",
    "floor": "%r = arith.floordivsi %a, %b : i64",
    "ceil": "%r = arith.ceildivsi %a, %b : i64",
    "high": "%lo, %hi = arith.mulsi_extended %a, %b : i64\n%r = arith.xori %lo, %hi : i64",
    "least": "%s = arith.minsi %a, %b : i64\n%t = arith.maxsi %a, %b : i64\n%u = arith.ori %s, %c : i64\n"
    "%r = arith.andi %t, %u : i64",
    "choice": "%t = arith.cmpi slt, %a, %b : i64\n%u = arith.cmpi ne, %a, %c : i64\n%v = arith.andi %t, %u : i1\n"
    "%w = arith.xori %v, %u : i1\n%q = arith.extui %w : i1 to i64\n%p = arith.select %v, %q, %a : i64\n"
    "%r = arith.addi %p, %q : i64",
}  # fmt: skip
REAL_OPERATIONS = {
    "minimum": "%r = arith.minimumf %a, %b : T",
    "maximum": "%r = arith.maximumf %a, %b : T",
    "numbers": "%s = arith.minnumf %a, %b : T\n%t = arith.maxnumf %a, %b : T\n%r = arith.subf %s, %t : T",
    "order": "%s = arith.subf %a, %b : T\n%t = arith.subf %b, %s : T\n%u = arith.divf %t, %c : T\n"
    "%v = arith.divf %a, %u : T\n%r = arith.negf %v : T",
    "tests": "%s = arith.cmpf ult, %a, %b : T\n%t = arith.cmpf one, %a, %b : T\n%u = arith.cmpf ord, %a, %b : T\n"
    "%v = arith.andi %t, %u : i1\n%w = arith.ori %v, %s : i1\n%p = arith.uitofp %w : i1 to T\n%r = arith.addf %p, %a : T",
    "rounding": "%s = math.floor %a : T\n%t = math.roundeven %b : T\n%u = math.round %a : T\n%v = arith.addf %s, %t : T\n"
    "%r = arith.addf %v, %u : T",
    "powers": "%e = arith.constant 3.0 : T\n%s = math.powf %a, %e : T\n%t = math.absf %s : T\n%u = math.sqrt %t : T\n"
    "%r = math.copysign %u, %b : T",
    "fused": "%s = arith.mulf %a, %b : T\n%r = arith.addf %s, %c : T",
}  # fmt: skip


@pytest.mark.parametrize("name", INTEGER_OPERATIONS)
def test_integer_expressions(modules: Any, compiler: str, tmp_path: Path, name: str) -> None:
    text = f"%c = arith.constant 3 : i64\n{INTEGER_OPERATIONS[name]}"
    a, b = _grid(INTEGERS, np.int64)
    b = np.where(b == 0, 3, b) if "div" in text else b  # what a division by zero gives is left open
    both(modules.elementwise(text, "i64", 2), [a, b, np.zeros_like(a), modules.status()], compiler, tmp_path)


@pytest.mark.parametrize("type_", ["f64", "f32"])
@pytest.mark.parametrize("name", REAL_OPERATIONS)
def test_real_expressions(modules: Any, compiler: str, tmp_path: Path, name: str, type_: str) -> None:
    operation = REAL_OPERATIONS[name].replace(": T", f": {type_}").replace("to T", f"to {type_}")
    text = f"%c = arith.constant 0.1 : {type_}\n{operation}"
    with np.errstate(over="ignore"):
        a, b = _grid(REALS, np.float64 if type_ == "f64" else np.float32)
    both(modules.elementwise(text, type_, 2), [a, b, np.zeros_like(a), modules.status()], compiler, tmp_path)


@pytest.mark.parametrize("operation", ["math.exp", "math.log", "math.tanh", "math.sin", "upl.sigmoid", "math.erf"])
@pytest.mark.parametrize("type_", ["f64", "f32"])
def test_functions(modules: Any, compiler: str, tmp_path: Path, operation: str, type_: str) -> None:
    x = np.linspace(-9, 9, 501).astype(np.float64 if type_ == "f64" else np.float32)
    x = np.abs(x) if operation == "math.log" else x
    module = modules.elementwise(f"%r = {operation} %a : {type_}", type_)
    both(module, [x, np.zeros_like(x), modules.status()], compiler, tmp_path, ulp=4)


@pytest.mark.parametrize("type_", ["f64", "f32"])
@pytest.mark.parametrize(
    ("maps", "kinds", "shapes"),
    [
        ("(i,j,k)->(i,k)|(i,j,k)->(k,j)|(i,j,k)->(i,j)", "ppr", ((9, 7), (7, 37), (9, 37))),
        ("(i,j,k)->(k,j)|(i,j,k)->(i,k)|(i,j,k)->(i,j)", "ppr", ((7, 37), (9, 7), (9, 37))),
        ("(i,j,k)->(k,i)|(i,j,k)->(j,k)|(i,j,k)->(i,j)", "ppr", ((5, 8), (16, 5), (8, 16))),
        ("(b,i,j,k)->(b,i,k)|(b,i,j,k)->(k,j)|(b,i,j,k)->(b,i,j)", "pppr", ((2, 5, 6), (6, 33), (2, 5, 33))),
        ("(j,k,i)->(i,k)|(j,k,i)->(k,j)|(j,k,i)->(i,j)", "prp", ((3, 4), (4, 15), (3, 15))),
        ("(i,j,k)->(i,k)|(i,j,k)->(k,2*j+1)|(i,j,k)->(i,j)", "ppr", ((4, 3), (3, 34), (4, 16))),
        ("(i,j,k,l)->(i,l,k)|(i,j,k,l)->(k,l,j)|(i,j,k,l)->(i,j)", "pprr", ((6, 3, 2), (2, 3, 20), (6, 20))),
        ("(i,j,k)->(i,k)|(i,j,k)->(k,j)|(i,j,k)->(i,j)", "ppr", ((4, 0), (0, 16), (4, 16))),
    ],
)
def test_products_are_squares(
    modules: Any, compiler: str, tmp_path: Path, maps: str, kinds: str, shapes: Any, type_: str
) -> None:
    module = modules.product(maps.split("|"), kinds, type_, flags="")
    dtype = np.float64 if type_ == "f64" else np.float32
    arrays = [np.random.default_rng(1).standard_normal(s).astype(dtype) for s in shapes]
    both(module, [*arrays, modules.status()], compiler, tmp_path)
    assert "s3[16]" in c_source.emit(module)[0]


@pytest.mark.parametrize(
    ("maps", "kinds", "shapes"),
    [
        ("(i,k)->(i,k)|(i,k)->(k)|(i,k)->(i)", "pr", ((9, 40), (40,), (9,))),
        ("(i,j)->(i)|(i,j)->(j)|(i,j)->(i,j)", "pp", ((9,), (40,), (9, 40))),
        ("(i,j,k)->(i,j,k)|(i,j,k)->(k,j)|(i,j,k)->(i,j)", "ppr", ((4, 16, 3), (3, 16), (4, 16))),
        ("(i,j,k)->(i,j,k)|(i,j,k)->(i,k)|(i,j,k)->(i,j)", "ppr", ((4, 16, 3), (4, 3), (4, 16))),
    ],
)
def test_other_products_are_plain_loops(
    modules: Any, compiler: str, tmp_path: Path, maps: str, kinds: str, shapes: Any
) -> None:
    module = modules.product(maps.split("|"), kinds, flags="")
    arrays = [np.random.default_rng(1).standard_normal(s) for s in shapes]
    both(module, [*arrays, modules.status()], compiler, tmp_path)
    assert "[16]" not in c_source.emit(module)[0]


def test_products_are_loops(modules: Any, compiler: str, tmp_path: Path) -> None:
    maps = ["(n,o,y,x,c,p,q)->(n,c,2*y+p,x-q+2)", "(n,o,y,x,c,p,q)->(o,c,p,q)", "(n,o,y,x,c,p,q)->(n,o,y,x)"]
    module = modules.product(maps, "pppprrr", flags="")
    rng = np.random.default_rng(1)
    a, b, c = (rng.standard_normal(s) for s in ((2, 3, 11, 8), (4, 3, 3, 3), (2, 4, 5, 6)))
    both(module, [a, b, c, modules.status()], compiler, tmp_path)
    source, _ = c_source.emit(module)
    assert re.search(r"arg2\[[^=]*\] \+= arg0\[[^=]*\] \* arg1\[[^=]*\];", source), source


def test_parallel_loops_keep_their_scratch_inside(modules: Any, compiler: str, tmp_path: Path) -> None:
    text = modules.rows("arith.mulf %a, %a : f64", "arith.addf %a, %a : f64") + "  func.return\n}"
    x = np.random.default_rng(2).standard_normal((5, 7))
    out = both(modules.parse(text), [x, np.zeros_like(x), modules.status()], compiler, tmp_path)
    np.testing.assert_array_equal(out[1], 2 * (x * x))


@pytest.mark.parametrize("x", [0.1, -0.0, 1e300, 3.4028234663852886e38, 5e-324, 3.0, 2.0**60, float("inf"), float("-inf")])
@pytest.mark.parametrize("single", [False, True])
def test_literals_are_exact(x: float, single: bool) -> None:
    with np.errstate(over="ignore"):
        value = float(np.float32(x)) if single else x
    text = real_text(value, single)
    if np.isinf(value):
        assert text == ("INFINITY" if value > 0 else "-INFINITY")
        return
    read = float(text.removesuffix("f"))
    assert (float(np.float32(read)) if single else read) == value
    assert np.signbit(read) == np.signbit(value)
    assert text.endswith("f") == single
    assert set(text) & set(".e")


def test_the_header_serves_cpp(modules: Any, tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    _, header = c_source.emit(modules.parse(CONTROL), "kernel")
    (tmp_path / "kernel.h").write_text(header)
    (tmp_path / "use.cpp").write_text('#include "kernel.h"\nvoid (*p)(int64_t, const double *, int64_t, double *, int64_t, '
                                      "int64_t *, int64_t, float *, int64_t *) = kernel;\n")  # fmt: skip
    done = subprocess.run([compiler, "-Wall", "-Wextra", "-Werror", "-c", "use.cpp"], cwd=tmp_path, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert not done.returncode, done.stderr


def test_emission_needs_no_llvm() -> None:
    """Writing C is a target of the compiler driver, which starts fast."""
    code = "import sys; import upl_mlir.engines.native.c.c_source; sys.exit('llvmlite' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_with_a_prefix_of_c_headers() -> None:
    """`FP_…` and `M_…` belong to the headers whatever follows, so a number behind them is not enough."""
    from upl_mlir.engines.native.c.c_writer import Writer, is_reserved

    writer = Writer.__new__(Writer)
    writer.taken = [set[str]()]
    names = [writer.name(hint, "v") for hint in ("FP_x", "FP_x", "M_E", "int", "x")]
    assert len(set(names)) == 5 and not any(map(is_reserved, names))


def test_sizes_of_arrays_with_names_of_c_headers() -> None:
    """The size of an input `M` would be `M_size0`, a name for math.h whatever number stands behind it."""
    from upl_mlir.engines.native.c.c_source import identifier
    from upl_mlir.engines.native.c.c_writer import is_reserved

    taken: set[str] = set()
    for text in ("M_size0", "M_size0", "FP_x", "_", "e", "int", "a b", "M"):
        taken.add(identifier(text, taken))
    assert len(taken) == 8 and not any(map(is_reserved, taken))
