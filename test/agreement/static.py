"""Integer expressions and conditions of generated programs: evaluated naively, printed as UPL text.

They share nothing with the compiler's `poly.expr`: what a generated program means is known from here alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

Env = Mapping[str, int]
"""Values of fields, iterators, parameters and constants."""
Arrays = Mapping[str, Mapping[int, int]]
"""Constant arrays: name to entries by index."""


class OutOfRange(Exception):
    """An array is read where it has no entry."""


@dataclass(frozen=True)
class Var:
    """A name."""

    name: str


@dataclass(frozen=True)
class Look:
    """An entry of a constant array."""

    array: str
    at: Lin


@dataclass(frozen=True)
class Div:
    """``num floordiv den``, or with `mod` ``num mod den``; den is a positive number, or a sum that is always positive."""

    num: Lin
    den: int | Lin
    mod: bool = False


@dataclass(frozen=True)
class Prod:
    """A product of two sums."""

    left: Lin
    right: Lin


@dataclass(frozen=True)
class Pow:
    """``base**n``"""

    base: Lin
    n: int


@dataclass(frozen=True)
class Call:
    """`min` or `max` of two sums, `abs` of one."""

    name: str
    args: tuple[Lin, ...]


@dataclass(frozen=True)
class Choice:
    """``cond ? then : other``"""

    cond: Cond
    then: Lin
    other: Lin


Atom = Var | Look | Div | Prod | Pow | Call | Choice


@dataclass(frozen=True)
class Lin:
    """A sum of multiples of atoms and a number; terms keep the order in which they were written."""

    const: int = 0
    terms: tuple[tuple[int, Atom], ...] = ()

    def __add__(self, other: Lin | int) -> Lin:
        if isinstance(other, int):
            return Lin(self.const + other, self.terms)
        terms = dict[Atom, int]()
        for c, a in (*self.terms, *other.terms):
            terms[a] = terms.get(a, 0) + c
        return Lin(self.const + other.const, tuple((c, a) for a, c in terms.items() if c))

    def __sub__(self, other: Lin | int) -> Lin:
        return self + (-other if isinstance(other, int) else other.times(-1))

    def times(self, c: int) -> Lin:
        """A multiple."""
        return Lin(self.const * c, tuple((c * k, a) for k, a in self.terms) if c else ())

    def mul(self, other: Lin) -> Lin:
        """A product, kept as written unless one side is a number."""
        if not other.terms:
            return self.times(other.const)
        if not self.terms:
            return other.times(self.const)
        return Lin(0, ((1, Prod(self, other)),))

    def floordiv(self, m: int | Lin) -> Lin:
        """``self floordiv m``"""
        return self if m == 1 else Lin(0, ((1, Div(self, m)),))

    def mod(self, m: int | Lin) -> Lin:
        """``self mod m``"""
        return Lin(0, ((1, Div(self, m, True)),))

    @property
    def is_const(self) -> bool:
        """Whether this is a number."""
        return not self.terms

    @property
    def affine(self) -> bool:
        """Whether this is a sum of names, of array entries at such, and of quotients by numbers."""
        return all(
            (isinstance(a, Div) and isinstance(a.den, int) and a.num.affine) or isinstance(a, Var)
            or (isinstance(a, Look) and a.at.affine and not a.at.arrays())
            for _, a in self.terms
        )  # fmt: skip

    def arrays(self) -> frozenset[str]:
        """The arrays read, but for those in a `Choice`."""
        own = {a.array for _, a in self.terms if isinstance(a, Look)}
        return frozenset(own).union(*(p.arrays() for _, a in self.terms for p in _parts(a)))

    def names(self) -> frozenset[str]:
        """The names read; arrays are not names."""
        out = {a.name for _, a in self.terms if isinstance(a, Var)}
        for _, a in self.terms:
            out |= a.cond.names() if isinstance(a, Choice) else set()
        return frozenset(out).union(*(p.names() for _, a in self.terms for p in _parts(a)))

    def subst(self, values: Mapping[str, Lin]) -> Lin:
        """Names replaced by expressions."""
        out = Lin(self.const)
        for c, a in self.terms:
            match a:
                case Var(name):
                    new = values.get(name, Lin(0, ((1, a),)))
                case Look(array, at):
                    new = Lin(0, ((1, Look(array, at.subst(values))),))
                case Div(num, den, mod):
                    den = den if isinstance(den, int) else den.subst(values)
                    new = Lin(0, ((1, Div(num.subst(values), den, mod)),))
                case Pow(base, n):
                    new = Lin(0, ((1, Pow(base.subst(values), n)),))
                case Call(name, args):
                    new = Lin(0, ((1, Call(name, tuple(x.subst(values) for x in args))),))
                case Choice(cond, then, other):
                    new = Lin(0, ((1, Choice(cond.subst(values), then.subst(values), other.subst(values))),))
                case Prod(left, right):
                    new = left.subst(values).mul(right.subst(values))
            out = out + new.times(c)
        return out

    def eval(self, env: Env, arrays: Arrays) -> int:
        """The value.  Raises OutOfRange."""
        total = self.const
        for c, a in self.terms:
            match a:
                case Var(name):
                    v = env[name]
                case Look(array, at):
                    i = at.eval(env, arrays)
                    if i not in arrays[array]:
                        raise OutOfRange(f"{array}[{i}]")
                    v = arrays[array][i]
                case Div(num, den, mod):
                    n, m = num.eval(env, arrays), den if isinstance(den, int) else den.eval(env, arrays)
                    v = n % m if mod else n // m
                case Pow(base, n):
                    v = base.eval(env, arrays) ** n
                case Call(name, args):
                    v = _CALLS[name](*(x.eval(env, arrays) for x in args))
                case Choice(cond, then, other):
                    v = (then if cond.eval(env, arrays) else other).eval(env, arrays)
                case Prod(left, right):
                    v = left.eval(env, arrays) * right.eval(env, arrays)
            total += c * v
        return total

    def __str__(self) -> str:
        parts = list[str]()
        first = [t for t in self.terms if t[0] > 0] or list(self.terms)
        ordered = first + [t for t in self.terms if t not in first]
        if self.const > 0 and self.terms and all(c < 0 for c, _ in self.terms):
            parts.append(str(self.const))
        for c, a in ordered:
            sign = "-" if c < 0 else "+" if parts else ""
            text = _atom(a, alone=abs(c) == 1 and not parts and len(ordered) == 1 and not self.const and c > 0)
            parts.append(f"{sign}{abs(c)}*{text}" if abs(c) != 1 else f"{sign}{text}")
        if not parts:
            return str(self.const)
        if self.const and not (self.const > 0 and parts[0] == str(self.const)):
            parts.append(f"{self.const:+d}")
        return "".join(parts)


_CALLS: dict[str, Callable[..., int]] = {"min": min, "max": max, "abs": abs}


def _parts(a: Atom) -> tuple[Lin, ...]:
    """The sums that an atom is made of, but for those in a condition."""
    match a:
        case Var():
            return ()
        case Look(_, at):
            return (at,)
        case Div(num, den):
            return (num,) if isinstance(den, int) else (num, den)
        case Prod(left, right):
            return (left, right)
        case Pow(base):
            return (base,)
        case Call(_, args):
            return args
        case Choice(_, then, other):
            return (then, other)


def _atom(a: Atom, *, alone: bool) -> str:
    match a:
        case Var(name):
            return name
        case Look(array, at):
            return f"{array}[{at}]"
        case Div(num, den, mod):
            text = f"{_tight(num)} {'mod' if mod else 'floordiv'} {den if isinstance(den, int) else _tight(den)}"
            return text if alone else f"({text})"
        case Pow(base, n):
            return f"{_tight(base)}**{n}"
        case Call(name, args):
            return f"{name}({', '.join(map(str, args))})"
        case Choice(cond, then, other):
            return f"({cond} ? {then} : {other})"
        case Prod(left, right):
            return f"{_tight(left)}*{_tight(right)}"


def _tight(e: Lin) -> str:
    text = str(e)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def num(c: int) -> Lin:
    """A number."""
    return Lin(c)


def var(name: str) -> Lin:
    """A name."""
    return Lin(0, ((1, Var(name)),))


def look(array: str, at: Lin) -> Lin:
    """``array[at]``"""
    return Lin(0, ((1, Look(array, at)),))


# -- conditions -----------------------------------------------------------------------------------------------------
_NEGATED = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
_HOLDS: dict[str, Callable[[int, int], bool]] = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}  # fmt: skip


@dataclass(frozen=True)
class Cond:
    """Kind "cmp" (left op right), "and", "or", "not"; the empty "and" is true."""

    kind: str
    parts: tuple[Cond, ...] = ()
    left: Lin = Lin()
    op: str = ""
    right: Lin = Lin()

    @property
    def is_true(self) -> bool:
        """Whether this is the empty conjunction."""
        return self.kind == "and" and not self.parts

    def conjuncts(self) -> tuple[Cond, ...]:
        """The parts of a conjunction, else the condition itself."""
        return self.parts if self.kind == "and" else (self,)

    @property
    def affine(self) -> bool:
        """Whether all that is compared is."""
        return self.left.affine and self.right.affine and all(p.affine for p in self.parts)

    def names(self) -> frozenset[str]:
        """The names read."""
        return (self.left.names() | self.right.names()).union(*(p.names() for p in self.parts))

    def subst(self, values: Mapping[str, Lin]) -> Cond:
        """Names replaced by expressions."""
        parts = tuple(p.subst(values) for p in self.parts)
        return Cond(self.kind, parts, self.left.subst(values), self.op, self.right.subst(values))

    def eval(self, env: Env, arrays: Arrays) -> bool:
        """The truth.  Raises OutOfRange; `and` and `or` stop at the first part that decides."""
        match self.kind:
            case "cmp":
                return _HOLDS[self.op](self.left.eval(env, arrays), self.right.eval(env, arrays))
            case "and":
                return all(p.eval(env, arrays) for p in self.parts)
            case "or":
                return any(p.eval(env, arrays) for p in self.parts)
            case _:
                return not self.parts[0].eval(env, arrays)

    def negated(self) -> Cond:
        """De Morgan."""
        match self.kind:
            case "cmp":
                return Cond("cmp", (), self.left, _NEGATED[self.op], self.right)
            case "not":
                return self.parts[0]
            case _:
                return Cond("or" if self.kind == "and" else "and", tuple(p.negated() for p in self.parts))

    def walk(self) -> Iterator[Cond]:
        """This and all that it is made of."""
        yield self
        for p in self.parts:
            yield from p.walk()

    def __str__(self) -> str:
        match self.kind:
            case "cmp":
                return f"{self.left}{self.op}{self.right}"
            case "not":
                return f"!({self.parts[0]})"
            case _:
                if not self.parts:
                    return "true" if self.kind == "and" else "false"
                if len(self.parts) == 1:
                    return str(self.parts[0])
                sign = " && " if self.kind == "and" else " || "
                return sign.join(f"({p})" if p.kind in ("and", "or") and p.kind != self.kind else str(p)
                                 for p in self.parts)  # fmt: skip


TRUE = Cond("and")


def cmp(left: Lin, op: str, right: Lin) -> Cond:
    """A comparison."""
    return Cond("cmp", (), left, op, right)


def conj(*parts: Cond) -> Cond:
    """All of them, flattened."""
    flat = tuple(dict.fromkeys(q for p in parts for q in p.conjuncts() if not q.is_true))
    return flat[0] if len(flat) == 1 else Cond("and", flat)


def domain_text(c: Cond) -> str:
    """A conjunction as an ``in`` clause writes it: `a<=b` and `b<c` that follow each other become a chain."""
    out = list[str]()
    parts = list(c.conjuncts())
    at = 0
    while at < len(parts):
        p = parts[at]
        text = str(p) if p.kind == "cmp" else f"({p})"
        if p.kind == "cmp" and at + 1 < len(parts):
            q = parts[at + 1]
            if q.kind == "cmp" and p.right == q.left and p.op in ("<", "<=") and q.op in ("<", "<="):
                text = f"{text}{q.op}{q.right}"
                at += 1
        out.append(text)
        at += 1
    return ", ".join(out)
