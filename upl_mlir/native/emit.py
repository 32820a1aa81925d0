"""A lowered function (func, scf, arith, math, memref) as LLVM IR text.

    func.func @f(%n : index, %x : memref<?xf64>, %status : memref<i64>)

becomes a private function with one `noalias` pointer for each array, its open sizes beside it, one `noalias` pointer for
each scratch array, and the one public function of `entry.py`, which unpacks the slots of a call and lays out scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects import func, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.native import tails, vector_loops
from upl_mlir.native.scalar_ops import EXTENDED, ROWS, extended
from upl_mlir.native.scratch import ScratchPlan, stack_words
from upl_mlir.native.text import Code, byte_size, llvm_type
from upl_mlir.native.tiles import TileFormat
from upl_mlir.native.values import Root, View, row_major, shape_of


@dataclass
class Library:
    """The functions and globals of the LLVM module under construction, besides the program's own."""

    threads: int
    vector_bytes: int
    registers: int
    ordered: bool = False
    """Elementary functions are libm's, as the interpreter's are."""
    shared: list[tuple[str, TileFormat]] = field(default_factory=list[tuple[str, TileFormat]])
    """The functions of `library.py` that the module calls."""
    functions: dict[str, str] = field(default_factory=dict[str, str])
    """Definitions and declarations by name; the order is that of the first use."""
    globals: list[str] = field(default_factory=list[str])
    metadata: list[str] = field(default_factory=list[str])
    tables: dict[str, View] = field(default_factory=dict[str, View])

    def math(self, name: str, type_: str) -> str:
        """The name of a function on reals; its definition (or declaration, where libm has it) joins the module."""
        from upl_mlir.native import libm, vector_math

        if self.ordered:
            full, texts = libm.definition(name, type_)
        else:
            full, texts = vector_math.definition(name, type_, self.vector_bytes)
        for key, body in texts.items():
            self.functions.setdefault(key, body)
        return full

    def independent(self, more: str) -> tuple[str, str]:
        """Metadata for a loop whose iterations touch no common memory: for accesses, and (with `more`) for its jump back."""
        group = len(self.metadata)
        loop = f'!{group + 1} = distinct !{{!{group + 1}, !{{!"llvm.loop.parallel_accesses", !{group}}}{more}}}'
        self.metadata += [f"!{group} = distinct !{{}}", loop]
        return f", !llvm.access.group !{group}", f", !llvm.loop !{group + 1}"

    def known(self, parts: str) -> str:
        """Metadata for the jump back of a loop, of which there is more to say; nothing where there is not."""
        if not parts:
            return ""
        at = len(self.metadata)
        self.metadata.append(f"!{at} = distinct !{{!{at}{parts}}}")
        return f", !llvm.loop !{at}"

    def rare(self) -> str:
        """Metadata for a conditional jump whose second way is hardly ever taken."""
        at = len(self.metadata)
        self.metadata.append(f'!{at} = !{{!"branch_weights", i32 4096, i32 1}}')
        return f", !prof !{at}"

    def uses(self, name: str, f: TileFormat) -> None:
        """Declare a function of `library.py`."""
        from upl_mlir.native.library import SHARED, symbol

        full = f"@{symbol(name, f)}"
        if full not in self.functions:
            self.shared.append((name, f))
            self.functions[full] = f"declare void {full}({SHARED[name].params})"


