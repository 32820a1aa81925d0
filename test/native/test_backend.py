"""Lowered modules as machine code: control, memory, integers and reals, against what the operations mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from upl_mlir.diagnostics import UplError
from upl_mlir.engines.interp import ieee
from upl_mlir.engines.native.backend import compile_module
from upl_mlir.engines.native.target import Machine

CONSTANTS = """
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : f64
"""


def test_loop_with_register(modules: Any, machine: Machine) -> None:
    """A prefix sum and its total; the sum keeps its order, so it equals numpy's exactly."""
    kernel = modules.kernel(
        f"""
func.func @f(%x: memref<?xf64>, %y: memref<?xf64>, %total: memref<f64>, %status: memref<i64>) {{
  {CONSTANTS}
  %n = memref.dim %x, %c0 : memref<?xf64>
  %sum = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zero) -> (f64) {{
    %a = memref.load %x[%i] : memref<?xf64>
    %s = arith.addf %acc, %a : f64
    memref.store %s, %y[%i] : memref<?xf64>
    scf.yield %s : f64
  }}
  memref.store %sum, %total[] : memref<f64>
  func.return
}}""",
        machine=machine,
    )
    x = np.random.default_rng(0).standard_normal(1001)
    y, total = np.zeros_like(x), np.zeros(())
    kernel.run([x, y, total, modules.status()])
    np.testing.assert_array_equal(y, np.cumsum(x))
    assert total == np.cumsum(x)[-1]
    assert kernel.machine == machine


@pytest.mark.parametrize("flags", ["", " fastmath<reassoc,contract,nsz>"])
def test_only_marked_sums_are_reordered(modules: Any, flags: str) -> None:
    kernel = modules.kernel(f"""
func.func @f(%x: memref<?xf64>, %total: memref<f64>, %status: memref<i64>) {{
  {CONSTANTS}
  %n = memref.dim %x, %c0 : memref<?xf64>
  %sum = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zero) -> (f64) {{
    %a = memref.load %x[%i] : memref<?xf64>
    %s = arith.addf %acc, %a{flags} : f64
    scf.yield %s : f64
  }}
  memref.store %sum, %total[] : memref<f64>
  func.return
}}""")
    x = np.random.default_rng(1).standard_normal(10_000) * 1e8
    total = np.zeros(())
    kernel.run([x, total, modules.status()])
    np.testing.assert_allclose(total, x.sum(), rtol=1e-9)
    assert (total == np.cumsum(x)[-1]) == (not flags)


