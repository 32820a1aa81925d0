"""Index expressions and formulas: the text normal form of everything polyhedral.

An `IndexExpr` is an integer polynomial (`polynomial.py`) over *atoms* (names, array entries, integer divisions, minima and
maxima), kept in one normal form so that equal polynomials are equal objects.  A `Formula` is a Boolean combination of
comparisons of such expressions.  Both print as UPL text (LANGUAGE section 2) and are what dialect attributes store;
`sets.py` turns them into isl objects.  Nothing here knows any IR.

The two are in one file as each refers to the other: a conditional expression holds a formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from upl_mlir.poly.counts.polynomial import Polynomial
from upl_mlir.poly.names import Var
from upl_mlir.poly.operators import CmpOp, Connective, DivKind, Extremum


@dataclass(frozen=True)
class Lookup:
    """An entry ``array[index]`` of a constant integer array."""

    array: str
    index: IndexExpr

    def __str__(self) -> str:
        return f"{self.array}[{self.index}]"


@dataclass(frozen=True)
class Div:
    """An integer division by a constant expression."""

    kind: DivKind
    num: IndexExpr
    den: IndexExpr

    def __str__(self) -> str:
        return f"{self.num.text(_FACTOR)} {self.kind.value} {self.den.text(_FACTOR + 1)}"


@dataclass(frozen=True)
class MinMax:
    """The least or the greatest of two or more expressions."""

    kind: Extremum
    args: tuple[IndexExpr, ...]

    def __str__(self) -> str:
        return f"{self.kind.value}({','.join(map(str, self.args))})"


@dataclass(frozen=True)
class Select:
    """``cond ? then : other`` on integers."""

    cond: Formula
    then: IndexExpr
    other: IndexExpr

    def __str__(self) -> str:
        return f"({self.cond} ? {self.then} : {self.other})"


Atom = Var | Lookup | Div | MinMax | Select
Monomial = tuple[Atom, ...]

_SUM, _FACTOR = 0, 1  # binding strength of `+` and of `* floordiv mod`, for parentheses


class IndexExpr(Polynomial[Atom]):
    """An integer polynomial over atoms in normal form.

    Build one with `of`, `var`, `+ - *` and the functions below, never from raw terms.
    """

    # -- construction ------------------------------------------------------------------------------------------
    @staticmethod
    def of(value: int | str | Atom | IndexExpr) -> IndexExpr:
        """An integer, a name, an atom or an expression as an expression."""
        if isinstance(value, IndexExpr):
            return value
        if isinstance(value, int):
            return IndexExpr((((), value),)) if value else IndexExpr()
        return _named(value) if isinstance(value, str) else IndexExpr((((value,), 1),))

    @staticmethod
    def atom_order(atom: Atom) -> tuple[int, str]:
        """Names first, then by the text."""
        return (0 if isinstance(atom, Var) else 1, str(atom))

    @staticmethod
    def monomial_order(monomial: Monomial) -> tuple[int, tuple[tuple[int, str], ...]]:
        """Long ones first."""
        return _monomial_order(monomial)

    # -- inspection --------------------------------------------------------------------------------------------
    @property
    def name(self) -> str | None:
        """The name if the expression is just a name, else None."""
        match self.terms:
            case (((Var(name),), 1),):
                return name
            case _:
                return None

    @cached_property
    def names(self) -> frozenset[str]:
        """All names read, arrays excluded."""
        out: set[str] = set()
        for m, _ in self.terms:
            for atom in m:
                if isinstance(atom, Var):
                    out.add(atom.name)
                else:
                    out.update(part.name for part in atom_parts(atom) if isinstance(part, Var))
        return frozenset(out)

    def atoms(self) -> tuple[Atom, ...]:
        """All atoms, nested ones included, in order."""
        return self._atoms

    @cached_property
    def _atoms(self) -> tuple[Atom, ...]:
        return tuple(part for m, _ in self.terms for atom in m for part in atom_parts(atom))

    def lookups(self) -> tuple[Lookup, ...]:
        """The distinct array entries read, innermost first."""
        return tuple(dict.fromkeys(a for a in self.atoms() if isinstance(a, Lookup)))

    # -- rewriting ---------------------------------------------------------------------------------------------
    def rewrite(self, leaf: Callable[[Atom], IndexExpr | None]) -> IndexExpr:
        """Replace atoms bottom up: `leaf` gives the replacement, or None to keep the (already rewritten) atom."""
        out: dict[Monomial, int] = {}
        for m, c in self.terms:
            if not m:
                out[m] = out.get(m, 0) + c
                continue
            first, *others = m
            if not others and isinstance(first, Var):  # most of what there is
                value = leaf(first)
                if value is None:
                    out[m] = out.get(m, 0) + c
                    continue
                term = value
            else:
                term = _rewrite_atom(first, leaf)
            for atom in others:
                term = term * _rewrite_atom(atom, leaf)
            for new, k in term.terms:
                out[new] = out.get(new, 0) + c * k
        return IndexExpr.sum_of(out)

    def substitute(self, values: Mapping[str, IndexExpr | int | str]) -> IndexExpr:
        """Replace names by expressions."""
        if not (self.names & values.keys()):
            return self
        return self.rewrite(lambda a: IndexExpr.of(values[a.name]) if isinstance(a, Var) and a.name in values else None)

    def replace(self, old: Atom, new: Atom) -> IndexExpr:
        """The expression with one atom in place of another."""
        return self.rewrite(lambda a: IndexExpr.of(new) if a == old else None)

    def evaluate(self, env: Mapping[str, int], lookup: Callable[[str, int], int]) -> int:
        """The value for given names; `lookup(array, i)` reads arrays and may raise."""
        total = 0
        for m, c in self.terms:
            for atom in m:
                c *= _evaluate_atom(atom, env, lookup)
            total += c
        return total

    # -- text --------------------------------------------------------------------------------------------------
    def __str__(self) -> str:
        return self.text()

    def text(self, strength: int = _SUM) -> str:
        """UPL text; parenthesised if it stands where only operators stronger than `strength` may."""
        if not self.terms:
            return "0"
        positive_first = sorted(self.terms, key=lambda t: (not t[0], t[1] < 0 and bool(t[0])))
        if self.terms and positive_first[0][1] < 0 and not positive_first[0][0]:
            positive_first = list(self.terms)
        parts: list[str] = []
        for m, c in positive_first:
            text = _term_text(m, abs(c))
            if c == -1 and not parts and len(m) == 1 and isinstance(m[0], Div):
                text = f"({text})"  # a unary minus binds tighter than a division
            parts.append(("-" if c < 0 else "+" if parts else "") + text)
        out = "".join(parts)
        needs = (len(self.terms) > 1 and strength > _SUM) or (out.startswith("-") and strength > _SUM)
        product = len(self.terms) == 1 and (
            len(self.terms[0][0]) + (abs(self.terms[0][1]) != 1) > 1 or any(isinstance(a, Div) for a in self.terms[0][0])
        )
        if needs or (product and strength > _FACTOR):
            return f"({out})"
        return out


@lru_cache(maxsize=1 << 14)
def _monomial_order(m: Monomial) -> tuple[int, tuple[tuple[int, str], ...]]:
    return (-len(m), tuple(map(IndexExpr.atom_order, m)))


@lru_cache(maxsize=1 << 12)
def _named(name: str) -> IndexExpr:
    """A name as an expression: always the same one, so that most comparisons are of an object with itself."""
    return IndexExpr((((Var(name),), 1),))


def _term_text(m: Monomial, c: int) -> str:
    factors = [f"({a})" if isinstance(a, Div) and (len(m) > 1 or c != 1) else str(a) for a in m]
    if c != 1 or not factors:
        factors.insert(0, str(c))
    return "*".join(factors)


def atom_parts(atom: Atom) -> Iterable[Atom]:
    """The atoms nested in an atom, then the atom itself."""
    match atom:
        case Var():
            pass
        case Lookup(_, index):
            yield from index.atoms()
        case Div(_, num, den):
            yield from num.atoms()
            yield from den.atoms()
        case MinMax(_, args):
            for a in args:
                yield from a.atoms()
        case Select(cond, then, other):
            yield from cond.atoms()
            yield from then.atoms()
            yield from other.atoms()
    yield atom


def _rewrite_atom(atom: Atom, leaf: Callable[[Atom], IndexExpr | None]) -> IndexExpr:
    inner: IndexExpr
    match atom:
        case Var():
            inner = IndexExpr.of(atom)
        case Lookup(array, index):
            inner = IndexExpr.of(Lookup(array, index.rewrite(leaf)))
        case Div(kind, num, den):
            num, den = num.rewrite(leaf), den.rewrite(leaf)
            inner = divide(kind, num, den)
            if inner != IndexExpr.of(Div(kind, num, den)):
                return inner  # what is left of it has been rewritten, once
        case MinMax(kind, args):
            new_args = [a.rewrite(leaf) for a in args]
            inner = extremum(kind, new_args)
            if inner in new_args:
                return inner
        case Select(cond, then, other):
            inner = IndexExpr.of(Select(cond.rewrite(leaf), then.rewrite(leaf), other.rewrite(leaf)))
    if inner.terms and len(inner.terms) == 1 and len(inner.terms[0][0]) == 1:
        new = leaf(inner.terms[0][0][0])
        return inner if new is None else new * inner.terms[0][1]
    return inner


def _evaluate_atom(atom: Atom, env: Mapping[str, int], lookup: Callable[[str, int], int]) -> int:
    match atom:
        case Var(name):
            return env[name]
        case Lookup(array, index):
            return lookup(array, index.evaluate(env, lookup))
        case Div(kind, num, den):
            return kind.apply(num.evaluate(env, lookup), den.evaluate(env, lookup))
        case MinMax(kind, args):
            values = [a.evaluate(env, lookup) for a in args]
            return min(values) if kind is Extremum.MIN else max(values)
        case Select(cond, then, other):
            return (then if cond.evaluate(env, lookup) else other).evaluate(env, lookup)


def divide(kind: DivKind, num: IndexExpr, den: IndexExpr) -> IndexExpr:
    """``num kind den`` with the evident simplifications (literals, multiples of the divisor)."""
    d = den.constant
    if d is not None and d > 0:
        if num.constant is not None:
            return IndexExpr.of(kind.apply(num.constant, d))
        if all(c % d == 0 for m, c in num.terms if m):
            exact = IndexExpr(tuple((m, c // d) for m, c in num.terms if m))
            rest = IndexExpr.of(kind.apply(dict(num.terms).get((), 0), d))
            return rest if kind is DivKind.MOD else exact + rest
    return IndexExpr.of(Div(kind, num, den))


def extremum(kind: Extremum, args: Iterable[IndexExpr]) -> IndexExpr:
    """The least or greatest of the arguments; equal ones and literals are merged."""
    flat: dict[IndexExpr, None] = {}
    literal: int | None = None
    for a in args:
        c = a.constant
        if c is None:
            flat[a] = None
        else:
            literal = c if literal is None else (min if kind is Extremum.MIN else max)(literal, c)
    out = sorted(flat)
    if literal is not None:
        out.insert(0, IndexExpr.of(literal))
    return out[0] if len(out) == 1 else IndexExpr.of(MinMax(kind, tuple(out)))


_NOTHING = IndexExpr()  # both sides of what is no comparison


@dataclass(frozen=True)
class Formula:
    """A comparison, or a Boolean combination of formulas.  The empty conjunction is true, the empty disjunction false."""

    kind: Connective
    args: tuple[Formula, ...] = ()
    op: CmpOp = CmpOp.EQ
    lhs: IndexExpr = _NOTHING
    rhs: IndexExpr = _NOTHING

    def __hash__(self) -> int:
        found = self.__dict__.get("hash")
        if found is None:
            found = self.__dict__["hash"] = hash((self.kind, self.args, self.op, self.lhs, self.rhs))
        return found

    @staticmethod
    def compare(lhs: IndexExpr | int | str, op: CmpOp | str, rhs: IndexExpr | int | str) -> Formula:
        """The comparison ``lhs op rhs``."""
        op = op if isinstance(op, CmpOp) else CmpOp(op)  # an enumeration is slow to look itself up
        return Formula(Connective.CMP, (), op, IndexExpr.of(lhs), IndexExpr.of(rhs))

    @staticmethod
    def all(parts: Iterable[Formula]) -> Formula:
        """The conjunction, flattened, without repetitions."""
        return _combine(Connective.AND, parts)

    @staticmethod
    def any(parts: Iterable[Formula]) -> Formula:
        """The disjunction, flattened, without repetitions."""
        return _combine(Connective.OR, parts)

    def negate(self) -> Formula:
        """The formula that holds exactly where this one does not."""
        match self.kind:
            case Connective.NOT:
                return self.args[0]
            case Connective.CMP:
                return Formula(Connective.CMP, (), self.op.negated, self.lhs, self.rhs)
            case _:
                return Formula(Connective.NOT, (self,))

    def __and__(self, other: Formula) -> Formula:
        return Formula.all((self, other))

    def __or__(self, other: Formula) -> Formula:
        return Formula.any((self, other))

    @property
    def is_true(self) -> bool:
        """Whether this is the empty conjunction."""
        return self.kind is Connective.AND and not self.args

    @property
    def is_false(self) -> bool:
        """Whether this is the empty disjunction."""
        return self.kind is Connective.OR and not self.args

    @property
    def conjuncts(self) -> tuple[Formula, ...]:
        """The parts of a conjunction; the formula itself otherwise."""
        return self.args if self.kind is Connective.AND else (self,)

    def atoms(self) -> tuple[Atom, ...]:
        """All atoms of all expressions."""
        return self._atoms

    @cached_property
    def _atoms(self) -> tuple[Atom, ...]:
        own = (*self.lhs.atoms(), *self.rhs.atoms()) if self.kind is Connective.CMP else ()
        return (*own, *(b for a in self.args for b in a.atoms()))

    @cached_property
    def names(self) -> frozenset[str]:
        """All names read, arrays excluded."""
        return frozenset(a.name for a in self.atoms() if isinstance(a, Var))

    def lookups(self) -> tuple[Lookup, ...]:
        """The distinct array entries read, innermost first."""
        return tuple(dict.fromkeys(a for a in self.atoms() if isinstance(a, Lookup)))

    def rewrite(self, leaf: Callable[[Atom], IndexExpr | None]) -> Formula:
        """Replace atoms in all expressions, as `IndexExpr.rewrite`."""
        if self.kind is Connective.CMP:
            return Formula(Connective.CMP, (), self.op, self.lhs.rewrite(leaf), self.rhs.rewrite(leaf))
        return Formula(self.kind, tuple(a.rewrite(leaf) for a in self.args))

    def substitute(self, values: Mapping[str, IndexExpr | int | str]) -> Formula:
        """Replace names by expressions."""
        if not (self.names & values.keys()):
            return self
        return self.rewrite(lambda a: IndexExpr.of(values[a.name]) if isinstance(a, Var) and a.name in values else None)

    def evaluate(self, env: Mapping[str, int], lookup: Callable[[str, int], int]) -> bool:
        """The truth for given names."""
        match self.kind:
            case Connective.CMP:
                return self.op.holds(self.lhs.evaluate(env, lookup), self.rhs.evaluate(env, lookup))
            case Connective.AND:
                return all(a.evaluate(env, lookup) for a in self.args)
            case Connective.OR:
                return any(a.evaluate(env, lookup) for a in self.args)
            case Connective.NOT:
                return not self.args[0].evaluate(env, lookup)

    def __str__(self) -> str:
        return self.text()

    def text(self, *, domain: bool = False) -> str:
        """UPL text; `domain` separates the parts of a conjunction by commas, as an ``in`` clause does."""
        match self.kind:
            case Connective.CMP:
                return _chain_text([self])
            case Connective.AND:
                if not self.args:
                    return "true"
                groups = _chains(self.args)
                sep = ", " if domain else " && "
                return sep.join(_group_text(g, alone=len(groups) == 1 or domain) for g in groups)
            case Connective.OR:
                return " || ".join(a.text() for a in self.args) if self.args else "false"
            case Connective.NOT:
                return f"!({self.args[0]})"


TRUE = Formula(Connective.AND)
FALSE = Formula(Connective.OR)


def _combine(kind: Connective, parts: Iterable[Formula]) -> Formula:
    flat: dict[Formula, None] = {}
    neutral, absorbing = (TRUE, FALSE) if kind is Connective.AND else (FALSE, TRUE)
    for p in parts:
        if p == absorbing:
            return absorbing
        for q in p.args if p.kind is kind else (p,):
            if q != neutral:
                flat[q] = None
    args = tuple(flat)
    return args[0] if len(args) == 1 else Formula(kind, args)


_RISING = (CmpOp.LE, CmpOp.LT)
_FALLING = (CmpOp.GE, CmpOp.GT)


def _chains(parts: tuple[Formula, ...]) -> list[list[Formula]]:
    """Group neighbours ``a<=b``, ``b<c`` into chains that print as ``a<=b<c``."""
    groups: list[list[Formula]] = []
    for p in parts:
        last = groups[-1][-1] if groups else None
        joins = (
            last is not None
            and last.kind is Connective.CMP
            and p.kind is Connective.CMP
            and last.rhs == p.lhs
            and last.rhs.constant is None
            and any(last.op in d and p.op in d for d in (_RISING, _FALLING))
        )
        if joins:
            groups[-1].append(p)
        else:
            groups.append([p])
    return groups


def _chain_text(group: list[Formula]) -> str:
    return str(group[0].lhs) + "".join(f"{p.op.value}{p.rhs}" for p in group)


def _group_text(group: list[Formula], *, alone: bool) -> str:
    first = group[0]
    if first.kind is Connective.CMP:
        return _chain_text(group)
    text = first.text()
    return f"({text})" if first.kind is Connective.OR and not alone else text
