"""Random programs whose ways data decide, each with the same computation in JAX: values, gradients and second derivatives.

A program is a chain of stages; a stage is an array of reals, one node instance for each element, and says how it is made of
one or two stages before: by elements that an index array chooses, by sums, products or extrema scattered to places that data
choose, by branches, by loops that data end, by multicasts into instances that data choose.

    w = ways(7)
    w.text, w.arrays, w.params, w.wrt          # the program, its data, the inputs to differentiate by
    w.value(*[w.arrays[n] for n in w.wrt])     # its output Y in JAX
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

Value = Callable[[dict[str, Any]], Any]
"""What a stage computes in JAX, from the host inputs by name."""
LOW, HIGH = -1e30, 1e30
"""What an extremum of nothing lies beyond."""


def _jnp() -> Any:
    """JAX's arrays, imported where a value is asked for: the texts need none."""
    import jax.numpy

    return jax.numpy


@dataclass
class Stage:
    """An array of `size` reals: a node, or a host input, with the variable `v` that consumers send."""

    name: str
    size: int
    value: Value
    arrows: list[str] = field(default_factory=list[str])


@dataclass
class Ways:
    """A program and its data; `value` takes the arrays of `wrt` and gives the output in JAX."""

    text: str
    value: Callable[..., Any]
    seed: int
    wrt: tuple[str, ...]
    arrays: dict[str, Any]
    patterns: tuple[str, ...]


class _Maker:
    def __init__(self, seed: int):
        self.rng = Random(f"ways {seed}")
        self.np: Any = np.random.default_rng(seed)
        self.stages: list[Stage] = []
        self.inputs: list[tuple[str, str]] = []  # head and body of host inputs that are data
        self.nodes: list[Callable[[], str]] = []
        self.arrays: dict[str, Any] = {}
        self.wrt: list[str] = []
        self.count = 0

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def reals(self, size: int) -> Stage:
        name = self.fresh("X")
        self.arrays[name] = self.np.normal(size=size)
        self.wrt.append(name)
        stage = Stage(name, size, lambda given: given[name])
        self.nodes.append(lambda: f"input {name}<i> in 0<=i<{size} {{\n  " + "\n  ".join(_own(stage, name)) + "\n}")
        self.stages.append(stage)
        return stage

    def integers(self, values: Any, arrow: str) -> str:
        """A host input of integers; `@` in the arrow stands for its name."""
        name = self.fresh("K")
        self.arrays[name] = np.asarray(values, np.int64)
        size = len(self.arrays[name])
        self.nodes.append(lambda: f"input {name}<i>: int in 0<=i<{size} {{ {arrow.replace('@', name)} }}")
        return name

    def node(self, head: str, lines: list[str]) -> None:
        self.nodes.append(lambda: f"node {head} {{\n  " + "\n  ".join(lines) + "\n}")

    def stage(self, inputs: str, body: str, size: int, value: Value) -> Stage:
        """A node `B<i>` with inputs and a body that ends in `v`."""
        name = self.fresh("B")
        stage = Stage(name, size, value)
        head = f"{name}<i> in 0<=i<{size}"
        self.nodes.append(lambda: f"node {head} {{\n  in {inputs}\n  v = {body}\n  " + "\n  ".join(stage.arrows) + "\n}")
        self.stages.append(stage)
        return stage

    def smooth(self) -> tuple[str, Callable[[Any], Any]]:
        """A function of one real, as text over `x` and in JAX."""
        c = self.rng.choice((0.5, 1.25, -0.75))
        return self.rng.choice((
            (f"{c}*x + 0.25", lambda x: c * x + 0.25),
            ("sin(x)", lambda x: _jnp().sin(x)),
            (f"x*x*{c}", lambda x: x * x * c),
            ("tanh(x) + x", lambda x: _jnp().tanh(x) + x),
            ("exp(0.25*x)", lambda x: _jnp().exp(0.25 * x)),
        ))  # fmt: skip


def _own(stage: Stage, value: str) -> list[str]:
    return [re.sub(r"\bv\b", value, a) for a in stage.arrows]


# -- how a stage is made -------------------------------------------------------------------------------------------------


def _map(m: _Maker, a: Stage) -> Stage:
    text, f = m.smooth()
    b = m.stage("x", text, a.size, lambda g: f(a.value(g)))
    a.arrows.append(f"v -> {b.name}.x<i>")
    return b


def _two(m: _Maker, a: Stage) -> Stage:
    """Two stages multiplied element by element; the shorter one goes round."""
    c = m.rng.choice(m.stages)
    n = min(a.size, c.size)
    b = m.stage("x, y", "x*y + 0.5*x", n, lambda g: a.value(g)[:n] * c.value(g)[:n] + 0.5 * a.value(g)[:n])
    a.arrows.append(f"if i<{n}: v -> {b.name}.x<i>")
    c.arrows.append(f"if i<{n}: v -> {b.name}.y<i>")
    return b


