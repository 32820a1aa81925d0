"""Innermost loops that divide by roots, written as vectors here instead of left to LLVM's vectoriser.

    for j in lo..hi: s = …;  e = sqrt(s) - d[j];  q = e / sqrt(s);  total += e*e;  g[j] += q*…

For each eight iterations: what root and quotient need, both from one approximation (`roots.py`), one test whether all eight
are as they should be, else both again by the machine's instructions; then the rest, all stores among it.  That test is
what LLVM's vectoriser cannot write: it would mend the exceptions in each vector.  Iterations left over are one more vector,
of which only the lanes in use are read, written and added up; sums run along in vectors through both.

In `relaxed` code on machines with AVX-512; which loops, says `vector_plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, math, memref, scf
from xdsl.dialects.builtin import FloatAttr, i1
from xdsl.ir import Operation, SSAValue

from upl_mlir.dialects.upl import SigmoidOp
from upl_mlir.engines.native.llvm import roots, vector_math
from upl_mlir.engines.native.llvm.emitter import Emitter
from upl_mlir.engines.native.llvm.lanes import F64, Lanes
from upl_mlir.engines.native.llvm.scalar_ops import POWERS, REAL_TESTS, constant_value, flags, power, quotient
from upl_mlir.engines.native.llvm.text import is_number
from upl_mlir.engines.native.llvm.vector_plan import SUMMED, Loop, Sum, VectorPlan, planned
from upl_mlir.engines.native.products import tiles

LaneRow = Callable[[Lanes, Operation, Sequence[str]], str]
FORMAT = tiles.TileFormat("double", roots.WIDTH, 32, fused=True)


# -- operations on vectors -----------------------------------------------------------------------------------------
def _real(name: str) -> LaneRow:
    def row(b: Lanes, op: Operation, args: Sequence[str]) -> str:
        return b.code.let(f"{name}{flags(op)} {b.type} {', '.join(args)}")

    return row


def _product(b: Lanes, op: Operation, args: Sequence[str]) -> str:
    """A product by -c is that by c, negated: of two of the kind only one is computed, and no sum sees the difference."""
    for i, operand in enumerate(op.operands):
        match operand.owner:
            case arith.ConstantOp(value=FloatAttr() as c) if c.value.data < 0:
                return b.negative(_real("fmul")(b, op, (args[1 - i], b.real(-c.value.data))))
            case _:
                pass
    return _real("fmul")(b, op, args)


def _quotient(b: Lanes, op: Operation, args: Sequence[str]) -> str:
    c = constant_value(op.operands[1])
    found = None if c is None else quotient(b, args[0], c)
    return _real("fdiv")(b, op, args) if found is None else found


def _intrinsic(name: str) -> LaneRow:
    def row(b: Lanes, op: Operation, args: Sequence[str]) -> str:
        given = ", ".join(f"{b.type} {a}" for a in args)
        return b.code.let(f"call{flags(op)} {b.type} @llvm.{name}.{b.suffix}({given})")

    return row


def _inline(name: str) -> LaneRow:
    return lambda b, _, args: vector_math.INLINE[name](b, args[0])


def _compare(b: Lanes, op: Operation, args: Sequence[str]) -> str:
    assert isinstance(op, arith.CmpfOp)
    return b.test(REAL_TESTS[op.predicate.value.data], *args)


LANE_ROWS: dict[type[Operation], LaneRow] = {
    arith.AddfOp: _real("fadd"), arith.SubfOp: _real("fsub"), arith.MulfOp: _product, arith.DivfOp: _quotient,
    arith.NegfOp: _real("fneg"), math.SqrtOp: _intrinsic("sqrt"), math.AbsFOp: _intrinsic("fabs"),
    arith.MinimumfOp: _intrinsic("minimum"), arith.MaximumfOp: _intrinsic("maximum"),
    arith.MinnumfOp: _intrinsic("minimumnum"), arith.MaxnumfOp: _intrinsic("maximumnum"),
    math.ExpOp: _inline("exp"), math.ExpM1Op: _inline("expm1"), math.LogOp: _inline("log"), math.Log1pOp: _inline("log1p"),
    math.TanhOp: _inline("tanh"), math.ErfOp: _inline("erf"), SigmoidOp: _inline("sigmoid"),
    arith.CmpfOp: _compare, arith.SelectOp: lambda b, _, args: b.choose(*args),
}  # fmt: skip


def _power(b: Lanes, op: Operation, args: Sequence[str]) -> str:
    found = power(b, args[0], constant_value(op.operands[1]))
    assert found is not None, op
    return found


LANE_ROWS[math.PowFOp] = _power


def _known(op: Operation) -> bool:
    """Whether there is an operation on vectors for one on reals."""
    if isinstance(op, math.PowFOp):
        return constant_value(op.rhs) in POWERS
    return type(op) in LANE_ROWS


# -- loops ---------------------------------------------------------------------------------------------------------
def emitted(e: Emitter, loop: Loop, lower: str, upper: str, step: str) -> list[str] | None:
    """Write an innermost loop from `lower` to below `upper`; gives the sums that it carries, None if not of the kind."""
    if e.ordered or e.library.vector_bytes != 8 * roots.WIDTH:
        return None
    plan = planned(e, loop, step, _known)
    return _Writer(e, plan, loop).write(lower, upper) if plan else None


@dataclass
class _Writer:
    e: Emitter
    plan: VectorPlan
    loop: Loop
    same: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])
    """Vectors of what is the same in all iterations."""

    def __post_init__(self) -> None:
        self.b = Lanes(F64, roots.WIDTH, self.e.code)
        self.early = self.plan.early()
        self.numbers = self.plan.numbers()
        before = set(self.early)
        self.late = [op for op in self.plan.lanes if op not in before]

    def write(self, lower: str, upper: str) -> list[str]:
        c, sums = self.e.code, self.plan.sums
        start = self.e.texts(self.loop.iter_args) if isinstance(self.loop, scf.ForOp) else []
        some, none, done = c.label("vectors"), c.block, c.label("done")
        c.branch(c.let(f"icmp slt i64 {lower}, {upper}", "c"), some, done)
        c.begin(some)
        self.e.run(self.plan.once)
        used = [v for op in self.plan.lanes for v in self.plan.data(op)]
        used += [v for s in sums for v in self.plan.data(s.add) if v is not s.before]
        for v in dict.fromkeys(v for v in used if v not in self.plan.vectors):
            self.same[v] = self._splat(v)
        whole = c.let(f"and i64 {c.sub(upper, lower)}, {-roots.WIDTH}")
        end = c.add(lower, whole)
        totals = self._vectors(lower, end)
        totals = self._left_over(end, upper, totals)
        results = list(start)
        for s, total in zip(sums, totals, strict=True):
            if s.load is not None and s.store is not None:
                view, place = self.e.view(s.load.memref), self.e.texts(s.load.indices)
                view.store(c, place, self._reduced(view.load(c, place), total))
            else:
                results[s.carried] = self._reduced(start[s.carried], total)
        last = c.block
        c.jump(done)
        c.begin(done)
        phis = [c.phi("double") for _ in start]
        for phi, first, found in zip(phis, start, results, strict=True):
            phi.close((first, none), (found, last))
        return [phi.name for phi in phis]

    def _splat(self, v: SSAValue) -> str:
        text, t = self.e.text(v), "i1" if v.type == i1 else self.b.format.real
        if is_number(text) or text in ("true", "false"):
            return f"splat ({t} {text})"
        return tiles.splat(self.e.code, FORMAT, text, t)

    def _reduced(self, start: str, total: str) -> str:
        t = self.b.type
        name = f"@llvm.vector.reduce.fadd.{self.b.suffix}"
        return self.e.code.let(f"call{SUMMED} double {name}(double {start}, {t} {total})")

    def _vectors(self, lower: str, end: str) -> list[str]:
        """The iterations of which there are eight."""
        c = self.e.code
        header, inside, done, before = c.label("for"), c.label("body"), c.label("done"), c.block
        c.jump(header)
        c.begin(header)
        counter = c.phi("i64", "iv")
        phis = [c.phi(self.b.type) for _ in self.plan.sums]
        c.branch(c.let(f"icmp slt i64 {counter.name}, {end}", "c"), inside, done)
        c.begin(inside)
        after = self._eight(counter.name, None, [p.name for p in phis])
        following = c.let(f"add nsw i64 {counter.name}, {roots.WIDTH}", "iv")
        counter.close((lower, before), (following, c.block))
        for phi, found in zip(phis, after, strict=True):
            phi.close((self.b.real(-0.0), before), (found, c.block))
        c.jump(header)
        c.begin(done)
        return [p.name for p in phis]

    def _left_over(self, end: str, upper: str, totals: Sequence[str]) -> list[str]:
        """The iterations of which there are fewer."""
        c = self.e.code
        some, done, before = c.label("rest"), c.label("done"), c.block
        c.branch(c.let(f"icmp slt i64 {end}, {upper}", "c"), some, done)
        c.begin(some)
        mask = tiles.first_lanes(c, FORMAT, c.sub(upper, end))
        after = self._eight(end, mask, totals)
        last = c.block
        c.jump(done)
        c.begin(done)
        phis = [c.phi(self.b.type) for _ in totals]
        for phi, there, found in zip(phis, totals, after, strict=True):
            phi.close((there, before), (found, last))
        return [p.name for p in phis]

    def _eight(self, index: str, mask: str | None, totals: Sequence[str]) -> list[str]:
        """Eight iterations from an index on, or those in the mask; returns the sums after them."""
        c, b = self.e.code, self.b
        first = next(iter(self.plan.moving))
        self.e.values[first] = index
        self.e.run(self.plan.indices)
        lanes = dict(self.same)
        known: dict[SSAValue, tuple[str, str]] = {}
        for op in self.early:
            self._one(op, lanes, mask, known)
        usual = roots.usual(b, [lanes[n] for n in self.numbers], [lanes[q] for q in self.plan.quotients()])
        if mask:
            usual = c.let(f"or <{b.width} x i1> {usual}, {c.let(f'xor <{b.width} x i1> {mask}, splat (i1 true)')}")
        bits = c.let(f"bitcast <{b.width} x i1> {usual} to i{b.width}")
        again, rest, before = c.label("again"), c.label("rest"), c.block
        rare = self.e.library.rare()
        c.do(f"br i1 {c.let(f'icmp eq i{b.width} {bits}, -1', 'c')}, label %{rest}, label %{again}{rare}")
        c.begin(again)
        exact = dict(lanes)
        changed: set[SSAValue] = set()
        for op in self.early:
            if (isinstance(op, math.SqrtOp) and self.plan.first(op.operand) in self.numbers) or any(
                v in changed for v in self.plan.data(op)
            ):
                changed.update(op.results)
                self._one(op, exact, mask, None)
        c.jump(rest)
        c.begin(rest)
        for v in [r for op in self.early for r in op.results if r in changed]:
            phi = c.phi(f"<{b.width} x i1>" if v.type == i1 else b.type)
            phi.close((lanes[v], before), (exact[v], again))
            lanes[v] = phi.name
        for op in self.late:
            self._one(op, lanes, mask, None)
        return [self._added(s, total, lanes, mask) for s, total in zip(self.plan.sums, totals, strict=True)]

    def _added(self, s: Sum, total: str, lanes: Mapping[SSAValue, str], mask: str | None) -> str:
        """A sum after eight summands more, each in its lane."""
        if s.add in self.plan.fused:
            found = self._fused(s.add, {**lanes, s.before: total})
        else:
            found = self.e.code.let(f"fadd{flags(s.add)} {self.b.type} {total}, {lanes[self.plan.first(s.summand)]}")
        return self.b.choose(mask, found, total) if mask else found

    def _fused(self, op: arith.AddfOp | arith.SubfOp, lanes: Mapping[SSAValue, str]) -> str:
        """A product and a sum in one: written as such, as LLVM finds it no more once it shares the product with another."""
        product, first = self.plan.fused[op], self.plan.first
        a, b = (lanes[first(v)] for v in product.operands)
        left = first(op.lhs) is product.result
        c = lanes[first(op.rhs if left else op.lhs)]
        if isinstance(op, arith.SubfOp):
            a, c = (a, self.b.negative(c)) if left else (self.b.negative(a), c)
        return self.b.fma(a, b, c)

    def _one(
        self, op: Operation, lanes: dict[SSAValue, str], mask: str | None, known: dict[SSAValue, tuple[str, str]] | None
    ) -> None:
        """Write one operation; roots and quotients by them from the approximation if there is a place for what is known."""
        c, b, e, first = self.e.code, self.b, self.e, self.plan.first
        match op:
            case memref.LoadOp():
                place = e.view(op.memref).address(c, e.texts(op.indices))
                lanes[op.res] = tiles.load(c, FORMAT, place, mask)
            case memref.StoreOp():
                place = e.view(op.memref).address(c, e.texts(op.indices))
                tiles.store(c, FORMAT, place, lanes[first(op.value)], mask)
            case arith.AddfOp() | arith.SubfOp() if op in self.plan.fused:
                lanes[op.result] = self._fused(op, lanes)
            case math.SqrtOp() if known is not None and (n := first(op.operand)) in self.numbers:
                known[n] = roots.root_and_inverse(b, lanes[n])
                lanes[op.result] = known[n][0]
            case arith.DivfOp() if known is not None and (n := self.plan.number(op)) is not None:
                lanes[op.result] = roots.quotient(b, lanes[first(op.lhs)], *known[n])
            case _:
                lanes[op.results[0]] = LANE_ROWS[type(op)](b, op, [lanes[first(v)] for v in op.operands])
