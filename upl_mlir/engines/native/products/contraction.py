"""linalg.generic as LLVM IR: products of two arrays by the functions of `gemm.py` and `thin.py`, the rest as loops.

A product is a generic whose body is ``out + a*b``.  Its dimensions fall into groups by the arrays that they index:

| group | in A | in B | in C |
|---|---|---|---|
| batch | × | × | × |
| m | × | | × |
| n | | × | × |
| k | × | × or not | |

Indices are affine, so a place in an array is a sum of one part for each dimension: a convolution `A[y+dy, x+dx]` has y, x in
one group and dy, dx in another, and is a product like any other.  Which way is taken is decided when the kernel runs, by
the sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type, Float64Type, FloatAttr
from xdsl.dialects.linalg.attrs import IteratorType
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr

from upl_mlir.engines.native.llvm.emitter import Emitter
from upl_mlir.engines.native.llvm.text import llvm_type
from upl_mlir.engines.native.llvm.values import View
from upl_mlir.engines.native.products.affine import linear
from upl_mlir.engines.native.products.borders import Border, border_of
from upl_mlir.engines.native.products.gemm import Panels
from upl_mlir.engines.native.products.tables import MAX_DIMS
from upl_mlir.engines.native.products.tiles import TileFormat

THIN_K = 1024
"""How much of the summed index `thin` takes at a time. Chosen, no measurement is on record."""
FEW_PRODUCTS = 256
"""Multiplications of one contraction below which plain loops are as fast as a call. No measurement is on record."""
PACKED_PRODUCTS = 1_500
"""From so many products on, packing is better than plain loops. No measurement is on record."""
MANY_PRODUCTS = 40_000
"""From so many products on, packing is better than the ways of `thin.py` too. No measurement is on record."""
MANY_MORE = 400_000
"""The same where B stays in the first-level cache. No measurement is on record."""


@dataclass(frozen=True)
class Operand:
    """An array of a generic: its view, and the stride of each loop dimension in it; `start` is the place of index 0.

    `together` holds the pairs of dimensions that run along one axis, as those of windows do.
    """

    view: View
    strides: tuple[str, ...]
    start: str
    together: tuple[tuple[int, int], ...] = ()

    def uses(self, d: int) -> bool:
        """Whether the dimension indexes the array."""
        return self.strides[d] != "0"


@dataclass(frozen=True)
class Nest:
    """The loops of a generic: sizes of the dimensions, which of them are summed over, and the operands (outputs last)."""

    sizes: tuple[str, ...]
    summed: tuple[bool, ...]
    operands: tuple[Operand, ...]
    block: Block
    border: Border | None = None
    """What is known of zeros."""


def nest_of(e: Emitter, op: GenericOp) -> Nest:
    """The loops of a generic.  Raises UplError (UPL1820) for indices that are not affine."""
    maps = [a.data for a in op.indexing_maps]
    dims = maps[0].num_dims
    sizes: list[str | None] = [None] * dims
    operands: list[Operand] = []
    for value, m in zip((*op.inputs, *op.outputs), maps, strict=True):
        view = e.view(value)
        strides, start, together = ["0"] * dims, "0", list[tuple[int, int]]()
        for axis, (expr, stride) in enumerate(zip(m.results, view.strides, strict=True)):
            coefficients, constant = linear(expr, dims)
            together += combinations((d for d, factor in enumerate(coefficients) if factor), 2)
            for d, factor in enumerate(coefficients):
                if factor:
                    strides[d] = e.code.add(strides[d], e.code.mul(str(factor), stride))
            if isinstance(expr, AffineDimExpr) and sizes[expr.position] is None:
                sizes[expr.position] = view.sizes[axis]
            start = e.code.add(start, e.code.mul(str(constant), stride))
        operands.append(Operand(view, tuple(strides), start, tuple(together)))
    assert None not in sizes, "the verifier wants an operand for each dimension that has it as an index of its own"
    summed = tuple(kind.data == IteratorType.REDUCTION for kind in op.iterator_types)
    return Nest(tuple(cast(list[str], sizes)), summed, tuple(operands), op.body.block, border_of(e, op, summed))


def filled_before(op: Operation | None) -> FillOp | None:
    """The filling with zeros of a generic's result, if it stands right before it: a product need not do it then."""
    before = op.prev_op if isinstance(op, GenericOp) else None
    if not isinstance(before, FillOp) or list(before.outputs) != list(cast(GenericOp, op).outputs):
        return None
    start = before.inputs[0].owner
    zero = isinstance(start, arith.ConstantOp) and isinstance(start.value, FloatAttr) and start.value.value.data == 0
    return before if zero else None


def emit_fill(e: Emitter, op: FillOp) -> None:
    """Write a filling, unless the next operation sees to it."""
    if filled_before(op.next_op) is not op:
        fill(e, e.view(op.outputs[0]), e.text(op.inputs[0]))


