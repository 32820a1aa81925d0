# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""Sets and relations with named dimensions, over symbolic parameters, constants and constant arrays.

A `PSet` denotes integer points.  Constants and array entries such as ``N[k-1]`` stay symbols ("lifted": each entry is
one isl parameter that stands for its value), so results print as a person would write them and cost does not depend on
sizes.  Every point-wise operation (intersection, union, difference) is exact on that form.  Only two things need more:

* *projection* rewrites an entry whose index is still a function of the remaining dimensions, and otherwise expands the
  entry into the known values of its array;
* *decisions* (emptiness, inclusion) first try with the entries as unknowns and, where that does not suffice, slice along
  the entry's index, value by value: linear in the length of the array.

A part that is not quasi-affine (``i mod q``, ``i*j``) is a symbol in the same way.  Point-wise operations are exact on it
as well.  A projection that cannot say it in terms of the dimensions that stay forgets it: the result is then a *hull*,
which has all points of the set and perhaps more.  `lost` names what was forgotten; a set without it is exact.  Operations
carry it, and stay on the safe side: what is said to be empty or included is.  Whoever writes a set into a program or
counts its points asks for an exact one (`exactly`), or takes the hull as the set that is meant (`as_meant`).

A relation is a set over the dimensions of both sides; names tell them apart.

A `PSet` is made of three layers, each of which needs the ones before it: `points.py` (building, facts), `decisions.py`
(emptiness, inclusion, points) and, here, projection. `knowledge.py` holds what is known of the symbols.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import islpy as isl

from upl_mlir.diagnostics import error
from upl_mlir.poly import opaque
from upl_mlir.poly.convert import FromIsl, Opaque, Symbol, param_id
from upl_mlir.poly.decisions import FEW_VALUES, DecidedPoints
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr, Lookup, Monomial, Var
from upl_mlir.poly.knowledge import Knowledge
from upl_mlir.poly.operators import CmpOp
from upl_mlir.poly.tools import DIM, PARAM, Equalities, as_map


@dataclass(frozen=True, eq=False)
class PolyContext(Knowledge):
    """What is known of the symbols, and the sets that formulas over them describe."""

    def set(self, dims: Sequence[str], formula: Formula = TRUE) -> PSet:
        """The points over `dims` that satisfy the formula."""
        points, symbols = self.solutions(dims, formula)
        return PSet(self, tuple(dims), points, symbols)

    def empty(self, dims: Sequence[str]) -> PSet:
        """The empty set."""
        return self.set(dims, Formula.any(()))


