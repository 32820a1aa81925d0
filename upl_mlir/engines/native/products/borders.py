"""Zeros round an operand of a product: which terms of a sum are products with such zeros, so that nobody need compute them.

A convolution's adjoint reads its factor through windows that reach beyond it, so the loops make a copy with zeros round it
(`passes/loops/emit/boxes.py`): an array that is filled with zeros, of which one box is then written.  Along an axis whose
index is a field plus or minus a summed index, ``d + e`` or ``d - e``, only some ``e`` meet the box, and they move along with
d.  Such an operation has the attribute `FINITE`: 0 times infinity would not be 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, FloatAttr
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.ir import Block, Operation, SSAValue

from upl_mlir.engines.native.llvm.emitter import Emitter
from upl_mlir.engines.native.products.affine import linear
from upl_mlir.passes.loops.emit.boxes import FINITE


@dataclass(frozen=True)
class Border:
    """Operand number `operand` is zero where not ``slope*d + first <= e < slope*d + behind``.

    d is the dimension `field` of the generic, e the dimension `summed`; `slope` is 1 or -1.
    """

    operand: int
    field: int
    summed: int
    slope: int
    first: str
    behind: str

    def last(self, e: Emitter, size: str) -> str:
        """The last d that meets all e, of which there are `size`; there may be none."""
        return e.code.sub(self.behind, size) if self.slope < 0 else e.code.sub("0", self.first)


def border_of(e: Emitter, op: GenericOp, summed: tuple[bool, ...]) -> Border | None:
    """The first axis of an input, along which there are zeros round what is not; None if none is known to have them."""
    if FINITE not in op.attributes:
        return None
    for number, value in enumerate(op.inputs):
        box = _written(op, value)
        if box is None:
            continue
        view, store = box
        for axis, expr in enumerate(op.indexing_maps.data[number].data.results):
            factors, constant = linear(expr, len(summed))
            used = [d for d, k in enumerate(factors) if k]
            ends = _ends(e, store, axis)
            if ends is None or len(used) != 2 or sum(summed[d] for d in used) != 1:
                continue
            d, k = sorted(used, key=lambda d: summed[d])
            if factors[d] != 1 or abs(factors[k]) != 1:
                continue
            begin = e.code.add(_offset(e, view, axis), str(constant))
            low, high = (e.code.sub(end, begin) for end in ends)
            if factors[k] < 0:
                low, high = e.code.sub("1", high), e.code.sub("1", low)
            return Border(number, d, k, -factors[k], low, high)
    return None


def _written(op: GenericOp, value: SSAValue) -> tuple[memref.SubviewOp, memref.StoreOp] | None:
    """For a view of an array that is zero but for what one store in loops of its own has written: the view and the store."""
    view = value.owner
    made = view.source.owner if isinstance(view, memref.SubviewOp) else None
    if not isinstance(view, memref.SubviewOp) or not isinstance(made, memref.AllocOp):
        return None
    users = [use.operation for use in made.memref.uses]
    stores = [u for u in users if isinstance(u, memref.StoreOp)]
    fills = [u for u in users if isinstance(u, FillOp)]
    if len(stores) != 1 or len(fills) != 1 or len(users) != 2 + sum(isinstance(u, memref.SubviewOp) for u in users):
        return None
    nothing = fills[0].inputs[0].owner
    zero = (
        isinstance(nothing, arith.ConstantOp) and isinstance(nothing.value, FloatAttr) and not nothing.value.value.data
    )
    writes: Operation = stores[0]
    while writes.parent is not op.parent:
        above = writes.parent_op()
        if not isinstance(above, scf.ParallelOp):
            return None
        writes = above
    ordered = fills[0].parent is op.parent and fills[0].is_before_in_block(writes) and writes.is_before_in_block(op)
    views = [u for u in users if isinstance(u, memref.SubviewOp)]
    read_only = all(isinstance(use.operation, GenericOp) and use.index < 2 for u in views for use in u.result.uses)
    plain = all(n == 1 for n in view.static_strides.get_values())
    return (view, stores[0]) if zero and ordered and read_only and plain else None


def _ends(e: Emitter, store: memref.StoreOp, axis: int) -> tuple[str, str] | None:
    """From where to where a store goes along an axis, if its index is that of a loop, or that less some number."""
    index, less = store.indices[axis], "0"
    if isinstance(index.owner, arith.SubiOp):
        given = e.values.get(index.owner.rhs)
        if not isinstance(given, str):
            return None
        index, less = index.owner.lhs, given
    loop = index.owner.parent_op() if isinstance(index.owner, Block) else None
    if not isinstance(loop, scf.ParallelOp) or len(loop.lowerBound) != 1:
        return None
    bounds = [e.values.get(loop.lowerBound[0]), e.values.get(loop.upperBound[0])]
    step = e.values.get(loop.step[0])
    if step != "1" or not all(isinstance(b, str) for b in bounds):
        return None
    low, high = (e.code.sub(str(b), less) for b in bounds)
    return low, high


def _offset(e: Emitter, view: memref.SubviewOp, axis: int) -> str:
    """Where a view begins along an axis."""
    fixed = list(view.static_offsets.get_values())
    if fixed[axis] != DYNAMIC_INDEX:
        return str(fixed[axis])
    return e.text(view.offsets[sum(n == DYNAMIC_INDEX for n in fixed[:axis])])
