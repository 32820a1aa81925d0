"""Which innermost loops `vector_loops` writes as vectors, and what their operations are there: `planned`.

A loop is taken if it divides by roots, is straight-line code on f64 that reads and writes neighbouring elements, or the same
one each time, and carries nothing from one iteration to others but sums that may be reassociated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, math, memref, scf
from xdsl.dialects.builtin import Float64Type, IndexType, IntegerAttr, i1
from xdsl.ir import Operation, SSAValue

from upl_mlir.engines.native.llvm.emitter import Emitter
from upl_mlir.engines.native.llvm.scalar_ops import ROWS, flags

Loop = scf.ForOp | scf.ParallelOp
SUMMED = " contract nsz reassoc"
"""The flags of sums of lanes: those without which a sum is not taken."""


@dataclass
class Sum:
    """`add` adds `summand` to a cell (`load` and `store` are its accesses) or to the loop's variable `carried`."""

    add: arith.AddfOp
    before: SSAValue
    summand: SSAValue
    load: memref.LoadOp | None = None
    store: memref.StoreOp | None = None
    carried: int = -1


@dataclass
class VectorPlan:
    """The operations of a loop's body by what becomes of them."""

    known: Callable[[Operation], bool]
    moving: dict[SSAValue, tuple[int, tuple[tuple[bool, SSAValue], ...]]]
    """Indices that grow by 1 with each iteration: how far from the loop's, as a constant and values added or taken away."""
    once: list[Operation] = field(default_factory=list[Operation])
    """What is the same in all iterations."""
    indices: list[Operation] = field(default_factory=list[Operation])
    lanes: list[Operation] = field(default_factory=list[Operation])
    """Loads, stores and arithmetic of vectors, in order."""
    sums: list[Sum] = field(default_factory=list[Sum])
    vectors: set[SSAValue] = field(default_factory=set[SSAValue])
    equal: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """For a vector that an earlier operation has made already: that operation's."""
    seen: dict[object, SSAValue] = field(default_factory=dict[object, SSAValue])
    """Which vector an operation on operands makes."""
    fused: dict[Operation, arith.MulfOp] = field(default_factory=dict[Operation, arith.MulfOp])
    """Sums and differences with the product that is computed with them; it is then not among `lanes`."""

    def data(self, op: Operation) -> Sequence[SSAValue]:
        """The operands that are vectors, those of a product fused with it instead of the product."""
        if isinstance(op, memref.LoadOp):
            return ()
        product = self.fused.get(op)
        values = (op.value,) if isinstance(op, memref.StoreOp) else op.operands
        found = [self.first(v) for v in values]
        if product is not None:
            found = [v for v in found if v is not product.result] + [self.first(v) for v in product.operands]
        return found

    def fuse(self) -> None:
        """Find products that only one sum or difference uses, which may be fused."""
        shared = set(self.equal.values())
        for op in [*self.lanes, *(s.add for s in self.sums)]:
            if isinstance(op, arith.AddfOp | arith.SubfOp) and "contract" in flags(op):
                for v in op.operands:
                    product = v.owner
                    if isinstance(product, arith.MulfOp) and product in self.lanes and "contract" in flags(product) and (
                        v not in shared and one_use(v)
                    ):  # fmt: skip
                        self.fused[op] = product
                        self.lanes.remove(product)
                        break

    def first(self, v: SSAValue) -> SSAValue:
        """The value, or the earlier one that equals it."""
        return self.equal.get(v, v)

    def number(self, op: Operation) -> SSAValue | None:
        """The number under the root that a quotient is taken by; None if it is taken by something else."""
        root = self.first(op.rhs).owner if isinstance(op, arith.DivfOp) else None
        return n if isinstance(root, math.SqrtOp) and (n := self.first(root.operand)) in self.vectors else None

    def quotients(self) -> list[SSAValue]:
        """The quotients by roots."""
        return [op.results[0] for op in self.lanes if self.number(op) is not None]

    def numbers(self) -> list[SSAValue]:
        """The numbers under roots that something is divided by."""
        return list(dict.fromkeys(n for op in self.lanes if (n := self.number(op)) is not None))

    def early(self) -> list[Operation]:
        """The quotients by roots, the roots, and what they need."""
        numbers = self.numbers()
        wanted = set(self.quotients())
        found: list[Operation] = []
        for op in reversed(self.lanes):
            if any(r in wanted for r in op.results) or (isinstance(op, math.SqrtOp) and self.first(op.operand) in numbers):
                found.append(op)
                wanted.update(self.data(op))
        return found[::-1]


def planned(e: Emitter, loop: Loop, step: str, known: Callable[[Operation], bool]) -> VectorPlan | None:
    """How to write an innermost loop as vectors; None if it is not of the kind.  `known`: what can be done on vectors."""
    ops = list(loop.body.block.ops)
    if not any(isinstance(op, arith.DivfOp) and isinstance(op.rhs.owner, math.SqrtOp) for op in ops):
        return None
    if step != "1" or any(op.regions for op in ops):
        return None
    plan = VectorPlan(known, {loop.body.block.args[0 if isinstance(loop, scf.ForOp) else -1]: (0, ())})
    if not _sums(loop, plan) or not all(_classified(e, op, loop, plan) for op in ops[:-1]):
        return None
    if not plan.quotients() or not _apart(e, loop, plan):
        return None
    plan.fuse()
    return plan


