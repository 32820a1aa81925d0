"""The places where the condition sweep puts its terms: programs that are right whatever the condition is.

A condition decides between two arrows, and both lead on to the same input: every instance is served once.  A count stands
at both ends of an arrow.  A rearrangement is one to one.  `Site.expected` says, in plain Python, what a program computes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from agreement.conditions_grammar import CONDITIONS, COUNTS, MOVES, SYMBOLIC, TABLES, Rearrangement, Term

Point = tuple[int, ...]
Env = Mapping[str, Any]
Values = Mapping[Point, float]
RANGES = {"i": "0<=i<n", "j": "0<=j<n", "k": "0<=k<=2"}
SIZES: tuple[Mapping[str, int], ...] = ({"n": 0, "q": 0}, {"n": 1, "q": 1}, {"n": 2, "q": 2}, {"n": 5, "q": 3})


@dataclass(frozen=True)
class Site:
    """A program with holes.  `text` has ``$C`` for the term, ``$F`` for its fields, ``$D`` for their domain, ``$M`` for
    the number of points; `expected` gives the outputs from a function of the term, the points and the input."""

    name: str
    text: str
    expected: Callable[[Callable[..., Any], list[Point], Values], Mapping[str, Mapping[Point, float]]]
    smooth: bool = True
    """Whether the outputs are polynomials of the input of degree two at most, so that central differences are exact."""


@dataclass(frozen=True)
class Program:
    """A term at a site."""

    term: Term | Rearrangement
    site: Site

    @property
    def name(self) -> str:
        """What it is called in reports."""
        what = self.term.text if isinstance(self.term, Term) else f"{self.term.domain} -> {'; '.join(self.term.to)}"
        return f"{self.site.name}: {what}"

    @property
    def least(self) -> int:
        """The least `q` that a program can have: a divisor is no zero."""
        return 1 if re.search(r"(mod|div) \(?(2\*)?q\b(?!\+)", self.words) else 0

    @cached_property
    def words(self) -> str:
        """The term as it is written."""
        return self.term.text if isinstance(self.term, Term) else self.term.texts

    @cached_property
    def sizes(self) -> tuple[Mapping[str, int], ...]:
        """Where it is run: `n` and `q` are 0, 1, 2 and 5 or 3."""
        return tuple({"n": s["n"], "q": max(s["q"], self.least)} for s in SIZES)

    def arrays(self, size: Env) -> dict[str, list[int]]:
        """Values of the symbolic array."""
        return {SYMBOLIC: [size["n"], 2, size["q"] + 1]} if self.symbolic else {}

    @property
    def symbolic(self) -> bool:
        """Whether it has a symbolic array."""
        return f"{SYMBOLIC}[" in self.words

    @cached_property
    def text(self) -> str:
        """The `.upl` text."""
        head = ["program sweep", "param n >= 0", f"param q >= {self.least}"]
        if self.symbolic:
            head.append(f"param {SYMBOLIC}[0:2] >= 0")
        head += [f"const {t}[0:2] = {v}" for t, v in TABLES.items() if re.search(rf"\b{t}\[", self.words)]
        fields, domain = self._shape
        holes = {
            "F": ",".join(fields), "D": domain, "C": self.words, "M": "*".join("3" if f == "k" else "n" for f in fields),
        }  # fmt: skip
        if isinstance(self.term, Rearrangement):
            holes["C"] = ",".join(self.term.to)
        body = re.sub(r"\$([FDCM])", lambda m: holes[m[1]], self.site.text)
        return "\n".join([*head, body.strip()]) + "\n"

    @property
    def _shape(self) -> tuple[tuple[str, ...], str]:
        if isinstance(self.term, Rearrangement):
            return self.term.fields, self.term.domain
        return self.term.fields, ", ".join(RANGES[f] for f in self.term.fields)

    def env(self, size: Env) -> dict[str, Any]:
        """Parameters and the symbolic array."""
        return {**size, **self.arrays(size)}

    def points(self, size: Env) -> list[Point]:
        """The domain."""
        fields, domain = self._shape
        inside = Term("", "(" + ") && (".join(domain.split(", ")) + ")")
        env, most = self.env(size), max(9, size["n"] * max(2, size["q"]) + 1)
        return [
            x for x in itertools.product(range(most), repeat=len(fields))
            if inside.value(**env, **dict(zip(fields, x, strict=True)))
        ]  # fmt: skip

    def starts(self, size: Env) -> list[Point]:
        """The indices of the input."""
        fields, _ = self._shape
        if self.site.name != "time loop":
            return self.points(size)
        return list(np.ndindex(*(1 if f == "i" else 3 if f == "k" else size["n"] for f in fields)))

    def expected(self, size: Env, x: Values) -> Mapping[str, Mapping[Point, float]]:
        """The outputs by index, for an input by index."""
        fields, _ = self._shape
        parts = [self.term] if isinstance(self.term, Term) else [Term("", t) for t in self.term.to]

        def value(at: Point) -> Any:
            env = {**self.env(size), **dict(zip(fields, at, strict=True))}
            found = tuple(t.value(**env) for t in parts)
            return found[0] if isinstance(self.term, Term) else found

        return self.site.expected(value, self.points(size), x)


def _either(c: Any, at: list[Point], x: Values) -> Any:
    return {"Y": {p: x[p] * x[p] if c(p) else 3 * x[p] for p in at}}


def _total(c: Any, at: list[Point], x: Values) -> Any:
    return {"T": {(): 1.0 + sum(x[p] * x[p] if c(p) else 10 * x[p] for p in at)}}


def _greatest(c: Any, at: list[Point], x: Values) -> Any:
    return {"T": {(): max([-64.0, *(2 * x[p] if c(p) else x[p] - 1 for p in at)])}}


def _chosen(c: Any, at: list[Point], x: Values) -> Any:
    return {"Y": {p: x[p] * x[p] + (1 if c(p) else 0) * x[p] for p in at}}


def _in_time(c: Any, at: list[Point], x: Values) -> Any:
    """Step i of the state of each (other fields): doubled, by an input of halves that its adjoint waits for, or one more."""
    last = max((p[0] for p in at), default=-1) + 1
    out: dict[Point, float] = {}
    for rest in x:
        v = x[rest]
        for t in range(last):
            p = (t, *rest[1:])
            v = 2 * v if c(p) else v + 1
        out[rest] = v
    return {"Y": out}


def _data(c: Any, at: list[Point], x: Values) -> Any:
    return {"Y": {p: x[p] * x[p] if c(p) and x[p] > 0 else 3 * x[p] for p in at}}


def _repeated(c: Any, at: list[Point], x: Values) -> Any:
    return {"Y": {p: max(0, c(p)) * x[p] * x[p] for p in at}}


def _weighted(c: Any, at: list[Point], x: Values) -> Any:
    return {"Y": {p: sum((r + 1) * x[p] * x[p] for r in range(c(p))) for p in at}}


def _moved(c: Any, at: list[Point], x: Values) -> Any:
    out = {c(p): x[p] * x[p] for p in at}
    assert len(out) == len(at), "not one to one"
    return {"Y": out}


INPUT = "input X<$F> in $D { -> A.x }\n"
CONDITION_SITES = (
    Site("input arrow", """input X<$F> in $D { if $C: -> B.x; if !($C): -> E.x }
