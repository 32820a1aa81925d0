"""Relations as loops: they enumerate the relation's points, each once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from upl_mlir.poly.describe import Interval
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.knowledge import Table
from upl_mlir.poly.nest import Nest, nest
from upl_mlir.poly.parse import parse_formula
from upl_mlir.poly.sets import PolyContext

CTX = PolyContext(("n",), parse_formula("n>=1"), {"K": 3}, {"N": Table(0, (2, 3, 1, 4))})
INSIDE = parse_formula("0<=k<=K")


def walked(found: Nest, env: dict[str, int]) -> Iterator[tuple[int, int]]:
    """The values of `i` and `j` that the loops enumerate."""

    def value(e: IndexExpr, at: dict[str, int]) -> int:
        return e.evaluate(at, CTX.read)

    def walk(loops: tuple[tuple[str, Interval], ...], at: dict[str, int]) -> Iterator[tuple[int, int]]:
        if loops:
            (name, bounds), *rest = loops
            for v in range(value(bounds.lo, at), value(bounds.hi, at) + 1):
                yield from walk(tuple(rest), {**at, name: v})
        elif found.point.evaluate(at, CTX.read):
            yield value(found.names["i"], at), value(found.names["j"], at)

    if found.condition.evaluate(env, CTX.read):
        yield from walk(found.loops, env)


@pytest.mark.parametrize(
    ("formula", "loops"),
    [
        ("0<=i<=n && 0<=j<i", ["i", "j"]),
        ("N[k]<=i && i<=N[k] && 0<=j && j<i", ["j"]),
        ("k<=i<=n && i<j<=N[k]", ["i", "j"]),
        ("2*i==k && 0<=j<n", ["j"]),
        ("i==N[k]-k && j==i+1", []),
        ("0<=i<=n && 3*j==i+k", ["i"]),
        ("0<=i<=n && j==N[i floordiv 2]", ["i"]),
        ("i==N[k] && 0<=j<=i && (i+j) mod 2==0", ["j"]),
        ("i==3-k && j==N[i]+k", []),
    ],
)
def test_the_loops_enumerate_the_points(formula: str, loops: list[str]) -> None:
    """A dimension that follows from others has no loop, also where an entry of an array says what it is."""
    where = INSIDE & parse_formula(formula)
    found = nest(CTX.set(("k", "i", "j"), where), ("i", "j"), ("k",), CTX.set(("k",), INSIDE))
    assert found is not None and [name for name, _ in found.loops] == loops
    for n in range(1, 5):
        for k in range(4):
            env = {"n": n, "K": 3, "k": k}
            every = ((i, j) for i in range(-2, 9) for j in range(-2, 9))
            points = [(i, j) for i, j in every if where.evaluate({**env, "i": i, "j": j}, CTX.read)]
            assert sorted(walked(found, env)) == points


def test_what_has_no_end_has_no_loops() -> None:
    r = CTX.set(("k", "i", "j"), INSIDE & parse_formula("i>=0 && 0<=j<i"))
    assert nest(r, ("i", "j"), ("k",), CTX.set(("k",), INSIDE)) is None