def _take(m: _Maker, a: Stage) -> Stage:
    """Elements that an index array chooses."""
    text, f = m.smooth()
    at = m.np.integers(0, a.size, m.rng.randrange(1, 6))
    t = m.fresh("T")
    b = m.stage("x", text, len(at), lambda g: f(a.value(g)[at]))
    m.integers(at, f"-> {t}.e<@,i>")
    m.node(f"{t}<j,i>", ["in x, e: int", f"x -> {b.name}.x<i>"])
    a.arrows.append(f"v ## -> {t}.x<i,*>")
    return b


def _embed(m: _Maker, a: Stage) -> Stage:
    """Rows of a table that an index array chooses, added up along the row: a multicast of what data choose."""
    at = m.np.integers(0, a.size, m.rng.randrange(1, 5))
    wide = m.rng.randrange(1, 4)
    t, w = m.fresh("T"), m.reals(wide)
    b = m.stage("@(+) s[##]", "s", len(at), lambda g: a.value(g)[at] * w.value(g).sum())
    k = m.fresh("N")
    m.integers(at, f"-> {k}.k<i>")
    m.node(f"{k}<i>", ["in k: int", f"k -> {t}.e<k,i,p> for p in 0..{wide - 1}"])
    m.node(f"{t}<j,i,p>", ["in x, w, e: int", f"x*w -> {b.name}.s<i>"])
    a.arrows.append(f"v ## -> {t}.x<i,*,*>")
    w.arrows.append(f"v ## -> {t}.w<*,*,i>")
    return b


def _placed(m: _Maker, a: Stage, at: Any, arrow: str) -> None:
    """A node that sends each element `x` by an arrow whose index reads `k`, from the array `at`."""
    s = m.fresh("S")
    m.integers(at, f"-> {s}.k<i>")
    m.node(f"{s}<i>", ["in x, k: int", arrow])
    a.arrows.append(f"v -> {s}.x<i>")


def _scatter(m: _Maker, a: Stage) -> Stage:
    """Summands to places that data choose, perhaps only those that are positive, perhaps to two places each."""
    op = m.rng.choice(("+", "+", "*", "max", "min"))
    size = m.rng.randrange(1, 6)
    at = m.np.integers(0, size, a.size)
    some, two = m.rng.random() < 0.4, m.rng.random() < 0.3
    body = {"max": f"s < {LOW} ? 0 : s", "min": f"s > {HIGH} ? 0 : s"}.get(op, "s")

    def value(g: dict[str, Any]) -> Any:
        x = a.value(g)
        out: list[Any] = [[] for _ in range(size + two)]
        for i, k in enumerate(at):
            if not some or x[i] > 0:
                for d in range(1 + two):
                    out[k + d].append(x[i])
        empty = {"*": 1.0}.get(op, 0.0)
        fold = {"+": _jnp().sum, "*": _jnp().prod, "max": _jnp().max, "min": _jnp().min}[op]
        return _jnp().stack([fold(_jnp().stack(c)) if c else _jnp().asarray(empty) for c in out])

    b = m.stage(f"@({op}) s[##]", body, size + two, value)
    place = f"{b.name}.s<k + d> for d in 0..1" if two else f"{b.name}.s<k>"
    _placed(m, a, at, f"{'if x > 0: ' if some else ''}x -> {place}")
    return b


def _counted(m: _Maker, a: Stage) -> Stage:
    """Summands to places that data choose, whose number is data, too."""
    op = m.rng.choice(("+", "max"))
    size = m.rng.randrange(1, 5)
    at = m.np.integers(0, size, a.size)
    count = np.bincount(at, minlength=size)

    def value(g: dict[str, Any]) -> Any:
        x = a.value(g)
        fold = {"+": _jnp().sum, "max": _jnp().max}[op]
        return _jnp().stack([fold(x[np.flatnonzero(at == k)]) if count[k] else _jnp().asarray(0.0) for k in range(size)])

    b = m.stage(f"@({op}) s[n], n: int", "n > 0 ? s : 0", size, value)
    m.integers(count, f"-> {b.name}.n<i>")
    _placed(m, a, at, f"x -> {b.name}.s<k>")
    return b


def _branch(m: _Maker, a: Stage) -> Stage:
    """Each element one of two ways."""
    b = m.stage("x", "x", a.size, lambda g: _jnp().where(a.value(g) > 0.1, 2.0 * a.value(g), _jnp().sin(a.value(g))))
    p, q = m.fresh("P"), m.fresh("Q")
    a.arrows += [f"if v > 0.1: v -> {p}.x<i>", f"if !(v > 0.1): v -> {q}.x<i>"]
    m.node(f"{p}<i>", ["in x", f"2*x -> {b.name}.x<i>"])
    m.node(f"{q}<i>", ["in x", f"sin(x) -> {b.name}.x<i>"])
    return b


