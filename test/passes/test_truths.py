"""`by_data/truths.py`: what is left of a condition has its value, under all assignments, and asks no more than before."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import product
from random import Random

import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Operation

import upl_mlir as upl
from upl_mlir.dialects.upl import Gather
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.dialects.upl.query import poly_context
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Apply, Fold, Get, IndexValue, Number, Part, Term, inner_first, made_of
from upl_mlir.passes.loops.transform.by_data.truths import simplify_truths
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Con, Linear

ONE = arith.ConstantOp(IntegerAttr(1, 1))
WIDE = arith.ConstantOp(IntegerAttr(1, 64))
I = IndexExpr.of("i")
SIZE = 3
"""The field `i` is from 0 to 2."""
CONS = (Con(I), Con(IndexExpr.of(SIZE - 1) - I))
BITS = tuple(Get(Kind.BOOL, name, (I,)) for name in "abc")
COUNT = Get(Kind.INT, "k", (I,))
ASKS = {"eq": 0, "ne": 1, "slt": 2, "sle": 3, "sgt": 4, "sge": 5}


def compared(ask: str, a: Term, b: Term) -> Apply:
    return Apply(Kind.BOOL, arith.CmpiOp(WIDE, WIDE, ask), (a, b))


def random_term(r: Random, depth: int) -> Term:
    """A truth value."""
    if not depth:
        index = compared(r.choice(list(ASKS)), IndexValue(I + r.randint(-1, 1)), IndexValue(IndexExpr.of(r.randint(-1, 3))))
        return r.choice([*BITS, *BITS, Number(Kind.BOOL, r.randint(0, 1)), index])
    a, b, c = (random_term(r, depth - 1) for _ in range(3))
    match r.randrange(6):
        case 0:
            return Apply(Kind.BOOL, arith.AndIOp(ONE, ONE), (a, r.choice([a, b])))
        case 1:
            return Apply(Kind.BOOL, arith.OrIOp(ONE, ONE), (a, r.choice([a, b])))
        case 2:
            return Apply(Kind.BOOL, arith.XOrIOp(ONE, ONE), (a, Number(Kind.BOOL, 1)))
        case 3:
            return Apply(Kind.BOOL, arith.SelectOp(ONE, ONE, ONE), (a, b, c))
        case 4:
            wide = Apply(Kind.INT, arith.ExtUIOp(ONE, i64), (r.choice([a, b]),))
            chosen = Apply(Kind.INT, arith.SelectOp(ONE, WIDE, WIDE), (a, Number(Kind.INT, 1), Number(Kind.INT, 0)))
            return compared(r.choice(["eq", "ne"]), chosen, r.choice([wide, Number(Kind.INT, 1), Number(Kind.INT, 0)]))
        case _:
            parts = (Part((), (), a), Part(("p",), (Con(IndexExpr.of("p")), Con(IndexExpr.of(1) - IndexExpr.of("p"))), b))
            return Fold(Kind.BOOL, Gather.OR, parts, None)


def no_entry(array: str, at: int) -> int:
    raise AssertionError((array, at))


def choose(c: int, yes: int, no: int) -> int:
    return yes if c else no


OPERATIONS: dict[type[Operation], Callable[..., int]] = {
    arith.AndIOp: operator.and_, arith.OrIOp: operator.or_, arith.XOrIOp: operator.xor, arith.ExtUIOp: int,
    arith.SelectOp: choose, arith.MinSIOp: min, arith.MaxSIOp: max,
}  # fmt: skip


def value(t: Term, env: dict[str, int]) -> int:
    """By the letter."""
    match t:
        case Number(_, x):
            return int(x)
        case IndexValue(e):
            return e.evaluate(env, no_entry)
        case Get(_, name, _):
            return env[name]
        case Fold(_, gather, parts, _):
            found = [value(p.body, env | dict(zip(p.dims, at, strict=True))) for p in parts
                     for at in product(range(env.get("w", 2)), repeat=len(p.dims))]  # fmt: skip
            return sum(found) if gather is Gather.SUM else int(any(found))
        case Apply(_, op, args):
            x = [value(a, env) for a in args]
            if isinstance(op, arith.CmpiOp):
                a, b = x
                return int([a == b, a != b, a < b, a <= b, a > b, a >= b][op.predicate.value.data])
            return OPERATIONS[type(op)](*x)
        case _:
            pass
    raise AssertionError(t)


def simplified(term: Term, *, counts: bool = False) -> Term:
    """The only equation's term afterwards."""
    ctx = poly_context(upl.load("program p\nparam w >= 0\ninput a { -> N.a }\noutput y\nnode N { in a; a -> y }").read())
    eq = Equation("y", term.kind, ("i",), (CONS,), [(CONS, term)], output=True)
    system = System(Linear(ctx), {"y": eq}, dict.fromkeys("abck", (Kind.BOOL, ("i",), (CONS,))))
    simplify_truths(system, counts=counts)
    ((_, new),) = eq.pieces
    return new


