"""Linear constraints with entries of constant arrays: "no solution" is a proof, also where an index leaves the array.

Generated code reads the nearest entry there (the value is then not used), so the brute force does the same.
"""

from __future__ import annotations

import random
from itertools import product

import pytest

from upl_mlir.poly.expr import IndexExpr, Lookup
from upl_mlir.poly.knowledge import Table
from upl_mlir.poly.linear import Con, Linear
from upl_mlir.poly.sets import PolyContext

REACH = range(-6, 9)


def read(table: Table, at: int) -> int:
    """The entry, or the nearest one."""
    return table.values[min(max(at - table.lower, 0), len(table.values) - 1)]


@pytest.mark.parametrize("seed", range(150))
def test_no_solution_is_proved(seed: int) -> None:
    """Entries, entries at entries, their distances from what they are read at; against all points."""
    rng = random.Random(seed)
    tables = {
        n: Table(rng.randint(-2, 1), tuple(rng.randint(-2, 5) for _ in range(rng.randint(2, 6)))) for n in ("A", "B")
    }
    lin = Linear(PolyContext((), arrays={"A": tables["A"]}), one_by_one=True)
    lin.add_array("B", tables["B"])
    x, y = IndexExpr.of("x"), IndexExpr.of("y")
    a = IndexExpr.of(Lookup("A", x + rng.randint(-1, 1)))
    terms = [x, y, a, IndexExpr.of(Lookup("B", rng.choice([a, y, -x]) + rng.randint(-1, 1)))]
    cons = [Con(v - lo) for v, lo in ((x, rng.randint(-4, 1)), (y, rng.randint(-4, 1)))]
    cons += [Con(-v + rng.randint(2, 6)) for v in rng.sample([x, y], rng.randint(0, 2))]
    for _ in range(rng.randint(1, 3)):
        p, q = rng.sample(terms, 2)
        cons.append(Con(p - q + rng.randint(-3, 3), rng.random() < 0.4))

    def holds(c: Con, at: dict[str, int]) -> bool:
        value = c.e.evaluate(at, lambda n, i: read(tables[n], i))
        return value == 0 if c.eq else value >= 0

    points = [{"x": i, "y": j} for i, j in product(REACH, REACH)]
    there = [p for p in points if all(holds(c, p) for c in cons)]
    assert lin.feasible(cons) or not there
    few = lin.minimal(cons)
    assert [p for p in points if all(holds(c, p) for c in few)] == there
    if there:
        for t in terms:
            lo, hi = lin.bounds(cons, t)
            values = [t.evaluate(p, lambda n, i: read(tables[n], i)) for p in there]
            assert (lo is None or lo <= min(values)) and (hi is None or max(values) <= hi)


def test_the_distance_from_the_index_is_known() -> None:
    """A table that goes down: its entries are below their index; of those at entries of another one, too."""
    lin = Linear(PolyContext((), arrays={"T": Table(0, (-1, 0, -1, 2, 3))}), one_by_one=True)
    lin.add_array("S", Table(-1, (0, 1, 2, 3, 4)))
    x = IndexExpr.of("x")
    inside = (Con(x), Con(-x + 4))
    down, up = IndexExpr.of(Lookup("T", x)), IndexExpr.of(Lookup("S", IndexExpr.of(Lookup("T", x))))
    assert lin.implies(inside, Con(x - down - 1))
    assert lin.implies(inside, Con(x - up))
    assert not lin.implies((), Con(x - down - 1))  # below 0 the nearest entry is read
    assert lin.bounds((Con(x - 3), Con(-x + 4)), down) == (2, 3)
