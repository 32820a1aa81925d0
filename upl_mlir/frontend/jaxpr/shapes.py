# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
"""Rules for primitives that move elements: they become index expressions of arrows."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from upl_mlir.dialects.upl import Gather
from upl_mlir.frontend.jaxpr.evaluate import Places, copied, is_concrete, is_index, traced
from upl_mlir.frontend.trace import reshape as places_of
from upl_mlir.frontend.trace.arithmetic import by_arithmetic
from upl_mlir.frontend.trace.array import Array, filled, numbers
from upl_mlir.frontend.trace.chosen import in_front, in_open_loop, pick, together
from upl_mlir.frontend.trace.chosen import scatter as chosen
from upl_mlir.frontend.trace.functions import elements, order
from upl_mlir.frontend.trace.node import current
from upl_mlir.frontend.trace.position import fail
from upl_mlir.poly.expr import IndexExpr

Shape = tuple[int, ...]

FEW = 32
"""Of so many elements in a loop, each is compared with the one that data choose. Chosen: four vectors."""


def _i(n: int) -> IndexExpr:
    return IndexExpr.of(f"i{n}")


def broadcast_in_dim(x: Any, shape: Sequence[int], dimensions: Sequence[int]) -> Array:
    """Dimension n of `x` becomes `dimensions[n]` of the result; those of extent 1 are repeated."""
    a = traced(x)
    index = tuple(IndexExpr.of(0) if m == 1 else _i(d) for m, d in zip(a.shape, dimensions, strict=True))
    return a.view(tuple(shape), index, writable=False)


def broadcast(eqn: Any, x: Any, *_: Any) -> Any:
    """See `broadcast_in_dim`; an index of a loop as a vector of one is a place still."""
    shape = tuple(eqn.params["shape"])
    return Places((x,)) if is_index(x) and shape == (1,) else broadcast_in_dim(x, shape, eqn.params["broadcast_dimensions"])


def flipped(x: Array, dimensions: Sequence[int]) -> Array:
    """The order of elements turned round along some dimensions."""
    index = tuple(IndexExpr.of(n - 1) - _i(d) if d in dimensions else _i(d) for d, n in enumerate(x.shape))
    return x.view(x.shape, index, writable=False)


def moved(x: Array, source: int, target: int) -> Array:
    """One dimension moved to another place."""
    return places_of.moveaxis(x, source, target)


def reshape(eqn: Any, x: Any, *_: Any) -> Array:
    """In C order."""
    if eqn.params.get("dimensions") is not None:
        raise fail("UPL1936", "reshape in another order of dimensions is not built", help="transpose first")
    return places_of.reshape(traced(x), tuple(eqn.params["new_sizes"]))


def transpose(eqn: Any, x: Any) -> Array:
    """By a permutation."""
    return places_of.transpose(traced(x), eqn.params["permutation"])


def squeeze(eqn: Any, x: Any) -> Any:
    """Without some dimensions of extent 1."""
    return places_of.squeeze(traced(x), tuple(eqn.params["dimensions"]))


def expand_dims(eqn: Any, x: Any) -> Array:
    """With more dimensions of extent 1."""
    return places_of.expand_dims(traced(x), tuple(eqn.params["dimensions"]))


def rev(eqn: Any, x: Any) -> Array:
    """Turned round."""
    return flipped(traced(x), eqn.params["dimensions"])


def slice_(eqn: Any, x: Any) -> Array:
    """From start to limit by strides."""
    a, p = traced(x), eqn.params
    steps = p["strides"] or (1,) * a.ndim
    return a[tuple(slice(b, e, s) for b, e, s in zip(p["start_indices"], p["limit_indices"], steps, strict=True))]


def concatenate(eqn: Any, *xs: Any) -> Any:
    """Along a dimension."""
    known = [isinstance(x, Places) or (is_concrete(x) and np.ndim(x) == 1) for x in xs]
    if all(known) and any(isinstance(x, Places) for x in xs):
        return Places(part for x in xs for part in x)
    return places_of.concatenate([numbers(traced(x)) for x in xs], eqn.params["dimension"])


def stack(eqn: Any, *xs: Any) -> Array:
    """Along a new dimension."""
    return places_of.stack([numbers(traced(x)) for x in xs], eqn.params.get("axis", eqn.params.get("dimension", 0)))


def unstack(eqn: Any, x: Any) -> list[Array]:
    """The parts along a dimension."""
    a, axis = traced(x), eqn.params.get("axis", eqn.params.get("dimension", 0))
    return [a[(*[slice(None)] * axis, n)] for n in range(a.shape[axis])]


def tile(eqn: Any, x: Any) -> Array:
    """Repeated along each dimension."""
    return places_of.tile(traced(x), tuple(eqn.params["reps"]))


def split(eqn: Any, x: Any) -> list[Array]:
    """Parts of given sizes along an axis."""
    a, axis, start, out = traced(x), eqn.params["axis"], 0, list[Array]()
    for size in eqn.params["sizes"]:
        out.append(a[(*[slice(None)] * axis, slice(start, start + size))])
        start += size
    return out


def padded(x: Array, value: Any, config: Sequence[tuple[int, int, int]]) -> Array:
    """With `value` before, behind and between elements; negative widths cut off."""
    widths = zip(x.shape, config, strict=True)
    shape = tuple(max(0, low + n + high + inner * max(0, n - 1)) for n, (low, high, inner) in widths)
    out = filled(shape, float(value)) if is_concrete(value) else copied(broadcast_in_dim(value, shape, ()))
    out = copied(out)
    here: list[slice] = []
    there: list[slice] = []
    for n, m, (low, _, inner) in zip(x.shape, shape, config, strict=True):
        step = inner + 1
        first = max(0, -(low // step)) if low < 0 else 0  # elements that are cut off in front
        begin = low + first * step
        count = max(0, min(n - first, -(-(m - begin) // step)))
        here.append(slice(first, first + count))
        there.append(slice(begin, begin + step * (count - 1) + 1 if count else begin, step))
    out[tuple(there)] = x[tuple(here)]
    return out


def pad(eqn: Any, x: Any, value: Any) -> Array:
    """See `padded`."""
    return padded(numbers(traced(x)), value, eqn.params["padding_config"])


def iota(eqn: Any, *_: Any) -> Any:
    """Counts along a dimension."""
    p = eqn.params
    n = p["shape"][p["dimension"]]
    return broadcast_in_dim(np.arange(n, dtype=float), p["shape"], (p["dimension"],))


# -- places that are computed --------------------------------------------------------------------------------------------
def _start(x: Any, most: int) -> Any:
    """The beginning of a slice, kept inside: a number or an index of a loop; None if data decide it."""
    if is_concrete(x):
        return int(np.clip(int(x), 0, most))
    if is_index(x):
        low, high = x.bounds
        return x if low >= 0 and high <= most else None
    return None


def dynamic_slice(eqn: Any, x: Any, *starts: Any) -> Array:
    """A part whose beginning is computed; where data decide it, along one dimension after the other."""
    a, sizes = traced(x), eqn.params["slice_sizes"]
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        most = a.shape[axis] - size
        first = 0 if most == 0 else _start(start, most)
        before = (slice(None),) * axis
        if first is None:
            at = _clipped(start, most)
            a = _taken(numbers(a), at + np.arange(size, dtype=float), axis)
        elif is_index(first) or first != 0 or size != a.shape[axis]:
            a = a[(*before, slice(first, first + size))]
    return a


def _taken(a: Array, at: Any, axis: int, none: float = math.nan) -> Array:
    """What numbers choose along an axis; data out of bounds end the run with an error, whatever JAX makes of them.

    Inside a loop of few elements, and in one that data end, where they choose no index: all of them, of which one counts, or
    `none`."""
    if is_concrete(at) or not current().loops or (a.shape[axis] > FEW and not in_open_loop()):
        return pick(a, at, axis, wraps=False)
    if (found := by_arithmetic(a, at, axis, wraps=False)) is not None:
        return found
    k = traced(at)
    out = order.along_or_none(moved(a, axis, -1), places_of.reshape(k, -1), none)
    out = places_of.reshape(out, (*out.shape[:-1], *k.shape))
    return places_of.moveaxis(out, range(-k.ndim, 0), range(axis, axis + k.ndim))


def _clipped(x: Any, most: int) -> Array:
    return elements.UFUNCS["minimum"](elements.UFUNCS["maximum"](traced(x), 0), most)


def dynamic_update_slice(eqn: Any, x: Any, update: Any, *starts: Any) -> Array:
    """A copy in which a part is another one."""
    a, new = copied(numbers(traced(x))), numbers(traced(update))
    key: list[slice] = []
    for n, size, start in zip(a.shape, new.shape, starts, strict=True):
        first = 0 if n == size else _start(start, n - size)
        if first is None:
            raise fail("UPL1936", "data decide which part is written, which is not built",
                       help="add to it: x.at[k].add(v); or write at an index of the loop")  # fmt: skip
        key.append(slice(first, first + size))
    a[tuple(key)] = new
    return a


def _one_axis(name: str, mapped: Sequence[int]) -> int:
    if len(mapped) != 1:
        raise fail(
            "UPL1936", f"`{name}` of parts by several indices is not built",
            help="index one axis after the other: x[i][:, j]; or write the elements out",
        )  # fmt: skip
    return mapped[0]


def gather(eqn: Any, x: Any, indices: Any) -> Array:
    """Elements along one axis that an array of whole numbers chooses, as `x[k]` and `jnp.take` make it.

    Known numbers out of bounds are clipped or give the value that fills, as it is asked for; else they are an error."""
    p = eqn.params
    d = p["dimension_numbers"]
    if not is_concrete(indices):
        return _gathered(eqn, x, indices)
    given, mode = np.asarray(indices), str(p["mode"])
    most = np.array([np.shape(x)[n] - p["slice_sizes"][n] for n in d.start_index_map], int)
    inside = np.all((given >= 0) & (given <= most), -1)
    if inside.all():
        return _gathered(eqn, x, indices)
    if "CLIP" not in mode and "FILL" not in mode:
        shown = f"an index from {given.min()} to {given.max()}"
        help_ = 'count from 0, or say mode="clip"'
        raise fail("UPL1931", f"{shown} is out of bounds for the shape {np.shape(x)}", help=help_)
    out = _gathered(eqn, x, np.clip(given, 0, most))
    if "CLIP" in mode:
        return out
    batch = iter(inside.shape)
    there = inside.reshape([1 if n in d.offset_dims else next(batch) for n in range(out.ndim)])
    return elements.where(there, out, _filling(eqn))


def _filling(eqn: Any) -> float:
    """What a gather gives for a place out of bounds: NaN, and for whole numbers one that no one computes."""
    value, dtype = eqn.params["fill_value"], np.dtype(eqn.outvars[0].aval.dtype)
    if value is not None or dtype.kind == "f":
        return math.nan if value is None else float(value)
    return 1.0 if dtype.kind == "b" else float(np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max)


def _gathered(eqn: Any, x: Any, indices: Any) -> Array:
    p = eqn.params
    d = p["dimension_numbers"]
    none = math.nan if p["fill_value"] is None else float(p["fill_value"])
    a = numbers(traced(x))
    if (key := _part(a.shape, d.start_index_map, d.collapsed_slice_dims, indices, p["slice_sizes"])) is not None:
        return a[key]
    together = list(d.collapsed_slice_dims) == sorted(d.start_index_map) and not d.operand_batching_dims
    if len(d.start_index_map) > 1 and together:
        return _elements(eqn, a, indices)
    axis = _one_axis("gather", d.start_index_map)
    rows, size = list(d.operand_batching_dims), p["slice_sizes"][axis]
    whole = {n: k for k, n in enumerate(n for n in range(a.ndim) if n not in (*rows, axis))}
    if any(p["slice_sizes"][n] != a.shape[n] for n in whole):
        raise fail("UPL1936", "`gather` of parts of rows is not built", help="take whole rows, then slice them")
    at = (indices if is_concrete(indices) else numbers(traced(indices)))[..., 0]
    count = np.ndim(at)
    sources = {n: count + k for n, k in whole.items()}
    if axis not in d.collapsed_slice_dims:  # a part of several elements, which has a dimension of its own
        at = (at if is_concrete(at) else _clipped(at, a.shape[axis] - size))[..., None] + np.arange(size)
        sources = {n: k + 1 for n, k in sources.items()} | {axis: count}
    elif "CLIP" in str(p["mode"]):
        at = _clipped(at, a.shape[axis] - 1)
    if rows:
        out = _row_by_row(a, traced(at), axis, rows, list(d.start_indices_batching_dims), none)
    else:
        out = _front(a, at, axis, none)
    kept, batch = (iter(x) for x in ([sources[n] for n in sorted(sources)], range(count)))
    return places_of.transpose(out, [next(kept) if n in d.offset_dims else next(batch) for n in range(out.ndim)])


def _front(a: Array, at: Any, axis: int, none: float) -> Array:
    """What is taken along an axis, with the dimensions of the indices first."""
    out = _taken(a, np.asarray(at) if is_concrete(at) else at, axis, none)
    return places_of.moveaxis(out, range(axis, axis + np.ndim(at)), range(np.ndim(at)))


def _row_by_row(a: Array, at: Array, axis: int, rows: list[int], of_rows: list[int], none: float) -> Array:
    """The same where each row chooses for itself: `rows` are dimensions of `a`, which `of_rows` are of the indices."""
    whole, free = ([n for n in range(x.ndim) if n not in given] for x, given in ((a, (*rows, axis)), (at, of_rows)))
    k = places_of.transpose(at, [*of_rows, *free])
    k = places_of.reshape(k, (*(a.shape[n] for n in rows), *(1,) * len(whole), -1))
    out = order.along_or_none(places_of.transpose(a, [*rows, *whole, axis]), k, none)
    out = places_of.reshape(out, (*out.shape[:-1], *(at.shape[n] for n in free)))
    first = [of_rows.index(n) if n in of_rows else len(rows) + len(whole) + free.index(n) for n in range(at.ndim)]
    return places_of.transpose(out, [*first, *range(len(rows), len(rows) + len(whole))])


def _ordered(out: Array, axis: int, count: int, offsets: Sequence[int]) -> Array:
    """`take` puts the dimensions of the indices at an axis, JAX those of the operand at `offsets`."""
    batch = list(range(axis, axis + count))
    axes, rest, batches = list[int](), iter([n for n in range(out.ndim) if n not in batch]), iter(batch)
    for n in range(out.ndim):
        axes.append(next(rest) if n in offsets else next(batches))
    return places_of.transpose(out, axes) if axes != list(range(out.ndim)) else out


def _elements(eqn: Any, a: Array, indices: Any) -> Array:
    """Elements that several indices choose together: their axes become one."""
    p = eqn.params
    mapped, offsets = list(p["dimension_numbers"].start_index_map), p["dimension_numbers"].offset_dims
    rest = [n for n in range(a.ndim) if n not in mapped]
    if any(p["slice_sizes"][n] != a.shape[n] for n in rest):
        raise fail("UPL1936", "`gather` of parts of rows is not built", help="take whole rows, then slice them")
    if is_concrete(indices) and (found := _linear(np.asarray(indices))) is not None:
        first, steps = found
        count = len(steps)
        index: list[IndexExpr] = [_i(0)] * a.ndim
        for k, axis in enumerate(mapped):
            index[axis] = IndexExpr.of(int(first[k]))
            for n in range(count):
                index[axis] = index[axis] + _i(n) * int(steps[n][k])
        for k, axis in enumerate(rest):
            index[axis] = _i(count + k)
        shape = (*np.asarray(indices).shape[:-1], *(a.shape[n] for n in rest))
        return _ordered(a.view(shape, tuple(index), writable=False), 0, count, offsets)
    at = _together(indices, a, mapped, clipped="CLIP" in str(p["mode"]))
    none = math.nan if p["fill_value"] is None else float(p["fill_value"])
    return _ordered(_taken(in_front(a, mapped), at, 0, none), 0, np.ndim(at), offsets)


def _together(indices: Any, a: Array, axes: Sequence[int], *, clipped: bool = False) -> Any:
    """One number for the indices along several axes, which `in_front` makes one."""
    given = indices if is_concrete(indices) else numbers(traced(indices))
    keys = [given[..., k] for k in range(len(axes))]
    if clipped:
        keys = [_clipped(k, a.shape[axis] - 1) for k, axis in zip(keys, axes, strict=True)]
    return together(keys, [a.shape[n] for n in axes], wraps=False)


def _linear(indices: Any) -> tuple[Any, list[Any]] | None:
    """Where known indices are linear in their places: the first ones, and the step along each dimension."""
    first, steps = indices.reshape(-1, indices.shape[-1])[0], list[Any]()
    out = np.broadcast_to(first, indices.shape).copy()
    for n, extent in enumerate(indices.shape[:-1]):
        at = [0] * (indices.ndim - 1)
        at[n] = min(1, extent - 1)
        steps.append(indices[tuple(at)] - first)
        counts = np.arange(extent).reshape([-1 if m == n else 1 for m in range(indices.ndim)])
        out = out + counts * steps[-1]
    return (first, steps) if (out == indices).all() else None


def _part(
    shape: Shape, mapped: Sequence[int], collapsed: Sequence[int], start: Any, sizes: Sequence[int]
) -> tuple[Any, ...] | None:  # fmt: skip
    """The key of one part of an array, at a place that is known or goes by loops; None for other indices."""
    if not isinstance(start, Places) and not (is_concrete(start) and np.ndim(start) == 1):
        return None
    key: list[Any] = [slice(None)] * len(shape)
    for first, axis in zip(start, mapped, strict=True):
        at = _start(first, shape[axis] - sizes[axis])
        if at is None:
            return None
        key[axis] = at if axis in collapsed else slice(at, at + sizes[axis])
    return tuple(key)


def _rows(eqn: Any, name: str, x: Array, indices: Any, u: Array) -> tuple[list[int], Any, Array, Any]:
    """Of a scatter: its axes; their indices as one; the updates, with the dimensions of the indices in the place of the axis
    (in front where there are several); and which known indices are in bounds, as others are left out."""
    d = eqn.params["dimension_numbers"]
    axes, inside = list(d.scatter_dims_to_operand_dims), None
    if list(d.inserted_window_dims) != sorted(axes) or d.operand_batching_dims:
        raise fail("UPL1936", f"`{name}` of parts of rows, or row by row, is not built", help="write the rows out")
    if is_concrete(indices):
        given = np.asarray(indices)
        inside = np.all((given >= 0) & (given < np.array([x.shape[n] for n in axes])), -1)
        indices = np.where(inside[..., None], given, 0)
    windows = list(d.update_window_dims)
    batch = [n for n in range(u.ndim) if n not in windows]
    place = axes[0] if len(axes) == 1 else 0
    u = places_of.transpose(u, [*windows[:place], *batch, *windows[place:]])
    clipped = "CLIP" in str(eqn.params["mode"])
    if len(axes) > 1:
        return axes, _together(indices, x, axes, clipped=clipped and inside is None), u, inside
    if is_concrete(indices):
        return axes, indices[..., 0], u, inside
    at = numbers(traced(indices))[..., 0]
    return axes, _clipped(at, x.shape[axes[0]] - 1) if clipped else at, u, inside


def _sizes(eqn: Any, a: Array, u: Array) -> list[int]:
    """How much of each dimension of the operand one part covers that a scatter writes."""
    d, sizes = eqn.params["dimension_numbers"], [1] * a.ndim
    kept = [n for n in range(a.ndim) if n not in (*d.inserted_window_dims, *d.operand_batching_dims)]
    for n, window in zip(kept, d.update_window_dims, strict=True):
        sizes[n] = u.shape[window]
    return sizes


def _in_bounds(eqn: Any, a: Array, indices: Any, u: Array) -> Any:
    """The indices of a scatter, known ones clipped where it says so; None if nothing is written, as the one part that it
    would write is out of bounds."""
    axes, sizes = eqn.params["dimension_numbers"].scatter_dims_to_operand_dims, _sizes(eqn, a, u)
    most, clips = [a.shape[n] - sizes[n] for n in axes], "CLIP" in str(eqn.params["mode"])
    if isinstance(indices, Places):
        if not clips and any(is_concrete(k) and not 0 <= int(k) <= m for k, m in zip(indices, most, strict=True)):
            return None
        return indices
    if not is_concrete(indices):
        return indices
    if clips:
        return np.clip(np.asarray(indices), 0, most)
    inside = (np.asarray(indices) >= 0) & (np.asarray(indices) <= most)
    return None if np.ndim(indices) == 1 and not inside.all() else indices


def _written(eqn: Any, a: Array, indices: Any, u: Array) -> tuple[Any, ...] | None:
    """The key of the one part that a scatter writes; None if it writes several."""
    d = eqn.params["dimension_numbers"]
    return _part(a.shape, d.scatter_dims_to_operand_dims, d.inserted_window_dims, indices, _sizes(eqn, a, u))


JOINED: dict[str, tuple[Gather, Callable[[Any, Any], Any]]] = {
    "add": (Gather.SUM, operator.add), "mul": (Gather.PRODUCT, operator.mul), "min": (Gather.MIN, np.minimum),
    "max": (Gather.MAX, np.maximum),
}  # fmt: skip
"""What `x.at[k].add(v)` and its like join elements by: many, and two."""


def scattered(word: str) -> Callable[..., Array]:
    """The rule of what joins elements that arrays of whole numbers choose with others, as `x.at[k].add(v)` makes it.

    Known numbers out of bounds are left out or clipped, as in JAX; data out of bounds end the run with an error, unless they
    are to be clipped."""
    op, join = JOINED[word]

    def rule(eqn: Any, x: Any, indices: Any, updates: Any) -> Array:
        a = numbers(traced(x))
        new = numbers(traced(updates))
        if (indices := _in_bounds(eqn, a, indices, new)) is None:
            return a
        if (key := _written(eqn, a, indices, new)) is not None:
            out = copied(a)
            out[key] = join(out[key], new)
            return out
        axes, at, u, inside = _rows(eqn, f"scatter-{word}", a, indices, new)
        if inside is not None and not inside.all():
            place = axes[0] if len(axes) == 1 else 0
            inside = inside.reshape((*inside.shape, *(1,) * (u.ndim - inside.ndim - place)))
            u = elements.where(inside, u, float(op.empty))
        if len(axes) == 1:
            return join(a, chosen(u, at, axes[0], a.shape, wraps=False, op=op))
        rest = [n for n in range(a.ndim) if n not in axes]
        flat = (int(np.prod([a.shape[n] for n in axes])), *(a.shape[n] for n in rest))
        found = places_of.reshape(chosen(u, at, 0, flat, wraps=False, op=op), [a.shape[n] for n in (*axes, *rest)])
        return join(a, places_of.transpose(found, np.argsort([*axes, *rest])))

    return rule


def scatter(eqn: Any, x: Any, indices: Any, updates: Any) -> Array:
    """Elements in the place of others, at places that are known, as `x.at[2].set(v)` makes it."""
    a = copied(numbers(traced(x)))
    u = numbers(traced(updates))
    if eqn.params["update_jaxpr"] is not None:
        raise fail("UPL1936", "a function applied to some elements in place is not built", help="x.at[k].set(f(x[k]))")
    if (indices := _in_bounds(eqn, a, indices, u)) is None:
        return a
    if (key := _written(eqn, a, indices, u)) is not None:
        a[key] = u
        return a
    if not is_concrete(indices):
        raise fail("UPL1936", "data decide which elements are written, which is not built",
                   help="add to them: x.at[k].add(v)")  # fmt: skip
    axes, at, u, inside = _rows(eqn, "scatter", a, indices, u)
    extents = [a.shape[n] for n in axes]
    before = [slice(None)] * axes[0] if len(axes) == 1 else []
    for place in np.ndindex(np.shape(at)):
        if inside[place]:
            index: list[Any] = [slice(None)] * a.ndim
            for axis, k in zip(axes, np.unravel_index(int(np.asarray(at)[place]), extents), strict=True):
                index[axis] = int(k)
            a[tuple(index)] = u[(*before, *place)]
    return a