@dataclass(frozen=True, eq=False)
class PSet(DecidedPoints):
    """Integer points over named dimensions; see the module's docstring."""

    ctx: PolyContext

    def project(self, keep: Sequence[str]) -> PSet:
        """The set of values of the dimensions `keep` (in that order) for which the others exist.

        A hull where a part that is not affine cannot be said in terms of `keep`.
        """
        gone = [d for d in self.dims if d not in keep]
        s = self
        while True:  # entries inside indices come after those that they are inside of
            left = [a for a in s.params.values() if isinstance(a, Lookup) and a.index.names & set(gone)]
            if not left:
                break
            atom = max(left, key=lambda a: len(a.index.lookups()))
            index = s.express(atom.index, keep)
            if index is None and s.isl.intersect(s.facts()).is_empty():
                return self.ctx.empty(keep)
            s = s._expand(atom) if index is None else s._reindex(atom, index)
        for atom in [a for a in s.params.values() if isinstance(a, Opaque) and a.index.names & set(gone)]:
            s = s._freed(atom, keep)
        s = s.reorder((*keep, *gone))
        return PSet(self.ctx, tuple(keep), s.isl.project_out(DIM, len(keep), len(gone)), dict(s.params), s.lost)

    def simplified(self) -> PSet:
        """The same set without parts that are not affine and do not matter: as after ``if c`` together with ``if !c``."""
        s = self
        for a in self.opaque_parts():
            s = s.gist()
            if s.involves(a) and ((free := s.known().without(a)) - s).is_empty():
                s = free.gist()
        return s

    def _freed(self, atom: Opaque, keep: Sequence[str]) -> PSet:
        """The set without a part that reads dimensions which go away: said in terms of those that stay, by the values of
        entries or dimensions inside where they are few, and else forgotten."""
        gone = set(self.dims) - set(keep)
        s = self.coalesce().simplified()
        if not s.involves(atom):
            return s.with_isl(s.isl, {p: a for p, a in s.params.items() if a != atom})
        e = opaque.restated(atom.index, gone, lambda x: s.express(x, keep))
        if e is not None:
            return s._reindex(atom, e)
        cases: list[tuple[Formula, Var | Lookup, int]] = []
        entry = next((x for x in atom.index.lookups() if x.array in self.ctx.arrays), None)
        if entry is not None:
            table = self.ctx.arrays[entry.array]
            runs = list(table.runs())
            if s.constrain(self.ctx.entry_exists(entry).negate()).is_empty() and len(runs) <= FEW_VALUES:
                for first, last, value in runs:
                    where = Formula.compare(first, CmpOp.LE, entry.index) & Formula.compare(entry.index, CmpOp.LE, last)
                    cases.append((where & Formula.compare(IndexExpr.of(entry), CmpOp.EQ, value), entry, value))
        elif (few := s._few(atom)) is not None and few[0] in gone:
            name, lo, hi = few
            cases = [(Formula.compare(name, CmpOp.EQ, v), Var(name), v) for v in range(lo, hi + 1)]
        if not cases:
            known = s.known()
            if opaque.is_quotient(atom):
                known = known.constrain(Formula.all(opaque.facts(atom, ()))).coalesce()  # by the sign of the divisor
            return replace(known.without(atom), lost=s.lost | {str(atom)})
        out = self.ctx.empty(self.dims)
        for where, inner, value in cases:
            part = s.constrain(where)
            if part.known().isl.is_empty():
                continue
            part = part._where_it_is(inner, value)
            for a in [a for a in part.params.values() if isinstance(a, Lookup) and a == inner]:
                part = part.without(a)
            for a in [a for a in part.params.values() if isinstance(a, Opaque) and a.index.names & gone]:
                part = part._freed(a, keep)
            out = out | part
        return out

    def in_terms_of(self, dims: Sequence[str]) -> PSet:
        """The same set with its array entries indexed by the given dimensions alone, where that is possible."""
        s = self
        for atom in [a for a in self.params.values() if isinstance(a, Lookup)]:
            if atom.index.names & (set(self.dims) - set(dims)):
                index = s.express(atom.index, dims, again=False)
                s = s if index is None else s._reindex(atom, index)
        for atom in s.opaque_parts():
            if gone := atom.index.names & (set(self.dims) - set(dims)):
                e = opaque.restated(atom.index, gone, lambda x, s=s: s.express(x, dims, again=False))
                s = s if e is None else s._reindex(atom, e)
        return s

    def _expand(self, atom: Lookup) -> PSet:
        """Replace an entry by its known values, index by index.  Raises UplError (UPL1206) where they are not known."""
        if atom.array in self.ctx.unknown:
            raise error(
                "UPL1206", f"this question about sets needs the values of `{atom.array}`: it asks for all indices of {atom}",
                help=f"give the values: -D {atom.array}=[...]",
            )  # fmt: skip
        table, i, cases = self.ctx.arrays[atom.array], atom.index, list[Formula]()
        for first, last, value in table.runs():
            inside = Formula.compare(first, "<=", i) & Formula.compare(i, "<=", last)
            cases.append(inside & Formula.compare(IndexExpr.of(atom), CmpOp.EQ, value))
        beyond = self.ctx.entry_exists(atom).negate()
        known, rest = self.constrain(Formula.any(cases)), self.constrain(beyond)  # it is not read there, or unknown
        return (known if rest.is_empty() else known | rest).forget(atom)  # anything, outside

    def express(self, e: IndexExpr, dims: Sequence[str], *, again: bool = True) -> IndexExpr | None:
        """An expression over `dims` equal to `e` everywhere on this set, or None if there is no quasi-affine one."""
        gone = set(self.dims) - set(dims)
        if not (e.names & gone):
            return e
        for entry in e.lookups():  # innermost first
            if entry.index.names & gone and (index := self.express(entry.index, dims, again=again)) is not None:
                e = e.replace(entry, Lookup(entry.array, index))
        for part in self._parts(e, gone):
            new = opaque.restated(part, gone, lambda x: self.express(x, dims, again=again))
            if new is None:
                return None
            c = dict(e.terms)[part.terms[0][0]]
            e = e - part * c + new * c
        if not (e.names & gone):
            return e
        plain = self._plain(e, dims)
        if plain is not None:
            return plain
        both = self.extend(("value of",)).constrain(Formula.compare("value of", CmpOp.EQ, e))
        order = (*dims, *[d for d in self.dims if d not in dims], "value of")
        s = both.reorder(order).isl.project_out(DIM, len(dims), len(order) - len(dims) - 1)
        hard = [a for a in both.params.values() if isinstance(a, Opaque) or _reads(a, gone)]
        known = _by_equality(s, FromIsl((*dims, "value of"), both.params), {param_id(a) for a in hard})
        if known is not None and not known.names & gone:
            return known
        m = as_map(s, len(dims)).intersect_domain(self._scalar_facts(dims))
        if m.is_empty() or not m.is_single_valued():
            plain = (self.in_terms_of(dims) if again else self).numeric()  # P[k] where k is 0 may be a number
            return plain.express(e, dims, again=False) if len(plain.params) < len(self.params) else None
        found = _one_affine(m)
        if found is None or any(_involves(found, a) for a in hard):
            for atom in hard:
                at = s.find_dim_by_name(PARAM, param_id(atom))
                free = s.project_out(PARAM, at, 1) if at >= 0 else s
                if at >= 0 and as_map(free, len(dims)).is_single_valued():
                    s = free  # what it would read goes away
            found = _one_affine(as_map(s, len(dims)).intersect_domain(self._scalar_facts(dims))) if hard else None
        new = None if found is None else FromIsl(dims, both.params).aff(found)
        return None if new is None or new.names & gone else new  # an entry N[i] still reads i

    @cached_property
    def _equalities(self) -> Equalities:
        """The equalities that all points of this set satisfy."""
        return Equalities(self.isl.affine_hull())

    def _plain(self, e: IndexExpr, dims: Sequence[str]) -> IndexExpr | None:
        """The expression over `dims` that a dimension equals, if the equalities of this set say it."""
        if len(e.terms) != 1 or e.terms[0][1] != 1 or not _is_variable(e.terms[0][0]):
            return None
        (d,) = e.names
        found = self._equalities
        gone = {x for x in self.dims if x not in dims}
        hard = {p for p in found.params if isinstance(a := self.params.get(p), Opaque | None) or _reads(a, gone)}
        at = self.dims.index(d)
        row = found.solved(at, [self.dims.index(x) for x in dims], hard)
        if row is None:
            return None
        factor = -row[at]
        terms: dict[Monomial, int] = {(): row[-1] * factor}
        for x, c in zip(self.dims, row, strict=False):
            if c and x != d:
                terms[(Var(x),)] = c * factor
        for p, c in zip(found.params, row[len(self.dims) :], strict=False):
            if c:
                symbol = self.params[p]
                assert not isinstance(symbol, Opaque)
                terms[(symbol,)] = c * factor
        return IndexExpr.sum_of(terms)

    def _parts(self, e: IndexExpr, gone: Collection[str]) -> list[IndexExpr]:
        """The terms of an expression that are not affine and read one of the given names."""
        alone = [IndexExpr(((m, 1),)) for m, _ in e.terms if m and not _is_variable(m)]
        alone = [p for p in alone if p.names & set(gone)]
        return [p for p in alone if self.ctx.not_affine(self.dims, Formula.compare(p, CmpOp.EQ, 0)) is not None]

    def _scalar_facts(self, dims: Sequence[str]) -> isl.Set:
        """Facts on the program's parameters alone, over the given dimensions."""
        symbols = {a.name for a in self.params.values() if isinstance(a, Var)}
        return self.ctx.set(dims, self.ctx.param_condition if symbols & set(self.ctx.params) else TRUE).isl


