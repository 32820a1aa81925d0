"""`chain-gathers`: sums and products of reals in the order of LANGUAGE 3.10 by the program itself, one operation after
the other.

A gather adds as its summands arrive, unless an engine keeps their order.  A machine does not; here each addition waits for
the one before it, so that its results have the bits of the ordered sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.upl import FormulaAttr, InputOp, NodeOp, Port, ProgramOp, UplType, port_ref
from upl_mlir.dialects.upl.attributes import IndexAttr, PortsAttr
from upl_mlir.dialects.upl.gathers import Gather
from upl_mlir.dialects.upl.query import nodes, program_of, span_of, symbols
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.effort import bounded
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.arrows import COMMENT, connect, free_names, here, restricted
from upl_mlir.passes.batch import names_of
from upl_mlir.passes.build import unused
from upl_mlir.passes.expand import expand
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.fibres import fibre_count
from upl_mlir.poly.sets import PSet

MOST = 8
"""Groups of instances at most that get summands by the same arrows.  Chosen, not measured."""


@dataclass(frozen=True)
class ChainGathersPass(ModulePass):
    """Make every sum or product of three or more reals a chain of operations, in the order of LANGUAGE 3.10.

    Requires: all domains known; no `adjoint of` directives; of each such sum, the place of a summand follows from its index.
    Establishes: no gather of reals by `+` or `*` has more than two summands, so that no order of arrival matters.

        node M<i,j> { in x; x #3 -> S.s<i> }         ->     node M<i,j> { in x; if j==0: x -> AddS_s.sum<i,1>;
        node S<i> { in @(+) s[#]; s -> Y<i> }                             if j!=0: x -> AddS_s.x<i,j> }
                                                            node AddS_s<i,n> in 1<=n<=2 { in sum, x; sum + x -> … }
                                                            node S<i> { in s; s -> Y<i> }
    """

    name = "chain-gathers"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = program_of(op)
        expand(program)
        chain_gathers(program)


@bounded("the order of sums")
def chain_gathers(program: ProgramOp) -> None:
    """In place; see `ChainGathersPass`.  Raises UplError (UPL1422) for a gather whose order cannot be said."""
    for op in nodes(program):
        for port in op.ports:
            if port.gather in (Gather.SUM, Gather.PRODUCT) and port.type not in (UplType.INT, UplType.BOOL):
                _chain(ProgramSets(program), op, port)


@dataclass(frozen=True)
class _Part:
    """Instances of a gather that get summands by the same arrows: the arrows with the places of their summands in the sum,
    in the arrows' terms, and how many there are."""

    inside: PSet
    arrows: Sequence[tuple[Arrow, IndexExpr]]
    total: IndexExpr


def _chain(sets: ProgramSets, op: NodeOp, port: Port) -> None:
    arrows = sorted(sets.into(op.symbol, port.name), key=lambda a: not isinstance(a.source, InputOp))
    domain = sets.domain(op.symbol)
    images = [sets.image(a) for a in arrows]
    if port.open or not domain.exact or any(a.virtual or a.stars or sets.dynamic(a) or not a.exact for a in arrows):
        raise _unknown(op, port, "data decide which summands it has")
    if any(image.lost for image in images):
        raise _unknown(op, port, "who sends to which instance is no expression")
    pieces = [domain]
    for image in images:
        pieces = [q.coalesce() for piece in pieces for q in (piece & image, piece - image) if not q.is_empty()]
        if len(pieces) > MOST:
            raise _unknown(op, port, f"its instances get summands in more than {MOST} ways")
    parts = [_part(sets, op, port, p, [a for a, i in zip(arrows, images, strict=True) if p <= i]) for p in pieces]
    if all(part.inside.constrain(Formula.compare(part.total, ">", 2)).is_empty() for part in parts):
        return
    taken = names_of(sets.program)
    for part in parts:
        _put(sets, op, port, part, taken)
    for a in arrows:
        a.send.detach()
        a.send.erase()
    op.inputs = PortsAttr(tuple(replace(p, gather=None, count=None) if p.name == port.name else p for p in op.ports))


def _part(sets: ProgramSets, op: NodeOp, port: Port, inside: PSet, arrows: Sequence[Arrow]) -> _Part:
    """The order of what some instances get."""
    placed: list[tuple[Arrow, IndexExpr]] = []
    total = IndexExpr()
    for a in arrows:
        relation = _relation(sets, a, inside)
        own = (*a.src, *a.loops)
        count, place = fibre_count(relation, own), _place(a, relation)
        if count is None or place is None:
            raise _unknown(op, port, f"the place of a summand of {a.text} is no expression")
        to = dict(zip(op.fields, a.send.index.data, strict=True))
        placed.append((a, total.substitute({f: e for f, e in to.items() if e is not None}) + place))
        total = total + count.substitute(dict(zip(a.dst, here(op.fields), strict=True)))
    return _Part(inside, placed, total)


def _relation(sets: ProgramSets, a: Arrow, inside: PSet) -> PSet:
    """The arrow's relation to some of the instances that it sends to."""
    there = inside.rename(dict(zip(a.target.fields, a.dst, strict=True))).extend(a.dims)
    return sets.relation(a) & there.reorder(a.dims)


def _place(a: Arrow, relation: PSet) -> IndexExpr | None:
    """How many summands of the arrow come before one: by source index, then by iterators."""
    own = (*a.src, *a.loops)
    other = {d: unused(f"{d}_2", {*a.dims, *own}) for d in own}
    dims = (*a.dims, *other.values())
    both = relation.extend(dims) & relation.rename(other).extend(dims).reorder(dims)
    before = IndexExpr()
    for d in own:
        upto = both.constrain(Formula.compare(other[d], "<=", d))
        both = both.constrain(Formula.compare(other[d], "==", d))
        counts = [fibre_count(s.project((*own, *other.values())), tuple(other.values())) for s in (upto, both)]
        if counts[0] is None or counts[1] is None:
            return None
        before = before + counts[0] - counts[1]
    return before


def _put(sets: ProgramSets, op: NodeOp, port: Port, part: _Part, taken: set[str]) -> None:
    """The node that adds for some instances, and the arrows to it; or one that has the sum of nothing."""
    program, total = sets.program, part.total
    if not part.arrows:
        (nothing,) = free_names(sets, op.fields, "s")
        empty = Port(nothing, port.type, port.gather, IndexExpr())
        none = _node(program, op, port, "None", op.fields, [empty], part.inside, "where there are no summands")
        connect(program, none, none.arg(nothing), port_ref(op.symbol, port.name), here(op.fields), rule="chain", origin=op)
        return
    at, so_far, term = (unused(n, taken) for n in ("n", "sum", "x"))
    fields = (*op.fields, at)
    here_, one = IndexExpr.of(at), IndexExpr.of(1)
    last = total - one
    domain = part.inside.extend(fields).constrain(
        Formula.compare(one, "<=", here_) & Formula.compare(here_, "<=", last)
    )  # fmt: skip
    target = port_ref(op.symbol, port.name)
    start = add = target
    if not domain.is_empty():
        ports = [Port(so_far, port.type), Port(term, port.type)]
        node = _node(program, op, port, "Add", fields, ports, domain, "one after the other")
        body = Body(node.block, op.location)
        left, right = body.val(node.arg(so_far)), body.val(node.arg(term))
        joined = (left + right if port.gather is Gather.SUM else left * right).ssa
        start, add = port_ref(node.symbol, so_far), port_ref(node.symbol, term)
        for end, index, when in (
            (start, (*here(op.fields), here_ + one), Formula.compare(here_, "<", last)),
            (target, here(op.fields), Formula.compare(here_, "==", last)),
        ):
            if not domain.constrain(when).is_empty():
                connect(program, node, joined, end, index, rule="chain", origin=op, condition=when)
    for a, place in part.arrows:
        to = {f: e for f, e in zip(op.fields, a.send.index.data, strict=True) if e is not None}
        more, index = last.substitute(to), tuple(a.send.index.data)
        first = Formula.compare(place, "==", 0)
        tokens = _relation(sets, a, part.inside).in_terms_of(a.src).project((*a.src, *a.loops))
        whole = sets.tokens(a) <= tokens
        for conditions, end, there in (
            ((first, Formula.compare(more, ">", 0)), start, (*index, one)),
            ((Formula.compare(place, ">", 0),), add, (*index, place)),
            ((first, Formula.compare(more, "==", 0)), target, index),
        ):
            if tokens.constrain(Formula.all(conditions)).is_empty():
                continue
            when = Formula.all(f for f in conditions if not tokens.constrain(f.negate()).is_empty())
            send = a.send.clone({v: v for v in a.send.operands})
            a.source.block.insert_op_before(send, a.send)
            send.target, send.index, send.count = end, IndexAttr(there), None
            if not whole:
                new = restricted(a, tokens, sets.domain(a.source.symbol))
                send.condition, send.point_condition = FormulaAttr(new.condition), FormulaAttr(new.point_condition)
            if when.names & {*a.loops}:
                send.point_condition = FormulaAttr(send.when_point & when)
            else:
                send.condition = FormulaAttr(send.when & when)
            send.condition = None if send.when.is_true else send.condition
            send.point_condition = None if send.when_point.is_true else send.point_condition


def _node(
    program: ProgramOp, op: NodeOp, port: Port, what: str, fields: Sequence[str], ports: Sequence[Port], domain: PSet,
    why: str,
) -> NodeOp:  # fmt: skip
    """A node before the one that gathers."""
    node = NodeOp(unused(f"{what}{op.symbol}_{port.name}", symbols(program)), fields, ports, describe(domain))
    node.domain = node.declared
    node.location = op.location
    node.attributes[COMMENT] = StringAttr(f"{op.symbol}.{port.name}: {why}")
    program.body.block.insert_op_before(node, op)
    return node


def _unknown(op: NodeOp, port: Port, why: str) -> UplError:
    return error(
        "UPL1422", f"chain-gathers: in which order `{op.symbol}.{port.name}` is folded cannot be said: {why}", span_of(op),
        help="bind sizes with -D, or leave the order to the engine",
    )  # fmt: skip
