"""Loops that read elements which data choose, and add them up: four at a time as a vector, then as two chains of sums.

    for p in lo..hi: s += V[p] * X[j[p]]
    ->
    for p in lo..hi-3 step 4: if all four j[p] are within bounds: t += V[p..] * gathered(X, j[p..])  else: one by one
    for p in … step 2: s += V[p] * X[j[p]];  r += V[p+1] * X[j[p+1]]
    s += r + sum of t;  if an iteration is left: s += …

One jump asks for all four whether their elements are there; one by one they say what is wrong.  Machines whose AVX-512
gathers in no more time than it loads do so (`Machine.gathers`); others have the chains alone, in which an addition need not
wait for the one before.  LLVM's vectoriser does the same where the loop has no ways apart; here an element is read if its
index is within bounds.  Other values that the loop carries go through all iterations.

In `relaxed` code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, SSAValue

from upl_mlir.engines.native.llvm import tails
from upl_mlir.engines.native.llvm.emitter import Emitter
from upl_mlir.engines.native.llvm.scalar_ops import flags
from upl_mlir.engines.native.llvm.text import byte_size, llvm_type
from upl_mlir.passes.loops.emit.bits import guards_an_element

LANES = 4
"""Of eight, what is left over of short rows takes longer."""
NOTHING = "0x8000000000000000"
"""-0.0, which changes no sum."""
_ROWS = {arith.AddfOp: "fadd", arith.SubfOp: "fsub", arith.MulfOp: "fmul", arith.AddiOp: "add", arith.SubiOp: "sub"}
"""Operations on vectors by those on numbers."""


def emitted(e: Emitter, loop: scf.ForOp, lower: str, upper: str, step: str) -> list[str] | None:
    """Write a loop from `lower` to below `upper`; gives what it hands on, None if not of the kind."""
    if e.ordered or step != "1" or not tails.chooses(loop):
        return None
    block = loop.body.block
    sums = [_sum(arg, handed) for arg, handed in zip(block.args[1:], block.last_op.operands, strict=True)]  # type: ignore[union-attr]
    if not any(sums):
        return None
    c, types, first = e.code, [llvm_type(a.type) for a in block.args[1:]], e.texts(loop.iter_args)

    def iteration(at: str, given: list[str]) -> list[str]:
        e.values.update(zip(block.args, (at, *given), strict=True))
        return e.body(block)

    plan = _Plan(block, sums)
    if e.library.gathers and plan.fits():
        lower, first = _in_vectors(e, plan, lower, upper, first, iteration)
    header, inside, done, one, end = (c.label(n) for n in ("pairs", "pair", "paired", "one", "end"))
    before = c.block
    c.jump(header)
    c.begin(header)
    counter = c.phi("i64", "iv")
    own, other = ([c.phi(t) for t in types] for _ in range(2))
    second = c.add(counter.name, "1")
    c.branch(c.let(f"icmp slt i64 {second}, {upper}", "c"), inside, done)
    c.begin(inside)
    here = iteration(counter.name, [p.name for p in own])
    there = iteration(second, [(o if s else h) for o, s, h in zip((p.name for p in other), sums, here, strict=True)])
    following = c.add(counter.name, "2")
    counter.close((lower, before), (following, c.block))
    for p, q, s, start, a, b in zip(own, other, sums, first, here, there, strict=True):
        p.close((start, before), (a if s else b, c.block))
        q.close((NOTHING if s else start, before), (b, c.block))
    c.do(f"br label %{header}{e.library.known(tails.A_LOOP)}")
    c.begin(done)
    found = [
        c.let(f"fadd{flags(s)} {t} {p.name}, {q.name}") if s else p.name
        for p, q, s, t in zip(own, other, sums, types, strict=True)
    ]
    c.branch(c.let(f"icmp slt i64 {counter.name}, {upper}", "c"), one, end)
    before = c.block
    c.begin(one)
    last = iteration(counter.name, found)
    after = c.block
    c.jump(end)
    c.begin(end)
    out = [c.phi(t) for t in types]
    for p, a, b in zip(out, found, last, strict=True):
        p.close((a, before), (b, after))
    return [p.name for p in out]


def _sum(arg: SSAValue, handed: SSAValue) -> arith.AddfOp | None:
    """The addition by which a sum in any order grows."""
    op = handed.owner
    if not isinstance(op, arith.AddfOp) or arg not in op.operands or len(list(arg.uses)) != 1:
        return None
    return op if "reassoc" in flags(op) else None


@dataclass(eq=False)
class _Plan:
    """The operations of a loop that its sums and other values need, and the values that change with its variable."""

    block: Block
    sums: Sequence[arith.AddfOp | None]
    needed: list[Operation] = field(default_factory=list[Operation])
    moving: set[SSAValue] = field(default_factory=set[SSAValue])

    def fits(self) -> bool:
        """Look at the operations; whether there is a vector for each, and an element that is gathered."""
        last = self.block.last_op
        assert last is not None
        wanted = set(last.operands)
        for op in reversed(list(self.block.ops)[:-1]):
            if any(r in wanted for r in op.results):
                self.needed.insert(0, op)
                wanted.update(op.operands)
        self.moving = {self.block.args[0]}
        return all(map(self._fits, self.needed)) and any(isinstance(op, scf.IfOp) for op in self.needed)

    def _fits(self, op: Operation) -> bool:
        args = self.block.args[1:]
        if isinstance(op, scf.IfOp):
            if not guards_an_element(op) or op.cond not in self.moving or not self._gathers(op):
                return False
            self.moving.add(op.results[0])
            return True
        if op in self.sums:
            return any(v in self.moving for v in op.operands)
        if any(v in args for v in op.operands):
            return False
        if not any(v in self.moving for v in op.operands):
            return not op.regions
        self.moving.update(op.results)
        match op:
            case memref.LoadOp():
                *outer, at = op.indices
                return at is self.block.args[0] and not any(i in self.moving for i in outer)
            case arith.IndexCastOp() | arith.ExtSIOp() | arith.AddiOp() | arith.SubiOp():
                return self.block.args[0] not in op.operands
            case arith.CmpiOp():
                return op.rhs not in self.moving and op.lhs is not self.block.args[0]
            case _:
                return type(op) in _ROWS

    def _gathers(self, op: scf.IfOp) -> bool:
        """Whether a test reads one element of a row, and hands on with it bits that are true where it is not there."""
        *inside, end = op.true_region.block.ops
        if len(inside) != 1 or not isinstance(inside[0], memref.LoadOp) or len(inside[0].indices) != 1:
            return False
        element, *bits = end.operands
        moving = inside[0].indices[0] in self.moving and element is inside[0].res
        return moving and all(b in self.block.args or self._bit(b) for b in bits)

    def _bit(self, v: SSAValue) -> bool:
        return isinstance(v.owner, scf.IfOp) and v.owner in self.needed


def _in_vectors(
    e: Emitter, plan: _Plan, lower: str, upper: str, first: list[str], one: Callable[[str, list[str]], list[str]]
) -> tuple[str, list[str]]:
    """Write the loop for as many iterations as there are whole vectors of; gives the next value of its variable, and what it
    hands on.  `one` writes an iteration by itself."""
    c, block, sums = e.code, plan.block, plan.sums
    types = [llvm_type(a.type) for a in block.args[1:]]
    header, inside, rare, latch, done = (c.label(n) for n in ("vectors", "vector", "apart", "latch", "summed"))
    before = c.block
    c.jump(header)
    c.begin(header)
    counter, own = c.phi("i64", "iv"), [c.phi(t) for t in types]
    wide = [c.phi(f"<{LANES} x {t}>") if s else None for s, t in zip(sums, types, strict=True)]
    behind = c.add(counter.name, str(LANES))
    c.branch(c.let(f"icmp sle i64 {behind}, {upper}", "c"), inside, done)
    c.begin(inside)
    e.values.update(zip(block.args, (counter.name, *(p.name for p in own)), strict=True))
    grown = _Vectors(e, plan, [w and w.name for w in wide], rare).write()
    fast = c.block
    c.jump(latch)
    c.begin(rare)
    given = [p.name for p in own]
    for n in range(LANES):
        given = one(c.add(counter.name, str(n)), given)
    slow = c.block
    c.jump(latch)
    c.begin(latch)
    again = [c.phi(t) for t in types]
    more = [c.phi(f"<{LANES} x {t}>") if s else None for s, t in zip(sums, types, strict=True)]
    for p, q, g, start in zip(own, again, given, first, strict=True):
        q.close((p.name, fast), (g, slow))
        p.close((start, before), (q.name, latch))
    for w, m, g in zip(wide, more, grown, strict=True):
        if w and m:
            m.close((g, fast), (w.name, slow))
            w.close((f"splat ({w.type.split(' x ')[1][:-1]} {NOTHING})", before), (m.name, latch))
    counter.close((lower, before), (behind, latch))
    c.jump(header)
    c.begin(done)
    parts = zip(sums, types, wide, own, strict=True)
    found = [_summed(e, s, t, w.name, p.name) if s and w else p.name for s, t, w, p in parts]
    return counter.name, found


def _summed(e: Emitter, s: arith.AddfOp, t: str, vector: str, own: str) -> str:
    suffix = {"double": "f64", "float": "f32"}[t]
    name = f"@llvm.vector.reduce.fadd.v{LANES}{suffix}"
    return e.code.let(f"call{flags(s)} {t} {name}({t} {own}, <{LANES} x {t}> {vector})")


@dataclass(eq=False)
class _Vectors:
    """Writes four iterations, which go to `rare` if an element of them is not there."""

    e: Emitter
    plan: _Plan
    sums: Sequence[str | None]
    rare: str
    found: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])

    def write(self) -> list[str]:
        """The sums behind them."""
        sums = zip(self.plan.sums, self.sums, strict=True)
        grown: dict[Operation, str] = {s: w for s, w in sums if s is not None and w is not None}
        for op in self.plan.needed:
            if op in grown:
                (summand,) = (v for v in op.operands if v not in self.plan.block.args)
                t = _wide(op.results[0])
                grown[op] = self.e.code.let(f"fadd{flags(op)} {t} {grown[op]}, {self._vector(summand)}")
            elif isinstance(op, scf.IfOp):
                self._gather(op)
            elif any(v in self.plan.moving for v in op.operands):
                self.found[op.results[0]] = self._lanes(op)
            else:
                self.e.run([op])
        return [grown[s] if s is not None else "" for s in self.plan.sums]

    def _vector(self, v: SSAValue) -> str:
        if v in self.found:
            return self.found[v]
        c, t = self.e.code, _wide(v)
        head = c.let(f"insertelement {t} poison, {llvm_type(v.type)} {self.e.text(v)}, i64 0")
        return c.let(f"shufflevector {t} {head}, {t} poison, <{LANES} x i32> zeroinitializer")

    def _lanes(self, op: Operation) -> str:
        c = self.e.code
        match op:
            case memref.LoadOp():
                view = self.e.view(op.memref)
                at = view.address(c, self.e.texts(op.indices))
                return c.let(f"load <{LANES} x {view.type}>, ptr {at}, align {byte_size(view.element)}{c.access}", "l")
            case arith.IndexCastOp() | arith.ExtSIOp():
                (v,) = op.operands
                same = _wide(v) == _wide(op.results[0])
                return self._vector(v) if same else c.let(f"sext {_wide(v)} {self._vector(v)} to {_wide(op.results[0])}")
            case arith.CmpiOp():
                return c.let(f"icmp ult {_wide(op.lhs)} {self._vector(op.lhs)}, {self._vector(op.rhs)}", "c")
            case _:
                a, b = (self._vector(v) for v in op.operands)
                return c.let(f"{_ROWS[type(op)]}{flags(op)} {_wide(op.results[0])} {a}, {b}")  # type: ignore[index]

    def _gather(self, op: scf.IfOp) -> None:
        """The elements, if all of them are there."""
        c, load = self.e.code, next(x for x in op.true_region.block.ops if isinstance(x, memref.LoadOp))
        every, there = f"<{LANES} x i1>", c.label("there")
        name = f"@llvm.vector.reduce.and.v{LANES}i1"
        whole = c.let(f"call i1 {name}({every} {self._vector(op.cond)})", "c")
        c.branch(whole, there, self.rare, self.e.library.rare())
        c.begin(there)
        view, t = self.e.view(load.memref), _wide(load.res)
        places = c.let(f"getelementptr inbounds {view.type}, ptr {view.pointer}, {_wide(load.indices[0])} "
                       f"{self._vector(load.indices[0])}", "a")  # fmt: skip
        size = byte_size(view.element)
        suffix = {8: "f64", 4: "f32"}[size]
        name = f"@llvm.masked.gather.v{LANES}{suffix}.v{LANES}p0"
        self.found[op.results[0]] = c.let(
            f"call {t} {name}(<{LANES} x ptr> {places}, i32 {size}, {every} splat (i1 true), {t} poison)", "g"
        )


def _wide(v: SSAValue) -> str:
    return f"<{LANES} x {'i64' if isinstance(v.type, IndexType) else llvm_type(v.type)}>"
