"""`strip-mine`: a field of a node in strips of so many values, with the number of the strip as a field in front.

A token with `*` in that field becomes one for each strip.  So the host can send one strip after the other, and a store need
hold the tokens of one strip only (MACHINE, Throttle).
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, i64
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import error, nearest_or_all
from upl_mlir.dialects.upl import FormulaAttr, Iterator, NodeOp, ProgramOp
from upl_mlir.dialects.upl.attributes import CountAttr, IndexAttr, IteratorsAttr, NamesAttr
from upl_mlir.dialects.upl.query import endpoints, program_of, span_of
from upl_mlir.dialects.upl.values import hint
from upl_mlir.passes.analysis.effort import bounded
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets, primed
from upl_mlir.passes.batch import names_of
from upl_mlir.passes.build import unused
from upl_mlir.passes.expand import expand
from upl_mlir.poly.expr import Formula, IndexExpr, divide
from upl_mlir.poly.fibres import fibre_count
from upl_mlir.poly.nest import nest
from upl_mlir.poly.operators import DivKind


@dataclass(frozen=True)
class StripMinePass(ModulePass):
    """Divide the field `field` of the node `node` into strips of `by` values.

    Requires: all domains known; no `adjoint of` directives.
    Establishes: the node has a new first field, ``field floordiv by``, called `strip` (default ``t``). A token with `*`
    in `field` covers one strip, and its arrow has a `for` over the strips. The node computes the same instances.
    Source: Wolfe, "More iteration space tiling", Supercomputing 1989 (strip mining).

        input B<k,j> { #n -> Mul.b<*,j,k> }    node Mul<i,j,k> { in a, b; a*b -> Acc.s<i,j> }
        ->
        input B<k,j> { #min(4, n-4*t) -> Mul.b<t,*,j,k> for t in 0..(n-1) floordiv 4 }    node Mul<t,i,j,k> { … }
    """

    name = "strip-mine"
    node: str
    field: str
    by: int
    strip: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = program_of(op)
        expand(program)
        strip_mine(program, self.node, self.field, self.by, self.strip)


@bounded("strip mining")
def strip_mine(program: ProgramOp, node: str, field: str, by: int, strip: str | None = None) -> str:
    """Strip-mine in place; see `StripMinePass`.  Returns the name of the new field.  Raises UplError (UPL1421)."""
    op = _node(program, node, field, by)
    taken = names_of(program)
    if strip in taken:
        message = f"strip-mine: the program already has something called `{strip}`"
        raise error("UPL1421", message, span_of(op), help="choose another name with `strip=`")
    name = strip or unused("t", taken)
    sets = ProgramSets(program)
    for a in sets.into(node):
        _into_strips(sets, a, field, by, name)
    inside = _inside(IndexExpr.of(name), IndexExpr.of(field), by)
    known = op.domain or op.declared
    assert known is not None, "ProgramSets has asked for it"
    op.index = NamesAttr((name, *op.fields))
    # Declared, so that a text need not find it again: that may be out of reach where the node sends to itself.
    op.domain = op.declared = FormulaAttr(Formula.all((inside, known.data)))
    op.block.insert_arg(i64, 0).name_hint = hint(name)
    return name


def _node(program: ProgramOp, node: str, field: str, by: int) -> NodeOp:
    ends = endpoints(program)
    op = ends.get(node)
    if not isinstance(op, NodeOp):
        nodes = [n for n, e in ends.items() if isinstance(e, NodeOp)]
        raise error("UPL1421", f"strip-mine: there is no node `{node}`", help=nearest_or_all(node, nodes))
    if field not in op.fields:
        found = f"strip-mine: `{node}` has no field `{field}`"
        raise error("UPL1421", found, span_of(op), help=nearest_or_all(field, op.fields))
    if by < 1:
        raise error("UPL1421", f"strip-mine: strips of {by} values: at least 1 is expected", span_of(op))
    return op


def _inside(strip: IndexExpr, field: IndexExpr, by: int) -> Formula:
    first = strip * by
    return Formula.compare(first, "<=", field) & Formula.compare(field, "<=", first + (by - 1))


def _into_strips(sets: ProgramSets, a: Arrow, field: str, by: int, name: str) -> None:
    """An arrow into the node: its strip follows from its index, or it has a token for each strip."""
    send = a.send
    at = a.target.fields.index(field)
    index = send.index.data
    given = index[at]
    if given is not None:
        send.index = IndexAttr((divide(DivKind.FLOORDIV, given, IndexExpr.of(by)), *index))
        return
    (there,) = primed((field,))
    whole = sets.relation(a)
    strips = whole.extend((*whole.dims, name)).constrain(_inside(IndexExpr.of(name), IndexExpr.of(there), by))
    known = (*a.src, *a.loops)
    found = nest(strips.project((*known, name)), (name,), known, sets.tokens(a))
    count = fibre_count(strips.project((*known, name, *a.stars)), a.stars)
    if found is None or count is None or not found.point.is_true:
        raise error(
            "UPL1421", f"strip-mine: how many values of `{field}` a strip has for a token of {a.text} is no expression",
            span_of(send), help="divide a field that has the same bounds for all tokens, or bind the sizes with -D",
        )  # fmt: skip
    loops = tuple(Iterator(n, bounds.lo, bounds.hi) for n, bounds in found.loops)
    send.index = IndexAttr((found.names[name], *index))
    send.iterators = IteratorsAttr((*send.loops, *loops)) if loops else send.iterators
    count = count.substitute({name: found.names[name]})  # a token may reach one strip only
    if isinstance(send.multiplicity, IndexExpr):
        send.count = None if count == IndexExpr.of(1) else CountAttr(count)
