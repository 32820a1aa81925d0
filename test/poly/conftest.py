"""A naive model of sets for the tests of `poly`: points of a small box, one by one, formulas by `Formula.evaluate`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import pytest

from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.knowledge import Table
from upl_mlir.poly.parse import parse_formula, parse_index
from upl_mlir.poly.sets import PolyContext, PSet

Point = tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Naive:
    """One context and one box; `n` ranges over `sizes`, as the context's parameter condition says."""

    ctx: PolyContext
    dims: tuple[str, ...]
    low: int
    high: int
    sizes: tuple[int, ...]

    def box(self, dims: Sequence[str] | None = None) -> Formula:
        """The bounds of the box."""
        bounds = [parse_formula(f"{self.low}<={d}<={self.high}") for d in dims or self.dims]
        return Formula.all(bounds)

    def set(self, f: Formula | str, dims: Sequence[str] | None = None) -> PSet:
        """The points of the box that satisfy a formula."""
        f = parse_formula(f) if isinstance(f, str) else f
        return self.ctx.set(dims or self.dims, self.box(dims) & f)

    def env(self, n: int, dims: Sequence[str], p: Point) -> dict[str, int]:
        """What the names mean at a point."""
        return {**self.ctx.constants, "n": n, **dict(zip(dims, p, strict=True))}

    def points(self, f: Formula | str, n: int, dims: Sequence[str] | None = None) -> set[Point]:
        """The same by trying every point, for one size."""
        f = parse_formula(f) if isinstance(f, str) else f
        dims = tuple(dims or self.dims)
        every = product(range(self.low, self.high + 1), repeat=len(dims))
        return {p for p in every if f.evaluate(self.env(n, dims, p), self.ctx.read)}

    def points_of(self, s: PSet, n: int) -> set[Point]:
        """The points of a set for one size, as isl enumerates them."""
        return set(s.constrain(Formula.compare("n", "==", n)).points())

    def value(self, e: IndexExpr | str, n: int, dims: Sequence[str], p: Point) -> int:
        """The value of an expression at a point."""
        e = parse_index(e) if isinstance(e, str) else e
        return e.evaluate(self.env(n, dims, p), self.ctx.read)

    def all(self, f: Formula, dims: Sequence[str] | None = None) -> set[tuple[int, Point]]:
        """The points for every size, with the size."""
        return {(n, p) for n in self.sizes for p in self.points(f, n, dims)}


def context(low: int, values: Iterable[int], sizes: Sequence[int]) -> PolyContext:
    """Parameter `n` within `sizes`, constants K = 2 and M = 3, the array N from index `low`."""
    where = parse_formula(f"{min(sizes)}<=n<={max(sizes)}")
    return PolyContext(("n",), where, {"K": 2, "M": 3}, {"N": Table(low, tuple(values))})


@pytest.fixture(scope="session")
def naive() -> Naive:
    """A box that the array covers, whatever index the random formulas read."""
    sizes = (0, 1, 2)
    return Naive(context(-16, [3, 1, 1, 4, 0, 2, 2, 2, 5, 1, 3] * 4, sizes), ("i", "j"), -2, 3, sizes)


@pytest.fixture(scope="session")
def narrow() -> Naive:
    """A box that is larger than the array: N[0] to N[2]."""
    sizes = (0, 1, 2)
    return Naive(context(0, [2, 3, 2], sizes), ("i", "j"), -2, 4, sizes)
