"""Blocks under construction: a value of the old function is written into one, with all it needs, when it is asked for."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from xdsl.dialects import arith, memref, scf, tensor
from xdsl.dialects.builtin import DYNAMIC_INDEX, IndexType, IntegerAttr, MemRefType, TensorType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue

from upl_mlir.passes.loops.tensors.facts import needs, number
from upl_mlir.passes.loops.terms import inner_first

INDEX = IndexType()
Size = SSAValue | int
_FOLDED: Mapping[type[Operation], Callable[[int, int], int]] = {
    arith.AddiOp: operator.add, arith.SubiOp: operator.sub, arith.MuliOp: operator.mul,
    arith.MaxSIOp: max, arith.MinSIOp: min, arith.AndIOp: operator.and_,
}  # fmt: skip
"""Operations on indices that are done here where both operands are numbers."""
_NOTHING: Mapping[type[Operation], int] = {arith.AddiOp: 0, arith.SubiOp: 0, arith.MuliOp: 1}
"""Second operands that change nothing."""


class Arrays(Protocol):
    """Where reads find the arrays."""

    def tensor_at(self, load: Operation, array: SSAValue) -> SSAValue:
        """The tensor that an array was when `load` stood in its place."""
        ...

    def scalar(self, v: SSAValue) -> SSAValue | None:
        """The tensor without axes that holds a value, if there is one."""
        ...


@dataclass(eq=False)
class Scope:
    """A block, and the values of the old function that are known in it; what is known outside is known inside."""

    block: Block
    arrays: Arrays
    outer: Scope | None = None
    known: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    made: dict[object, SSAValue] = field(default_factory=dict[object, SSAValue])
    """Numbers, and operations on indices, by what they are."""

    def inner(self, block: Block) -> Scope:
        """A scope of a block inside."""
        return Scope(block, self.arrays, self)

    def find(self, v: SSAValue) -> SSAValue | None:
        """The new value of an old one, if there is one."""
        at: Scope | None = self
        while at is not None:
            if v in at.known:
                return at.known[v]
            at = at.outer
        return None

    def add(self, op: Operation) -> SSAValue:
        """Append an operation; its first result."""
        self.block.add_op(op)
        return op.results[0]

    def size(self, n: Size) -> SSAValue:
        """A number as a value."""
        if not isinstance(n, int):
            return n
        return self._made(n, lambda: arith.ConstantOp(IntegerAttr(n, INDEX)))

    def _made(self, key: object, make: Callable[[], Operation]) -> SSAValue:
        """What an operation gives, which is written unless it is here or outside already."""
        at: Scope | None = self
        while at is not None:
            if key in at.made:
                return at.made[key]
            at = at.outer
        self.made[key] = self.add(make())
        return self.made[key]

    def op(self, make: type[Operation], a: Size, b: Size) -> Size:
        """An operation on indices, done here where it can be."""
        a, b = (n if isinstance(x, SSAValue) and (n := number(x)) is not None else x for x in (a, b))
        if isinstance(a, int) and isinstance(b, int):
            return _FOLDED[make](a, b)
        if isinstance(b, int) and _NOTHING.get(make) == b:
            return a
        if isinstance(a, int) and make is not arith.SubiOp and _NOTHING.get(make) == a:
            return b
        operands = [self.size(a), self.size(b)]
        return self._made((make, *operands), lambda: make.create(operands=operands, result_types=[INDEX]))

    # -- values of the old function --------------------------------------------------------------------------------------
    def value(self, v: SSAValue) -> SSAValue:
        """The new value of an old one; what it is computed from is written here unless it is known."""
        found = self.find(v)
        if found is not None:
            return found
        for x in inner_first(v, lambda y: [] if self.find(y) is not None else self.parts(y)):
            if self.find(x) is None:
                self.write(x)
        found = self.find(v)
        assert found is not None
        return found

    def index(self, v: SSAValue) -> Size:
        """An index or a bound, as a number where it is one."""
        new = self.value(v)
        n = number(new)
        return new if n is None else n

    def parts(self, v: SSAValue) -> Sequence[SSAValue]:
        """What has to be known before `write`."""
        op = v.owner
        if isinstance(op, memref.LoadOp):
            return list(op.indices)
        if isinstance(op, memref.DimOp):
            return [op.index]
        return [x for x in needs(v) if not isinstance(x.type, MemRefType)]

    def write(self, v: SSAValue) -> None:
        """Write the operation behind a value whose parts are known."""
        op = v.owner
        assert isinstance(op, Operation), f"no value for {v}"
        held = self.arrays.scalar(v)
        if held is not None:
            self.known[v] = self.add(tensor.ExtractOp(held, [], v.type))
            return
        match op:
            case memref.LoadOp():
                self.known[v] = self.load(op)
            case memref.DimOp():
                source = self.arrays.tensor_at(op, op.source)
                self.known[v] = self.add(tensor.DimOp(source, self.value(op.index)))
            case scf.IfOp() | scf.ForOp():
                self._copied(op)
            case _:
                self._plain(op)

    def load(self, op: memref.LoadOp) -> SSAValue:
        """An element."""
        source = self.arrays.tensor_at(op, op.memref)
        assert isinstance(source.type, TensorType)
        at = [self.value(i) for i in op.indices]
        return self.as_type(self.add(tensor.ExtractOp(source, at, source.type.element_type)), op.res.type)

    def as_type(self, v: SSAValue, wanted: Attribute) -> SSAValue:
        """An entry of a table of indices, which is kept as an integer."""
        return v if v.type == wanted else self.add(arith.IndexCastOp(v, wanted))

    def _plain(self, op: Operation) -> None:
        operands = [self.value(o) for o in op.operands]
        if isinstance(op, arith.ConstantOp) and op.result.type == INDEX:
            n = number(op.result)
            assert n is not None
            self.known[op.result] = self.size(n)
            return
        if type(op) in _FOLDED and op.results[0].type == INDEX:
            self.known[op.results[0]] = self.size(self.op(type(op), operands[0], operands[1]))
            return
        assert not op.regions and len(op.results) >= 1, op.name
        new = op.clone(dict(zip(op.operands, operands, strict=True)))
        self.block.add_op(new)
        self._results(op, new)

    def _results(self, old: Operation, new: Operation) -> None:
        for a, b in zip(old.results, new.results, strict=False):
            b.name_hint = a.name_hint
            self.known[a] = b

    def _copied(self, op: scf.IfOp | scf.ForOp) -> None:
        """A loop or an `if` that writes nothing, with what its results need."""
        operands = [self.value(o) for o in op.operands]
        regions: list[Region] = []
        for region in op.regions:
            if not region.blocks:
                regions.append(Region())
                continue
            old = region.block
            block = Block(arg_types=[a.type for a in old.args])
            inner = self.inner(block)
            inner.take(old.args, block.args)
            end = old.last_op
            assert isinstance(end, scf.YieldOp)
            block.add_op(scf.YieldOp(*[inner.value(o) for o in end.operands]))
            regions.append(Region(block))
        new = op.create(
            operands=operands, result_types=op.result_types, properties=dict(op.properties), regions=regions
        )
        self.block.add_op(new)
        self._results(op, new)

    def take(self, old: Sequence[BlockArgument], new: Sequence[SSAValue]) -> None:
        """Arguments of a block."""
        for a, b in zip(old, new, strict=True):
            b.name_hint = a.name_hint
            self.known[a] = b


def type_of(element: Attribute, sizes: Sequence[Size]) -> TensorType[Attribute]:
    """The type of a tensor."""
    return TensorType(element, [n if isinstance(n, int) else DYNAMIC_INDEX for n in sizes])


def tensor_type(t: Attribute) -> TensorType[Attribute]:
    """The tensor that a memref becomes."""
    assert isinstance(t, MemRefType)
    return TensorType(t.element_type, t.get_shape())


def sliced(
    scope: Scope, source: SSAValue, offsets: Sequence[Size], sizes: Sequence[Size], dropped: Sequence[bool]
) -> SSAValue:
    """A box of a tensor, without the axes of one element that are dropped; the tensor itself if it is all of it."""
    assert isinstance(source.type, TensorType)
    kept = [n for n, d in zip(sizes, dropped, strict=True) if not d]
    type_ = type_of(source.type.element_type, kept)
    if type_ == source.type and DYNAMIC_INDEX not in type_.get_shape() and all(o == 0 for o in offsets):
        return source
    return scope.add(tensor.ExtractSliceOp(source, offsets, sizes, [1] * len(sizes), type_))


def inserted(scope: Scope, source: SSAValue, target: SSAValue, offsets: Sequence[Size], sizes: Sequence[Size]) -> SSAValue:
    """A tensor with a box of it replaced."""
    if source.type == target.type and DYNAMIC_INDEX not in target.type.get_shape() and all(o == 0 for o in offsets):
        return source
    static = [[n if isinstance(n, int) else DYNAMIC_INDEX for n in x] for x in (sizes, offsets)]
    dynamic = [[n for n in x if not isinstance(n, int)] for x in (sizes, offsets)]
    return scope.add(
        tensor.InsertSliceOp.get(
            source, target, static[0], static_offsets=static[1], offsets=dynamic[1], sizes=dynamic[0],
            static_strides=[1] * len(sizes),
        )
    )  # fmt: skip
