# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""Sets of (point, number): the greatest number of each point, the affine function through some of them, its maximum; the
exact bounds of a dimension."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import islpy as isl
import numpy as np

from upl_mlir.poly.convert import Opaque
from upl_mlir.poly.expr import Formula, IndexExpr, Lookup, extremum
from upl_mlir.poly.operators import CmpOp, Extremum
from upl_mlir.poly.sets import PSet, union
from upl_mlir.poly.tools import DIM, as_map


def latest(s: PSet) -> PSet:
    """For each point of the other dimensions, the greatest value of the last one.  The set must be exact."""
    if s.isl.n_basic_set() <= 1 and s.express(IndexExpr.of(s.dims[-1]), s.dims[:-1]) is not None:
        return s
    m = as_map(s.known().isl, len(s.dims) - 1).lexmax()
    return s.with_isl(_flat(m, s), s.known().params).coalesce()


def earliest(s: PSet) -> PSet | None:
    """For each point of the other dimensions, the least value of the last one; None if there is none.  The set must be
    exact."""
    if not s.isl.dim_has_lower_bound(isl.dim_type.set, len(s.dims) - 1):
        return None
    m = as_map(s.known().isl, len(s.dims) - 1).lexmin()
    return s.with_isl(_flat(m, s), s.known().params).coalesce()


def _flat(m: isl.Map, like: PSet) -> isl.Set:
    """The graph of a map as a set over the dimensions of `like`."""
    n = len(like.dims)
    dims = [f"x{i}" for i in range(n)]
    unwrap = f"{{ [[{','.join(dims[:-1])}] -> [{dims[-1]}]] -> [{','.join(dims)}] }}"
    return m.wrap().apply(isl.Map.read_from_str(isl.DEFAULT_CONTEXT, unwrap))


def affine_through(points: Sequence[tuple[tuple[int, ...], int]], names: Sequence[str]) -> IndexExpr | None:
    """The affine function of the named coordinates with integer coefficients that takes the given values; None if there is
    none.  Where the points leave it open, later names get the coefficient 0."""
    columns = np.array([[1, *x] for x, _ in points], dtype=float).T
    values = np.array([v for _, v in points], dtype=float)
    kept: list[int] = []
    basis: list[np.ndarray] = []  # orthonormal; a column that depends on earlier ones gets coefficient 0
    for n, c in enumerate(columns):
        rest = c - sum((b * (b @ c) for b in basis), np.zeros_like(c))
        if np.linalg.norm(rest) > 1e-9 * max(1.0, float(np.linalg.norm(c))):
            basis.append(rest / np.linalg.norm(rest))
            kept.append(n)
    found = np.rint(np.linalg.lstsq(columns[kept].T, values, rcond=None)[0])
    if not np.array_equal(columns[kept].T @ found, values):
        return None
    out = IndexExpr()
    for n, c in zip(kept, found, strict=True):
        out = out + (IndexExpr.of(names[n - 1]) if n else IndexExpr.of(1)) * int(c)
    return out


def bounds(s: PSet, d: str) -> tuple[IndexExpr, IndexExpr] | None:
    """The least and the greatest value of a dimension, for all parameters that leave a point; None if unknown."""
    minus = f"-{d}"
    only = s.project((d,))
    negated = only.extend((minus,)).constrain(Formula.compare(minus, CmpOp.EQ, -IndexExpr.of(d))).project((minus,))
    low, high = greatest((negated,)), greatest((only,))
    return None if low is None or high is None else (-low, high)


def attains(s: PSet, d: str, lo: IndexExpr, hi: IndexExpr) -> bool:
    """Whether the bounds of a dimension hold, and are values of it wherever the set has a point (proved)."""
    outside = Formula.compare(d, CmpOp.LT, lo) | Formula.compare(d, CmpOp.GT, hi)
    there = s.project(())
    return s.constrain(outside).is_empty() and all(
        there <= s.constrain(Formula.compare(d, CmpOp.EQ, b)).project(()) for b in (lo, hi)
    )


def greatest(sets: Iterable[PSet]) -> IndexExpr | None:
    """The greatest value of the last dimension over all points of all sets; None if isl finds no bound, or none of that
    form for all parameters."""
    found: dict[IndexExpr, None] = {}
    ctx = None
    reduced: list[PSet] = []
    for s in sets:
        ctx = s.ctx
        for d in reversed(s.dims[:-1]):  # from the inside out: what bounds inner dimensions then needs no array entries
            if not any(isinstance(a, Lookup | Opaque) and a.index.names & set(s.dims) for a in s.params.values()):
                break
            s = s.project([x for x in s.dims if x != d])
            s = s.gist()
            s = s.with_isl(s.isl, {p: a for p, a in s.params.items() if s.involves(a)})
        if s.lost:
            return None
        last = s.dims[-1]
        s = s.reorder((last, *s.dims[:-1])).known()
        reduced.append(s)
        for b in s.isl.get_basic_sets():
            piece = isl.Set.from_basic_set(b)
            if not piece.dim_has_upper_bound(DIM, 0):
                return None
            top = s.with_isl(piece.lexmax()).project((last,))
            best = None if top.lost else top.express(IndexExpr.of(last), ())
            if best is None:
                return None
            found[best] = None
    if ctx is None or not found:
        return None
    kept = list(found)
    for a in list(kept):
        if any(b != a and ctx.set((), ctx.param_condition & Formula.compare(a, CmpOp.GT, b)).is_empty() for b in kept):
            kept.remove(a)
    for a in kept:  # a piece may be empty for some parameters
        where = Formula.all((ctx.param_condition, *(Formula.compare(a, CmpOp.GE, b) for b in kept if b != a)))
        reach = (s.constrain(Formula.compare(s.dims[0], CmpOp.GE, a)).project(()) for s in reduced)
        if not ctx.set((), where) <= union(reach):
            return None
    return extremum(Extremum.MAX, kept)
