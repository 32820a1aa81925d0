"""Random programs whose arrows data decide, with data that suit them and data that do not.

    text, arrays = program(seed), data(seed, n)

A program is made of one to three pieces, each with inputs and outputs of its own: elements that data choose are read, added
to, or sent to; instances that data let fire; chains that data end or lead; time loops over a graph.  Nothing is known of
what is right: the interpreter says it.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

Arrays = dict[str, Any]

SIZES = {"n": 4, "m": 5, "T": 3}
TYPES = ("real", "real", "int", "bool")
OPERATORS = {"real": ("+", "+", "*", "min", "max"), "int": ("+", "max", "min"), "bool": ("||", "&&", "!=")}


def _type(t: str) -> str:
    return "" if t == "real" else f": {t}"


class Piece:
    """One piece in the making: `k` keeps its names apart."""

    def __init__(self, rng: random.Random, k: int):
        self.rng, self.k = rng, k
        self.lines: list[str] = []
        self.ints: dict[str, tuple[int, int]] = {}
        self.once: set[str] = set()  # of indices that have to be different

    def choose(self, *texts: str) -> str:
        """One of some texts."""
        return self.rng.choice(texts)

    def add(self, text: str) -> None:
        """A line, with the piece's number for `@`."""
        self.lines.append(text.replace("$", str(self.k)))

    def index(self, name: str, fields: str, domain: str, body: str, lo: int, hi: int) -> None:
        """An input of integers, mostly from lo to hi."""
        self.ints[name.replace("$", str(self.k))] = (lo, hi)
        self.add(f"input {name}<{fields}>: int in {domain} {{ {body} }}")

    def condition(self) -> str:
        """A condition on data, or none."""
        return self.choose("", "", "if v > 0.2: ", "if c != 1: ", "if v > 0.2 && c < 3: ", "if i > 0 && v < 0.9: ")

    # -- the pieces ---------------------------------------------------------------------------------------------------
    def read(self) -> None:
        """Elements that data choose are read, and what is made of them goes on."""
        t = self.choose(*TYPES)
        self.add(f"input X$<j>{_type(t)} in 0<=j<n {{ ## -> M$.x<j,*> }}")
        self.add("input V$<i> in 0<=i<m { -> E$.v }")
        self.index("C$", "i", "0<=i<m", "-> E$.c", 0, 3)
        cond = self.condition()
        at = self.choose("c", "c", "c", "c-1", "c+1", "n-1-c", "c mod n")
        self.add(f"node E$<i> {{ in v, c: int; {cond}v -> M$.v<{at},i> }}")
        self.sent(t, cond)

    def sent(self, t: str, cond: str) -> None:
        """What an instance <j,i> with the inputs x and v sends."""
        value = {"real": "x*v", "int": "x", "bool": "x"}[t]
        op = self.choose(*OPERATORS[t])
        match self.rng.randrange(4):
            case 0 if not cond:
                self.add(f"output O$<i>{_type(t)} in 0<=i<m")
                self.add(f"node M$<j,i> {{ in x{_type(t)}, v; {value} -> O$<i> }}")
            case 1:
                self.index("N$", "k", "0<=k<1", "-> S$.q<k>", 0, SIZES["m"])
                self.add(f"output O$<k>{_type(t)} in 0<=k<1")
                self.add(f"node M$<j,i> {{ in x{_type(t)}, v; {value} -> S$.s<0> }}")
                self.add(f"node S$<k> in 0<=k<1 {{ in q: int, @({op}) s[q]{_type(t)}; s -> O$<k> }}")
            case 2:
                self.index("N$", "k", "0<=k<n", "-> S$.q<k>", 0, 2)
                self.add(f"output O$<k>{_type(t)} in 0<=k<n")
                self.add(f"node M$<j,i> {{ in x{_type(t)}, v; {value} -> S$.s<j> }}")
                self.add(f"node S$<k> in 0<=k<n {{ in q: int, @({op}) s[q]{_type(t)}; s -> O$<k> }}")
            case _:
                self.add(f"output O$<k>{_type(t)} in 0<=k<1")
                self.add(f"node M$<j,i> {{ in x{_type(t)}, v; {value} #m -> S$.s<0> }}")
                self.add(f"node S$<k> in 0<=k<1 {{ in @({op}) s[#]{_type(t)}; s -> O$<k> }}")

    def added(self) -> None:
        """Elements that data choose are added to."""
        t = self.choose(*TYPES)
        op = self.choose(*OPERATORS[t])
        self.add(f"input V$<i>{_type(t)} in 0<=i<m {{ -> E$.v }}")
        self.index("C$", "i", "0<=i<m", "-> E$.c", 0, 3)
        cond = self.choose("", "", "if c != 2: ", "if i != 1: ")
        self.add(f"output O$<k>{_type(t)} in 0<=k<n")
        if self.rng.random() < 0.6:
            self.index("N$", "k", "0<=k<n", "-> S$.q<k>", 0, 3)
            self.add(f"node E$<i> {{ in v{_type(t)}, c: int; {cond}v -> S$.s<c> }}")
            self.add(f"node S$<k> in 0<=k<n {{ in q: int, @({op}) s[q]{_type(t)}; s -> O$<k> }}")
        else:
            self.add(f"node E$<i> {{ in v{_type(t)}, c: int; {cond}v #1 -> S$.s<c> }}")
            self.add(f"node S$<k> in 0<=k<n {{ in @({op}) s[1]{_type(t)}; s -> O$<k> }}")

    def moved(self) -> None:
        """A permutation, perhaps; perhaps with a second input."""
        t = self.choose(*TYPES)
        self.add(f"input V$<i>{_type(t)} in 0<=i<n {{ -> E$.v }}")
        self.index("C$", "i", "0<=i<n", "-> E$.c", 0, 3)
        self.once |= {f"C{self.k}"}
        cond = self.choose("", "", "if c < 3: ")
        self.add(f"output O$<k>{_type(t)} in 0<=k<n")
        self.add(f"node E$<i> {{ in v{_type(t)}, c: int; {cond}v -> B$.x<c> }}")
        if self.rng.random() < 0.5:
            self.add("input Y$<k> in 0<=k<n { -> B$.y }")
            self.add(f"node B$<k> {{ in x{_type(t)}, y; x -> O$ }}")
        else:
            self.add(f"node B$<k> in 0<=k<n {{ in x{_type(t)}; x -> O$ }}")

    def either(self) -> None:
        """One way or another, as data say."""
        self.add("input V$<i> in 0<=i<m { -> E$.v }")
        self.add("output O$<i> in 0<=i<m")
        test = self.choose("v > 0.5", "v > 0.5 || i == 1", "v*v < 0.3", "i mod 2 == 0 && v > 0.1")
        other = self.choose(f"!({test})", f"!({test})", "v > 0.7")
        self.add(f"node E$<i> {{ in v; if {test}: v -> A$.x; if {other}: v -> B$.x }}")
        self.add("node A$<i> { in x; exp(x) -> C$.x }")
        self.add("node B$<i> { in x; x -> C$.x }")
        self.add(self.choose("node C$<i> { in x; x + 1 -> O$ }", "node C$<i> in 0<=i<m { in x; x + 1 -> O$ }"))

    def chain(self) -> None:
        """Steps that data end."""
        most = self.choose("6", "n+2", "3")
        self.add("input V$<i> in 0<=i<m { -> E$.v<i,0> }")
        self.add("output O$<i> in 0<=i<m")
        self.add("output K$<i>: int in 0<=i<m")
        self.add(f"node E$<i,k> {{ in v; w = v*0.5; go: bool = w > 0.1\n  if go && k<{most}: w -> E$.v<i,k+1>\n"
                 f"  if !go || k=={most}: w -> O$<i>\n  if !go || k=={most}: k -> K$<i> }}")  # fmt: skip

    def led(self) -> None:
        """A walk whose places data choose."""
        self.index("C$", "j", "0<=j<n", "## -> W$.c<*,j>", 0, 3)
        self.add("input X$<j> in 0<=j<n { ## -> W$.x<*,j> }")
        self.index("A$", "", "0<=0", "-> W$.s<0,A$>", 0, 3)
        self.lines[-1] = self.lines[-1].replace("<> ", "").replace("<>: int in 0<=0", ": int")
        self.add("output O$<t> in 0<=t<=T")
        self.add("node W$<t,j> { in s: int, c: int, x; if t<T: s + 1 -> W$.s<t+1,c>; x*s -> O$<t> }")

    def graph(self) -> None:
        """Time steps over the edges of a graph."""
        self.index("A$", "e", "0<=e<m", "-> E$.a", 0, 3)
        self.index("B$", "e", "0<=e<m", "-> E$.b", 0, 3)
        self.index("N$", "v", "0<=v<n", "#T -> S$.q<*,v>", 0, 2)
        self.add("input R$<v> in 0<=v<n { -> P$.r<0,v> }")
        self.add("input D$<v> in 0<=v<n { #T+1 -> P$.d<*,v> }")
        self.add("output O$<v> in 0<=v<n")
        cond = self.choose("", "", "if a != b: ")
        self.add(f"node E$<e> {{ in a: int, b: int; {cond}b -> M$.b<t,a,e> for t in 0..T-1 }}")
        self.add("node P$<t,v> in 0<=t<=T, 0<=v<n { in r, d; if t<T: r*d ## -> M$.r<t,v,*>; if t==T: r -> O$<v> }")
        self.add("node M$<t,v,e> { in r, b: int; r -> S$.s<t,b> }")
        self.add("node S$<t,v> in 0<=t<T, 0<=v<n { in q: int, @(+) s[q]; 0.5*s + 0.25 -> P$.r<t+1,v> }")

    def joined(self) -> None:
        """Two tokens that meet where data say."""
        self.index("A$", "i", "0<=i<n", "-> E$.a", 0, 3)
        self.index("B$", "i", "0<=i<n", "-> F$.b", 0, 3)
        self.once |= {f"A{self.k}", f"B{self.k}"}
        self.add("output O$<i> in 0<=i<n")
        self.add("node E$<i> { in a: int; 1.0*i -> M$.x<a> }")
        self.add("node F$<i> { in b: int; 2.0*i -> M$.y<b> }")
        self.add("node M$<j> in 0<=j<n { in x, y; x*y -> O$<j> }")


