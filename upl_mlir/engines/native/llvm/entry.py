"""The public function of a kernel, and the LLVM module as a whole.

    i64 upl_entry(ptr slots)

`slots` are 64-bit cells: workspace, its size in bytes, the function that runs a loop on several threads (or null), its
first argument; then the arguments, each number in one slot, each array as its address followed by its open sizes.
Returns 0 when done, or (nothing has run then) the number of bytes that the workspace must have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from xdsl.dialects import func, memref
from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseIntOrFPElementsAttr, MemRefType, ModuleOp, StringAttr
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import Attribute, Operation, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.engines.native.arranged import arrange
from upl_mlir.engines.native.call_ctypes import HEADER_SLOTS
from upl_mlir.engines.native.llvm import chunks
from upl_mlir.engines.native.llvm.emit import FunctionEmitter
from upl_mlir.engines.native.llvm.emitter import Emitter, Library
from upl_mlir.engines.native.llvm.rounds import only_short_loops
from upl_mlir.engines.native.llvm.scratch import ALIGN, Allocation, Scratch, ScratchPlan, scratch_of
from upl_mlir.engines.native.llvm.text import ATTRIBUTES, Code, byte_size, float_text, llvm_type, memory_type
from upl_mlir.engines.native.llvm.values import LARGE, EmittedModule, Root, View, row_major
from upl_mlir.engines.native.signature import arguments_of, function_of
from upl_mlir.engines.native.target import Machine

COPIES = '"no-builtin-memcpy" "no-builtin-memmove"'
"""Copies are loops of vectors, not calls: the library's copy of 2 kB or more to another place in a line of the cache takes
eight times as long on AMD's processors (`rep movsb`), and is no faster for 80 MB.  Filling by `memset` is."""
SKEW = 192
"""Bytes between scratch arrays: powers of two as sizes would put the same index of all of them into one cache set."""


def emit_module(module: ModuleOp, machine: Machine, threads: int) -> EmittedModule:
    """LLVM IR of a lowered module with one public function.  Raises UplError (UPL1820) for what native code lacks."""
    arrange(module)
    function = function_of(module)
    gather = function.attributes.get("upl.gather")
    ordered = isinstance(gather, StringAttr) and gather.data == "ordered"
    library = Library(threads, machine.vector_bytes, machine.registers, ordered, machine.fuses, machine.gathers)
    for op in module.ops:
        if isinstance(op, memref.GlobalOp):
            _table(library, op)
    arguments = arguments_of(function)
    kernel = _Kernel(function, library)
    text = kernel.write()
    kept = [body for key, body in library.functions.items() if key.startswith("used ")]
    parts = [*library.globals, "", *text, *(b for k, b in library.functions.items() if not k.startswith("used "))]
    if kept:  # vector versions that nothing calls until the vectoriser has run
        pointers = ", ".join(kept)
        parts.append(f"@llvm.compiler.used = appending global [{pointers.count('ptr ')} x ptr] [{pointers}]")
    parts.append(f"attributes #0 = {{ {ATTRIBUTES} }}")
    parts.append(f"attributes #1 = {{ alwaysinline willreturn memory(none) {ATTRIBUTES} }}")
    parts.append(f"attributes #2 = {{ noinline {COPIES} {ATTRIBUTES} }}")
    parts.append(f"attributes #3 = {{ willreturn memory(none) {ATTRIBUTES} }}")
    parts.append(f"attributes #4 = {{ noinline willreturn memory(none) {ATTRIBUTES} }}")
    parts.append(f"attributes #5 = {{ noinline optsize {ATTRIBUTES} }}")
    parts.append(f"attributes #6 = {{ nobuiltin willreturn memory(none) {ATTRIBUTES} }}")
    if sum(map(len, parts)) <= LARGE:  # nests of a few numbers, written out, take half the time
        for at in library.outer:
            library.metadata[at] = f"!{at} = distinct !{{!{at}}}"
    parts += library.metadata
    text = "\n".join(parts) + "\n"
    return EmittedModule(function.sym_name.data, text, arguments, tuple(library.shared), only_short_loops(function))


def _table(library: Library, op: memref.GlobalOp) -> None:
    """A constant array as a global of the module."""
    t = op.type
    if not isinstance(op.initial_value, DenseIntOrFPElementsAttr):
        raise error("UPL1820", f"the global `{op.sym_name.data}` has no values")
    element = memory_type(t.element_type)
    values = cast(list[float | int], list(op.initial_value.get_values()))
    count = t.element_count()
    values = values * count if len(values) == 1 else values
    kind = f"[{count} x {element}]"
    items = ", ".join(
        f"{element} {float_text(v, element) if element in ('float', 'double') else int(v)}" for v in values
    )
    name = f"@table.{len(library.tables)}"
    library.globals.append(f"{name} = private unnamed_addr constant {kind} [{items}], align {ALIGN}")
    sizes = tuple(map(str, t.get_shape()))
    library.tables[op.sym_name.data] = View(name, t.element_type, sizes, row_major(Code(), sizes), Root(name), ALIGN)


