"""What stands for an SSA value while LLVM IR is written: a text for scalars, a `View` for memrefs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import DYNAMIC_INDEX, i1
from xdsl.ir import Attribute

from upl_mlir.engines.native.llvm.text import Code, byte_size, memory_type
from upl_mlir.engines.native.products.tiles import TileFormat
from upl_mlir.engines.native.scalars import scalar


@dataclass(frozen=True)
class Root:
    """An array in memory that no other root overlaps: an argument or an allocation."""

    name: str


@dataclass(frozen=True)
class View:
    """A memref: address of its element 0, sizes and strides (in elements) as texts.

    `root` is the array that it lies in: accesses to different roots never overlap.  `align` holds for `pointer` itself.
    """

    pointer: str
    element: Attribute
    sizes: tuple[str, ...]
    strides: tuple[str, ...]
    root: Root = field(compare=False)
    align: int = 1

    @property
    def type(self) -> str:
        """The LLVM type of an element in memory."""
        return memory_type(self.element)

    def offset(self, code: Code, index: Sequence[str]) -> str:
        """The place of an element, in elements from `pointer`."""
        total = "0"
        for i, stride in zip(index, self.strides, strict=True):
            total = code.add(total, code.mul(i, stride))
        return total

    def address(self, code: Code, index: Sequence[str]) -> str:
        """The address of an element."""
        return code.at(self.pointer, self.offset(code, index), self.type)

    def shifted(self, code: Code, places: str) -> View:
        """The view that begins so many elements later."""
        return replace(self, pointer=code.at(self.pointer, places, self.type), align=1)

    def load(self, code: Code, index: Sequence[str]) -> str:
        """Read an element."""
        place = f"ptr {self.address(code, index)}, align {byte_size(self.element)}{code.access}"
        value = code.let(f"load {self.type}, {place}", "l")
        return code.let(f"trunc i8 {value} to i1") if is_truth(self.element) else value

    def store(self, code: Code, index: Sequence[str], value: str) -> None:
        """Write an element."""
        if is_truth(self.element):
            value = code.let(f"zext i1 {value} to i8")
        place = f"ptr {self.address(code, index)}, align {byte_size(self.element)}{code.access}"
        code.do(f"store {self.type} {value}, {place}")


def is_truth(t: Attribute) -> bool:
    """Whether a type is i1, which memory holds as a byte 0 or 1."""
    return t == i1


def row_major(code: Code, sizes: Sequence[str]) -> tuple[str, ...]:
    """Strides of a dense array, in elements."""
    strides = ["1"]
    for size in reversed(sizes[1:]):
        strides.append(code.mul(strides[-1], size))
    return tuple(reversed(strides)) if sizes else ()


@dataclass(frozen=True)
class Argument:
    """An argument of the kernel: a number (`rank` None) or an array.  `dtype` is numpy's name of the element type.

    `written` tells whether the kernel may write to it.
    """

    name: str
    dtype: str
    rank: int | None
    shape: tuple[int, ...] = ()  # DYNAMIC_INDEX where open
    written: bool = False

    @property
    def slots(self) -> int:
        """How many 64-bit slots the argument takes in a call: a number one, an array its address and open sizes."""
        return 1 if self.rank is None else 1 + sum(n == DYNAMIC_INDEX for n in self.shape)


LARGE = 100_000
"""Characters of LLVM IR from which programs get less effort: more gains nothing there, as seen of a Kalman filter and LeNet.
Loops with others inside stay loops, and LLVM works at its usual level, which takes a quarter less time."""


@dataclass(frozen=True)
class EmittedModule:
    """LLVM IR text with what its caller must know."""

    name: str
    ir: str
    arguments: tuple[Argument, ...]
    shared: tuple[tuple[str, TileFormat], ...]
    """Functions of `library.py` that the module calls."""
    short: bool = False
    """Whether all loops without others inside are known to have few rounds."""


def dtype_name(t: Attribute) -> str:
    """numpy's name of an element type."""
    found = scalar(t)
    if isinstance(found, str):
        return {"double": "float64", "float": "float32"}[found]
    return "bool" if found == 1 else f"int{found}"
