# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""Summands of elements that data choose, put in an order near to that of the elements before a loop over steps begins.

    for t { …;  for e { S[to[e]] += R[from[e]] } }
    ->
    to', from' = to and from, block of S by block
    for t { …;  for k { S[to'[k]] += R[from'[k]] } }

Each step then goes through S block by block, and the nearest cache holds a block.  Summands of one element keep their order,
so results have the same bits, under `ordered`, too.  It is done where each iteration reads nothing but elements at its own
index of arrays that the steps leave as they are.  When the code runs, it is done where there are enough steps to pay for
it, where S is too large for the nearest cache, and where neighbouring summands go to different blocks; else the loop stays
as it was.

Source: an inspector before the steps and an executor in them (Saltz, Mirchandaney, Crowley 1991), that puts the iterations
into buckets by the part of the array they touch (Mitchell, Carter, Ferrante 1999).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, IndexType, IntegerAttr, MemRefType, ModuleOp, i1, i64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from upl_mlir.passes.loops.emit.code import WAVE

BLOCKS = 512
"""Into so many blocks an array is divided at most: their places are at hand while summands are put in order."""
LEAST_SHIFT = 8
"""A block has 2 to this power elements at least: of 2 KiB to 32 KiB, the smallest was the fastest by a few per cent."""
STEPS = 4
"""So many steps pay for the order: it takes the time of 1.7, and each then 0.55 of its own (10⁶ summands, 10⁵ elements)."""
NEAR = 4096
"""An array of no more elements is near anyway; fewer summands take no time.  Half of them fill the nearest cache."""
RUN = 8
"""Where so many neighbours go to the same block on average, they are in order.  Chosen, not measured."""
MOST_READ = 6
"""So many arrays are put in order at most.  Chosen, not measured."""
INDEX = IndexType()
_PURE = (
    arith.ConstantOp, arith.AddiOp, arith.SubiOp, arith.MuliOp, arith.MaxSIOp, arith.MinSIOp,
    arith.IndexCastOp, arith.ExtSIOp,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Plan:
    """A loop inside of one over steps; what it reads at its own index, as the loads of the same elements; the index of
    `target`, along an axis, that data choose."""

    steps: scf.ForOp
    loop: scf.ForOp
    reads: Sequence[Sequence[memref.LoadOp]]
    target: SSAValue
    axis: int
    chosen: SSAValue


def arrange(module: ModuleOp) -> None:
    """Change the functions of a module."""
    for steps in [op for op in module.walk() if isinstance(op, scf.ForOp)]:
        if steps.get_toplevel_object() is not module:
            continue  # in a loop that was written anew
        for op in list(steps.body.block.ops):
            plan = _plan(steps, op) if isinstance(op, scf.ForOp) else None
            if plan is not None:
                _write(plan)


# -- which loops ----------------------------------------------------------------------------------------------------------
def _plan(steps: scf.ForOp, loop: scf.ForOp) -> _Plan | None:
    """What to do with a loop; None where it stays as it is."""
    ends = (loop.lb, loop.ub, loop.step, steps.lb, steps.ub, steps.step)
    if WAVE in steps.attributes or loop.iter_args or any(_inside(v, steps) for v in ends):
        return None
    if not (_one(loop.step) and _one(steps.step)) or _in_parallel(steps):
        return None
    inside = list(loop.body.walk())
    if any(isinstance(op, scf.WhileOp | scf.ParallelOp | func.CallOp | memref.AllocOp | memref.AllocaOp) for op in inside):
        return None
    store = _only_store(inside)
    at = [] if store is None else [i for i, v in enumerate(store.indices) if _from_data(v, loop)]
    if store is None or len(at) != 1 or _inside(store.memref, steps):
        return None
    chosen, reads = store.indices[at[0]], _reads(steps, loop)
    if reads is None or not _sliced(chosen, loop):
        return None
    return _Plan(steps, loop, reads, store.memref, at[0], chosen)


def _reads(steps: scf.ForOp, loop: scf.ForOp) -> list[list[memref.LoadOp]] | None:
    """The elements that iterations read at their index, each with its loads; None where an index is used otherwise."""
    changed = {v for op in steps.walk() if not isinstance(op, memref.LoadOp) for v in op.operands}
    found: dict[tuple[SSAValue, ...], list[memref.LoadOp]] = {}
    variable = loop.body.block.args[0]
    for use in variable.uses:
        op = use.operation
        if not isinstance(op, memref.LoadOp) or op.memref in changed or _inside(op.memref, steps):
            return None
        others = [i for i in op.indices if i is not variable]
        if len(others) != len(op.indices) - 1 or any(_inside(i, steps) for i in others):
            return None
        found.setdefault((op.memref, *op.indices), []).append(op)
    return list(found.values()) if 0 < len(found) <= MOST_READ else None


def _only_store(inside: Sequence[Operation]) -> memref.StoreOp | None:
    """The only store of a loop, if it reads the array at the same element only: no element then depends on another."""
    stores = [op for op in inside if isinstance(op, memref.StoreOp)]
    if len(stores) != 1:
        return None
    (store,) = stores
    same = all(
        tuple(op.indices) == tuple(store.indices)
        for op in inside if isinstance(op, memref.LoadOp) and op.memref is store.memref
    )  # fmt: skip
    return store if same else None


def _from_data(v: SSAValue, loop: scf.ForOp) -> bool:
    """Whether an index is computed from what the loop reads."""
    op = v.owner
    if not isinstance(op, Operation) or not _inside(v, loop):
        return False
    return isinstance(op, memref.LoadOp) or any(_from_data(o, loop) for o in op.operands)


def _sliced(v: SSAValue, loop: scf.ForOp) -> bool:
    """Whether a value follows, by arithmetic that goes well in any case, from what iterations read at their index."""
    if not _inside(v, loop):
        return True
    op = v.owner
    if isinstance(op, memref.LoadOp):
        return loop.body.block.args[0] in op.indices
    return isinstance(op, _PURE) and all(_sliced(o, loop) for o in op.operands)


def _inside(v: SSAValue, loop: scf.ForOp) -> bool:
    """Whether a value is made in a loop."""
    at = v.owner.parent_op()
    while at is not None and at is not loop:
        at = at.parent_op()
    return at is not None


def _in_parallel(op: Operation) -> bool:
    at = op.parent_op()
    while at is not None and not isinstance(at, scf.ParallelOp):
        at = at.parent_op()
    return at is not None


def _one(v: SSAValue) -> bool:
    at = v.owner.value if isinstance(v.owner, arith.ConstantOp) else None
    return isinstance(at, IntegerAttr) and at.value.data == 1


# -- the code -------------------------------------------------------------------------------------------------------------
@dataclass(eq=False)
class _Code:
    """Appends operations to a block, or puts them before one of its operations."""

    block: Block
    before: Operation | None = None
    numbers: dict[int, SSAValue] = field(default_factory=dict[int, SSAValue])

    def emit(self, op: Operation) -> Sequence[SSAValue]:
        """The results of an operation that is written."""
        if self.before is None:
            self.block.add_op(op)
        else:
            self.block.insert_op_before(op, self.before)
        return op.results

    def add(self, op: Operation) -> SSAValue:
        """The only result of one."""
        (out,) = self.emit(op)
        return out

    def number(self, n: int) -> SSAValue:
        """An index."""
        if n not in self.numbers:
            self.numbers[n] = self.add(arith.ConstantOp.from_int_and_width(n, INDEX))
        return self.numbers[n]

    def loop(
        self, low: SSAValue, behind: SSAValue, start: Sequence[SSAValue],
        write: Callable[[_Code, SSAValue, Sequence[SSAValue]], Sequence[SSAValue]],
    ) -> Sequence[SSAValue]:  # fmt: skip
        """A loop that hands values on."""
        one, block = self.number(1), Block(arg_types=[INDEX, *(v.type for v in start)])
        inner = _Code(block)
        inner.emit(scf.YieldOp(*write(inner, block.args[0], block.args[1:])))
        return self.emit(scf.ForOp(low, behind, one, list(start), Region(block)))

    def when(
        self, cond: SSAValue, types: Sequence[Attribute], yes: Callable[[_Code], Sequence[SSAValue]],
        no: Callable[[_Code], Sequence[SSAValue]],
    ) -> Sequence[SSAValue]:  # fmt: skip
        """Two ways."""
        ways = [Block(), Block()]
        for block, write in zip(ways, (yes, no), strict=True):
            inner = _Code(block)
            inner.emit(scf.YieldOp(*write(inner)))
        return self.emit(scf.IfOp(cond, list(types), Region(ways[0]), Region(ways[1])))

    def less(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """Whether an index is less than another."""
        return self.add(arith.CmpiOp(a, b, "slt"))

    def count(self, counts: SSAValue, at: SSAValue, more: SSAValue) -> SSAValue:
        """A count as it was before something is added to it."""
        was = self.add(arith.IndexCastOp(self.add(memref.LoadOp.get(counts, [at])), INDEX))
        now = self.add(arith.IndexCastOp(self.add(arith.AddiOp(was, more)), i64))
        self.emit(memref.StoreOp.get(now, counts, [at]))
        return was


def _write(p: _Plan) -> None:
    """The order before the steps, and the loop in this order beside the loop as it was."""
    outer = p.steps.parent
    assert outer is not None
    code = _Code(outer, p.steps)
    n = code.add(arith.MaxSIOp(code.add(arith.SubiOp(p.loop.ub, p.loop.lb)), code.number(0)))
    kept = [
        code.add(memref.AllocOp([n], [], MemRefType(loads[0].res.type, [DYNAMIC_INDEX]))) for loads in p.reads
    ]  # fmt: skip
    counts = code.add(memref.AllocOp([], [], MemRefType(i64, [BLOCKS])))
    size = code.add(memref.DimOp(p.target, code.number(p.axis)))
    near = code.number(NEAR)
    enough = [
        code.less(code.number(STEPS - 1), code.add(arith.SubiOp(p.steps.ub, p.steps.lb))), code.less(near, size),
        code.less(near, n),
    ]  # fmt: skip
    cond = code.add(arith.AndIOp(code.add(arith.AndIOp(enough[0], enough[1])), enough[2]))
    (arranged,) = code.when(
        cond, [i1], lambda c: [_order(c, p, n, size, counts, kept)],
        lambda c: [c.add(arith.ConstantOp.from_int_and_width(0, i1))],
    )  # fmt: skip
    body = p.loop.parent
    assert body is not None
    inner = _Code(body, p.loop)
    new = _in_order(p, kept)
    old = p.loop.clone()

    def in_order(c: _Code) -> Sequence[SSAValue]:
        c.emit(scf.ForOp(c.number(0), n, c.number(1), [], Region(new)))
        return ()

    inner.when(arranged, (), in_order, lambda c: (c.emit(old), ())[1])
    p.loop.detach()
    p.loop.erase()


def _in_order(p: _Plan, kept: Sequence[SSAValue]) -> Block:
    """The body of the loop, which reads the arrays that are in order."""
    new = p.loop.clone()
    block = new.body.block
    pairs = dict(zip(p.loop.body.walk(), new.body.walk(), strict=True))
    for loads, array in zip(p.reads, kept, strict=True):
        for load in loads:
            op = pairs[load]
            around = op.parent
            assert around is not None
            found = memref.LoadOp.get(array, [block.args[0]])
            around.insert_op_before(found, op)
            op.results[0].replace_all_uses_with(found.res)
            op.detach()
            op.erase()
    new.body.detach_block(block)
    return block


def _order(c: _Code, p: _Plan, n: SSAValue, size: SSAValue, counts: SSAValue, kept: Sequence[SSAValue]) -> SSAValue:
    """Put in order what the loop reads, if it is not; gives whether it was done."""
    zero, one, blocks = c.number(0), c.number(1), c.number(BLOCKS)

    def wider(c: _Code, _: SSAValue, given: Sequence[SSAValue]) -> Sequence[SSAValue]:
        few = c.less(c.add(arith.ShRUIOp(size, given[0])), blocks)
        return [c.add(arith.SelectOp(few, given[0], c.add(arith.AddiOp(given[0], one))))]

    (shift,) = c.loop(zero, c.number(64 - LEAST_SHIFT), [c.number(LEAST_SHIFT)], wider)

    def block_of(c: _Code, at: SSAValue) -> SSAValue:
        """The block to which an iteration goes; the first, if it goes to no element."""
        made: dict[SSAValue, SSAValue] = {p.loop.body.block.args[0]: at}
        place = _copied(c, p.chosen, p.loop, made)
        there = c.add(arith.CmpiOp(place, size, "ult"))
        return c.add(arith.SelectOp(there, c.add(arith.ShRUIOp(place, shift)), c.number(0)))

    def nothing(c: _Code, b: SSAValue, _: Sequence[SSAValue]) -> Sequence[SSAValue]:
        c.emit(memref.StoreOp.get(c.add(arith.ConstantOp.from_int_and_width(0, i64)), counts, [b]))
        return ()

    def counted(c: _Code, e: SSAValue, given: Sequence[SSAValue]) -> Sequence[SSAValue]:
        changes, last = given
        b = block_of(c, e)
        c.count(counts, b, c.number(1))
        other = c.add(arith.SelectOp(c.add(arith.CmpiOp(b, last, "ne")), c.number(1), c.number(0)))
        return [c.add(arith.AddiOp(changes, other)), b]

    def begun(c: _Code, b: SSAValue, given: Sequence[SSAValue]) -> Sequence[SSAValue]:
        many = c.add(arith.IndexCastOp(c.add(memref.LoadOp.get(counts, [b])), INDEX))
        c.emit(memref.StoreOp.get(c.add(arith.IndexCastOp(given[0], i64)), counts, [b]))
        return [c.add(arith.AddiOp(given[0], many))]

    def placed(c: _Code, e: SSAValue, _: Sequence[SSAValue]) -> Sequence[SSAValue]:
        to = c.count(counts, block_of(c, e), c.number(1))
        for loads, array in zip(p.reads, kept, strict=True):
            at = [e if i is p.loop.body.block.args[0] else i for i in loads[0].indices]
            c.emit(memref.StoreOp.get(c.add(memref.LoadOp.get(loads[0].memref, at)), array, [to]))
        return ()

    c.loop(zero, blocks, (), nothing)
    changes, _ = c.loop(p.loop.lb, p.loop.ub, [zero, zero], counted)
    wanted = c.less(n, c.add(arith.MuliOp(changes, c.number(RUN))))

    def order(c: _Code) -> Sequence[SSAValue]:
        c.loop(c.number(0), blocks, [c.number(0)], begun)
        c.loop(p.loop.lb, p.loop.ub, (), placed)
        return ()

    c.when(wanted, (), order, lambda _: ())
    return wanted


def _copied(c: _Code, v: SSAValue, loop: scf.ForOp, made: dict[SSAValue, SSAValue]) -> SSAValue:
    """A value of a loop's body computed again, at another place."""
    if v in made or not _inside(v, loop):
        return made.get(v, v)
    op = v.owner
    assert isinstance(op, Operation)
    for o in op.operands:
        _copied(c, o, loop, made)
    made[v] = c.add(op.clone(made))
    return made[v]
