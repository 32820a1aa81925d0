# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""Contractions as `linalg.generic` on views of the arrays that begin at the box's first point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, linalg, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, AffineMapAttr, MemRefType, NoneAttr, StridedLayoutAttr
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.ir import Block, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from upl_mlir.dialects.loops.attributes import Axis, Range
from upl_mlir.passes.loops.emit.code import INDEX, name_of
from upl_mlir.passes.loops.emit.frame import Frame
from upl_mlir.passes.loops.emit.values import neutral
from upl_mlir.passes.loops.transform.contractions import Contraction, Term, linear
from upl_mlir.passes.loops.tree import Box
from upl_mlir.passes.storage import Array
from upl_mlir.poly.expr import IndexExpr, Var
from upl_mlir.poly.linear import Con, Linear


@dataclass(frozen=True)
class Place:
    """An index of an array's axis: a coefficient for each dimension of the box, and the rest."""

    factors: tuple[int, ...]
    rest: IndexExpr


@dataclass(frozen=True)
class Extent:
    """The first value of each dimension of a box, and how many there are."""

    first: tuple[SSAValue, ...]
    sizes: tuple[SSAValue, ...]


@dataclass(frozen=True)
class Product:
    """A term with the places of both factors and of the result."""

    term: Term
    dims: tuple[Range, ...]
    names: tuple[str, str, str]
    places: tuple[tuple[Place, ...], ...]


def product_of(lin: Linear, t: Term, arrays: dict[str, Array], result: str) -> Product | None:
    """A term with its places; None if these are no linear functions of the indices."""
    dims = (*t.fields, *t.summed)
    names = (t.arrays[0].array, t.arrays[1].array, result)
    places: list[tuple[Place, ...]] = []
    for name, index in zip(names, t.indices, strict=True):
        axes = [_place(lin, x, index[x.at], dims) for x in arrays[name].axes]
        if any(a is None for a in axes):
            return None
        places.append(tuple(a for a in axes if a is not None))
    for d in range(len(dims)):
        alone = tuple(int(i == d) for i in range(len(dims)))
        if not any(p.factors == alone for axes in places for p in axes):
            return None
    return Product(t, dims, names, tuple(places))


def plain_result(p: Product) -> bool:
    """Whether each axis of the result is one of its fields, or none."""
    fields = len(p.term.fields)
    return all(sum(map(abs, a.factors)) <= 1 and not any(a.factors[fields:]) for a in p.places[2])


def _place(lin: Linear, axis: Axis, value: IndexExpr, dims: Sequence[Range]) -> Place | None:
    e = lin.plain(value - axis.origin)
    names = [r.var for r in dims]
    if not linear(e, names):
        return None
    by_name = {m[0].name: k for m, k in e.terms if len(m) == 1 and isinstance(m[0], Var)}
    factors = tuple(by_name.get(n, 0) for n in names)
    if axis.modulus is not None or axis.every is not None:
        return None if any(factors) else Place(factors, axis.place(value))
    rest = e
    for n, k in zip(names, factors, strict=True):
        rest = rest - IndexExpr.of(n) * k
    return Place(factors, rest)