def fill(e: Emitter, view: View, value: str, index: tuple[str, ...] = ()) -> None:
    """Set all elements of a view."""
    if len(index) == len(view.sizes):
        view.store(e.code, index, value)
        return
    with e.code.loop("0", view.sizes[len(index)]) as i:
        fill(e, view, value, (*index, i))


def emit_loops(e: Emitter, nest: Nest) -> None:
    """Plain loops.  Sums keep their order; loops over elements of the result move so that the innermost one is best."""
    kept = [d for d, s in enumerate(nest.summed) if not s]
    order = [*kept, *(d for d, s in enumerate(nest.summed) if s)]

    def consecutive(d: int) -> bool:
        return all(o.strides[d] in ("0", "1") for o in nest.operands)

    if not (order and nest.summed[order[-1]] and consecutive(order[-1])):
        inner = next((d for d in kept if consecutive(d) and nest.operands[-1].uses(d)), None)
        if inner is not None:
            order.remove(inner)
            order.append(inner)
    _loops(e, nest, order, [o.start for o in nest.operands])


def _loops(e: Emitter, nest: Nest, order: Sequence[int], places: list[str]) -> None:
    if not order:
        _once(e, nest, places)
        return
    d, *rest = order
    with e.code.loop("0", nest.sizes[d]) as i:
        inner = [e.code.add(p, e.code.mul(i, o.strides[d])) for p, o in zip(places, nest.operands, strict=True)]
        _loops(e, nest, rest, inner)


def _once(e: Emitter, nest: Nest, places: list[str]) -> None:
    """The body for one point: read, compute, write."""
    at = [
        View(o.view.pointer, o.view.element, (), (), o.view.root).shifted(e.code, p)
        for o, p in zip(nest.operands, places, strict=True)
    ]
    for arg, view in zip(nest.block.args, at, strict=True):
        if arg.uses:
            e.values[arg] = view.load(e.code, ())
    results = e.body(nest.block)
    for view, value in zip(at[-len(results) :], results, strict=True):
        view.store(e.code, (), value)


@dataclass(frozen=True)
class Product:
    """C += A·B with its dimensions in groups; A and B so that consecutive elements of C go with consecutive ones of B."""

    nest: Nest
    f: TileFormat
    a: Operand
    b: Operand
    c: Operand
    batch: tuple[int, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    free: bool
    """Whether the sum may be split among lanes."""
    anew: bool
    """Whether what stands in C does not count."""


def product_of(e: Emitter, nest: Nest, *, anew: bool) -> Product | None:
    """The generic as a product, None if it is not one."""
    factors = _factors(nest.block)
    if factors is None or len(nest.operands) != 3 or not any(nest.summed):
        return None
    (first, second), fused, free = factors
    a, b, c = nest.operands[first], nest.operands[second], nest.operands[2]
    real = llvm_type(c.view.element)
    dims = range(len(nest.sizes))
    if any(not c.uses(d) and not nest.summed[d] for d in dims) or any(c.uses(d) and nest.summed[d] for d in dims):
        return None
    last = next((d for d in dims if c.strides[d] == "1"), None)
    if last is not None and a.uses(last) and not b.uses(last):
        a, b = b, a
    group: dict[str, list[int]] = {"batch": [], "m": [], "n": [], "k": []}
    for d in dims:
        if nest.summed[d]:
            group["k"].append(d)
        else:
            group["batch" if a.uses(d) and b.uses(d) else "n" if b.uses(d) else "m"].append(d)
    if any(len(g) > MAX_DIMS for g in group.values()):
        return None
    library = e.library
    f = TileFormat(real, library.vector_bytes // (8 if real == "double" else 4), library.registers, fused)
    batch, m, n, k = (tuple(group[g]) for g in ("batch", "m", "n", "k"))
    return Product(nest, f, a, b, c, batch, m, n, k, free, anew)


def _factors(block: Block) -> tuple[tuple[int, int], bool, bool] | None:
    """For a body ``out + a*b``: which arguments a and b are, whether the product may be fused, whether the sum is free."""
    ops = list(block.ops)
    if len(ops) != 3 or len(block.args) != 3:
        return None
    times, plus, last = ops
    if (
        not isinstance(times, arith.MulfOp)
        or not isinstance(plus, arith.AddfOp)
        or tuple(last.operands) != (plus.result,)
    ):
        return None
    out = block.args[2]
    if {plus.lhs, plus.rhs} != {out, times.result} or not isinstance(out.type, Float64Type | Float32Type):
        return None
    inputs: list[SSAValue] = list(block.args[:2])
    if times.lhs not in inputs or times.rhs not in inputs:
        return None
    allowed = [{cast(Any, flag).value for flag in op.fastmath.data} for op in (times, plus)]
    places = (inputs.index(times.lhs), inputs.index(times.rhs))
    return places, all("contract" in flags for flags in allowed), "reassoc" in allowed[1]


def panel_bytes(op: GenericOp) -> int:
    """Bytes of scratch that a generic wants whatever its sizes (the largest format decides)."""
    return max(
        Panels(TileFormat(real, lanes, 32, True)).offsets["end"] for real, lanes in (("double", 8), ("float", 16))
    )
