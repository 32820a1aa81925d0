"""Rule 5: derivatives through `@(max)`, `@(min)` and `@(*)` inputs.

`@(max)`, `@(min)`.  For every arrow e into the gather there is a node DEq_e at the arrow's points that compares its value
v with the extremum m, which the node sends back; the adjoint node gathers the number of ties, divides its derivative by
it (ties share, as in JAX), and DSel_e passes it on where v == m:

    DEq_e<x>  { in v, m; e: bool = v == m; e ? 1 : 0 -> DM.n_s<y>; e -> DSel_e.e }
    DM<y>     { in d_..., @(+) n_s[n]; d_s/n_s -> DSel_e.d<x> }
    DSel_e<x> { in e: bool, d; e ? d : 0 -> DN.d_v }

`@(*)`.  The adjoint node gathers the number z of zeros and the product p of the other factors; it sends w = d*p, which is
0 where there are two zeros or more, and whether there is none:

    DSel_e<x> { in v, w, ok: bool; with_derivative(v == 0 ? w : (ok ? w/v : 0), v, 0/0, w, 0/0) -> DN.d_v }

This is exact to first order, zeros included.  A second derivative by two factors that are both 0 would be lost: the slope
0/0 says so, in the text as well, and differentiating it again is refused.

Source: AUTODIFF rule 5 (ours; the paper has only `+`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, SymbolRefAttr
from xdsl.ir import Operation, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import (
    AlongOp,
    Gather,
    LetOp,
    NodeOp,
    Port,
    Special,
    StopGradientOp,
    UplType,
    port_ref,
    upl_type,
)
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.relations import Arrow
from upl_mlir.passes.arrows import Meeting, connect, copy_along, free_names, here, new_node
from upl_mlir.passes.autodiff.adjoint_plan import ActiveValue, AdjointPlan, total
from upl_mlir.passes.autodiff.derivation import Derivation
from upl_mlir.passes.build import unused
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.sets import PSet

EXTREMA = (Gather.MAX, Gather.MIN)
SELECTING = (*EXTREMA, Gather.PRODUCT)


def check_gather(a: Arrow) -> None:
    """Raise UplError (UPL1404) if the gather that the arrow enters is not one of those with a derivative."""
    gather = a.port.gather
    if gather not in (None, Gather.SUM, *SELECTING):
        raise error("UPL1404", f"`@({gather.value})` has no derivative", span_of(a.target))


def summands(op: NodeOp, port: Port) -> IndexExpr | Special | None:
    """The count of a gather that gets a token beside each summand of another one of the node, on another node: open, if an
    input says how many there are."""
    named = isinstance(port.count, IndexExpr) and any(op.port(n) for n in port.count.names)
    return Special.UNBOUNDED if named else port.count


def first_order(body: Body, value: SSAValue, *reads: SSAValue) -> SSAValue:
    """A value whose own derivative would not be exact: ``with_derivative(value, x, 0/0, …)``, of which `check_first_order`
    makes an error; the text form has it as well."""
    out = body.add(StopGradientOp(value))
    for x in reads:
        slope = body.add(arith.DivfOp(body.constant(0.0, value.type), body.constant(0.0, value.type)))
        out = body.add(AlongOp(slope, body.like(x, value.type), out))
    return out


def check_first_order(op: NodeOp) -> None:
    """Raise UplError (UPL1404) if derivatives would pass a value of which none is known: one with the slope ``0/0``."""
    if any(isinstance(inner, AlongOp) and _undefined(inner.slope) for inner in _differentiated(op)):
        raise error(
            "UPL1404", f"no derivative is known of what `{op.symbol}` sends (the slope 0/0 says so): a second derivative "
            "through `@(*)` would be lost where factors are 0",
            span_of(op), help="write the product as a chain, from one instance to the next",
        )  # fmt: skip


def _differentiated(op: NodeOp) -> list[Operation]:
    """The operations of a body through which derivatives pass: not those that only slopes are made of."""
    out: list[Operation] = []
    matter: set[SSAValue] = set()
    for inner in reversed([*op.block.ops]):
        if inner.results and matter.isdisjoint(inner.results):
            continue
        out.append(inner)
        match inner:
            case AlongOp():
                matter |= {inner.at, inner.value}
            case StopGradientOp():
                pass
            case _:
                matter |= {*inner.operands}
    return out


def _undefined(slope: SSAValue) -> bool:
    owner = _plain(slope).owner
    parts = [_number(v) for v in owner.operands] if isinstance(owner, arith.DivfOp) else [_number(slope)]
    return parts == [0, 0] or any(n is not None and math.isnan(n) for n in parts)


def _plain(v: SSAValue) -> SSAValue:
    """A value without names and conversions."""
    while isinstance(v.owner, LetOp | arith.ExtFOp | arith.TruncFOp | arith.SIToFPOp):
        v = v.owner.operands[0]
    return v


def _number(v: SSAValue) -> float | None:
    owner = _plain(v).owner
    value = owner.value if isinstance(owner, arith.ConstantOp) else None
    return value.value.data if isinstance(value, FloatAttr | IntegerAttr) else None


def gather_ports(plan: AdjointPlan, port: Port) -> list[Port]:
    """The further inputs of an adjoint node that a selecting gather asks for."""
    name = port.name
    assert isinstance(plan.primal, NodeOp)
    count = summands(plan.primal, port)
    if port.gather in EXTREMA:
        return [Port(unused(f"n_{name}", plan.used), UplType.REAL, Gather.SUM, count)]
    if port.gather is Gather.PRODUCT:
        return [
            Port(unused(f"z_{name}", plan.used), UplType.REAL, Gather.SUM, count),
            Port(unused(f"p_{name}", plan.used), UplType.REAL, Gather.PRODUCT, count),
        ]
    return []


class SelectingGather:
    """One `@(max)`, `@(min)` or `@(*)` input of an active node: makes what stands between its adjoint node and those of
    its sources."""

    def __init__(self, d: Derivation, plan: AdjointPlan, port: Port, ports: Sequence[Port]):
        assert isinstance(plan.primal, NodeOp)
        self.d = d
        self.plan = plan
        self.port = port
        self.ports = ports
        self.equal: dict[int, tuple[NodeOp, SSAValue]] = {}  # by arrow: DEq and its bit
        self.delta = plan.deltas[port.name]
        self.body = Body(plan.node.block if plan.node else plan.primal.block, plan.primal.location)
        into = d.sets.into(plan.primal.symbol, port.name)
        if port.gather in EXTREMA:
            ties = self.body.val(self._like(plan.arg(ports[0].name), self.delta))
            self.share = (self.body.val(self.delta) / ties).ssa
            for a in into:
                self._compare(a)
        else:
            self._product(into)

    def _like(self, v: SSAValue, other: SSAValue) -> SSAValue:
        return self.body.like(v, other.type)

    def _inside(self, a: Arrow) -> PSet:
        """The arrow's relation into the adjoint node's domain."""
        target = self.plan.domain.rename(dict(zip(a.target.fields, a.dst, strict=True))).extend(a.dims)
        return (self.d.sets.relation(a) & target).in_terms_of(a.src)

    def _meeting(self, a: Arrow) -> Meeting:
        return Meeting.of(a, by_data=self.d.dynamics.meets(a))

    # -- max, min ----------------------------------------------------------------------------------------------------
    def _compare(self, a: Arrow) -> None:
        """DEq_e: is this value the extremum?"""
        d, plan = self.d, self.plan
        r = self._inside(a)
        if r.is_empty():
            return
        meeting = self._meeting(a)
        points = meeting.domain(r)
        type_ = upl_type(a.send.value.type)
        name = d.fresh(f"DEq{a.source.symbol}")
        vn, mn = free_names(d.sets, points.dims, "v", "m")
        ports = [Port(vn, type_), Port(mn, self.port.type)]
        node = new_node(d.program, name, ports, points, a.send, a.source.symbol, f"is {a.text} the extremum?")
        body = Body(node.block, a.send.location)
        v, m = node.arg(vn), node.arg(mn)
        equal = body.add(arith.CmpfOp(body.like(v, m.type), m, "oeq"))
        self.equal[id(a)] = (node, equal)
        one = body.add(arith.SelectOp(equal, body.constant(1.0, m.type), body.constant(0.0, m.type)))
        count = a.send.count.data if self.port.count is Special.CARRIED and a.send.count else None
        assert not isinstance(count, Special)
        ties = port_ref(plan.name, self.ports[0].name)
        to = meeting.target(a)
        connect(d.program, node, one, ties, to, rule="ties of the gather", origin=a.send, count=count)
        copy_along(
            a, r, d.sets.domain(a.source.symbol), lambda: a.send.value, port_ref(name, vn), rule="compared value",
            index=meeting.tag, count=False,
        )  # fmt: skip
        primal = plan.primal
        assert isinstance(primal, NodeOp)
        extremum = primal.arg(self.port.name)
        meeting.answered(d.program, a, r, port_ref(name, mn), primal, extremum, d.sets.domain(primal.symbol))

    # -- product -----------------------------------------------------------------------------------------------------
    def _product(self, into: Sequence[Arrow]) -> None:
        """Gather zeros and the product of the rest; what the selectors multiply by."""
        plan = self.plan
        for a in into:
            r = self._inside(a)
            context = self.d.sets.domain(a.source.symbol)
            body = Body(a.source.block, a.send.location)
            v = a.send.value

            def zero(body: Body = body, v: SSAValue = v) -> SSAValue:
                return body.val(v).compare("oeq", 0.0)

            def count(body: Body = body, v: SSAValue = v) -> SSAValue:
                one, none = body.constant(1.0, v.type), body.constant(0.0, v.type)
                return body.add(arith.SelectOp(zero(body, v), one, none))

            def factor(body: Body = body, v: SSAValue = v) -> SSAValue:
                return body.add(arith.SelectOp(zero(body, v), body.constant(1.0, v.type), v))

            for port, make in zip(self.ports, (count, factor), strict=True):
                copy_along(a, r, context, make, port_ref(plan.name, port.name), rule="zeros and factors of the gather")
        zeros, rest = (self._like(plan.arg(p.name), self.delta) for p in self.ports)
        body, z = self.body, self.body.val(zeros)
        self.none = z.compare("oeq", 0.0)
        few = z.compare("ole", 1.0)
        self.share = (body.val(self.delta) * body.val(rest)).where(few, 0.0).ssa

    # -- selectors ---------------------------------------------------------------------------------------------------
    def reverse(self, value: ActiveValue, a: Arrow, target: SymbolRefAttr) -> None:
        """DSel_e: pass the derivative on to the source's adjoint node (or result), where this value earned it."""
        d, plan = self.d, self.plan
        assert plan.node is not None
        r = d.planner.pruned(a)
        meeting = self._meeting(a)
        points = meeting.domain(r)
        if points.is_empty():
            return  # the arrow never sends: it has nothing to compare either
        product = self.port.gather is Gather.PRODUCT
        type_ = upl_type(a.send.value.type)
        if product:
            names = free_names(d.sets, points.dims, "v", "w", "ok")
            ports = [Port(n, t) for n, t in zip(names, (type_, type_, UplType.BOOL), strict=True)]
        else:
            names = free_names(d.sets, points.dims, "e", "d")
            ports = [Port(n, t) for n, t in zip(names, (UplType.BOOL, type_), strict=True)]
        name, comment = d.fresh(f"DSel{a.source.symbol}"), f"what {a.text} earns of the gather's derivative"
        node = new_node(d.program, name, ports, points, a.send, a.source.symbol, comment)
        body = Body(node.block, a.send.location)
        if product:
            v, w = body.val(node.arg(names[0])), body.val(node.arg(names[1]))
            rest = (w / v).where(node.arg(names[2]), 0.0)
            out = first_order(body, w.where(v.compare("oeq", 0.0), rest).ssa, v.ssa, w.ssa)
        else:
            out = body.val(node.arg(names[1])).where(node.arg(names[0]), 0.0).ssa
        count = None
        if value.port.count is Special.CARRIED:
            count = total(value.terms, r.project(a.src))
        connect(d.program, node, out, target, here(a.src), rule="reversed arrow", origin=a.send, count=count)
        meeting.answered(d.program, a, r, port_ref(name, names[1]), plan.node, self.share, plan.domain)
        if product:
            meeting.answered(d.program, a, r, port_ref(name, names[2]), plan.node, self.none, plan.domain)
            copy_along(
                a, r, d.sets.domain(a.source.symbol), lambda: a.send.value, port_ref(node.symbol, names[0]),
                rule="factor", index=meeting.tag, count=False,
            )  # fmt: skip
        else:
            compared, equal = self.equal[id(a)]
            everywhere = meeting.domain(self._inside(a))
            connect(
                d.program, compared, equal, port_ref(node.symbol, names[0]), here(points.dims), rule="selection",
                origin=a.send, condition=describe(points, everywhere),
            )  # fmt: skip
