"""Bodies choose lazily: what `?:`, `&&` and `||` do not choose makes no error, on any engine (LANGUAGE 2)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

import upl_mlir as upl

TEXT = """program choices
const N[0:3] = [2, 0, 3, 1]
input A<i>: int in 0<=i<3 {{ -> S.a<i>; -> T.a<i> }}
input B<i>: int in 0<=i<3 {{ -> S.b<i>; -> T.b<i> }}
output Y<i>: int
output Z<i>: int in 0<=i<3
node S<i> {{
  in a: int, b: int
{first}  {last} -> Y<i>
}}
node T<i> {{
  in a: int, b: int
{first}  if {case}: {one} -> Z<i>
  if !({case}): {other} -> Z<i>
}}
"""


class Bodies:
    """Random bodies, most of which divide by zero, overflow or read beyond the array where they do not choose."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.names: list[str] = []

    def integer(self, depth: int) -> str:
        kind = self.rng.randrange(7) if depth else 0
        match kind:
            case 0:
                return self.rng.choice((*"aabbii", "1", "2", "4611686018427387904", *self.names))
            case 1:
                return f"({self.integer(depth - 1)} {self.rng.choice('+-*')} {self.integer(depth - 1)})"
            case 2 | 3:
                what = self.rng.choice(("floordiv", "ceildiv", "mod"))
                return f"({self.integer(depth - 1)} {what} {self.rng.choice(('a', 'b', '(b-1)', '(i-1)'))})"
            case 4:
                return f"N[{self.rng.choice(('a', 'b', 'i', 'i+1'))}]"
            case _:
                return f"({self.truth(depth - 1)} ? {self.integer(depth - 1)} : {self.integer(depth - 1)})"

    def truth(self, depth: int) -> str:
        match self.rng.randrange(4) if depth else 0:
            case 0:
                return self.rng.choice(("a>0", "b!=0", "i<2", "a<b", "0<=a<4", "0<=b<4", "i<=b", "b>1 && i!=1"))
            case 1:
                return f"!({self.truth(depth - 1)})"
            case 2:
                return f"({self.truth(depth - 1)} {self.rng.choice(('&&', '||'))} {self.truth(depth - 1)})"
            case _:
                return f"{self.integer(depth - 1)} {self.rng.choice(('<', '==', '>='))} {self.integer(depth - 1)}"

    def text(self) -> str:
        first = ""
        for n in range(self.rng.randrange(1, 4)):
            first += f"  v{n} = {self.integer(2)}\n"
            self.names.append(f"v{n}")
        last, one, other = (self.integer(2) for _ in range(3))
        return TEXT.format(first=first, last=last, one=one, other=other, case=self.truth(2))


def outcome(p: upl.Program, engine: str, data: Mapping[str, Any]) -> dict[str, list[int]] | str:
    try:
        return {n: x.tolist() for n, x in upl.compile(p, engine=engine)(**data).items()}
    except upl.UplError as e:
        return e.diagnostics[0].code


def drawn(seed: int) -> tuple[upl.Program, list[dict[str, Any]]]:
    """A program that can be compiled, and data for it."""
    rng = np.random.default_rng(seed)
    while True:
        seed += 1_000_000
        try:
            p = upl.load(Bodies(seed).text())
        except upl.UplError:  # a divisor that is the number 0
            continue
        return p, [{n: rng.integers(-1, 5, 3) for n in "AB"} for _ in range(4)] + [{n: np.arange(1, 4) for n in "AB"}]


def agree(p: upl.Program, data: list[dict[str, Any]], engines: tuple[str, ...]) -> int:
    """How many runs have results: those of the reference, on each engine; where it has none, nor have they."""
    right = 0
    for d in data:
        wanted = outcome(p, "reference", d)
        right += isinstance(wanted, dict)
        for engine in engines:
            found = outcome(p, engine, d)
            both = isinstance(found, str) and isinstance(wanted, str)
            assert both or found == wanted, (engine, wanted, found, str(p), d)
    return right
