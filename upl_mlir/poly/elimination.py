"""Fourier–Motzkin elimination over rows of integers: what `linear.py` works with inside.

A row is the constraint "a sum of coefficients times symbols, plus a constant, is at least 0" (or is 0).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

Row = tuple[dict[str, int], int]
"""Coefficients by symbol, and the constant."""

MAX_ROWS = 400
"""Beyond this an elimination gives up, on the safe side."""


def _tight(row: dict[str, int], constant: int) -> Row:
    """Divided by the common divisor, the constant rounded down: no integer point is lost."""
    g = 0
    for c in row.values():
        g = gcd(g, c)
        if g == 1:
            return row, constant
    return ({k: c // g for k, c in row.items()}, constant // g) if g else (row, constant)


def solved(eqs: list[Row], rows: list[Row], keep: frozenset[str] = frozenset()) -> list[Row] | None:
    """The inequalities after every equality is used up; None if an equality has no integer solution.

    An equality over kept symbols only stays, as two inequalities.
    """
    eqs, rows = list(eqs), list(rows)
    while eqs:
        row, constant = eqs.pop()
        g = 0
        for c in row.values():
            g = gcd(g, c)
        if not g:
            if constant:
                return None
            continue
        if constant % g:
            return None
        free = [k for k in row if k not in keep]
        if not free:
            rows += [(row, constant), ({k: -c for k, c in row.items()}, -constant)]
            continue
        v = min(free, key=lambda k: abs(row[k]))
        eqs = [_replaced(r, v, row, constant) for r in eqs]
        rows = [_replaced(r, v, row, constant) for r in rows]
    return rows


def _add(out: dict[str, int], row: Mapping[str, int], factor: int) -> None:
    """Add a multiple of a row to another one; what is 0 has no place in it."""
    for k, n in row.items():
        s = out.get(k, 0) + factor * n
        if s:
            out[k] = s
        else:
            out.pop(k, None)


def _replaced(r: Row, v: str, row: dict[str, int], constant: int) -> Row:
    """The row with `v` eliminated by the equality ``row + constant == 0``."""
    c = r[0].get(v, 0)
    if not c:
        return r
    a = row[v]
    scale, factor = abs(a), (-c if a > 0 else c)
    out = {k: n * scale for k, n in r[0].items()} if scale != 1 else dict(r[0])
    _add(out, row, factor)
    return out, r[1] * scale + factor * constant


def possible(rows: list[Row]) -> bool:
    """Whether the rows have a rational solution, as far as elimination tells; if not, it is proved that none is integer.

    Most symbols lie between two numbers, and these numbers decide most rows: elimination gets only the others.
    """
    left = _open(rows)
    return left is not None and (not left or eliminated(left, None) is not None)


def _open(rows: list[Row]) -> list[Row] | None:
    """The rows that the bounds of single symbols do not imply, with these bounds; None if a row is false."""
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    wide: list[Row] = []
    for row, constant in rows:
        if len(row) == 1:
            ((k, c),) = row.items()
            if c > 0:
                low[k] = max(low.get(k, -(constant // c)), -(constant // c))
            else:
                high[k] = min(high.get(k, constant // -c), constant // -c)
        elif row:
            wide.append((row, constant))
        elif constant < 0:
            return None
    if any(b > high.get(k, b) for k, b in low.items()):
        return None
    kept: list[Row] = []
    for row, constant in wide:
        least: int | None = constant
        most: int | None = constant
        for k, c in row.items():
            down, up = (low.get(k), high.get(k)) if c > 0 else (high.get(k), low.get(k))
            least = None if least is None or down is None else least + c * down
            most = None if most is None or up is None else most + c * up
        if most is not None and most < 0:
            return None
        if least is None or least < 0:
            kept.append((row, constant))
    symbols = {k for row, _ in kept for k in row}
    bounds = [({k: 1}, -b) for k, b in low.items() if k in symbols]
    return kept + bounds + [({k: -1}, b) for k, b in high.items() if k in symbols]


def eliminated(rows: list[Row], keep: frozenset[str] | None) -> list[Row] | None:
    """The rows without all symbols but those kept; None if a row is false.  (`keep` None: eliminate all.)"""
    table: dict[frozenset[tuple[str, int]], int] = {}

    def add(row: dict[str, int], constant: int, into: dict[frozenset[tuple[str, int]], int]) -> bool:
        row, constant = _tight(row, constant)
        if not row:
            return constant >= 0
        key = frozenset(row.items())
        if key not in into or into[key] > constant:
            into[key] = constant
        return True

    for r in rows:
        if not add(r[0], r[1], table):
            return None
    while True:
        positive: dict[str, int] = {}
        negative: dict[str, int] = {}
        for key in table:
            for k, c in key:
                if keep is None or k not in keep:
                    if c > 0:
                        positive[k] = positive.get(k, 0) + 1
                    else:
                        negative[k] = negative.get(k, 0) + 1
        symbols = positive.keys() | negative.keys()
        if not symbols:
            return [(dict(key), constant) for key, constant in table.items()]
        open_ = positive.keys() ^ negative.keys()
        if open_:  # nothing bounds them from the other side: their rows say nothing of the rest
            table = {key: constant for key, constant in table.items() if not any(k in open_ for k, _ in key)}
            continue
        v = min(symbols, key=lambda k: (positive.get(k, 0) * negative.get(k, 0), k))
        ups: list[tuple[dict[str, int], int, int]] = []
        downs: list[tuple[dict[str, int], int, int]] = []
        new: dict[frozenset[tuple[str, int]], int] = {}
        for key, constant in table.items():
            row = dict(key)
            c = row.pop(v, 0)
            if c > 0:
                ups.append((row, constant, c))
            elif c < 0:
                downs.append((row, constant, -c))
            else:
                new[key] = constant
        if len(ups) * len(downs) + len(new) > MAX_ROWS:
            ups = []  # too many: forget what is known of this symbol
        for a, a0, ac in ups:
            for b, b0, bc in downs:
                if ac == bc:
                    row, constant = dict(a), a0 + b0
                    _add(row, b, 1)
                else:
                    row, constant = {k: c * bc for k, c in a.items()}, a0 * bc + b0 * ac
                    _add(row, b, ac)
                if not add(row, constant, new):
                    return None
        table = new
