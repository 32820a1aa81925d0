"""Where a derivative starts and where it goes: seeds, results, relays (AUTODIFF rule 9)."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import StringAttr, SymbolRefAttr
from xdsl.ir import Operation, SSAValue

from upl_mlir.diagnostics import error, nearest_or_all
from upl_mlir.dialects import upl
from upl_mlir.dialects.upl import InputOp, NodeOp, OutputOp, ProgramOp, port_ref
from upl_mlir.dialects.upl.query import Endpoint, ports_and_fields, span_of, symbols
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.arrows import COMMENT, connect, here, host_port, new_node
from upl_mlir.passes.autodiff.activity import Held, PortKey, held_fixed
from upl_mlir.passes.autodiff.adjoint_plan import ActiveValue, total
from upl_mlir.passes.autodiff.derivation import Derivation
from upl_mlir.passes.autodiff.dynamic import Dynamics, Flow
from upl_mlir.passes.autodiff.request import note_held
from upl_mlir.passes.build import unused
from upl_mlir.poly.describe import describe
from upl_mlir.poly.sets import PSet


@dataclass(frozen=True)
class Request:
    """What is asked for: ports as ``NAME`` or ``NODE.input``; a seed ``NODE.variable``; where the derivatives go; whether an
    objective of one instance starts with the number 1 and not with a host input; whether derivatives are total, also where
    one port of `wrt` depends on another."""

    of: str
    wrt: tuple[str, ...]
    seed: str | None = None
    into: tuple[SymbolRefAttr, ...] = ()
    unit: bool = True
    total: bool = False

    def starts_with_1(self, of: Endpoint) -> bool:
        """Whether no seed comes from outside or from a variable."""
        return self.unit and self.seed is None and not of.fields


def relay(program: ProgramOp, sets: ProgramSets, dynamics: Dynamics, of: PortKey, request: Request) -> bool:
    """Put a node before the host output `of` where data decide which instance serves an element; whether it did.

    A seed comes to every element; only the relay's adjoint can know whom to pass it on to.
    """
    op = sets.ends[of[0]]
    into = sets.into(of[0])
    if not isinstance(op, OutputOp) or request.starts_with_1(op):
        return False
    if not any(dynamics.flow(a) is Flow.COUNTED or a.source.symbol not in dynamics.sure for a in into):
        return False
    name = unused(f"{op.symbol}_relay", symbols(program))
    attr = op.domain or op.declared
    assert attr is not None
    node = NodeOp(name, op.fields, [upl.Port(port := unused("r", ports_and_fields(program)), op.type)], attr.data)
    node.domain = attr
    node.location = op.location
    node.attributes[COMMENT] = StringAttr(f"takes the elements of {op.symbol}")
    for a in into:
        a.send.target = port_ref(name, port)
    send = upl.SendOp(node.arg(port), port_ref(op.symbol), here(op.fields), rule="relay")
    send.location = op.location
    node.block.add_op(send)
    program.body.block.add_op(node)
    return True


def start(d: Derivation, request: Request, asked_at: Operation) -> tuple[InputOp | NodeOp, SSAValue] | None:
    """What starts the derivative: a value of a node, a host input ``d_R``, or None where whoever sends the objective sends
    the number 1."""
    op = d.sets.ends[d.activity.of[0]]
    if request.seed is not None:
        return _variable(d, op, request, request.seed, asked_at)
    if request.starts_with_1(op):
        if isinstance(op, OutputOp):
            return None
        assert isinstance(op, NodeOp)
        return op, Body(op.block, op.location).constant(1.0, op.arg(d.activity.of[1]).type)
    name = d.fresh("d_" + (op.symbol if isinstance(op, OutputOp) else "_".join(d.activity.of)))
    attr = op.domain or op.declared
    assert attr is not None
    comment = f"derivative of the objective by {request.of}"
    seed = host_port(d.program, InputOp, name, (op, d.activity.of[1]), attr, comment)
    return seed, seed.value


def results(d: Derivation, request: Request, asked_at: Operation) -> list[OutputOp]:
    """Send the derivative by each `wrt` where it is wanted, and the seed to the adjoint of `of`; the new outputs."""
    made: list[OutputOp] = []
    into = dict(zip(d.activity.wrt, request.into, strict=True)) if request.into else {}
    held: Held = {}
    if d.activity.cut and not into:
        held = held_fixed(d.sets, d.activity.dependence, (d.activity.of,), d.activity.wrt)
        note_held(d.program, held)
    for key in d.activity.wrt:
        op = d.sets.ends[key[0]]
        assert isinstance(op, InputOp | NodeOp)
        if key in into:
            d.result[key] = into[key]
        else:
            name = d.fresh("d_" + (key[0] if isinstance(op, InputOp) else "_".join(key)))
            formula = d.plans[key[0]].formula
            comment = f"derivative of the objective by {'.'.join(dict.fromkeys(key))}"
            if key in held:
                fixed = ", ".join(".".join(k) for k in held[key])
                comment += f", with {fixed} held fixed"
            out = host_port(d.program, OutputOp, name, (op, key[1]), upl.FormulaAttr(formula), comment)
            made.append(out)
            d.result[key] = port_ref(name)
            if op.symbol not in d.dynamics.sure:
                d.result[key] = _zeros_elsewhere(d, out, op)
        plan = d.plans[key[0]]
        if plan.node is not None:
            connect(
                d.program, plan.node, plan.deltas[key[1]], d.result[key], here(op.fields), rule="result", origin=op,
                condition=describe(d.sets.domain(key[0]), plan.domain),
            )  # fmt: skip
    plan = d.plans.get(d.activity.of[0])
    if plan is not None and plan.seed is not None and plan.node is not None:
        ref = port_ref(plan.name, plan.seed.name)
        assert d.seed is not None, "`of` is a node input: there is a seed"
        source, value = d.seed
        when = describe(plan.domain, seed_domain(d, request, source, asked_at))
        connect(d.program, source, value, ref, here(plan.primal.fields), rule="seed", origin=asked_at, condition=when)
    return made


def _zeros_elsewhere(d: Derivation, out: OutputOp, op: InputOp | NodeOp) -> SymbolRefAttr:
    """An open gather at every element of a result, where data decide which instances fire: the derivative by what did not
    come is 0."""
    assert out.declared is not None
    port = upl.Port(unused("d", ports_and_fields(d.program)), out.type, upl.Gather.SUM, upl.Special.UNBOUNDED)
    comment = f"0 where {op.symbol} did not fire"
    node = new_node(d.program, d.fresh(f"All_{out.symbol}"), [port], (out.fields, out.declared.data), op, op.symbol, comment)
    connect(d.program, node, node.arg(port.name), port_ref(out.symbol), here(out.fields), rule="result", origin=op)
    return port_ref(node.symbol, port.name)


def seed_domain(d: Derivation, request: Request, source: InputOp | NodeOp, asked_at: Operation) -> PSet:
    """Where the seed exists; it must exist wherever it is wanted."""
    wanted = d.sets.domain(d.activity.of[0])
    there = wanted if isinstance(source, InputOp) else d.sets.domain(source.symbol)
    missing = wanted - there
    if not missing.is_empty():
        point = missing.sample() or {}
        at = ",".join(str(point.get(f, "?")) for f in wanted.dims)
        raise error(
            "UPL1408", f"the seed `{request.seed}` does not exist at `{request.of}<{at}>`",
            span_of(asked_at), help="the seed's node must fire wherever `of` has an instance",
        )  # fmt: skip
    return there


def _variable(d: Derivation, of: Endpoint, request: Request, seed: str, asked_at: Operation) -> tuple[NodeOp, SSAValue]:
    """The node and body variable that ``NODE.variable`` names; its index fields must be those of `of`."""
    name, _, wanted = seed.partition(".")
    op = d.sets.ends.get(name)
    if not isinstance(op, NodeOp):
        nodes = [n for n, o in d.sets.ends.items() if isinstance(o, NodeOp)]
        raise error("UPL1401", f"`seed {seed}`: there is no node `{name}`", span_of(asked_at),
                    help=nearest_or_all(name, nodes))  # fmt: skip
    variables = {o.var.data: o.result for o in op.block.ops if isinstance(o, upl.LetOp)}
    if wanted not in variables:
        raise error("UPL1401", f"`seed {seed}`: `{name}` has no variable `{wanted}`", span_of(asked_at),
                    help=nearest_or_all(wanted, variables))  # fmt: skip
    if op.fields != of.fields:
        raise error(
            "UPL1401", f"`seed {seed}` has the index <{','.join(op.fields)}>, `of {request.of}` has "
            f"<{','.join(of.fields)}>", span_of(asked_at), help="the seed stands at the same index as `of`",
        )  # fmt: skip
    return op, variables[wanted]


def send_unit_seed(d: Derivation, value: ActiveValue, a: Arrow, ref: SymbolRefAttr) -> None:
    """`grad`: the node that sends the objective also sends 1 to its adjoint, under the same condition (rule 9)."""
    one = Body(a.source.block, a.send.location).constant(1.0, value.ssa.type)
    count = None
    if value.port.count is upl.Special.CARRIED:
        count = total(value.terms, d.planner.pruned(a).project(a.src))
    predicate = a.send.predicate if d.dynamics.flow(a) is Flow.COUNTED else None
    connect(
        d.program, a.source, one, ref, here(a.src), rule="seed", origin=a.send, condition=a.send.when,
        predicate=predicate, count=count,
    )  # fmt: skip
