"""`jacobian` and `hessian`: all derivatives of one port by another, as one output of a program.

A derivative program answers for one seed.  Here it is batched over all seeds that have one element 1 and the rest 0; the
program makes them itself.  Reverse mode takes one seed for each element of `of`, forward mode one for each element of
`wrt`; the mode with fewer instances of derivative nodes is chosen, and said.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from xdsl.dialects import arith
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue

from upl_mlir.api.programs import Program, added, grad
from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import FormulaAttr, Gather, InputOp, NodeOp, OutputOp, Port, UplType, port_ref
from upl_mlir.dialects.upl.attributes import IndexAttr, NamesAttr
from upl_mlir.dialects.upl.query import arrows, endpoints, symbols
from upl_mlir.dialects.verifying import verify
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.arrows import COMMENT, new_node
from upl_mlir.passes.autodiff.activity import PortKey
from upl_mlir.passes.autodiff.eliminate_dead_derivatives import eliminate_dead_derivatives
from upl_mlir.passes.autodiff.request import port_key
from upl_mlir.passes.batch import batch_over, names_of
from upl_mlir.passes.build import condition, unused
from upl_mlir.passes.jacobian.bottleneck import Cut, bottleneck
from upl_mlir.passes.jacobian.costs import Costs, cheapest, elements, sum_of
from upl_mlir.passes.jacobian.product import Factor, multiply
from upl_mlir.passes.jacobian.relay import relay
from upl_mlir.passes.notes import NOTES, add_note
from upl_mlir.passes.pipelines import GRADIENT, TANGENT
from upl_mlir.pipeline import passes_of, run
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import Formula, IndexExpr

Mode = Literal["auto", "reverse", "forward", "mixed"]


def jacobian(
    p: Program, of: str | Sequence[str], wrt: str | Sequence[str], mode: Mode = "auto", *, total: bool = False
) -> Program:
    """The program with an extra output ``J_R_X`` for each `of` and `wrt`: R's fields, then X's (renamed where they clash).

    `mode` "reverse" takes a seed for each element of `of`, "forward" one for each element of `wrt`, "auto" what needs fewer
    instances of derivative nodes; which it was is in the program's `notes` and in a comment at the output.  `total` is as in
    `vjp`.  Source: AUTODIFF section 4 ("Batched").  Raises UplError (UPL14xx).
    """
    if mode not in get_args(Mode):
        raise error("UPL1802", f"mode={mode!r}: expected auto, reverse, forward or mixed")
    source = p.expanded().infer_domains()
    ofs, wrts = _listed(of), _listed(wrt)
    with p.errors():
        chosen = _choose(source, ofs, wrts, mode, total)
        names = {(o, w): _name("J", o, w) for o in ofs for w in wrts}
        if chosen.mode == "mixed":
            return _noted(_mixed(chosen, names, total), chosen.note)
        if chosen.mode == "reverse":
            return _noted(_reverse(source, ofs, wrts, chosen.note, total), chosen.note)
        return _noted(_forward(source, ofs, wrts, names, chosen.note, total), chosen.note)


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
        note = "forward over reverse mode"
        return _noted(_forward(g.infer_domains(), first, names, pairs, note), note)


def _listed(ports: str | Sequence[str]) -> tuple[str, ...]:
    return (ports,) if isinstance(ports, str) else tuple(dict.fromkeys(ports))


def _name(head: str, *ports: str) -> str:
    return "_".join([head, *(p.replace(".", "_") for p in ports)])


# -- which mode ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Choice:
    """The mode, and the reason in words; in mixed mode the cut, and the program with a relay there, whose input is `via`."""

    mode: str
    note: str
    cut: Cut | None = None
    source: Program | None = None
    via: str = ""


JOINED = {"product": "product of both sides", "forward": "forward from there", "reverse": "reverse from there"}


def _choose(p: Program, ofs: Sequence[str], wrts: Sequence[str], mode: Mode, total: bool) -> _Choice:
    """The mode that needs fewest instances of derivative nodes, of those that `mode` allows; reverse mode of two as good.

    A cut must save a fifth: in native code a seed of it costs up to a quarter more, as passes by few seeds use caches and
    vectors less well (`bench/jacobian.py`, 256-192-256).
    """
    sets = ProgramSets(p.op)
    of = [port_key(sets, o, "of", None) for o in ofs]
    wrt = [port_key(sets, w, "wrt", None) for w in wrts]
    held = frozenset(() if total else wrt)
    pure = Costs(sets, held)
    costs = {"reverse": pure.reverse(of, wrt), "forward": pure.forward(of, wrt)}
    if mode in costs:
        return _Choice(mode, f"{mode} mode, as asked: {_shown(costs[mode])} instances of derivative nodes")
    cut = bottleneck(sets, of, wrt, held)
    out, via = p, ""
    if cut is not None:
        out = p.clone()
        via = relay(out.op, cut.place)
        costs["mixed"] = _mixed_cost(out, of, wrt, via, cut, held)
    chosen, where = cheapest(sets, {m: c and c * (5 if m == "mixed" else 4) for m, c in costs.items()})
    others = ", ".join(f"{_shown(c)} in {m} mode" for m, c in costs.items() if m != chosen)
    needs = f"{_shown(costs[chosen])} instances of derivative nodes, {others}{where}"
    if chosen != "mixed" or cut is None:
        return _Choice(chosen, f"{chosen} mode: {needs}")
    at = f"cut at {cut.place} ({cut.width} values), {JOINED[cut.join]}"
    return _Choice(chosen, f"{chosen} mode, {at}: {needs}", cut, out, via)


def _shown(cost: IndexExpr | None) -> str:
    return "an unknown number of" if cost is None else str(cost)


def _mixed_cost(
    p: Program, of: Sequence[PortKey], wrt: Sequence[PortKey], via: str, cut: Cut, held: frozenset[PortKey]
) -> IndexExpr | None:
    """Instances of derivative nodes on both sides of a cut, and of those that join them."""
    sets = ProgramSets(p.op)
    middle = port_key(sets, via, "of", None)
    before, behind = Costs(sets, held), Costs(sets, held | {middle})
    n, m = elements(sets, wrt), elements(sets, of)
    if n is None or m is None:
        return None
    if cut.join == "product":
        return sum_of([before.reverse([middle], wrt), behind.forward(of, [middle]), n * (cut.width + 1) * m])
    if cut.join == "forward":
        return sum_of([before.reverse([middle], wrt), behind.forward(of, [middle], n), n * cut.width])
    return sum_of([behind.forward(of, [middle]), before.reverse([middle], wrt, m), m * cut.width])


# -- the modes ---------------------------------------------------------------------------------------------------------


def _reverse(
    p: Program, ofs: Sequence[str], wrts: Sequence[str], note: str, total: bool, via: str = "",
    seeds: Mapping[str, Factor] | None = None,
) -> Program:  # fmt: skip
    """Adjoints with a seed for each element of `of`, or, of the port `via`, with the rows of a Jacobian by it as `seeds`."""
    out = p.clone()
    for of in ofs:
        before = _ports(out)
        asked = {"of": via or of, "wrt": tuple(wrts), "total": total, "unit": seeds is None}
        run(out.module, passes_of(GRADIENT, {"autodiff": asked}))
        made, results = _added(out, before)
        fields = _batched(out, made, results, "of", "D", before, None if seeds is None else seeds[of], rows=True)
        source = endpoints(out.op)[of.partition(".")[0]].fields
        for name, wrt in zip(results, wrts, strict=True):
            _finish(out, name, _name("J", of, wrt), source, fields, front=True, comment=f"{of} by {wrt}, {note}")
    return out


def _forward(
    p: Program, ofs: Sequence[str], wrts: Sequence[str], names: Mapping[tuple[str, str], str], note: str,
    total: bool = False, held: Sequence[str] = (), via: str = "", seeds: Mapping[str, Factor] | None = None,
) -> Program:  # fmt: skip
    """Tangents with a seed for each element of `wrt`, or, by the port `via`, with the columns of a Jacobian by `wrt` as
    `seeds`."""
    out = p.clone()
    held = (*held, *(() if total else wrts))
    for wrt in wrts:
        before = _ports(out)
        asked = {"of": tuple(ofs), "wrt": (via or wrt,), "total": total, "held": held}
        run(out.module, passes_of(TANGENT, {"tangent": asked}))
        made, results = _added(out, before)
        fields = _batched(out, made, results, "by", "T", before, None if seeds is None else seeds[wrt], rows=False)
        source = endpoints(out.op)[wrt.partition(".")[0]].fields
        for name, of in zip(results, ofs, strict=True):
            _finish(out, name, names[of, wrt], source, fields, front=False, comment=f"{of} by {wrt}, {note}")
    eliminate_dead_derivatives(out.op)
    return out


def _mixed(chosen: _Choice, names: Mapping[tuple[str, str], str], total: bool) -> Program:
    """Reverse mode from the cut's values to `wrt`, forward mode from them to `of`, joined as was chosen."""
    p, cut, via, note = chosen.source, chosen.cut, chosen.via, chosen.note
    assert p is not None and cut is not None
    ofs, wrts = (tuple(dict.fromkeys(pair)) for pair in zip(*names, strict=True))
    ends = endpoints(p.op)
    first = {port: len(ends[port.partition(".")[0]].fields) for port in (*ofs, via)}
    held = () if total else wrts
    left: dict[str, Factor] = {}
    right: dict[str, Factor] = {}
    out = p
    if cut.join != "reverse":
        before = _ports(out)
        out = _reverse(out, (via,), wrts, note, total).infer_domains()
        right = {w: Factor(j, first[via]) for w, j in zip(wrts, _added(out, before)[1], strict=True)}
    said = out.op.attributes.get(NOTES)
    if cut.join == "forward":
        out = _forward(out, ofs, wrts, names, note, False, (*held, via), via, right)
    else:
        before = _ports(out)
        out = _forward(out, ofs, (via,), {(o, via): _name("J", o, via) for o in ofs}, note, held=held)
        left = {o: Factor(j, first[o]) for o, j in zip(ofs, _added(out, before)[1], strict=True)}
    out.op.attributes.pop(NOTES, None)  # what is held fixed for the cut's own derivative is nobody's concern
    if said is not None:
        out.op.attributes[NOTES] = said
    if cut.join == "reverse":
        out = _reverse(out.infer_domains(), ofs, wrts, note, total, via, left)
    elif cut.join == "product":
        multiply(out.op, left, right, cut.width, names, via.partition(".")[0], note)
    return out


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
    before: Mapping[str, frozenset[str]], fed: Factor | None, *, rows: bool,
) -> tuple[str, ...]:  # fmt: skip
    """Batch over all one-hot seeds, or over those of a Jacobian that it is `fed`, its `rows` or its columns: the seed input,
    if there is one, becomes a node; returns the new fields.

    Nodes fired on the inputs that they had `before`, so what needs no derivative is divided off and stays as it was.
    """
    fields: tuple[str, ...] = ()
    for op in seeds:
        used = names_of(p.op)
        own = op.fields
        over, where = own, op.domain or op.declared
        if fed is not None:
            source = endpoints(p.op)[fed.output]
            over = source.fields[: fed.first] if rows else source.fields[fed.first :]
            where = FormulaAttr(describe(ProgramSets(p.op).domain(fed.output).project(over)))
        fields = tuple(unused(f"{word}_{f}", used) for f in over)
        if over:
            assert where is not None
            inside = where.data.substitute(dict(zip(over, fields, strict=True)))
            batch_over(p.op, (op.symbol,), fields, inside, prefix=prefix, also=results, enough=before)
        if fed is None:
            _generate(p, op, fields, own)
        else:
            _take(p, op, fed, rows)
    verify(p.module)
    return fields


