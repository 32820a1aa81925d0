"""Tensor programs: assignments of scalar expressions over affine accesses, with sums over index ranges.

    C[i,j] = sum over k of A[i,k]*B[k,j]

Meaning.  Statements run in order.  A statement computes its right side for every point of its index ranges from the
values that the tensors have *before* it, then assigns.  Elements that no statement assigns keep their value: that of the
input, else 0.  Extents are known numbers; element indices start at 0.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from upl_mlir.diagnostics import Span
from upl_mlir.dialects.upl import Gather, UplType
from upl_mlir.poly.expr import Formula, IndexExpr


@dataclass(frozen=True)
class Read:
    """An element of a tensor; `index` has one expression over the statement's indices for each dimension."""

    tensor: str
    index: tuple[IndexExpr, ...]
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Number:
    """A literal in the program's type."""

    value: int | float
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Position:
    """An affine expression of indices as a number."""

    e: IndexExpr
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Apply:
    """An operation of UPL's expressions on scalars.

    `op` is a binary operator or comparison as UPL writes it (``+``, ``floordiv``, ``<=``, ``&&``), ``neg`` or ``!``, ``?:``
    with three operands, or the name of a function (``exp``).
    """

    op: str
    args: tuple[Expr, ...]
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Sum:
    """The sum of `body` over the ranges of the indices `over`, the last one fastest; or what `op` makes in its place."""

    over: tuple[str, ...]
    body: Expr
    span: Span | None = field(default=None, compare=False)
    op: Gather = Gather.SUM


@dataclass(frozen=True)
class Chain:
    """Sums that one accumulator takes one after the other: all summands of the first part, then those of the next.

    A part that sums over no index is one summand.  `chained` makes these; floats tell them from sums that are added up.
    """

    parts: tuple[Sum, ...]
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Cases:
    """The value beside the first condition on indices that holds, 0 where none does; the others are not evaluated.

    Only programs that have been read back from UPL contain it; `lower` takes no such program.
    """

    cases: tuple[tuple[Formula, Expr], ...]
    span: Span | None = field(default=None, compare=False)


Expr: TypeAlias = Read | Number | Position | Apply | Sum | Chain | Cases


@dataclass(frozen=True)
class Statement:
    """``target[index] = value`` for all points of the ranges of the indices in `index`.

    `ranges` has the least and the greatest value of every index of the statement.  No two points assign one element.
    """

    target: str
    index: tuple[IndexExpr, ...]
    value: Expr
    ranges: Mapping[str, tuple[int, int]]
    span: Span | None = field(default=None, compare=False)

    @property
    def free(self) -> tuple[str, ...]:
        """The indices of the left side, in order of occurrence."""
        return ordered_names(self.index)


@dataclass(frozen=True)
class Derivative:
    """``into[k]`` = the derivative by ``wrt[k]`` of the sum of all elements of `of`, each times its element of the tensor
    `seed`, if there is one.

    A name of `wrt` means the tensor's one assignment.  What other tensors of `wrt` contribute through it counts if the
    derivatives are `total`.  What goes through a tensor of `held` never counts.
    """

    of: str
    wrt: tuple[str, ...]
    into: tuple[str, ...]
    total: bool = False
    seed: str | None = None
    held: tuple[str, ...] = ()
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Carry:
    """``target[names] = value`` for those elements that satisfy `when`; `value` is read at an index over `names`.

    A tensor that has such statements gets its elements from them alone, and may be read as soon as there is one: so loops
    carry it from round to round, ``U[k, i] = first[i] when k == 0`` and ``U[k, i] = next[k - 1, i] when k >= 1``.
    """

    target: str
    names: tuple[str, ...]
    when: Formula
    value: Read
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Branch:
    """``target[names] = condition ? then : otherwise`` for all points of the ranges; only what is chosen is computed.

    All three are expressions over reads, without sums.
    """

    target: str
    names: tuple[str, ...]
    condition: Expr
    then: Expr
    otherwise: Expr
    ranges: Mapping[str, tuple[int, int]]
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class While:
    """States, one for each element: from `first`, each round gives `body`, as long as `condition` holds; the last ones are
    the elements of `targets` (None: nobody needs them).

    `condition` and `body` are expressions over the states, ``Read(STATE + n, index)`` for the n-th.
    """

    targets: tuple[str | None, ...]
    names: tuple[str, ...]
    first: tuple[Expr, ...]
    condition: Expr
    body: tuple[Expr, ...]
    ranges: Mapping[str, tuple[int, int]]
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Pick:
    """``target[names] = source[…]``: of the index of `source`, one place is the number `at` (None in `index`), which is
    data, the others are names.  Where it `wraps`, a number below 0 counts from the end, as in numpy.
    """

    target: str
    names: tuple[str, ...]
    source: str
    index: tuple[str | None, ...]
    at: Read
    ranges: Mapping[str, tuple[int, int]]
    span: Span | None = field(default=None, compare=False)
    wraps: bool = True


