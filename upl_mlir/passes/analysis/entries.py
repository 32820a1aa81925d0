"""Whether the entries of constant arrays that a program reads exist (LANGUAGE 1: ``N[0:K-1]`` has entries 0 to K-1).

A comparison is looked at where all comparisons beside it hold that read no entry: ``0<=k<K, i<N[k]`` reads N[k] for k<K
only.  What stands under ``||``, ``!`` or ``?:`` may be guarded by its neighbour: a comparison of an entry that does not
exist is neither true nor false, and a condition may be one of them all the same.  Counts that read data are left to the
engines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set

from upl_mlir.dialects.upl.query import Endpoint
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.poly.expr import Atom, Div, Formula, IndexExpr, Lookup, MinMax, Select, Var
from upl_mlir.poly.operators import Connective
from upl_mlir.poly.sets import PSet

Missing = tuple[str, dict[str, int] | None]
"""An entry, as text, and the point that needs it; None where only a proof is missing that there is none."""


def missing_in_domain(sets: ProgramSets, op: Endpoint, domain: Formula) -> Missing | None:
    """An entry that a domain reads and that does not exist."""
    return _in_condition(sets, sets.ctx.set(op.fields), domain)


def missing_in_arrow(sets: ProgramSets, a: Arrow) -> Missing | None:
    """An entry that an arrow's condition, iterators, index or multiplicity reads and that does not exist."""
    send = a.send
    region = sets.domain(a.source.symbol)
    found = _in_condition(sets, region, send.when)
    region = _where(region, send.when.conjuncts).extend((*a.src, *a.loops))
    for it in send.loops:
        bounds = (Formula.compare(it.lo, "<=", it.name), Formula.compare(it.name, "<=", it.hi))
        found = found or _in_expressions(sets, region, (it.lo, it.hi))
        region = _where(region, bounds)
    found = found or _in_condition(sets, region, send.when_point)
    region = _where(region, (*send.when.conjuncts, *send.when_point.conjuncts), all_=True)
    rest = [e for e in (*send.index.data, send.multiplicity) if isinstance(e, IndexExpr)]
    return found or _in_expressions(sets, region, rest)


def missing_in_count(sets: ProgramSets, op: Endpoint, count: IndexExpr) -> Missing | None:
    """An entry that the count of a gather reads and that does not exist."""
    return _in_expressions(sets, sets.domain(op.symbol), (count,))


def is_data(sets: ProgramSets, n: object, dims: Sequence[str]) -> bool:
    """Whether a count over `dims` reads inputs or variables."""
    return isinstance(n, IndexExpr) and not n.names <= {*dims, *sets.ctx.params, *sets.ctx.constants}


def _where(region: PSet, parts: Iterable[Formula], *, all_: bool = False) -> PSet:
    """The region where those comparisons hold that read no entry; with `all_` all of them.  Those on data are left out."""
    for f in parts:
        if (all_ or not f.lookups()) and knows(region, f.names):
            region = region.constrain(f)
    return region


def knows(region: PSet, names: Set[str]) -> bool:
    """Whether names are fields, iterators, parameters or constants: no data."""
    return names <= {*region.dims, *region.ctx.params, *region.ctx.constants}


def _in_condition(sets: ProgramSets, region: PSet, condition: Formula) -> Missing | None:
    if not condition.lookups():
        return None
    region = _where(region, condition.conjuncts)
    for f in condition.conjuncts:
        if f.kind is Connective.CMP:
            found = _in_expressions(sets, region, (f.lhs, f.rhs))
        elif knows(region, f.names):
            sure = Formula.any(_surely(sets, region, f, wanted) for wanted in (True, False))
            found = _first(sets, region.constrain(sure.negate()), f.lookups())
        else:
            continue
        if found is not None:
            return found
    return None


def _in_expressions(sets: ProgramSets, region: PSet, expressions: Iterable[IndexExpr]) -> Missing | None:
    for e in expressions:
        for entry in e.lookups() and dict.fromkeys(_reads(e)):
            if _static(sets, region, entry):
                outside = region.constrain(sets.ctx.entry_exists(entry).negate())
                if (found := _first(sets, outside, (entry,))) is not None:
                    return found
        if any(isinstance(a, Select) for a in e.atoms()) and e.lookups() and knows(region, e.names):
            found = _first(sets, region.constrain(_exist(sets, region, e).negate()), e.lookups())
            if found is not None:
                return found
    return None


def _static(sets: ProgramSets, region: PSet, entry: Lookup) -> bool:
    """Whether an array is one of the program's, and no data choose the entry."""
    known = entry.array in sets.ctx.arrays or entry.array in sets.ctx.unknown
    return known and knows(region, entry.index.names)


def _reads(e: IndexExpr) -> Iterator[Lookup]:
    """The entries that are read whatever the values are."""

    def inside(atom: Atom) -> Iterator[Lookup]:
        match atom:
            case Lookup(_, index):
                yield from _reads(index)
                yield atom
            case Div(_, num, den):
                yield from _reads(num)
                yield from _reads(den)
            case MinMax(_, args):
                for x in args:
                    yield from _reads(x)
            case _:
                pass

    for monomial, _ in e.terms:
        for atom in monomial:
            yield from inside(atom)


def _surely(sets: ProgramSets, region: PSet, f: Formula, wanted: bool) -> Formula:
    """Where a condition is surely true, or surely false, as engines evaluate it (`points.holds`)."""
    match f.kind:
        case Connective.NOT:
            return _surely(sets, region, f.args[0], not wanted)
        case Connective.AND | Connective.OR:
            every = Formula.all if (f.kind is Connective.AND) == wanted else Formula.any
            return every(_surely(sets, region, part, wanted) for part in f.args)
        case Connective.CMP:
            exist = (_exist(sets, region, e) for e in (f.lhs, f.rhs))
            return Formula.all((*exist, f if wanted else f.negate()))


def _exist(sets: ProgramSets, region: PSet, e: IndexExpr) -> Formula:
    """Where all entries exist that an expression reads: of `?:` those of the side that is chosen."""
    parts = [sets.ctx.entry_exists(x) for x in dict.fromkeys(_reads(e)) if _static(sets, region, x)]
    for atom in e.atoms():
        if isinstance(atom, Select):
            sides = ((True, atom.then), (False, atom.other))
            chosen = (_surely(sets, region, atom.cond, w) & _exist(sets, region, side) for w, side in sides)
            parts.append(Formula.any(chosen))
    return Formula.all(parts)


def _first(sets: ProgramSets, outside: PSet, entries: Iterable[Lookup]) -> Missing | None:
    """The first of some entries that does not exist at a point of a region in which one of them does not."""
    if outside.is_empty():
        return None
    entries, point = list(entries), outside.sample()
    if point is None:
        return f"{entries[0]}", None
    at = [x for x in entries if not outside.constrain(_here(point) & sets.ctx.entry_exists(x).negate()).is_empty()]
    entry = (at or entries)[0]
    return f"{entry.array}[{_at(sets, entry.index, point)}]", point


def _here(point: dict[str, int]) -> Formula:
    return Formula.all(Formula.compare(name, "==", value) for name, value in point.items())


def _at(sets: ProgramSets, index: IndexExpr, point: dict[str, int]) -> str:
    """The index at a point; as it is written where another missing entry is in it."""
    known = index.rewrite(
        lambda a: IndexExpr.of(v)
        if isinstance(a, Var) and (v := point.get(a.name, sets.ctx.constants.get(a.name))) is not None
        else None
    )
    value = sets.ctx.number(known)
    return str(known if value is None else value)
