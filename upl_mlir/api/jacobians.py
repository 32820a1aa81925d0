"""`jacobian` and `hessian`: all derivatives of one port by another, as one output of a program.

A derivative program answers for one seed.  Here it is batched over all seeds that have one element 1 and the rest 0; the
program makes them itself.  Reverse mode takes one seed for each element of `of`, forward mode one for each element of
`wrt`; the mode with fewer instances of derivative nodes is chosen, and said.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Literal

from xdsl.dialects import arith
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue

from upl_mlir.api.programs import Program, added, grad
from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import FormulaAttr, Gather, InputOp, NodeOp, OutputOp, Port, UplType, port_ref
from upl_mlir.dialects.upl.attributes import IndexAttr, NamesAttr
from upl_mlir.dialects.upl.query import arrows, endpoints, symbols
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.arrows import COMMENT, new_node
from upl_mlir.passes.autodiff.activity import Dependence, PortKey, analyse, reach
from upl_mlir.passes.autodiff.dynamic import Dynamics
from upl_mlir.passes.autodiff.request import port_key
from upl_mlir.passes.batch import batch_over, names_of
from upl_mlir.passes.build import condition, unused
from upl_mlir.passes.notes import add_note
from upl_mlir.passes.pipelines import GRADIENT, TANGENT
from upl_mlir.pipeline import passes_of, run, verify
from upl_mlir.poly.counts.counting import count
from upl_mlir.poly.expr import Formula, IndexExpr, Var

Mode = Literal["auto", "reverse", "forward"]


def jacobian(
    p: Program, of: str | Sequence[str], wrt: str | Sequence[str], mode: Mode = "auto", *, total: bool = False
) -> Program:
    """The program with an extra output ``J_R_X`` for each `of` and `wrt`: R's fields, then X's (renamed where they clash).

    `mode` "reverse" takes a seed for each element of `of`, "forward" one for each element of `wrt`, "auto" what needs fewer
    instances of derivative nodes; which it was is in the program's `notes` and in a comment at the output.  `total` is as in
    `vjp`.  Source: AUTODIFF section 4 ("Batched").  Raises UplError (UPL14xx).
    """
    if mode not in ("auto", "reverse", "forward"):
        raise error("UPL1802", f"mode={mode!r}: expected auto, reverse or forward")
    source = p.expanded().infer_domains()
    ofs, wrts = _listed(of), _listed(wrt)
    with p.errors():
        chosen, note = _choose(source, ofs, wrts, mode, total)
        if chosen == "reverse":
            return _reverse(source, ofs, wrts, note, total)
        return _forward(source, ofs, wrts, {(o, w): _name("J", o, w) for o in ofs for w in wrts}, note, total)


def hessian(p: Program, of: str, wrt: str | Sequence[str]) -> Program:
    """The program with an extra output ``H_V_W`` for each pair of `wrt`: the second derivatives of `of`, one number, by V's
    elements and by W's; V's fields, then W's (renamed where they clash).

    Forward over reverse, batched over the elements of W.  Raises UplError (UPL14xx).
    """
    names = _listed(wrt)
    g = grad(p, of, names)
    first = added(p.expanded().outputs, g.outputs)
    pairs = {(d, w): _name("H", v, w) for d, v in zip(first, names, strict=True) for w in names}
    with p.errors():
        return _forward(g.infer_domains(), first, names, pairs, "forward over reverse mode")


def _listed(ports: str | Sequence[str]) -> tuple[str, ...]:
    return (ports,) if isinstance(ports, str) else tuple(dict.fromkeys(ports))


def _name(head: str, *ports: str) -> str:
    return "_".join([head, *(p.replace(".", "_") for p in ports)])


# -- which mode ------------------------------------------------------------------------------------------------------------


def _choose(p: Program, ofs: Sequence[str], wrts: Sequence[str], mode: Mode, total: bool) -> tuple[str, str]:
    """The mode, and the reason in words."""
    sets = ProgramSets(p.op)
    of = [port_key(sets, o, "of", None) for o in ofs]
    wrt = [port_key(sets, w, "wrt", None) for w in wrts]
    cut = frozenset(() if total else wrt)
    cost = {"reverse": _reverse_cost(sets, of, wrt, cut), "forward": _forward_cost(sets, of, wrt, cut)}
    shown = {m: "an unknown number of" if c is None else str(c) for m, c in cost.items()}
    if mode != "auto":
        return mode, f"{mode} mode, as asked: {shown[mode]} instances of derivative nodes"
    chosen, where = _fewer(sets, cost["reverse"], cost["forward"])
    other = "forward" if chosen == "reverse" else "reverse"
    return (
        chosen,
        f"{chosen} mode: {shown[chosen]} instances of derivative nodes, {shown[other]} in {other} mode{where}",
    )


def _reverse_cost(
    sets: ProgramSets, ofs: Sequence[PortKey], wrts: Sequence[PortKey], cut: frozenset[PortKey]
) -> IndexExpr | None:
    """Instances of adjoint nodes, times the elements of `of`."""
    dynamics = Dynamics(sets)
    total = IndexExpr()
    for of in ofs:
        seeds = count(sets.domain(of[0]))
        activity = analyse(sets, of, tuple(wrts), cut, dynamics.whole)
        for op in sets.ends.values():
            instances = activity.instances(op) if isinstance(op, NodeOp) else None
            if instances is not None:
                n = count(instances)
                if n is None or seeds is None:
                    return None
                total = total + seeds * n
    return total


def _forward_cost(
    sets: ProgramSets, ofs: Sequence[PortKey], wrts: Sequence[PortKey], cut: frozenset[PortKey]
) -> IndexExpr | None:
    """Instances of nodes with a tangent, times the elements of `wrt`."""
    dependence = {op.symbol: Dependence(op) for op in sets.ends.values() if isinstance(op, InputOp | NodeOp)}
    total = IndexExpr()
    for wrt in wrts:
        seeds = count(sets.domain(wrt[0]))
        active = {n for of in ofs for n, _ in reach(sets, dependence, of, (wrt,), cut)}
        for n in active:
            if isinstance(sets.ends[n], NodeOp):
                instances = count(sets.domain(n))
                if instances is None or seeds is None:
                    return None
                total = total + seeds * instances
    return total


def _fewer(sets: ProgramSets, reverse: IndexExpr | None, forward: int | IndexExpr | None) -> tuple[str, str]:
    """The mode with fewer instances, forward if they are as many (it keeps no tape), and at what sizes that was decided."""
    if reverse is None or forward is None:
        return ("forward", "") if reverse is None and forward is not None else ("reverse", "")
    difference = IndexExpr.of(reverse) - IndexExpr.of(forward)
    least = {p: _least(sets, p) for p in sets.ctx.params}
    moved = difference.substitute({p: IndexExpr.of(p) + v for p, v in least.items()})  # now every parameter is >= 0
    if all(isinstance(a, Var) for m, _ in moved.terms for a in m):
        if all(c >= 0 for _, c in moved.terms):
            return "forward", ""
        if all(c <= 0 for _, c in moved.terms):
            return "reverse", ""
    sizes = {p: v + 9 for p, v in least.items()}
    value = difference.evaluate({**sets.ctx.constants, **sizes}, sets.ctx.read)
    where = ", ".join(f"{p}={v}" for p, v in sizes.items())
    return ("reverse" if value < 0 else "forward"), f" (compared at {where})"


def _least(sets: ProgramSets, param: str) -> int:
    low, _ = sets.ctx.set(("size",), sets.ctx.param_condition & Formula.compare("size", "==", param)).extent("size")
    return low if low is not None else 1


# -- the two modes ---------------------------------------------------------------------------------------------------------


def _reverse(p: Program, ofs: Sequence[str], wrts: Sequence[str], note: str, total: bool) -> Program:
    out = p.clone()
    for of in ofs:
        before = _ports(out)
        run(out.module, passes_of(GRADIENT, {"autodiff": {"of": of, "wrt": tuple(wrts), "total": total}}))
        seeds, results = _added(out, before)
        fields = _batched(out, seeds, results, "of", "D", before)
        source = endpoints(out.op)[of.partition(".")[0]].fields
        for name, wrt in zip(results, wrts, strict=True):
            _finish(out, name, _name("J", of, wrt), source, fields, front=True, comment=f"{of} by {wrt}, {note}")
    return _noted(out, note)


def _forward(
    p: Program, ofs: Sequence[str], wrts: Sequence[str], names: Mapping[tuple[str, str], str], note: str, total: bool = False
) -> Program:
    out = p.clone()
    held = () if total else tuple(wrts)
    for wrt in wrts:
        before = _ports(out)
        run(out.module, passes_of(TANGENT, {"tangent": {"of": tuple(ofs), "wrt": (wrt,), "total": total, "held": held}}))
        seeds, results = _added(out, before)
        fields = _batched(out, seeds, results, "by", "T", before)
        source = endpoints(out.op)[wrt.partition(".")[0]].fields
        for name, of in zip(results, ofs, strict=True):
            _finish(out, name, names[of, wrt], source, fields, front=False, comment=f"{of} by {wrt}, {note}")
    return _noted(out, note)


def _ports(p: Program) -> dict[str, frozenset[str]]:
    """The inputs of each node; other endpoints have none."""
    return {
        n: frozenset(port.name for port in op.ports) if isinstance(op, NodeOp) else frozenset()
        for n, op in endpoints(p.op).items()
    }


def _added(p: Program, before: Container[str]) -> tuple[list[InputOp], list[str]]:
    """The seed inputs and the outputs that a derivative has added, in the order of what it was asked."""
    new = [op for n, op in endpoints(p.op).items() if n not in before]
    return [op for op in new if isinstance(op, InputOp)], [op.symbol for op in new if isinstance(op, OutputOp)]


def _batched(
    p: Program, seeds: Sequence[InputOp], results: Sequence[str], word: str, prefix: str,
    before: Mapping[str, frozenset[str]],
) -> tuple[str, ...]:  # fmt: skip
    """Batch over all one-hot seeds: the seed input, if there is one, becomes a node; returns the new fields.

    Nodes fired on the inputs that they had `before`, so what needs no derivative is divided off and stays as it was.
    """
    fields: tuple[str, ...] = ()
    for op in seeds:
        used = names_of(p.op)
        own = op.fields
        fields = tuple(unused(f"{word}_{f}", used) for f in own)
        domain = op.domain or op.declared
        if own:
            assert domain is not None
            inside = domain.data.substitute(dict(zip(own, fields, strict=True)))
            batch_over(p.op, (op.symbol,), fields, inside, prefix=prefix, also=results, enough=before)
        _generate(p, op, fields, own)
    verify(p.module)
    return fields


def _generate(p: Program, op: InputOp, fields: Sequence[str], own: Sequence[str]) -> None:
    """Replace a batched seed input by a node that fires by itself and sends 1 where the indices agree, else 0."""
    taken = symbols(p.op)
    used = {*op.fields, *taken}
    name = unused(f"Seed_{op.symbol}", taken)
    attr = op.domain or op.declared
    formula = attr.data if attr else Formula.all(())
    ports = [Port(unused("none", used), UplType.REAL, Gather.SUM, IndexExpr.of(0))]
    node = new_node(p.op, name, ports, (op.fields, formula), op, op.symbol, "one element is 1, the others are 0")
    body = Body(node.block, op.location)
    env = dict(zip(op.fields, node.block.args, strict=False))
    value = body.constant(1.0, op.value.type)
    if fields:
        same = Formula.all(Formula.compare(a, "==", b) for a, b in zip(fields, own, strict=True))
        value = body.add(arith.SelectOp(condition(body, same, env), value, body.constant(0.0, op.value.type)))
    copies: dict[SSAValue, SSAValue] = {**dict(zip(op.block.args, node.block.args, strict=False)), op.value: value}
    for inner in op.block.ops:
        new = inner.clone({o: copies[o] for o in inner.operands})
        node.block.add_op(new)
        copies.update(zip(inner.results, new.results, strict=True))
    op.detach()
    op.erase()


def _finish(
    p: Program, name: str, wanted: str, source: Sequence[str], fields: Sequence[str], *, front: bool, comment: str
) -> None:
    """Give an output its name and its fields: those of `of`, then those of `wrt`.

    The output has the `fields` of the seed in front, which stand for `source`, the fields of the port that is seeded; with
    `front` they stay there.
    """
    op = endpoints(p.op)[name]
    assert isinstance(op, OutputOp)
    n = len(fields)
    first, second = (tuple(source), op.fields[n:]) if front else (op.fields[n:], tuple(source))
    used = {*symbols(p.op), *first}
    new = (*first, *(unused(f, used) for f in second))
    old = (*fields, *op.fields[n:]) if front else (*op.fields[n:], *fields)
    for attr in ("declared", "domain"):
        formula: FormulaAttr | None = getattr(op, attr)
        if formula is not None:
            setattr(op, attr, FormulaAttr(formula.data.substitute(dict(zip(old, new, strict=True)))))
    op.index = NamesAttr(new)
    op.attributes[COMMENT] = StringAttr(f"derivative of {comment}")
    op.sym_name = StringAttr(unused(wanted, symbols(p.op)))
    for send in arrows(p.op):
        if send.target_name == name:
            send.target = port_ref(op.symbol)
            if not front:
                index = send.index.data
                send.index = IndexAttr((*index[n:], *index[:n]))


def _noted(p: Program, note: str) -> Program:
    add_note(p.op, note)
    verify(p.module)
    return p
