"""Plans of adjoint nodes: their inputs, domains and counts (AUTODIFF rules 1, 3 and 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from xdsl.ir import Operation, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import Gather, InputOp, LetOp, NodeOp, Port, Special, UplType, upl_type
from upl_mlir.dialects.upl.query import span_of, value_names
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.autodiff.activity import Activity, input_ports, key_of
from upl_mlir.passes.autodiff.dynamic import Dynamics, Flow, Trace
from upl_mlir.passes.autodiff.inside_arrays import inside_arrays
from upl_mlir.passes.build import unused
from upl_mlir.poly.describe import convex, describe, read_outside, settled
from upl_mlir.poly.equality import same_value
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr, Lookup, MinMax, Select
from upl_mlir.poly.fibres import fibre_counts, sum_by_parts
from upl_mlir.poly.operators import CmpOp
from upl_mlir.poly.sets import PSet

Terms = list[tuple[PSet, IndexExpr]]
"""(instances, number of summands), to be added up."""


@dataclass
class ActiveValue:
    """A value of a body that is sent along active arrows, and the adjoint input that takes its derivative.

    `mask` is the data condition under which it was sent (the derivative comes back in any case); `tally` the input that
    brings the number of derivatives that will come, where data decide it.
    """

    ssa: SSAValue
    arrows: list[Arrow]
    port: Port
    ordinary: bool
    where: PSet  # instances at which it is sent
    terms: Terms
    mask: SSAValue | None = None
    tally: Port | None = None


@dataclass
class AdjointPlan:
    """An adjoint node in the making."""

    primal: InputOp | NodeOp
    name: str
    domain: PSet
    formula: Formula
    used: set[str]
    values: list[ActiveValue] = field(default_factory=list[ActiveValue])
    seed: Port | None = None
    node: NodeOp | None = None
    traces: dict[str, Trace] = field(default_factory=dict[str, Trace])  # by primal input
    deltas: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])  # by primal input
    numbers: dict[str, str] = field(default_factory=dict[str, str])  # by primal input: what brings its number of summands

    def guards(self) -> list[tuple[Formula, bool]]:
        """Where the derivative of each value exists: a condition on the index, and whether it is to be negated.

        Of two values that never are sent at the same instance, but one of them always, the second's is the first's."""
        partial = [v for v in self.values if not v.ordinary and not v.port.open]
        two = len(partial) == 2 and (partial[0].where & partial[1].where).is_empty()
        whole = two and self.domain <= partial[0].where | partial[1].where
        inside = inside_arrays(self.domain)  # in a body all parts of a condition are computed, also those that do not count
        told = describe(partial[0].where, self.domain).rewrite(inside) if partial else TRUE
        out: list[tuple[Formula, bool]] = []
        for v in self.values:
            if v.ordinary or v.port.open:  # an open gather has a value everywhere
                out.append((TRUE, False))
            elif v is partial[0] or whole:
                out.append((told, v is not partial[0]))
            else:
                out.append((describe(v.where, self.domain).rewrite(inside), False))
        return out

    def indexed_beside(self, value: ActiveValue) -> bool:
        """Whether another input brings the full index, so that the value's derivative may come with `*`: a forward value, or
        a derivative that is planned before this one (of two, one at most has a `*`)."""
        if self.node is None:
            return False
        later = [v.port.name for v in self.values[self.values.index(value) :]]
        return any(p.gather is None and p.name not in later for p in self.node.ports)

    def arg(self, port: str) -> SSAValue:
        """An input of the adjoint node as a value of its body."""
        assert self.node is not None
        return self.node.arg(port)


@dataclass
class Planner:
    """Makes the plans of one derivative request."""

    sets: ProgramSets
    activity: Activity
    dynamics: Dynamics
    _pruned: dict[Arrow, PSet] = field(default_factory=dict[Arrow, PSet])

    def plan(self, op: InputOp | NodeOp, instances: PSet) -> AdjointPlan:
        whole = self.sets.domain(op.symbol)
        attr = op.domain or op.declared
        own = attr.data if attr else TRUE
        formula = own if instances.equals(whole) else describe(instances)
        domain = self.sets.ctx.set(op.fields, formula)
        plan = AdjointPlan(op, f"D{op.symbol}", domain, formula, {*op.fields, *value_names(self.sets.program)})
        if self.activity.of[0] == op.symbol:
            plan.seed = Port(unused(f"d_{self.activity.of[1]}", plan.used), UplType.REAL)
        groups: dict[tuple[SSAValue, SSAValue | None], list[Arrow]] = {}
        for a in self.sets.out_of(op.symbol):
            if self.activity.carries(a):
                mask = a.send.predicate if self.dynamics.flow(a) is Flow.MASKED else None
                groups.setdefault((a.send.value, mask), []).append(a)
        for (ssa, mask), arrows in groups.items():
            plan.values.append(self._active_value(plan, ssa, arrows, mask))
        return plan

    def _active_value(self, plan: AdjointPlan, ssa: SSAValue, arrows: list[Arrow], mask: SSAValue | None) -> ActiveValue:
        if any(self.dynamics.opens(a) for a in arrows):
            return self._open_value(plan, ssa, arrows, mask)
        terms: Terms = []
        for a in arrows:
            terms += self.count_terms(a)
        where = self.sets.ctx.empty(plan.primal.fields)
        disjoint = True
        for s, _ in terms:
            disjoint = disjoint and (where & s).is_empty()
            where = where | s
        everywhere = plan.domain <= where
        type_ = upl_type(ssa.type)
        name = unused(f"d_{value_name(ssa, plan.primal, arrows[0])}", plan.used)
        by_data = any(self.dynamics.flow(a) is Flow.COUNTED for a in arrows)
        if by_data:
            ordinary = self.dynamics.exactly_one(arrows, plan.domain)
        else:
            ordinary = everywhere and disjoint and all(n.constant == 1 for _, n in terms)
        # a node that data make fire must not fire by counts alone
        by_data = by_data or not (everywhere or plan.primal.symbol in self.dynamics.sure)
        tally = None
        if ordinary:
            port = Port(name, type_)
        elif by_data:
            tally = Port(unused(f"n_{name.removeprefix('d_')}", plan.used), UplType.INT)
            port = Port(name, type_, Gather.SUM, IndexExpr.of(tally.name))
        else:
            n = total(terms, plan.domain)
            plain = all(len(m) <= 1 for m, _ in n.terms)  # a product of cases is no affine count
            told = any(self.dynamics.told(a) for a in arrows)  # who answers knows the index as data, the count belongs here
            once = not everywhere or told or (plain and _has_cases(n) and any(a.loops and self._looped(a) for a in arrows))
            port = Port(name, type_, Gather.SUM, n if once else Special.CARRIED)
        return ActiveValue(ssa, arrows, port, ordinary, where, terms, mask, tally)

    def _open_value(self, plan: AdjointPlan, ssa: SSAValue, arrows: list[Arrow], mask: SSAValue | None) -> ActiveValue:
        """A value of which data decide how many derivatives come back.  Unless it is sent everywhere, the number of tokens
        sent says where it was; the token that brings it says that the node fired."""
        name = unused(f"d_{value_name(ssa, plan.primal, arrows[0])}", plan.used)
        always = [a for a in arrows if a.exact and not self.sets.relation(a).lost]
        sent = self.sets.ctx.empty(plan.primal.fields)
        for a in always:
            sent = sent | self.sets.tokens(a).project(a.src)
        everywhere = plan.primal.symbol in self.dynamics.sure and plan.domain <= sent
        tally = None if everywhere else Port(unused(f"n_{name.removeprefix('d_')}", plan.used), UplType.INT)
        port = Port(name, upl_type(ssa.type), Gather.SUM, Special.UNBOUNDED)
        return ActiveValue(ssa, arrows, port, False, plan.domain, [], mask, tally)

    def pruned(self, a: Arrow) -> PSet:
        """R' = R restricted to active targets (rule 3)."""
        if a not in self._pruned:
            target = self.activity.reached[key_of(a)]
            inside = target.rename(dict(zip(a.target.fields, a.dst, strict=True))).extend(a.dims)
            self._pruned[a] = (self.sets.relation(a) & inside).in_terms_of(a.src)
        return self._pruned[a]

    def count_terms(self, a: Arrow) -> list[tuple[PSet, IndexExpr]]:
        """|R'(x)| as a sum of expressions, each on its own set of source instances; 1 where data choose the target."""
        r = self.pruned(a)
        if self.dynamics.dynamic_index(a):
            return [(r.project(a.src), IndexExpr.of(1))]
        over = (*a.loops, *a.dst)
        m = a.send.multiplicity
        prefer = [m] if isinstance(m, IndexExpr) and a.port.gather is None else []
        terms = fibre_counts(r, over, prefer)
        if terms is None:
            raise error(
                "UPL1403",
                f"how often a value of {a.in_full} is used cannot be written as an expression of the index",
                span_of(a.send),
            )
        if a.loops and any(_has_cases(n) for _, n in terms) and (ones := self._by_points(a, r)) is not None:
            return ones
        return terms

    @staticmethod
    def _by_points(a: Arrow, r: PSet) -> Terms | None:
        """The count as a sum over the iterators' points, where there are few: a stencil's neighbours, each with its `if`."""
        ranges: list[range] = []
        for it in a.loops:
            lo, hi = r.extent(it)
            if lo is None or hi is None or hi - lo >= MAX_NEIGHBOURS:
                return None
            ranges.append(range(lo, hi + 1))
        terms: Terms = []
        for point in product(*ranges):
            at = Formula.all(Formula.compare(it, CmpOp.EQ, v) for it, v in zip(a.loops, point, strict=True))
            one = r.constrain(at)
            if one.is_empty():
                continue
            if any(one.express(IndexExpr.of(d), a.src) is None for d in a.dst) or len(terms) == MAX_NEIGHBOURS:
                return None
            terms.append((one.project(a.src), IndexExpr.of(1)))
        return _joined(terms)

    def _looped(self, a: Arrow) -> bool:
        """Whether the arrow back needs iterators of its own."""
        r = self.pruned(a)
        return any(r.express(IndexExpr.of(d), a.dst) is None for d in (*a.src, *a.loops))


