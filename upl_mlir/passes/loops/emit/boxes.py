# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""A contraction among the loops, in one of its two forms: sums one after the other, or one product of a padded factor.

Which of them is written into the code, behind a test of what is known only there: sizes, and whether the other factor is
finite. The padded factor is a copy, of as many values of the first field at a time as the second-level cache holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects import arith, linalg, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, IntegerAttr, MemRefType, UnitAttr, i64
from xdsl.ir import Block, Region, SSAValue

from upl_mlir.passes.loops.emit.code import INDEX
from upl_mlir.passes.loops.emit.frame import Frame
from upl_mlir.passes.loops.emit.generic import Extent, Product, Writer, plain_result, product_of
from upl_mlir.passes.loops.transform.contractions import Padded
from upl_mlir.passes.loops.tree import Box
from upl_mlir.passes.storage import Array

FINITE = "upl.finite"
"""The attribute of a product one factor of which has zeros round it, where the other one is known to be finite: they make
zeros."""
AT_ONCE = 65_536
"""Numbers in a padded copy, unless one value of the first field has more. Chosen: 512 KiB of f64."""
GROWTH = 6
"""How many times as large as the factor its padded copy may be. Chosen, not measured."""


def write_box(f: Frame, box: Box) -> bool:
    """Write a contraction; False (and nothing written) if an array's places are no linear functions of the indices."""
    found = box.contraction
    products = [product_of(f.lin, t, f.arrays, box.leaf.stmt.array) for t in found.terms]
    if any(p is None for p in products):
        return False
    writer = Writer(f, box.leaf.stmt.array, found)

    def one_by_one() -> Sequence[SSAValue]:
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
        return ()

    padded = _padded(f, writer, box)
    if padded is None:
        one_by_one()
    else:
        f.code.when(padded.condition(), padded.form.term.cons, (), lambda: (padded.write(box), ())[1], one_by_one)
    return True


def _padded(f: Frame, writer: Writer, box: Box) -> _PaddedWriter | None:
    """The writer of the padded form, where there is one for these arrays."""
    form = box.contraction.padded
    if form is None:
        return None
    p = product_of(f.lin, form.term, f.arrays, box.leaf.stmt.array)
    if p is None or not plain_result(p):
        return None
    factor, other = (f.arrays[p.names[i]] for i in (form.factor, form.other))
    if any(axis.modulus is not None for a in (factor, other) for axis in a.axes) or not factor.axes:
        return None
    out = _PaddedWriter(f, writer, form, p, factor, other)
    return out if out.reads_all_of_the_other() else None


