"""Whether the entries of constant arrays that a program reads exist (LANGUAGE 1: ``N[0:K-1]`` has entries 0 to K-1).

A comparison is looked at where all comparisons beside it hold that read no entry: ``0<=k<K, i<N[k]`` reads N[k] for k<K
only.  What stands under ``||``, ``!`` or ``?:`` may be guarded by its neighbour, and is left to the engines; so are counts
that read data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from upl_mlir.dialects.upl.query import Endpoint
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.poly.expr import Atom, Div, Formula, IndexExpr, Lookup, MinMax, Var
from upl_mlir.poly.operators import Connective
from upl_mlir.poly.sets import PSet


def missing_in_domain(sets: ProgramSets, op: Endpoint, domain: Formula) -> tuple[str, dict[str, int]] | None:
    """An entry that a domain reads and that does not exist, with the point that needs it."""
    region = _where(sets.ctx.set(op.fields), domain.conjuncts)
    return _missing(sets, region, _entries(domain.conjuncts))


def missing_in_arrow(sets: ProgramSets, a: Arrow) -> tuple[str, dict[str, int]] | None:
    """An entry that an arrow's condition, iterators, index or multiplicity reads and that does not exist."""
    source, send = sets.domain(a.source.symbol), a.send
    region = _where(source, send.when.conjuncts)
    found = _missing(sets, region, _entries(send.when.conjuncts))
    region = region.extend((*a.src, *a.loops))
    for it in send.loops:
        bounds = (Formula.compare(it.lo, "<=", it.name), Formula.compare(it.name, "<=", it.hi))
        found = found or _missing(sets, region, _entries(bounds))
        region = _where(region, bounds)
    found = found or _missing(sets, region, _entries(send.when_point.conjuncts))
    region = _where(region, (*send.when.conjuncts, *send.when_point.conjuncts), all_=True)
    rest = [e for e in (*send.index.data, send.multiplicity) if isinstance(e, IndexExpr)]
    return found or _missing(sets, region, (x for e in rest for x in _reads(e)))


def missing_in_count(sets: ProgramSets, op: Endpoint, count: IndexExpr) -> tuple[str, dict[str, int]] | None:
    """An entry that the count of a gather reads and that does not exist."""
    return _missing(sets, sets.domain(op.symbol), _reads(count))


def is_data(sets: ProgramSets, n: object, dims: Sequence[str]) -> bool:
    """Whether a count over `dims` reads inputs or variables."""
    return isinstance(n, IndexExpr) and not n.names <= {*dims, *sets.ctx.params, *sets.ctx.constants}


def _where(region: PSet, parts: Iterable[Formula], *, all_: bool = False) -> PSet:
    """The region where those comparisons hold that read no entry; with `all_` all of them."""
    for f in parts:
        if all_ or not f.lookups():
            region = region.constrain(f)
    return region


def _entries(parts: Iterable[Formula]) -> Iterator[Lookup]:
    for f in parts:
        if f.kind is Connective.CMP:
            yield from _reads(f.lhs)
            yield from _reads(f.rhs)


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


def _missing(sets: ProgramSets, region: PSet, entries: Iterable[Lookup]) -> tuple[str, dict[str, int]] | None:
    for entry in dict.fromkeys(entries):
        if entry.array not in sets.ctx.arrays and entry.array not in sets.ctx.unknown:
            continue
        if entry.index.names - {*region.dims, *sets.ctx.params, *sets.ctx.constants}:
            continue  # data choose the entry
        outside = region.constrain(sets.ctx.entry_exists(entry).negate())
        if not outside.is_empty() and (point := outside.sample()) is not None:
            return f"{entry.array}[{_at(sets, entry.index, point)}]", point
    return None


def _at(sets: ProgramSets, index: IndexExpr, point: dict[str, int]) -> str:
    """The index at a point; as it is written where another missing entry is in it."""
    known = index.rewrite(
        lambda a: IndexExpr.of(v)
        if isinstance(a, Var) and (v := point.get(a.name, sets.ctx.constants.get(a.name))) is not None
        else None
    )
    value = sets.ctx.number(known)
    return str(known if value is None else value)