def _has_cases(n: IndexExpr) -> bool:
    return any(isinstance(a, Select | MinMax) for a in n.atoms())


MAX_NEIGHBOURS = 6  # that are counted one by one
MAX_CASES = 4  # of a count that are told apart; beyond that it is a sum of cases


def total(terms: Sequence[tuple[PSet, IndexExpr]], inside: PSet) -> IndexExpr:
    """The sum of the terms at the points of `inside`, as few cases as there are different sums."""
    cases: dict[IndexExpr, PSet] = {}
    for part, n in sum_by_parts(inside, terms):
        cases[n] = (cases[n] | part).coalesce() if n in cases else part
    if any(read_outside(s) is not None for s in cases.values()):  # no case may depend on an entry that does not exist
        cases = {n: settled(s).constrain(Formula.all(map(s.ctx.entry_exists, _entries(s, n)))) for n, s in cases.items()}
        cases = {n: s for n, s in cases.items() if not s.is_empty()}
    for n in sorted(cases, key=lambda n: (len(n.names), str(n))):  # a case that another's expression serves as well
        m = next((m for m in cases if n != m and same_value(cases[n], n, m)), None)
        if m is not None:
            cases[m] = (cases[m] | cases.pop(n)).coalesce()
    if not cases:
        return IndexExpr()
    if len(cases) > MAX_CASES:
        return _sum_of_cases(_joined(terms), inside)
    conditions = {n: describe(s, inside) for n, s in cases.items()}
    *first, last = sorted(cases, key=lambda n: (len(list(conditions[n].atoms())), n == IndexExpr(), str(n)))
    out = last
    for n in reversed(first):
        out = IndexExpr.of(Select(conditions[n], n, out))
    return out


