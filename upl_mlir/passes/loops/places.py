"""Which entry of a constant array has a value: an array of places beside it, so that a scatter can be turned round.

    const P[0:3] = [2, 0, 3, 1]              const P_places[0:3] = [1, 3, 0, 2]
    x -> A.x<P[i]>                           A.x<k> comes from i = P_places[k]

Requires: among the tokens of the arrow no two have one value; entries that no token reads may be equal.
Establishes: the array of places is a declaration of the program; it has an entry for every value of the array and at every
index of the target, which is the array's last index where no token comes.
"""

from __future__ import annotations

from xdsl.dialects.builtin import DenseArrayBase, i64

from upl_mlir.dialects.upl import ArrayOp, ProgramOp
from upl_mlir.dialects.upl.query import symbols
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.build import unused
from upl_mlir.passes.loops.pull import PulledArrow
from upl_mlir.poly.expr import Formula, IndexExpr, Lookup
from upl_mlir.poly.knowledge import Table
from upl_mlir.poly.linear import Linear
from upl_mlir.poly.sets import PSet

MAX_ENTRIES = 1 << 16
"""An array of places is not longer."""


def place_of(sets: ProgramSets, a: PulledArrow, entry: Lookup, value: IndexExpr, lin: Linear) -> IndexExpr | None:
    """The index at which the array of `entry` has `value`: an entry of an array that is added to the program and to `lin`.

    `entry` is over the unknowns of the arrow, `value` over the fields of its target.  None where two tokens of the arrow
    have one value, or where the target's size is not known.
    """
    table = lin.ctx.arrays.get(entry.array)
    if table is None:
        return None
    arrow = sets.arrows[a.at]
    relation = sets.relation(arrow)
    own = Lookup(entry.array, entry.index.substitute({u: u.removesuffix("'") for u in a.unknowns}))
    at: dict[int, int] = {}
    twice: set[int] = set()
    for n, v in enumerate(table.values, table.lower):
        twice |= {v} & at.keys()
        at.setdefault(v, n)
    if any(not relation.constrain(Formula.compare(IndexExpr.of(own), "==", v)).is_empty() for v in sorted(twice)):
        return None
    span = _span(sets.domain(a.target.symbol), value)
    if span is None:
        return None
    lo, hi = min(span[0], *table.values), max(span[1], *table.values)
    if hi - lo >= MAX_ENTRIES:
        return None
    last = table.lower + len(table.values) - 1
    places = tuple(last if v in twice else at.get(v, last) for v in range(lo, hi + 1))
    return IndexExpr.of(Lookup(_declared(sets.program, lin, entry.array, Table(lo, places)), value))


def _span(domain: PSet, value: IndexExpr) -> tuple[int, int] | None:
    """Between which numbers a value is in a domain."""
    dims = (*domain.dims, "its value")
    lo, hi = domain.extend(dims).constrain(Formula.compare("its value", "==", value)).extent("its value")
    return None if lo is None or hi is None else (lo, hi)


def _declared(program: ProgramOp, lin: Linear, array: str, places: Table) -> str:
    """The name of an array of places, declared once."""
    known = next((n for n, t in lin.ctx.arrays.items() if t == places and n.startswith(f"{array}_places")), None)
    if known is not None:
        return known
    name = unused(f"{array}_places", symbols(program))
    lo, hi = places.lower, places.lower + len(places.values) - 1
    op = ArrayOp(name, IndexExpr.of(lo), IndexExpr.of(hi), lo, DenseArrayBase.from_list(i64, places.values))
    top = program.body.block.first_op
    assert top is not None
    program.body.block.insert_op_before(op, top)
    lin.add_array(name, places)
    return name
