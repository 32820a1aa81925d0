"""Loops that divide by roots, written as vectors: each kind gives what plain loops give, at all lengths.

The reference is the same module under `ordered`, which is never written as vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import upl_mlir as upl
from upl_mlir.engines.native.backend import compile_module
from upl_mlir.engines.native.target import host

Floats = NDArray[np.float64]

pytestmark = pytest.mark.skipif(host().vector_bytes != 64, reason="only machines with AVX-512 have them")

HEAD = """
func.func @f(%lo: index, %n: index, %x: memref<?xf64>, %y: memref<?xf64>, %z: memref<2x?xf64>, %c: memref<2xf64>,
    %status: memref<i64>) attributes {{upl.gather = "{gather}"}} {{
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %m = arith.subi %n, %one : index
  %first = memref.load %x[%zero] : memref<?xf64>
  %start = memref.load %c[%one] : memref<2xf64>
"""
TAIL = """
  func.return
}
"""
PAIR = """
    %x0 = memref.load %x[%j] : memref<?xf64>
    %s = arith.mulf %x0, %x0 fastmath<reassoc,contract,nsz> : f64
    %r = math.sqrt %s : f64
    %e = arith.subf %r, %first : f64
    %q = arith.divf %e, %r : f64
"""
SEQUENTIAL = "scf.for %j = %lo to %n step %one {" + PAIR

CELLS_AND_ROWS = SEQUENTIAL + """
    %k = arith.subi %j, %one : index
    %again = math.sqrt %s : f64
    %ee = arith.mulf %again, %again fastmath<reassoc,contract,nsz> : f64
    %c0 = memref.load %c[%zero] : memref<2xf64>
    %c1 = arith.addf %c0, %ee fastmath<reassoc,contract,nsz> : f64
    memref.store %c1, %c[%zero] : memref<2xf64>
    %cm = arith.constant -3.0 : f64
    %qm = arith.mulf %cm, %q : f64
    %p0 = arith.mulf %qm, %x0 fastmath<reassoc,contract,nsz> : f64
    %z0 = memref.load %z[%zero, %k] : memref<2x?xf64>
    %z1 = arith.addf %z0, %p0 fastmath<reassoc,contract,nsz> : f64
    memref.store %z1, %z[%zero, %k] : memref<2x?xf64>
    %cp = arith.constant 3.0 : f64
    %qp = arith.mulf %cp, %q : f64
    %p1 = arith.mulf %qp, %x0 fastmath<reassoc,contract,nsz> : f64
    %z2 = memref.load %z[%one, %k] : memref<2x?xf64>
    %z3 = arith.subf %z2, %p1 fastmath<reassoc,contract,nsz> : f64
    memref.store %z3, %z[%one, %k] : memref<2x?xf64>
  }
"""
CARRIED = "%total = scf.for %j = %lo to %n step %one iter_args(%t = %start) -> (f64) {" + PAIR + """
    %p = arith.mulf %q, %q fastmath<reassoc,contract,nsz> : f64
    %u = arith.addf %p, %t fastmath<reassoc,contract,nsz> : f64
    scf.yield %u : f64
  }
  memref.store %total, %c[%zero] : memref<2xf64>
"""
CHOICES = SEQUENTIAL + """
    %h = arith.constant 0.5 : f64
    %less = arith.cmpf olt, %q, %h : f64
    %sq = arith.constant 2.0 : f64
    %w = math.powf %q, %sq : f64
    %v = math.exp %q : f64
    %b = arith.select %less, %w, %v : f64
    %g = arith.maximumf %b, %x0 : f64
    %d = arith.subf %first, %g : f64
    memref.store %d, %y[%j] : memref<?xf64>
  }
"""
PARALLEL = """
  "scf.parallel"(%lo, %n, %one) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
  ^bb0(%j: index):""" + PAIR + """
    memref.store %q, %y[%j] : memref<?xf64>
    scf.reduce
  }) : (index, index, index) -> ()
"""
TWO_DEEP = """
  "scf.parallel"(%zero, %lo, %two, %n, %one, %one) <{operandSegmentSizes = array<i32: 2, 2, 2, 0>}> ({
  ^bb0(%i: index, %j: index):""" + PAIR + """
    memref.store %q, %z[%i, %j] : memref<2x?xf64>
    scf.reduce
  }) : (index, index, index, index, index, index) -> ()
