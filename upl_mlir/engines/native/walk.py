"""The walk over a lowered function (func, scf, arith, math, memref, linalg) that the writers of native code share.

`Walk.run` says which method writes which operation.  A new operation gets its line there and its method; a writer that
lacks the method cannot be made.  What reads alike in every language is written here: sizes, views, names of arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from xdsl.dialects import func, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.ir import Block, Operation, SSAValue


class Sized(Protocol):
    """What stands for an array."""

    @property
    def sizes(self) -> tuple[Any, ...]:
        """Its extents, as scalars."""
        ...


S = TypeVar("S")
A = TypeVar("A", bound=Sized)


class Walk(ABC, Generic[S, A]):
    """Writes operations in order; `S` stands for a scalar, as `str` of it shows, and `A` for an array."""

    values: dict[SSAValue, Any]
    """What stands for each value that has been written."""

    def run(self, ops: Iterable[Operation]) -> None:
        """Write operations in order.  Raises UplError (UPL1820) for one that is not known."""
        for op in ops:
            if self.compute(op):
                continue
            match op:
                case scf.ForOp():
                    self.for_loop(op)
                case scf.IfOp():
                    self.branch(op)
                case scf.WhileOp():
                    self.while_loop(op)
                case scf.ParallelOp():
                    self.parallel_loop(op)
                case memref.LoadOp():
                    self.load(op)
                case memref.StoreOp():
                    self.store(op)
                case memref.AllocOp() | memref.AllocaOp():
                    self.allocate(op)
                case memref.DimOp():
                    self.values[op.result] = self.array(op.source).sizes[int(str(self.scalar(op.index)))]
                case memref.SubviewOp():
                    self.values[op.result] = self._subview(op)
                case memref.CopyOp():
                    self.copy(op)
                case memref.CastOp():
                    self.values[op.dest] = self.array(op.source)
                case memref.CollapseShapeOp():
                    source = self.array(op.src)
                    self.values[op.result] = self.row(source, self.product(self.number(1), source.sizes))
                case memref.GetGlobalOp():
                    self.values[op.memref] = self.table(op.name_.root_reference.data)
                case GenericOp():
                    self.contract(op)
                case FillOp():
                    self.fill(op)
                case func.CallOp():
                    self.exchange(op)
                case memref.DeallocOp() | func.ReturnOp():
                    pass  # scratch is freed with the block in which it is, or kept for the next call
                case _:
                    raise self.unknown(op)

    def body(self, block: Block) -> list[S]:
        """Write the operations of a block; returns what its terminator hands on."""
        *ops, last = block.ops
        self.run(ops)
        return self.scalars(last.operands)

    def scalar(self, value: SSAValue) -> S:
        """What stands for a scalar."""
        return self.values[value]

    def scalars(self, values: Iterable[SSAValue]) -> list[S]:
        """What stands for scalars."""
        return [self.scalar(v) for v in values]

    def array(self, value: SSAValue) -> A:
        """What stands for a memref."""
        return self.values[value]

    def product(self, first: S, factors: Iterable[S]) -> S:
        """A product, from left to right."""
        for f in factors:
            first = self.times(first, f)
        return first

    def extents(self, op: memref.AllocOp | memref.AllocaOp) -> tuple[S, ...]:
        """The sizes of a new array."""
        return filled(op.memref.type.get_shape(), self.scalars(op.dynamic_sizes), self.number)

    def _subview(self, op: memref.SubviewOp) -> A:

        def listed(fixed: Any, given: Sequence[SSAValue]) -> tuple[S, ...]:
            return filled(fixed.get_values(), self.scalars(given), self.number)

        offsets, sizes = listed(op.static_offsets, op.offsets), listed(op.static_sizes, op.sizes)
        steps = listed(op.static_strides, op.strides)
        strides = [self.times(a, b) for a, b in zip(self.strides(self.array(op.source)), steps, strict=True)]
        target = op.result.type
        assert isinstance(target, MemRefType)
        extra = len(sizes) - target.get_num_dims()  # a rank-reducing view drops sizes 1
        dropped = [i for i, n in enumerate(sizes) if str(n) == "1"][:extra]
        kept = [i for i in range(len(sizes)) if i not in dropped]
        return self.part(op, offsets, tuple(sizes[i] for i in kept), tuple(strides[i] for i in kept))

    # -- what a writer says in its own words -------------------------------------------------------------------------
    @abstractmethod
    def compute(self, op: Operation) -> bool:
        """Write an operation on scalars; False if it is none."""

    @abstractmethod
    def unknown(self, op: Operation) -> Exception:
        """The error for an operation that the writer does not know."""

    @abstractmethod
    def number(self, n: int) -> S:
        """An index."""

    @abstractmethod
    def times(self, a: S, b: S) -> S:
        """The product of two indices."""

    @abstractmethod
    def for_loop(self, op: scf.ForOp) -> None:
        """A counting loop that carries values."""

    @abstractmethod
    def branch(self, op: scf.IfOp) -> None:
        """A condition with results."""

    @abstractmethod
    def while_loop(self, op: scf.WhileOp) -> None:
        """A loop that stops by a condition."""

    @abstractmethod
    def parallel_loop(self, op: scf.ParallelOp) -> None:
        """Loops whose iterations are independent."""

    @abstractmethod
    def load(self, op: memref.LoadOp) -> None:
        """A read of an element."""

    @abstractmethod
    def store(self, op: memref.StoreOp) -> None:
        """An assignment to an element."""

    @abstractmethod
    def allocate(self, op: memref.AllocOp | memref.AllocaOp) -> None:
        """Scratch."""

    @abstractmethod
    def copy(self, op: memref.CopyOp) -> None:
        """An array copied element by element."""

    @abstractmethod
    def table(self, name: str) -> A:
        """A constant array."""

    @abstractmethod
    def strides(self, a: A) -> Sequence[S]:
        """How far apart neighbours along each dimension are, in elements."""

    @abstractmethod
    def part(self, op: memref.SubviewOp, offsets: Sequence[S], sizes: tuple[S, ...], strides: tuple[S, ...]) -> A:
        """A part of an array, by where it begins."""

    @abstractmethod
    def row(self, source: A, size: S) -> A:
        """A dense array as one long row."""

    @abstractmethod
    def contract(self, op: GenericOp) -> None:
        """A sum of products over a box."""

    @abstractmethod
    def exchange(self, op: func.CallOp) -> None:
        """A call of what exchanges elements of an array between ranks."""

    @abstractmethod
    def fill(self, op: FillOp) -> None:
        """An array of one value."""


def filled(shape: Iterable[int], given: Sequence[S], number: Callable[[int], S]) -> tuple[S, ...]:
    """Numbers of a type or an operation, those left open taken from `given`."""
    rest = iter(given)
    return tuple(next(rest) if n == DYNAMIC_INDEX else number(n) for n in shape)