@dataclass
class Emitter:
    """Writes one LLVM function."""

    library: Library
    scratch: ScratchPlan
    code: Code = field(default_factory=Code)
    values: dict[SSAValue, Any] = field(default_factory=dict[SSAValue, Any])
    parallel: bool = True
    """Whether an `scf.parallel` met here may be given to several threads."""
    heap: list[str] = field(default_factory=list[str])
    """What the block being written has from the heap."""

    # -- the scope that rows see ---------------------------------------------------------------------------------
    def text(self, value: SSAValue) -> str:
        """The text of a scalar."""
        found = self.values[value]
        assert isinstance(found, str), value
        return found

    def view(self, value: SSAValue) -> View:
        """The view that a memref value is."""
        found = self.values[value]
        assert isinstance(found, View), value
        return found

    def texts(self, values: Iterable[SSAValue]) -> list[str]:
        """The texts of scalars."""
        return [self.text(v) for v in values]

    @property
    def ordered(self) -> bool:
        """As in `Library`."""
        return self.library.ordered

    def function(self, name: str, type_: str) -> str:
        """As `Library.math`."""
        return self.library.math(name, type_)

    # -- operations ----------------------------------------------------------------------------------------------
    def run(self, ops: Iterable[Operation]) -> None:
        """Write operations in order.  Raises UplError (UPL1820) for one that is not known."""
        for op in ops:
            row = ROWS.get(type(op))
            if row is not None:
                self.values[op.results[0]] = row(self, op)
            elif type(op) in STATEMENTS:
                STATEMENTS[type(op)](self, op)
            elif isinstance(op, EXTENDED):
                self.values[op.results[0]], self.values[op.results[1]] = extended(self, op)
            else:
                raise unknown(op)

    def stack(self, words: int) -> str:
        """Memory for 64-bit words on the stack of the function being written."""
        name = self.code.name("stack")
        self.code.entry.append(f"  {name} = alloca [{words} x i64], align 64")
        return name

    def body(self, block: Block) -> Sequence[SSAValue]:
        """Write the operations of a block; returns what its terminator hands on."""
        *ops, last = block.ops
        around, self.heap = self.heap, []
        self.run(ops)
        for pointer in self.heap:
            self.code.do(f"call void @free(ptr {pointer})")
        self.heap = around
        return last.operands


def unknown(op: Operation) -> Exception:
    """The error for an operation that native code does not know."""
    return error("UPL1820", f"native code does not know the operation `{op.name}`")


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
        from upl_mlir.native.parallel import emit_threaded

        emit_threaded(e, op)
    else:
        nest(e, op)


def nest(e: Emitter, op: scf.ParallelOp, depth: int = 0) -> None:
    """The loops of a parallel operation from `depth` inwards, one after the other."""
    if depth == len(op.lowerBound):
        e.body(op.body.block)
        return
    bounds = e.texts((op.lowerBound[depth], op.upperBound[depth], op.step[depth]))
    along(e, op, depth, *bounds)


def along(e: Emitter, op: scf.ParallelOp, depth: int, lower: str, upper: str, step: str) -> None:
    """The loops of a parallel operation from `depth` inwards, of which the first has these bounds."""
    if depth == len(op.lowerBound) - 1 and vector_loops.emitted(e, op, lower, upper, step) is not None:
        return
    with parallel_loop(e, op, depth, lower, upper, step) as iv:
        e.values[op.body.block.args[depth]] = iv
        nest(e, op, depth + 1)


@contextmanager
def parallel_loop(e: Emitter, op: scf.ParallelOp, depth: int, lower: str, upper: str, step: str) -> Generator[str]:
    """The loop of one dimension of a parallel operation; the innermost one is marked so that LLVM asks for no proof.

    Not if the body has loops of its own, or scratch, which all iterations share.
    """
    inside = [o for o in op.body.walk() if o.parent_op() is not None]
    plain = not any(
        isinstance(o, scf.ForOp | scf.WhileOp | scf.ParallelOp | GenericOp | FillOp | memref.AllocOp | memref.AllocaOp)
        for o in inside
    )
    if depth < len(op.lowerBound) - 1 or not plain:
        with e.code.loop(lower, upper, step) as iv:
            yield iv
        return
    e.code.access, note = e.library.independent("" if e.ordered else tails.metadata(op))
    with e.code.loop(lower, upper, step, note=note) as iv:
        yield iv
    e.code.access = ""


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
    from upl_mlir.native.contraction import emit_generic

    emit_generic(e, op)


def _fill(e: Emitter, op: FillOp) -> None:
    from upl_mlir.native.contraction import emit_fill

    emit_fill(e, op)


STATEMENTS: dict[type[Operation], Callable[[Emitter, Any], None]] = {
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
