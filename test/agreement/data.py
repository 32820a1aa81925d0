"""Data for generated programs, and their results computed naively: instance by instance, in plain Python.

A value depends on the seed, the input's name and the index only, so the same element has the same value at all sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any

from agreement.model import End, Program
from agreement.naive import Naive, Point, Result, Token
from agreement.values import Number, Val, convert


def element(seed: int, name: str, at: Point, type_: str) -> Number:
    """A small dyadic number, a small integer or a truth value."""
    rng = Random(f"{seed} {name} {at}")
    match type_:
        case "bool":
            return rng.random() < 0.5
        case "int":
            return rng.randrange(-3, 6)
        case _:
            return rng.randrange(-12, 13) / 4


def arrays(program: Program, params: Mapping[str, int], seed: int) -> dict[str, dict[Point, Number]]:
    """Every host input as a dictionary by index."""
    n = Naive(program, params)
    n.widen()
    out: dict[str, dict[Point, Number]] = {}
    for e in program.ends:
        if e.kind == "input":
            at = n.points(e.fields, e.domain) if e.domain is not None else {()}
            out[e.name] = {x: element(seed, e.name, x, e.type) for x in sorted(at)}
    return out


@dataclass
class Computed:
    """Host outputs by index.  `any_order`: every gather has the same result in every order of its summands, exactly;
    `smooth`: a function such as `tanh` occurs, whose last bit is each engine's own."""

    outputs: dict[str, dict[Point, Number]] = field(default_factory=dict[str, "dict[Point, Number]"])
    any_order: bool = True
    smooth: bool = False


class _Evaluator:
    """Values of instances and tokens, each computed once; gathers fold as LANGUAGE 3.10 says for `ordered`."""

    def __init__(self, program: Program, result: Result, given: Mapping[str, Mapping[Point, Number]], params: Mapping[str, int]):
        self.program, self.result, self.given = program, result, given
        self.by_name = {e.name: e for e in program.ends}
        self.constants = {**dict(program.consts), **params}
        place = {(e.name, n): k for k, (e, n, _) in enumerate(program.arrows())}
        self.order = lambda t: (place[t.source, t.number], t.at)
        self.found = Computed()
        self.env = functools.cache(self._env)
        self.covering: dict[tuple[str, str], dict[tuple[int, ...], dict[Point, list[Token]]]] = {}
        for key, tokens in result.tokens.items():
            groups = self.covering.setdefault(key, {})
            for t in tokens:
                known = tuple(k for k, i in enumerate(t.index) if i is not None)
                groups.setdefault(known, {}).setdefault(tuple(t.index[k] for k in known), []).append(t)  # type: ignore

    def tokens(self, end: str, port: str, x: Point) -> list[Token]:
        """The tokens that an instance gets on an input, in the order of folding."""
        found = [
            t for known, groups in self.covering[end, port].items() for t in groups.get(tuple(x[k] for k in known), ())
        ]
        return sorted(found, key=self.order)

    def token(self, t: Token, type_: str) -> Number:
        """What a token carries."""
        source = self.by_name[t.source]
        a = source.arrows[t.number]
        env = self.env(t.source, t.at[: len(source.fields)])
        value = a.value
        if value is not None:
            self._look(value)
            return convert(value.eval(env), type_)
        wanted = a.port if a.port is not None else a.target
        if any(b.name == wanted for b in source.body):
            return convert(env[wanted], type_)
        return convert(env[source.name if source.kind == "input" else source.ports[0].name], type_)

    def _look(self, v: Val) -> None:
        if v.op in ("tanh", "sin", "exp", "sqrt"):
            self.found.smooth = True
        for a in v.args:
            self._look(a)

    def _env(self, end: str, x: Point) -> dict[str, Number]:
        e = self.by_name[end]
        env: dict[str, Number] = {**self.constants, **dict(zip(e.fields, x, strict=True))}
        if e.kind == "input":
            env[e.name] = self.given[e.name][x]
            return env
        for p in e.ports:
            values = [self.token(t, p.type) for t in self.tokens(end, p.name, x)]
            env[p.name] = values[0] if p.op is None else self.fold(p.op, p.type, values)
        for b in e.body:
            self._look(b.value)
            env[b.name] = convert(b.value.eval(env), b.type or b.value.type)
        return env

    def fold(self, op: str, type_: str, values: list[Number]) -> Number:
        """The result of a gather."""
        if type_ in ("real", "f32") and op in ("+", "*") and not _exact(op, type_, values):
            self.found.any_order = False
        match op:
            case "+":
                start, step = 0, lambda a, b: a + b
            case "*":
                start, step = 1, lambda a, b: a * b
            case "&&":
                return all(values)
            case "||":
                return any(values)
            case _:
                if not values:
                    return _nothing(op, type_)
                return min(values) if op == "min" else max(values)
        out = convert(start, type_)
        for v in values:
            out = convert(step(out, v), type_)
        return out


def _nothing(op: str, type_: str) -> Number:
    """The identity of `min` or `max`."""
    if type_ == "int":
        return 2**63 - 1 if op == "min" else -(2**63)
    return float("inf") if op == "min" else float("-inf")


def _exact(op: str, type_: str, values: Iterable[Number]) -> bool:
    """Whether sums (products) of some of the values are all numbers of the type."""
    bits = 53 if type_ == "real" else 24
    parts = [Fraction(v) for v in values]
    if op == "*":
        total = 1
        for p in parts:
            total *= p.numerator
        return abs(total).bit_length() <= bits
    scale = max((p.denominator for p in parts), default=1)
    return sum(abs(p) for p in parts) * scale < 2**bits


def compute(
    program: Program, result: Result, given: Mapping[str, Mapping[Point, Number]], params: Mapping[str, int]
) -> Computed:
    """The host outputs of a right program, by the instances and tokens that `naive.run` found."""
    ev = _Evaluator(program, result, given, params)
    for e in program.ends:
        if e.kind == "node":
            for x in sorted(result.domains[e.name]):
                ev.env(e.name, x)
        elif e.kind == "output":
            ev.found.outputs[e.name] = {
                x: ev.token(ev.tokens(e.name, e.name, x)[0], e.type) for x in sorted(result.domains[e.name])
            }
    return ev.found


def differs(e: End, expected: Mapping[Point, Number], got: Any, origin: Point, *, exact: bool) -> str | None:
    """Where a dense array differs from values by index, None if nowhere; outside the domain it must be 0."""
    import numpy as np

    dense = np.zeros_like(got)
    for x, v in expected.items():
        dense[tuple(i - o for i, o in zip(x, origin, strict=True))] = v
    wide = 1e-5 if got.dtype == np.float32 else 1e-9
    good = np.array_equal(dense, got) if exact else np.allclose(dense, got, rtol=wide, atol=wide)
    return None if good else f"{e.name}: expected {dense.tolist()}, got {got.tolist()}"