def _by_equality(s: isl.Set, read: FromIsl, hard: Collection[str]) -> IndexExpr | None:
    """The last dimension as an affine function of the others and of symbols that are not `hard`, if an equality that
    holds on all of the set says it.

    Most sets have one, and an affine hull is found many times as fast as the pieces of a function.
    """
    last = s.dim(DIM) - 1
    hull = s.affine_hull()
    gone = [(PARAM, at) for at in (s.find_dim_by_name(PARAM, name) for name in hard) if at >= 0]
    gone += [(isl.dim_type.div, n) for n in range(hull.dim(isl.dim_type.div))]
    for c in () if hull.is_empty() else hull.get_constraints():
        alone = c.is_equality() and abs(c.get_coefficient_val(DIM, last).to_python()) == 1
        if alone and not any(c.involves_dims(kind, at, 1) for kind, at in gone):
            return read.solved(c)
    return None


def _one_affine(m: isl.Map) -> isl.Aff | None:
    """The affine function that a single-valued map to one dimension is, if one serves all its pieces."""
    pieces: list[isl.MultiAff] = []
    m.coalesce().as_pw_multi_aff().foreach_piece(lambda _domain, ma: pieces.append(ma))
    domain = m.domain()
    for ma in pieces:
        if isl.Map.from_multi_aff(ma).intersect_domain(domain).is_equal(m):
            return ma.get_at(0)
    return None


def _involves(f: isl.Aff, atom: Symbol) -> bool:
    """Whether a function depends on a symbol."""
    at = f.find_dim_by_name(PARAM, param_id(atom))
    return at >= 0 and f.involves_dims(PARAM, at, 1)


def _is_variable(m: Monomial) -> bool:
    """Whether a product is one variable alone, which is affine."""
    return len(m) == 1 and isinstance(m[0], Var)


def _reads(a: Symbol, names: Collection[str]) -> bool:
    """Whether an array entry is picked by one of the names."""
    return isinstance(a, Lookup) and not a.index.names.isdisjoint(names)


def union(sets: Iterable[PSet]) -> PSet:
    """The union of at least one set."""
    return reduce(PSet.__or__, sets)
