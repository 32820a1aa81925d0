# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""What a block knows of conditions on data: whether a value that data give is at most an index.

Where a loop is divided at such a value (`split.py`), each of its parts knows the answers, so that nothing is asked in it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops.emit.code import Code
from upl_mlir.passes.loops.matches import AT_MOST, LESS, Match, index_and_value
from upl_mlir.passes.loops.terms import Apply, Get, IndexValue, Number, Term
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Con, Linear

MORE, AT_LEAST = 4, 5
"""The predicates `sgt` and `sge` of `arith.cmpi`."""

Env = Mapping[str, IndexExpr]


@dataclass(frozen=True, eq=False)
class AtMost:
    """The question whether a value, which means what it does under `env`, is at most an index; `holds`: it, or its opposite.

    `key` is the same for questions that are alike, `of` for values that are.
    """

    value: Term
    env: Env
    of: Hashable
    index: IndexExpr
    holds: bool
    total: Apply | None = None
    """The sum that the program compares, if it compares no index with the value itself."""

    @property
    def key(self) -> Hashable:
        """What the answer is found by."""
        return self.of, self.index


class Known:
    """Answers questions from what the blocks round the one that is being written know."""

    def __init__(self, code: Code, lin: Linear):
        self.code, self.lin = code, lin

    # -- answers --------------------------------------------------------------------------------------------------------
    def truth(self, t: Term, env: Env) -> bool | None:
        """A truth value, if it is known."""
        if t.kind is not Kind.BOOL:
            return None
        match t:
            case Number(_, value):
                return bool(int(value) & 1)
            case Apply(_, arith.AndIOp() | arith.OrIOp() as op, (a, b)):
                settles = isinstance(op, arith.OrIOp)
                both = self.truth(a, env), self.truth(b, env)
                return settles if settles in both else None if None in both else not settles
            case Apply(_, arith.XOrIOp(), (a, b)):
                one, other = self.truth(a, env), self.truth(b, env)
                return None if one is None or other is None else one is not other
            case Apply(_, arith.CmpiOp(), _):
                found = self.asked(t, env)
                return self._static(t, env) if found is None else self.answer(found)
            case _:
                return None

    def answer(self, q: AtMost) -> bool | None:
        """The answer to a question, if it is known."""
        found = self.code.fact(q.key)
        return None if found is None else found is q.holds

    def within(self, questions: Sequence[AtMost]) -> bool | None:
        """Whether the answers to all are yes, if it is known."""
        found = [self.answer(q) for q in questions]
        return False if False in found else None if None in found else True

    def _static(self, t: Apply, env: Env) -> bool | None:
        """The answer to a comparison of indices."""
        assert isinstance(t.op, arith.CmpiOp)
        sides = [index_of(a) for a in t.args]
        asks = t.op.predicate.value.data
        if None in sides or asks not in _LEAST:
            return None
        a, b = (self.plain(e, env) for e in sides if e is not None)
        low, high, by = (a, b, _LEAST[asks]) if asks in (LESS, AT_MOST) else (b, a, _LEAST[asks])
        context = self.code.scope.context
        if self.lin.implies(context, Con(high - low - by)):
            return True
        return False if self.lin.implies(context, Con(low - high + by - 1)) else None

    # -- questions ------------------------------------------------------------------------------------------------------
    def asked(self, t: Term, env: Env) -> AtMost | None:
        """What a comparison of an index with a value asks."""
        if not isinstance(t, Apply) or not isinstance(t.op, arith.CmpiOp) or t.args[0].kind is not Kind.INT:
            return None
        asks = t.op.predicate.value.data
        if asks not in _LEAST:
            return None
        low, high = t.args if asks in (LESS, AT_MOST) else t.args[::-1]
        for side, other, sign in ((low, high, -1), (high, low, 1)):
            index = index_of(other)
            if index is not None and index_of(side) is None:
                beside, value = index_and_value(side)
                total = side if value is not side and isinstance(side, Apply) else None
                return self._question(value, sign, (index - beside) * -sign - _LEAST[asks], env, total)
        return None

    def picked(
        self, m: Match, lows: Sequence[IndexExpr], highs: Sequence[IndexExpr], env: Env
    ) -> tuple[AtMost, ...] | None:
        """What is asked of an index that data choose: whether it lies between bounds.  None if that is not so simple."""
        at = -m.rest * m.sign
        ends = (*((at - self._plain(b), m.sign) for b in lows), *((self._plain(b) - at, -m.sign) for b in highs))
        found = [self._question(m.value, sign, e, env, None) for e, sign in ends]
        return None if None in found else tuple(q for q in found if q is not None)

    def _question(self, value: Term, sign: int, e: IndexExpr, env: Env, total: Apply | None) -> AtMost | None:
        """Whether ``e + sign * value`` is at least 0."""
        of = self.same(value, env)
        e = self.plain(e, env)
        if of is None:
            return None
        return AtMost(value, env, of, e, True, total) if sign < 0 else AtMost(value, env, of, -e - 1, False, total)

    def same(self, t: Term, env: Env) -> Hashable | None:
        """What is equal for values that are computed alike from the same elements."""
        match t:
            case Number(kind, value):
                return kind, repr(value)
            case IndexValue(e):
                return self.plain(e, env)
            case Get(_, array, index):
                return (array, *(self.plain(e, env) for e in index))
            case Apply(kind, op, args):
                parts = [self.same(a, env) for a in args]
                properties = tuple((n, str(p)) for n, p in sorted(op.properties.items()))
                return None if None in parts else (kind, type(op), properties, *parts)
            case _:
                return None

    def plain(self, e: IndexExpr, env: Env) -> IndexExpr:
        """An index whose names mean `env`."""
        return self._plain(e.substitute(dict(env)))

    def _plain(self, e: IndexExpr) -> IndexExpr:
        return self.lin.plain(e)


_LEAST = {LESS: 1, AT_MOST: 0, MORE: 1, AT_LEAST: 0}
"""By how much the greater side of a comparison is greater at least."""


def index_of(t: Term) -> IndexExpr | None:
    """The index that an integer term is."""
    match t:
        case Number(Kind.INT, value):
            return IndexExpr.of(int(value))
        case IndexValue(e):
            return e
        case _:
            return None


def noted(m: Match) -> Hashable:
    """What says that an overflow of the sum that is compared was noted before."""
    return "noted", id(m)