@dataclass
class _PaddedWriter:
    """Writes the padded form of a contraction."""

    f: Frame
    writer: Writer
    form: Padded
    p: Product
    factor: Array
    other: Array

    def reads_all_of_the_other(self) -> bool:
        """Whether the other factor is read whole: each of its axes from end to end, by a dimension of its own."""
        seen: set[int] = set()
        for place, axis in zip(self.p.places[self.form.other], self.other.axes, strict=True):
            used = [d for d, k in enumerate(place.factors) if k]
            if len(used) != 1 or used[0] in seen or abs(place.factors[used[0]]) != 1:
                return False
            seen.add(used[0])
            r = self.p.dims[used[0]]
            if len(r.lows) != 1 or len(r.highs) != 1:
                return False
            ends = (r.lows[0], r.highs[0])
            low, high = ends if place.factors[used[0]] > 0 else (-ends[1], -ends[0])
            lin = self.f.lin
            if lin.plain(place.rest + low).constant != 0 or lin.plain(place.rest + high + 1 - axis.size).constant != 0:
                return False
        return bool(self.other.axes)

    # -- extents -------------------------------------------------------------------------------------------------------
    @cached_property
    def extent(self) -> Extent:
        """Of the whole box."""
        return self.writer.extent(self.p.dims)

    @cached_property
    def by_parts(self) -> int | None:
        """The axis of the factor along which the copy is made part by part: that of the first field, if it is plain."""
        places = self.p.places[self.form.factor]
        alone = tuple(int(d == 0) for d in range(len(self.p.dims)))
        used = [i for i, place in enumerate(places) if place.factors[0]]
        if len(used) != 1 or places[used[0]].factors != alone or self.factor.axes[used[0]].at in self.form.limits:
            return None
        return used[0]

    def _op(self, make: type[arith.SignlessIntegerBinaryOperation], a: SSAValue, b: SSAValue) -> SSAValue:
        """An operation on places; times 1, plus 0 and minus 0 are none."""
        if make in (arith.MuliOp, arith.AddiOp, arith.SubiOp):
            nothing = self._number(int(make is arith.MuliOp))
            if b is nothing:
                return a
            if a is nothing and make is not arith.SubiOp:
                return b
        return self.f.code.add(make(a, b))

    def _number(self, n: int) -> SSAValue:
        return self.f.code.constant(n, INDEX)

    def _times(self, k: int, v: SSAValue) -> SSAValue:
        return v if k == 1 else self._op(arith.MuliOp, v, self._number(k))

    def _begin(self, axis: int, extent: Extent) -> SSAValue:
        """The place in the factor where its padded copy begins; it may be before the array."""
        place = self.p.places[self.form.factor][axis]
        at = self.f.code.index(self.f.lin.plain(place.rest))
        for k, first, size in zip(place.factors, extent.first, extent.sizes, strict=True):
            if k:
                end = first if k > 0 else self._op(arith.SubiOp, self._op(arith.AddiOp, first, size), self._number(1))
                at = self._op(arith.AddiOp, at, self._times(k, end))
        return at

    def _room(self, axis: int, extent: Extent) -> SSAValue:
        """The size of the padded copy."""
        factors = self.p.places[self.form.factor][axis].factors
        steps = [(abs(k), size) for k, size in zip(factors, extent.sizes, strict=True) if k]
        if [k for k, _ in steps] == [1]:
            return steps[0][1]
        total = self._number(1)
        for k, size in steps:
            more = self._op(arith.SubiOp, size, self._number(1))
            total = self._op(arith.AddiOp, total, self._times(k, more))
        return self._op(arith.MaxSIOp, total, self._number(0))

    def _inside(self, axis: int, begin: SSAValue, room: SSAValue) -> tuple[SSAValue, SSAValue]:
        """Where the factor's own numbers begin, and where they have ended."""
        end = self._op(arith.AddiOp, begin, room)
        found = self.form.limits.get(self.factor.axes[axis].at)
        if found is None:
            return begin, end
        origin, code = self.factor.axes[axis].origin, self.f.code
        low = code.extremum([self.f.lin.plain(e - origin) for e in found[0]], arith.MaxSIOp)
        high = code.extremum([self.f.lin.plain(e - origin + 1) for e in found[1]], arith.MinSIOp)
        return self._op(arith.MaxSIOp, begin, low), self._op(arith.MinSIOp, end, high)

    # -- the test ------------------------------------------------------------------------------------------------------
    def condition(self) -> SSAValue:
        """Whether the form is right, and worth it."""
        code, one = self.f.code, self._number(1)
        padded, own = one, one
        for i, axis in enumerate(self.factor.axes):
            if axis.at in self.form.limits:
                room = self._room(i, self.extent)
                low, high = self._inside(i, self._begin(i, self.extent), room)
                padded = self._op(arith.MuliOp, padded, room)
                own = self._op(
                    arith.MuliOp, own, self._op(arith.MaxSIOp, self._op(arith.SubiOp, high, low), self._number(0))
                )
        worth = code.add(arith.CmpiOp(padded, self._op(arith.MuliOp, own, self._number(GROWTH)), "sle"))
        open_ = self.form.term.cons
        if open_:
            worth = code.add(arith.AndIOp(worth, code.all(open_)))
        return code.add(arith.AndIOp(worth, self._finite()))

    def _finite(self) -> SSAValue:
        """Whether all numbers of the other factor are finite: 0 times each of them, summed up, is then 0."""
        code, kind = self.f.code, self.writer.found.fold.kind.mlir
        row = self.f.values_of[self.p.names[self.form.other]]
        rank = len(self.other.axes)
        if rank > 1:
            together = ArrayAttr([ArrayAttr([IntegerAttr(i, i64) for i in range(rank)])])
            flat = MemRefType(kind, [DYNAMIC_INDEX])
            row = code.add(
                memref.CollapseShapeOp.build(
                    operands=[row], result_types=[flat], properties={"reassociation": together}
                )
            )
        size = self._number(1)
        for axis in self.other.axes:
            size = self._op(arith.MuliOp, size, code.index(self.f.lin.plain(axis.extent)))
        zero = code.constant(0.0, kind)
        block = Block(arg_types=[INDEX, kind])
        i, total = block.args

        def write() -> None:
            nothing = code.add(arith.MulfOp(code.add(memref.LoadOp.get(row, [i])), zero, self.f.flags))
            code.emit(scf.YieldOp(code.add(arith.AddfOp(total, nothing, self.f.flags))))

        code.inside(block, write=write)
        loop = scf.ForOp(self._number(0), size, self._number(1), [zero], Region(block))
        return code.add(arith.CmpfOp(code.add(loop), zero, "oeq"))

    # -- the product ---------------------------------------------------------------------------------------------------
    def write(self, box: Box) -> None:
        """The product, part by part."""
        code, axes = self.f.code, range(len(self.factor.axes))
        start = self.writer.start(box)
        rooms = [self._room(i, self.extent) for i in axes]
        at = self.by_parts
        if at is None:
            self._part(start, self.extent, rooms)
            return
        each = self._number(1)
        for i in axes:
            if i != at:
                each = self._op(arith.MuliOp, each, self._op(arith.MaxSIOp, rooms[i], self._number(1)))
        some = self._op(arith.MaxSIOp, self._op(arith.DivSIOp, self._number(AT_ONCE), each), self._number(1))
        some = self._op(arith.MaxSIOp, self._op(arith.MinSIOp, some, rooms[at]), self._number(1))
        rooms[at] = some
        first, size = self.extent.first[0], self.extent.sizes[0]
        behind = self._op(arith.AddiOp, first, size)
        block = Block(arg_types=[INDEX])
        here = block.args[0]

        def part() -> None:
            left = self._op(arith.MinSIOp, some, self._op(arith.SubiOp, behind, here))
            extent = Extent((here, *self.extent.first[1:]), (left, *self.extent.sizes[1:]))
            self._part(start, extent, rooms)
            code.emit(scf.ReduceOp())

        code.inside(block, write=part)
        code.emit(scf.ParallelOp([first], [behind], [some], Region(block)))

    def _part(self, start: SSAValue, extent: Extent, rooms: Sequence[SSAValue]) -> None:
        """A padded copy for a box of the result, and its product."""
        code, kind, which = self.f.code, self.writer.found.fold.kind.mlir, self.form.factor
        axes = range(len(self.factor.axes))
        copy = code.add(memref.AllocOp(list(rooms), [], MemRefType(kind, [DYNAMIC_INDEX] * len(rooms))))
        code.emit(linalg.ops.FillOp([code.constant(0.0, kind)], [copy], res=[]))
        begins = [self._begin(i, extent) for i in axes]
        own = [self._inside(i, begins[i], self._room(i, extent)) for i in axes]
        source = self.f.values_of[self.p.names[which]]

        def level(place: list[SSAValue]) -> None:
            if len(place) == len(rooms):
                to = [self._op(arith.SubiOp, x, begin) for x, begin in zip(place, begins, strict=True)]
                code.emit(memref.StoreOp.get(code.add(memref.LoadOp.get(source, place)), copy, to))
                return
            block = Block(arg_types=[INDEX])

            def write() -> None:
                level([*place, block.args[0]])
                code.emit(scf.ReduceOp())

            code.inside(block, write=write)
            low, high = own[len(place)]
            code.emit(scf.ParallelOp([low], [high], [self._number(1)], Region(block)))

        level([])
        offsets: list[SSAValue] = []
        for i in axes:
            at = self._number(0)
            for k, size in zip(self.p.places[which][i].factors, extent.sizes, strict=True):
                if k < 0:
                    back = self._times(-k, self._op(arith.SubiOp, size, self._number(1)))
                    at = self._op(arith.AddiOp, at, back)
            offsets.append(at)
        view = self.writer.part(
            copy, offsets, [self._op(arith.SubiOp, r, o) for r, o in zip(rooms, offsets, strict=True)]
        )
        product = self.writer.generic(self.p, start, extent, {which: view})
        product.attributes[FINITE] = UnitAttr()
