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

Over 500 lines because decisions need projections and projections need decisions: both are methods of one class.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import product

import islpy as isl

from upl_mlir.diagnostics import error
from upl_mlir.poly import opaque
from upl_mlir.poly.convert import FromIsl, NotAffine, Opaque, Symbol, ToIsl, param_id, value_of
from upl_mlir.poly.expr import TRUE, Atom, CmpOp, Formula, IndexExpr, Lookup, Monomial, Var
from upl_mlir.poly.quota import MANY, check_pieces, difference, included, intersection
from upl_mlir.poly.tools import DIM, PARAM, as_map, least, permute, val

FEW_VALUES = 64  # of a dimension or an array that are looked at one by one
SMALL = 8  # values of a parameter at which a point of a set that is not affine is looked for
MOST_TRIED = 4096  # points
MOST_CASES = 16  # that facts of parts that are not affine may cut a set into


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
        """The points over `dims` that satisfy the formula."""
        writer = ToIsl(dims, self.constant)
        return PSet(self, tuple(dims), writer.set(formula), dict(writer.params))

    def not_affine(self, dims: Sequence[str], formula: Formula) -> str | None:
        """The first part of a formula that isl cannot hold, as text; None if it is quasi-affine."""
        try:
            ToIsl(dims, self.constant, affine=True).formula(formula)
        except NotAffine as e:
            return e.what
        return None

    def positive(self, e: IndexExpr) -> bool:
        """Whether an expression of parameters and constants is at least 1 (proved)."""
        if e.names - {*self.params, *self.constants} or any(a.array in self.unknown for a in e.lookups()):
            return False
        low = Formula.compare(e, CmpOp.LE, 0)
        key = ((), (f"positive {e}",))
        if key not in self.facts_cache:
            self.facts_cache[key] = self.set((), self.param_condition & low).known().isl
        return self.facts_cache[key].is_empty()

    def entry_exists(self, entry: Lookup) -> Formula:
        """Where an array has an entry, be its values known or not."""
        if (table := self.arrays.get(entry.array)) is not None:
            low, high = IndexExpr.of(table.lower), IndexExpr.of(table.lower + len(table.values) - 1)
        else:
            low, high = self.unknown[entry.array].lower, self.unknown[entry.array].upper
        return Formula.compare(low, CmpOp.LE, entry.index) & Formula.compare(entry.index, CmpOp.LE, high)

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
    `lost` names what a hull has forgotten; it is empty for an exact set.
    """

    ctx: PolyContext
    dims: tuple[str, ...]
    isl: isl.Set
    params: dict[str, Symbol]
    lost: frozenset[str] = frozenset()

    # -- exactness -----------------------------------------------------------------------------------------------
    @property
    def exact(self) -> bool:
        """Whether this is the set itself, not a hull."""
        return not self.lost

    def exactly(self, what: str) -> PSet:
        """This set, which has to be exact.  Raises UplError (UPL1209) for a hull; `what` says what needs it."""
        if self.lost:
            parts = ", ".join(f"`{e}`" for e in sorted(self.lost))
            raise error(
                "UPL1209", f"{what} cannot be said exactly: it depends on {parts}, which is not affine, at indices that are "
                "summed over or left out",
                help="use an affine condition, a constant or a constant array there, or send a token to every instance",
            )  # fmt: skip
        return self

    def doubts(self) -> str | None:
        """What keeps questions about this set from being decided: the parts that are not affine, for messages."""
        parts = dict.fromkeys([*sorted(self.lost), *map(str, self.opaque_parts())])
        return ", ".join(f"`{p}`" for p in parts) or None

    def as_meant(self) -> PSet:
        """The points of this hull as the set that is meant from here on: for who may take more than is needed."""
        return replace(self, lost=frozenset()) if self.lost else self

    def _hull(self, *others: PSet) -> PSet:
        """The same points, a hull if one of the others is."""
        lost = self.lost.union(*(o.lost for o in others))
        return replace(self, lost=lost) if lost else self

    # -- building ----------------------------------------------------------------------------------------------
    def with_isl(self, s: isl.Set, params: Mapping[str, Symbol] | None = None) -> PSet:
        """Another isl set over the same dimensions (and parameters)."""
        check_pieces(s)
        return PSet(self.ctx, self.dims, s, dict(self.params if params is None else params), self.lost)

    def constrain(self, formula: Formula) -> PSet:
        """The points that also satisfy the formula."""
        return self if formula.is_true else self & self.ctx.set(self.dims, formula)

    def _aligned(self, other: PSet) -> PSet:
        if other.dims == self.dims:
            return other
        assert set(other.dims) == set(self.dims), (self.dims, other.dims)
        return other.reorder(self.dims)

    def __and__(self, other: PSet) -> PSet:
        other = self._aligned(other)
        return self.with_isl(intersection(self.isl, other.isl), self.params | other.params)._hull(other)

    def __or__(self, other: PSet) -> PSet:
        other = self._aligned(other)
        return self.with_isl(self.isl.union(other.isl), self.params | other.params)._hull(other)

    def __sub__(self, other: PSet) -> PSet:
        other = self._aligned(other)
        if other.lost:  # nothing is surely in a hull
            return self if self.isl.is_disjoint(other.isl) else self._hull(other)
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
        out, params, renamed = self.isl.drop_unused_params(), dict[str, Symbol](), dict[str, str]()
        for n, (pid, atom) in enumerate(self.params.items()):
            new: Symbol = atom
            if isinstance(atom, Lookup):
                new = Lookup(atom.array, atom.index.substitute(dict(names)))
            elif isinstance(atom, Opaque):
                new = Opaque(atom.index.substitute(dict(names)))
            nid = param_id(new)
            params[nid] = new
            at = out.find_dim_by_name(PARAM, pid)
            if nid != pid and at >= 0:  # by way of names that nobody has: two may change places
                renamed[f"renamed {n}"] = nid
                out = out.set_dim_name(PARAM, at, f"renamed {n}")
        for mine, nid in renamed.items():
            at, same = out.find_dim_by_name(PARAM, mine), out.find_dim_by_name(PARAM, nid)
            if same < 0:
                out = out.set_dim_name(PARAM, at, nid)
            else:  # two are one now
                out = out.equate(PARAM, at, PARAM, same).project_out(PARAM, at, 1)
        return PSet(self.ctx, dims, out, params, self.lost)

    def reorder(self, dims: Sequence[str]) -> PSet:
        """The same points with the dimensions in another order."""
        if tuple(dims) == self.dims:
            return self
        out = permute(self.isl, [self.dims.index(d) for d in dims])
        return PSet(self.ctx, tuple(dims), out, dict(self.params), self.lost)

    def extend(self, dims: Sequence[str]) -> PSet:
        """The same condition over more dimensions (unconstrained, appended)."""
        new = [d for d in dims if d not in self.dims]
        return PSet(self.ctx, (*self.dims, *new), self.isl.add_dims(DIM, len(new)), dict(self.params), self.lost)

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

    def _compute_facts(self, symbols: Sequence[Symbol]) -> isl.Set:
        parts: list[Formula] = []
        if any(isinstance(a, Var) and a.name in self.ctx.params for a in symbols):
            parts.append(self.ctx.param_condition)
        for atom in symbols:
            parts += self._facts_of(atom)
        return self.ctx.set(self.dims, Formula.all(parts)).isl

    def _facts_of(self, atom: Symbol) -> Iterable[Formula]:
        """What holds of a symbol wherever it has a value."""
        if isinstance(atom, Opaque):
            yield from opaque.convex_facts(atom, self.ctx.positive)
        elif (value := self.ctx.constant(atom)) is not None:
            yield Formula.compare(IndexExpr.of(atom), CmpOp.EQ, value)
        elif isinstance(atom, Lookup) and atom.array in self.ctx.arrays and (table := self.ctx.arrays[atom.array].values):
            yield Formula.compare(min(table), CmpOp.LE, IndexExpr.of(atom))
            yield Formula.compare(IndexExpr.of(atom), CmpOp.LE, max(table))

    def known(self) -> PSet:
        """This set together with the facts."""
        inside = (n for a in self.opaque_parts() for n in a.index.names - set(self.dims))
        symbols = {param_id(Var(n)): Var(n) for n in (*self.ctx.param_condition.names, *inside)}
        return self.with_isl(self.isl.intersect(self.facts()), symbols | self.params)

    def numeric(self) -> PSet:
        """The same set with known constants as numbers: less to read, but more that isl can decide."""
        out, rest = self, dict(self.params)
        for pid, atom in self.params.items():
            value = None if isinstance(atom, Opaque) else self.ctx.constant(atom)
            at = out.isl.find_dim_by_name(PARAM, pid)
            if value is not None:
                del rest[pid]
                if at >= 0:
                    out = out.with_isl(out.isl.fix_val(PARAM, at, val(value)).project_out(PARAM, at, 1))
        return self.with_isl(out.isl, rest)

    # -- decisions ---------------------------------------------------------------------------------------------
    def slices(self) -> Iterator[PSet]:
        """Disjoint parts, together this set, in which every array entry has a known value (and no symbol is left for it).

        What is not affine becomes affine where an entry or a dimension inside it has few values; else it stays a symbol."""
        s = self.known()
        if s.isl.is_empty():
            return
        atom = next((a for a in s.params.values() if isinstance(a, Lookup) and a.array in self.ctx.arrays), None)
        if atom is None:
            inside = [x for a in s.opaque_parts() for x in a.index.lookups() if x.array in self.ctx.arrays]
            if inside:
                yield from s.with_isl(s.isl, s.params | {param_id(inside[0]): inside[0]}).slices()
                return
            yield from s._by_value()
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
            if value is None:
                part = part._outside(atom)
            else:
                part = part._where_it_is(atom, value)
            keep = {p: a for p, a in part.params.items() if a != atom}
            fixed, at = part.isl, part.isl.find_dim_by_name(PARAM, param_id(atom))
            if at >= 0:
                fixed = (fixed if value is None else fixed.fix_val(PARAM, at, val(value))).project_out(PARAM, at, 1)
            yield from replace(self, isl=fixed, params=keep).slices()

    def opaque_parts(self) -> list[Opaque]:
        """The parts that are not affine and that the set depends on."""
        return [a for a in self.params.values() if isinstance(a, Opaque) and self.involves(a)]

    def _where_it_is(self, atom: Var | Lookup, value: int) -> PSet:
        """The set, on which an atom has the value, with that number for it inside parts that are not affine."""
        out = self
        for a in list(self.params.values()):
            if isinstance(a, Opaque) and atom in a.index.atoms():
                out = out._reindex(a, opaque.with_value(a.index, atom, value))
        return out

    def _outside(self, atom: Lookup) -> PSet:
        """The set, at indices that the array does not have: nothing is known of what reads the entry there."""
        out = self
        for a in list(self.params.values()):
            if isinstance(a, Opaque) and atom in a.index.atoms():
                out = out.without(a)
        return out

    def _by_value(self) -> Iterator[PSet]:
        """Parts on which a dimension that stands in a part that is not affine has one value, where it has few; what is left
        satisfies the facts that are known of symbols."""
        for name, lo, hi in (found for a in self.opaque_parts() if (found := self._few(a)) is not None):
            for v in range(lo, hi + 1):
                part = self.constrain(Formula.compare(name, CmpOp.EQ, v))
                if not part.isl.is_empty():
                    yield from part._where_it_is(Var(name), v)._by_value()
            return
        s = self._consistent()
        if not s.isl.is_empty():
            yield s

    def _few(self, a: Opaque) -> tuple[str, int, int] | None:
        """A dimension inside a part that has few values, with the least and the greatest."""
        known = self.known()
        for x in opaque.parts_of(a.index):
            if x.name in self.dims:
                lo, hi = known._range(IndexExpr.of(x))
                if hi - lo < FEW_VALUES:
                    return x.name, lo, hi
        return None

    def _consistent(self) -> PSet:
        """The points at which entries of symbolic arrays can have the values that stand for them: equal where their indices
        are equal, and as the array's condition says (Ackermann's reduction); parts that are not affine likewise."""
        entries = [a for a in self.params.values() if isinstance(a, Lookup) and a.array in self.ctx.unknown]
        out, parts = self, self.opaque_parts()
        for n, a in enumerate(parts):
            for fact in opaque.facts(a, parts[:n]):
                more = out.constrain(fact)
                if more.isl.is_empty():
                    return more
                if more.isl.n_basic_set() <= MOST_CASES:  # each fact is true: one that makes too many cases is left out
                    out = more
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

    def involves(self, atom: Symbol) -> bool:
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
        """All points, in isl's order.  The set must be bounded and free of parameters.  Raises UplError for a hull."""
        self.exactly("a list of points")
        places = range(len(self.dims))
        for part in self.slices():
            found: list[isl.Point] = []
            flat, open_ = part.numeric(), part.opaque_parts()
            for a in open_:
                flat = flat.without(a)
            flat.isl.project_out_all_params().foreach_point(found.append)  # what is left says facts on sizes
            for p in found:
                at = tuple([p.get_coordinate_val(DIM, i).get_num_si() for i in places])
                if not open_ or part._has(dict(zip(self.dims, at, strict=True))):
                    yield at

    def _has(self, point: Mapping[str, int]) -> bool:
        """Whether the set has a point, given by dimensions and the parameters that it depends on."""
        env = {**self.ctx.constants, **point}
        out = self.isl
        for i, d in enumerate(self.dims):
            out = out.fix_val(DIM, i, val(point[d]))
        for pid, atom in self.params.items():
            at = out.find_dim_by_name(PARAM, pid)
            if at < 0:
                continue
            try:
                value = value_of(atom).evaluate(env, self.ctx.read)
            except (KeyError, IndexError, ZeroDivisionError):
                if isinstance(atom, Opaque):
                    return False  # a division by 0 has no value
                continue  # of an entry that is not known, `isl` has what is known
            out = out.fix_val(PARAM, at, val(value))
        return not out.is_empty()

    def extent(self, dim: str) -> tuple[int | None, int | None]:
        """Least and greatest value of a dimension for all parameters; None where there is no bound."""
        lo, hi = self.known()._range(IndexExpr.of(dim))
        return (None if lo == -(2**62) else lo), (None if hi == 2**62 else hi)

    def is_empty(self) -> bool:
        """Whether there is no point, for any admissible value of the parameters.

        True is a proof.  False may also mean unknown for a hull or where something is not affine; `sample` finds a point.
        """
        if self.isl.is_empty():
            return True
        known = self.isl.intersect(self.facts())
        if known.is_empty():
            return True
        entries = [a for a in self.params.values() if isinstance(a, Lookup) and self.ctx.constant(a) is None]
        if self.opaque_parts():
            return next(self.slices(), None) is None
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
        """Inclusion.  True is a proof; False may also mean unknown, and is said where `other` is a hull."""
        other = self._aligned(other)
        if other.lost:
            return self.is_empty()
        if included(self.isl, other.isl):
            return True
        both = self.with_isl(self.isl.align_params(other.isl.get_space()), self.params | other.params)
        known = both.isl.intersect(both.with_isl(both.isl.union(other.isl)).facts())
        if included(known, other.isl):
            return True
        return both.with_isl(difference(known, other.isl)).is_empty()

    def plainly_in(self, other: PSet) -> bool:
        """Inclusion whatever values array entries and parts that are not affine have, within their bounds."""
        other = self._aligned(other)
        both = self.with_isl(self.isl.union(other.isl), self.params | other.params)  # facts on the symbols of either
        return other.exact and included(self.isl.intersect(both.facts()), other.isl)

    def equals(self, other: PSet) -> bool:
        """Equality as sets of points (the `==` operator is identity)."""
        return self <= other and other <= self

    def sample(self) -> dict[str, int] | None:
        """A point, with values for the parameters among its keys; None if the set is empty.

        None, too, for a hull, and where none was found of a set that is not affine."""
        if self.lost:
            return None
        for s in self.constrain(self.ctx.param_condition).slices():  # also of parameters that do not matter here
            if s.opaque_parts() and (s := s._small()) is None:
                continue
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

    def _small(self) -> PSet | None:
        """One point of a set with parts that are not affine, at small values of the parameters; None if none is found."""
        names = [a.name for a in self.params.values() if isinstance(a, Var) and a.name in self.ctx.params]
        names += [n for a in self.opaque_parts() for n in sorted(a.index.names) if n in self.ctx.params and n not in names]
        tried = 0
        for sizes in product(range(-1, SMALL), repeat=len(names)):
            at = dict(zip(names, sizes, strict=True))
            here = self.constrain(Formula.all(Formula.compare(n, CmpOp.EQ, v) for n, v in at.items())).known()
            flat = here
            for a in here.opaque_parts():
                flat = flat.without(a)
            if flat.isl.is_empty() or not flat.isl.is_bounded():
                continue
            found: list[isl.Point] = []
            flat.isl.project_out_all_params().foreach_point(found.append)
            for p in found[:MOST_TRIED]:
                point = {d: p.get_coordinate_val(DIM, i).to_python() for i, d in enumerate(self.dims)}
                if here._has({**point, **at}):
                    return flat.constrain(Formula.all(Formula.compare(d, CmpOp.EQ, v) for d, v in point.items()))
            tried += len(found)
            if tried > MOST_TRIED:
                return None
        return None

    # -- projection --------------------------------------------------------------------------------------------
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

    def gist(self) -> PSet:
        """The set without what the facts on its symbols say anyway."""
        facts = self.facts()
        return self.with_isl(self.isl.intersect(facts).gist(facts))  # isl 0.27 may crash if the facts cut points off

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

    def _reindex(self, atom: Lookup | Opaque, index: IndexExpr) -> PSet:
        """Write ``A[e]`` as ``A[index]``, or a part that is not affine as the expression `index`; equal on this set."""
        new = index if isinstance(atom, Opaque) else IndexExpr.of(Lookup(atom.array, index))
        if new == value_of(atom):
            return self
        equal = self.constrain(Formula.compare(value_of(atom), CmpOp.EQ, new))
        return equal.without(atom) if isinstance(atom, Opaque) else equal.forget(atom)  # the same is known of another entry

    def without(self, atom: Lookup | Opaque) -> PSet:
        """The points for which the atom has some value, of those that it can have."""
        return (self.constrain(Formula.all(self._facts_of(atom))) if self.involves(atom) else self).forget(atom)

    def forget(self, atom: Lookup | Opaque) -> PSet:
        """The points for which the constraints hold with some number in the place of the atom."""
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
        both = self.extend(("value of",)).constrain(Formula.compare("value of", CmpOp.EQ, e))
        order = (*dims, *[d for d in self.dims if d not in dims], "value of")
        s = both.reorder(order).isl.project_out(DIM, len(dims), len(order) - len(dims) - 1)
        hard = [a for a in both.params.values() if isinstance(a, Opaque) or _reads(a, gone)]
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

    def _parts(self, e: IndexExpr, gone: Collection[str]) -> list[IndexExpr]:
        """The terms of an expression that are not affine and read one of the given names."""
        alone = [IndexExpr(((m, 1),)) for m, _ in e.terms if m and not _is_variable(m)]
        alone = [p for p in alone if p.names & set(gone)]
        return [p for p in alone if self.ctx.not_affine(self.dims, Formula.compare(p, CmpOp.EQ, 0)) is not None]

    def _scalar_facts(self, dims: Sequence[str]) -> isl.Set:
        """Facts on the program's parameters alone, over the given dimensions."""
        symbols = {a.name for a in self.params.values() if isinstance(a, Var)}
        return self.ctx.set(dims, self.ctx.param_condition if symbols & set(self.ctx.params) else TRUE).isl


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
