# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""What is known of the symbols in sets: parameters, constants, constant arrays, symbolic arrays; the facts that follow.

It makes no sets of its own: `points.py` asks here what a symbol's value is, or what holds of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import islpy as isl

from upl_mlir.poly import opaque
from upl_mlir.poly.convert import NotAffine, Opaque, Symbol, ToIsl
from upl_mlir.poly.counts.quota import check_pieces
from upl_mlir.poly.expr import TRUE, Atom, Formula, IndexExpr, Lookup, Var
from upl_mlir.poly.operators import CmpOp
from upl_mlir.poly.tools import PARAM


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
class Knowledge:
    """What is known of the symbols: parameters with a condition on them, constants, constant arrays, symbolic arrays."""

    params: tuple[str, ...] = ()
    param_condition: Formula = TRUE
    constants: Mapping[str, int] = field(default_factory=dict[str, int])
    arrays: Mapping[str, Table] = field(default_factory=dict[str, Table])
    unknown: Mapping[str, Unknown] = field(default_factory=dict[str, Unknown])
    _solutions: dict[tuple[tuple[str, ...], Formula], tuple[isl.Set, dict[str, Symbol]]] = field(
        default_factory=dict, repr=False, init=False
    )
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

    def not_affine(self, dims: Sequence[str], formula: Formula) -> str | None:
        """The first part of a formula that isl cannot hold, as text; None if it is quasi-affine."""
        try:
            ToIsl(dims, self.constant, affine=True).formula(formula)
        except NotAffine as e:
            return e.what
        return None

    def entries(self, array: str) -> tuple[IndexExpr, IndexExpr]:
        """The indices of the first and the last entry of an array, be its values known or not."""
        if (table := self.arrays.get(array)) is not None:
            return IndexExpr.of(table.lower), IndexExpr.of(table.lower + len(table.values) - 1)
        return self.unknown[array].lower, self.unknown[array].upper

    def entry_exists(self, entry: Lookup) -> Formula:
        """Where an array has an entry, be its values known or not."""
        low, high = self.entries(entry.array)
        return Formula.compare(low, CmpOp.LE, entry.index) & Formula.compare(entry.index, CmpOp.LE, high)

    def read(self, array: str, i: int) -> int:
        """``array[i]``.  Raises IndexError outside the array."""
        value = self.arrays[array].get(i) if array in self.arrays else None
        if value is None:
            raise IndexError(f"{array}[{i}]")
        return value

    def solutions(self, dims: Sequence[str], formula: Formula) -> tuple[isl.Set, dict[str, Symbol]]:
        """isl's set of the points over `dims` that satisfy the formula, and what its parameters stand for."""
        key = tuple(dims), formula
        found = self._solutions.get(key)
        if found is None:
            writer = ToIsl(dims, self.constant)
            found = self._solutions[key] = writer.set(formula), writer.params
        return found[0], dict(found[1])

    def facts(self, dims: tuple[str, ...], points: isl.Set, symbols: Mapping[str, Symbol]) -> isl.Set:
        """What is known of those symbols that a set over `dims` depends on: constants, conditions, bounds of entries.

        Convex, so that it costs little.  That entries at equal indices are equal is not among it: `in_terms_of` names them
        alike where it matters, and `slices` knows their values."""
        used = points.drop_unused_params()
        names = (used.get_dim_name(PARAM, i) or "" for i in range(used.dim(PARAM)))
        ids = tuple(sorted(n for n in names if n in symbols))  # others came in with facts added before
        key = (dims, ids)
        if key not in self.facts_cache:
            self.facts_cache[key] = self._compute_facts(dims, [symbols[i] for i in ids])
        return self.facts_cache[key]

    def _compute_facts(self, dims: tuple[str, ...], symbols: Sequence[Symbol]) -> isl.Set:
        parts: list[Formula] = []
        if any(isinstance(a, Var) and a.name in self.params for a in symbols):
            parts.append(self.param_condition)
        for atom in symbols:
            parts += self.facts_of(atom)
        return self.solutions(dims, Formula.all(parts))[0]

    def facts_of(self, atom: Symbol) -> Iterable[Formula]:
        """What holds of a symbol wherever it has a value."""
        if isinstance(atom, Opaque):
            yield from opaque.convex_facts(atom, self.positive)
        elif (value := self.constant(atom)) is not None:
            yield Formula.compare(IndexExpr.of(atom), CmpOp.EQ, value)
        elif isinstance(atom, Lookup) and atom.array in self.arrays and (table := self.arrays[atom.array].values):
            yield Formula.compare(min(table), CmpOp.LE, IndexExpr.of(atom))
            yield Formula.compare(IndexExpr.of(atom), CmpOp.LE, max(table))

    def positive(self, e: IndexExpr) -> bool:
        """Whether an expression of parameters and constants is at least 1 (proved)."""
        if e.names - {*self.params, *self.constants} or any(a.array in self.unknown for a in e.lookups()):
            return False
        low = Formula.compare(e, CmpOp.LE, 0)
        key = ((), (f"positive {e}",))
        if key not in self.facts_cache:
            points, symbols = self.solutions((), self.param_condition & low)
            self.facts_cache[key] = points.intersect(self.facts((), points, symbols))
            check_pieces(self.facts_cache[key])
        return self.facts_cache[key].is_empty()