@dataclass(frozen=True)
class Scatter:
    """``target[…]`` is all ``value`` (read at the names) whose index in `target` it is, joined by `op`: one place of the
    index is the number `at`, which is data (None in `index`), the others are names; `wraps` as in `Pick`.  Where
    there is none, it is what `op` makes of nothing.
    """

    target: str
    value: Read
    at: Read
    index: tuple[str | None, ...]
    names: tuple[str, ...]
    ranges: Mapping[str, tuple[int, int]]
    span: Span | None = field(default=None, compare=False)
    wraps: bool = True
    op: Gather = Gather.SUM


@dataclass(frozen=True)
class Gate:
    """``target[names] = value`` where `condition` holds, and the element of the tensor `out` where it does not; None where
    nobody needs it.

    `rounds` is the index without a bound, which `out` does not have: for each element of `out` there is one round in which
    the condition does not hold.  `first` is an element that surely comes, for each of `out`.
    """

    target: str | None
    out: str | None
    names: tuple[str, ...]
    rounds: str
    value: Read
    condition: Expr
    first: Read
    ranges: Mapping[str, tuple[int, int]]
    span: Span | None = field(default=None, compare=False)


TensorStatement: TypeAlias = Statement | Derivative | Carry | Branch | While | Gate | Pick | Scatter

STATE = "state "
"""With its number, the name of a state of `While`."""

ENDLESS = sys.maxsize
"""The extent of a dimension without a bound: the rounds of a loop that data end."""


def within(fields: Sequence[str], extents: Sequence[int]) -> Formula:
    """The box of such extents, each from 0."""
    return Formula.all(part for f, n in zip(fields, extents, strict=True) for part in _side(f, 0, n))


def box(fields: Sequence[str], ranges: Mapping[str, tuple[int, int]]) -> Formula:
    """The box of the ranges that fields have."""
    return Formula.all(part for f in fields for part in _side(f, ranges[f][0], ranges[f][1] + 1))


def _side(field: str, low: int, end: int) -> tuple[Formula, ...]:
    lower = Formula.compare(low, "<=", field)
    return (lower,) if end == ENDLESS else (lower & Formula.compare(field, "<", end),)


@dataclass(frozen=True)
class Tensor:
    """A tensor; `shape` is () for a scalar.  `fields` are names for its indices, if somebody has a wish
    ("" where not)."""

    name: str
    shape: tuple[int, ...]
    span: Span | None = field(default=None, compare=False)
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class TensorProgram:
    """A whole program: `inputs` and `outputs` name tensors; one may be both, its output is then called ``NAME_out``."""

    name: str
    type: UplType
    tensors: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    statements: tuple[TensorStatement, ...]
    span: Span | None = field(default=None, compare=False)

    @property
    def assignments(self) -> tuple[Statement, ...]:
        """The ordinary statements."""
        return tuple(s for s in self.statements if isinstance(s, Statement))


def renamed(s: TensorStatement, names: Mapping[str, str]) -> TensorStatement:
    """The statement on other tensors: `names` has the new name of each."""

    def read(r: Read) -> Read:
        return replace(r, tensor=names[r.tensor])

    match s:
        case Statement():
            return replace(s, target=names[s.target], value=_elsewhere(s.value, names))
        case Carry():
            return replace(s, target=names[s.target], value=read(s.value))
        case Derivative():
            wrt, into, held = (tuple(names[n] for n in part) for part in (s.wrt, s.into, s.held))
            return replace(s, of=names[s.of], wrt=wrt, into=into, held=held, seed=s.seed and names[s.seed])
        case Branch():
            condition, then, otherwise = (_elsewhere(e, names) for e in (s.condition, s.then, s.otherwise))
            return replace(s, target=names[s.target], condition=condition, then=then, otherwise=otherwise)
        case While():
            targets, first = tuple(t and names[t] for t in s.targets), tuple(_elsewhere(e, names) for e in s.first)
            return replace(s, targets=targets, first=first)
        case Gate():
            target, out = (t and names[t] for t in (s.target, s.out))
            condition = _elsewhere(s.condition, names)
            return replace(s, target=target, out=out, value=read(s.value), condition=condition, first=read(s.first))
        case Pick():
            return replace(s, target=names[s.target], source=names[s.source], at=read(s.at))
        case Scatter():
            return replace(s, target=names[s.target], value=read(s.value), at=read(s.at))


