# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""Points over named dimensions: how sets are built and combined, and what is known of the symbols in them.

The lowest of three layers: `decisions.py` asks questions of such points, `sets.py` takes dimensions away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import islpy as isl

from upl_mlir.diagnostics import error
from upl_mlir.poly import opaque
from upl_mlir.poly.convert import Opaque, Symbol, param_id, value_of
from upl_mlir.poly.counts.quota import MANY, check_pieces, difference, intersection
from upl_mlir.poly.expr import Atom, Formula, IndexExpr, Lookup, Var
from upl_mlir.poly.knowledge import Knowledge
from upl_mlir.poly.operators import CmpOp
from upl_mlir.poly.tools import DIM, PARAM, permute, val


@dataclass(frozen=True, eq=False)
class Points:
    """Integer points over named dimensions, as `sets.PSet`, without decisions and projections.

    `isl` is positional in `dims`; `params` says what each isl parameter stands for (entries' indices are over `dims`).
    `lost` names what a hull has forgotten; it is empty for an exact set.
    """

    ctx: Knowledge
    dims: tuple[str, ...]
    isl: isl.Set
    params: dict[str, Symbol]
    lost: frozenset[str] = frozenset()

    # -- exactness -----------------------------------------------------------------------------------------------
    @property
    def exact(self) -> bool:
        """Whether this is the set itself, not a hull."""
        return not self.lost

    def exactly(self, what: str) -> Self:
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

    def as_meant(self) -> Self:
        """The points of this hull as the set that is meant from here on: for who may take more than is needed."""
        return replace(self, lost=frozenset()) if self.lost else self

    def _hull(self, *others: Self) -> Self:
        """The same points, a hull if one of the others is."""
        lost = self.lost.union(*(o.lost for o in others))
        return replace(self, lost=lost) if lost else self

    # -- building --------------------------------------------------------------------------------------------------
    def with_isl(self, s: isl.Set, params: Mapping[str, Symbol] | None = None) -> Self:
        """Another isl set over the same dimensions (and parameters)."""
        check_pieces(s)
        return type(self)(self.ctx, self.dims, s, dict(self.params if params is None else params), self.lost)

    def constrain(self, formula: Formula) -> Self:
        """The points that also satisfy the formula."""
        if formula.is_true:
            return self
        points, symbols = self.ctx.solutions(self.dims, formula)
        return self.with_isl(intersection(self.isl, points), self.params | symbols)

    def _aligned(self, other: Self) -> Self:
        if other.dims == self.dims:
            return other
        assert set(other.dims) == set(self.dims), (self.dims, other.dims)
        return other.reorder(self.dims)

    def __and__(self, other: Self) -> Self:
        other = self._aligned(other)
        return self.with_isl(intersection(self.isl, other.isl), self.params | other.params)._hull(other)

    def __or__(self, other: Self) -> Self:
        other = self._aligned(other)
        return self.with_isl(self.isl.union(other.isl), self.params | other.params)._hull(other)

    def __sub__(self, other: Self) -> Self:
        other = self._aligned(other)
        if other.lost:  # nothing is surely in a hull
            return self if self.isl.is_disjoint(other.isl) else self._hull(other)
        return self.with_isl(difference(self.isl, other.isl), self.params | other.params)

    def coalesce(self) -> Self:
        """The same set with fewer pieces where isl can tell; pieces that the facts exclude are dropped."""
        facts = self.facts()
        kept = isl.Set.empty(self.isl.get_space())
        for b in (self.isl.coalesce() if self.isl.n_basic_set() <= MANY else self.isl).get_basic_sets():
            piece = isl.Set.from_basic_set(b)
            if not piece.intersect(facts).is_empty():
                kept = kept.union(piece)
            check_pieces(kept)
        return self.with_isl(kept)

    def rename(self, names: Mapping[str, str]) -> Self:
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
        return type(self)(self.ctx, dims, out, params, self.lost)

    def reorder(self, dims: Sequence[str]) -> Self:
        """The same points with the dimensions in another order."""
        if tuple(dims) == self.dims:
            return self
        out = permute(self.isl, [self.dims.index(d) for d in dims])
        return type(self)(self.ctx, tuple(dims), out, dict(self.params), self.lost)

    def extend(self, dims: Sequence[str]) -> Self:
        """The same condition over more dimensions (unconstrained, appended)."""
        new = [d for d in dims if d not in self.dims]
        return type(self)(self.ctx, (*self.dims, *new), self.isl.add_dims(DIM, len(new)), dict(self.params), self.lost)

    # -- facts -----------------------------------------------------------------------------------------------------
    def facts(self) -> isl.Set:
        """What is known of the symbols in this set; see `Knowledge.facts`."""
        return self.ctx.facts(self.dims, self.isl, self.params)

    def known(self) -> Self:
        """This set together with the facts."""
        inside = (n for a in self.opaque_parts() for n in a.index.names - set(self.dims))
        symbols = {param_id(Var(n)): Var(n) for n in (*self.ctx.param_condition.names, *inside)}
        return self.with_isl(self.isl.intersect(self.facts()), symbols | self.params)

    def numeric(self) -> Self:
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

    def gist(self) -> Self:
        """The set without what the facts on its symbols say anyway."""
        facts = self.facts()
        return self.with_isl(self.isl.intersect(facts).gist(facts))  # isl 0.27 may crash if the facts cut points off

    # -- symbols and values ----------------------------------------------------------------------------------------
    def opaque_parts(self) -> list[Opaque]:
        """The parts that are not affine and that the set depends on."""
        return [a for a in self.params.values() if isinstance(a, Opaque) and self.involves(a)]

    def involves(self, atom: Symbol) -> bool:
        """Whether the set depends on a symbol."""
        at = self.isl.find_dim_by_name(PARAM, param_id(atom))
        return at >= 0 and self.isl.involves_dims(PARAM, at, 1)

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

    def _range(self, e: IndexExpr) -> tuple[int, int]:
        """Least and greatest value of an expression on the set, wide bounds where isl finds none."""
        both = self.extend(("value of",)).constrain(Formula.compare("value of", CmpOp.EQ, e))
        flat = both.isl.project_out(DIM, 0, len(self.dims)).project_out_all_params()
        lo, hi = flat.dim_min_val(0), flat.dim_max_val(0)
        return (lo.to_python() if lo.is_int() else -(2**62)), (hi.to_python() if hi.is_int() else 2**62)

    def extent(self, dim: str) -> tuple[int | None, int | None]:
        """Least and greatest value of a dimension for all parameters; None where there is no bound."""
        lo, hi = self.known()._range(IndexExpr.of(dim))
        return (None if lo == -(2**62) else lo), (None if hi == 2**62 else hi)

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

    # -- other symbols in the place of some ------------------------------------------------------------------------
    def _reindex(self, atom: Lookup | Opaque, index: IndexExpr) -> Self:
        """Write ``A[e]`` as ``A[index]``, or a part that is not affine as the expression `index`; equal on this set."""
        new = index if isinstance(atom, Opaque) else IndexExpr.of(Lookup(atom.array, index))
        if new == value_of(atom):
            return self
        equal = self.constrain(Formula.compare(value_of(atom), CmpOp.EQ, new))
        return equal.without(atom) if isinstance(atom, Opaque) else equal.forget(atom)  # the same is known of another entry

    def without(self, atom: Lookup | Opaque) -> Self:
        """The points for which the atom has some value, of those that it can have."""
        return (self.constrain(Formula.all(self.ctx.facts_of(atom))) if self.involves(atom) else self).forget(atom)

    def forget(self, atom: Lookup | Opaque) -> Self:
        """The points for which the constraints hold with some number in the place of the atom."""
        at = self.isl.find_dim_by_name(PARAM, param_id(atom))
        out = self.isl.project_out(PARAM, at, 1) if at >= 0 else self.isl
        return self.with_isl(out, {p: a for p, a in self.params.items() if a != atom})

    def _where_it_is(self, atom: Var | Lookup, value: int) -> Self:
        """The set, on which an atom has the value, with that number for it inside parts that are not affine."""
        out = self
        for a in list(self.params.values()):
            if isinstance(a, Opaque) and atom in a.index.atoms():
                out = out._reindex(a, opaque.with_value(a.index, atom, value))
        return out

    def _outside(self, atom: Lookup) -> Self:
        """The set, at indices that the array does not have: nothing is known of what reads the entry there."""
        out = self
        for a in list(self.params.values()):
            if isinstance(a, Opaque) and atom in a.index.atoms():
                out = out.without(a)
        return out
