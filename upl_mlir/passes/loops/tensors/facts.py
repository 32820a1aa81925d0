"""What is asked of a function of loops before it is rewritten: what a value depends on, which arrays a region writes, and
whether a parallel loop can become operations on whole tensors."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.ir import BlockArgument, Operation, SSAValue

from upl_mlir.passes.loops.terms import inner_first

Index = Sequence[SSAValue]


def root_of(v: SSAValue) -> SSAValue:
    """The array of which a memref is a view."""
    while isinstance(v.owner, memref.SubviewOp):
        v = v.owner.source
    return v


def number(v: SSAValue) -> int | None:
    """The integer that a value is known to be."""
    op = v.owner
    return op.value.value.data if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr) else None


def written(ops: Iterable[Operation]) -> list[SSAValue]:
    """The arrays that operations, or what is inside of them, write; those that they make themselves are left out."""
    out: dict[SSAValue, None] = {}
    own: set[SSAValue] = set()
    for op in ops:
        for inner in op.walk():
            if isinstance(inner, memref.AllocOp):
                own.add(inner.memref)
            elif isinstance(inner, memref.StoreOp):
                out[inner.memref] = None
            elif inner.name.startswith("linalg.") and inner.name != "linalg.yield":
                out |= dict.fromkeys(root_of(o) for o in inner.outputs)
    return [v for v in out if v not in own]


def needs(v: SSAValue) -> list[SSAValue]:
    """The values that the operation behind a value takes, those that its regions take from outside included."""
    op = v.owner
    if not isinstance(op, Operation):
        return []
    if not op.regions:
        return list(op.operands)
    inside = {r for o in op.walk() for r in o.results}
    inside |= {a for o in op.walk() for region in o.regions for b in region.blocks for a in b.args}
    return list(dict.fromkeys(x for o in op.walk() for x in o.operands if x not in inside))


@dataclass
class Facts:
    """Facts about values of one function, each found once."""

    _deps: dict[SSAValue, frozenset[SSAValue]] = field(default_factory=dict[SSAValue, frozenset[SSAValue]])
    _loads: dict[SSAValue, bool] = field(default_factory=dict[SSAValue, bool])

    def deps(self, v: SSAValue) -> frozenset[SSAValue]:
        """The arguments of blocks that a value is computed from."""
        for x in inner_first(v, lambda y: [] if y in self._deps else needs(y)):
            if x not in self._deps:
                own = frozenset({x}) if isinstance(x, BlockArgument) else frozenset[SSAValue]()
                self._deps[x] = own.union(*(self._deps[n] for n in needs(x)))
        return self._deps[v]

    def reads(self, v: SSAValue) -> bool:
        """Whether a value is computed from elements of arrays."""
        for x in inner_first(v, lambda y: [] if y in self._loads else needs(y)):
            if x not in self._loads:
                op = x.owner
                own = isinstance(op, Operation) and any(isinstance(o, memref.LoadOp) for o in op.walk())
                self._loads[x] = own or any(self._loads[n] for n in needs(x))
        return self._loads[v]

    def fixed(self, v: SSAValue, ivs: Iterable[SSAValue]) -> bool:
        """Whether a value is the same in all iterations of loops."""
        return self.deps(v).isdisjoint(ivs)

    def linear(self, v: SSAValue, ivs: Mapping[SSAValue, int]) -> dict[int, int] | None:
        """An index as a sum of loops' variables and of what is fixed: the factor of each loop.  None if it is none."""
        if v in ivs:
            return {ivs[v]: 1}
        if self.fixed(v, ivs):
            return None if self.reads(v) else {}
        op = v.owner
        if not isinstance(op, arith.AddiOp | arith.SubiOp | arith.MuliOp):
            return None
        a, b = (self.linear(x, ivs) for x in op.operands)
        if a is None or b is None:
            return None
        if isinstance(op, arith.MuliOp):
            for part, other in ((a, op.rhs), (b, op.lhs)):
                k = number(other)
                if k is not None:
                    return {d: n * k for d, n in part.items() if n * k}
            return None
        sign = 1 if isinstance(op, arith.AddiOp) else -1
        total = {d: a.get(d, 0) + sign * b.get(d, 0) for d in a | b}
        return {d: n for d, n in total.items() if n}

    def place(self, index: Index, ivs: Mapping[SSAValue, int]) -> list[int | None] | None:
        """For each axis the loop whose variable moves along it with step 1, or None; None if an axis is none of that."""
        out: list[int | None] = []
        for v in index:
            found = self.linear(v, ivs)
            if found is None or len(found) > 1 or any(k != 1 for k in found.values()):
                return None
            out.append(next(iter(found), None))
        seen = [d for d in out if d is not None]
        return out if len(seen) == len(set(seen)) else None

    # -- loops ---------------------------------------------------------------------------------------------------------
    def fits(self, ops: Iterable[Operation], ivs: Sequence[SSAValue]) -> bool:
        """Whether operations inside of parallel loops can be done for all iterations at once, one after the other."""
        by = {iv: d for d, iv in enumerate(ivs)}
        return all(self._fits(op, ivs, by) for op in ops)

    def _fits(self, op: Operation, ivs: Sequence[SSAValue], by: Mapping[SSAValue, int]) -> bool:
        match op:
            case memref.StoreOp():
                place = self.place(op.indices, by)
                return place is not None and len(place) - place.count(None) == len(ivs)
            case scf.ParallelOp():
                inner = [*ivs, op.body.block.args[0]]
                return self._bounds((op.lowerBound[0], op.upperBound[0]), ivs) and self.fits(op.body.block.ops, inner)
            case scf.ForOp() if written([op]):
                plain = not op.iter_args and self._bounds((op.lb, op.ub), ivs)
                return plain and self.fits(op.body.block.ops, ivs)
            case scf.IfOp() if written([op]):
                if self.is_fault(op):
                    return True
                inside = [o for region in op.regions for b in region.blocks for o in b.ops]
                return not self.reads(op.cond) and self.fixed(op.cond, ivs) and self.fits(inside, ivs)
            case memref.AllocOp() | memref.SubviewOp() | memref.CollapseShapeOp():
                return False
            case _:
                return not op.name.startswith("linalg.")

    def _bounds(self, bounds: Iterable[SSAValue], ivs: Sequence[SSAValue]) -> bool:
        return all(self.fixed(b, ivs) and not self.reads(b) for b in bounds)

    def is_fault(self, op: scf.IfOp) -> bool:
        """Whether all that an `if` does is to set a number of rank 0 to a constant, as a note of a fault is."""
        stores = [o for o in op.true_region.block.ops if isinstance(o, memref.StoreOp)]
        others = any(written(b.ops) for b in op.false_region.blocks)
        nested = sum(isinstance(o, memref.StoreOp) for o in op.walk()) != 1
        if len(stores) != 1 or others or nested:
            return False
        return not stores[0].indices and number(stores[0].value) is not None

    def sums(self, op: scf.ForOp, ivs: Sequence[SSAValue]) -> list[scf.ForOp] | None:
        """The loops, outermost first, of a fold that can be done for all iterations of `ivs` at once, if it is one."""
        out = [op]
        while True:
            last = out[-1]
            bounds = (last.lb, last.ub)
            around = [*ivs, *(f.body.block.args[0] for f in out[:-1])]
            if number(last.step) != 1 or not last.iter_args or not self._bounds(bounds, around):
                return out[:-1] or None
            inner = [o for o in last.body.block.ops if isinstance(o, scf.ForOp)]
            end = last.body.block.last_op
            assert isinstance(end, scf.YieldOp)
            nested = len(inner) == 1 and list(inner[0].iter_args) == list(last.body.block.args[1:])
            if not nested or list(end.operands) != list(inner[0].results):
                return out
            out.append(inner[0])


def is_index(v: SSAValue) -> bool:
    """Whether a value is of type `index`."""
    return isinstance(v.type, IndexType)