def _elsewhere(e: Expr, names: Mapping[str, str]) -> Expr:
    """The expression, reading other tensors."""
    match e:
        case Read():
            return replace(e, tensor=names[e.tensor])
        case Number() | Position():
            return e
        case Apply():
            return replace(e, args=tuple(_elsewhere(a, names) for a in e.args))
        case Sum():
            return replace(e, body=_elsewhere(e.body, names))
        case Chain():
            return replace(e, parts=tuple(replace(p, body=_elsewhere(p.body, names)) for p in e.parts))
        case Cases():
            return replace(e, cases=tuple((f, _elsewhere(v, names)) for f, v in e.cases))


def chained(terms: Sequence[tuple[str, Expr]], span: Span | None = None) -> Expr:
    """Terms, each with its sign ``+`` or ``-``, added from left to right as loops do that have one accumulator.

    A sum adds its summands one by one to what is there; so it is part of a `Chain`, unless it stands first and alone.
    What stands before it is one summand, what stands after all sums is added to the result.  A summand that is
    subtracted is added as its negative, which rounds alike.
    """
    sums = [at for at, (_, t) in enumerate(terms) if isinstance(t, Sum)]
    lead = sums[0] if sums else len(terms)
    end = sums[-1] + 1 if sums else lead
    parts = [_added(terms[:lead], span)] if lead else []
    parts += [t if sign == "+" else _negative(t, span) for sign, t in terms[lead:end]]
    out = parts[0] if len(parts) == 1 else Chain(tuple(p if isinstance(p, Sum) else Sum((), p) for p in parts), span)
    return _added([("+", out), *terms[end:]], span)


def _added(terms: Sequence[tuple[str, Expr]], span: Span | None) -> Expr:
    (sign, out), *rest = terms
    out = out if sign == "+" else _negative(out, span)
    for sign, t in rest:
        out = Apply(sign, (out, t), span)
    return out


def _negative(e: Expr, span: Span | None) -> Expr:
    return replace(e, body=_negative(e.body, span)) if isinstance(e, Sum) else Apply("neg", (e,), span)


def walk(e: Expr) -> Iterator[Expr]:
    """The expression and all its parts, left to right, parts first."""
    match e:
        case Apply(args=args):
            for a in args:
                yield from walk(a)
        case Sum(body=body):
            yield from walk(body)
        case Chain(parts=parts):
            for p in parts:
                yield from walk(p)
        case Cases(cases=cases):
            for _, value in cases:
                yield from walk(value)
        case Read() | Number() | Position():
            pass
    yield e


def ordered_names(exprs: tuple[IndexExpr, ...]) -> tuple[str, ...]:
    """The names in expressions, in order of first occurrence."""
    out: dict[str, None] = {}
    for e in exprs:
        out |= dict.fromkeys(sorted(e.names, key=lambda n: _place(e, n)))
    return tuple(out)


def _place(e: IndexExpr, name: str) -> int:
    text = str(e)
    return next((i for i in range(len(text)) if text.startswith(name, i)), len(text))


def free_names(e: Expr) -> frozenset[str]:
    """The indices that an expression depends on; those it sums over are bound."""
    match e:
        case Read(index=index):
            return frozenset(n for i in index for n in i.names)
        case Number():
            return frozenset()
        case Position(e=at):
            return at.names
        case Apply(args=args):
            return frozenset(n for a in args for n in free_names(a))
        case Sum(over=over, body=body):
            return free_names(body) - set(over)
        case Chain(parts=parts):
            return frozenset(n for p in parts for n in free_names(p))
        case Cases(cases=cases):
            return frozenset(n for f, v in cases for n in (*f.names, *free_names(v)))
