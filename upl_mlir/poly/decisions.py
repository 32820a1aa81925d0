# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""Decisions about sets: emptiness, inclusion, points of them.

A question is asked with array entries as unknowns first. Where that does not suffice, `slices` cuts the set along the
index of an entry, value by value. What is not affine becomes affine where something inside it has few values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Self

import islpy as isl

from upl_mlir.poly import opaque
from upl_mlir.poly.convert import Opaque, param_id, value_of
from upl_mlir.poly.counts.points import Points
from upl_mlir.poly.counts.quota import difference, included
from upl_mlir.poly.expr import Formula, IndexExpr, Lookup, Var
from upl_mlir.poly.operators import CmpOp
from upl_mlir.poly.tools import DIM, PARAM, least, val

FEW_VALUES = 64  # of a dimension or an array that are looked at one by one
SMALL = 8  # values of a parameter at which a point of a set that is not affine is looked for
MOST_TRIED = 4096  # points
MOST_CASES = 16  # that facts of parts that are not affine may cut a set into


@dataclass(frozen=True, eq=False)
class DecidedPoints(Points):
    """Points of which questions can be answered: is there one, are they among others, which are they."""

    # -- parts that say more ---------------------------------------------------------------------------------------
    def slices(self) -> Iterator[Self]:
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

    def _by_value(self) -> Iterator[Self]:
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

    def _consistent(self) -> Self:
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

    def with_entries(self, entries: Iterable[Lookup]) -> Self:
        """The same set in which `slices` will also tell the given entries' values apart."""
        new = {param_id(a): a for a in entries if a.index.names & set(self.dims)}
        return self.with_isl(self.isl, self.params | new)

    # -- emptiness and inclusion -----------------------------------------------------------------------------------
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
            fixed, _ = self.ctx.solutions(self.dims, Formula.compare(atom.index, CmpOp.EQ, at))
            known = known.intersect(fixed)
            place = known.find_dim_by_name(PARAM, param_id(atom))
            if place >= 0:
                known = known.fix_val(PARAM, place, val(value))
        return not known.is_empty()

    def __le__(self, other: Self) -> bool:
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

    def plainly_in(self, other: Self) -> bool:
        """Inclusion whatever values array entries and parts that are not affine have, within their bounds."""
        other = self._aligned(other)
        both = self.with_isl(self.isl.union(other.isl), self.params | other.params)  # facts on the symbols of either
        return other.exact and included(self.isl.intersect(both.facts()), other.isl)

    def equals(self, other: Self) -> bool:
        """Equality as sets of points (the `==` operator is identity)."""
        return self <= other and other <= self

    # -- points ----------------------------------------------------------------------------------------------------
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

    def _small(self) -> Self | None:
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
