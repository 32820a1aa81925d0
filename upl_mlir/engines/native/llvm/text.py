"""The writer that all generated LLVM IR goes through: names, blocks, and index arithmetic folded while it is written."""

from __future__ import annotations

import struct
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from xdsl.ir import Attribute

from upl_mlir.engines.native.scalars import scalar
from upl_mlir.numbers.floats import as_single

ATTRIBUTES = 'nounwind "prefer-vector-width"="512" "no-trapping-math"="true"'
"""What all functions have: vectors as wide as the machine's, and no interest in floating-point exceptions."""


def llvm_type(t: Attribute) -> str:
    """The LLVM type of a scalar; `index` is i64.  Raises UplError (UPL1820)."""
    found = scalar(t)
    return found if isinstance(found, str) else f"i{found}"


def memory_type(t: Attribute) -> str:
    """The LLVM type of an element in memory: as `llvm_type`, but truth values take a byte."""
    name = llvm_type(t)
    return "i8" if name == "i1" else name


def byte_size(t: Attribute) -> int:
    """Bytes of an element in memory."""
    return {"double": 8, "i64": 8, "float": 4, "i32": 4, "i16": 2, "i8": 1}[memory_type(t)]


def float_text(x: float, type_: str) -> str:
    """A literal of `double` or `float`: LLVM wants the bits of a double, for a float one that a float can hold."""
    if type_ == "float":
        x = as_single(x)
    return f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016X}"


@dataclass
class Code:
    """The body of one LLVM function while it is written; values are texts (`%x3` or literals).

    `entry` lines come before all others, in the function's first block: memory on the stack.
    """

    lines: list[str] = field(default_factory=list[str])
    entry: list[str] = field(default_factory=list[str])
    block: str = "start"
    access: str = ""
    """What is appended to loads and stores: their access group, inside a loop whose iterations are independent."""
    _count: int = 0

    @property
    def text(self) -> str:
        """The whole body."""
        return "\n".join([*self.entry, *self.lines])

    def name(self, hint: str = "v") -> str:
        """A new value name."""
        self._count += 1
        return f"%{hint}{self._count}"

    def let(self, text: str, hint: str = "v") -> str:
        """Write ``%name = text``; returns the name."""
        name = self.name(hint)
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Write an instruction without a result."""
        self.lines.append(f"  {text}")

    def label(self, hint: str) -> str:
        """A new block name; the block is begun by `begin`."""
        self._count += 1
        return f"{hint}{self._count}"

    def begin(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        """End the block with a jump."""
        self.do(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str, note: str = "") -> None:
        """End the block with a conditional jump; `note` is its metadata."""
        self.do(f"br i1 {condition}, label %{yes}, label %{no}{note}")

    def phi(self, type_: str, hint: str = "p") -> Phi:
        """Reserve a line for a phi whose inputs are not known yet."""
        self.lines.append("")
        return Phi(self, len(self.lines) - 1, self.name(hint), type_)

    def counting(self, header: str, hint: str, upper: str, inside: str, done: str) -> tuple[Phi, str]:
        """Begin a loop: its head goes on `inside` while the variable is less than `upper`, else to `done`.

        Gives the variable, to be closed where the loop goes round, and the block before it.
        """
        before = self.block
        self.jump(header)
        self.begin(header)
        counter = self.phi("i64", hint)
        self.branch(self.let(f"icmp slt i64 {counter.name}, {upper}", "c"), inside, done)
        return counter, before

    @contextmanager
    def loop(self, lower: str, upper: str, step: str = "1", hint: str = "for", note: str = "") -> Generator[str]:
        """Write a counting loop around what the `with` writes; gives the induction variable.

        `note` is appended to the jump back: metadata of the loop.
        """
        header, inside, done = self.label(hint), self.label("body"), self.label("done")
        counter, before = self.counting(header, "iv", upper, inside, done)
        self.begin(inside)
        yield counter.name
        following = self.let(f"add nsw i64 {counter.name}, {step}", "iv")
        counter.close((lower, before), (following, self.block))
        self.do(f"br label %{header}{note}")
        self.begin(done)

    @contextmanager
    def when(self, condition: str, hint: str = "when") -> Generator[None]:
        """Write a branch that runs what the `with` writes only where the condition holds."""
        inside, done = self.label(hint), self.label("done")
        self.branch(condition, inside, done)
        self.begin(inside)
        yield
        self.jump(done)
        self.begin(done)

    # -- index arithmetic: literals are folded, 0 and 1 vanish ----------------------------------------------------
    def add(self, a: str, b: str) -> str:
        """a + b of indices that cannot overflow."""
        if a == "0" or b == "0":
            return b if a == "0" else a
        if is_number(a) and is_number(b):
            return str(int(a) + int(b))
        return self.let(f"add nsw i64 {a}, {b}", "i")

    def sub(self, a: str, b: str) -> str:
        """a - b of indices that cannot overflow."""
        if b == "0":
            return a
        if is_number(a) and is_number(b):
            return str(int(a) - int(b))
        return self.let(f"sub nsw i64 {a}, {b}", "i")

    def mul(self, a: str, b: str) -> str:
        """a * b of indices that cannot overflow."""
        if a == "1" or b == "1":
            return b if a == "1" else a
        if is_number(a) and is_number(b):
            return str(int(a) * int(b))
        if "0" in (a, b):
            return "0"
        return self.let(f"mul nsw i64 {a}, {b}", "i")

    def least(self, a: str, b: str) -> str:
        """min(a, b) of signed indices."""
        if is_number(a) and is_number(b):
            return str(min(int(a), int(b)))
        return self.let(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})", "i")

    def most(self, a: str, b: str) -> str:
        """max(a, b) of signed indices."""
        if is_number(a) and is_number(b):
            return str(max(int(a), int(b)))
        return self.let(f"call i64 @llvm.smax.i64(i64 {a}, i64 {b})", "i")

    def at(self, pointer: str, offset: str, type_: str) -> str:
        """The address of the element `offset` places of `type_` after `pointer`."""
        if offset == "0":
            return pointer
        return self.let(f"getelementptr inbounds {type_}, ptr {pointer}, i64 {offset}", "a")


@dataclass
class Phi:
    """A phi node to be completed by `close`."""

    code: Code
    line: int
    name: str
    type: str

    def close(self, *inputs: tuple[str, str]) -> None:
        """Give all pairs (value, block)."""
        text = ", ".join(f"[ {value}, %{block} ]" for value, block in inputs)
        self.code.lines[self.line] = f"  {self.name} = phi {self.type} {text}"


def is_number(text: str) -> bool:
    """Whether a value is an integer literal."""
    return text[0] == "-" or text[0].isdigit()
