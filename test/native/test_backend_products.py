"""Products of arrays (linalg.generic) as machine code, against numpy: every way they can be computed, and its edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr
from xdsl.dialects.linalg.ops import FillOp, GenericOp

from upl_mlir.diagnostics import UplError
from upl_mlir.engines.native.backend import compile_module
from upl_mlir.engines.native.target import Machine

Floats = NDArray[Any]
FORMATS = {"f64": (np.float64, 1e-15), "f32": (np.float32, 5e-7)}
RELAXED = " fastmath<reassoc,contract,nsz>"


def _random(seed: int, *shape: int, dtype: Any = np.float64) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _run(kernel: Any, modules: Any, a: Floats, b: Floats, c: Floats) -> Floats:
    out = c.copy()
    kernel.run([a, b, out, modules.status()])
    return out


# Small ones by plain loops, few rows, one row, one column, just a tile, tiles and a rest, several cache blocks of each
# kind, and nothing at all.
SHAPES = [
    (1, 1, 1), (3, 5, 7), (4, 4, 5), (1, 130, 64), (130, 1, 64), (2, 300, 1500), (9, 40, 20), (24, 32, 60), (61, 67, 71),
    (250, 17, 40), (13, 1100, 300), (300, 33, 513), (64, 10, 64), (1, 300, 37), (0, 4, 4), (4, 0, 4), (4, 4, 0),
]  # fmt: skip


@pytest.mark.parametrize("flags", [RELAXED, ""], ids=["relaxed", "ordered"])
@pytest.mark.parametrize("type_", FORMATS)
@pytest.mark.parametrize("layout", ["nn", "tn", "nt", "tt"])
def test_matrix_products(modules: Any, machine: Machine, layout: str, type_: str, flags: str) -> None:
    dtype, unit = FORMATS[type_]
    a_map = "(i,j,k)->(k,i)" if layout[0] == "t" else "(i,j,k)->(i,k)"
    b_map = "(i,j,k)->(j,k)" if layout[1] == "t" else "(i,j,k)->(k,j)"
    module = modules.product([a_map, b_map, "(i,j,k)->(i,j)"], "ppr", type_, flags)
    kernel = compile_module(module, machine=machine)
    for m, n, k in SHAPES:
        a, b, c = (_random(s, *shape, dtype=dtype) for s, shape in enumerate(((m, k), (k, n), (m, n))))
        stored_a = np.ascontiguousarray(a.T) if layout[0] == "t" else a
        stored_b = np.ascontiguousarray(b.T) if layout[1] == "t" else b
        found = _run(kernel, modules, stored_a, stored_b, c)
        exact = c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
        # each of the k roundings is relative to a partial sum, which is below the sum of absolute values
        size = np.abs(c.astype(np.float64)) + np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
        assert (np.abs(found - exact) <= unit * (k + 2) * size).all(), (m, n, k)


@pytest.mark.parametrize(
    "shape", [(3, 5, 7), (24, 32, 60), (61, 67, 71), (30, 40, 600), (2, 64, 1100), (1, 300, 37), (1, 700, 300)]
)
def test_ordered_products_are_those_of_plain_loops(modules: Any, machine: Machine, shape: tuple[int, int, int]) -> None:
    """Bit for bit: no reordering and no fusing, whatever the way."""
    m, n, k = shape
    kernel = compile_module(
        modules.product(["(i,j,k)->(i,k)", "(i,j,k)->(k,j)", "(i,j,k)->(i,j)"], "ppr", flags=""), machine=machine
    )
    a, b, c = _random(0, m, k), _random(1, k, n), _random(2, m, n)
    expected = c.copy()
    for i in range(k):
        expected += a[:, i : i + 1] * b[i : i + 1, :]
    np.testing.assert_array_equal(_run(kernel, modules, a, b, c), expected)


@pytest.mark.parametrize("type_", FORMATS)
@pytest.mark.parametrize("layout", ["nn", "tn", "nt"])
def test_products_that_begin_anew(modules: Any, machine: Machine, layout: str, type_: str) -> None:
    """What stood in the result does not count after `linalg.fill`, whichever way is taken; without summands zeros stay."""
    dtype, unit = FORMATS[type_]
    a_map = "(i,j,k)->(k,i)" if layout[0] == "t" else "(i,j,k)->(i,k)"
    b_map = "(i,j,k)->(j,k)" if layout[1] == "t" else "(i,j,k)->(k,j)"
    module = modules.product([a_map, b_map, "(i,j,k)->(i,j)"], "ppr", type_, RELAXED)
    generic = next(op for op in module.walk() if isinstance(op, GenericOp))
    start = arith.ConstantOp(FloatAttr(0.0, generic.body.block.args[0].type))
    fill = FillOp([start.result], generic.outputs, res=[])
    assert generic.parent is not None
    generic.parent.insert_ops_before([start, fill], generic)
    kernel = compile_module(module, machine=machine)
    for m, n, k in SHAPES:
        a, b = (_random(s, *shape, dtype=dtype) for s, shape in enumerate(((m, k), (k, n))))
        stored_a = np.ascontiguousarray(a.T) if layout[0] == "t" else a
        stored_b = np.ascontiguousarray(b.T) if layout[1] == "t" else b
        found = _run(kernel, modules, stored_a, stored_b, np.full((m, n), np.nan, dtype))
        exact = a.astype(np.float64) @ b.astype(np.float64)
        size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
        assert (np.abs(found - exact) <= unit * (k + 2) * size).all(), (m, n, k)


CONVOLUTION = ["(n,o,y,x,c,p,q)->(n,c,y+p,x+q)", "(n,o,y,x,c,p,q)->(o,c,p,q)", "(n,o,y,x,c,p,q)->(n,o,y,x)"]
CONVOLUTION_BY_KERNEL = [
    "(o,c,p,q,n,y,x)->(n,o,y,x)", "(o,c,p,q,n,y,x)->(n,c,y+p,x+q)", "(o,c,p,q,n,y,x)->(o,c,p,q)",
]  # fmt: skip
IMAGES = [(2, 8, 5, 5, 8), (2, 3, 9, 11, 7), (1, 1, 3, 3, 1), (2, 5, 20, 33, 30), (1, 2, 6, 40, 3)]


@pytest.mark.parametrize("image", IMAGES)
def test_convolutions(modules: Any, machine: Machine, image: tuple[int, ...]) -> None:
    n, c, h, w, o = image
    x, kernel, out = _random(0, n, c, h, w), _random(1, o, c, 3, 3), _random(2, n, o, h - 2, w - 2)
    windows = sliding_window_view(x, (3, 3), (2, 3))
    found = _run(compile_module(modules.product(CONVOLUTION, "pppprrr"), machine=machine), modules, x, kernel, out)
    np.testing.assert_allclose(found, out + np.einsum("ncyxpq,ocpq->noyx", windows, kernel), rtol=1e-12, atol=1e-12)
    module = modules.product(CONVOLUTION_BY_KERNEL, "pppprrr")
    found = _run(compile_module(module, machine=machine), modules, out, x, kernel)
    expected = kernel + np.einsum("ncyxpq,noyx->ocpq", windows, out)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-11)


def test_strided_and_reversed_convolutions(modules: Any) -> None:
    x, w = _random(0, 3, 101), _random(1, 5, 3, 4)
    strided = modules.product(["(o,y,c,p)->(c,2*y+p)", "(o,y,c,p)->(o,c,p)", "(o,y,c,p)->(o,y)"], "pprr")
    windows = sliding_window_view(x, 4, 1)
    found = _run(compile_module(strided), modules, x, w, np.zeros((5, 49)))
    np.testing.assert_allclose(found, np.einsum("cyp,ocp->oy", windows[:, : 2 * 49 : 2], w), rtol=1e-12, atol=1e-12)
    turned = modules.product(["(o,y,c,p)->(c,y-p+3)", "(o,y,c,p)->(o,c,p)", "(o,y,c,p)->(o,y)"], "pprr")
    found = _run(compile_module(turned), modules, x, w, np.zeros((5, 98)))
    expected = np.einsum("cyp,ocp->oy", windows[:, :, ::-1], w)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("maps", "kinds", "subscripts", "shapes"),
    [
        (["(b,i,j,k)->(b,i,k)", "(b,i,j,k)->(b,k,j)", "(b,i,j,k)->(b,i,j)"], "pppr",
         "bik,bkj->bij", [(3, 30, 50), (3, 50, 40)]),
        (["(b,i,j,k)->(i,k,b)", "(b,i,j,k)->(k,j,b)", "(b,i,j,k)->(i,j,b)"], "pppr",
         "ikb,kjb->ijb", [(3, 5, 40), (5, 4, 40)]),
        (["(i,k)->(i,k)", "(i,k)->(k)", "(i,k)->(i)"], "pr", "ik,k->i", [(300, 200), (200,)]),
        (["(i,k)->(k,i)", "(i,k)->(k)", "(i,k)->(i)"], "pr", "ki,k->i", [(200, 300), (200,)]),
        (["(k)->(k)", "(k)->(k)", "(k)->()"], "r", "k,k->", [(1000,), (1000,)]),
        (["(i,k,l)->(i,k,l)", "(i,k,l)->(l,k)", "(i,k,l)->(i)"], "prr", "ikl,lk->i", [(7, 40, 30), (30, 40)]),
        (["(i,j,k)->(i,k)", "(i,j,k)->(j,k)", "(i,j,k)->(j,i)"], "ppr", "ik,jk->ji", [(30, 70), (40, 70)]),
        (["(i,j,k)->(i,k)", "(i,j,k)->(j)", "(i,j,k)->(i,j)"], "ppr", "ik,j->ij", [(9, 30), (50,)]),
        (["(k,i,j)->(i,k)", "(k,i,j)->(k,j)", "(k,i,j)->(j,i)"], "rpp", "ik,kj->ji", [(33, 70), (70, 40)]),
    ],
)  # fmt: skip
def test_other_contractions(modules: Any, maps: list[str], kinds: str, subscripts: str, shapes: list[Any]) -> None:
    a, b = (_random(i, *shape) for i, shape in enumerate(shapes))
    exact = np.einsum(subscripts, a, b)
    c = _random(2, *exact.shape)
    for flags in (RELAXED, ""):
        kernel = compile_module(modules.product(maps, kinds, flags=flags))
        np.testing.assert_allclose(_run(kernel, modules, a, b, c), c + exact, rtol=1e-12, atol=1e-12)


def test_products_of_views_and_scratch(modules: Any) -> None:
    """A column block of a larger array times its transpose, into scratch, then copied."""
    view = "memref<?x3xf64, strided<[8, 1], offset: 2>>"
    kernel = modules.kernel(f"""
