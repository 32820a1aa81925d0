"""`autodiff`: from a program to the program of its derivatives, arrow by arrow (reverse mode, AUTODIFF rules 1–9).

The work is done in three steps: `activity` finds what carries derivatives; here every active node gets the plan of its
adjoint node (inputs, domain, counts), then its body; last, every active arrow is reversed by `reverse`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import did_you_mean, error
from upl_mlir.dialects.upl import (
    AdjointOp,
    FormulaAttr,
    Gather,
    InputOp,
    LetOp,
    NodeOp,
    OutputOp,
    Port,
    ProgramOp,
    SendOp,
    Special,
    UplType,
    port_ref,
    upl_type,
)
from upl_mlir.dialects.upl.query import Endpoint, endpoints, program_of, span_of, symbols, target_port
from upl_mlir.passes.activity import Activity, PortKey, analyse, input_ports
from upl_mlir.passes.adjoint_body import AdjointBody
from upl_mlir.passes.adjoint_plan import ActiveValue, Plan, Planner, total, unused
from upl_mlir.passes.build import Body
from upl_mlir.passes.effort import bounded
from upl_mlir.passes.infer_domains import domains_known, infer_domains
from upl_mlir.passes.relations import Arrow, ProgramSets
from upl_mlir.passes.request import port_key
from upl_mlir.passes.reverse import Inverse, invert
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr
from upl_mlir.poly.sets import PSet

PRIMAL = "upl.primal"  # on an adjoint node: the node whose adjoint it is
COMMENT = "upl.comment"  # printed as a comment


@dataclass(frozen=True)
class AutodiffPass(ModulePass):
    """Add the derivatives of `of` by each of `wrt`; without options, expand the `adjoint of` directives.

    Requires: all domains known (`infer-domains` is run if they are not).
    Establishes: adjoint nodes, a seed input ``d_R`` unless `of` has one instance, an output ``d_W`` for each `wrt`.
    Source: Klimov, MES 2021, section IV, rules 1–7; AUTODIFF rules 1–9.

        upl.node @Sum <"d,k,i"> <"@(+) s[#]"> { upl.send %s -> @AF_ReLU::@s <"d,k,i"> }
        ->
        upl.node @DSum <"d,k,i"> <"d_s"> in <"..."> { upl.send %d_s -> @DLink::@d_s <"d,k,*,i"> count <"N[k-1]"> }
    """

    name = "autodiff"
    of: str | None = None
    wrt: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = program_of(op)
        if not domains_known(program):
            infer_domains(program)
        if self.of is None:
            if self.wrt:
                help_ = "give both, or neither to expand `adjoint of`"
                raise error("UPL1401", "autodiff: `wrt` is given without `of`", help=help_)
            expand_directives(program)
        else:
            differentiate(program, self.of, self.wrt)


@bounded("differentiation")
def expand_directives(program: ProgramOp) -> None:
    """Replace every `adjoint of` directive by the derivatives that it asks for."""
    for op in [op for op in program.body.block.ops if isinstance(op, AdjointOp)]:
        request = Request(
            of=_ref_text(op.of),
            wrt=tuple(_ref_text(w) for w in op.wrt),
            seed=_ref_text(op.seed) if op.seed else None,
            into=tuple(op.into) if op.into else (),
        )
        op.detach()
        _Differentiator(program, request, op).run()


def _ref_text(ref: SymbolRefAttr) -> str:
    return ".".join([ref.root_reference.data, *[n.data for n in ref.nested_references.data]])


@dataclass(frozen=True)
class Request:
    """What is asked for: ports as ``NAME`` or ``NODE.input``; a seed ``NODE.variable``; where the derivatives go."""

    of: str
    wrt: tuple[str, ...]
    seed: str | None = None
    into: tuple[SymbolRefAttr, ...] = ()


@bounded("differentiation")
def differentiate(program: ProgramOp, of: str, wrt: Sequence[str]) -> None:
    """Add the derivatives of `of` by each of `wrt` to the program.  Raises UplError (UPL14xx)."""
    _Differentiator(program, Request(of, tuple(wrt)), program).run()


class _Differentiator:
    """One derivative request on one program."""

    def __init__(self, program: ProgramOp, request: Request, asked_at: Operation):
        self.program = program
        self.request = request
        self.asked_at = asked_at
        self.sets = ProgramSets(program)
        self.taken = symbols(program)

    def _fresh(self, name: str) -> str:
        return unused(name, self.taken)

    # -- the whole -----------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Differentiate."""
        span = span_of(self.asked_at) if isinstance(self.asked_at, AdjointOp) else None
        of = port_key(self.sets, self.request.of, "of", span)
        wrt = tuple(dict.fromkeys(port_key(self.sets, w, "wrt", span) for w in self.request.wrt))
        if not wrt:
            raise error("UPL1401", "nothing to differentiate by", help="name at least one port with wrt=...")
        self.activity: Activity = analyse(self.sets, of, wrt)
        self.of, self.wrt = of, wrt
        self._refuse_unsupported()
        self.planner = Planner(self.sets, self.activity)
        self.plans: dict[str, Plan] = {}
        for op in self.sets.ends.values():
            if not isinstance(op, OutputOp) and (instances := self.activity.instances(op)) is not None:
                self.plans[op.symbol] = self.planner.plan(op, instances)
        self.seed = self._seed()
        for plan in reversed(self.plans.values()):
            if not self._direct(plan):
                self._build(plan)
        self._results()
        for plan in reversed(self.plans.values()):
            for value in reversed(plan.values):
                for arrow in value.arrows:
                    self._reverse(plan, value, arrow)

    def _refuse_unsupported(self) -> None:
        for a in self.sets.arrows:
            if not self.activity.carries(a):
                continue
            if a.send.predicate is not None or not a.exact:
                raise error(
                    "UPL1405",
                    f"the arrow {a.text} depends on data; its derivative is not supported yet",
                    span_of(a.send),
                    help="make the condition and the index functions of the index fields",
                )
            if a.port.gather not in (None, Gather.SUM):
                raise error(
                    "UPL1404",
                    f"the derivative through `@({a.port.gather.value})` is not supported yet",
                    span_of(a.target),
                    help="only `@(+)` gathers can be differentiated",
                )

    # -- nodes ---------------------------------------------------------------------------------------------------
    def _direct(self, plan: Plan) -> bool:
        """Whether the derivative by a host input needs no node: one token for each element, sent as it came in."""
        op = plan.primal
        return isinstance(op, InputOp) and all(v.ordinary and v.ssa is op.value for v in plan.values) and len(
            plan.values
        ) == 1

    def _build(self, plan: Plan) -> None:
        """Write the adjoint node: inputs, stashes, body."""
        op = plan.primal
        plan.name = self._fresh(plan.name)
        active = [p for p in input_ports(op) if (op.symbol, p) in self.activity.active]
        body = AdjointBody(op, self.activity.dependence[op.symbol], [v.ssa for v in plan.values], active)
        used = {*op.fields, *(v.port.name for v in plan.values), *([plan.seed.name] if plan.seed else [])}
        ports: list[Port] = [*([plan.seed] if plan.seed else []), *(v.port for v in plan.values)]
        stash = [(v, Port(unused(_stash_name(v, op, n), used), upl_type(v.type))) for n, v in enumerate(body.stash)]
        ports += [p for _, p in stash]
        if not ports:  # nothing reaches this input: its derivative is 0 everywhere
            ports.append(Port(unused("d_none", used), UplType.REAL, Gather.SUM, IndexExpr.of(0)))
        node = NodeOp(plan.name, op.fields, ports, plan.formula)
        node.domain = FormulaAttr(plan.formula)
        node.location = op.location
        node.attributes[PRIMAL] = StringAttr(op.symbol)
        node.attributes[COMMENT] = StringAttr(f"adjoint of {op.symbol}")
        plan.node = node
        self.program.body.block.add_op(node)
        args = dict(zip([p.name for p in ports], node.block.args[len(op.fields) :], strict=True))
        seeds = {v.ssa: args[v.port.name] for v in plan.values}
        guards = {v.ssa: describe(v.where, plan.domain) for v in plan.values}
        extra = {self.of[1]: args[plan.seed.name]} if plan.seed else {}
        plan.deltas = body.write(node, seeds, guards, {v: args[p.name] for v, p in stash}, extra)
        when = describe(plan.domain, self.sets.domain(op.symbol))
        for v, p in stash:
            self._send(
                op, v, port_ref(plan.name, p.name), tuple(IndexExpr.of(f) for f in op.fields),
                condition=when, rule="stash", origin=op,
            )  # fmt: skip

    def _send(
        self,
        source: InputOp | NodeOp,
        value: SSAValue,
        target: SymbolRefAttr,
        index: Sequence[IndexExpr | None],
        *,
        rule: str,
        origin: Operation,
        condition: Formula = TRUE,
        count: IndexExpr | None = None,
        inverse: Inverse | None = None,
    ) -> None:
        op = endpoints(self.program)[target.root_reference.data]
        names = [n.data for n in target.nested_references.data]
        wanted = target_port(op, names[0] if names else None).type.mlir()
        value = Body(source.block, origin.location).like(value, wanted)
        send = SendOp(
            value, target, tuple(index), count=count, condition=condition,
            iterators=inverse.iterators if inverse else (),
            point_condition=inverse.point_condition if inverse else TRUE, rule=rule,
        )  # fmt: skip
        send.location = origin.location
        source.block.add_op(send)

    # -- seeds and results ---------------------------------------------------------------------------------------
    def _seed(self) -> tuple[InputOp | NodeOp, SSAValue] | None:
        """What starts the derivative: a variable of a node, a host input ``d_R``, or None where it is the number 1."""
        op = self.sets.ends[self.of[0]]
        if self.request.seed is not None:
            return self._variable(op, self.request.seed)
        if isinstance(op, OutputOp) and not op.fields:
            return None
        name = self._fresh("d_" + (op.symbol if isinstance(op, OutputOp) else "_".join(self.of)))
        attr = op.domain or op.declared
        assert attr is not None
        seed = InputOp(name, op.fields, UplType.REAL, attr.data)
        seed.domain = attr
        seed.location = op.location
        seed.attributes[COMMENT] = StringAttr(f"derivative of the objective by {self.request.of}")
        at = [o for o in self.program.body.block.ops if isinstance(o, InputOp)]
        if at:
            self.program.body.block.insert_op_after(seed, at[-1])
        else:
            self.program.body.block.add_op(seed)
        return seed, seed.value

    def _results(self) -> None:
        """Send the derivative by each `wrt` where it is wanted, and the seed to the adjoint of `of`."""
        into = dict(zip(self.wrt, self.request.into, strict=True)) if self.request.into else {}
        self.result: dict[PortKey, SymbolRefAttr] = {}
        for key in self.wrt:
            op = self.sets.ends[key[0]]
            assert isinstance(op, InputOp | NodeOp)
            if key in into:
                self.result[key] = into[key]
            else:
                name = self._fresh("d_" + (key[0] if isinstance(op, InputOp) else "_".join(key)))
                attr = op.domain or op.declared
                assert attr is not None
                out = OutputOp(name, op.fields, UplType.REAL, attr.data)
                out.domain = attr
                out.location = op.location
                out.attributes[COMMENT] = StringAttr(f"derivative of the objective by {'.'.join(dict.fromkeys(key))}")
                self.program.body.block.add_op(out)
                self.result[key] = port_ref(name)
            plan = self.plans[key[0]]
            if plan.node is not None:
                here = tuple(IndexExpr.of(f) for f in op.fields)
                self._send(
                    plan.node, plan.deltas[key[1]], self.result[key], here, rule="result", origin=op,
                    condition=describe(self.sets.domain(key[0]), plan.domain),
                )  # fmt: skip
        plan = self.plans.get(self.of[0])
        if plan is not None and plan.seed is not None and plan.node is not None:
            ref = port_ref(plan.name, plan.seed.name)
            here = tuple(IndexExpr.of(f) for f in plan.primal.fields)
            assert self.seed is not None, "`of` is a node input: there is a seed"
            source, value = self.seed
            when = describe(plan.domain, self._seed_domain(source))
            self._send(source, value, ref, here, rule="seed", origin=self.asked_at, condition=when)

    def _seed_domain(self, source: InputOp | NodeOp) -> PSet:
        """Where the seed exists; it must exist wherever it is wanted."""
        wanted = self.sets.domain(self.of[0])
        there = wanted if isinstance(source, InputOp) else self.sets.domain(source.symbol)
        missing = wanted - there
        if not missing.is_empty():
            point = missing.sample() or {}
            at = ",".join(str(point[f]) for f in wanted.dims)
            raise error(
                "UPL1408", f"the seed `{self.request.seed}` does not exist at `{self.request.of}<{at}>`",
                span_of(self.asked_at), help="the seed's node must fire wherever `of` has an instance",
            )  # fmt: skip
        return there

    def _variable(self, of: Endpoint, seed: str) -> tuple[NodeOp, SSAValue]:
        """The node and body variable that ``NODE.variable`` names; its index fields must be those of `of`."""
        name, _, wanted = seed.partition(".")
        op = self.sets.ends.get(name)
        if not isinstance(op, NodeOp):
            nodes = [n for n, o in self.sets.ends.items() if isinstance(o, NodeOp)]
            raise error("UPL1401", f"`seed {seed}`: there is no node `{name}`", span_of(self.asked_at),
                        help=did_you_mean(name, nodes))  # fmt: skip
        variables = {o.var.data: o.result for o in op.block.ops if isinstance(o, LetOp)}
        if wanted not in variables:
            raise error("UPL1401", f"`seed {seed}`: `{name}` has no variable `{wanted}`", span_of(self.asked_at),
                        help=did_you_mean(wanted, variables))  # fmt: skip
        if op.fields != of.fields:
            raise error(
                "UPL1401", f"`seed {seed}` has the index <{','.join(op.fields)}>, `of {self.request.of}` has "
                f"<{','.join(of.fields)}>", span_of(self.asked_at), help="the seed stands at the same index as `of`",
            )  # fmt: skip
        return op, variables[wanted]

    # -- arrows --------------------------------------------------------------------------------------------------
    def _reverse(self, plan: Plan, value: ActiveValue, a: Arrow) -> None:
        """Rule 2: the arrow, from its target's adjoint to its source's."""
        relation = self.planner.pruned(a)
        target = self.plans.get(a.target.symbol)
        direct = plan.node is None
        ref = self.result[(plan.primal.symbol, plan.primal.symbol)] if direct else port_ref(plan.name, value.port.name)
        if target is None and self.seed is None:
            self._unit_seed(plan, value, a, ref)
            return
        if target is None:
            assert self.seed is not None
            sender, delta = self.seed
            context = self._seed_domain(sender)
        else:
            assert target.node is not None
            sender, delta, context = target.node, target.deltas[a.port.name], target.domain
        full = plan.node is not None and any(p.gather is None and p.name != value.port.name for p in plan.node.ports)
        star_inside = plan.domain if value.ordinary and full else None
        inverses = invert(a, relation, context, star_inside=star_inside)
        if inverses is None:
            raise error("UPL1403", f"the index of the arrow {a.text} cannot be inverted", span_of(a.send))
        for inverse in inverses:
            count: IndexExpr | None = inverse.multiplicity
            if value.port.gather is not None:
                count = None
                if value.port.count is Special.CARRIED:
                    here = relation.project(a.src)
                    count = total(value.terms, here).substitute(inverse.names)
            rule = "reversed arrow" if not value.port.gather else "reversed arrow, multicast to gather"
            if None in inverse.index:
                rule = "reversed arrow, gather to multicast"
            self._send(
                sender, delta, ref, inverse.index, rule=rule, origin=a.send, condition=inverse.condition,
                count=count, inverse=inverse,
            )  # fmt: skip

    def _unit_seed(self, plan: Plan, value: ActiveValue, a: Arrow, ref: SymbolRefAttr) -> None:
        """`grad`: the node that sends the objective also sends 1 to its adjoint, under the same condition (rule 9)."""
        one = Body(a.source.block, a.send.location).constant(1.0, value.ssa.type)
        here = tuple(IndexExpr.of(f) for f in a.src)
        count = None
        if value.port.count is Special.CARRIED:
            count = total(value.terms, self.planner.pruned(a).project(a.src))
        self._send(a.source, one, ref, here, rule="seed", origin=a.send, condition=a.send.when, count=count)


def _stash_name(v: SSAValue, op: InputOp | NodeOp, n: int) -> str:
    """A stash keeps its name: the variable's, the input's, else a number."""
    lets = [v.owner, *(use.operation for use in v.uses)]
    name = next((o.var.data for o in lets if isinstance(o, LetOp)), None)
    if name is not None:
        return name
    if not isinstance(v.owner, Operation):
        return input_ports(op)[list(op.block.args).index(v) - len(op.fields)]  # pyright: ignore[reportArgumentType]
    return f"v{n + 1}"