output Y<$F>
node B<$F> { in x; x*x -> Y<$F> }
node E<$F> { in x; 3*x -> Y<$F> }""", _either),
    Site("inner arrow", INPUT + """output Y<$F>
node A<$F> { in x; if $C: x -> B.x<$F>; if !($C): x -> E.x<$F> }
node B<$F> { in x; x*x -> Y<$F> }
node E<$F> { in x; 3*x -> Y<$F> }""", _either),
    Site("guarded gather", INPUT + """input One { 1 #$M+1 -> S.s<> }
output T
node A<$F> { in x; if $C: x -> B.x<$F>; if !($C): 10*x #$M+1 -> S.s<> }
node B<$F> { in x; x*x #$M+1 -> S.s<> }
node S { in @(+) s[#]; -> T }""", _total),
    Site("two nodes into a gather", INPUT + """output T
node A<$F> { in x; if $C: x -> B.x<$F>; if !($C): x -> E.x<$F> }
node B<$F> { in x; x*x -> S.s<> }
node E<$F> { in x; 10*x -> S.s<> }
input One { 1 -> S.s<> }
node S { in @(+) s[$M+1]; -> T }""", _total),
    Site("greatest", INPUT + """output T
node A<$F> { in x; if $C: x -> B.x<$F>; if !($C): x-1 #$M+1 -> S.s<> }
node B<$F> { in x; 2*x #$M+1 -> S.s<> }
input One { -64 #$M+1 -> S.s<> }
node S { in @(max) s[#]; -> T }""", _greatest, False),
    Site("output", INPUT + """output Y<$F>
node A<$F> { in x; if $C: x*x -> Y<$F>; if !($C): 3*x -> Y<$F> }""", _either),
    Site("chain", INPUT + """output Y<$F>
node A<$F> { in x; if $C: x -> B.x<$F>; if !($C): 3*x -> D.x<$F> }
node B<$F> { in x; -> E.x<$F> }
node E<$F> { in x; x*x -> D.x<$F> }
node D<$F> { in x; -> Y<$F> }""", _either),
    Site("copies", INPUT + """output Y<$F>
node A<$F> { in x; x -> D.x<$F>; if $C: x #2 -> B.x<$F,*>; if !($C): 0*x -> D.y<$F> }
input Two<$F,b> in $D, 0<=b<2 { if $C: Two -> B.z<$F,b> }
node B<$F,b> { in x, z; x*(z-z)+x/2 -> S.s<$F> }
node S<$F> { in @(+) s[2]; -> D.y<$F> }
node D<$F> { in x, y; x*x + y -> Y<$F> }""", _chosen),
    Site("select in an index", INPUT + """output Y<$F>
node A<$F> { in x; x -> B.x<(($C) ? 1 : 0),$F> }
node B<b,$F> { in x; x*x + b*x -> Y<$F> }""", _chosen),
    Site("select, bounded", INPUT + """input V<b,$F> in 0<=b<=1, $D { if (b==1 && ($C)) || (b==0 && !($C)): -> B.z }
output Y<$F>
node A<$F> { in x; x -> B.x<(($C) ? 1 : 0),$F> }
node B<b,$F> { in x, z; x*x + b*x + (z-z) -> Y<$F> }""", _chosen),
    Site("with data", INPUT + """output Y<$F>
node A<$F> { in x; if x>0 && ($C): x*x -> Y<$F>; if !(x>0 && ($C)): 3*x -> Y<$F> }""", _data, False),
)  # fmt: skip
TIME_SITE = Site("time loop", """input X<$F> in i==0, $D0 { -> A.x }
input W<$F> in 0<=i<=n, $D0 { if i<n && ($C): -> B.w }
output Y<$F>
node A<$F> in 0<=i<=n, $D0 { in x; if i<n && ($C): x -> B.x<$F>; if i<n && !($C): x+1 -> A.x<i+1$R>; if i==n: x -> Y<0$R> }
node B<$F> { in x, w; 4*w*x -> A.x<i+1$R> }""", _in_time)  # fmt: skip
COUNT_SITES = (
    Site("gather count", INPUT + """output Y<$F>
node A<$F> { in x; x*x -> G.s<$F> for r in 1..$C }
node G<$F> in $D { in @(+) s[$C]; -> Y<$F> }""", _repeated),
    Site("for bounds", INPUT + """output Y<$F>
node A<$F> { in x; x -> B.x<$F,r> for r in 0..$C-1 }
node B<$F,r> { in x; (r+1)*x*x -> G.s<$F> }
node G<$F> in $D { in @(+) s[$C]; -> Y<$F> }""", _weighted),
    Site("multiplicity", INPUT + """output Y<$F>
node A<$F> { in x; if $C>0: x #$C -> B.x<$F,*>; 1 -> B.w<$F,r> for r in 0..$C-1 }
node B<$F,r> { in x, w; (r+1)*w*x*x -> G.s<$F> }
node G<$F> in $D { in @(+) s[$C]; -> Y<$F> }""", _weighted),
    Site("condition of a for", INPUT + """output Y<$F>
node A<$F> { in x; x -> B.x<$F,r> for r in 0..40 if r<$C }
node B<$F,r> { in x; (r+1)*x*x -> G.s<$F> }
node G<$F> in $D { in @(+) s[min($C,41)]; -> Y<$F> }""", _weighted),
    Site("bounded multiplicity", INPUT + """output Y<$F>
node A<$F> { in x; if $C>0: x #min($C,41) -> B.x<$F,*>; 1 -> B.w<$F,r> for r in 0..40 if r<$C }
node B<$F,r> { in x, w; (r+1)*w*x*x -> G.s<$F> }
node G<$F> in $D { in @(+) s[min($C,41)]; -> Y<$F> }""", _weighted),
    Site("carried count", INPUT + """output Y<$F>
node A<$F> { in x; if $C>0: x -> B.x<$F>; if $C<=0: 0*x -> Y<$F> }
node B<$F> { in x; x*x #$C -> G.s<$F> for r in 0..$C-1 }
node G<$F> { in @(+) s[#]; -> Y<$F> }""", _repeated),
)  # fmt: skip
MOVE_SITES = (
    Site("moved", INPUT + """output Y<$O>
node A<$F> { in x; x -> B.x<$C> }
node B<$O> { in x; x*x -> Y<$O> }""", _moved),
    Site("moved at the input", """input X<$F> in $D { -> B.x<$C> }
output Y<$O>
node B<$O> { in x; x*x -> Y<$O> }""", _moved),
    Site("moved at the output", INPUT + """output Y<$O>
node A<$F> { in x; x*x -> Y<$C> }""", _moved),
)  # fmt: skip


PERMUTED = Site("permutation, declared", INPUT + """output Y<$F> in $D
node A<$F> { in x; x -> B.x<$C> }
node B<$F> in $D { in x; x*x -> Y<$F> }""", _moved)


def programs() -> Iterator[Program]:
    """All of them, those of one site together."""
    for site in CONDITION_SITES:
        for c in CONDITIONS:
            yield Program(c, site)
    for c in CONDITIONS:
        yield Program(c, _timed(c))
    for site in COUNT_SITES:
        for c in COUNTS:
            yield Program(c, site)
    for site in MOVE_SITES:
        for m in MOVES:
            named = site.text.replace("$O", ",".join("abc"[: len(m.to)]))
            yield Program(m, Site(site.name, named, site.expected, site.smooth))
    for m in MOVES:
        p = Program(m, PERMUTED)
        if all(sorted(p.expected(s, dict.fromkeys(p.points(s), 1.0))["Y"]) == p.points(s) for s in p.sizes):
            yield p


def _timed(c: Term) -> Site:
    rest = [f for f in c.fields if f != "i"]
    text = TIME_SITE.text.replace(", $D0", "".join(f", {RANGES[f]}" for f in rest)).replace(
        "$R", "".join(f",{f}" for f in rest)
    )
    return Site(TIME_SITE.name, text, TIME_SITE.expected, TIME_SITE.smooth)