@dataclass
class _Kernel:
    """Writes the private function with the work, and the public one that calls it."""

    function: func.FuncOp
    library: Library
    formal: list[str] = field(default_factory=list[str])
    actual: list[str] = field(default_factory=list[str])

    def write(self) -> list[str]:
        scratch = scratch_of(self.function)
        panels = self._panels()
        if panels:
            scratch.append(Scratch(None, panels, shared=False))
        entry, inner = Code(), Code()
        outside = FunctionEmitter(self.library, ScratchPlan(), entry)
        inside = FunctionEmitter(self.library, ScratchPlan(), inner)
        self._pass_arguments(outside, inside)
        self._pass_scratch(scratch, outside, inside)
        self._pass("ptr", entry.let(f"load ptr, ptr {entry.at('%slots', '2', 'i64')}"), "%fork")
        self._pass("i64", entry.let(f"load i64, ptr {entry.at('%slots', '3', 'i64')}"), "%pool")
        chunks.write(inside, self.function.body.block)
        inner.do("ret void")
        entry.do(f"call void @work({', '.join(self.actual)})")
        entry.do("ret i64 0")
        attributes = "#2" if any(op.regions for op in self.function.body.block.ops) else "#0"
        return [
            f"define internal void @work({', '.join(self.formal)}) {attributes} {{",
            "start:", inner.text, "}", "",
            "define i64 @upl_entry(ptr noalias %slots) #0 {",
            "start:", entry.text, "}", "",
        ]  # fmt: skip

    def _panels(self) -> int:
        """Bytes that the contractions want for packing."""
        generic = [op for op in self.function.walk() if isinstance(op, GenericOp)]
        if not generic:
            return 0
        from upl_mlir.engines.native.products.contraction import panel_bytes

        return max(map(panel_bytes, generic))

    def _pass(self, type_: str, actual: str, formal: str, attributes: str = "") -> None:
        self.actual.append(f"{type_} {actual}")
        self.formal.append(f"{type_} {attributes}{formal}")

    def _pass_arguments(self, outside: Emitter, inside: Emitter) -> None:
        """Read each argument from its slots, and declare it as a parameter of the inner function."""
        slot = HEADER_SLOTS
        code = outside.code
        for i, arg in enumerate(self.function.body.block.args):
            t = arg.type
            if not isinstance(t, MemRefType):
                kind = llvm_type(t)
                value = code.let(f"load {kind}, ptr {code.at('%slots', str(slot), 'i64')}")
                slot += 1
                self._pass(kind, value, f"%n.{i}")
                outside.values[arg], inside.values[arg] = value, f"%n.{i}"
                continue
            array = cast(MemRefType[Attribute], t)
            element, align = array.element_type, byte_size(array.element_type)
            pointer = code.let(f"load ptr, ptr {code.at('%slots', str(slot), 'i64')}")
            slot += 1
            self._pass("ptr", pointer, f"%x.{i}", f"noalias align {align} ")
            out, ins = list[str](), list[str]()
            for d, n in enumerate(array.get_shape()):
                if n == DYNAMIC_INDEX:
                    value = code.let(f"load i64, ptr {code.at('%slots', str(slot), 'i64')}")
                    slot += 1
                    out.append(value)
                    ins.append(f"%x.{i}.{d}")
                    self._pass("i64", value, ins[-1])
                else:
                    out.append(str(n))
                    ins.append(str(n))
            outside.values[arg] = View(pointer, element, tuple(out), (), Root(f"x{i}"), align)
            strides = row_major(inside.code, ins)
            inside.values[arg] = View(f"%x.{i}", element, tuple(ins), strides, Root(f"x{i}"), align)

    def _pass_scratch(self, scratch: list[Scratch], outside: Emitter, inside: Emitter) -> None:
        """Lay out the workspace; return early where it is too small."""
        code = outside.code
        total, offsets = "0", list[str]()
        for i, item in enumerate(scratch):
            bytes_ = str(item.bytes) if item.op is None else self._size(item.op, outside)
            rounded = code.let(f"and i64 {code.add(bytes_, str(ALIGN - 1))}, {-ALIGN}")
            each = code.add(rounded, str(SKEW))
            offsets.append(total)
            total = code.add(total, each if item.shared else code.mul(each, str(self.library.threads)))
            place = f"%s.{i}"
            if item.op is None:
                inside.scratch.panels = place
            else:
                inside.scratch.places[item.op] = place
            if not item.shared:
                inside.scratch.strides[place] = f"%s.{i}.each"
                self._pass("i64", each, f"%s.{i}.each")
        if not scratch:
            return
        room = code.let(f"load i64, ptr {code.at('%slots', '1', 'i64')}")
        enough, grow = code.label("enough"), code.label("grow")
        code.branch(code.let(f"icmp ule i64 {total}, {room}", "c"), enough, grow)
        code.begin(grow)
        code.do(f"ret i64 {total}")
        code.begin(enough)
        workspace = code.let("load ptr, ptr %slots")
        for i, offset in enumerate(offsets):
            self._pass("ptr", code.at(workspace, offset, "i8"), f"%s.{i}", f"noalias align {ALIGN} ")

    def _size(self, op: Allocation, outside: Emitter) -> str:
        """Bytes of an allocation, computed before anything runs."""
        for v in op.dynamic_sizes:
            _evaluate(v, outside)
        return outside.product(str(byte_size(op.memref.type.element_type)), outside.extents(op))


def _evaluate(value: SSAValue, outside: Emitter) -> None:
    """Write the pure operations that a value follows from."""
    if value in outside.values:
        return
    op = value.owner
    assert isinstance(op, Operation)
    if isinstance(op, Allocation):  # only its shape is asked for
        for v in op.dynamic_sizes:
            _evaluate(v, outside)
        outside.values[value] = View("null", op.memref.type.element_type, outside.extents(op), (), Root(""))
        return
    for v in op.operands:
        _evaluate(v, outside)
    outside.run([op])
