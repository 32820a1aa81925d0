# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""Right-hand sides of equations: what the value of one element of an array is, in terms of other arrays.

A term has index expressions over the equation's fields, the iterators of the folds around it, and parameters.  Terms are
shared, never copied: identity is equality.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from xdsl.ir import Operation

from upl_mlir.dialects.upl import Gather
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Con, Cons


@dataclass(frozen=True, eq=False)
class Number:
    """A literal."""

    kind: Kind
    value: float


@dataclass(frozen=True, eq=False)
class IndexValue:
    """An index expression as an integer value."""

    e: IndexExpr
    kind: Kind = Kind.INT


@dataclass(frozen=True, eq=False)
class Get:
    """An element of an array: of a host port, or of what another equation defines."""

    kind: Kind
    array: str
    index: tuple[IndexExpr, ...]


@dataclass(frozen=True, eq=False)
class Entry:
    """An entry of a constant array at an index that is a value."""

    kind: Kind
    table: str
    at: Term


@dataclass(frozen=True, eq=False)
class Apply:
    """An operation of a body on terms; `op` is the operation as the program has it."""

    kind: Kind
    op: Operation
    args: tuple[Term, ...]


@dataclass(frozen=True, eq=False)
class Convert:
    """A real in the other precision."""

    kind: Kind
    arg: Term


@dataclass(frozen=True, eq=False)
class Part:
    """The summands of one arrow: `body` for every point of `dims` (in this order) that satisfies `cons` and one of
    `guards` (if there are any)."""

    dims: tuple[str, ...]
    cons: Cons
    body: Term
    guards: tuple[Cons, ...] = ()


@dataclass(frozen=True, eq=False)
class Fold:
    """A gather: its parts folded in order.  `count` is the number of summands where that may be none, else None."""

    kind: Kind
    gather: Gather
    parts: tuple[Part, ...]
    count: IndexExpr | None

    @property
    def counted(self) -> IndexExpr | None:
        """The number of summands where none gives another value than the one that a fold starts from."""
        other = self.kind.is_float and repr(float(self.gather.neutral)) != repr(float(self.gather.empty))
        return self.count if other else None


@dataclass(frozen=True, eq=False)
class Choice:
    """The term of the first case whose constraints hold; the last case is taken without a test."""

    kind: Kind
    cases: tuple[tuple[Cons, Term], ...]


Term = Number | IndexValue | Get | Entry | Apply | Convert | Fold | Choice


T = TypeVar("T", bound=Hashable)


def inner_first(whole: T, parts: Callable[[T], Iterable[T]]) -> list[T]:
    """Everything inside of something, and itself, each once and after its parts.

    What is recursive and remembers what it has done is called in this order, so that it goes one step deep only: bodies may
    be thousands of operations long.
    """
    out: list[T] = []
    seen = {whole}
    stack = [(whole, iter(parts(whole)))]
    while stack:
        at, rest = stack[-1]
        for part in rest:
            if part not in seen:
                seen.add(part)
                stack.append((part, iter(parts(part))))
                break
        else:
            out.append(at)
            stack.pop()
    return out


def arguments(t: Term) -> tuple[Term, ...]:
    """The terms that a term applies an operation to; none of a fold or a choice, whose parts have conditions."""
    match t:
        case Apply(_, _, args):
            return args
        case Convert(_, arg) | Entry(_, _, arg):
            return (arg,)
        case _:
            return ()


def names_in(t: Term) -> frozenset[str]:
    """The fields and iterators that a term depends on (not those of folds inside it)."""
    return frozenset[str]().union(*map(_own_names, inner_first(t, arguments)))


def _own_names(t: Term) -> frozenset[str]:
    """The same without those of its arguments."""
    match t:
        case Number():
            return frozenset()
        case IndexValue(e):
            return e.names
        case Get(_, _, index):
            return frozenset(n for e in index for n in e.names)
        case Entry() | Convert() | Apply():
            return frozenset()
        case Fold(_, _, parts, count):
            out = frozenset() if count is None else count.names
            for p in parts:
                inside = names_in(p.body).union(*(c.e.names for c in p.cons), *(c.e.names for g in p.guards for c in g))
                out |= inside - frozenset(p.dims)
            return out
        case Choice(_, cases):
            return frozenset[str]().union(*(names_in(v).union(*(c.e.names for c in cons)) for cons, v in cases))