def _entries(s: PSet, n: IndexExpr) -> list[Lookup]:
    """The entries of constant arrays in an expression."""
    return [a for a in n.lookups() if a.array in s.ctx.arrays]


def _joined(terms: Sequence[tuple[PSet, IndexExpr]]) -> Terms:
    """Terms with the same number on sets that together are one convex set, as one."""
    out: Terms = []
    for s, n in terms:
        for i, (t, m) in enumerate(out):
            if m == n and (s & t).is_empty() and (both := convex(s | t)) is not None:
                del out[i]
                s = both
                break
        out.append((s, n))
    return out if len(out) == len(terms) else _joined(out)


def _sum_of_cases(terms: Sequence[tuple[PSet, IndexExpr]], inside: PSet) -> IndexExpr:
    """The sum of the terms, each guarded by its condition if it holds only on a part."""
    out = IndexExpr()
    for s, n in terms:
        if (s & inside).is_empty():
            continue
        if inside <= s:
            out = out + n
        else:
            out = out + IndexExpr.of(Select(describe(s, inside), n, IndexExpr()))
    return out


def moved(terms: Sequence[tuple[PSet, IndexExpr]], names: Mapping[str, IndexExpr], context: PSet) -> Terms:
    """Terms over a source's fields as terms over the context of who sends to it; `names` says what the fields are there.

    Iterators of an inverse, which `context` does not have, must not occur."""
    out: Terms = []
    for s, n in terms:
        mine = {d: names[d] for d in s.dims}
        both = s.rename({d: f"{d}\"" for d in s.dims})
        dims = (*context.dims, *both.dims)
        at = Formula.all(Formula.compare(f"{d}\"", CmpOp.EQ, e) for d, e in mine.items())
        inside = (context.extend(dims) & both.extend(dims).reorder(dims)).constrain(at)
        out.append((inside.project(context.dims), n.substitute(mine)))
    return out


def value_name(v: SSAValue, op: InputOp | NodeOp, arrow: Arrow) -> str:
    """What a value is called: its variable, its input, else the input that a bare expression is sent to."""
    if isinstance(v.owner, LetOp):
        return v.owner.var.data
    if not isinstance(v.owner, Operation):
        at = list(op.block.args).index(v) - len(op.fields)  # pyright: ignore[reportArgumentType]
        if at >= 0:
            return input_ports(op)[at]
    return arrow.port.name
