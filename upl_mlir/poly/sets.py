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

A relation is a set over the dimensions of both sides; names tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import islpy as isl

from upl_mlir.diagnostics import error
from upl_mlir.poly.convert import FromIsl, NotAffine, ToIsl, param_id
from upl_mlir.poly.expr import TRUE, Atom, CmpOp, Formula, IndexExpr, Lookup, Var
from upl_mlir.poly.quota import MANY, check_pieces, difference, included, intersection
from upl_mlir.poly.tools import DIM, PARAM, as_map, least, permute, val


@dataclass(frozen=True)
class Table:
    """A constant integer array: `values[i]` is the entry at index ``lower + i``."""

    lower: int
    values: tuple[int, ...]

    def get(self, i: int) -> int | None:
        """The entry at index `i`, None outside."""
        return self.values[i - self.lower] if 0 <= i - self.lower < len(self.values) else None

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Maximal runs of equal entries as (first index, last index, value)."""
        start = 0
        for i in range(1, len(self.values) + 1):
            if i == len(self.values) or self.values[i] != self.values[start]:
                yield self.lower + start, self.lower + i - 1, self.values[start]
                start = i


@dataclass(frozen=True)
class Unknown:
    """A symbolic integer array: entries from index `lower` to `upper`; `each` holds of every one (`name` stands for it)."""

    name: str
    lower: IndexExpr
    upper: IndexExpr
    each: Formula

    def fact(self, entry: Lookup) -> Formula:
        """What is known of one entry: the condition, if its index is inside."""
        return self.inside(entry).negate() | self.each.substitute({self.name: IndexExpr.of(entry)})

    def inside(self, entry: Lookup) -> Formula:
        """Where the array has the entry."""
        return Formula.compare(self.lower, CmpOp.LE, entry.index) & Formula.compare(entry.index, CmpOp.LE, self.upper)


@dataclass(frozen=True, eq=False)
class PolyContext:
    """What is known of the symbols: parameters with a condition on them, constants, constant arrays, symbolic arrays."""

    params: tuple[str, ...] = ()
    param_condition: Formula = TRUE
    constants: Mapping[str, int] = field(default_factory=dict[str, int])
    arrays: Mapping[str, Table] = field(default_factory=dict[str, Table])
    unknown: Mapping[str, Unknown] = field(default_factory=dict[str, Unknown])
    facts_cache: dict[tuple[tuple[str, ...], tuple[str, ...]], isl.Set] = field(default_factory=dict, repr=False)

    def constant(self, atom: Atom) -> int | None:
        """The known value of a symbolic constant or of an array entry at a constant index."""
        match atom:
            case Var(name):
                return self.constants.get(name)
            case Lookup(array, index):
                at = self.number(index)
                return None if at is None or array not in self.arrays else self.arrays[array].get(at)
            case _:
                return None

    def number(self, e: IndexExpr) -> int | None:
        """The value of an expression of constants, else None."""
        return e.rewrite(lambda a: None if (c := self.constant(a)) is None else IndexExpr.of(c)).constant

    def set(self, dims: Sequence[str], formula: Formula = TRUE) -> PSet:
        """The points over `dims` that satisfy the formula.  Raises NotAffine."""
        writer = ToIsl(dims, self.constant)
        return PSet(self, tuple(dims), writer.set(formula), dict(writer.params))

    def read(self, array: str, i: int) -> int:
        """``array[i]``.  Raises IndexError outside the array."""
        value = self.arrays[array].get(i) if array in self.arrays else None
        if value is None:
            raise IndexError(f"{array}[{i}]")
        return value

    def empty(self, dims: Sequence[str]) -> PSet:
        """The empty set."""
        return self.set(dims, Formula.any(()))


@dataclass(frozen=True, eq=False)
class PSet:
    """Integer points over named dimensions; see the module's docstring.

    `isl` is positional in `dims`; `params` says what each isl parameter stands for (entries' indices are over `dims`).
    """

    ctx: PolyContext
    dims: tuple[str, ...]
    isl: isl.Set
    params: dict[str, Var | Lookup]

    # -- building ----------------------------------------------------------------------------------------------
    def with_isl(self, s: isl.Set, params: Mapping[str, Var | Lookup] | None = None) -> PSet:
        """Another isl set over the same dimensions (and parameters)."""
        check_pieces(s)
        return PSet(self.ctx, self.dims, s, dict(self.params if params is None else params))

    def constrain(self, formula: Formula) -> PSet:
        """The points that also satisfy the formula.  Raises NotAffine."""
        return self if formula.is_true else self & self.ctx.set(self.dims, formula)

    def _aligned(self, other: PSet) -> PSet:
        if other.dims == self.dims:
            return other
        assert set(other.dims) == set(self.dims), (self.dims, other.dims)
        return other.reorder(self.dims)

    def __and__(self, other: PSet) -> PSet:
        other = self._aligned(other)
        return self.with_isl(intersection(self.isl, other.isl), self.params | other.params)

    def __or__(self, other: PSet) -> PSet:
        other = self._aligned(other)
        return self.with_isl(self.isl.union(other.isl), self.params | other.params)

    def __sub__(self, other: PSet) -> PSet:
        other = self._aligned(other)
        return self.with_isl(difference(self.isl, other.isl), self.params | other.params)

    def coalesce(self) -> PSet:
        """The same set with fewer pieces where isl can tell; pieces that the facts exclude are dropped."""
        facts = self.facts()
        kept = isl.Set.empty(self.isl.get_space())
        for b in (self.isl.coalesce() if self.isl.n_basic_set() <= MANY else self.isl).get_basic_sets():
            piece = isl.Set.from_basic_set(b)
            if not piece.intersect(facts).is_empty():
                kept = kept.union(piece)
            check_pieces(kept)
        return self.with_isl(kept)

    def rename(self, names: Mapping[str, str]) -> PSet:
        """Other names for some dimensions."""
        if all(names.get(d, d) == d for d in self.dims):
            return self
        dims = tuple(names.get(d, d) for d in self.dims)
        out, params = self.isl, {}
        for pid, atom in self.params.items():
            new: Var | Lookup = atom
            if isinstance(atom, Lookup):
                new = Lookup(atom.array, atom.index.substitute(dict(names)))
            nid = param_id(new)
            params[nid] = new
            at = out.find_dim_by_name(PARAM, pid)
            if nid != pid and at >= 0:
                out = out.set_dim_name(PARAM, at, nid)
        return PSet(self.ctx, dims, out, params)

    def reorder(self, dims: Sequence[str]) -> PSet:
        """The same points with the dimensions in another order."""
        if tuple(dims) == self.dims:
            return self
        out = permute(self.isl, [self.dims.index(d) for d in dims])
        return PSet(self.ctx, tuple(dims), out, dict(self.params))

    def extend(self, dims: Sequence[str]) -> PSet:
        """The same condition over more dimensions (unconstrained, appended)."""
        new = [d for d in dims if d not in self.dims]
        return PSet(self.ctx, (*self.dims, *new), self.isl.add_dims(DIM, len(new)), dict(self.params))

    # -- facts -------------------------------------------------------------------------------------------------
    def facts(self) -> isl.Set:
        """What is known of the symbols in this set: constants, parameter conditions, bounds of array entries.

        Convex, so that it costs little.  That entries at equal indices are equal is not among it: `in_terms_of` names them
        alike where it matters, and `slices` knows their values."""
        used = self.isl.drop_unused_params()
        names = (used.get_dim_name(PARAM, i) or "" for i in range(used.dim(PARAM)))
        ids = tuple(sorted(n for n in names if n in self.params))  # others came in with facts added before
        key = (self.dims, ids)
        if key not in self.ctx.facts_cache:
            self.ctx.facts_cache[key] = self._compute_facts([self.params[i] for i in ids])
        return self.ctx.facts_cache[key]

    def _compute_facts(self, symbols: Sequence[Var | Lookup]) -> isl.Set:
        parts: list[Formula] = []
        if any(isinstance(a, Var) and a.name in self.ctx.params for a in symbols):
            parts.append(self.ctx.param_condition)
        for atom in symbols:
            if (value := self.ctx.constant(atom)) is not None:
                parts.append(Formula.compare(IndexExpr.of(atom), CmpOp.EQ, value))
            elif isinstance(atom, Lookup) and atom.array in self.ctx.arrays:
                table = self.ctx.arrays[atom.array].values
                if table:
                    parts.append(Formula.compare(min(table), CmpOp.LE, IndexExpr.of(atom)))
                    parts.append(Formula.compare(IndexExpr.of(atom), CmpOp.LE, max(table)))
        return self.ctx.set(self.dims, Formula.all(parts)).isl

    def known(self) -> PSet:
        """This set together with the facts."""
        symbols = {param_id(Var(n)): Var(n) for n in self.ctx.param_condition.names}
        return self.with_isl(self.isl.intersect(self.facts()), symbols | self.params)

    def numeric(self) -> PSet:
        """The same set with known constants as numbers: less to read, but more that isl can decide."""
        out, rest = self, dict(self.params)
        for pid, atom in self.params.items():
            value = self.ctx.constant(atom)
            at = out.isl.find_dim_by_name(PARAM, pid)
            if value is not None:
                del rest[pid]
                if at >= 0:
                    out = out.with_isl(out.isl.fix_val(PARAM, at, val(value)).project_out(PARAM, at, 1))
        return self.with_isl(out.isl, rest)

    # -- decisions ---------------------------------------------------------------------------------------------
    def slices(self) -> Iterator[PSet]:
        """Disjoint parts, together this set, in which every array entry has a known value (and no symbol is left for it)."""
        s = self.known()
        if s.isl.is_empty():
            return
        atom = next((a for a in s.params.values() if isinstance(a, Lookup) and a.array in self.ctx.arrays), None)
        if atom is None:
            s = s._consistent()
            if not s.isl.is_empty():
                yield s
            return
        table = self.ctx.arrays[atom.array]
        lo, hi = s._range(atom.index)
        end = table.lower + len(table.values)
        # outside the table the entry stays unknown: nothing may be proved from a value that does not exist
        runs = [(lo, table.lower - 1, None), *table.runs(), (end, hi, None)]
        for first, last, value in runs:
            first, last = max(first, lo), min(last, hi)
            if first > last:
                continue
            inside = Formula.compare(first, "<=", atom.index) & Formula.compare(atom.index, "<=", last)
            part = s.constrain(inside)
            if part.isl.is_empty():
                continue
            keep = {p: a for p, a in part.params.items() if a != atom}
            fixed, at = part.isl, part.isl.find_dim_by_name(PARAM, param_id(atom))
            if at >= 0:
                fixed = (fixed if value is None else fixed.fix_val(PARAM, at, val(value))).project_out(PARAM, at, 1)
            yield from replace(self, isl=fixed, params=keep).slices()

    def _consistent(self) -> PSet:
        """The points at which entries of symbolic arrays can have the values that stand for them: equal where their indices
        are equal, and as the array's condition says (Ackermann's reduction)."""
        entries = [a for a in self.params.values() if isinstance(a, Lookup)]
        out = self
        for n, a in enumerate(entries):
            out = out.constrain(self.ctx.unknown[a.array].fact(a))
            for b in entries[:n]:
                if a.array == b.array:
                    apart = Formula.compare(a.index, CmpOp.NE, b.index)
                    out = out.constrain(apart | Formula.compare(IndexExpr.of(a), CmpOp.EQ, IndexExpr.of(b)))
        return out.known()

    def with_entries(self, entries: Iterable[Lookup]) -> PSet:
        """The same set in which `slices` will also tell the given entries' values apart."""
        new = {param_id(a): a for a in entries if a.index.names & set(self.dims)}
        return self.with_isl(self.isl, self.params | new)

    def resolve(self, f: Formula) -> Formula:
        """The formula with those array entries as numbers that have one value on this whole set."""

        def value(a: Atom) -> IndexExpr | None:
            if not isinstance(a, Lookup) or a.array not in self.ctx.arrays:
                return None
            lo, hi = self._range(a.index)
            table = self.ctx.arrays[a.array]
            if not table.lower <= lo <= hi < table.lower + len(table.values):
                return None
            values = set(table.values[lo - table.lower : hi + 1 - table.lower])
            return IndexExpr.of(values.pop()) if len(values) == 1 else None

        return f.rewrite(value)

    def fixed_symbols(self) -> dict[str, int]:
        """Parameters of the program that can have one value only on this set."""
        sizes = self.isl.params().coalesce().detect_equalities()
        out: dict[str, int] = {}
        for i in range(sizes.dim(PARAM)):
            atom = self.params.get(sizes.get_dim_name(PARAM, i) or "")
            value = sizes.plain_get_val_if_fixed(PARAM, i)
            if isinstance(atom, Var) and value.is_int():
                out[atom.name] = value.to_python()
        return out

    def involves(self, atom: Var | Lookup) -> bool:
        """Whether the set depends on a symbol."""
        at = self.isl.find_dim_by_name(PARAM, param_id(atom))
        return at >= 0 and self.isl.involves_dims(PARAM, at, 1)

    def _range(self, e: IndexExpr) -> tuple[int, int]:
        """Least and greatest value of an expression on the set, wide bounds where isl finds none."""
        both = self.extend(("value of",)).constrain(Formula.compare("value of", CmpOp.EQ, e))
        flat = both.isl.project_out(DIM, 0, len(self.dims)).project_out_all_params()
        lo, hi = flat.dim_min_val(0), flat.dim_max_val(0)
        return (lo.to_python() if lo.is_int() else -(2**62)), (hi.to_python() if hi.is_int() else 2**62)

    def points(self) -> Iterator[tuple[int, ...]]:
        """All points, in isl's order.  The set must be bounded and free of parameters."""
        for part in self.slices():
            found: list[isl.Point] = []
            part.numeric().isl.foreach_point(found.append)
            for p in found:
                yield tuple(p.get_coordinate_val(DIM, i).to_python() for i in range(len(self.dims)))

    def extent(self, dim: str) -> tuple[int | None, int | None]:
        """Least and greatest value of a dimension for all parameters; None where there is no bound."""
        lo, hi = self.known()._range(IndexExpr.of(dim))
        return (None if lo == -(2**62) else lo), (None if hi == 2**62 else hi)

    def is_empty(self) -> bool:
        """Whether there is no point, for any admissible value of the parameters."""
        if self.isl.is_empty():
            return True
        known = self.isl.intersect(self.facts())
        if known.is_empty():
            return True
        entries = [a for a in self.params.values() if isinstance(a, Lookup) and self.ctx.constant(a) is None]
        if not entries or self._has_point_near(known, entries):
            return False
        return next(self.slices(), None) is None

    def _has_point_near(self, known: isl.Set, entries: Sequence[Lookup]) -> bool:
        """Whether the set has a point where the entries' indices are as at some sample: a quick proof of non-emptiness."""
        point = known.sample_point()
        values = {d: point.get_coordinate_val(DIM, i).to_python() for i, d in enumerate(self.dims)}
        for i in range(known.dim(PARAM)):
            atom = self.params.get(known.get_dim_name(PARAM, i) or "")
            if isinstance(atom, Var):
                values[atom.name] = point.get_coordinate_val(PARAM, i).to_python()
        for atom in entries:
            if atom.array not in self.ctx.arrays:
                return False
            try:
                at = atom.index.evaluate({**self.ctx.constants, **values}, self.ctx.read)
            except (IndexError, KeyError):
                return False
            value = self.ctx.arrays[atom.array].get(at)
            place = known.find_dim_by_name(PARAM, param_id(atom))
            if value is None:
                return False
            fixed = self.ctx.set(self.dims, Formula.compare(atom.index, CmpOp.EQ, at)).isl
            known = known.intersect(fixed)
            place = known.find_dim_by_name(PARAM, param_id(atom))
            if place >= 0:
                known = known.fix_val(PARAM, place, val(value))
        return not known.is_empty()

    def __le__(self, other: PSet) -> bool:
        """Inclusion."""
        other = self._aligned(other)
        if included(self.isl, other.isl):
            return True
        both = self.with_isl(self.isl.align_params(other.isl.get_space()), self.params | other.params)
        known = both.isl.intersect(both.with_isl(both.isl.union(other.isl)).facts())
        if included(known, other.isl):
            return True
        return both.with_isl(difference(known, other.isl)).is_empty()

    def equals(self, other: PSet) -> bool:
        """Equality as sets of points (the `==` operator is identity)."""
        return self <= other and other <= self

    def sample(self) -> dict[str, int] | None:
        """A point, with values for the parameters among its keys; None if the set is empty."""
        for s in self.constrain(self.ctx.param_condition).slices():  # also of parameters that do not matter here
            point = least(s.isl)
            out: dict[str, int] = {}
            for i in range(point.get_space().dim(PARAM)):
                atom = s.params.get(point.get_space().get_dim_name(PARAM, i) or "")
                if isinstance(atom, Var) and atom.name in self.ctx.params:
                    out[atom.name] = point.get_coordinate_val(PARAM, i).to_python()
            for i, d in enumerate(self.dims):
                out[d] = point.get_coordinate_val(DIM, i).to_python()
            for i in range(point.get_space().dim(PARAM)):
                atom = s.params.get(point.get_space().get_dim_name(PARAM, i) or "")
                if isinstance(atom, Lookup):
                    at = atom.index.evaluate({**self.ctx.constants, **out}, self.ctx.read)
                    out[f"{atom.array}[{at}]"] = point.get_coordinate_val(PARAM, i).to_python()
            return out
        return None

    # -- projection --------------------------------------------------------------------------------------------
    def project(self, keep: Sequence[str]) -> PSet:
        """The set of values of the dimensions `keep` (in that order) for which the others exist."""
        gone = [d for d in self.dims if d not in keep]
        s = self
        for atom in [a for a in self.params.values() if isinstance(a, Lookup)]:
            if not (atom.index.names & set(gone)):
                continue
            index = s.express(atom.index, keep)
            if index is None and s.isl.intersect(s.facts()).is_empty():
                return self.ctx.empty(keep)
            s = s._expand(atom) if index is None else s._reindex(atom, index)
        s = s.reorder((*keep, *gone))
        return PSet(self.ctx, tuple(keep), s.isl.project_out(DIM, len(keep), len(gone)), dict(s.params))

    def in_terms_of(self, dims: Sequence[str]) -> PSet:
        """The same set with its array entries indexed by the given dimensions alone, where that is possible."""
        s = self
        for atom in [a for a in self.params.values() if isinstance(a, Lookup)]:
            if atom.index.names & (set(self.dims) - set(dims)):
                index = s.express(atom.index, dims)
                s = s if index is None else s._reindex(atom, index)
        return s

    def _reindex(self, atom: Lookup, index: IndexExpr) -> PSet:
        """Write ``A[e]`` as ``A[index]``, which is equal on this set."""
        new = Lookup(atom.array, index)
        both = self.constrain(Formula.compare(IndexExpr.of(atom), CmpOp.EQ, IndexExpr.of(new)))
        return both.without(atom)

    def without(self, atom: Lookup) -> PSet:
        """The points for which the entry has some value."""
        at = self.isl.find_dim_by_name(PARAM, param_id(atom))
        out = self.isl.project_out(PARAM, at, 1) if at >= 0 else self.isl
        return self.with_isl(out, {p: a for p, a in self.params.items() if a != atom})

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
        beyond = Formula.compare(i, "<", table.lower) | Formula.compare(i, ">=", table.lower + len(table.values))
        known, rest = self.constrain(Formula.any(cases)), self.constrain(beyond)  # it is not read there, or unknown
        return (known if rest.is_empty() else known | rest).without(atom)

    def express(self, e: IndexExpr, dims: Sequence[str]) -> IndexExpr | None:
        """An expression over `dims` equal to `e` everywhere on this set, or None if there is no quasi-affine one."""
        gone = set(self.dims) - set(dims)
        if not (e.names & gone):
            return e
        for entry in e.lookups():  # innermost first
            if entry.index.names & gone and (index := self.express(entry.index, dims)) is not None:
                e = e.replace(entry, Lookup(entry.array, index))
        if not (e.names & gone):
            return e
        try:
            both = self.extend(("value of",)).constrain(Formula.compare("value of", CmpOp.EQ, e))
        except NotAffine:
            return None
        order = (*dims, *[d for d in self.dims if d not in dims], "value of")
        s = both.reorder(order).isl.project_out(DIM, len(dims), len(order) - len(dims) - 1)
        m = as_map(s, len(dims)).intersect_domain(self._scalar_facts(dims))
        if m.is_empty() or not m.is_single_valued():
            plain = self.numeric()
            return plain.express(e, dims) if len(plain.params) < len(self.params) else None
        pieces: list[isl.MultiAff] = []
        m.coalesce().as_pw_multi_aff().foreach_piece(lambda _domain, ma: pieces.append(ma))
        domain = m.domain()
        for ma in pieces:  # one affine function may serve all pieces
            if isl.Map.from_multi_aff(ma).intersect_domain(domain).is_equal(m):
                found = FromIsl(dims, both.params).aff(ma.get_at(0))
                return None if found.names & gone else found  # an entry N[i] still reads i
        return None

    def _scalar_facts(self, dims: Sequence[str]) -> isl.Set:
        """Facts on the program's parameters alone, over the given dimensions."""
        symbols = {a.name for a in self.params.values() if isinstance(a, Var)}
        return self.ctx.set(dims, self.ctx.param_condition if symbols & set(self.ctx.params) else TRUE).isl


def union(sets: Iterable[PSet]) -> PSet:
    """The union of at least one set."""
    return reduce(PSet.__or__, sets)
