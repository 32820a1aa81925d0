"""A lowered function (func, scf, arith, math, memref) as LLVM IR text.

    func.func @f(%n : index, %x : memref<?xf64>, %status : memref<i64>)

becomes a private function with one `noalias` pointer for each array, its open sizes beside it, one `noalias` pointer for
each scratch array, and the one public function of `entry.py`, which unpacks the slots of a call and lays out scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from xdsl.dialects import func, memref, scf
from xdsl.dialects.builtin import MemRefType, i1
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.ir import Attribute

from upl_mlir.diagnostics import error
from upl_mlir.engines.native.llvm import pipelined, tails, vector_loops
from upl_mlir.engines.native.llvm.chosen import chains, streams
from upl_mlir.engines.native.llvm.emitter import Emitter
from upl_mlir.engines.native.llvm.nests import faults_noted, innermost, nest, several_rows
from upl_mlir.engines.native.llvm.parallel import emit_threaded
from upl_mlir.engines.native.llvm.scratch import stack_words
from upl_mlir.engines.native.llvm.text import byte_size, llvm_type
from upl_mlir.engines.native.llvm.values import Root, View, row_major
from upl_mlir.engines.native.outside import EXCHANGE
from upl_mlir.engines.native.products.contraction import emit_fill, emit_loops, fill, filled_before, nest_of, product_of
from upl_mlir.engines.native.products.products import emit_product
from upl_mlir.passes.loops.emit.bits import guards_an_element


class FunctionEmitter(Emitter):
    """Writes each operation of a function."""

    # -- control -----------------------------------------------------------------------------------------------------
    def for_loop(self, op: scf.ForOp) -> None:
        behind = pipelined.lag(op)
        if behind is not None and self.parallel and self.library.threads > 1:
            if behind < 0:
                pipelined.alone(self, op)
            else:
                pipelined.emit_blocks(self, op, behind)
            return
        lower, upper, step = self.texts((op.lb, op.ub, op.step))
        found = vector_loops.emitted(self, op, lower, upper, step)
        if found is None:
            found = chains.emitted(self, op, lower, upper, step)
        if found is not None:
            self.values.update(zip(op.res, found, strict=True))
            return
        lower = several_rows(self, op, lower, upper, step)
        lower, first = streams.ahead(self, op, lower, upper, step, self.texts(op.iter_args))
        with faults_noted(self, op) if innermost(op) else nullcontext():
            self._rounds(op, lower, upper, step, first)

    def _rounds(self, op: scf.ForOp, lower: str, upper: str, step: str, first: Sequence[str]) -> None:
        """A loop, one round after the other; `first` are the values that it carries before the first one."""
        c = self.code
        header, inside, done = c.label("for"), c.label("body"), c.label("done")
        before = c.block
        c.jump(header)
        c.begin(header)
        iv, *args = op.body.block.args
        counter = c.phi("i64", "iv")
        phis = [c.phi(llvm_type(a.type)) for a in args]
        self.values[iv] = counter.name
        self.values.update(zip(args, (p.name for p in phis), strict=True))
        c.branch(c.let(f"icmp slt i64 {counter.name}, {upper}", "c"), inside, done)
        c.begin(inside)
        around, self.scalar_code = self.scalar_code, False
        after = self.body(op.body.block)
        self.scalar_code = around
        following = c.let(f"add nsw i64 {counter.name}, {step}", "iv")
        last = c.block
        c.do(f"br label %{header}{self.library.known('' if self.ordered else tails.metadata(op))}")
        counter.close((lower, before), (following, last))
        for phi, start, again in zip(phis, first, after, strict=True):
            phi.close((start, before), (again, last))
        c.begin(done)
        self.values.update(zip(op.res, (p.name for p in phis), strict=True))

    def branch(self, op: scf.IfOp) -> None:
        c = self.code
        if op in self.noted:
            word, number = self.noted[op]
            told = c.let(f"select i1 {self.text(op.cond)}, i64 {1 << number}, i64 0")
            found = c.let(f"or i64 {c.let(f'load i64, ptr {word}')}, {told}")
            c.do(f"store i64 {found}, ptr {word}")
            return
        yes, no, merge = c.label("then"), c.label("else"), c.label("endif")
        rare = guards_an_element(op)
        c.branch(self.text(op.cond), yes, no, self.library.rare() if rare else "")
        ways: list[tuple[list[str], str]] = []
        for label, region in ((yes, op.true_region), (no, op.false_region)):
            c.begin(label)
            if rare and label == no and op.output and op.output[-1].type == i1:
                c.do(APART)
            ways.append((self.body(region.block) if region.blocks else [], c.block))
            c.jump(merge)
        c.begin(merge)
        for i, result in enumerate(op.output):
            phi = c.phi(llvm_type(result.type))
            phi.close(*((given[i], block) for given, block in ways))
            self.values[result] = phi.name

    def while_loop(self, op: scf.WhileOp) -> None:
        c = self.code
        header, inside, done = c.label("while"), c.label("do"), c.label("done")
        before, first = c.block, self.texts(op.arguments)
        c.jump(header)
        c.begin(header)
        test, work = op.before_region.block, op.after_region.block
        phis = [c.phi(llvm_type(a.type)) for a in test.args]
        self.values.update(zip(test.args, (p.name for p in phis), strict=True))
        condition, *handed = self.body(test)
        c.branch(condition, inside, done)
        c.begin(inside)
        self.values.update(zip(work.args, handed, strict=True))
        around, self.scalar_code = self.scalar_code, True
        again = self.body(work)
        self.scalar_code = around
        for phi, start, value in zip(phis, first, again, strict=True):
            phi.close((start, before), (value, c.block))
        c.jump(header)
        c.begin(done)
        self.values.update(zip(op.res, handed, strict=True))

    def parallel_loop(self, op: scf.ParallelOp) -> None:
        if op.initVals:
            raise error("UPL1820", "native code knows no reductions of scf.parallel: use scf.for with iter_args")
        if self.parallel and self.library.threads > 1:
            emit_threaded(self, op)
        else:
            nest(self, op)

    # -- memory ------------------------------------------------------------------------------------------------------
    def load(self, op: memref.LoadOp) -> None:
        self.values[op.res] = self.view(op.memref).load(self.code, self.texts(op.indices))

    def store(self, op: memref.StoreOp) -> None:
        self.view(op.memref).store(self.code, self.texts(op.indices), self.text(op.value))

    def allocate(self, op: memref.AllocOp | memref.AllocaOp) -> None:
        t, sizes = op.memref.type, self.extents(op)
        words = stack_words(op)
        place = self.stack(words) if words else self.scratch.places.get(op)
        if place is None:  # a size that is known only here: from the heap, freed at the end of the block
            place = self._heap(t, sizes)
        self.values[op.memref] = View(place, t.element_type, sizes, row_major(self.code, sizes), Root(place))

    def _heap(self, t: MemRefType[Attribute], sizes: tuple[str, ...]) -> str:
        self.library.functions["malloc"] = "declare noalias ptr @malloc(i64)\ndeclare void @free(ptr)"
        total = self.product(str(byte_size(t.element_type)), sizes)
        self.heap.append(self.code.let(f"call ptr @malloc(i64 {total})", "h"))
        return self.heap[-1]

    def part(
        self, op: memref.SubviewOp, offsets: Sequence[str], sizes: tuple[str, ...], strides: tuple[str, ...]
    ) -> View:
        source = self.view(op.source)
        return View(source.address(self.code, offsets), source.element, sizes, strides, source.root)

    def row(self, source: View, size: str) -> View:
        return View(source.pointer, source.element, (size,), ("1",), source.root, source.align)

    def copy(self, op: memref.CopyOp) -> None:
        source, target = self.view(op.source), self.view(op.destination)

        def nest(index: list[str]) -> None:
            if len(index) == len(source.sizes):
                target.store(self.code, index, source.load(self.code, index))
                return
            with self.code.loop("0", source.sizes[len(index)], "1") as iv:
                nest([*index, iv])

        nest([])

    def contract(self, op: GenericOp) -> None:
        """A contraction: as a product where it is one, else as loops."""
        found = nest_of(self, op)
        filling = filled_before(op)
        product = product_of(self, found, anew=filling is not None)
        if product is None:
            if filling is not None:
                fill(self, self.view(filling.outputs[0]), self.text(filling.inputs[0]))
            emit_loops(self, found)
        else:
            emit_product(self, product)

    def exchange(self, op: func.CallOp) -> None:
        number = op.callee.root_reference.data.rpartition("_")[2]
        array, *variables = op.arguments
        words = self.stack(max(1, len(variables)))
        for at, text in enumerate(self.texts(variables)):
            self.code.do(f"store i64 {text}, ptr {self.code.at(words, str(at), 'i64')}")
        self.library.functions[EXCHANGE] = f"declare void @{EXCHANGE}(i64, ptr, ptr)"
        self.code.do(f"call void @{EXCHANGE}(i64 {number}, ptr {self.view(array).pointer}, ptr {words})")

    def fill(self, op: FillOp) -> None:
        emit_fill(self, op)


APART = 'call void asm sideeffect "", ""()'
"""An empty instruction that keeps the second way of a test a block of its own, so that values are moved there alone."""