def _generate(p: Program, op: InputOp, fields: Sequence[str], own: Sequence[str]) -> None:
    """Replace a batched seed input by a node that fires by itself and sends 1 where the indices agree, else 0."""
    none = Port(unused("none", {*op.fields, *symbols(p.op)}), UplType.REAL, Gather.SUM, IndexExpr.of(0))
    node = _node(p, op, "Seed", none, "one element is 1, the others are 0")
    body = Body(node.block, op.location)
    env = dict(zip(op.fields, node.block.args, strict=False))
    value = body.constant(1.0, op.value.type)
    if fields:
        same = Formula.all(Formula.compare(a, "==", b) for a, b in zip(fields, own, strict=True))
        value = body.add(arith.SelectOp(condition(body, same, env), value, body.constant(0.0, op.value.type)))
    _move(op, node, value)


def _take(p: Program, op: InputOp, fed: Factor, rows: bool) -> None:
    """Replace a batched seed input by a node that passes on the elements of a Jacobian, which is no output then."""
    output = endpoints(p.op)[fed.output]
    assert isinstance(output, OutputOp)
    port = Port(unused("d", {*op.fields, *symbols(p.op)}), output.type)
    node = _node(p, op, "Rows" if rows else "Columns", port, f"the elements of {fed.output}")
    for send in arrows(p.op):
        if send.target_name == fed.output:
            send.target = port_ref(node.symbol, port.name)
            index = send.index.data
            send.index = IndexAttr(index if rows else (*index[fed.first :], *index[: fed.first]))
    output.detach()
    output.erase()
    body = Body(node.block, op.location)
    _move(op, node, body.like(node.arg(port.name), op.value.type))


def _node(p: Program, op: InputOp, kind: str, port: Port, comment: str) -> NodeOp:
    """A node that stands for a batched seed input."""
    attr = op.domain or op.declared
    formula = attr.data if attr else Formula.all(())
    name = unused(f"{kind}_{op.symbol}", symbols(p.op))
    return new_node(p.op, name, [port], (op.fields, formula), op, op.symbol, comment)


def _move(op: InputOp, node: NodeOp, value: SSAValue) -> None:
    """Let a node do what a host input did, with a value of the node in place of the element."""
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