def _loop(m: _Maker, a: Stage) -> Stage:
    """Steps whose number is data or a value, with a value that all steps use; the last one, or the sum of all."""
    most = 4
    steps = m.np.integers(0, most, a.size)
    by_value, total = m.rng.random() < 0.5, m.rng.random() < 0.5
    w = m.reals(1)

    def value(g: dict[str, Any]) -> Any:
        out: list[Any] = []
        for i in range(a.size):
            x, acc, t = a.value(g)[i], 0.0, 0
            while True:
                y = 0.5 * _jnp().sin(x) + w.value(g)[0] * x
                acc = acc + y
                if not (t < steps[i] and (not by_value or y > -0.5)):
                    break
                x, t = y, t + 1
            out.append(acc if total else y)
        return _jnp().stack(out)

    b = m.stage("@(+) s[##]" if total else "s", "s", a.size, value)
    name = m.fresh("L")
    more = "t<n && y > -0.5" if by_value else "t<n"
    out = [f"y -> {b.name}.s<i>"] if total else [f"if !more: y -> {b.name}.s<i>"]
    m.node(f"{name}<i,t> in 0<=i<{a.size}, 0<=t<={most}", [
        "in x, w, n: int", "y = 0.5*sin(x) + w*x", f"more = {more}",
        f"if more: y -> {name}.x<i,t+1>", f"if more: n -> {name}.n<i,t+1>", *out,
    ])  # fmt: skip
    m.integers(steps, f"-> {name}.n<i,0>")
    a.arrows.append(f"v -> {name}.x<i,0>")
    w.arrows.append(f"v ## -> {name}.w<*,*>")
    return b


def _chosen_row(m: _Maker, a: Stage) -> Stage:
    """Each element is sent to all of a row that data choose."""
    row = m.np.permutation(a.size)
    wide = m.rng.randrange(1, 4)
    w = m.reals(wide)
    b = m.stage("@(+) s[##]", "s", a.size, lambda g: a.value(g)[np.argsort(row)] * w.value(g).sum())
    r = m.fresh("R")
    _placed(m, a, row, f"x ## -> {r}.x<k,*>")
    m.node(f"{r}<i,p> in 0<=i<{a.size}, 0<=p<{wide}", ["in x, w", f"x*w -> {b.name}.s<i>"])
    w.arrows.append(f"v #{a.size} -> {r}.w<*,i>")
    return b


def _reduced(m: _Maker, a: Stage) -> Stage:
    """An ordinary sum."""
    b = m.stage(f"@(+) s[{a.size}]", "0.5*s", 1, lambda g: 0.5 * _jnp().sum(a.value(g))[None])
    a.arrows.append(f"v -> {b.name}.s<0>")
    return b


PATTERNS: dict[str, tuple[int, Callable[[_Maker, Stage], Stage]]] = {
    "map": (2, _map), "two": (2, _two), "take": (3, _take), "embed": (2, _embed), "scatter": (4, _scatter),
    "counted": (2, _counted), "branch": (2, _branch), "loop": (3, _loop), "row": (1, _chosen_row), "reduced": (1, _reduced),
}  # fmt: skip


def ways(seed: int, most: int = 4) -> Ways:
    """The program of a seed, of at most so many stages."""
    m = _Maker(seed)
    a = m.reals(m.rng.randrange(1, 6))
    names = [n for n, (weight, _) in PATTERNS.items() for _ in range(weight)]
    used: list[str] = []
    for _ in range(m.rng.randrange(1, most + 1)):
        kind = m.rng.choice(names)
        used.append(kind)
        if m.rng.random() < 0.2:
            a = m.rng.choice(m.stages)
        a = PATTERNS[kind][1](m, a)
    a.arrows.append("v -> Y<i>")
    for stage in m.stages:
        if not stage.arrows:
            stage.arrows.append(f"v -> {stage.name}_out<i>")
    unused = [s for s in m.stages if any("_out<" in x for x in s.arrows)]
    outs = ["output Y<i>", *(f"output {s.name}_out<i>" for s in unused)]
    text = "\n".join([f"program ways_{seed}", *outs, *(n() for n in m.nodes)]) + "\n"
    wrt = tuple(m.wrt)
    last = a

    def value(*arrays: Any) -> Any:
        return last.value(dict(zip(wrt, arrays, strict=True)))

    return Ways(text, value, seed, wrt, m.arrays, tuple(used))
