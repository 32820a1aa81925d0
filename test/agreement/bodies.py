"""What the nodes of generated programs compute: random typed expressions whose values stay small.

Reals are dyadic where no function like `tanh` occurs, so most sums are exact in any order; a recurrence is clamped.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from agreement.values import RANK, Val, lit, name, op

TYPES = ("real", "real", "real", "real", "int", "f32", "bool")


def coerce(v: Val, wanted: str) -> Val:
    """A value as one of a type: widening is left to the language, narrowing is written out."""
    if wanted == "bool":
        return v if v.type == "bool" else op(">", v, lit(0) if v.type == "int" else lit(0.25))
    if RANK[v.type] <= RANK[wanted] or (wanted == "f32" and v.type == "real"):
        return v
    return op("mod", op("floor", v), lit(7))


def small(rng: Random, v: Val, gather: str) -> Val:
    """A summand of a gather: factors must not grow beyond what the type holds."""
    if gather != "*":
        return v
    if v.type == "int":
        return op("mod", v, lit(3))
    if v.type == "bool":
        return v
    return op("?:", op(">", v, lit(0.0)), lit(2.0), lit(0.5)) if rng.random() < 0.5 else clamp(v, 1.5)


def clamp(v: Val, limit: float) -> Val:
    """``min(max(v, -limit), limit)``"""
    return op("min", op("max", v, op("neg", lit(limit))), lit(limit))


def expression(rng: Random, names: Sequence[Val], fields: Sequence[str], type_: str, depth: int) -> Val:
    """A random expression of a type over inputs and variables, and now and then over index fields."""
    if type_ == "bool":
        return _truth(rng, names, fields, depth)
    own = [n for n in names if n.type == type_ or (type_ == "real" and n.type != "bool")]
    if type_ == "int":
        own = [n for n in names if RANK[n.type] <= 1]
    if depth <= 0 or rng.random() < 0.15:
        if own and rng.random() < 0.9:
            return rng.choice(own)
        if type_ == "int":
            return name(rng.choice(fields), "int") if fields and rng.random() < 0.4 else lit(rng.randrange(4))
        if names and not own:
            return coerce(rng.choice(names), type_)
        if type_ == "f32" and own:
            return rng.choice(own)
        return lit(rng.choice((0.5, 1.0, 2.0, 0.25, 1.5)))
    a = expression(rng, names, fields, type_, depth - 1)
    kind = rng.random()
    if kind < 0.55:
        b = expression(rng, names, fields, type_, depth - 1)
        sign = rng.choice(("+", "-", "+", "*"))
        if sign != "*":
            return op(sign, a, b)
        return op("mod", op("*", a, b), lit(rng.choice((5, 7, 16)))) if type_ == "int" else clamp(op("*", a, b), 4.0)
    if kind < 0.68:
        return op("?:", _truth(rng, names, fields, depth - 1), a, expression(rng, names, fields, type_, depth - 1))
    if kind < 0.8:
        return op(rng.choice(("min", "max")), a, expression(rng, names, fields, type_, depth - 1))
    if kind < 0.86:
        return op("abs", a)
    if kind < 0.9:
        return op("neg", a)
    if type_ == "int":
        return op("mod", op("+", a, lit(3)), lit(rng.choice((2, 5, 8))))
    if kind < 0.95:
        return op("*", lit(rng.choice((0.5, 0.25, 2.0))), a)
    return op(rng.choice(("tanh", "sin")), a)


def _truth(rng: Random, names: Sequence[Val], fields: Sequence[str], depth: int) -> Val:
    truths = [n for n in names if n.type == "bool"]
    if truths and (depth <= 0 or rng.random() < 0.5):
        v = rng.choice(truths)
        if depth > 0 and rng.random() < 0.5:
            return op(rng.choice(("&&", "||")), v, _truth(rng, names, fields, depth - 1))
        return op("!", v) if rng.random() < 0.3 else v
    if fields and rng.random() < 0.2:
        return op(rng.choice(("<", "==", ">=")), name(rng.choice(fields), "int"), lit(rng.randrange(4)))
    numbers = [n for n in names if n.type != "bool"]
    if not numbers:
        return rng.choice(truths) if truths else lit(rng.random() < 0.5)
    v = rng.choice(numbers)
    return op(rng.choice(("<", ">", "<=", "==")), v, lit(rng.randrange(3)) if v.type == "int" else lit(0.5))
