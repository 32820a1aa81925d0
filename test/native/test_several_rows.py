"""Loops that fold rows into one take several rows at once, where elements of the row do not depend on each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from upl_mlir.engines.native.backend import compile_module
from upl_mlir.engines.native.llvm import nests

Floats = NDArray[np.float64]

HEAD = """
func.func @f(%lo: index, %n: index, %m: index, %b: memref<?xf64>, %x: memref<?x?xf64>, %y: memref<?xf64>,
    %z: memref<?x?xf64>, %status: memref<i64>) attributes {upl.gather = "ordered"} {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  scf.for %r = %lo to %n step %one {
"""
ROW = """
    "scf.parallel"(%zero, %m, %one) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
    ^bb0(%s: index):
      %x0 = memref.load %x[%r, %s] : memref<?x?xf64>
"""
TAIL = """
      scf.reduce
    }) : (index, index, index) -> ()
  }
  func.return
}
"""
GREATEST = ROW + """
      %b0 = memref.load %b[%r] : memref<?xf64>
      %v = arith.addf %b0, %x0 : f64
      %y0 = memref.load %y[%s] : memref<?xf64>
      %y1 = arith.maximumf %y0, %v : f64
      memref.store %y1, %y[%s] : memref<?xf64>
"""
TWO_SUMS = "    %b0 = memref.load %b[%r] : memref<?xf64>\n" + ROW + """
      %v = arith.mulf %b0, %x0 : f64
      %y0 = memref.load %y[%s] : memref<?xf64>
      %y1 = arith.addf %y0, %v : f64
      memref.store %y1, %y[%s] : memref<?xf64>
      %z0 = memref.load %z[%one, %s] : memref<?x?xf64>
      %z1 = arith.subf %z0, %x0 : f64
      memref.store %z1, %z[%one, %s] : memref<?x?xf64>
"""
OWN_ROWS = GREATEST.replace("%y[%s] : memref<?xf64>", "%z[%r, %s] : memref<?x?xf64>")
READS_WHAT_IT_FOLDS = GREATEST.replace("%b[%r]", "%y[%zero]").replace("%zero, %m,", "%zero, %one,")
BEFORE_THE_ROW = "    %b0 = memref.load %y[%one] : memref<?xf64>\n" + GREATEST.replace(
    "      %b0 = memref.load %b[%r] : memref<?xf64>\n", ""
).replace("(%zero, %m,", "(%one, %m,")
TRIANGLE = GREATEST.replace("%zero, %m,", "%zero, %r,")
LAST_ROW = ROW + "      memref.store %x0, %y[%s] : memref<?xf64>\n"

TAKEN = {"greatest": GREATEST, "two sums": TWO_SUMS}
REFUSED = {
    "own rows": OWN_ROWS, "reads what it folds": READS_WHAT_IT_FOLDS, "before the row": BEFORE_THE_ROW,
    "triangle": TRIANGLE, "last row": LAST_ROW,
}  # fmt: skip


def by_hand(kind: str, lo: int, n: int, m: int, b: Floats, x: Floats, y: Floats, z: Floats) -> None:
    for r in range(lo, n):
        match kind:
            case "greatest":
                y[:m] = np.maximum(y[:m], b[r] + x[r, :m])
            case "two sums":
                y[:m] += b[r] * x[r, :m]
                z[1, :m] -= x[r, :m]
            case "own rows":
                z[r, :m] = np.maximum(z[r, :m], b[r] + x[r, :m])
            case "reads what it folds":
                y[0] = max(y[0], y[0] + x[r, 0])
            case "before the row":
                y[1:m] = np.maximum(y[1:m], y[1] + x[r, 1:m])
            case "triangle":
                y[:r] = np.maximum(y[:r], b[r] + x[r, :r])
            case _:
                y[:m] = x[r, :m]


@pytest.mark.parametrize("kind", [*TAKEN, *REFUSED])
def test_as_by_hand(modules: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folding, taken = nests.folding, []

    def noted(*args: Any) -> Any:
        found = folding(*args)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(nests, "folding", noted)
    kernel = compile_module(modules.parse(HEAD + {**TAKEN, **REFUSED}[kind] + TAIL))
    assert taken == [kind in TAKEN]
    rng = np.random.default_rng(3)
    for lo, n, m in ((0, 0, 3), (2, 1, 3), (1, 2, 5), (0, 4, 1), (1, 8, 21), (3, 9, 70), (0, 13, 7)):
        b, x, y, z = (rng.standard_normal(s) for s in (15, (15, 80), 80, (15, 80)))
        wanted = [y.copy(), z.copy()]
        by_hand(kind, lo, n, m, b, x, *wanted)
        kernel([lo, n, m, b, x, y, z, modules.status()])
        for found, w in zip((y, z), wanted, strict=True):
            assert found.tobytes() == w.tobytes(), (lo, n, m)
