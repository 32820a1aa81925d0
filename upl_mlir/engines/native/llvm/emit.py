"""A lowered function (func, scf, arith, math, memref) as LLVM IR text.

    func.func @f(%n : index, %x : memref<?xf64>, %status : memref<i64>)

becomes a private function with one `noalias` pointer for each array, its open sizes beside it, one `noalias` pointer for
each scratch array, and the one public function of `entry.py`, which unpacks the slots of a call and lays out scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects import func, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.ir import Attribute, Operation, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.engines.native.llvm import tails, vector_loops
from upl_mlir.engines.native.llvm.emitter import Emitter, Statement
from upl_mlir.engines.native.llvm.nests import nest
from upl_mlir.engines.native.llvm.parallel import emit_threaded
from upl_mlir.engines.native.llvm.scratch import stack_words
from upl_mlir.engines.native.llvm.text import byte_size, llvm_type
from upl_mlir.engines.native.llvm.values import Root, View, row_major, shape_of
from upl_mlir.engines.native.products.contraction import emit_fill, emit_loops, fill, filled_before, nest_of, product_of
from upl_mlir.engines.native.products.products import emit_product


# -- control -----------------------------------------------------------------------------------------------------
def _for(e: Emitter, op: scf.ForOp) -> None:
    c = e.code
    lower, upper, step = e.texts((op.lb, op.ub, op.step))
    found = vector_loops.emitted(e, op, lower, upper, step)
    if found is not None:
        e.values.update(zip(op.res, found, strict=True))
        return
    first = e.texts(op.iter_args)
    header, inside, done = c.label("for"), c.label("body"), c.label("done")
    before = c.block
    c.jump(header)
    c.begin(header)
    iv, *args = op.body.block.args
    counter = c.phi("i64", "iv")
    phis = [c.phi(llvm_type(a.type)) for a in args]
    e.values[iv] = counter.name
    e.values.update(zip(args, (p.name for p in phis), strict=True))
    c.branch(c.let(f"icmp slt i64 {counter.name}, {upper}", "c"), inside, done)
    c.begin(inside)
    after = e.texts(e.body(op.body.block))
    following = c.let(f"add nsw i64 {counter.name}, {step}", "iv")
    last = c.block
    c.do(f"br label %{header}{e.library.known('' if e.ordered else tails.metadata(op))}")
    counter.close((lower, before), (following, last))
    for phi, start, again in zip(phis, first, after, strict=True):
        phi.close((start, before), (again, last))
    c.begin(done)
    e.values.update(zip(op.res, (p.name for p in phis), strict=True))


def _if(e: Emitter, op: scf.IfOp) -> None:
    c = e.code
    yes, no, merge = c.label("then"), c.label("else"), c.label("endif")
    c.branch(e.text(op.cond), yes, no)
    ways: list[tuple[list[str], str]] = []
    for label, region in ((yes, op.true_region), (no, op.false_region)):
        c.begin(label)
        ways.append((e.texts(e.body(region.block)) if region.blocks else [], c.block))
        c.jump(merge)
    c.begin(merge)
    for i, result in enumerate(op.output):
        phi = c.phi(llvm_type(result.type))
        phi.close(*((given[i], block) for given, block in ways))
        e.values[result] = phi.name


def _while(e: Emitter, op: scf.WhileOp) -> None:
    c = e.code
    header, inside, done = c.label("while"), c.label("do"), c.label("done")
    before, first = c.block, e.texts(op.arguments)
    c.jump(header)
    c.begin(header)
    test, work = op.before_region.block, op.after_region.block
    phis = [c.phi(llvm_type(a.type)) for a in test.args]
    e.values.update(zip(test.args, (p.name for p in phis), strict=True))
    condition, *handed = e.texts(e.body(test))
    c.branch(condition, inside, done)
    c.begin(inside)
    e.values.update(zip(work.args, handed, strict=True))
    again = e.texts(e.body(work))
    for phi, start, value in zip(phis, first, again, strict=True):
        phi.close((start, before), (value, c.block))
    c.jump(header)
    c.begin(done)
    e.values.update(zip(op.res, handed, strict=True))


def _parallel(e: Emitter, op: scf.ParallelOp) -> None:
    if op.initVals:
        raise error("UPL1820", "native code knows no reductions of scf.parallel: use scf.for with iter_args")
    if e.parallel and e.library.threads > 1:
        emit_threaded(e, op)
    else:
        nest(e, op)


# -- memory ------------------------------------------------------------------------------------------------------
def _load(e: Emitter, op: memref.LoadOp) -> None:
    e.values[op.res] = e.view(op.memref).load(e.code, e.texts(op.indices))


def _store(e: Emitter, op: memref.StoreOp) -> None:
    e.view(op.memref).store(e.code, e.texts(op.indices), e.text(op.value))


def _alloc(e: Emitter, op: memref.AllocOp | memref.AllocaOp) -> None:
    t = op.memref.type
    sizes = shape_of(t, e.texts(op.dynamic_sizes))
    words = stack_words(op)
    place = e.stack(words) if words else e.scratch.places.get(op)
    if place is None:  # a size that is known only here: from the heap, freed at the end of the block
        place = _heap(e, t, sizes)
    e.values[op.memref] = View(place, t.element_type, sizes, row_major(e.code, sizes), Root(place))


def _heap(e: Emitter, t: MemRefType[Attribute], sizes: tuple[str, ...]) -> str:
    e.library.functions["malloc"] = "declare noalias ptr @malloc(i64)\ndeclare void @free(ptr)"
    total = str(byte_size(t.element_type))
    for n in sizes:
        total = e.code.mul(total, n)
    e.heap.append(e.code.let(f"call ptr @malloc(i64 {total})", "h"))
    return e.heap[-1]


def _dim(e: Emitter, op: memref.DimOp) -> None:
    index = e.text(op.index)
    e.values[op.result] = e.view(op.source).sizes[int(index)]


def _subview(e: Emitter, op: memref.SubviewOp) -> None:
    source = e.view(op.source)

    def listed(fixed: Any, given: Sequence[SSAValue]) -> list[str]:
        rest = iter(given)
        return [e.text(next(rest)) if n == DYNAMIC_INDEX else str(n) for n in fixed.get_values()]

    offsets = listed(op.static_offsets, op.offsets)
    sizes = listed(op.static_sizes, op.sizes)
    steps = listed(op.static_strides, op.strides)
    strides = [e.code.mul(a, b) for a, b in zip(source.strides, steps, strict=True)]
    target = op.result.type
    assert isinstance(target, MemRefType)
    kept = list(range(len(sizes)))
    if target.get_num_dims() < len(sizes):  # a rank-reducing view drops sizes 1
        extra = len(sizes) - target.get_num_dims()
        dropped = [i for i in kept if sizes[i] == "1"][:extra]
        kept = [i for i in kept if i not in dropped]
    e.values[op.result] = View(
        source.address(e.code, offsets), source.element, tuple(sizes[i] for i in kept),
        tuple(strides[i] for i in kept), source.root,
    )  # fmt: skip


def _copy(e: Emitter, op: memref.CopyOp) -> None:
    source, target = e.view(op.source), e.view(op.destination)

    def nest(index: list[str]) -> None:
        if len(index) == len(source.sizes):
            target.store(e.code, index, source.load(e.code, index))
            return
        with e.code.loop("0", source.sizes[len(index)], "1") as iv:
            nest([*index, iv])

    nest([])


def _cast(e: Emitter, op: memref.CastOp) -> None:
    e.values[op.dest] = e.view(op.source)


def _collapse(e: Emitter, op: memref.CollapseShapeOp) -> None:
    """A dense array as one long row."""
    source = e.view(op.src)
    total = "1"
    for n in source.sizes:
        total = e.code.mul(total, n)
    e.values[op.result] = View(source.pointer, source.element, (total,), ("1",), source.root, source.align)


def _get_global(e: Emitter, op: memref.GetGlobalOp) -> None:
    e.values[op.memref] = e.library.tables[op.name_.root_reference.data]


def _nothing(e: Emitter, op: Operation) -> None:
    """Scratch lives in the workspace: nothing to free."""


def _generic(e: Emitter, op: GenericOp) -> None:
    """A contraction: as a product where it is one, else as loops."""
    found = nest_of(e, op)
    filling = filled_before(op)
    product = product_of(e, found, anew=filling is not None)
    if product is None:
        if filling is not None:
            fill(e, e.view(filling.outputs[0]), e.text(filling.inputs[0]))
        emit_loops(e, found)
    else:
        emit_product(e, product)


def _fill(e: Emitter, op: FillOp) -> None:
    emit_fill(e, op)


STATEMENTS: dict[type[Operation], Statement] = {
    scf.ForOp: _for,
    scf.IfOp: _if,
    scf.WhileOp: _while,
    scf.ParallelOp: _parallel,
    memref.LoadOp: _load,
    memref.StoreOp: _store,
    memref.AllocOp: _alloc,
    memref.AllocaOp: _alloc,
    memref.DeallocOp: _nothing,
    memref.DimOp: _dim,
    memref.SubviewOp: _subview,
    memref.CopyOp: _copy,
    memref.CastOp: _cast,
    memref.CollapseShapeOp: _collapse,
    memref.GetGlobalOp: _get_global,
    GenericOp: _generic,
    FillOp: _fill,
    func.ReturnOp: _nothing,
}
