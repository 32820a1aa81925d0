"""The writer of one LLVM function: values, texts and the module around it; `emit.py` says how each operation is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Block, Operation, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.engines.native.llvm.scalar_ops import EXTENDED, ROWS, extended
from upl_mlir.engines.native.llvm.scratch import ScratchPlan
from upl_mlir.engines.native.llvm.text import Code
from upl_mlir.engines.native.llvm.values import View
from upl_mlir.engines.native.products.tiles import TileFormat
from upl_mlir.engines.native.walk import Walk


@dataclass
class Library:
    """The functions and globals of the LLVM module under construction, besides the program's own."""

    threads: int
    vector_bytes: int
    registers: int
    ordered: bool = False
    """Elementary functions are libm's, as the interpreter's are."""
    fuses: bool = False
    """The machine has an instruction for a product and a sum, rounded once."""
    gathers: bool = False
    """The machine gathers a vector in no more time than it loads its elements."""
    shared: list[tuple[str, TileFormat]] = field(default_factory=list[tuple[str, TileFormat]])
    """The functions of `library.py` that the module calls."""
    functions: dict[str, str] = field(default_factory=dict[str, str])
    """Definitions and declarations by name; the order is that of the first use."""
    globals: list[str] = field(default_factory=list[str])
    metadata: list[str] = field(default_factory=list[str])
    outer: list[int] = field(default_factory=list[int])
    """Where in `metadata` loops with others inside are told to stay loops."""
    tables: dict[str, View] = field(default_factory=dict[str, View])

    def math(self, name: str, type_: str, *, scalar: bool = False) -> str:
        """The name of a function on reals, `scalar` where no vectors can be made; its definition (or declaration, where libm
        has it) joins the module."""
        from upl_mlir.engines.native.llvm import libm, vector_math

        if self.ordered:
            full, texts = libm.definition(name, type_)
        else:
            full, texts = vector_math.definition(name, type_, self.vector_bytes, scalar=scalar, fuses=self.fuses)
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

    def around(self, parts: str) -> str:
        """Metadata for the jump back of a loop with others inside, of which this is said in a large program alone."""
        self.outer.append(len(self.metadata))
        return self.known(parts)

    def rare(self) -> str:
        """Metadata for a conditional jump whose second way is hardly ever taken."""
        at = len(self.metadata)
        self.metadata.append(f'!{at} = !{{!"branch_weights", i32 4096, i32 1}}')
        return f", !prof !{at}"

    def uses(self, name: str, f: TileFormat) -> None:
        """Declare a function of `library.py`."""
        from upl_mlir.engines.native.products.library import SHARED, symbol

        full = f"@{symbol(name, f)}"
        if full not in self.functions:
            self.shared.append((name, f))
            self.functions[full] = f"declare void {full}({SHARED[name].params})"


@dataclass
class Emitter(Walk[str, View]):
    """Writes one LLVM function."""

    library: Library
    scratch: ScratchPlan
    code: Code = field(default_factory=Code)
    values: dict[SSAValue, Any] = field(default_factory=dict[SSAValue, Any])
    parallel: bool = True
    """Whether an `scf.parallel` met here may be given to several threads."""
    scalar_code: bool = False
    """Whether what is written is inside a loop that data end, of which no vectors are made."""
    heap: list[str] = field(default_factory=list[str])
    """What the block being written has from the heap."""
    noted: dict[Operation, tuple[str, int]] = field(default_factory=dict[Operation, tuple[str, int]])
    """Conditional stores of a number that a word on the stack stands for until the loop ends, with the number."""

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

    @property
    def fuses(self) -> bool:
        """As in `Library`."""
        return self.library.fuses

    def function(self, name: str, type_: str) -> str:
        """As `Library.math`."""
        return self.library.math(name, type_, scalar=self.scalar_code)

    # -- operations ----------------------------------------------------------------------------------------------
    def compute(self, op: Operation) -> bool:
        row = ROWS.get(type(op))
        if row is not None:
            self.values[op.results[0]] = row(self, op)
        elif isinstance(op, EXTENDED):
            self.values[op.results[0]], self.values[op.results[1]] = extended(self, op)
        else:
            return False
        return True

    def unknown(self, op: Operation) -> Exception:
        return error("UPL1820", f"native code does not know the operation `{op.name}`")

    def number(self, n: int) -> str:
        return str(n)

    def times(self, a: str, b: str) -> str:
        return self.code.mul(a, b)

    def strides(self, a: View) -> Sequence[str]:
        return a.strides

    def table(self, name: str) -> View:
        return self.library.tables[name]

    def stack(self, words: int) -> str:
        """Memory for 64-bit words on the stack of the function being written."""
        name = self.code.name("stack")
        self.code.entry.append(f"  {name} = alloca [{words} x i64], align 64")
        return name

    def body(self, block: Block) -> list[str]:
        around, self.heap = self.heap, []
        handed = super().body(block)
        self.release()
        self.heap = around
        return handed

    def release(self) -> None:
        """Give back what the block has from the heap."""
        for pointer in self.heap:
            self.code.do(f"call void @free(ptr {pointer})")
