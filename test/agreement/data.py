"""Data for generated programs, and their results computed naively: instance by instance, in plain Python.

A value depends on the seed, the input's name and the index only, so the same element has the same value at all sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

from agreement.model import Program
from agreement.naive import Naive, Point, Result, Token
from agreement.rounding import apart, converted, gathered
from agreement.values import RANK, Number, Val, convert


def element(seed: int, name: str, at: Point, type_: str, *, noise: bool = False) -> Number:
    """A small dyadic number, a small integer or a truth value; `noise` makes reals that are not dyadic."""
    rng = Random(f"{seed} {name} {at}")
    match type_:
        case "bool":
            return rng.random() < 0.5
        case "int":
            return rng.randrange(-3, 6)
        case _:
            return convert(rng.randrange(-12, 13) / 4 + (rng.uniform(-0.1, 0.1) if noise else 0.0), type_)


def arrays(program: Program, params: Mapping[str, int], seed: int, *, noise: bool = False) -> dict[str, dict[Point, Number]]:
    """Every host input as a dictionary by index."""
    n = Naive(program, params)
    n.widen()
    out: dict[str, dict[Point, Number]] = {}
    for e in program.ends:
        if e.kind == "input":
            at = n.points(e.fields, e.domain) if e.domain is not None else {()}
            out[e.name] = {x: element(seed, e.name, x, e.type, noise=noise) for x in sorted(at)}
    return out


@dataclass
class Computed:
    """Host outputs by index.  `any_order`: every gather has the same result in every order of its summands, exactly;
    `exact_single`: also where `real` is f32; `smooth`: a function such as `tanh` occurs, whose last bit is each
    engine's own; `apart`: how far from the outputs those of another order of summands may be (`rounding`)."""

    outputs: dict[str, dict[Point, Number]] = field(default_factory=dict[str, "dict[Point, Number]"])
    tangents: dict[str, dict[Point, float]] = field(default_factory=dict[str, "dict[Point, float]"])
    apart: dict[str, dict[Point, float]] = field(default_factory=dict[str, "dict[Point, float]"])
    any_order: bool = True
    exact_single: bool = True
    smooth: bool = False


Directions = Mapping[str, Mapping[Point, float]]
"""How host inputs move: the derivative of each element along the direction; inputs left out stand still."""


class _Evaluator:
    """Values of instances and tokens, each computed once; gathers fold as LANGUAGE 3.10 says for `ordered`."""

    def __init__(
        self, program: Program, result: Result, given: Mapping[str, Mapping[Point, Number]], params: Mapping[str, int],
        moves: Directions,
    ):  # fmt: skip
        self.program, self.result, self.given, self.moves = program, result, given, moves
        self.by_name = {e.name: e for e in program.ends}
        self.constants = {**dict(program.consts), **params}
        place = {(e.name, n): k for k, (e, n, _) in enumerate(program.arrows())}
        self.order: Callable[[Token], object] = lambda t: (place[t.source, t.number], t.at)
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

    def token(self, t: Token, type_: str) -> tuple[Number, float, float]:
        """What a token carries, its derivative, and how far from it another order of summands may come."""
        source = self.by_name[t.source]
        a = source.arrows[t.number]
        env, moves, near = self.env(t.source, t.at[: len(source.fields)])
        value = a.value
        if value is None:
            wanted = a.port if a.port is not None else a.target
            if not any(b.name == wanted for b in source.body):
                wanted = source.name if source.kind == "input" else source.ports[0].name
            v = convert(env[wanted], type_)
            return v, moves.get(wanted, 0.0) if RANK[type_] >= 2 else 0.0, converted(near.get(wanted, 0.0), v, type_)
        self._look(value)
        v = convert(value.eval(env), type_)
        move = value.tangent(env, moves) if self.moves and RANK[type_] >= 2 else 0.0
        return v, move, converted(apart(value, env, near), v, type_)

    def _look(self, v: Val) -> None:
        if v.op in ("tanh", "sin", "exp", "sqrt"):
            self.found.smooth = True
        for a in v.args:
            self._look(a)

    def _env(self, end: str, x: Point) -> tuple[dict[str, Number], dict[str, float], dict[str, float]]:
        e = self.by_name[end]
        env: dict[str, Number] = {**self.constants, **dict(zip(e.fields, x, strict=True))}
        moves: dict[str, float] = {}
        near: dict[str, float] = {}
        if e.kind == "input":
            env[e.name] = self.given[e.name][x]
            moves[e.name] = self.moves.get(e.name, {}).get(x, 0.0)
            return env, moves, near
        for p in e.ports:
            tokens = [self.token(t, p.type) for t in self.tokens(end, p.name, x)]
            values = [v for v, _, _ in tokens]
            env[p.name] = values[0] if p.op is None else self.fold(p.op, p.type, values)
            moves[p.name] = tokens[0][1] if p.op is None else _fold_moves(p.op, values, [m for _, m, _ in tokens])
            near[p.name] = tokens[0][2] if p.op is None else gathered(p.op, p.type, values, [d for _, _, d in tokens])
        for b in e.body:
            self._look(b.value)
            type_ = b.type or b.value.type
            moves[b.name] = b.value.tangent(env, moves) if self.moves and RANK[type_] >= 2 else 0.0
            near[b.name] = apart(b.value, env, near)
            env[b.name] = convert(b.value.eval(env), type_)
            near[b.name] = converted(near[b.name], env[b.name], type_)
        return env, moves, near

    def fold(self, op: str, type_: str, values: list[Number]) -> Number:
        """The result of a gather."""
        if type_ in ("real", "f32") and op in ("+", "*") and not _exact(op, type_, values):
            self.found.any_order = False
        if type_ in ("real", "f32") and op in ("+", "*") and not _exact(op, "f32", values):
            self.found.exact_single = False
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


def _fold_moves(op: str, values: list[Number], moves: list[float]) -> float:
    """The derivative of a gather's result; ties of `min` and `max` share equally."""
    match op:
        case "+":
            return sum(moves)
        case "*":
            total = 0.0
            for n, m in enumerate(moves):
                for k, v in enumerate(values):
                    m *= v if k != n else 1.0
                total += m
            return total
        case "min" | "max" if values:
            best = min(values) if op == "min" else max(values)
            ties = [m for v, m in zip(values, moves, strict=True) if v == best]
            return sum(ties) / len(ties)
        case _:
            return 0.0


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
    program: Program, result: Result, given: Mapping[str, Mapping[Point, Number]], params: Mapping[str, int],
    moves: Directions | None = None,
) -> Computed:  # fmt: skip
    """The host outputs of a right program, by the instances and tokens that `naive.run` found."""
    ev = _Evaluator(program, result, given, params, moves or {})
    for e in program.ends:
        if e.kind == "node":
            for x in sorted(result.domains[e.name]):
                ev.env(e.name, x)
        elif e.kind == "output":
            tokens = {x: ev.token(ev.tokens(e.name, e.name, x)[0], e.type) for x in sorted(result.domains[e.name])}
            ev.found.outputs[e.name] = {x: v for x, (v, _, _) in tokens.items()}
            ev.found.tangents[e.name] = {x: m for x, (_, m, _) in tokens.items()}
            ev.found.apart[e.name] = {x: d for x, (_, _, d) in tokens.items()}
    return ev.found