def alike(a: Term, b: Term) -> bool:
    """Whether two terms are made alike; such as have folds or choices are not taken for it."""
    ways = [inner_first(t, arguments) for t in (a, b)]
    number = [{t: i for i, t in enumerate(way)} for way in ways]
    if len(ways[0]) != len(ways[1]):
        return False
    for x, y in zip(*ways, strict=True):
        if [number[0][t] for t in arguments(x)] != [number[1][t] for t in arguments(y)] or x.kind is not y.kind:
            return False
        match x, y:
            case (Number(), Number()):
                same = repr(x.value) == repr(y.value)
            case (IndexValue(), IndexValue()):
                same = x.e == y.e
            case (Get(), Get()):
                same = (x.array, x.index) == (y.array, y.index)
            case (Entry(), Entry()):
                same = x.table == y.table
            case (Apply(), Apply()):
                same = type(x.op) is type(y.op) and x.op.properties == y.op.properties
            case (Convert(), Convert()):
                same = True
            case _:
                same = False
        if not same:
            return False
    return True


def walk(term: Term, cons: Cons = ()) -> Iterator[tuple[Term, Cons]]:
    """Every term inside, with the constraints under which it is evaluated; shared terms once for each context."""
    seen: set[tuple[int, int]] = set()
    stack: list[tuple[Term, Cons]] = [(term, cons)]
    while stack:
        t, at = stack.pop()
        if (id(t), id(at)) in seen:
            continue
        seen.add((id(t), id(at)))
        yield t, at
        match t:
            case Apply(_, _, args):
                stack += [(a, at) for a in args]
            case Convert(_, arg) | Entry(_, _, arg):
                stack.append((arg, at))
            case Fold(_, _, parts):
                for p in parts:
                    inside = (*at, *p.cons, *(p.guards[0] if len(p.guards) == 1 else ()))
                    stack.append((p.body, inside))
            case Choice(_, cases):
                for when, value in cases:
                    stack.append((value, (*at, *when)))
            case _:
                pass


def rewritten(
    whole: Term, memo: dict[Term, Term], get: Callable[[Get], Term], index: Callable[[IndexExpr], IndexExpr] | None = None
) -> Term:
    """A term with other reads of arrays and, everywhere else, other index expressions."""
    for t in inner_first(whole, made_of):
        if t not in memo:
            memo[t] = remade(t, memo, get, index)
    return memo[whole]


def remade(
    t: Term, memo: Mapping[Term, Term], get: Callable[[Get], Term], index: Callable[[IndexExpr], IndexExpr] | None = None
) -> Term:
    """One term of others, which `memo` has."""

    def under(cons: Cons) -> Cons:
        return cons if index is None else tuple(Con(index(c.e), c.eq) for c in cons)

    match t:
        case Get():
            return get(t)
        case Entry(_, _, arg):
            return replace(t, at=memo[arg])
        case Convert(_, arg):
            return replace(t, arg=memo[arg])
        case Apply(_, _, args):
            return replace(t, args=tuple(memo[a] for a in args))
        case Fold(_, _, parts, count):
            number = count if count is None or index is None else index(count)
            new = (Part(p.dims, under(p.cons), memo[p.body], tuple(map(under, p.guards))) for p in parts)
            return replace(t, parts=tuple(new), count=number)
        case Choice(_, cases):
            return replace(t, cases=tuple((under(when), memo[v]) for when, v in cases))
        case IndexValue(e):
            return t if index is None else replace(t, e=index(e))
        case Number():
            return t


def arrays_in(t: Term) -> set[str]:
    """The arrays of which a term reads elements."""
    return {x.array for x in inner_first(t, made_of) if isinstance(x, Get)}


def made_of(t: Term) -> tuple[Term, ...]:
    """The terms of which a term is made."""
    match t:
        case Fold(_, _, parts):
            return tuple(p.body for p in parts)
        case Choice(_, cases):
            return tuple(v for _, v in cases)
        case _:
            return arguments(t)


def under(t: Term, at: dict[str, IndexExpr]) -> Term:
    """A term whose names are other index expressions."""
    return rewritten(
        t, {}, lambda g: replace(g, index=tuple(e.substitute(at) for e in g.index)), lambda e: e.substitute(at)
    )


def renamed(t: Term, names: Mapping[str, str], memo: dict[Term, Term]) -> Term:
    """A term that reads arrays under other names."""
    return rewritten(t, memo, lambda g: replace(g, array=names[g.array]) if g.array in names else g)
