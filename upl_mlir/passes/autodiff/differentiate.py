"""From a program to the program of its derivatives, arrow by arrow (reverse mode, AUTODIFF rules 1–9).

The work is done in three steps: `activity` finds what carries derivatives; here every active node gets the plan of its
adjoint node (inputs, domain, counts), then its body; last, every active arrow is reversed.  `adjoint_ends` has seeds and
results, `adjoint_gather` rule 5, `dynamic` what is known of arrows that data decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import StringAttr, SymbolRefAttr, i1, i64
from xdsl.ir import Operation, SSAValue

from upl_mlir.diagnostics import error, placed
from upl_mlir.dialects import upl
from upl_mlir.dialects.upl import InputOp, NodeOp, OutputOp, ProgramOp, UplType, port_ref
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.effort import bounded
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.analysis.strata import forget_ranks
from upl_mlir.passes.arrows import WHY, Meeting, connect, copy_along, free_names, here, new_node, not_inverted
from upl_mlir.passes.autodiff.activity import analyse, input_ports
from upl_mlir.passes.autodiff.adjoint_body import AdjointBody, Arrival
from upl_mlir.passes.autodiff.adjoint_ends import Request, relay, results, seed_domain, send_unit_seed, start
from upl_mlir.passes.autodiff.adjoint_gather import (
    SELECTING,
    SelectingGather,
    check_first_order,
    check_gather,
    gather_ports,
)
from upl_mlir.passes.autodiff.adjoint_plan import ActiveValue, AdjointPlan, Planner, Terms, moved, total
from upl_mlir.passes.autodiff.derivation import Derivation
from upl_mlir.passes.autodiff.differentiable import refuse_firing_twice, refuse_rounding
from upl_mlir.passes.autodiff.dynamic import Dynamics, Trace
from upl_mlir.passes.autodiff.request import port_key
from upl_mlir.passes.autodiff.reverse import Inverse, invert
from upl_mlir.passes.build import condition, index_value, unused
from upl_mlir.passes.simplify import share
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.sets import PSet


@bounded("differentiation")
def differentiate(program: ProgramOp, request: Request, asked_at: Operation) -> None:
    """Add the derivatives of one port by each of `wrt` to the program, where `asked_at` (the program, or a directive taken
    out of it) asks for them.  Raises UplError (UPL14xx).
    """
    _Differentiator(program, request, asked_at).run()


class _Differentiator:
    """One derivative request on one program."""

    def __init__(self, program: ProgramOp, request: Request, asked_at: Operation):
        self.program = program
        self.request = request
        self.asked_at = asked_at

    # -- the whole -----------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Differentiate."""
        inside = isinstance(self.asked_at, upl.AdjointOp)
        span = span_of(self.asked_at) if inside else None
        sets = ProgramSets(self.program, directives=inside)  # those that this one does not go through
        of = port_key(sets, self.request.of, "of", span)
        wrt = tuple(dict.fromkeys(port_key(sets, w, "wrt", span) for w in self.request.wrt))
        if not wrt:
            raise error("UPL1401", "nothing to differentiate by", help="name at least one port with wrt=...")
        dynamics = Dynamics(sets)
        if relay(self.program, sets, dynamics, of, self.request):
            sets = ProgramSets(self.program, directives=inside)
            dynamics = Dynamics(sets)
        cut = frozenset(() if self.request.total else wrt)
        refuse_rounding(sets, of, wrt, cut)
        activity = analyse(sets, of, wrt, cut, dynamics.whole)
        self._refuse(sets, activity.carries)
        for op in sets.ends.values():
            if isinstance(op, NodeOp | InputOp) and activity.instances(op) is not None:
                share(op.block)
        planner = Planner(sets, activity, dynamics)
        self.d = Derivation(self.program, sets, dynamics, activity, planner)
        self.gathers: dict[tuple[str, str], SelectingGather] = {}
        for op in sets.ends.values():
            if not isinstance(op, OutputOp) and (instances := activity.instances(op)) is not None:
                if isinstance(op, NodeOp):
                    check_first_order(op)
                with placed(span_of(op)):
                    self.d.plans[op.symbol] = planner.plan(op, instances)
        plans = list(reversed(self.d.plans.values()))
        self.d.seed = start(self.d, self.request, self.asked_at)
        for plan in plans:
            if not self._direct(plan):
                with placed(span_of(plan.primal)):
                    self._build(plan)
        asked = results(self.d, self.request, self.asked_at)
        for plan in plans:
            for value in reversed(plan.values):
                for arrow in value.arrows:
                    with placed(span_of(arrow.send)):
                        self._reverse(plan, value, arrow)
        for out in asked:  # behind the nodes that serve them
            out.detach()
            self.program.body.block.add_op(out)
        forget_ranks(self.program)

    @staticmethod
    def _refuse(sets: ProgramSets, carries: Callable[[Arrow], bool]) -> None:
        refuse_firing_twice(sets)
        for a in sets.arrows:
            if carries(a):
                check_gather(a)

    # -- nodes ---------------------------------------------------------------------------------------------------
    def _direct(self, plan: AdjointPlan) -> bool:
        """Whether the derivative by a host input needs no node: one token for each element, sent as it came in."""
        op = plan.primal
        return isinstance(op, InputOp) and all(
            v.ordinary and v.mask is None and v.ssa is op.value for v in plan.values
        ) and len(plan.values) == 1  # fmt: skip

    def _build(self, plan: AdjointPlan) -> None:
        """Write the adjoint node: inputs, stashes, body."""
        op, d = plan.primal, self.d
        plan.name = d.fresh(plan.name)
        active = [p for p in input_ports(op) if (op.symbol, p) in d.activity.active]
        counts = self._counts(plan, active)
        also = [*(v.mask for v in plan.values if v.mask is not None), *counts.values()]
        body = AdjointBody(op, d.activity.dependence[op.symbol], [v.ssa for v in plan.values], active, also)
        ports: list[upl.Port] = [*([plan.seed] if plan.seed else []), *(v.port for v in plan.values)]
        tallies = [v for v in plan.values if v.tally is not None]
        ports += [v.tally for v in tallies if v.tally is not None]
        names = (unused(_stash_name(v, op, n), plan.used) for n, v in enumerate(body.stash))
        stash = [(v, upl.Port(name, upl.upl_type(v.type))) for v, name in zip(body.stash, names, strict=True)]
        ports += [p for _, p in stash]
        plan.numbers = {name: p.name for name, n in counts.items() for v, p in stash if v is n}
        selecting: dict[str, list[upl.Port]] = {}
        for p in op.ports if isinstance(op, NodeOp) else ():
            if p.name in active and (op.symbol, p.name) not in d.activity.cut:
                if p.gather in SELECTING:
                    selecting[p.name] = gather_ports(plan, p)
                    ports += selecting[p.name]
                elif p.gather is None and (t := self._trace(plan, p.name)) is not None:
                    plan.traces[p.name] = t
                    ports += t.ports
        if not ports:  # nothing reaches this input: its derivative is 0 everywhere
            ports.append(upl.Port(unused("d_none", plan.used), UplType.REAL, upl.Gather.SUM, IndexExpr.of(0)))
        domain = (op.fields, plan.formula)
        plan.node = new_node(self.program, plan.name, ports, domain, op, op.symbol, f"adjoint of {op.symbol}")
        if op.symbol not in d.dynamics.sure and any(p.open for p in ports):
            plan.node.declared = None  # it fires where its primal did, not wherever an open gather may end
        arrivals = [
            Arrival(v.ssa, plan.arg(v.port.name), guard, v.mask, plan.arg(v.tally.name) if v.tally else None, otherwise)
            for v, (guard, otherwise) in zip(plan.values, plan.guards(), strict=True)
        ]
        extra = {d.activity.of[1]: plan.arg(plan.seed.name)} if plan.seed else {}
        plan.deltas = body.write(plan.node, arrivals, {v: plan.arg(p.name) for v, p in stash}, extra)
        when = describe(plan.domain, d.sets.domain(op.symbol))
        for v, p in stash:
            target = port_ref(plan.name, p.name)
            kept = connect(d.program, op, v, target, here(op.fields), condition=when, rule="stash", origin=op)
            kept.attributes[WHY] = StringAttr(body.why(v))
        for v in tallies:
            assert v.tally is not None
            sent = self._tally(plan, v)
            target = port_ref(plan.name, v.tally.name)
            connect(d.program, op, sent, target, here(op.fields), condition=when, rule="number of tokens sent", origin=op)
        for p in op.ports if isinstance(op, NodeOp) else ():
            if p.name in selecting:
                self.gathers[op.symbol, p.name] = SelectingGather(d, plan, p, selecting[p.name])
            elif p.name in plan.traces:
                self._identify(plan, p.name, plan.traces[p.name])

    def _counts(self, plan: AdjointPlan, active: Sequence[str]) -> dict[str, SSAValue]:
        """Of gathers whose number of summands is data, as their sources may not have fired: the input that tells it."""
        op, d = plan.primal, self.d
        out: dict[str, SSAValue] = {}
        if not isinstance(op, NodeOp):
            return out
        for p in op.ports:
            named = [n for n in p.count.names if op.port(n)] if isinstance(p.count, IndexExpr) else []
            open_ = any(a.source.symbol not in d.dynamics.sure for a in d.sets.into(op.symbol, p.name))
            if named and open_ and p.name in active and (op.symbol, p.name) not in d.activity.cut:
                out[p.name] = op.arg(named[0])
        return out

    def _trace(self, plan: AdjointPlan, port: str) -> Trace | None:
        assert isinstance(plan.primal, NodeOp)
        return self.d.dynamics.trace(plan.primal, port, plan.domain, plan.used)

    def _tally(self, plan: AdjointPlan, value: ActiveValue) -> SSAValue:
        """The number of tokens by which a value was really sent, in the primal's body."""
        op = plan.primal
        body = Body(op.block, op.location)
        env = dict(zip(op.fields, op.block.args[: len(op.fields)], strict=True))
        sum_: SSAValue | None = None
        for a in value.arrows:
            for where, n in self._sent(value, a):
                sent = a.send.predicate
                when = describe(where, self.d.sets.domain(op.symbol))
                if not when.is_true:
                    here_ = condition(body, when, env)
                    sent = here_ if sent is None else body.add(arith.AndIOp(here_, sent))
                if sent is None:
                    term = index_value(body, n, env)
                elif n.constant == 1:
                    term = body.add(arith.ExtUIOp(sent, i64))
                else:
                    term = body.add(arith.SelectOp(sent, index_value(body, n, env), body.constant(0, i64)))
                sum_ = term if sum_ is None else body.add(arith.AddiOp(sum_, term))
        return body.constant(0, i64) if sum_ is None else sum_  # no arrow ever sends it

    def _sent(self, value: ActiveValue, a: Arrow) -> Terms:
        """How many tokens an arrow sends; for an open gather, which only asks whether one was sent, 1."""
        if not value.port.open:
            return self.d.planner.count_terms(a)
        sends = self.d.sets.domain(a.source.symbol).constrain(a.send.when)
        return [(sends, IndexExpr.of(1))]

    def _identify(self, plan: AdjointPlan, port: str, trace: Trace) -> None:
        """Send along each arrow into an input which arrow it is, and the source indices that the target's does not tell."""
        d = self.d
        for n, a in enumerate(trace.arrows):
            inside = plan.domain.rename(dict(zip(a.target.fields, a.dst, strict=True))).extend(a.dims)
            r = (d.sets.relation(a) & inside).in_terms_of(a.src)
            body = Body(a.source.block, a.send.location)
            env = dict(zip(a.src, a.source.block.args[: len(a.src)], strict=True))
            mine = {p: dim for dim, p in trace.dims.get(n, {}).items()}
            for p in trace.ports:
                if p is trace.which:
                    value = body.constant(n, i64)
                elif p.name in mine:
                    value = env[mine[p.name]]
                else:
                    value = body.constant(0, i64)
                copy_along(a, r, d.sets.domain(a.source.symbol), lambda v=value: v, port_ref(plan.name, p.name),
                           rule="which arrow came")  # fmt: skip

    # -- arrows --------------------------------------------------------------------------------------------------
    def _reverse(self, plan: AdjointPlan, value: ActiveValue, a: Arrow) -> None:
        """Rule 2: the arrow, from its target's adjoint to its source's."""
        d = self.d
        relation = d.planner.pruned(a)
        target = d.plans.get(a.target.symbol)
        if plan.node is None:
            ref = d.result[(plan.primal.symbol, plan.primal.symbol)]
        else:
            ref = port_ref(plan.name, value.port.name)
        if target is None and d.seed is None:
            send_unit_seed(d, value, a, ref)
            return
        if (a.target.symbol, a.port.name) in self.gathers:
            self.gathers[a.target.symbol, a.port.name].reverse(value, a, ref)
            return
        if target is None:
            assert d.seed is not None
            sender, delta = d.seed
            context = seed_domain(d, self.request, sender, self.asked_at)
        else:
            assert target.node is not None
            sender, delta, context = target.node, target.deltas[a.port.name], target.domain
            if d.dynamics.meets(a):
                self._reverse_meeting(plan, value, a, relation, target, ref)
                return
            if a.port.name in target.traces:
                self._reverse_traced(target.traces[a.port.name], a, relation, target, delta, ref)
                return
        star_inside = plan.domain if value.ordinary and plan.indexed_beside(value) else None
        came = None
        if target is not None and a.port.name in target.numbers and target.node is not None:
            body = Body(target.node.block, a.send.location)
            number = target.arg(target.numbers[a.port.name])
            came = body.add(arith.CmpiOp(number, body.constant(0, number.type), "sgt"))
        inverses = invert(a, relation, context, star_inside=star_inside)
        if inverses is None:
            raise not_inverted(a, relation, context)
        for inverse in inverses:
            if inverse.condition.is_false:
                continue  # what is never sent has nothing to get back
            count: IndexExpr | None = inverse.multiplicity
            if value.port.gather is not None:
                count = None
                if value.port.count is upl.Special.CARRIED:
                    count = self._carried(value, relation, a, inverse, context)
            rule = "reversed arrow" if not value.port.gather else "reversed arrow, multicast to gather"
            if None in inverse.index:
                rule = "reversed arrow, gather to multicast"
            connect(
                d.program, sender, delta, ref, inverse.index, rule=rule, origin=a.send, condition=inverse.condition,
                count=count, inverse=inverse, predicate=came,
            )  # fmt: skip

    @staticmethod
    def _carried(value: ActiveValue, relation: PSet, a: Arrow, inverse: Inverse, context: PSet) -> IndexExpr:
        """The number of summands that a reversed arrow carries, as simple as the sender's context allows."""
        known = {d: inverse.names[d] for d in a.src}
        if any(e.names & {it.name for it in inverse.iterators} for e in known.values()):
            return total(value.terms, relation.project(a.src)).substitute(inverse.names)
        when = context.constrain(inverse.condition)
        return total(moved(value.terms, known, when), when)

    def _reverse_meeting(
        self, plan: AdjointPlan, value: ActiveValue, a: Arrow, relation: PSet, target: AdjointPlan, ref: SymbolRefAttr
    ) -> None:
        """The arrow back from a gather whose summands data decide: DMeet_e fires for each token that was sent, as it gets
        one beside it, and passes the derivative on.

        Where every instance of the source sends one, and the target's index and `*` say to whom the answer goes, it goes to
        the source's adjoint node itself: that has an input beside it which comes where the source fired."""
        d = self.d
        assert target.node is not None
        if relation.is_empty():
            return
        meeting = Meeting.of(a, by_data=True)
        delta_of = target.deltas[a.port.name]
        if value.ordinary and len(value.arrows) == 1 and meeting.fields == a.src and plan.indexed_beside(value):
            meeting.answered(d.program, a, relation, ref, target.node, delta_of, target.domain)
            return
        points = meeting.domain(relation)
        came, delta = free_names(d.sets, points.dims, "e", "d")
        ports = [upl.Port(came, UplType.BOOL), upl.Port(delta, upl.upl_type(a.send.value.type))]
        name, comment = d.fresh(f"DMeet{a.source.symbol}"), f"what comes back along {a.text}, where it sent"
        node = new_node(d.program, name, ports, points, a.send, a.source.symbol, comment)
        count = total(value.terms, relation.project(a.src)) if value.port.count is upl.Special.CARRIED else None
        connect(
            d.program, node, node.arg(delta), ref, here(a.src), rule="reversed arrow", origin=a.send, count=count
        )  # fmt: skip
        yes = Body(a.source.block, a.send.location)
        copy_along(
            a, relation, d.sets.domain(a.source.symbol), lambda: yes.constant(1, i1), port_ref(name, came),
            rule="a summand was sent", index=meeting.tag, count=False,
        )  # fmt: skip
        meeting.answered(d.program, a, relation, port_ref(name, delta), target.node, delta_of, target.domain)

    def _reverse_traced(
        self, trace: Trace, a: Arrow, relation: PSet, target: AdjointPlan, delta: SSAValue, ref: SymbolRefAttr
    ) -> None:
        """The arrow back to the instance that really sent: where the identifier names the arrow."""
        assert target.node is not None
        n = next(i for i, b in enumerate(trace.arrows) if b is a)
        fields = a.target.fields
        known = relation.rename({d: f'{d}"' for d in (*a.src, *a.loops)})
        known = known.rename(dict(zip(a.dst, fields, strict=True)))
        index: list[IndexExpr] = []
        for dim in a.src:
            told = trace.dims.get(n, {}).get(dim)
            e = IndexExpr.of(told) if told else known.express(IndexExpr.of(f'{dim}"'), fields)
            assert e is not None
            index.append(e)
        predicate = None
        if trace.which is not None:
            body = Body(target.node.block, a.send.location)
            which = target.arg(trace.which.name)
            predicate = body.add(arith.CmpiOp(which, body.constant(n, which.type), "eq"))
        connect(
            self.d.program, target.node, delta, ref, index, rule="reversed arrow, by identifier", origin=a.send,
            predicate=predicate, condition=describe(known.project(fields), target.domain),
        )  # fmt: skip


def _stash_name(v: SSAValue, op: InputOp | NodeOp, n: int) -> str:
    """A stash keeps its name: the variable's, the input's, else a number."""
    lets = [v.owner, *(use.operation for use in v.uses)]
    name = next((o.var.data for o in lets if isinstance(o, upl.LetOp)), None)
    if name is not None:
        return name
    if not isinstance(v.owner, Operation):
        return input_ports(op)[list(op.block.args).index(v) - len(op.fields)]  # pyright: ignore[reportArgumentType]
    return f"v{n + 1}"
