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
from upl_mlir.passes.arrows import COMMENT, connect, here
from upl_mlir.passes.batch import names_of
from upl_mlir.passes.build import unused
from upl_mlir.passes.expand import expand
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.fibres import fibre_count


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


def _chain(sets: ProgramSets, op: NodeOp, port: Port) -> None:
    arrows = sorted(sets.into(op.symbol, port.name), key=lambda a: not isinstance(a.source, InputOp))
    domain = sets.domain(op.symbol)
    if port.open or not domain.exact or any(a.virtual or a.stars or sets.dynamic(a) for a in arrows):
        raise _unknown(op, port, "data decide which summands it has")
    places: list[IndexExpr] = []
    total = IndexExpr()
    for a in arrows:
        image = sets.image(a)
        if not a.exact or image.lost or not domain <= image:
            raise _unknown(op, port, f"{a.text} sends to some of its instances only")
        relation = sets.relation(a)
        own = (*a.src, *a.loops)
        count = fibre_count(relation, own)
        place = _place(sets, a)
        if count is None or place is None:
            raise _unknown(op, port, f"the place of a summand of {a.text} is no expression")
        to = dict(zip(op.fields, a.send.index.data, strict=True))
        places.append(total.substitute({f: e for f, e in to.items() if e is not None}) + place)
        total = total + count.substitute(dict(zip(a.dst, here(op.fields), strict=True)))
    if domain.constrain(Formula.compare(total, ">", 2)).is_empty():
        return
    _put(sets, op, port, arrows, places, total)


def _place(sets: ProgramSets, a: Arrow) -> IndexExpr | None:
    """How many summands of the arrow come before one: by source index, then by iterators."""
    own = (*a.src, *a.loops)
    relation = sets.relation(a)
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


def _put(
    sets: ProgramSets, op: NodeOp, port: Port, arrows: Sequence[Arrow], places: Sequence[IndexExpr], total: IndexExpr
) -> None:  # fmt: skip
    """The node that adds, and the arrows to it."""
    program = sets.program
    taken = names_of(program)
    at, so_far, term = (unused(n, taken) for n in ("n", "sum", "x"))
    fields = (*op.fields, at)
    here_, one = IndexExpr.of(at), IndexExpr.of(1)
    where = Formula.compare(one, "<=", here_) & Formula.compare(here_, "<", total)
    domain = sets.domain(op.symbol).extend(fields).constrain(where)
    name = unused(f"Add{op.symbol}_{port.name}", symbols(program))
    node = NodeOp(name, fields, [Port(so_far, port.type), Port(term, port.type)], describe(domain))
    node.domain = node.declared
    node.location = op.location
    node.attributes[COMMENT] = StringAttr(f"the summands of {op.symbol}.{port.name}, one after the other")
    program.body.block.insert_op_before(node, op)
    op.inputs = PortsAttr(tuple(replace(p, gather=None, count=None) if p.name == port.name else p for p in op.ports))
    body = Body(node.block, op.location)
    left, right = body.val(node.arg(so_far)), body.val(node.arg(term))
    added = (left + right if port.gather is Gather.SUM else left * right).ssa
    last = total - one
    for target, index, when in (
        (port_ref(node.symbol, so_far), (*here(op.fields), here_ + one), Formula.compare(here_, "<", last)),
        (port_ref(op.symbol, port.name), here(op.fields), Formula.compare(here_, "==", last)),
    ):
        connect(program, node, added, target, index, rule="chain", origin=op, condition=when)
    for a, place in zip(arrows, places, strict=True):
        to = {f: e for f, e in zip(op.fields, a.send.index.data, strict=True) if e is not None}
        more, tokens = last.substitute(to), sets.tokens(a)
        index = tuple(a.send.index.data)
        first = Formula.compare(place, "==", 0)
        cases = (
            ((first, Formula.compare(more, ">", 0)), port_ref(node.symbol, so_far), (*index, one)),
            ((Formula.compare(place, ">", 0),), port_ref(node.symbol, term), (*index, place)),
            ((first, Formula.compare(more, "==", 0)), port_ref(op.symbol, port.name), index),
        )
        for conditions, target, there in cases:
            if tokens.constrain(Formula.all(conditions)).is_empty():
                continue
            when = Formula.all(f for f in conditions if not tokens.constrain(f.negate()).is_empty())
            send = a.send.clone({v: v for v in a.send.operands})
            a.source.block.insert_op_before(send, a.send)
            send.target, send.index, send.count = target, IndexAttr(there), None
            if when.names & {*a.loops}:
                send.point_condition = FormulaAttr(a.send.when_point & when)
            elif not when.is_true:
                send.condition = FormulaAttr(a.send.when & when)
        a.send.detach()
        a.send.erase()


def _unknown(op: NodeOp, port: Port, why: str) -> UplError:
    return error(
        "UPL1422", f"chain-gathers: in which order `{op.symbol}.{port.name}` is folded cannot be said: {why}", span_of(op),
        help="bind sizes with -D, or leave the order to the engine",
    )  # fmt: skip
