"""Index expressions, conditions and the points of a domain (LANGUAGE 2 and 3.9), with numbers for all symbols.

    value(e, env, tables)        an index expression as an integer
    holds(f, env, tables)        whether a condition holds
    points(fields, parts, ...)   all points at which all conditions hold, in lexicographic order

A domain is searched field by field.  Before each choice every comparison makes the ranges of the other fields smaller: if
``a <= x+y`` and y is at most 3, then x is at least a-3.  No point is lost by that; whether a point belongs to the domain is
decided by `holds` alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from upl_mlir.poly.expr import Atom, Div, Formula, IndexExpr, Lookup, MinMax, Monomial, Select, Var
from upl_mlir.poly.operators import CmpOp, Connective, DivKind, Extremum

Number = TypeVar("Number", int, float)
Point = tuple[int, ...]
Env = Mapping[str, int]
Entries = Mapping[str, Mapping[int, int]]
"""The integer arrays of a program: entries by index."""
Range = tuple[float, float]
"""Least and greatest value, both included; integers, or infinite."""
Terms = dict[Monomial, int]
Row = tuple[tuple[tuple[str, int], ...], float]
"""A sum of multiples of fields, and what it is at most."""
EVERYTHING: Range = (-math.inf, math.inf)


@dataclass
class NoValue(Exception):
    """An operation that has no value; `why` says which, on what."""

    why: str


class NoEntry(NoValue):
    """An entry that an array does not have."""


class Unbounded(Exception):
    """No bound of a field of a domain was found; its argument is the field."""


# -- index expressions ---------------------------------------------------------------------------------------------
def value(e: IndexExpr, env: Env, tables: Entries) -> int:
    """The value of an index expression.  Raises NoValue."""
    total = 0
    for atoms, factor in e.terms:
        for atom in atoms:
            factor *= _atom(atom, env, tables)
        total += factor
    return total


def _atom(atom: Atom, env: Env, tables: Entries) -> int:
    match atom:
        case Var(name):
            return env[name]
        case Lookup(array, index):
            return entry(array, tables[array], value(index, env, tables))
        case Div(kind, num, den):
            return divided(kind.value, value(num, env, tables), value(den, env, tables))
        case MinMax(kind, args):
            values = [value(a, env, tables) for a in args]
            return min(values) if kind is Extremum.MIN else max(values)
        case Select(cond, then, other):
            if holds(cond, env, tables):
                return value(then, env, tables)
            if holds(cond, env, tables, wanted=False):
                return value(other, env, tables)
            raise NoEntry(f"`{cond}` reads outside an array")


def entry(name: str, table: Mapping[int, Number], at: int) -> Number:
    """An entry of a constant array.  Raises NoEntry."""
    if at not in table:
        bounds = f"{min(table)}..{max(table)}" if table else "nothing"
        raise NoEntry(f"`{name}[{at}]` is outside the array, which has {bounds}")
    return table[at]


def divided(kind: str, a: int, b: int) -> int:
    """``a floordiv b``, ``a ceildiv b`` or ``a mod b`` (LANGUAGE 2).  Raises NoValue for b = 0."""
    if b == 0:
        raise NoValue(f"integer division by zero: {a} {kind} {b}")
    down = a // b
    if kind == "mod":
        return a - b * down
    return down if kind == "floordiv" or down * b == a else down + 1


# -- conditions ----------------------------------------------------------------------------------------------------
def holds(f: Formula, env: Env, tables: Entries, *, wanted: bool = True) -> bool:
    """Whether a condition is surely true (with `wanted` false: surely false).

    A comparison that reads outside an array is neither.  Raises NoValue for a division by zero.
    """
    match f.kind:
        case Connective.NOT:
            return holds(f.args[0], env, tables, wanted=not wanted)
        case Connective.AND | Connective.OR:
            every = all if (f.kind is Connective.AND) == wanted else any
            return every(holds(part, env, tables, wanted=wanted) for part in f.args)
        case Connective.CMP:
            try:
                a, b = value(f.lhs, env, tables), value(f.rhs, env, tables)
            except NoEntry:
                return False
            return compared(f.op.value, a, b) == wanted


def compared(op: str, a: float, b: float) -> bool:
    """A comparison of two numbers, by its sign."""
    match op:
        case "<=":
            return a <= b
        case "<":
            return a < b
        case ">=":
            return a >= b
        case ">":
            return a > b
        case "==":
            return a == b
        case _:
            return a != b


# -- the points of a domain ----------------------------------------------------------------------------------------
class _Empty(Exception):
    """No point is left."""


def points(fields: Sequence[str], parts: Sequence[Formula], env: Env, tables: Entries) -> list[Point]:
    """The points at which all conditions hold, in lexicographic order.

    `env` has the constants and parameters.  Raises Unbounded where the ranges of the fields cannot be told.
    """
    search = _Search(tuple(fields), tuple(parts), env, tables)
    return sorted(set(search.run(dict.fromkeys(fields, EVERYTHING))))


@dataclass
class _Search:
    """One domain.  A box gives each field its range; constants have the range of one value."""

    fields: tuple[str, ...]
    parts: tuple[Formula, ...]
    env: Env
    tables: Entries

    def run(self, box: dict[str, Range]) -> Iterator[Point]:
        """The points inside a box."""
        try:
            box = self._smaller(box)
        except _Empty:
            return
        open_ = [f for f in self.fields if box[f][0] != box[f][1]]
        if not open_:
            yield from self._tried([box])
            return
        field = min(open_, key=lambda f: box[f][1] - box[f][0])
        lo, hi = box[field]
        if not math.isfinite(hi - lo):
            alternatives = self._alternatives()
            for search in alternatives or ():
                yield from search.run(box)
            if alternatives is None:
                yield from self.run({**box, field: self._eliminated(field, box)})
            return
        chosen = ({**box, field: (v, v)} for v in range(int(lo), int(hi) + 1))
        if len(open_) == 1:
            yield from self._tried(chosen)
            return
        for smaller in chosen:
            yield from self.run(smaller)

    def _tried(self, boxes: Iterator[dict[str, Range]] | list[dict[str, Range]]) -> Iterator[Point]:
        for box in boxes:
            at = tuple(int(box[f][0]) for f in self.fields)
            env = {**self.env, **dict(zip(self.fields, at, strict=True))}
            if all(holds(p, env, self.tables) for p in self.parts):
                yield at

    def _smaller(self, box: dict[str, Range]) -> dict[str, Range]:
        """The box after all conditions, several times over: each may help another.  Raises _Empty."""
        for _ in range(2 * len(self.fields) + 2):
            before = dict(box)
            for part in self.parts:
                box = self._after(part, box, wanted=True)
            if box == before:
                break
        return box

    def _after(self, f: Formula, box: dict[str, Range], *, wanted: bool) -> dict[str, Range]:
        """The smallest box that one condition leaves.  Raises _Empty."""
        match f.kind:
            case Connective.NOT:
                return self._after(f.args[0], box, wanted=not wanted)
            case Connective.CMP:
                box = dict(box)
                self._compared(f, box, wanted)
                return box
            case _ if (f.kind is Connective.AND) == wanted:
                for part in f.args:
                    box = self._after(part, box, wanted=wanted)
                return box
            case _:
                left: list[dict[str, Range]] = []
                for part in f.args:
                    try:
                        left.append(self._after(part, box, wanted=wanted))
                    except _Empty:
                        continue
                if not left:
                    raise _Empty
                return {n: (min(b[n][0] for b in left), max(b[n][1] for b in left)) for n in box}

    def _compared(self, f: Formula, box: dict[str, Range], wanted: bool) -> None:
        """Make the box smaller by a comparison."""
        for terms, most in _sides(f, wanted):
            self._sum(terms, (-math.inf, most), box)
            if any(isinstance(a, Div) for atoms in terms for a in atoms):
                linear, most = self._linear(terms, most)
                self._sum(linear, (-math.inf, most), box)

    def _linear(self, terms: Terms, most: float) -> tuple[Terms, float]:
        """What follows from ``sum of terms <= most`` if each ``e floordiv d`` is only known to be above (e-d)/d and at most
        e/d: so ``2*(i floordiv 2) + 2*((i+1) floordiv 2) - i <= 9`` bounds i."""
        while (div := next(filter(_rounds, terms), None)) is not None:
            (atom,) = div
            assert isinstance(atom, Div)
            c, d = terms[div], atom.den.constant or 1
            # c*d*(e floordiv d) is at least c*(e-d+1) for c > 0, else at least c*e; a ceildiv the other way round
            less = (c > 0) if atom.kind is DivKind.FLOORDIV else (c < 0)
            most = most * d + (abs(c) * (d - 1) if less else 0)
            terms = {a: k * d for a, k in terms.items() if a != div}
            for a, k in atom.num.terms:
                terms[a] = terms.get(a, 0) + c * k
        return terms, most

    def _alternatives(self) -> list[_Search] | None:
        """One search for each part of a disjunction; None if there is no disjunction."""
        todo, others = list(self.parts), list[Formula]()
        while todo:
            f = todo.pop()
            inner, wanted = (f.args[0], False) if f.kind is Connective.NOT else (f, True)
            if inner.kind is Connective.CMP:
                others.append(f)
                continue
            parts = [p if wanted else Formula(Connective.NOT, (p,)) for p in inner.args]
            if inner.kind is Connective.NOT:
                todo += inner.args
            elif (inner.kind is Connective.AND) == wanted:
                todo += parts
            else:
                return [_Search(self.fields, (*others, *todo, p), self.env, self.tables) for p in parts]
        return None

    # -- ranges that several comparisons give together ---------------------------------------------------------------
    def _eliminated(self, field: str, box: Mapping[str, Range]) -> Range:
        """The range that a field has by sums of comparisons from which the other fields vanish (Fourier and Motzkin): from
        ``0 <= i+j <= 3`` and ``0 <= i-j <= 3`` follows ``0 <= 2*i <= 6``.  Raises Unbounded."""
        rows = {r for p in self.parts for r in self._rows(p, box, wanted=True)}
        for name, (lo, hi) in box.items():
            rows |= {(((name, sign),), most) for sign, most in ((1, hi), (-1, -lo)) if math.isfinite(most)}
        for name in self.fields:
            if name == field:
                continue
            up = [(r, most, dict(r)[name]) for r, most in rows if dict(r).get(name, 0) > 0]
            down = [(r, most, -dict(r)[name]) for r, most in rows if dict(r).get(name, 0) < 0]
            rows = {(r, most) for r, most in rows if name not in dict(r)}
            rows |= {(_added(a, q, b, p), m * q + n * p) for a, m, p in up for b, n, q in down}
        highest = [_down(most, c) for r, most in rows for c in dict(r).values() if c > 0]
        lowest = [_up(-most, -c) for r, most in rows for c in dict(r).values() if c < 0]
        if not highest or not lowest:
            raise Unbounded(field)
        return max(lowest), min(highest)

    def _rows(self, f: Formula, box: Mapping[str, Range], *, wanted: bool) -> Iterator[Row]:
        """The comparisons that surely hold, as sums of multiples of fields that are at most a number."""
        if f.kind is Connective.NOT or (f.kind is not Connective.CMP and (f.kind is Connective.AND) == wanted):
            for part in f.args:
                yield from self._rows(part, box, wanted=wanted == (f.kind is not Connective.NOT))
        elif f.kind is Connective.CMP:
            for terms, most in _sides(f, wanted):
                linear, most = self._linear(terms, most)
                row: dict[str, int] = {}
                for atoms, c in linear.items():
                    match atoms:
                        case (Var(name),) if name in box:
                            row[name] = row.get(name, 0) + c
                        case _:
                            most -= _times(self._product(atoms, box), (c, c))[0]
                if math.isfinite(most):
                    yield _added(tuple(row.items()), 1, (), 1), most

    # -- from the range of an expression to those of its parts -----------------------------------------------------
    def _sum(self, terms: Mapping[Monomial, int], wanted: Range, box: dict[str, Range]) -> None:
        """Make the box smaller, knowing the range of a sum."""
        least, most = self._total(terms, box)
        if most < wanted[0] or least > wanted[1]:
            raise _Empty
        for atoms, factor in terms.items():
            if not atoms or not factor:
                continue
            lo, hi = self._total({a: c for a, c in terms.items() if a != atoms}, box)
            a, b = wanted[0] - hi, wanted[1] - lo
            if factor < 0:
                a, b = -b, -a
            self._factors(atoms, (_up(a, abs(factor)), _down(b, abs(factor))), box)

    def _factors(self, atoms: Monomial, wanted: Range, box: dict[str, Range]) -> None:
        """Make the box smaller, knowing the range of a product."""
        lo, hi = wanted
        for i, atom in enumerate(atoms):
            least, most = self._product((*atoms[:i], *atoms[i + 1 :]), box)
            if least < 1:
                continue  # the sign of the others is not known
            a = _up(lo, most if lo > 0 else least)
            b = _down(hi, least if hi >= 0 else most)
            self._one(atom, (a, b), box)

    def _one(self, atom: Atom, wanted: Range, box: dict[str, Range]) -> None:
        """Make the box smaller, knowing the range of an atom."""
        known = self._range(atom, box)
        lo, hi = max(wanted[0], known[0]), min(wanted[1], known[1])
        if lo > hi:
            raise _Empty
        match atom:
            case Var(name):
                if name in box:
                    box[name] = (lo, hi)
            case Lookup(array, index):
                table = self.tables[array]
                if not table:
                    raise _Empty
                self._sum(dict(index.terms), (min(table), max(table)), box)  # a condition on no entry is false
            case Div(kind, num, den):
                d = self._bounds(den, box)
                if d[0] == d[1] and d[0] > 0 and kind is not DivKind.MOD:
                    n = int(d[0])
                    inner = (lo * n, hi * n + n - 1) if kind is DivKind.FLOORDIV else (lo * n - n + 1, hi * n)
                    self._sum(dict(num.terms), inner, box)
            case MinMax(kind, args):
                one_sided = (lo, math.inf) if kind is Extremum.MIN else (-math.inf, hi)
                for a in args:
                    self._sum(dict(a.terms), one_sided, box)
            case Select():
                pass

    # -- the range of an expression --------------------------------------------------------------------------------
    def _bounds(self, e: IndexExpr, box: Mapping[str, Range]) -> Range:
        return self._total(dict(e.terms), box)

    def _total(self, terms: Mapping[Monomial, int], box: Mapping[str, Range]) -> Range:
        parts = [_times(self._product(atoms, box), (c, c)) for atoms, c in terms.items()]
        return sum(p[0] for p in parts), sum(p[1] for p in parts)

    def _product(self, atoms: Monomial, box: Mapping[str, Range]) -> Range:
        out: Range = (1, 1)
        for atom in atoms:
            out = _times(out, self._range(atom, box))
        return out

    def _range(self, atom: Atom, box: Mapping[str, Range]) -> Range:
        match atom:
            case Var(name):
                return box[name] if name in box else (self.env[name], self.env[name])
            case Lookup(array, index):
                table, (lo, hi) = self.tables[array], self._bounds(index, box)
                found = [v for i, v in table.items() if lo <= i <= hi]
                if not found:
                    raise _Empty
                return min(found), max(found)
            case Div(kind, num, den):
                (lo, hi), d = self._bounds(num, box), self._bounds(den, box)
                if d[0] != d[1] or d[0] <= 0:
                    return EVERYTHING
                if kind is DivKind.MOD:
                    return (0, d[0] - 1)
                rounded = _down if kind is DivKind.FLOORDIV else _up
                return rounded(lo, d[0]), rounded(hi, d[0])
            case MinMax(kind, args):
                ranges = [self._bounds(a, box) for a in args]
                choose = min if kind is Extremum.MIN else max
                return choose(r[0] for r in ranges), choose(r[1] for r in ranges)
            case Select(_, then, other):
                found = [r for e in (then, other) for r in self._possible(e, box)]
                if not found:
                    raise _Empty
                return min(r[0] for r in found), max(r[1] for r in found)

    def _possible(self, e: IndexExpr, box: Mapping[str, Range]) -> list[Range]:
        """The range of an expression that need not have a value: none if it has not."""
        try:
            return [self._bounds(e, box)]
        except _Empty:
            return []


def _sides(f: Formula, wanted: bool) -> Iterator[tuple[Terms, float]]:
    """A comparison as one or two sums of terms, each of which is at most a number; none for ``!=``."""
    op = f.op if wanted else _OPPOSITE[f.op]
    terms = dict(f.lhs.terms)
    for atoms, c in f.rhs.terms:
        terms[atoms] = terms.get(atoms, 0) - c
    if op in (CmpOp.LE, CmpOp.LT, CmpOp.EQ):
        yield terms, -1 if op is CmpOp.LT else 0
    if op in (CmpOp.GE, CmpOp.GT, CmpOp.EQ):
        yield {atoms: -c for atoms, c in terms.items()}, -1 if op is CmpOp.GT else 0


def _rounds(atoms: Monomial) -> bool:
    """Whether a term is one division that rounds, by a literal."""
    return (
        len(atoms) == 1
        and isinstance(atoms[0], Div)
        and atoms[0].kind is not DivKind.MOD
        and (atoms[0].den.constant or 0) > 0
    )


def _added(a: tuple[tuple[str, int], ...], p: int, b: tuple[tuple[str, int], ...], q: int) -> tuple[tuple[str, int], ...]:
    """``p*a + q*b``, without fields that vanish."""
    out = {name: c * p for name, c in a}
    for name, c in b:
        out[name] = out.get(name, 0) + c * q
    return tuple(sorted((name, c) for name, c in out.items() if c))


_OPPOSITE = {
    CmpOp.LE: CmpOp.GT, CmpOp.LT: CmpOp.GE, CmpOp.EQ: CmpOp.NE, CmpOp.NE: CmpOp.EQ, CmpOp.GE: CmpOp.LT, CmpOp.GT: CmpOp.LE,
}  # fmt: skip


def _times(a: Range, b: Range) -> Range:
    ends = [x * y if x and y else 0 for x in a for y in b]  # 0 times infinity is 0 here
    return min(ends), max(ends)


def _down(a: float, b: float) -> float:
    """``a/b`` rounded down, for b > 0; exact on integers."""
    return a if math.isinf(a) else a // b if not math.isinf(b) else (0 if a >= 0 else -1)


def _up(a: float, b: float) -> float:
    """``a/b`` rounded up, for b > 0."""
    return -_down(-a, b)
