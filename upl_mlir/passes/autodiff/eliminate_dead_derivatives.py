"""`eliminate-dead-derivatives`: remove, instance by instance, derivatives that nobody asked for (AUTODIFF rule 10).

An instance of an adjoint node is live if a token that it sends reaches a host output, a node of the primal program, or a
live instance.  That is a least fixpoint backward along arrows, on sets.  The dead instances go: domains shrink, arrows
into them get conditions (on data where their index is data), code and stashed values that only served them disappear.

A live instance keeps all its summands, because whoever sends to a live instance is live: gather counts do not change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.traits import is_side_effect_free

from upl_mlir.dialects.upl import FormulaAttr, InputOp, NodeOp, ProgramOp, SendOp, Special
from upl_mlir.dialects.upl.attributes import CountAttr, PortsAttr
from upl_mlir.dialects.upl.query import nodes, program_of
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.backward import Step, reaching
from upl_mlir.passes.analysis.effort import bounded
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.arrows import PRIMAL, restricted
from upl_mlir.passes.autodiff.dynamic import reads_by_name
from upl_mlir.passes.autodiff.inside_arrays import keep_inside_arrays
from upl_mlir.passes.build import Lazy, condition
from upl_mlir.passes.infer_domains import domains_known, infer_domains
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.sets import PSet


@dataclass(frozen=True)
class EliminateDeadDerivativesPass(ModulePass):
    """Remove dead derivative instances.

    Requires: all domains known.
    Establishes: every instance of an adjoint node contributes to some result.
    Source: Klimov, MES 2021, section IV ("dead derivatives are swept out"); AUTODIFF rule 10.

        upl.node @DRes <"d,k,i"> ... in <"1<=d<=D && 1<=k<=K && 1<=i<=N[k-1]"> { ... when <"k>1"> ... }
        ->
        upl.node @DRes <"d,k,i"> ... in <"1<=d<=D && 2<=k<=K && 1<=i<=N[k-1]"> { ... }
    """

    name = "eliminate-dead-derivatives"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = program_of(op)
        if not domains_known(program):
            infer_domains(program)
        eliminate_dead_derivatives(program)


@bounded("the elimination of dead derivatives")
def eliminate_dead_derivatives(program: ProgramOp) -> None:
    """Prune the adjoint nodes of a program in place."""
    while _prune_instances(program) | _prune_bodies(program):
        pass  # a value that is no longer sent may have been the last use of another
    keep_inside_arrays(program, PRIMAL)


def _live(sets: ProgramSets, adjoints: dict[str, NodeOp]) -> tuple[dict[str, PSet], bool]:
    """The live instances of each adjoint node, and whether all of them are."""
    steps = [Step(a, a.target.symbol, [n]) for n in adjoints for a in sets.out_of(n)]
    found = {n: sets.ctx.empty(op.fields) for n, op in adjoints.items()}
    found |= {s.goal: sets.domain(s.goal) for s in steps if s.goal not in adjoints}
    exact = reaching(sets, found, steps, sets.domain)
    return {n: found[n] for n in adjoints}, exact


def _prune_instances(program: ProgramOp) -> bool:
    """Shrink adjoint nodes to their live instances; whether some that are left may be dead."""
    adjoints = {op.symbol: op for op in nodes(program) if PRIMAL in op.attributes}
    if not adjoints:
        return False
    sets = ProgramSets(program)
    live, exact = _live(sets, adjoints)
    shrunk = {n for n, s in live.items() if not sets.domain(n) <= s}
    if not shrunk:
        return False
    touched = [a for a in sets.arrows if a.target.symbol in shrunk or a.source.symbol in shrunk]
    relations = [(a, sets.relation(a)) for a in touched]
    for n in shrunk:
        formula = describe(live[n])
        adjoints[n].domain = FormulaAttr(formula)
        if adjoints[n].declared is not None:
            adjoints[n].declared = adjoints[n].domain
    for a, r in relations:
        _restrict(sets, a, r, live)
    for n in shrunk:
        if live[n].is_empty():
            adjoints[n].detach()
            adjoints[n].erase()
    return not exact


def _restrict(sets: ProgramSets, a: Arrow, r: PSet, live: dict[str, PSet]) -> None:
    """Rewrite an arrow for the live instances of its ends."""
    context = live.get(a.source.symbol, sets.domain(a.source.symbol))
    r = r & context.extend(a.dims)
    if a.target.symbol in live:
        inside = live[a.target.symbol].rename(dict(zip(a.target.fields, a.dst, strict=True)))
        r = r & inside.extend(a.dims)
    r = r.in_terms_of(a.src)
    if r.is_empty():
        a.send.detach()
        a.send.erase()
        return
    here = restricted(a, r, context)
    a.send.condition = None if here.condition.is_true else FormulaAttr(here.condition)
    a.send.point_condition = None if here.point_condition.is_true else FormulaAttr(here.point_condition)
    a.send.count = None if here.count is None or here.count == IndexExpr.of(1) else CountAttr(here.count)
    if a.target.symbol in live:
        _tell_by_data(sets, a, live[a.target.symbol])


def _tell_by_data(sets: ProgramSets, a: Arrow, live: PSet) -> None:
    """Where the index of an arrow is data, only data can tell that it leads to a live instance: a condition of the body."""
    source = a.source
    inputs = {p.name: source.arg(p.name) for p in source.ports} if isinstance(source, NodeOp) else {}
    at = {f: e for f, e in zip(a.target.fields, a.send.index.data, strict=True) if e is not None}
    read = {f for f, e in at.items() if e.names & inputs.keys()}
    known = describe(live, sets.domain(a.target.symbol))
    if not known.names & read:
        return  # what the index says is a condition of the arrow already
    arrays = {**sets.ctx.arrays, **sets.ctx.unknown}
    send = a.send
    send.detach()
    body = Body(source.block, send.location)
    env = {**inputs, **dict(zip(source.fields, source.block.args, strict=False))}
    here = condition(body, known.substitute(at), env, Lazy(lambda n: arrays[n].lower, send.predicate))
    send.guard(here if send.predicate is None else body.add(arith.AndIOp(send.predicate, here)))
    source.block.add_op(send)


def _prune_bodies(program: ProgramOp) -> bool:
    """Erase unused code of adjoint nodes and inputs that nothing reads; whether an input went."""
    gone = False
    for node in nodes(program):
        if PRIMAL not in node.attributes:
            continue
        erase_unused(node.block.ops)
        for port in node.ports:
            read = node.arg(port.name).uses or port.name in reads_by_name(node)
            if not read and port.gather is None and _removable(program, node, port.name):
                _remove_port(program, node, port.name)
                gone = True
    return gone


def erase_unused(ops: Iterable[Operation]) -> None:
    """Erase operations without effect whose results nobody uses."""
    for op in reversed(list(ops)):
        if not isinstance(op, SendOp) and not any(r.uses for r in op.results) and is_side_effect_free(op):
            op.detach()
            op.erase()


def _sends_into(program: ProgramOp, node: str, port: str) -> list[SendOp]:
    return [
        s
        for op in program.body.block.ops
        if isinstance(op, InputOp | NodeOp)
        for s in op.sends
        if s.target_name == node and s.target_port == port
    ]


def _removable(program: ProgramOp, node: NodeOp, port: str) -> bool:
    """Whether another input makes the node fire as often, at a determined index, without this one."""
    for p in node.ports:
        if p.name == port or (p.open and node.declared is None):
            continue
        into = _sends_into(program, node.symbol, p.name)
        sure = all(None not in s.index.data and s.multiplicity is not Special.UNBOUNDED for s in into)
        if p.gather is not None or sure:
            return True
    return False


def _remove_port(program: ProgramOp, node: NodeOp, port: str) -> None:
    for s in _sends_into(program, node.symbol, port):
        s.detach()
        s.erase()
    arg = node.arg(port)
    node.inputs = PortsAttr(tuple(p for p in node.ports if p.name != port))
    node.block.erase_arg(arg)
