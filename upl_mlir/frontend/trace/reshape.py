# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""The same elements in other places: reshape, transpose, concatenate and their kin.

Those that numpy does without copying are views here; those that put arrays side by side write into a new array.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from upl_mlir.frontend.trace.array import Array, as_array, filled, numbers
from upl_mlir.frontend.trace.node import Index, Shape, places
from upl_mlir.frontend.trace.position import fail
from upl_mlir.poly.expr import IndexExpr, divide
from upl_mlir.poly.operators import DivKind


def axis_of(a: Array, axis: Any, extra: int = 0) -> int:
    """An axis as a number from 0.  Raises UplError (UPL1931)."""
    n, ndim = operator.index(axis), a.ndim + extra
    if not -ndim <= n < ndim:
        raise fail("UPL1931", f"there is no axis {n}", help=f"the shape is {a.shape}")
    return n % ndim


def reshape(a: Any, shape: Any = None, order: Any = "C", **options: Any) -> Array:
    """As numpy.reshape, in C order."""
    x = as_array(a)
    if order != "C":
        raise fail("UPL1932", f"reshape: order={order!r} cannot be traced", help="transpose before and after")
    wanted = [operator.index(n) for n in (shape if isinstance(shape, Sequence) else (options.get("newshape", shape),))]
    if wanted.count(-1) == 1:
        known = math.prod(n for n in wanted if n != -1)
        wanted[wanted.index(-1)] = x.size // known if known else -1
    if math.prod(wanted) != x.size or any(n < 0 for n in wanted):
        raise fail("UPL1931", f"an array of shape {x.shape} has no shape {shape}", help=f"it has {x.size} elements")
    new = tuple(wanted)
    if 0 in new:  # no element has an index
        return x.view(new, tuple(IndexExpr.of(0) for _ in x.shape), writable=False)
    base = x if _straight(x, new) else x.own()  # indices with remainders are not nested
    writable = base is x
    return base.view(new, _reshaped(x.shape, new), writable=writable)


def _straight(x: Array, new: Shape) -> bool:
    """Whether a view of this array needs no remainders of remainders."""
    plain = all(e.name or e.constant is not None for e in x._index)  # pyright: ignore[reportPrivateUsage]
    return plain or [n for n in x.shape if n > 1] == [n for n in new if n > 1]


def _reshaped(old: Shape, new: Shape) -> Index:
    """For an element of the new shape its index in the old one; groups of dimensions with equal products go together."""
    out: list[IndexExpr] = []
    a = b = 0
    while a < len(old) or b < len(new):
        m, n = [a], [b]
        left = old[a] if a < len(old) else 1
        right = new[b] if b < len(new) else 1
        a, b = a + 1, b + 1
        while left != right:
            if left < right:
                m.append(a)
                left *= old[a]
                a += 1
            else:
                n.append(b)
                right *= new[b]
                b += 1
        out += _group([old[d] for d in m if d < len(old)], [(d, new[d]) for d in n if d < len(new)])
    return tuple(out)


def _group(old: list[int], new: list[tuple[int, int]]) -> list[IndexExpr]:
    flat = IndexExpr()
    for d, extent in new:
        flat = flat * extent + (IndexExpr.of(f"i{d}") if extent > 1 else 0)
    wide = [extent for extent in old if extent > 1]
    if len(wide) == 1:
        return [flat if extent > 1 else IndexExpr() for extent in old]
    out: list[IndexExpr] = []
    rest = math.prod(old)
    for at, extent in enumerate(old):
        rest //= extent
        e = divide(DivKind.FLOORDIV, flat, IndexExpr.of(rest)) if rest > 1 else flat
        inside = all(n == 1 for n in old[:at])
        out.append(IndexExpr() if extent == 1 else e if inside else divide(DivKind.MOD, e, IndexExpr.of(extent)))
    return out


def transpose(a: Any, axes: Any = None) -> Array:
    """As numpy.transpose."""
    x = as_array(a)
    order = list(range(x.ndim))[::-1] if axes is None else [operator.index(n) for n in axes]
    if sorted(n % max(1, x.ndim) for n in order) != list(range(x.ndim)):
        raise fail("UPL1931", f"{tuple(order)} is no order of the axes", help=f"the shape is {x.shape}")
    order = [n % x.ndim for n in order]
    index = tuple(IndexExpr.of(f"i{order.index(n)}") for n in range(x.ndim))
    return x.view(tuple(x.shape[n] for n in order), index)


def swapaxes(a: Any, axis1: int, axis2: int) -> Array:
    """As in numpy."""
    x = as_array(a)
    order = list(range(x.ndim))
    m, n = axis_of(x, axis1), axis_of(x, axis2)
    order[m], order[n] = n, m
    return transpose(x, order)


def moveaxis(a: Any, source: Any, destination: Any) -> Array:
    """As in numpy."""
    x = as_array(a)
    froms, tos = ([axis_of(x, n) for n in np.atleast_1d(axes)] for axes in (source, destination))
    order = [n for n in range(x.ndim) if n not in froms]
    for to, n in sorted(zip(tos, froms, strict=True)):
        order.insert(to, n)
    return transpose(x, order)


