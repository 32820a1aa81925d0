"""Tangents through `@(max)`, `@(min)` and `@(*)` inputs (AUTODIFF section 4).

The tangent of an extremum is the mean of the tangents of the values that reach it; of a product, the sum of tangents times
the product of the other factors.  Both need the gather's result next to each summand, so each arrow e into the gather gets
a node at its points, served by a second gather of the values:

    TExtM<y>  { in @(max) s[n]; s -> TSel_e.m<x> }
    TSel_e<x> { in v, m, t; e: bool = v == m; e ? t : 0 -> TMeanM.t<y>; e ? 1 : 0 -> TMeanM.n<y> }
    TMeanM<y> { in @(+) t[n], @(+) n[n]; t/n -> M.t_s }

    TProM<y>  { in @(+) z[n], @(*) p[n]; z <= 1 ? p : 0 -> TSel_e.w<x>; z == 0 -> TSel_e.ok<x> }
    TSel_e<x> { in v, w, ok: bool, t; t*(v == 0 ? w : (ok ? w/v : 0)) -> M.t_s<y> }
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import SymbolRefAttr
from xdsl.ir import SSAValue

from upl_mlir.dialects.upl import Gather, NodeOp, Port, ProgramOp, Special, UplType, port_ref, upl_type
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.arrows import Meeting, connect, copy_along, free_names, here, new_node
from upl_mlir.passes.autodiff.adjoint_gather import EXTREMA, first_order, summands
from upl_mlir.poly.expr import Formula, IndexExpr


def tangent_gather(
    program: ProgramOp,
    sets: ProgramSets,
    node: NodeOp,
    port: Port,
    twin: SymbolRefAttr,
    arrows: Sequence[Arrow],
    fresh: Callable[[str], str],
    send_tangent: Callable[[Arrow, SymbolRefAttr, tuple[IndexExpr, ...]], None],
) -> None:
    """Make the nodes between the arrows into a selecting gather and the input `twin` that takes its tangent.

    `send_tangent` sends the tangent of an arrow's value to an input at the arrow's points.
    """
    extremum = port.gather in EXTREMA
    domain = sets.domain(node.symbol)
    real = UplType.REAL
    attr = node.domain or node.declared
    shape = domain if attr is None else (node.fields, attr.data)
    count = summands(node, port)
    if extremum:
        s, tn, nn = free_names(sets, node.fields, "s", "t", "n")
        ports = [Port(s, port.type, port.gather, count)]
        name = fresh(f"TExt{node.symbol}")
        values = new_node(program, name, ports, shape, node, node.symbol, f"the extremum of {node.symbol}.{port.name}")
        ports = [Port(tn, real, Gather.SUM, count), Port(nn, real, Gather.SUM, count)]
        name = fresh(f"TMean{node.symbol}")
        mean = new_node(program, name, ports, shape, node, node.symbol, f"tangent of {node.symbol}.{port.name}")
        body = Body(mean.block, node.location)
        n = body.val(mean.arg(nn))
        if count is Special.UNBOUNDED or (
            isinstance(count, IndexExpr) and not domain.constrain(Formula.compare(count, "<", 1)).is_empty()
        ):
            n = n.where(n.compare("ogt", 0.0), 1.0)  # the extremum of no summands does not move
        share = (body.val(mean.arg(tn)) / n).ssa
        fires = None if node.symbol not in sets.dynamic_nodes else Special.UNBOUNDED  # not wherever the gather may end
        connect(program, mean, share, twin, here(node.fields), rule="tangent", origin=node, count=fires)
        back = [("m", port.type, values.arg(s))]
        goals = [port_ref(mean.symbol, tn), port_ref(mean.symbol, nn)]
    else:
        zn, pn = free_names(sets, node.fields, "z", "p")
        ports = [Port(zn, real, Gather.SUM, count), Port(pn, real, Gather.PRODUCT, count)]
        name = fresh(f"TPro{node.symbol}")
        values = new_node(program, name, ports, shape, node, node.symbol, f"factors of {node.symbol}.{port.name}")
        body = Body(values.block, node.location)
        z, p = body.val(values.arg(zn)), body.val(values.arg(pn))
        back = [("w", real, p.where(z.compare("ole", 1.0), 0.0).ssa), ("ok", UplType.BOOL, z.compare("oeq", 0.0))]
        goals = [twin]
    for a in arrows:
        _select(program, sets, a, port, values, back, goals, fresh, send_tangent)


def _select(
    program: ProgramOp,
    sets: ProgramSets,
    a: Arrow,
    port: Port,
    values: NodeOp,
    back: Sequence[tuple[str, UplType, SSAValue]],
    goals: Sequence[SymbolRefAttr],
    fresh: Callable[[str], str],
    send_tangent: Callable[[Arrow, SymbolRefAttr, tuple[IndexExpr, ...]], None],
) -> None:
    """TSel_e and its arrows."""
    r = sets.relation(a)
    meeting = Meeting.of(a, by_data=sets.dynamic(a))
    points = meeting.domain(r)
    if points.is_empty():
        return
    context = sets.domain(a.source.symbol)
    type_ = upl_type(a.send.value.type)
    vn, tn, *others = free_names(sets, points.dims, "v", "t", *(n for n, _, _ in back))
    ports = [Port(vn, type_), Port(tn, type_), *(Port(n, t) for n, (_, t, _) in zip(others, back, strict=True))]
    name = fresh(f"TSel{a.source.symbol}")
    node = new_node(program, name, ports, points, a.send, a.source.symbol, f"what {a.text} gives to the gather's tangent")
    body = Body(node.block, a.send.location)
    v, t = body.val(node.arg(vn)), body.val(node.arg(tn))
    count = a.send.count.data if port.count is Special.CARRIED and a.send.count else None
    assert not isinstance(count, Special)
    if port.gather in EXTREMA:
        m = node.arg(others[0])
        equal = body.val(body.like(v.ssa, m.type)).compare("oeq", body.val(m))
        one = body.add(arith.SelectOp(equal, body.constant(1.0, m.type), body.constant(0.0, m.type)))
        sent = [t.where(equal, 0.0).ssa, one]
    else:
        w = body.val(body.like(node.arg(others[0]), v.ssa.type))
        partial = w.where(v.compare("oeq", 0.0), (w / v).where(node.arg(others[1]), 0.0))
        sent = [(t * body.val(first_order(body, partial.ssa, v.ssa, w.ssa))).ssa]
    for value, goal in zip(sent, goals, strict=True):
        connect(program, node, value, goal, meeting.target(a), rule="tangent", origin=a.send, count=count)
    copy_along(a, r, context, lambda: a.send.value, port_ref(name, vn), rule="tangent", index=meeting.tag, count=False)
    send_tangent(a, port_ref(name, tn), meeting.tag)
    at = Body(a.source.block, a.send.location)

    def is_zero() -> SSAValue:
        return at.val(a.send.value).compare("oeq", 0.0)

    def zero() -> SSAValue:
        type_ = a.send.value.type
        return at.add(arith.SelectOp(is_zero(), at.constant(1.0, type_), at.constant(0.0, type_)))

    def factor() -> SSAValue:
        return at.add(arith.SelectOp(is_zero(), at.constant(1.0, a.send.value.type), a.send.value))

    makes = [lambda: a.send.value] if port.gather in EXTREMA else [zero, factor]
    for p, make in zip(values.ports, makes, strict=True):
        copy_along(a, r, context, lambda make=make, p=p: at.like(make(), p.type.mlir()), port_ref(values.symbol, p.name),
                   rule="tangent")  # fmt: skip
    for port_name, (_, _, value) in zip(others, back, strict=True):
        meeting.answered(program, a, r, port_ref(name, port_name), values, value, sets.domain(a.target.symbol))