"""
NEIGHBOUR = SEQUENTIAL + """
    %k = arith.subi %j, %one : index
    %y0 = memref.load %y[%k] : memref<?xf64>
    %y1 = arith.addf %y0, %q : f64
    memref.store %y1, %y[%j] : memref<?xf64>
  }
"""
WRITTEN_THEN_READ = SEQUENTIAL + """
    memref.store %q, %y[%j] : memref<?xf64>
    %y0 = memref.load %y[%j] : memref<?xf64>
    %y1 = arith.divf %y0, %r : f64
    %z0 = arith.addf %y1, %y0 : f64
    memref.store %z0, %z[%one, %j] : memref<2x?xf64>
  }
"""
READ_FROM_ONE_PLACE = SEQUENTIAL + """
    %y0 = memref.load %y[%one] : memref<?xf64>
    %y1 = arith.addf %y0, %q : f64
    memref.store %y1, %y[%j] : memref<?xf64>
  }
"""
LAST_ONE = SEQUENTIAL + """
    memref.store %q, %c[%zero] : memref<2xf64>
  }
"""
PRODUCT_CARRIED = "%total = scf.for %j = %lo to %n step %one iter_args(%t = %start) -> (f64) {" + PAIR + """
    %u = arith.mulf %q, %t fastmath<reassoc,contract,nsz> : f64
    scf.yield %u : f64
  }
  memref.store %total, %c[%zero] : memref<2xf64>
"""
IN_ORDER = CARRIED.replace("%u = arith.addf %p, %t fastmath<reassoc,contract,nsz>", "%u = arith.addf %p, %t")
EVERY_OTHER = SEQUENTIAL.replace("step %one", "step %two") + """
    memref.store %q, %y[%j] : memref<?xf64>
  }
"""
SPREAD = SEQUENTIAL + """
    %k = arith.divsi %j, %two : index
    memref.store %q, %y[%k] : memref<?xf64>
  }
"""

TAKEN = {"cells and rows": CELLS_AND_ROWS, "carried": CARRIED, "choices": CHOICES, "parallel": PARALLEL,
         "two deep": TWO_DEEP}  # fmt: skip
REFUSED = {
    "neighbour": NEIGHBOUR, "written then read": WRITTEN_THEN_READ, "one place": READ_FROM_ONE_PLACE, "last": LAST_ONE,
    "product": PRODUCT_CARRIED, "in order": IN_ORDER, "every other": EVERY_OTHER, "spread": SPREAD,
}  # fmt: skip


def run(kernel: Any, modules: Any, lo: int, n: int) -> list[Floats]:
    rng = np.random.default_rng(n)
    x = rng.uniform(0.2, 3, n + 9)
    x[rng.integers(0, n + 9)] = 0.0  # one quotient is no number, or infinite
    y, z, c = rng.standard_normal(n + 9), rng.standard_normal((2, n + 9)), rng.standard_normal(2)
    kernel([lo, n, x, y, z, c, modules.status()])
    return [y, z, c]


@pytest.mark.parametrize("kind", [*TAKEN, *REFUSED])
def test_as_plain_loops(modules: Any, kind: str) -> None:
    text = HEAD + {**TAKEN, **REFUSED}[kind].replace("{", "{{").replace("}", "}}") + TAIL.replace("}", "}}")
    ordered, relaxed = (compile_module(modules.parse(text.format(gather=g)), threads=2) for g in ("ordered", "relaxed"))
    assert ("rsqrt14" in relaxed.asm) == (kind in TAKEN)
    for n in (*range(1, 20), 33, 100, 50_001):  # the last one is shared by two threads where loops are parallel
        for found, expected in zip(run(relaxed, modules, 1, n), run(ordered, modules, 1, n), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_points_that_coincide_and_infinite_distances() -> None:
    """Root and quotient are exceptions in some lanes: as the interpreter has them."""
    n = 21
    rng = np.random.default_rng(8)
    points, wanted = rng.standard_normal((n, 2)), rng.uniform(0.5, 2, (n - 1, n - 1))
    points[7], wanted[3, 11], wanted[15, 16] = points[2], np.inf, np.nan
    gradient = upl.grad(upl.load("examples/mds.upl"), of="Stress", wrt="X")
    engines = [upl.compile(gradient, K=2), upl.compile(gradient, engine="native", K=2)]
    one, two = (f(X=points, D=wanted) for f in engines)
    assert np.isnan(one["d_X"]).any() and not np.isnan(one["d_X"]).all()
    for name in one:
        np.testing.assert_allclose(two[name], one[name], rtol=1e-12)
