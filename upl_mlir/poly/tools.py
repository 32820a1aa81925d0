# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""Small operations on isl's own objects: values, least points, permutations, sets as maps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

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