class Writer:
    """Writes one contraction."""

    def __init__(self, f: Frame, array: str, found: Contraction):
        self.f, self.code, self.array, self.found = f, f.code, array, found

    def loops(self, ranges: Sequence[Range], write: Callable[[], None], *, parallel: bool = False) -> None:
        """Loops round what `write` writes."""
        if not ranges:
            write()
            return
        r, *rest = ranges
        code = self.code
        if not parallel:
            code.loop(r.var, r.lows, r.highs, [], lambda _: (self.loops(rest, write), ())[1])
            return
        lb, ub = self._bounds(r)
        block = Block(arg_types=[INDEX])
        block.args[0].name_hint = name_of(r.var)
        x = IndexExpr.of(r.var)
        code.reach.enter(r.var, r.lows, r.highs)

        def body() -> None:
            code.scope.known[x] = block.args[0]
            self.loops(rest, write, parallel=True)
            code.emit(scf.ReduceOp())

        code.inside(block, (*(Con(x - b) for b in r.lows), *(Con(b - x) for b in r.highs)), write=body)
        code.emit(scf.ParallelOp([lb], [ub], [code.constant(1, INDEX)], Region(block)))

    def _bounds(self, r: Range) -> tuple[SSAValue, SSAValue]:
        """The first value, and the one behind the last."""
        return (
            self.code.extremum(r.lows, arith.MaxSIOp),
            self.code.extremum([h + 1 for h in r.highs], arith.MinSIOp),
        )

    def covers(self, p: Product) -> bool:
        """Whether a term's box is that of the result, whose view can then be filled as it is."""
        return not p.term.around and not p.term.cons and p.term.fields == self.found.fields and plain_result(p)

    def start(self, box: Box) -> SSAValue:
        """What the sums start from."""
        fold, env = self.found.fold, box.leaf.env
        code = self.code
        start = neutral(code, fold) if self.f.program.ordered else code.constant(0.0, fold.kind.mlir)
        if fold.count is not None and self.f.program.ordered:
            count = self.f.lin.plain(fold.count.substitute(dict(env)))
            start = code.add(arith.SelectOp(code.holds(Con(-count)), code.constant(0.0, fold.kind.mlir), start))
        return start

    def zeros(self, start: SSAValue) -> None:
        """Fill the result."""
        code = self.code

        def store() -> None:
            code.emit(
                memref.StoreOp.get(start, self.f.values_of[self.array], self.f.place(self.array, self.found.index))
            )

        self.loops(self.found.fields, store, parallel=True)

    def sums(self, p: Product, start: SSAValue | None = None) -> None:
        """Add a term; `start` is what to fill the result with before."""
        self.loops(p.term.around, lambda: (self.generic(p, start, self.extent(p.dims)), None)[1])

    def extent(self, dims: Sequence[Range]) -> Extent:
        """The values of dimensions that no loop fixes."""
        code = self.code
        first: list[SSAValue] = []
        sizes: list[SSAValue] = []
        for r in dims:
            lb, behind = self._bounds(r)
            first.append(lb)
            sizes.append(code.add(arith.MaxSIOp(code.add(arith.SubiOp(behind, lb)), code.constant(0, INDEX))))
        return Extent(tuple(first), tuple(sizes))

    def generic(
        self, p: Product, start: SSAValue | None, extent: Extent, views: Mapping[int, SSAValue] | None = None
    ) -> linalg.ops.GenericOp:
        """The operation; `views` are given for arrays that are not read in place."""
        given = [
            (views or {}).get(i) or self._view(name, axes, extent)
            for i, (name, axes) in enumerate(zip(p.names, p.places, strict=True))
        ]
        return self._emit(p, given, start)

    def _emit(self, p: Product, views: Sequence[SSAValue], start: SSAValue | None) -> linalg.ops.GenericOp:
        code = self.code
        maps = [AffineMapAttr(AffineMap(len(p.dims), 0, tuple(map(_affine, axes)))) for axes in p.places]
        if start is not None:
            code.emit(linalg.ops.FillOp([start], views[2:], res=[]))
        kind = self.found.fold.kind.mlir
        block = Block(arg_types=[kind] * 3)
        x, y, z = block.args
        flags = self.f.flags
        times = arith.MulfOp(x, y, flags)
        plus = arith.AddfOp(z, times, flags)
        block.add_ops([times, plus, linalg.ops.YieldOp(plus.result)])
        summed = len(p.term.summed)
        kinds = [IteratorType.PARALLEL] * (len(p.dims) - summed) + [IteratorType.REDUCTION] * summed
        op = linalg.ops.GenericOp(views[:2], views[2:], Region(block), maps, [IteratorTypeAttr(k) for k in kinds])
        code.emit(op)
        return op

    def _view(self, name: str, axes: Sequence[Place], extent: Extent) -> SSAValue:
        """An array from the box's first point on."""
        code, source = self.code, self.f.values_of[name]
        if not axes:
            return source
        offsets: list[SSAValue] = []
        extents: list[SSAValue] = []
        for a in axes:
            at = code.index(self.f.lin.plain(a.rest))
            room: SSAValue | None = None
            for k, lb, size in zip(a.factors, extent.first, extent.sizes, strict=True):
                if not k:
                    continue
                step = lb if k == 1 else code.add(arith.MuliOp(lb, code.constant(k, INDEX)))
                at = code.add(arith.AddiOp(at, step))
                if room is None and k == 1:
                    room = size
                    continue
                more = code.add(arith.SubiOp(size, code.constant(1, INDEX)))
                if k != 1:
                    more = code.add(arith.MuliOp(more, code.constant(abs(k), INDEX)))
                room = code.add(arith.AddiOp(more, code.constant(1, INDEX) if room is None else room))
            offsets.append(at)
            extents.append(code.constant(1, INDEX) if room is None else room)
        return self.part(source, offsets, extents)

    def part(self, source: SSAValue, offsets: Sequence[SSAValue], extents: Sequence[SSAValue]) -> SSAValue:
        """A box of an array."""
        rank = len(offsets)
        layout = StridedLayoutAttr(_strides(source), NoneAttr())
        type_ = MemRefType(self.found.fold.kind.mlir, [DYNAMIC_INDEX] * rank, layout)
        return self.code.add(memref.SubviewOp.get(source, offsets, extents, [1] * rank, type_))


def _strides(source: SSAValue) -> list[int | NoneAttr]:
    """The strides of an array's type, as MLIR infers them: those behind its last open extent are numbers."""
    assert isinstance(source.type, MemRefType)
    out: list[int | NoneAttr] = [1]
    for extent in reversed(source.type.get_shape()[1:]):
        last = out[0]
        out.insert(0, NoneAttr() if isinstance(last, NoneAttr) or extent == DYNAMIC_INDEX else last * extent)
    return out


def _affine(a: Place) -> AffineExpr:
    out: AffineExpr | None = None
    for d, k in enumerate(a.factors):
        if not k:
            continue
        e = AffineExpr.dimension(d) if k == 1 else AffineExpr.dimension(d) * k
        out = e if out is None else out + e
    return AffineExpr.constant(0) if out is None else out