def _sums(loop: Loop, plan: VectorPlan) -> bool:
    """Find the sums; whether all that is carried along is one."""
    ops = list(loop.body.block.ops)
    for op in ops:
        if isinstance(op, memref.StoreOp) and isinstance(add := op.value.owner, arith.AddfOp) and one_use(add.result):
            for load, summand in ((add.lhs, add.rhs), (add.rhs, add.lhs)):
                if isinstance(cell := load.owner, memref.LoadOp) and cell.memref is op.memref and one_use(load) and (
                    _same(cell.indices, op.indices) and cell.parent is op.parent and _reassociable(add)
                    and not any(i in plan.moving or _inside(i, loop) for i in op.indices)
                ):  # fmt: skip
                    plan.sums.append(Sum(add, load, summand, cell, op))
                    break
    if isinstance(loop, scf.ParallelOp):
        return not loop.initVals
    for i, (arg, handed) in enumerate(zip(loop.body.block.args[1:], ops[-1].operands, strict=True)):
        add = handed.owner
        if not isinstance(add, arith.AddfOp) or add.parent is not loop.body.block or not _reassociable(add) or not (
            arg in add.operands and one_use(arg) and one_use(handed)
        ):  # fmt: skip
            return False
        plan.sums.append(Sum(add, arg, add.rhs if add.lhs is arg else add.lhs, carried=i))
    return True


def one_use(value: SSAValue) -> bool:
    return sum(1 for _ in value.uses) == 1


def _reassociable(op: arith.AddfOp) -> bool:
    return flags(op) == SUMMED and op.result.type == Float64Type()


def _inside(value: SSAValue, loop: Loop) -> bool:
    """Whether a value is made in the loop and is no constant."""
    owner = value.owner
    block = owner.parent if isinstance(owner, Operation) else owner
    return block is loop.body.block and not isinstance(owner, arith.ConstantOp)


def _number_of(value: SSAValue) -> int | None:
    match value.owner:
        case arith.ConstantOp(value=IntegerAttr() as n):
            return n.value.data
        case _:
            return None


def _same(a: Sequence[SSAValue], b: Sequence[SSAValue]) -> bool:
    return all(x is y or (_number_of(x) is not None and _number_of(x) == _number_of(y)) for x, y in zip(a, b, strict=True))


def _classified(e: Emitter, op: Operation, loop: Loop, plan: VectorPlan) -> bool:
    """Put an operation where it belongs; whether there is such a place."""
    if any(op in (s.add, s.load, s.store) for s in plan.sums):
        return True
    changing = [v in plan.moving or v in plan.vectors for v in op.operands]
    if isinstance(op, memref.LoadOp | memref.StoreOp):
        return _access(e, op, plan)
    if not any(changing):
        plan.once.append(op)
        return type(op) in ROWS
    if isinstance(op, arith.AddiOp | arith.SubiOp) and op.operands[0].type == IndexType():
        less = isinstance(op, arith.SubiOp)
        index, other = (op.lhs, op.rhs) if op.lhs in plan.moving else (op.rhs, op.lhs)
        if other in plan.moving or (less and index is op.rhs):
            return False
        shift, terms = plan.moving[index]
        number = _number_of(other)
        if number is None:
            terms = tuple(sorted((*terms, (less, other)), key=lambda t: (id(t[1]), t[0])))
        plan.moving[op.results[0]] = (shift + (0 if number is None else -number if less else number), terms)
        plan.indices.append(op)
        return True
    if not plan.known(op) or any(v in plan.moving for v in op.operands):
        return False
    plan.vectors.update(op.results)
    key = (type(op), *map(plan.first, op.operands), *sorted({**op.attributes, **op.properties}.items(), key=lambda p: p[0]))
    if key in plan.seen:
        plan.equal[op.results[0]] = plan.seen[key]
        return True
    plan.seen[key] = op.results[0]
    plan.lanes.append(op)
    return all(v.type == Float64Type() for v in (*op.operands, *op.results) if not _truth(op, v))


def _truth(op: Operation, v: SSAValue) -> bool:
    """Whether a value is the truth that an operation makes or asks for."""
    return v.type == i1 and (v is op.results[0] if isinstance(op, arith.CmpfOp) else v is op.operands[0])


def _access(e: Emitter, op: memref.LoadOp | memref.StoreOp, plan: VectorPlan) -> bool:
    """A load or store of neighbouring elements, or a load of one."""
    *lead, last = op.indices or [None]
    if any(i in plan.moving or i in plan.vectors for i in lead) or last in plan.vectors:
        return False
    if last not in plan.moving:
        plan.once.append(op)
        return isinstance(op, memref.LoadOp)
    view = e.view(op.memref)
    plan.lanes.append(op)
    if isinstance(op, memref.LoadOp):
        plan.vectors.add(op.res)
    elif op.value in plan.moving:
        return False
    return view.element == Float64Type() and view.strides[-1] == "1"


def _apart(e: Emitter, loop: Loop, plan: VectorPlan) -> bool:
    """Whether eight iterations may run at once, loads that quotients need first: what is written is read and written by the
    same iteration only, and read before it is written."""
    cells = {e.view(s.load.memref).root for s in plan.sums if s.load is not None}
    accesses = [op for op in (*plan.once, *plan.lanes) if isinstance(op, memref.LoadOp | memref.StoreOp)]
    if any(e.view(a.memref).root in cells for a in accesses):
        return False
    order = {op: i for i, op in enumerate(loop.body.block.ops)}
    for store in accesses:
        for other in accesses if isinstance(store, memref.StoreOp) else ():
            if other is store or e.view(other.memref).root != e.view(store.memref).root:
                continue
            if other.memref is not store.memref or other in plan.once:
                return False
            *lead, last = store.indices
            *lead2, last2 = other.indices
            if any(None not in (m := (_number_of(x), _number_of(y))) and m[0] != m[1]
                   for x, y in zip(lead, lead2, strict=True)):  # fmt: skip
                continue
            if not _same(lead, lead2) or plan.moving[last] != plan.moving[last2]:
                return False
            if isinstance(other, memref.LoadOp) and order[other] > order[store]:
                return False
    return True
