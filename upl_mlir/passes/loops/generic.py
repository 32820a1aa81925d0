# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""Contractions as `linalg.generic` on views of the arrays that begin at the box's first point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xdsl.dialects import arith, linalg, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, AffineMapAttr, MemRefType, NoneAttr, StridedLayoutAttr
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.ir import Block, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from upl_mlir.passes.loops.code import INDEX, name_of
from upl_mlir.passes.loops.contractions import Contraction, Range, Term, linear
from upl_mlir.poly.expr import IndexExpr, Var
from upl_mlir.poly.linear import Con, Linear

if TYPE_CHECKING:
    from upl_mlir.passes.loops.function import FunctionWriter
    from upl_mlir.passes.loops.tree import Box
    from upl_mlir.passes.storage import Array


@dataclass(frozen=True)
class _Place:
    """An index of an array's axis: a coefficient for each dimension of the box, and the rest."""

    factors: tuple[int, ...]
    rest: IndexExpr


@dataclass(frozen=True)
class _Product:
    """A term with the places of both factors and of the result."""

    term: Term
    dims: tuple[Range, ...]
    names: tuple[str, str, str]
    places: tuple[tuple[_Place, ...], ...]


def write_box(f: FunctionWriter, box: Box) -> bool:
    """Write a contraction; False (and nothing written) if an array's places are no linear functions of the indices."""
    found = box.contraction
    products = [_product(f.lin, t, f.arrays, box.leaf.stmt.array) for t in found.terms]
    if any(p is None for p in products):
        return False
    writer = _Writer(f, box.leaf.stmt.array, found)

    def inside() -> None:
        start = writer.start(box)
        for i, p in enumerate(products):
            assert p is not None
            whole = not i and writer.covers(p)
            if not i and not whole:
                writer.zeros(start)
            fill = start if whole else None
            if p.term.cons:
                f.code.when(f.code.all(p.term.cons), p.term.cons, (), lambda p=p: (writer.sums(p), ())[1])
            else:
                writer.sums(p, fill)

    writer.loops(found.around, inside, parallel=True)
    return True


def _product(lin: Linear, t: Term, arrays: dict[str, Array], result: str) -> _Product | None:
    dims = (*t.fields, *t.summed)
    names = (t.arrays[0].array, t.arrays[1].array, result)
    places: list[tuple[_Place, ...]] = []
    for name, index in zip(names, t.indices, strict=True):
        axes = [_place(lin, arrays[name].axes[i].modulus, index[x.at] - x.lower, dims)
                for i, x in enumerate(arrays[name].axes)]  # fmt: skip
        if any(a is None for a in axes):
            return None
        places.append(tuple(a for a in axes if a is not None))
    for d in range(len(dims)):
        alone = tuple(int(i == d) for i in range(len(dims)))
        if not any(p.factors == alone for axes in places for p in axes):
            return None
    return _Product(t, dims, names, tuple(places))


def _place(lin: Linear, modulus: int | None, e: IndexExpr, dims: Sequence[Range]) -> _Place | None:
    e = lin.plain(e)
    names = [r.var for r in dims]
    if not linear(e, names):
        return None
    by_name = {m[0].name: k for m, k in e.terms if len(m) == 1 and isinstance(m[0], Var)}
    factors = tuple(by_name.get(n, 0) for n in names)
    if modulus is not None:
        from upl_mlir.poly.expr import DivKind, divide

        if any(factors):
            return None
        return _Place(factors, divide(DivKind.MOD, e, IndexExpr.of(modulus)))
    rest = e
    for n, k in zip(names, factors, strict=True):
        rest = rest - IndexExpr.of(n) * k
    return _Place(factors, rest)


class _Writer:
    """Writes one contraction."""

    def __init__(self, f: FunctionWriter, array: str, found: Contraction):
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

    def covers(self, p: _Product) -> bool:
        """Whether a term's box is that of the result, whose view can then be filled as it is."""
        fields = len(p.term.fields)
        alone = all(sum(map(abs, a.factors)) <= 1 and not any(a.factors[fields:]) for a in p.places[2])
        return not p.term.around and not p.term.cons and p.term.fields == self.found.fields and alone

    def start(self, box: Box) -> SSAValue:
        """What the sums start from."""
        fold, env = self.found.fold, box.leaf.env
        code = self.code
        start = self.f.values.neutral(fold) if self.f.ordered else code.constant(0.0, fold.kind.mlir)
        if fold.count is not None and self.f.ordered:
            count = self.f.lin.plain(fold.count.substitute(dict(env)))
            start = code.add(arith.SelectOp(code.holds(Con(-count)), code.constant(0.0, fold.kind.mlir), start))
        return start

    def zeros(self, start: SSAValue) -> None:
        """Fill the result."""
        code = self.code

        def store() -> None:
            code.emit(memref.StoreOp.get(start, self.f.values_of[self.array], self.f.place(self.array, self.found.index)))

        self.loops(self.found.fields, store, parallel=True)

    def sums(self, p: _Product, start: SSAValue | None = None) -> None:
        """Add a term; `start` is what to fill the result with before."""
        self.loops(p.term.around, lambda: self._generic(p, start))

    def _generic(self, p: _Product, start: SSAValue | None) -> None:
        code = self.code
        first: list[SSAValue] = []
        sizes: list[SSAValue] = []
        for r in p.dims:
            lb, behind = self._bounds(r)
            first.append(lb)
            sizes.append(code.add(arith.MaxSIOp(code.add(arith.SubiOp(behind, lb)), code.constant(0, INDEX))))
        views: list[SSAValue] = []
        maps: list[AffineMapAttr] = []
        for name, axes in zip(p.names, p.places, strict=True):
            views.append(self._view(name, axes, first, sizes))
            maps.append(AffineMapAttr(AffineMap(len(p.dims), 0, tuple(map(_affine, axes)))))
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
        code.emit(
            linalg.ops.GenericOp(views[:2], views[2:], Region(block), maps, [IteratorTypeAttr(k) for k in kinds])
        )

    def _view(
        self, name: str, axes: Sequence[_Place], first: Sequence[SSAValue], sizes: Sequence[SSAValue]
    ) -> SSAValue:
        """An array from the box's first point on."""
        code, source = self.code, self.f.values_of[name]
        if not axes:
            return source
        offsets: list[SSAValue] = []
        extents: list[SSAValue] = []
        for a in axes:
            at = code.index(self.f.lin.plain(a.rest))
            extent: SSAValue | None = None
            for k, lb, size in zip(a.factors, first, sizes, strict=True):
                if not k:
                    continue
                step = lb if k == 1 else code.add(arith.MuliOp(lb, code.constant(k, INDEX)))
                at = code.add(arith.AddiOp(at, step))
                # exact where the axis is one dimension, which is where it is asked for
                extent = size if extent is None else code.add(arith.AddiOp(extent, size))
            offsets.append(at)
            extents.append(code.constant(1, INDEX) if extent is None else extent)
        rank = len(axes)
        layout = StridedLayoutAttr([NoneAttr()] * (rank - 1) + [1], NoneAttr())
        kind = self.found.fold.kind.mlir
        type_ = MemRefType(kind, [DYNAMIC_INDEX] * rank, layout)
        return code.add(memref.SubviewOp.get(source, offsets, extents, [1] * rank, type_))


def _affine(a: _Place) -> AffineExpr:
    out: AffineExpr | None = None
    for d, k in enumerate(a.factors):
        if not k:
            continue
        e = AffineExpr.dimension(d) if k == 1 else AffineExpr.dimension(d) * k
        out = e if out is None else out + e
    return AffineExpr.constant(0) if out is None else out