func.func @f(%x: memref<?x8xf64>, %y: memref<?x?xf64>, %status: memref<i64>) {{
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f64
  %c1 = arith.constant 1 : index
  %n = memref.dim %x, %c0 : memref<?x8xf64>
  %v = memref.subview %x[0, 2] [%n, 3] [1, 1] : memref<?x8xf64> to {view}
  %t = memref.alloc(%n, %n) : memref<?x?xf64>
  scf.for %i = %c0 to %n step %c1 {{
    scf.for %j = %c0 to %n step %c1 {{
      memref.store %zero, %t[%i, %j] : memref<?x?xf64>
    }}
  }}
  linalg.generic {{indexing_maps = [affine_map<(i,j,k)->(i,k)>, affine_map<(i,j,k)->(j,k)>, affine_map<(i,j,k)->(i,j)>],
      iterator_types = ["parallel", "parallel", "reduction"]}} ins(%v, %v : {view}, {view}) outs(%t : memref<?x?xf64>) {{
  ^bb0(%a: f64, %b: f64, %c: f64):
    %p = arith.mulf %a, %b{RELAXED} : f64
    %s = arith.addf %c, %p{RELAXED} : f64
    linalg.yield %s : f64
  }}
  "memref.copy"(%t, %y) : (memref<?x?xf64>, memref<?x?xf64>) -> ()
  func.return
}}""")
    for n in (1, 7, 40):
        x, y = _random(n, n, 8), np.full((n, n), np.nan)
        kernel.run([x, y, modules.status()])
        np.testing.assert_allclose(y, x[:, 2:5] @ x[:, 2:5].T, rtol=1e-13, atol=1e-13)


def test_other_bodies_are_loops(modules: Any) -> None:
    kernel = modules.kernel("""
func.func @f(%x: memref<?x?xf64>, %y: memref<?xf64>, %status: memref<i64>) {
  linalg.generic {indexing_maps = [affine_map<(i,j)->(i,j)>, affine_map<(i,j)->(i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : memref<?x?xf64>) outs(%y : memref<?xf64>) {
  ^bb0(%a: f64, %c: f64):
    %s = arith.maximumf %c, %a : f64
    linalg.yield %s : f64
  }
  func.return
}""")
    x, y = _random(0, 9, 31), np.full(9, -np.inf)
    kernel.run([x, y, modules.status()])
    np.testing.assert_array_equal(y, x.max(axis=1))


def test_indices_that_are_not_affine_are_refused(modules: Any) -> None:
    with pytest.raises(UplError) as caught:
        compile_module(modules.product(["(i,k)->(i,k floordiv 2)", "(i,k)->(k)", "(i,k)->(i)"], "pr"))
    assert caught.value.diagnostics[0].code == "UPL1820"
