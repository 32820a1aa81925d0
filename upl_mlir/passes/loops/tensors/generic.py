"""One `linalg.generic` under construction: its loops, the tensors that it reads, and its body."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, linalg, memref, tensor
from xdsl.dialects.builtin import AffineMapAttr, TensorType, i1
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap

from upl_mlir.passes.loops.tensors.facts import Facts
from upl_mlir.passes.loops.tensors.scope import Scope, Size, sliced, type_of


@dataclass(frozen=True, eq=False)
class Dim:
    """A loop: its variable in the old function, its first value, and how many there are."""

    iv: SSAValue
    low: Size
    size: Size


@dataclass(frozen=True, eq=False)
class Whole:
    """A value of the old function for all iterations of some loops."""

    tensor: SSAValue
    dims: tuple[Dim, ...]


def mapped(dims: int, axes: Sequence[int]) -> AffineMapAttr:
    """Which loop moves along which axis."""
    return AffineMapAttr(AffineMap(dims, 0, tuple(AffineExpr.dimension(d) for d in axes)))


@dataclass(eq=False)
class Body(Scope):
    """The body of a `linalg.generic` over `dims`; `host` is the block in which the operation will stand.

    `whole` are values that are tensors already, `straight` the blocks of the old function whose operations run in every
    iteration: only their reads may be done for all iterations at once.
    """

    dims: tuple[Dim, ...] = ()
    host: Scope | None = None
    facts: Facts = field(default_factory=Facts)
    whole: dict[SSAValue, Whole] = field(default_factory=dict[SSAValue, Whole])
    straight: set[Block] = field(default_factory=set[Block])
    top: Body | None = None
    ins: list[SSAValue] = field(default_factory=list[SSAValue])
    maps: list[AffineMapAttr] = field(default_factory=list[AffineMapAttr])
    _read: dict[object, SSAValue] = field(default_factory=dict[object, SSAValue])

    def inner(self, block: Block) -> Body:
        """A block inside of the body."""
        top = self.top or self
        return Body(block, self.arrays, self, {}, {}, top.dims, top.host, top.facts, top.whole, top.straight, top)

    def parts(self, v: SSAValue) -> Sequence[SSAValue]:
        """As `Scope`; what is a tensor already, or will be read as one, needs nothing."""
        return [] if v in self.whole or self._place(v) is not None else super().parts(v)

    def write(self, v: SSAValue) -> None:
        """As `Scope`; variables of the loops, and what is read as a whole, are made at the top of the body."""
        top = self.top or self
        for n, d in enumerate(top.dims):
            if d.iv is v:
                at = top.add(linalg.ops.IndexOp(n))
                top.known[v] = top.size(top.op(arith.AddiOp, at, d.low))
                return
        if v in top.whole:
            found = top.whole[v]
            top.known[v] = top.operand(found.tensor, [top.dims.index(d) for d in found.dims])
            return
        place = self._place(v)
        if place is None:
            super().write(v)
            return
        op = v.owner
        assert isinstance(op, memref.LoadOp)
        assert top.host is not None
        source = self.arrays.tensor_at(op, op.memref)
        offsets = tuple(top.first(i) for i in op.indices)
        key = (source, offsets, tuple(place))
        if key not in top._read:
            sizes = [1 if d is None else top.dims[d].size for d in place]
            part = sliced(top.host, source, offsets, sizes, [d is None for d in place])
            top._read[key] = top.as_type(top.operand(part, [d for d in place if d is not None]), v.type)
        top.known[v] = top._read[key]

    def _place(self, v: SSAValue) -> list[int | None] | None:
        """How a read moves along the axes of its array, if it can be done for all iterations at once."""
        op, top = v.owner, self.top or self
        if not isinstance(op, memref.LoadOp) or op.parent not in self.straight:
            return None
        by = {d.iv: n for n, d in enumerate(top.dims)}
        place = top.facts.place(op.indices, by)
        if place is None or any(top.facts.reads(i) for i in op.indices):
            return None
        assert top.host is not None
        outside = {x for i in op.indices for x in top.facts.deps(i)} - set(by)
        return place if all(top.host.find(x) is not None for x in outside) else None

    def first(self, index: SSAValue) -> Size:
        """An index in the first iteration of all loops, outside of the body."""
        assert self.host is not None
        at = self.host.inner(self.host.block)
        at.known.update({d.iv: self.host.size(d.low) for d in self.dims})
        at.made = self.host.made
        return at.index(index)

    def operand(self, source: SSAValue, axes: Sequence[int]) -> SSAValue:
        """One more tensor to read: its element in the body."""
        assert isinstance(source.type, TensorType)
        arg = self.block.insert_arg(source.type.element_type, len(self.ins))
        self.ins.append(source)
        self.maps.append(mapped(len(self.dims), axes))
        return arg

    def finish(
        self, values: Sequence[SSAValue], outs: Sequence[SSAValue], maps: Sequence[AffineMapAttr], parallel: int
    ) -> Sequence[SSAValue]:
        """The operation, of which the first `parallel` loops are parallel; its results."""
        assert self.host is not None
        self._bound(maps)
        self.block.add_op(linalg.ops.YieldOp(*values))
        kinds = [IteratorType.PARALLEL if d < parallel else IteratorType.REDUCTION for d in range(len(self.dims))]
        op = linalg.ops.GenericOp(
            self.ins, outs, Region(self.block), [*self.maps, *maps], [IteratorTypeAttr(k) for k in kinds],
            [o.type for o in outs],
        )  # fmt: skip
        self.host.block.add_op(op)
        return op.results

    def _bound(self, outs: Sequence[AffineMapAttr]) -> None:
        """An empty tensor to read where a loop moves along no axis: MLIR takes the iterations of a loop from a tensor."""
        assert self.host is not None
        moved = {e.position for m in (*self.maps, *outs) for e in m.data.results if isinstance(e, AffineDimExpr)}
        still = [n for n in range(len(self.dims)) if n not in moved]
        if still:
            self.operand(nothing(self.host, [self.dims[n] for n in still], i1), still)


def nothing(scope: Scope, dims: Sequence[Dim], element: Attribute) -> SSAValue:
    """An empty tensor with an element for each iteration."""
    sizes = [d.size for d in dims]
    return scope.add(tensor.EmptyOp([n for n in sizes if not isinstance(n, int)], type_of(element, sizes)))