PIECES = (Piece.read, Piece.read, Piece.added, Piece.moved, Piece.either, Piece.chain, Piece.led, Piece.graph, Piece.joined)


def _pieces(seed: int) -> list[Piece]:
    rng = random.Random(seed)
    out: list[Piece] = []
    for k in range(rng.choice((1, 1, 2, 3))):
        out.append(Piece(rng, k))
        rng.choice(PIECES)(out[-1])
    return out


def program(seed: int) -> str:
    """The text of a program."""
    lines = [line for p in _pieces(seed) for line in p.lines]
    params = [f"param {n} >= 1" for n in SIZES if any(n in line for line in lines)]
    order = ("input", "output", "node")
    lines.sort(key=lambda line: order.index(line.split()[0]))
    return "\n".join([f"program decided{seed}", *params, *lines]) + "\n"


def data(seed: int, number: int, shapes: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> Arrays:
    """Data number so-many for the inputs with these shapes and types.  In one of four an index may be out of range; where
    there are counts, they are mostly those of the indices."""
    rng = np.random.default_rng((seed, number))
    wild = number % 4 == 3
    pieces = _pieces(seed)
    bounds, once = {n: b for p in pieces for n, b in p.ints.items()}, {n for p in pieces for n in p.once}
    out: Arrays = {}
    for name, (shape, dtype) in shapes.items():
        lo, hi = bounds.get(name, (-2, 2))
        match dtype.kind:
            case "b":
                a = rng.random(shape) < 0.5
            case "i":
                a = rng.integers(lo - wild, hi + 1 + wild, shape)
                if name in once and number % 2 == 0:
                    a = rng.permutation(shape[0])
            case _:
                a = rng.integers(-4, 9, shape) / 8
        out[name] = np.asarray(a, dtype)
    for name, a in out.items():
        source = {"C": "C", "N": "C"}.get(name[0]) if name[0] == "N" else None
        chosen = out.get(f"{source}{name[1:]}", out.get(f"B{name[1:]}")) if source else None
        if chosen is not None and number % 4 != 1:
            if a.shape == (1,):
                a[:] = chosen.size
            else:
                a[:] = np.bincount(np.clip(chosen, 0, a.size - 1).ravel(), minlength=a.size)[: a.size]
    return out