def test_if_and_while(modules: Any) -> None:
    """The length of the Collatz sequence of each number; negative numbers give -1."""
    kernel = modules.kernel(f"""
func.func @f(%x: memref<?xi64>, %y: memref<?xi64>, %status: memref<i64>) {{
  {CONSTANTS}
  %one = arith.constant 1 : i64
  %two = arith.constant 2 : i64
  %three = arith.constant 3 : i64
  %nothing = arith.constant 0 : i64
  %minus = arith.constant -1 : i64
  %n = memref.dim %x, %c0 : memref<?xi64>
  scf.for %i = %c0 to %n step %c1 {{
    %a = memref.load %x[%i] : memref<?xi64>
    %good = arith.cmpi sgt, %a, %nothing : i64
    %length = scf.if %good -> (i64) {{
      %end:2 = scf.while (%v = %a, %count = %nothing) : (i64, i64) -> (i64, i64) {{
        %more = arith.cmpi ne, %v, %one : i64
        scf.condition(%more) %v, %count : i64, i64
      }} do {{
      ^bb0(%v: i64, %count: i64):
        %bit = arith.remsi %v, %two : i64
        %odd = arith.cmpi eq, %bit, %one : i64
        %next = scf.if %odd -> (i64) {{
          %t = arith.muli %v, %three : i64
          %u = arith.addi %t, %one : i64
          scf.yield %u : i64
        }} else {{
          %h = arith.divsi %v, %two : i64
          scf.yield %h : i64
        }}
        %more2 = arith.addi %count, %one : i64
        scf.yield %next, %more2 : i64, i64
      }}
      scf.yield %end#1 : i64
    }} else {{
      scf.yield %minus : i64
    }}
    memref.store %length, %y[%i] : memref<?xi64>
  }}
  func.return
}}""")

    def length(n: int) -> int:
        steps = 0
        while n != 1:
            n, steps = (3 * n + 1 if n % 2 else n // 2), steps + 1
        return steps

    x = np.array([1, 2, 7, 27, -5, 97, 0])
    y = np.zeros_like(x)
    kernel.run([x, y, modules.status()])
    assert y.tolist() == [0, 1, 16, 111, -1, 118, -1]
    assert y[3] == length(27)


def test_scratch_views_and_tables(modules: Any) -> None:
    """Rows are copied to scratch through a view, and read back in the order of a constant array."""
    kernel = modules.kernel(f"""
"memref.global"() <{{sym_name = "order", sym_visibility = "private", type = memref<3xi64>,
  initial_value = dense<[2, 0, 1]> : tensor<3xi64>, constant}}> : () -> ()
func.func @f(%rows: index, %x: memref<?x3xf64>, %y: memref<?x3xf64>, %status: memref<i64>) {{
  {CONSTANTS}
  %c3 = arith.constant 3 : index
  %order = memref.get_global @order : memref<3xi64>
  %size = arith.addi %rows, %c1 : index
  %t = memref.alloc(%size) : memref<?x3xf64>
  scf.for %i = %c0 to %rows step %c1 {{
    %row = memref.subview %x[%i, 0] [1, 3] [1, 1] : memref<?x3xf64> to memref<3xf64, strided<[1], offset: ?>>
    scf.for %j = %c0 to %c3 step %c1 {{
      %a = memref.load %row[%j] : memref<3xf64, strided<[1], offset: ?>>
      memref.store %a, %t[%i, %j] : memref<?x3xf64>
    }}
  }}
  scf.for %i = %c0 to %rows step %c1 {{
    scf.for %j = %c0 to %c3 step %c1 {{
      %k = memref.load %order[%j] : memref<3xi64>
      %kk = arith.index_cast %k : i64 to index
      %a = memref.load %t[%i, %kk] : memref<?x3xf64>
      memref.store %a, %y[%i, %j] : memref<?x3xf64>
    }}
  }}
  memref.dealloc %t : memref<?x3xf64>
  func.return
}}""")
    for rows in (0, 1, 5, 1000, 2):  # the workspace grows, and is used again
        x = np.random.default_rng(rows).standard_normal((rows, 3))
        y = np.zeros_like(x)
        kernel.run([rows, x, y, modules.status()])
        np.testing.assert_array_equal(y, x[:, [2, 0, 1]])


def test_scratch_of_a_size_known_late_comes_from_the_heap(modules: Any) -> None:
    """Row i has sizes[i] numbers, in scratch of just that size: their sum, taken backwards."""
    kernel = modules.kernel(f"""
func.func @f(%sizes: memref<?xi64>, %y: memref<?xf64>, %status: memref<i64>) {{
  {CONSTANTS}
  %n = memref.dim %sizes, %c0 : memref<?xi64>
  scf.for %i = %c0 to %n step %c1 {{
    %s = memref.load %sizes[%i] : memref<?xi64>
    %size = arith.index_cast %s : i64 to index
    %t = memref.alloc(%size) : memref<?xf64>
    scf.for %j = %c0 to %size step %c1 {{
      %v = arith.index_cast %j : index to i64
      %r = arith.sitofp %v : i64 to f64
      memref.store %r, %t[%j] : memref<?xf64>
    }}
    %sum = scf.for %j = %c0 to %size step %c1 iter_args(%acc = %zero) -> (f64) {{
      %a = memref.load %t[%j] : memref<?xf64>
      %b = arith.addf %acc, %a : f64
      scf.yield %b : f64
    }}
    memref.store %sum, %y[%i] : memref<?xf64>
  }}
  func.return
}}""")
    assert "@malloc" in kernel.ir and "@free" in kernel.ir
    sizes = np.array([0, 3, 1000, 1])
    y = np.zeros(4)
    kernel.run([sizes, y, modules.status()])
    assert y.tolist() == [n * (n - 1) / 2 for n in sizes]


INTEGERS = [0, 1, -1, 2, -2, 3, -3, 7, -7, 8, 64, ieee.INT_MAX, ieee.INT_MIN, ieee.INT_MAX - 1, ieee.INT_MIN + 1]


@pytest.mark.parametrize(
    ("operation", "meaning"),
    [
        ("arith.floordivsi %a, %b", ieee.floordiv),
        ("arith.ceildivsi %a, %b", ieee.ceildiv),
        ("arith.divsi %a, %b", ieee.divide_to_zero),
        ("arith.remsi %a, %b", ieee.remainder_to_zero),
        ("arith.minsi %a, %b", min),
        ("arith.maxsi %a, %b", max),
    ],
)
def test_integer_operations(modules: Any, operation: str, meaning: Any) -> None:
    """Where the operation has a value it is that one; where not, nothing traps."""
    kernel = compile_module(modules.elementwise(f"%r = {operation} : i64", "i64", 2))
    a, b = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(INTEGERS, INTEGERS))
    found = np.zeros_like(a)
    kernel.run([a, b, found, modules.status()])
    for x, y, z in zip(a.tolist(), b.tolist(), found.tolist(), strict=True):
        try:
            assert z == meaning(x, y), (x, y)
        except ieee.Trap:
            continue