@pytest.mark.parametrize("seed", range(60))
def test_the_value_stays(seed: int) -> None:
    r = Random(seed)
    term = random_term(r, 4)
    new = simplified(term)
    for i, *bits in product(range(SIZE), *[(0, 1)] * 3):
        env = {"i": i, **dict(zip("abc", bits, strict=True))}
        assert value(new, env) == value(term, env), (seed, env)


def test_what_is_known_is_not_asked() -> None:
    a, b, _ = BITS
    yes = Number(Kind.BOOL, 1)

    def both(*x: Term) -> Term:
        return Apply(Kind.BOOL, arith.AndIOp(ONE, ONE), x)

    def either(*x: Term) -> Term:
        return Apply(Kind.BOOL, arith.OrIOp(ONE, ONE), x)

    def negated(x: Term) -> Term:
        return Apply(Kind.BOOL, arith.XOrIOp(ONE, ONE), (x, yes))

    assert len(inner_first(simplified(both(a, both(b, a))), made_of)) == 3
    assert isinstance(simplified(both(either(a, a), negated(both(a, a)))), Number)
    assert isinstance(simplified(compared("sle", IndexValue(IndexExpr.of(0)), IndexValue(I))), Number)
    assert not isinstance(simplified(compared("sle", IndexValue(IndexExpr.of(1)), IndexValue(I))), Number)


def test_an_overflow_is_not_lost() -> None:
    """What is equal to itself is not asked, unless its numbers may overflow, which is an error."""
    more = Apply(Kind.INT, arith.AddiOp(WIDE, WIDE), (COUNT, Number(Kind.INT, 1)))
    assert isinstance(simplified(compared("eq", COUNT, COUNT)), Number)
    assert not isinstance(simplified(compared("eq", more, more)), Number)


def test_how_many_are_less_is_not_counted() -> None:
    p = IndexExpr.of("p")
    one = Apply(Kind.INT, arith.SelectOp(ONE, WIDE, WIDE), (
        compared("slt", IndexValue(p), COUNT), Number(Kind.INT, 1), Number(Kind.INT, 0)
    ))  # fmt: skip
    part = Part(("p",), (Con(p), Con(IndexExpr.of("w") - 1 - p)), one)
    term = Fold(Kind.INT, Gather.SUM, (part,), None)
    assert isinstance(simplified(term), Fold)
    new = simplified(term, counts=True)
    assert not any(isinstance(t, Fold) for t in inner_first(new, made_of))
    for w, k in product(range(4), (-(2**63), -1, 0, 1, 2, 3, 9, 2**63 - 1)):
        assert value(new, {"i": 0, "k": k, "w": w}) == value(term, {"i": 0, "k": k, "w": w}), (w, k)


@pytest.mark.parametrize("ask", ASKS)
def test_what_bounds_say_of_an_index(ask: str) -> None:
    for shift, bound in product((-1, 0, 1), range(-2, 5)):
        term = compared(ask, IndexValue(I + shift), IndexValue(IndexExpr.of(bound)))
        new = simplified(term)
        found = {value(term, {"i": i}) for i in range(SIZE)}
        assert {value(new, {"i": i}) for i in range(SIZE)} == found
        assert isinstance(new, Number) == (len(found) == 1) or ask == "ne", (ask, shift, bound)
