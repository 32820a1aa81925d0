# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""Small operations on isl's own objects: values, least points, permutations, sets as maps, equalities that are solved."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from math import gcd

import islpy as isl

DIM, PARAM = isl.dim_type.set, isl.dim_type.param


def val(i: int) -> isl.Val:
    return isl.Val.int_from_si(isl.DEFAULT_CONTEXT, i)


def least(s: isl.Set) -> isl.Point:
    """The lexicographically least point, parameters first, of a set that is not empty; any point if there is none."""
    n = s.dim(PARAM)
    flat = s.move_dims(DIM, 0, PARAM, 0, n)
    dims = range(flat.dim(DIM))  # a bound may be another dimension, which has none: `dim_min_val` knows
    if not all(flat.dim_has_lower_bound(DIM, i) for i in dims) or any(flat.dim_min_val(i).is_neginfty() for i in dims):
        return s.sample_point()
    point = flat.lexmin().sample_point()
    for i in range(n):
        s = s.fix_val(PARAM, i, point.get_coordinate_val(DIM, i))
    for i in range(s.dim(DIM)):
        s = s.fix_val(DIM, i, point.get_coordinate_val(DIM, n + i))
    return s.sample_point()


def permute(s: isl.Set, order: Sequence[int]) -> isl.Set:
    """The set with dimension ``order[i]`` of `s` at place `i`."""
    return s.apply(_permutation(tuple(order)))


@lru_cache(maxsize=512)
def _permutation(order: tuple[int, ...]) -> isl.Map:
    source = ",".join(f"x{i}" for i in range(len(order)))
    target = ",".join(f"x{i}" for i in order)
    return isl.Map.read_from_str(isl.DEFAULT_CONTEXT, f"{{ [{source}] -> [{target}] }}")


def as_map(s: isl.Set, n_in: int) -> isl.Map:
    """A set as a map from its first `n_in` dimensions to the rest."""
    dims = [f"x{i}" for i in range(s.dim(DIM))]
    wrap = f"{{ [{','.join(dims)}] -> [[{','.join(dims[:n_in])}] -> [{','.join(dims[n_in:])}]] }}"
    return s.apply(_read_map(wrap)).unwrap()


@lru_cache(maxsize=512)
def _read_map(text: str) -> isl.Map:
    """The map of a text: few are needed, but often; maps never change."""
    return isl.Map.read_from_str(isl.DEFAULT_CONTEXT, text)


Row = list[int]
"""Coefficients of the dimensions, then of the parameters, and the constant: their sum is 0."""


class Equalities:
    """The equalities that hold on a basic set, without those that hold a quotient, solved by elimination (Gauss)."""

    def __init__(self, hull: isl.BasicSet):
        self.dims = hull.dim(DIM)
        self.params: list[str] = [hull.get_dim_name(PARAM, i) or "" for i in range(hull.dim(PARAM))]
        self.rows: list[Row] = []
        quotients = hull.dim(isl.dim_type.div)
        for c in hull.get_constraints():
            if c.is_equality() and not (quotients and c.involves_dims(isl.dim_type.div, 0, quotients)):
                row = [c.get_coefficient_val(DIM, i).to_python() for i in range(self.dims)]
                row += [c.get_coefficient_val(PARAM, i).to_python() for i in range(len(self.params))]
                self.rows.append([*row, c.get_constant_val().to_python()])

    def solved(self, at: int, keep: Sequence[int], hard: Collection[str]) -> Row | None:
        """The row that gives dimension `at`, whose coefficient in it is 1 or -1, by the dimensions `keep`.

        None if there is none, or if it holds a parameter of `hard`.  A dimension of `keep` that earlier ones of it give is
        replaced by them, so that one function comes out in one way.
        """
        rows = self.rows
        kept = set(keep)
        for i in range(self.dims):
            if i != at and i not in kept:
                rows = _without(rows, i)[0]
        rows, found = _without(rows, at)
        if found is None:
            return None
        for i in (*reversed(keep), *range(len(found) - 2, self.dims - 1, -1)):
            rows, by = _without(rows, i)
            if by is not None:
                found = _reduced(found, by, i)
        if abs(found[at]) != 1 or any(found[self.dims + n] for n, name in enumerate(self.params) if name in hard):
            return None
        return found


def _without(rows: list[Row], i: int) -> tuple[list[Row], Row | None]:
    """The rows that follow without column `i`, and the row that it was eliminated by."""
    by = min((r for r in rows if r[i]), key=lambda r: abs(r[i]), default=None)
    if by is None:
        return rows, None
    return [r if not r[i] else _reduced(r, by, i) for r in rows if r is not by], by


def _reduced(row: Row, by: Row, i: int) -> Row:
    """The row without column `i`, in lowest terms."""
    if not row[i]:
        return row
    a, b = by[i], row[i]
    out = [a * x - b * y for x, y in zip(row, by, strict=True)]
    g = gcd(*out)
    return [x // g for x in out] if g > 1 else out