def expand_dims(a: Any, axis: Any) -> Array:
    """As in numpy."""
    x = as_array(a)
    axes = np.atleast_1d(axis)
    where = sorted(axis_of(x, n, len(axes)) for n in axes)
    rest = iter(range(x.ndim))
    shape = tuple(1 if n in where else x.shape[next(rest)] for n in range(x.ndim + len(where)))
    index = tuple(IndexExpr.of(f"i{n}") for n in range(len(shape)) if n not in where)
    return x.view(shape, index)


def squeeze(a: Any, axis: Any = None) -> Array:
    """As in numpy."""
    x = as_array(a)
    where = [n for n, m in enumerate(x.shape) if m == 1] if axis is None else [axis_of(x, n) for n in np.atleast_1d(axis)]
    if any(x.shape[n] != 1 for n in where):
        raise fail("UPL1931", f"squeeze: an extent along {where} is not 1", help=f"the shape is {x.shape}")
    return x[tuple(0 if n in where else slice(None) for n in range(x.ndim))]


def concatenate(arrays: Sequence[Any], axis: Any = 0, **options: Any) -> Array:
    """As numpy.concatenate."""
    if options:
        raise fail("UPL1932", f"concatenate: the option `{next(iter(options))}` cannot be traced", help="leave it out")
    parts = [numbers(as_array(a)) for a in arrays]
    parts = [reshape(p, -1) for p in parts] if axis is None else parts
    at = axis_of(parts[0], 0 if axis is None else axis)
    shapes = [p.shape[:at] + p.shape[at + 1 :] for p in parts]
    if any(p.ndim != parts[0].ndim for p in parts) or any(s != shapes[0] for s in shapes):
        shown = ", ".join(str(p.shape) for p in parts)
        raise fail("UPL1931", f"concatenate: the shapes {shown} differ outside axis {at}", help="make the others equal")
    total = sum(p.shape[at] for p in parts)
    out = filled((*parts[0].shape[:at], total, *parts[0].shape[at + 1 :]), 0)
    start = 0
    for p in parts:
        stop = start + p.shape[at]
        out[(slice(None),) * at + (slice(start, stop),)] = p
        start = stop
    return out


def stack(arrays: Sequence[Any], axis: int = 0, **options: Any) -> Array:
    """As numpy.stack."""
    parts = [as_array(a) for a in arrays]
    if any(p.shape != parts[0].shape for p in parts):
        shown = ", ".join(str(p.shape) for p in parts)
        raise fail("UPL1931", f"stack: the shapes {shown} differ", help="stacked arrays have one shape")
    return concatenate([expand_dims(p, axis) for p in parts], axis, **options)


def stack_rows(arrays: Sequence[Any], **options: Any) -> Array:
    """numpy.vstack"""
    parts = [as_array(a) for a in arrays]
    return concatenate([p[None, :] if p.ndim == 1 else reshape(p, (1, 1)) if not p.ndim else p for p in parts], 0, **options)


def stack_columns(arrays: Sequence[Any], **options: Any) -> Array:
    """numpy.hstack"""
    parts = [as_array(a) for a in arrays]
    parts = [p if p.ndim else reshape(p, 1) for p in parts]
    return concatenate(parts, 0 if parts[0].ndim == 1 else 1, **options)


def flip(a: Any, axis: Any = None) -> Array:
    """As in numpy."""
    x = as_array(a)
    where = range(x.ndim) if axis is None else [axis_of(x, n) for n in np.atleast_1d(axis)]
    return x[tuple(slice(None, None, -1) if n in where else slice(None) for n in range(x.ndim))]


def roll(a: Any, shift: Any, axis: Any = None) -> Array:
    """As in numpy."""
    x = as_array(a)
    if axis is None:
        return reshape(roll(reshape(x, -1), shift, 0), x.shape)
    for s, n in zip(np.atleast_1d(shift), np.atleast_1d(axis), strict=True):
        at = axis_of(x, n)
        by = operator.index(s) % x.shape[at]
        if by:
            cut = (slice(None),) * at
            x = concatenate([x[(*cut, slice(-by, None))], x[(*cut, slice(None, -by))]], at)
    return x


def tile(a: Any, reps: Any) -> Array:
    """As in numpy."""
    x = as_array(a)
    counts = [operator.index(n) for n in np.atleast_1d(reps)]
    counts = [1] * (x.ndim - len(counts)) + counts
    x = x[(None,) * (len(counts) - x.ndim)].own()
    index = [IndexExpr.of(f"i{n}") for n in range(x.ndim)]
    index = [divide(DivKind.MOD, e, IndexExpr.of(m)) if c > 1 else e for e, c, m in zip(index, counts, x.shape, strict=True)]
    shape = tuple(c * m for c, m in zip(counts, x.shape, strict=True))
    return x.view(shape, tuple(index), writable=False)


