"""How far results may lie from those of `ordered`, where an engine may add and multiply in any order (LANGUAGE 3.10).

A sum of n summands x may differ by n·ε·Σ|x| from the one folded in order, and its summands may differ already; from there
on the bound follows the program, operation by operation, as in a running error analysis (Wilkinson).  Where it cannot say
which way a comparison goes, or what a floor is, it is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from agreement.values import RANK, Number, Val

EPSILON = {"real": 2.0**-52, "f32": 2.0**-23}
FUNCTION_ULPS = 4.0
"""What two engines' functions may differ by, at most: each states 1.5 ulp or less."""
_STEEP = {"tanh": 1.0, "sin": 1.0}


def apart(v: Val, env: Mapping[str, Number], near: Mapping[str, float]) -> float:
    """How far two values of an expression may be apart, if those of its names are as far apart as `near` says."""
    if v.op == "lit":
        return 0.0
    if v.op == "name":
        return near.get(str(v.what), 0.0)
    if v.op == "?:":
        if apart(v.args[0], env, near):
            return math.inf
        return _rounded(v, env, apart(v.args[1] if v.args[0].eval(env) else v.args[2], env, near))
    d = [apart(a, env, near) for a in v.args]
    if v.op in ("tanh", "sin", "exp", "sqrt"):
        return _function(v, env, d[0])
    if not any(d):
        return 0.0
    if any(map(math.isinf, d)):
        return math.inf
    a = [float(x.eval(env)) for x in v.args]
    match v.op:
        case "+" | "-":
            out = d[0] + d[1]
        case "neg" | "abs":
            return d[0]
        case "*":
            out = abs(a[0]) * d[1] + abs(a[1]) * d[0] + d[0] * d[1]
        case "min" | "max":
            return max(d)
        case "<" | "<=" | ">" | ">=" | "==" | "!=":
            return math.inf if abs(a[0] - a[1]) <= d[0] + d[1] else 0.0
        case "floor" | "int":
            edge = min(a[0] - math.floor(a[0]), math.floor(a[0]) + 1 - a[0])
            return math.inf if edge <= d[0] else 0.0
        case _:  # quotients, and logic that turns on a comparison
            return math.inf
    return _rounded(v, env, out)


def _function(v: Val, env: Mapping[str, Number], d: float) -> float:
    value = abs(float(v.eval(env)))
    slack = FUNCTION_ULPS * EPSILON[v.type] * value
    if not d:
        return slack
    if v.op in _STEEP:
        return _STEEP[v.op] * d + slack
    return value * math.expm1(min(d, 700.0)) + slack if v.op == "exp" else math.inf


def _rounded(v: Val, env: Mapping[str, Number], d: float) -> float:
    """With the rounding of both results, which differ if their operands do."""
    if not d or RANK[v.type] < RANK["f32"]:
        return d
    return d + EPSILON[v.type] * (abs(float(v.eval(env))) + d)


def converted(d: float, value: Number, type_: str) -> float:
    """The same for a value converted to a type."""
    return d + EPSILON[type_] * (abs(float(value)) + d) if d and type_ == "f32" else d


def gathered(op: str, type_: str, values: Sequence[Number], near: Sequence[float]) -> float:
    """How far the result of a gather may be from the one folded in order."""
    if type_ not in EPSILON or op not in ("+", "*"):
        return max(near, default=0.0) if op in ("min", "max") else math.inf if any(near) else 0.0
    n = len(values) if len(values) > 1 else 0
    sizes = [abs(float(v)) + d for v, d in zip(values, near, strict=True)]
    if any(map(math.isinf, sizes)):
        return math.inf
    if op == "+":
        return sum(near) + n * EPSILON[type_] * sum(sizes)
    exact = math.prod(abs(float(v)) for v in values)
    return math.prod(sizes) - exact + n * EPSILON[type_] * math.prod(sizes)
