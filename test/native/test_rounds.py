"""Whether all innermost loops of a function are short, by constants and by the loops outside."""

from __future__ import annotations

import pytest

from upl_mlir.engines.native import backend, target
from upl_mlir.engines.native.llvm.rounds import only_short_loops
from upl_mlir.engines.native.llvm.values import EmittedModule
from upl_mlir.engines.native.signature import function_of

PARALLEL = '"scf.parallel"(%0, %0, {}, %1, %1) <{{operandSegmentSizes = array<i32: 2, 2, 2, 0>}}> '
PARALLEL += '({{ ^bb0(%i: index, %j: index): '
PARALLEL += '@ "scf.reduce"() : () -> () }}) : (index, index, index, index, index, index) -> ()'
LOOPS = [
    ("scf.for %i = %0 to %6 step %1 { scf.for %j = %0 to %i step %1 { @ } }", True),  # a triangle
    ("scf.for %i = %0 to %n step %1 { scf.for %j = %0 to %6 step %1 { @ } }", True),  # many times, but short
    ("scf.for %i = %0 to %6 step %1 { scf.for %j = %0 to %n step %1 { @ } }", False),
    ("scf.for %i = %0 to %20 step %1 { @ }", False),
    ("scf.for %i = %0 to %20 step %1 { scf.for %j = %i to %20 step %1 { @ } }", False),
    ("scf.for %i = %0 to %20 step %1 { scf.if %b { scf.for %j = %0 to %6 step %1 { @ } } }", True),
    ("scf.for %i = %0 to %6 step %1 { %e = arith.addi %i, %1 : index scf.for %j = %0 to %e step %1 { @ } }", True),
    ("scf.for %i = %0 to %6 step %1 { %e = arith.subi %20, %i : index scf.for %j = %i to %e step %1 { @ } }", False),
    ("scf.for %i = %0 to %n step %1 { %e = arith.minsi %i, %6 : index scf.for %j = %0 to %e step %1 { @ } }", False),
    ("scf.for %i = %0 to %20 step %1 { %e = arith.minsi %i, %6 : index scf.for %j = %0 to %e step %1 { @ } }", True),
    ("scf.for %i = %0 to %20 step %1 { %e = arith.maxsi %i, %6 : index scf.for %j = %0 to %e step %1 { @ } }", False),
    (PARALLEL.format("%n, %6"), True),
    (PARALLEL.format("%6, %n"), False),
]


@pytest.mark.parametrize(("loops", "short"), LOOPS)
def test_short_loops(modules, loops: str, short: bool) -> None:
    """The shortest loop has 6 rounds at most here, a long one 20 or `n`."""
    constants = "".join(f"%{n} = arith.constant {n} : index\n" for n in (0, 1, 6, 20))
    store = "memref.store %x, %a[%0] : memref<8xf64>"
    text = f"""builtin.module {{
      func.func @f(%n : index, %b : i1, %x : f64, %a : memref<8xf64>) {{
        {constants}
        {loops.replace("@", store)}
        func.return
      }}
    }}"""
    assert only_short_loops(function_of(modules.parse(text))) is short


@pytest.mark.parametrize(("size", "short", "effort"), [
    (10, True, target.Effort.FULL), (200_000, True, target.Effort.LIGHT), (200_000, False, target.Effort.USUAL),
])  # fmt: skip
def test_little_effort_is_for_large_programs_of_short_loops(size: int, short: bool, effort: target.Effort) -> None:
    assert backend._effort(EmittedModule("f", " " * size, (), (), short)) is effort
