"""Linear constraints by Fourier–Motzkin elimination: quick answers that err on one side only.

A lowering asks many small questions: is this case possible here, between what bounds does this loop run, how far apart
are a write and a read.  Each has a safe side (a loop may be entered in vain if its body is guarded, a dependence may be
assumed in vain), so rational elimination over a handful of named symbols suffices, and costs microseconds where exact
sets cost milliseconds.  What must be exact is asked of `sets.py`.

Symbols are dimensions and parameters by name; array entries ``N[k-1]``, divisions and products are opaque symbols of which
some facts are known (between what numbers an entry lies, what a quotient is).  `one_by_one` asks more of entries: how far
each lies from its index.  That is for programs whose tables say where tokens go; where they are sizes, it is work in vain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from upl_mlir.poly.elimination import Row, eliminated, possible, solved
from upl_mlir.poly.expr import Atom, Div, Formula, IndexExpr, Lookup, MinMax, Monomial, Select, Var, divide
from upl_mlir.poly.knowledge import Table
from upl_mlir.poly.operators import CmpOp, Connective, DivKind, Extremum
from upl_mlir.poly.sets import PolyContext


class Con(NamedTuple):
    """The constraint ``e >= 0``, or ``e == 0``."""

    e: IndexExpr
    eq: bool = False

    def substitute(self, values: dict[str, IndexExpr]) -> Con:
        """The constraint with names replaced by expressions."""
        return Con(self.e.substitute(values), self.eq) if self.e.names & values.keys() else self

    def negated(self) -> list[Con]:
        """Disjoint constraints, one of which holds exactly where this one does not."""
        below = Con(-self.e - 1)
        return [below, Con(self.e - 1)] if self.eq else [below]


Cons = tuple[Con, ...]

class Linear:
    """Constraints over a program's symbols: feasibility, implication, bounds."""

    def __init__(self, ctx: PolyContext, *, one_by_one: bool = False):
        self.ctx = ctx
        self.one_by_one = one_by_one
        self._rows: dict[IndexExpr, Row] = {}
        self._opaque: dict[str, Atom | Monomial] = {}
        self._facts: dict[str, tuple[list[Row], list[Row]]] = {}  # of an opaque symbol: equalities, inequalities
        self._entries: dict[str, tuple[IndexExpr, Table]] = {}  # of an entry of a known array: the index, what it is by that
        self._near: dict[tuple[str, int | None, int | None], list[Row]] = {}  # facts, for the index between two numbers
        self._names: dict[str, frozenset[str]] = {}  # the names inside an opaque symbol
        self._feasible: dict[frozenset[Con], bool] = {}
        self._formulas: dict[Formula, list[Cons]] = {}
        self._plain: dict[IndexExpr, IndexExpr] = {}
        self._inner: dict[IndexExpr, frozenset[str]] = {}
        self.params: Cons = ()
        self.params = next(iter(self.cases(ctx.param_condition)), ())

    def add_array(self, name: str, table: Table) -> None:
        """One more array of known entries, under a name that is new."""
        self.ctx = replace(self.ctx, arrays={**self.ctx.arrays, name: table})

    # -- expressions and formulas -------------------------------------------------------------------------------------
    def plain(self, e: IndexExpr) -> IndexExpr:
        """The expression with known constants and array entries as numbers."""
        found = self._plain.get(e)
        if found is None:
            known = self.ctx.constant
            found = e.rewrite(lambda a: None if (c := known(a)) is None else IndexExpr.of(c))
            self._plain[e] = found
        return found

    def cases(self, f: Formula) -> list[Cons]:
        """The formula as a list of conjunctions, one of which holds where it does; they may overlap."""
        found = self._formulas.get(f)
        if found is None:
            found = self._formulas[f] = [self.tidy(c) for c in self._cases(f, positive=True)]
        return [*found]

    def tidy(self, cons: Iterable[Con]) -> Cons:
        """Without repetitions and without what is true of numbers; a false constraint stays."""
        out: dict[Con, None] = {}
        for c in cons:
            n = c.e.constant
            if n is None or (n != 0 if c.eq else n < 0):
                out[c] = None
        return tuple(out)

    def _cases(self, f: Formula, *, positive: bool) -> list[list[Con]]:
        match f.kind:
            case Connective.NOT:
                return self._cases(f.args[0], positive=not positive)
            case Connective.AND | Connective.OR:
                parts = [self._cases(a, positive=positive) for a in f.args]
                if (f.kind is Connective.OR) == positive:
                    return [c for p in parts for c in p]
                out: list[list[Con]] = [[]]
                for p in parts:
                    out = [[*a, *b] for a in out for b in p]
                return out
            case Connective.CMP:
                return self._comparison(f if positive else f.negate())

    def _comparison(self, f: Formula) -> list[list[Con]]:
        e = self.plain(f.lhs - f.rhs)
        for m, c in e.terms:
            if len(m) != 1:
                continue
            match m[0]:
                case Select(cond, then, other):
                    rest = e - IndexExpr.of(m[0]) * c
                    yes = Formula.compare(rest + then * c, f.op, 0)
                    no = Formula.compare(rest + other * c, f.op, 0)
                    return self._cases((cond & yes) | (cond.negate() & no), positive=True)
                case MinMax(kind, args):
                    rest = e - IndexExpr.of(m[0]) * c
                    choices: list[list[Con]] = []
                    for i, a in enumerate(args):
                        least = CmpOp.LE if kind is Extremum.MIN else CmpOp.GE
                        strict = CmpOp.LT if kind is Extremum.MIN else CmpOp.GT
                        taken = [Formula.compare(a, strict if j < i else least, b) for j, b in enumerate(args) if j != i]
                        taken.append(Formula.compare(rest + a * c, f.op, 0))
                        choices += self._cases(Formula.all(taken), positive=True)
                    return choices
                case _:
                    pass
        match f.op:
            case CmpOp.GE:
                return [[Con(e)]]
            case CmpOp.GT:
                return [[Con(e - 1)]]
            case CmpOp.LE:
                return [[Con(-e)]]
            case CmpOp.LT:
                return [[Con(-e - 1)]]
            case CmpOp.EQ:
                return [[Con(e, True)]]
            case CmpOp.NE:
                return [[Con(e - 1)], [Con(-e - 1)]]

    # -- rows ---------------------------------------------------------------------------------------------------------
    def _row(self, e: IndexExpr) -> Row:
        row = self._rows.get(e)
        if row is None:
            coefficients: dict[str, int] = {}
            constant = 0
            for m, c in e.terms:
                if not m:
                    constant += c
                    continue
                atom = m[0]
                if len(m) == 1 and isinstance(atom, Div) and (n := self._divisor(atom)):
                    if atom.kind is DivKind.MOD:  # num - n*(num floordiv n)
                        num, num_constant = self._row(atom.num)
                        for k, v in num.items():
                            coefficients[k] = coefficients.get(k, 0) + c * v
                        constant += c * num_constant
                        key = self._symbol(Div(DivKind.FLOORDIV, atom.num, atom.den))
                        c = -c * n
                    elif atom.kind is DivKind.CEILDIV:
                        key = self._symbol(Div(DivKind.FLOORDIV, atom.num + (n - 1), atom.den))
                    else:
                        key = self._symbol(atom)
                else:
                    key = atom.name if len(m) == 1 and isinstance(atom, Var) else self._symbol(atom if len(m) == 1 else m)
                coefficients[key] = coefficients.get(key, 0) + c
            row = ({k: v for k, v in coefficients.items() if v}, constant)
            self._rows[e] = row
        return row

    def _divisor(self, a: Div) -> int:
        d = self.plain(a.den).constant
        return d if d is not None and d > 0 else 0

    def _symbol(self, what: Atom | Monomial) -> str:
        """The name of an opaque symbol; its facts are worked out once."""
        key = "(" + ("*".join(map(str, what)) if isinstance(what, tuple) else str(what)) + ")"
        if key in self._opaque:
            return key
        self._opaque[key] = what
        facts: list[Row] = []
        atoms = what if isinstance(what, tuple) else (what,)
        self._names[key] = frozenset().union(*(IndexExpr.of(a).names for a in atoms))
        match what:
            case Lookup(array, _):
                values = self.ctx.arrays[array].values
                if values:
                    facts = [({key: 1}, -min(values)), ({key: -1}, max(values))]
                if (entry := self._by_index(what)) is not None:
                    self._entries[key] = entry
            case Div(DivKind.FLOORDIV, num, _) if n := self._divisor(what):
                row, constant = self._row(num)
                facts = [({**row, key: -n}, constant), ({**{k: -v for k, v in row.items()}, key: n}, n - 1 - constant)]
            case MinMax(kind, args):
                sign = 1 if kind is Extremum.MIN else -1
                for a in args:
                    row, constant = self._row(a)
                    facts.append(({**{k: sign * v for k, v in row.items()}, key: -sign}, sign * constant))
            case _:
                pass
        self._facts[key] = ([], facts)
        return key

    def _by_index(self, entry: Lookup) -> tuple[IndexExpr, Table] | None:
        """The innermost index of an entry of a known array (``A[B[x+1]]``: x+1), and the entries by that index."""
        table = self.ctx.arrays.get(entry.array)
        if table is None or not table.values:
            return None
        inner = entry.index.lookups()
        if not inner:
            return entry.index, table
        within = inner[-1]
        offset = (entry.index - IndexExpr.of(within)).constant
        below = self._by_index(within) if offset is not None else None
        if below is None or offset is None:
            return None
        index, first = below
        last = len(table.values) - 1
        places = (min(max(v + offset - table.lower, 0), last) for v in first.values)
        return index, Table(first.lower, tuple(table.values[n] for n in places))

    def _entry_facts(self, key: str, between: Mapping[str, Interval]) -> list[Row]:
        """Between what numbers an entry lies; and its distance from its index, if that surely is one of the array.

        Names are `between` some numbers.  Of an index outside the first fact holds as well, as code reads the nearest entry.
        """
        index, table = self._entries[key]
        row, constant = self._row(index)
        lo: int | None = constant
        hi: int | None = constant
        for name, c in row.items():
            low, high = between.get(name, (None, None))
            low, high = (low, high) if c > 0 else (high, low)
            lo = None if lo is None or low is None else lo + c * low
            hi = None if hi is None or high is None else hi + c * high
        end = table.lower + len(table.values) - 1
        known = (key, lo, hi)
        if known not in self._near:
            inside = lo is not None and hi is not None and table.lower <= lo <= hi <= end
            first = table.lower if lo is None else min(max(lo, table.lower), end)
            values = table.values[first - table.lower : (end if hi is None else max(hi, first)) + 1 - table.lower]
            self._near[known] = facts = [({key: 1}, -min(values)), ({key: -1}, max(values))]
            if inside:
                away = [v - n for n, v in enumerate(values, first)]
                facts.append(({**{k: -c for k, c in row.items()}, key: 1}, -constant - min(away)))
                facts.append(({**row, key: -1}, constant + max(away)))
        return self._near[known]

    def expr(self, row: Row) -> IndexExpr:
        """A row as an expression."""
        out = IndexExpr.of(row[1])
        for k, c in row[0].items():
            what = self._opaque.get(k)
            if what is None:
                out = out + IndexExpr.of(Var(k)) * c
            elif isinstance(what, tuple):
                out = out + IndexExpr(((what, c),))
            else:
                out = out + IndexExpr.of(what) * c
        return out

    def _with_facts(self, cons: Iterable[Con]) -> tuple[list[Row], list[Row]]:
        """Equalities and inequalities of the constraints, the parameters' conditions, what is known of opaque symbols."""
        eqs: list[Row] = []
        rows: list[Row] = []
        for c in (*cons, *self.params):
            (eqs if c.eq else rows).append(self._row(c.e))
        todo = list({k for r in (*eqs, *rows) for k in r[0] if k in self._facts})
        seen = set(todo)
        between: dict[str, Interval] = {}
        if self.one_by_one and seen & self._entries.keys():
            tables = {k: self._entries[k][1].values for k in seen & self._entries.keys()}
            between = _between(eqs, rows, {k: (min(values), max(values)) for k, values in tables.items()})
        while todo:
            key = todo.pop()
            equal, other = self._facts[key]
            if self.one_by_one and key in self._entries:
                other = self._entry_facts(key, between)
            eqs += equal
            rows += other
            for r in (*equal, *other):
                for k in r[0]:
                    if k in self._facts and k not in seen:
                        seen.add(k)
                        todo.append(k)
        return eqs, rows

    def normal(self, cons: Iterable[Con]) -> tuple[Cons, dict[str, IndexExpr]]:
        """The same constraints with names that an equality fixes replaced inside opaque symbols, and what was replaced."""
        cons = tuple(cons)
        fixed: dict[str, IndexExpr] = {}
        hidden = frozenset(n for c in cons for n in self._hidden(c.e))
        if not hidden:
            return cons, fixed
        for at, c in enumerate(cons):
            if not c.eq:
                continue
            found = next(((m[0].name, k) for m, k in c.e.terms if len(m) == 1 and isinstance(m[0], Var) and abs(k) == 1
                          and m[0].name in hidden), None)  # fmt: skip
            if found is None:
                continue
            name, k = found
            value = (c.e - IndexExpr.of(name) * k) * -k
            if name in value.names:
                continue
            new = {name: value}
            cons = tuple(d if i == at else Con(self.plain(d.e.substitute(new)), d.eq) for i, d in enumerate(cons))
            fixed = {n: v.substitute(new) for n, v in fixed.items()} | new
            hidden = frozenset(n for d in cons for n in self._hidden(d.e))
        return cons, fixed

    def _hidden(self, e: IndexExpr) -> frozenset[str]:
        """The names inside opaque symbols."""
        found = self._inner.get(e)
        if found is None:
            found = frozenset(
                n for m, _ in e.terms if m and not (len(m) == 1 and isinstance(m[0], Var)) for a in m
                for n in IndexExpr.of(a).names
            )  # fmt: skip
            self._inner[e] = found
        return found

    # -- questions ------------------------------------------------------------------------------------------------------
    def feasible(self, cons: Iterable[Con]) -> bool:
        """False only if the constraints have no integer solution."""
        cons = tuple(cons)
        key = frozenset(cons)
        found = self._feasible.get(key)
        if found is None:
            written, fixed = self.normal(cons)
            found = self._has_solution(written)
            if found and fixed and self.one_by_one:  # of two names that fix each other by entries, one may tell more
                found = self._has_solution(cons)
            self._feasible[key] = found
        return found

    def _has_solution(self, cons: Iterable[Con]) -> bool:
        eqs, rows = self._with_facts(cons)
        left = solved(eqs, rows)
        return left is not None and possible(left)

    def implies(self, cons: Iterable[Con], c: Con) -> bool:
        """True only if the constraint holds wherever the others do."""
        cons = tuple(cons)
        if c in cons:
            return True
        return not any(self.feasible((*cons, n)) for n in c.negated())

    def bounds(self, cons: Iterable[Con], e: IndexExpr) -> tuple[int | None, int | None]:
        """Numbers between which the expression lies; None where none is found."""
        n = e.constant
        if n is not None:
            return n, n
        cons, _ = self.normal((*cons, Con(e - IndexExpr.of(_VALUE), True)))
        eqs, rows = self._with_facts(cons)
        left = solved(eqs, rows, frozenset((_VALUE,)))
        if left is None:
            return 0, -1
        out = eliminated(left, frozenset((_VALUE,)))
        if out is None:
            return 0, -1
        lo: int | None = None
        hi: int | None = None
        for row, constant in out:
            c = row.get(_VALUE, 0)
            if c > 0:
                b = -(constant // c)
                lo = b if lo is None else max(lo, b)
            elif c < 0:
                b = constant // -c
                hi = b if hi is None else min(hi, b)
        return lo, hi

    def project(self, cons: Iterable[Con], gone: Collection[str]) -> Cons:
        """Constraints without the given names that hold wherever the others exist (perhaps not all of them)."""
        gone = frozenset(gone)
        eqs, rows = self._with_facts(cons)
        symbols = {k for r in (*eqs, *rows) for k in r[0]}
        keep = frozenset(k for k in symbols if k not in gone and not self._names.get(k, frozenset()) & gone)
        left = solved(eqs, rows, keep)
        out = None if left is None else eliminated(left, keep)
        if out is None:
            return (Con(IndexExpr.of(-1)),)
        return self.tidy(Con(self.expr(r)) for r in out)

    def minimal(self, cons: Iterable[Con], context: Cons = ()) -> Cons:
        """The constraints without those that the context and the others imply.

        What bounds an index of entries stays, if only entries imply it: it says which ones are read.
        """
        kept = list(self.tidy(cons))
        inside: set[str] = set()
        if self.one_by_one:
            inside = {n for c in (*context, *kept) for entry in c.e.lookups() for n in entry.index.names}
        for c in list(kept):
            others = [*context, *(k for k in kept if k is not c)]
            if inside & c.e.names and not c.e.lookups():
                others = [k for k in others if not k.e.lookups()]
            if self.implies(others, c):
                kept.remove(c)
        return tuple(kept)

    def limits(self, cons: Cons, dim: str, outer: Collection[str]) -> tuple[list[IndexExpr], list[IndexExpr]]:
        """Lower and upper bounds of a dimension by those outside it: of each list one is attained or all are weaker.

        `cons` are constraints over `outer`, `dim` and parameters only; those that hold `dim` in an opaque symbol do not
        count (they have to be tested).
        """
        lows, highs = self._limits(cons, dim, outer)
        if not (lows and highs) and any(dim in self._hidden(c.e) for c in cons):
            shadow = self._without_hidden(cons, dim)  # k floordiv 2 >= 0 bounds k as well
            lows, highs = (a or b for a, b in zip((lows, highs), self._limits(shadow, dim, outer), strict=True))
        return lows, highs

    def exact_limits(
        self, cons: Cons, dim: str, outer: Collection[str]
    ) -> tuple[list[IndexExpr], list[IndexExpr]] | None:
        """The same where all that the constraints ask of the dimension is to lie between these bounds; None elsewhere."""
        mine = tuple(c for c in cons if dim in c.e.names)
        allowed = {*outer, dim, *self.ctx.params}
        if any(dim in self._hidden(c.e) or not c.e.names <= allowed for c in mine):
            return None
        lows, highs = self._limits(mine, dim, outer)
        return (lows, highs) if lows and highs else None

    def _without_hidden(self, cons: Cons, dim: str) -> Cons:
        """Constraints without opaque symbols that hold `dim`; they hold wherever the given ones do."""
        eqs, rows = self._with_facts(cons)
        keep = frozenset(k for r in (*eqs, *rows) for k in r[0] if dim not in self._names.get(k, frozenset()))
        left = solved(eqs, rows, keep)
        out = None if left is None else eliminated(left, keep)
        return cons if out is None else self.tidy(Con(self.expr(r)) for r in out)

    def _limits(self, cons: Cons, dim: str, outer: Collection[str]) -> tuple[list[IndexExpr], list[IndexExpr]]:
        lows: dict[IndexExpr, None] = {}
        highs: dict[IndexExpr, None] = {}
        allowed = {*outer, dim, *self.ctx.params}
        for con in cons:
            row, constant = self._row(con.e)
            c = row.get(dim, 0)
            if not c or any(dim in self._names.get(k, frozenset()) for k in row):
                continue
            if not con.e.names <= allowed:
                continue
            rest = self.expr(({k: v for k, v in row.items() if k != dim}, constant))
            for sign in (1, -1) if con.eq else (1,):
                if sign * c > 0:
                    lows[divide(DivKind.CEILDIV, rest * -sign, IndexExpr.of(sign * c))] = None
                else:
                    highs[divide(DivKind.FLOORDIV, rest * sign, IndexExpr.of(-sign * c))] = None
        return list(lows), list(highs)

    def strongest(self, bounds: Sequence[IndexExpr], sign: int, context: Cons) -> list[IndexExpr]:
        """The bounds without those that another one makes superfluous; lower bounds for `sign` = 1, upper for -1."""
        kept = list(bounds)
        for b in list(kept):
            if any(o is not b and self.implies(context, Con((o - b) * sign)) for o in kept):
                kept.remove(b)
        return kept


_VALUE = "(value)"


Interval = tuple[int | None, int | None]

ROUNDS = 3
"""How often intervals are handed on from row to row: an entry of an entry needs two."""


def _between(eqs: Iterable[Row], rows: Iterable[Row], start: Mapping[str, Interval]) -> dict[str, Interval]:
    """Between what numbers the symbols of some rows lie, as far as intervals tell; `start` is known before."""
    out = dict(start)
    both = [*rows, *eqs, *(({k: -c for k, c in row.items()}, -constant) for row, constant in eqs)]
    for _ in range(ROUNDS):
        before = dict(out)
        for row, constant in both:
            for name, c in row.items():
                most = constant  # of what stands beside the name
                for other, k in row.items():
                    lo, hi = out.get(other, (None, None))
                    end = hi if k > 0 else lo
                    if other != name and end is None:
                        break
                    most += k * (end or 0) if other != name else 0
                else:
                    lo, hi = out.get(name, (None, None))
                    if c > 0:
                        bound = -(most // c)
                        out[name] = (bound if lo is None else max(lo, bound)), hi
                    else:
                        bound = most // -c
                        out[name] = lo, (bound if hi is None else min(hi, bound))
        if out == before:
            break
    return out
