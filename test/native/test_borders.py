"""Products of a factor with zeros round it: those with zeros are left out, where the operation says that they make zeros."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from upl_mlir.engines.native.backend import Kernel
from upl_mlir.passes.loops.emit.boxes import FINITE

Floats = NDArray[Any]

TEXT = """
func.func @f(%before: index, %room: index, %x: memref<?x?x?x{real}>, %w: memref<?x?x?x{real}>, %y: memref<?x?x?x{real}>,
             %status: memref<i64>) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : {real}
  %images = memref.dim %x, %c0 : memref<?x?x?x{real}>
  %channels = memref.dim %x, %c1 : memref<?x?x?x{real}>
  %long = memref.dim %x, %c2 : memref<?x?x?x{real}>
  %copy = memref.alloc(%images, %channels, %room) : memref<?x?x?x{real}>
  linalg.fill ins(%zero : {real}) outs(%copy : memref<?x?x?x{real}>)
  %low = arith.addi %before, %c1 : index
  %high = arith.addi %low, %long : index
  "scf.parallel"(%c0, %images, %c1) <{{operandSegmentSizes = array<i32: 1, 1, 1, 0>}}> ({{
  ^bb0(%b: index):
    "scf.parallel"(%c0, %channels, %c1) <{{operandSegmentSizes = array<i32: 1, 1, 1, 0>}}> ({{
    ^bb1(%g: index):
      "scf.parallel"(%low, %high, %c1) <{{operandSegmentSizes = array<i32: 1, 1, 1, 0>}}> ({{
      ^bb2(%i: index):
        %from = arith.subi %i, %low : index
        %to = arith.subi %i, %c1 : index
        %v = memref.load %x[%b, %g, %from] : memref<?x?x?x{real}>
        memref.store %v, %copy[%b, %g, %to] : memref<?x?x?x{real}>
        scf.reduce
      }}) : (index, index, index) -> ()
      scf.reduce
    }}) : (index, index, index) -> ()
    scf.reduce
  }}) : (index, index, index) -> ()
  %view = memref.subview %copy[0, 0, {offset}] [%images, %channels, %room] [1, 1, 1]
    : memref<?x?x?x{real}> to memref<?x?x?x{real}, strided<[?, ?, 1], offset: ?>>
  linalg.fill ins(%zero : {real}) outs(%y : memref<?x?x?x{real}>)
  linalg.generic {{indexing_maps = [affine_map<(b,f,i,g,e) -> (b,g,{index})>, affine_map<(b,f,i,g,e) -> (g,f,e)>,
                                   affine_map<(b,f,i,g,e) -> (b,f,i)>],
                  iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}}
    ins(%view, %w : memref<?x?x?x{real}, strided<[?, ?, 1], offset: ?>>, memref<?x?x?x{real}>)
    outs(%y : memref<?x?x?x{real}>) attrs = {{{attributes}}} {{
  ^bb0(%p: {real}, %q: {real}, %s: {real}):
    %t = arith.mulf %p, %q fastmath<reassoc,contract,nsz> : {real}
    %u = arith.addf %s, %t fastmath<reassoc,contract,nsz> : {real}
    linalg.yield %u : {real}
  }}
  func.return
}}"""


@cache
def _text(real: str, *, back: bool, finite: bool) -> str:
    offset, index = ("%before", "i - e") if back else ("0", "i + e")
    return TEXT.format(real=real, offset=offset, index=index, attributes=FINITE if finite else "")


def _exact(x: Floats, w: Floats, before: int, room: int, out: int, *, back: bool) -> Floats:
    """The sums over what the factor has; nothing is added for what lies beyond it."""
    images, channels, long = x.shape
    del channels
    y = np.zeros((images, w.shape[1], out))
    for i in range(out):
        for e in range(w.shape[2]):
            at = (i + before - e if back else i + e) - before
            assert 0 <= at + before < room + before * back
            if 0 <= at < long:
                y[:, :, i] += np.einsum("bg,gf->bf", x[:, :, at].astype(float), w[:, :, e].astype(float))
    return y


# images, channels in and out, length of the factor, zeros before and behind, taps
SHAPES = [
    (2, 8, 16, 5, 2, 2, 3), (1, 8, 16, 40, 2, 2, 3), (3, 5, 9, 4, 4, 4, 5), (2, 7, 24, 3, 6, 0, 4), (2, 7, 24, 3, 0, 9, 4),
    (1, 3, 20, 2, 9, 9, 3), (2, 4, 33, 1, 3, 3, 7), (1, 500, 16, 7, 2, 2, 3), (300, 3, 8, 5, 2, 2, 3),
    (1, 6, 12, 30, 0, 0, 3),
]  # fmt: skip


@cache
def _kernel(make: Any, real: str, *, back: bool, finite: bool) -> Kernel:
    return make(_text(real, back=back, finite=finite))


def _run(kernel: Kernel, x: Floats, w: Floats, before: int, room: int, out: int) -> Floats:
    y = np.full((x.shape[0], w.shape[1], out), np.nan, x.dtype)
    kernel.run([before, room, x, w, y, np.zeros((), np.int64)])
    return y


def _place(shape: tuple[int, ...], *, back: bool) -> tuple[int, int, int]:
    """Zeros before the factor, the length of the copy, and of the result."""
    *_, long, before, behind, taps = shape
    room = before + long + behind
    out = room - taps + 1
    if back:  # result i meets i + before - e
        before = max(before, taps - 1)
        room, out = before + long + behind, long + behind
    return before, room, out


@pytest.mark.parametrize("back", [False, True], ids=["d+e", "d-e"])
@pytest.mark.parametrize(("real", "tolerance"), [("f64", 1e-12), ("f32", 2e-4)])
def test_sums_are_those_of_what_is_there(modules: Any, real: str, tolerance: float, *, back: bool) -> None:
    dtype = np.dtype(np.float64 if real == "f64" else np.float32)
    kernel = _kernel(modules.kernel, real, back=back, finite=True)
    rng = np.random.default_rng(7)
    for shape in SHAPES:
        images, channels, outs, long, *_, taps = shape
        before, room, out = _place(shape, back=back)
        x, w = (rng.standard_normal(s).astype(dtype) for s in ((images, channels, long), (channels, outs, taps)))
        found, expected = _run(kernel, x, w, before, room, out), _exact(x, w, before, room, out, back=back)
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * channels * taps, err_msg=str(shape))


@pytest.mark.parametrize("back", [False, True], ids=["d+e", "d-e"])
def test_zeros_are_left_out_only_where_they_make_zeros(modules: Any, *, back: bool) -> None:
    """An infinite kernel shows which products were made: 0 times infinity is NaN."""
    shape = (2, 8, 16, 5, 2, 2, 3)
    before, room, out = _place(shape, back=back)
    x, w = np.ones((2, 8, 5)), np.ones((8, 16, 3))
    w[:, :, 1] = np.inf
    exact = _exact(x, w, before, room, out, back=back)
    beyond = ~np.isinf(exact[0, 0])  # of the results, those whose middle tap meets a zero
    assert beyond.any() and not beyond.all()
    left_out = _run(_kernel(modules.kernel, "f64", back=back, finite=True), x, w, before, room, out)
    np.testing.assert_array_equal(left_out, exact)
    made = _run(_kernel(modules.kernel, "f64", back=back, finite=False), x, w, before, room, out)
    assert np.isnan(made[:, :, beyond]).all() and np.isinf(made[:, :, ~beyond]).all()
