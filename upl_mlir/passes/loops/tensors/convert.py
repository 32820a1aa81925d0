"""A function of loops over memrefs as one on tensors: each write makes a new tensor, each read names the one it reads.

Parallel loops, and folds, become `linalg.generic` where the places that they read and write move with step 1 along the axes;
loops in order become `scf.for` that hands tensors on.  A parallel loop may be split, and changed with a loop inside of it,
as no iteration needs another (Allen and Kennedy 1987).
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import cast

from xdsl.dialects import arith, func, linalg, memref, scf, tensor
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    DenseIntOrFPElementsAttr,
    FunctionType,
    MemRefType,
    ModuleOp,
    TensorType,
    i64,
)
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineMap

from upl_mlir.passes.loops.tensors.facts import Facts, root_of, written
from upl_mlir.passes.loops.tensors.generic import Body, Dim, Whole, mapped, nothing
from upl_mlir.passes.loops.tensors.scope import INDEX, Scope, Size, inserted, sliced, tensor_type

_Place = tuple[Sequence[Size], Sequence[Size]]
"""Offsets and sizes of a part of an array."""


@dataclass(eq=False)
class _Store:
    """A write that waits for those beside it."""

    op: memref.StoreOp
    dims: tuple[Dim, ...]
    when: scf.IfOp | None = None


@dataclass(eq=False)
class Converter:
    """Rewrites one function."""

    module: ModuleOp
    facts: Facts = field(default_factory=Facts)
    now: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """The tensor that each array is at present."""
    _versions: dict[Operation, SSAValue] = field(default_factory=dict[Operation, SSAValue])
    _whole: dict[SSAValue, Whole] = field(default_factory=dict[SSAValue, Whole])
    _straight: set[Block] = field(default_factory=set[Block])
    _waiting: list[_Store] = field(default_factory=list[_Store])

    def convert(self, f: func.FuncOp) -> func.FuncOp:
        """The function on tensors."""
        old = f.body.block
        block = Block(arg_types=[tensor_type(a.type) if isinstance(a.type, MemRefType) else a.type for a in old.args])
        scope = Scope(block, self)
        for a, b in zip(old.args, block.args, strict=True):
            b.name_hint = a.name_hint
            (self.now if isinstance(a.type, MemRefType) else scope.known)[a] = b
        *ops, end = old.ops
        self.run(ops, (), scope)
        results = [self.now[o] for o in end.operands]
        scope.block.add_op(func.ReturnOp(*results))
        new = func.FuncOp(
            f.sym_name.data, FunctionType.from_lists([a.type for a in block.args], [r.type for r in results]), Region(block)
        )
        new.attributes.update(f.attributes)
        return new

    def tensor_at(self, load: Operation, array: SSAValue) -> SSAValue:
        """The tensor that an array was where `load` stood."""
        found = self._versions.get(load)
        assert found is not None, array
        return found

    def scalar(self, v: SSAValue) -> SSAValue | None:
        """The tensor without axes that holds a value, if there is one."""
        found = self._whole.get(v)
        return found.tensor if found is not None and not found.dims else None

    # -- operations in order ----------------------------------------------------------------------------------------------
    def run(self, ops: Iterable[Operation], dims: tuple[Dim, ...], scope: Scope) -> None:
        """Operations, for all iterations of the parallel loops `dims` at once."""
        for op in ops:
            assert op.parent is not None
            self._straight.add(op.parent)
            self._one(op, dims, scope)
        self._flush(scope)

    def _one(self, op: Operation, dims: tuple[Dim, ...], scope: Scope) -> None:
        match op:
            case memref.AllocOp():
                sizes = [scope.index(n) for n in op.dynamic_sizes]
                self.now[op.memref] = self._empty(op, sizes, scope)
            case memref.StoreOp():
                if any(s.op.memref is op.memref for s in self._waiting):
                    self._flush(scope)
                self._waiting.append(_Store(op, dims))
            case memref.GetGlobalOp():
                self._table(op, scope)
            case memref.SubviewOp() | scf.YieldOp() | scf.ReduceOp():
                pass
            case memref.CollapseShapeOp():
                self._flush(scope)
                shape = self.now[op.src].type.get_shape()
                size = DYNAMIC_INDEX if DYNAMIC_INDEX in shape else prod(shape)
                type_ = TensorType(op.result.type.element_type, [size])  # it has one axis: `emit/boxes.py`
                new = tensor.CollapseShapeOp.create(
                    operands=[self.now[op.src]], result_types=[type_], properties={"reassociation": op.reassociation}
                )
                self.now[op.result] = scope.add(new)
            case linalg.ops.FillOp() | linalg.ops.GenericOp():
                self._flush(scope)
                self._linalg(op, scope)
            case scf.ParallelOp():
                self._flush(scope)
                self._parallel(op, dims, scope)
            case scf.ForOp() if written([op]):
                self._flush(scope)
                self._for(op, op.lb, op.ub, dims, scope)
            case scf.IfOp() if written([op]):
                self._flush(scope)
                self._if(op, dims, scope)
            case _:
                self._reads(op, scope)
                if isinstance(op, scf.ForOp):
                    self._fold(op, dims, scope)

    def _reads(self, op: Operation, scope: Scope) -> None:
        """What the reads in an operation find."""
        for o in op.walk():
            if isinstance(o, memref.LoadOp | memref.DimOp):
                array = o.memref if isinstance(o, memref.LoadOp) else o.source
                if any(s.op.memref is array for s in self._waiting):
                    self._flush(scope)
                self._versions[o] = self.now[array]
            elif isinstance(o, memref.GetGlobalOp):
                self._table(o, scope)

    def _table(self, op: memref.GetGlobalOp, scope: Scope) -> None:
        tables = [g for g in self.module.body.block.ops if isinstance(g, memref.GlobalOp)]
        found = next(g for g in tables if g.sym_name == op.name_.root_reference)
        value = found.initial_value
        assert isinstance(value, DenseIntOrFPElementsAttr)
        if value.type.element_type == INDEX:  # MLIR has index constants, IREE has not
            numbers = cast(Sequence[int], value.get_values())
            value = DenseIntOrFPElementsAttr.from_list(TensorType(i64, value.get_shape()), numbers)
        self.now[op.memref] = scope.add(arith.ConstantOp(value))

    def _empty(self, op: memref.AllocOp, sizes: Sequence[Size], scope: Scope) -> SSAValue:
        assert isinstance(op.memref.type, MemRefType)
        rest = iter(sizes)
        shape = [next(rest) if n < 0 else n for n in op.memref.type.get_shape()]
        type_ = tensor_type(op.memref.type)
        dynamic = [scope.size(n) for n, old in zip(shape, type_.get_shape(), strict=True) if old < 0]
        new = scope.add(tensor.EmptyOp(dynamic, type_))
        new.name_hint = op.memref.name_hint
        return new

    # -- writes -----------------------------------------------------------------------------------------------------------
    def _flush(self, scope: Scope) -> None:
        """Write what waits, in one operation for those of the same loops."""
        while self._waiting:
            dims = self._waiting[0].dims
            place = self._axes(self._waiting[0])
            together = [s for s in self._waiting if s.dims == dims and self._axes(s) == place]
            self._waiting = [s for s in self._waiting if s not in together]
            self._store(together, dims, scope)

    def _axes(self, s: _Store) -> list[int] | None:
        """The loops along the axes of what is written, in order."""
        place = self.facts.place(s.op.indices, {d.iv: n for n, d in enumerate(s.dims)})
        return None if place is None else [d for d in place if d is not None]

    def _body(self, dims: tuple[Dim, ...], scope: Scope, types: Sequence[object]) -> Body:
        block = Block(arg_types=types)  # pyright: ignore
        return Body(block, self, scope, {}, {}, dims, scope, self.facts, self._whole, self._straight)

    def _store(self, stores: Sequence[_Store], dims: tuple[Dim, ...], scope: Scope) -> None:
        body = self._body(dims, scope, [s.op.value.type for s in stores])
        by = {d.iv: n for n, d in enumerate(dims)}
        outs: list[SSAValue] = []
        maps = []
        places: list[tuple[SSAValue, list[Size], list[Size]]] = []
        for s in stores:
            place = self.facts.place(s.op.indices, by)
            if place is None:  # a place that data choose: there are no loops
                place = [None] * len(s.op.indices)
            offsets = [body.first(i) for i in s.op.indices]
            sizes: list[Size] = [1 if d is None else dims[d].size for d in place]
            target = self.now[s.op.memref]
            outs.append(sliced(scope, target, offsets, sizes, [d is None for d in place]))
            maps.append(mapped(len(dims), [d for d in place if d is not None]))
            places.append((s.op.memref, offsets, sizes))
        values = [body.value(s.op.value) for s in stores]
        results = body.finish(values, outs, maps, len(dims))
        for s, result, (array, offsets, sizes) in zip(stores, results, places, strict=True):
            new = inserted(scope, result, self.now[array], offsets, sizes)
            new.name_hint = array.name_hint
            self.now[array] = new
            axes = list(maps[stores.index(s)].data.results)
            in_order = axes == [type(a)(n) for n, a in enumerate(axes)]
            made = s.op.value.owner
            if not in_order or isinstance(made, memref.LoadOp | arith.ConstantOp | Block):
                continue
            if made.parent is s.op.parent:  # what is stored further inside, under a condition, is not there outside
                self._whole[s.op.value] = Whole(result, dims)

    def _note(self, op: scf.IfOp, dims: tuple[Dim, ...], scope: Scope) -> None:
        """A fault in any iteration sets the number that says so."""
        (store,) = [o for o in op.true_region.block.ops if isinstance(o, memref.StoreOp)]
        target = self.now[store.memref]
        body = self._body(dims, scope, [store.value.type])
        # the argument first: what is read comes before it
        known = body.block.args[0]
        cond = body.value(op.cond)
        value = body.add(arith.SelectOp(cond, body.value(store.value), known))
        (self.now[store.memref],) = body.finish([value], [target], [mapped(len(dims), [])], 0)

    # -- folds ------------------------------------------------------------------------------------------------------------
    def _fold(self, op: scf.ForOp, dims: tuple[Dim, ...], scope: Scope) -> None:
        """A fold for all iterations at once, if it can be done so; else it stays a loop where its result is asked for."""
        loops = self.facts.sums(op, [d.iv for d in dims])
        if loops is None:
            return
        self._flush(scope)
        starts = [self._start(v, dims, scope) for v in op.iter_args]
        more = tuple(self._dim(f.body.block.args[0], f.lb, f.ub, scope) for f in loops)
        body = self._body((*dims, *more), scope, [v.type for v in op.iter_args])
        own = list(body.block.args)
        for f in loops:
            self._straight.add(f.body.block)
            body.take(f.body.block.args[1:], own)
        end = loops[-1].body.block.last_op
        assert isinstance(end, scf.YieldOp)
        values = [body.value(o) for o in end.operands]
        maps = [mapped(len(body.dims), range(len(dims)))] * len(own)
        for old, new in zip(op.results, body.finish(values, starts, maps, len(dims)), strict=True):
            self._whole[old] = Whole(new, dims)

    def _start(self, v: SSAValue, dims: tuple[Dim, ...], scope: Scope) -> SSAValue:
        """What a fold starts from, for all iterations."""
        found = self._whole.get(v)
        if found is not None and found.dims == dims:
            return found.tensor
        empty = nothing(scope, dims, v.type)
        if self.facts.fixed(v, [d.iv for d in dims]) and not self.facts.reads(v):
            return scope.add(linalg.ops.FillOp([scope.value(v)], [empty], res=[empty.type]))
        body = self._body(dims, scope, [v.type])
        (out,) = body.finish([body.value(v)], [empty], [mapped(len(dims), range(len(dims)))], len(dims))
        return out

    def _dim(self, iv: SSAValue, lb: SSAValue, ub: SSAValue, scope: Scope) -> Dim:
        low, end = scope.index(lb), scope.index(ub)
        size = scope.op(arith.SubiOp, end, low)
        return Dim(iv, low, max(size, 0) if isinstance(size, int) else scope.op(arith.MaxSIOp, size, 0))

    # -- control ----------------------------------------------------------------------------------------------------------
    def _parallel(self, op: scf.ParallelOp, dims: tuple[Dim, ...], scope: Scope) -> None:
        iv = op.body.block.args[0]
        lb, ub = op.lowerBound[0], op.upperBound[0]
        if self.facts.fits(op.body.block.ops, [*(d.iv for d in dims), iv]):
            self.run(op.body.block.ops, (*dims, self._dim(iv, lb, ub, scope)), scope)
        else:
            self._loop(op, lb, ub, dims, scope)

    def _for(self, op: scf.ForOp, lb: SSAValue, ub: SSAValue, dims: tuple[Dim, ...], scope: Scope) -> None:
        self._loop(op, lb, ub, dims, scope, op.iter_args)

    def _loop(
        self, op: scf.ForOp | scf.ParallelOp, lb: SSAValue, ub: SSAValue, dims: tuple[Dim, ...], scope: Scope,
        given: Sequence[SSAValue] = (),
    ) -> None:  # fmt: skip
        """Iterations one after the other, which hand on the arrays that they write."""
        old = op.body.block
        arrays = written([op])
        starts = [*(scope.value(v) for v in given), *(self.now[a] for a in arrays)]
        low, end = scope.value(lb), scope.value(ub)
        block = Block(arg_types=[INDEX, *(v.type for v in starts)])
        inner = scope.inner(block)
        inner.take(old.args, block.args[: len(old.args)])
        before = dict(self.now)
        for a, new in zip(arrays, block.args[len(old.args) :], strict=True):
            new.name_hint = a.name_hint
            self.now[a] = new
        self.run(old.ops, dims, inner)
        last = old.last_op
        handed = [inner.value(o) for o in last.operands] if isinstance(last, scf.YieldOp) else []
        block.add_op(scf.YieldOp(*handed, *(self.now[a] for a in arrays)))
        self.now = before
        new_op = scf.ForOp(low, end, scope.size(1), starts, Region(block))
        scope.block.add_op(new_op)
        for v, new in zip(op.results, new_op.results, strict=False):
            scope.known[v] = new
        for a, new in zip(arrays, new_op.results[len(given) :], strict=True):
            new.name_hint = a.name_hint
            self.now[a] = new

    def _if(self, op: scf.IfOp, dims: tuple[Dim, ...], scope: Scope) -> None:
        """Writes under a condition that is the same in all iterations."""
        if self.facts.is_fault(op):
            self._reads(op, scope)
            self._note(op, dims, scope)
            return
        arrays = written([op])
        cond = scope.value(op.cond)
        before = dict(self.now)
        regions: list[Region] = []
        for region in op.regions:
            block = Block()
            inner = scope.inner(block)
            self.now = dict(before)
            for b in region.blocks:
                self.run(b.ops, dims, inner)
            end = region.blocks[0].last_op if region.blocks else None
            values = [inner.value(o) for o in end.operands] if end is not None else []
            block.add_op(scf.YieldOp(*values, *(self.now[a] for a in arrays)))
            regions.append(Region(block))
        self.now = before
        types = [*op.result_types, *(before[a].type for a in arrays)]
        new_op = scf.IfOp(cond, types, regions[0], regions[1] if len(regions) > 1 else None)
        scope.block.add_op(new_op)
        for v, new in zip(op.results, new_op.results, strict=False):
            scope.known[v] = new
        for a, new in zip(arrays, new_op.results[len(op.results) :], strict=True):
            self.now[a] = new

    # -- operations on whole arrays that are there already ----------------------------------------------------------------
    def _linalg(self, op: linalg.ops.FillOp | linalg.ops.GenericOp, scope: Scope) -> None:
        if isinstance(op, linalg.ops.FillOp):
            out, place, _ = self._view(op.outputs[0], None, scope)
            result = scope.add(linalg.ops.FillOp([scope.value(v) for v in op.inputs], [out], res=[out.type]))
        else:
            maps = [m.data for m in op.indexing_maps]
            views = [self._view(v, m, scope) for v, m in zip(op.operands, maps, strict=True)]
            out, place, _ = views[-1]
            result = scope.add(
                linalg.ops.GenericOp(
                    [v for v, _, _ in views[:-1]], [out], op.body.clone(), [AffineMapAttr(m) for _, _, m in views],
                    op.iterator_types, [out.type],
                )
            )  # fmt: skip
        root = root_of(op.outputs[0])
        new = result if place is None else inserted(scope, result, self.now[root], *place)
        new.name_hint = root.name_hint
        self.now[root] = new

    def _view(self, v: SSAValue, moves: AffineMap | None, scope: Scope) -> tuple[SSAValue, _Place | None, AffineMap]:
        """The part of an array that a memref is, with its place in the array, and how loops move in it.

        Axes of one element along which no loop moves are left out.
        """
        view = v.owner
        moves = moves or AffineMap(0, 0, ())
        if not isinstance(view, memref.SubviewOp):
            return self.now[v], None, moves
        offsets, sizes = ([scope.index(n) for n in x] for x in (view.offsets, view.sizes))
        still = [n == 1 and isinstance(e, AffineConstantExpr) for n, e in zip(sizes, moves.results, strict=False)]
        still = still or [False] * len(sizes)
        kept = tuple(e for e, drop in zip(moves.results, still, strict=False) if not drop)
        part = sliced(scope, self.now[view.source], offsets, sizes, still)
        return part, (offsets, sizes), AffineMap(moves.num_dims, 0, kept)


def to_tensors(module: ModuleOp) -> ModuleOp:
    """The functions of a module on tensors.  Its functions return the memrefs that they write."""
    return ModuleOp([Converter(module).convert(f) for f in module.body.block.ops if isinstance(f, func.FuncOp)])
