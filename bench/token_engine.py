"""The token engine at scale: firings per second on a wavefront, matches per second with millions of tokens waiting.

Each is measured beside the interpreter in the same run, on the same program at a size that the interpreter can take.  The
time is that of a whole run: host arrays in, outputs out, memory taken from the system and given back.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import upl_mlir as upl
from bench.report import Row, interleaved

WAVEFRONT = """program wavefront
param n >= 1
input  T<j> in 0<=j<n { -> C.a<0,j> }
input  L<i> in 0<=i<n { -> C.b<i,0> }
output R
node C<i,j> {
  in a, b
  c = 0.5*(a + b)
  if i<n-1: c -> C.a<i+1,j>
  if j<n-1: c -> C.b<i,j+1>
  if i==n-1 && j==n-1: c -> R
}
"""
"""One firing for each cell of a square, each with two matched tokens."""

PARTNERS = """program partners
param n >= 2
const steps = 4
input  A<i> in 0<=i<n { -> M.a<1,i> }
input  B<i> in 0<=i<n { -> M.b<1,(PLACE) mod n> }
output R<i>
node M<t,i> in 1<=t<=steps, 0<=i<n {
  in a, b
  c = 0.5*(a + b)
  if t<steps:  c -> M.a<t+1,i>
  if t<steps:  c -> M.b<t+1,(PLACE) mod n>
  if t==steps: c -> R<i>
}
"""
"""Partners arrive n/2 firings apart, so that n tokens wait at a time; PLACE says where."""
SHIFTED, SCATTERED = "i + n floordiv 2", "i*2654435761 + n floordiv 2"
"""Neighbours stay neighbours; and, with n a power of 2, hardly any two do."""


def _per_second(engine: str, text: str, n: int) -> tuple[Callable[[], float], Callable[[], int]]:
    """A run that tells firings per second, and how many tokens waited at most."""
    program = upl.load(text)
    f = upl.compile(program, engine)  # pyright: ignore[reportArgumentType]
    random = np.random.default_rng(0)
    arrays = {name: random.random(n) for name in program.inputs}

    def once() -> float:
        f(**arrays)
        return sum(f.stats["firings"].values()) / f.stats["seconds"] / 1e6

    return once, lambda: f.stats["peak_waiting"]


def rows() -> list[Row]:
    """The table: token engine, and the interpreter beside it at a smaller size."""
    out: list[Row] = []
    for what, text, large, small, unit, aim in (
        ("wavefront, 2000 x 2000 cells", WAVEFRONT, 2000, 300, "M firings/s", ">= 30"),
        ("{:.1f} M tokens waiting, neighbours together", PARTNERS.replace("PLACE", SHIFTED), 1 << 22, 1 << 15,
         "M matches/s", ">= 20"),
        ("{:.1f} M tokens waiting, scattered", PARTNERS.replace("PLACE", SCATTERED), 1 << 22, 1 << 15, "M matches/s", ""),
    ):  # fmt: skip
        ours, peak = _per_second("token", text, large)
        theirs, _ = _per_second("interp", text, small)
        one, other = interleaved(ours, theirs, runs=3)
        out.append(Row(what.format(peak() / 1e6), one, unit, aim, "interpreter", other))
    return out