@pytest.mark.parametrize("divisor", [1, 2, 8, 3, -1, -3])
@pytest.mark.parametrize(("name", "meaning"), [("floordivsi", ieee.floordiv), ("ceildivsi", ieee.ceildiv)])
def test_division_by_constants(modules: Any, name: str, meaning: Any, divisor: int) -> None:
    kernel = compile_module(
        modules.elementwise(f"%b = arith.constant {divisor} : i64\n%r = arith.{name} %a, %b : i64", "i64")
    )
    a = np.array([x for x in INTEGERS if x != ieee.INT_MIN or divisor > 0])  # INT_MIN / -1 has no value
    found = np.zeros_like(a)
    kernel.run([a, found, modules.status()])
    assert found.tolist() == [meaning(x, divisor) for x in a.tolist()]


def test_overflow_can_be_seen(modules: Any) -> None:
    """The high half of a product tells whether the low half is all of it."""
    kernel = compile_module(
        modules.elementwise(
            """%lo, %hi = arith.mulsi_extended %a, %b : i64
    %k = arith.constant 63 : i64
    %sign = arith.shrsi %lo, %k : i64
    %bad = arith.cmpi ne, %hi, %sign : i64
    %r = arith.extui %bad : i1 to i64""",
            "i64", 2,
        )
    )  # fmt: skip
    a, b = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(INTEGERS, INTEGERS))
    found = np.zeros_like(a)
    kernel.run([a, b, found, modules.status()])
    for x, y, z in zip(a.tolist(), b.tolist(), found.tolist(), strict=True):
        assert z == (not ieee.INT_MIN <= x * y <= ieee.INT_MAX), (x, y)


REALS = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, 1.5, np.inf, -np.inf, np.nan, 1e308, -1e-308, 3.0]


@pytest.mark.parametrize(
    ("operation", "meaning"),
    [
        ("arith.minimumf %a, %b", ieee.minimum), ("arith.maximumf %a, %b", ieee.maximum),
        ("arith.minnumf %a, %b", ieee.min_number), ("arith.maxnumf %a, %b", ieee.max_number),
        ("arith.divf %a, %b", ieee.divide), ("math.copysign %a, %b", np.copysign),
    ],
)  # fmt: skip
def test_real_operations(modules: Any, machine: Machine, operation: str, meaning: Any) -> None:
    kernel = compile_module(modules.elementwise(f"%r = {operation} : f64", arity=2), machine=machine)
    a, b = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(REALS, REALS))
    found = np.zeros_like(a)
    kernel.run([a, b, found, modules.status()])
    expected = np.array([meaning(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[~np.isnan(found)]), np.signbit(expected[~np.isnan(found)]))


@pytest.mark.parametrize(
    ("name", "meaning"),
    [("floor", ieee.floor), ("ceil", ieee.ceil), ("trunc", ieee.trunc), ("round", ieee.round_away),
     ("roundeven", ieee.round_even), ("sqrt", ieee.FUNCTIONS["sqrt"]), ("rsqrt", ieee.rsqrt), ("absf", abs)],
)  # fmt: skip
def test_roundings_and_roots(modules: Any, name: str, meaning: Any) -> None:
    kernel = compile_module(modules.elementwise(f"%r = math.{name} %a : f64"))
    a = np.array([*REALS, 0.49999999999999994, -0.5, 4503599627370497.5, 1e300])
    found = np.zeros_like(a)
    kernel.run([a, found, modules.status()])
    expected = np.array([meaning(x) for x in a.tolist()])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[~np.isnan(found)]), np.signbit(expected[~np.isnan(found)]))


def test_truth_values_take_a_byte(modules: Any) -> None:
    not_and = "%t = arith.constant true\n%not = arith.xori %a, %t : i1\n%r = arith.andi %not, %b : i1"
    kernel = compile_module(modules.elementwise(not_and, "i1", 2))
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    found = np.ones(4, np.bool_)
    kernel.run([a, b, found, modules.status()])
    assert found.tolist() == [False, True, False, False]


def test_what_is_not_known_is_an_error(modules: Any) -> None:
    module = modules.elementwise("%r = arith.divui %a, %a : i64", "i64")
    with pytest.raises(UplError) as caught:
        compile_module(module)
    assert caught.value.diagnostics[0].code == "UPL1820"
    assert "arith.divui" in caught.value.diagnostics[0].message