def repeat(a: Any, repeats: Any, axis: Any = None) -> Array:
    """As numpy.repeat, with numbers of repetitions that are known."""
    x = reshape(as_array(a), -1) if axis is None else as_array(a)
    at = axis_of(x, 0 if axis is None else axis)
    if not isinstance(repeats, Array) and np.size(repeats) > 1:
        cut, each = (slice(None),) * at, [operator.index(n) for n in repeats]
        if len(each) != x.shape[at]:
            raise fail("UPL1931", f"repeat: {len(each)} numbers for {x.shape[at]} elements", help="give one for each")
        return concatenate([repeat(x[(*cut, slice(n, n + 1))], times, at) for n, times in enumerate(each) if times], at)
    times = operator.index(repeats if isinstance(repeats, Array | int) else np.asarray(repeats).item())
    shape = tuple(n * times if d == at else n for d, n in enumerate(x.shape))
    index = list(places(x.shape))
    index[at] = divide(DivKind.FLOORDIV, index[at], IndexExpr.of(times)) if times > 1 else index[at]
    return x.own().view(shape, tuple(index), writable=False)


def split(a: Any, indices_or_sections: Any, axis: Any = 0, *, even: bool = True) -> list[Array]:
    """As numpy.split; as numpy.array_split if the parts need not be `even`."""
    x = as_array(a)
    at = axis_of(x, axis)
    try:
        parts = (np.split if even else np.array_split)(np.arange(x.shape[at]), indices_or_sections)
    except ValueError as e:
        raise fail("UPL1931", f"split: {e}", help=f"the shape is {x.shape}; np.array_split makes uneven parts") from None
    ends = np.cumsum([len(p) for p in parts])
    cut = (slice(None),) * at
    return [x[(*cut, slice(int(end) - len(p), int(end)))] for p, end in zip(parts, ends, strict=True)]


def pad(array: Any, pad_width: Any, mode: Any = "constant", constant_values: Any = 0, **options: Any) -> Array:
    """As numpy.pad with one number round the array."""
    x = numbers(as_array(array))
    if mode != "constant" or options or np.ndim(constant_values):
        help = "pad with a number, or put slices together with np.concatenate"
        raise fail("UPL1932", "pad: only a constant, one for all sides, can be traced", help=help)
    try:
        widths = np.broadcast_to(np.asarray(pad_width, dtype=int), (x.ndim, 2))
        if (widths < 0).any():
            raise ValueError("a width is negative")
    except ValueError as e:
        raise fail("UPL1931", f"pad: {e}", help="the width is a number, (before, after), or such a pair per axis") from None
    shape = tuple(int(before + n + after) for n, (before, after) in zip(x.shape, widths, strict=True))
    out = filled(shape, 0.0)
    out[...] = constant_values
    out[tuple(slice(int(before), int(before) + n) for n, (before, _) in zip(x.shape, widths, strict=True))] = x
    return out


def sliding_window_view(x: Any, window_shape: Any, axis: Any = None, **_: Any) -> Array:
    """As numpy.lib.stride_tricks.sliding_window_view: a view, which cannot be written into."""
    a = as_array(x)
    sizes = [operator.index(n) for n in np.atleast_1d(window_shape)]
    axes = list(range(a.ndim)) if axis is None else [axis_of(a, n) for n in np.atleast_1d(axis)]
    if len(sizes) != len(axes):
        message = f"sliding_window_view: {len(sizes)} extents of a window for {len(axes)} axes"
        raise fail("UPL1931", message, help="give one for each axis")
    index, shape = list(places(a.shape)), list(a.shape)
    for n, (size, at) in enumerate(zip(sizes, axes, strict=True)):
        if not 0 < size <= shape[at]:
            message = f"sliding_window_view: a window of {size} does not fit into an extent of {shape[at]}"
            raise fail("UPL1931", message, help=f"the shape is {a.shape}")
        index[at] = index[at] + IndexExpr.of(f"i{a.ndim + n}")
        shape[at] -= size - 1
    return a.view((*shape, *sizes), tuple(index), writable=False)


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, k: int | None = None) -> Array:
    """As numpy.diagonal, along the first two axes; of a vector the matrix that has it, as numpy.diag."""
    x, offset = as_array(a), offset if k is None else k
    if x.ndim == 1:
        out = filled((len(x) + abs(offset),) * 2, 0)
        down, right = max(0, -offset), max(0, offset)
        place = IndexExpr.of("i0")
        out.view((len(x),), (place + down, place + right))[...] = x
        return out
    x = moveaxis(x, (axis1, axis2), (-2, -1))
    down, right = max(0, -offset), max(0, offset)
    length = min(x.shape[-2] - down, x.shape[-1] - right)
    if length <= 0:
        raise fail("UPL1931", f"the diagonal {offset} of an array of shape {x.shape} is empty", help="choose another")
    shape = (*x.shape[:-2], length)
    last = IndexExpr.of(f"i{len(shape) - 1}")
    return x.view(shape, (*places(shape[:-1]), last + down, last + right), writable=False)
