# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""numpy's functions that make arrays, put elements elsewhere, or multiply them in patterns: each of a few others."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from upl_mlir.frontend.trace.array import Array, as_array, broadcast, common_shape, filled, numbers, truths
from upl_mlir.frontend.trace.chosen import take
from upl_mlir.frontend.trace.contract import dot, einsum, matmul, outer, tensordot
from upl_mlir.frontend.trace.functions.elements import UFUNCS, where
from upl_mlir.frontend.trace.functions.folds import plain
from upl_mlir.frontend.trace.position import fail
from upl_mlir.frontend.trace.reshape import (
    axis_of,
    concatenate,
    diagonal,
    expand_dims,
    flip,
    moveaxis,
    pad,
    repeat,
    reshape,
    roll,
    sliding_window_view,
    split,
    squeeze,
    stack,
    stack_columns,
    stack_rows,
    swapaxes,
    tile,
    transpose,
)


def triangle(side: int) -> Callable[..., Array]:
    """`np.tril` (-1) and `np.triu` (1)."""

    def call(m: Any, k: int = 0) -> Array:
        x = numbers(as_array(m))
        ones = np.ones(x.shape[-2:])
        return where((np.tril if side < 0 else np.triu)(ones, k), x, 0)

    return call


def _like(value: float | None) -> Callable[..., Array]:
    def call(a: Any, fill: Any = None, dtype: Any = None, shape: Any = None, **_: Any) -> Array:
        if value is not None:
            fill, dtype = value, (fill if dtype is None else dtype)
        plain("…_like", dtype=dtype)
        return _full(as_array(a).shape if shape is None else shape, fill)

    return call


def _new(value: float | None) -> Callable[..., Array]:
    """`np.zeros(n, like=x)` and its kin."""

    def call(shape: Any, fill: Any = None, *_: Any, dtype: Any = None, **__: Any) -> Array:
        plain("zeros, ones, full", dtype=dtype)
        return _full(shape, fill if value is None else value)

    return call


def _full(shape: Any, value: Any) -> Array:
    extents = tuple(int(n) for n in np.atleast_1d(shape)) if shape != () else ()
    if isinstance(value, int | float) and math.isfinite(value):
        return filled(extents, float(value))
    return broadcast(as_array(value), extents).copy()


def broadcast_to(a: Any, shape: Any, **_: Any) -> Array:
    """As in numpy."""
    wanted = tuple(int(n) for n in np.atleast_1d(shape))
    try:
        return broadcast(as_array(a), wanted)
    except ValueError:
        message = f"an array of shape {as_array(a).shape} does not broadcast to {wanted}"
        raise fail("UPL1931", message, help="extents must be equal or 1, counted from the last dimension") from None


def as_type(a: Array, dtype: Any) -> Array:
    """numpy's `astype`.  Raises UplError (UPL1932) for whole numbers."""
    kind = "f" if dtype is None else np.dtype(dtype).kind
    if kind not in "bf":
        raise fail("UPL1932", f"astype({np.dtype(dtype)}) cannot be traced: numbers are floats", help="use np.floor")
    return truths(a) if kind == "b" else a if dtype is None else numbers(a)


def _array(x: Any, dtype: Any = None, *, copy: Any = True, **_: Any) -> Array:
    out = as_type(as_array(x), dtype)
    return out.copy() if copy else out


def ravel(a: Any, order: str = "C") -> Array:
    """One dimension, in C order."""
    return reshape(a, -1, order)


def known(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numpy on numbers, in a traced function: `np.eye(3, like=x)`."""
    return lambda *args, **options: as_array(make(*args, **options))


def _linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0
) -> Any:  # fmt: skip
    plain("linspace", dtype=dtype)
    first, last = as_array(start), as_array(stop)
    step = (last - first) / max(1, num - 1 if endpoint else num)
    counts = np.arange(num, dtype=float).reshape(-1, *(1,) * step.ndim)
    out = first + step * counts
    out = where(counts == num - 1, last, out) if endpoint and num > 1 else out
    out = moveaxis(out, 0, axis)
    return (out, step) if retstep else out


def _cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Array:
    """Of vectors with three elements."""
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    if x.shape[-1] != 3 or y.shape[-1] != 3:
        message = f"cross: vectors of {x.shape[-1]} and {y.shape[-1]} elements"
        raise fail("UPL1931", message, help="vectors in space have three")
    pairs = ((1, 2), (2, 0), (0, 1))
    return stack([x[..., m] * y[..., n] - x[..., n] * y[..., m] for m, n in pairs], -1 if axisc == -1 else axisc)


def _kron(a: Any, b: Any) -> Array:
    x, y = as_array(a), as_array(b)
    ndim = max(x.ndim, y.ndim)
    x, y = (v[(None,) * (ndim - v.ndim)] for v in (x, y))
    wide = expand_dims(x, tuple(range(1, 2 * ndim, 2))) * expand_dims(y, tuple(range(0, 2 * ndim, 2)))
    return reshape(wide, tuple(m * n for m, n in zip(x.shape, y.shape, strict=True)))


def _convolve(a: Any, v: Any, mode: str = "full") -> Array:
    x, k = as_array(a), as_array(v)
    if mode not in ("full", "same", "valid") or x.ndim != 1 or k.ndim != 1:
        raise fail("UPL1932", f"convolve: {mode!r}, of shapes {x.shape} and {k.shape}, cannot be traced",
                   help="vectors, and one of `full`, `same`, `valid`")  # fmt: skip
    x, k = (k, x) if len(k) > len(x) else (x, k)
    n, m = len(x), len(k)
    low, length = {"full": (0, n + m - 1), "same": ((m - 1) // 2, n), "valid": (m - 1, n - m + 1)}[mode]
    windows = sliding_window_view(pad(x, m - 1), m)
    return matmul(windows[low : low + length], k[::-1])


def _correlate(a: Any, v: Any, mode: str = "valid") -> Array:
    x, k = as_array(a), as_array(v)
    return flip(_convolve(k, x[::-1], mode)) if len(k) > len(x) else _convolve(x, k[::-1], mode)


def _rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Array:
    x = as_array(m)
    first, second = (axis_of(x, n) for n in axes)
    turned = swapaxes(x, first, second)
    return (x, flip(turned, first), flip(flip(x, first), second), flip(turned, second))[k % 4]


def _meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Array, ...]:
    axes = [reshape(x, -1) for x in xi]
    order = [1, 0, *range(2, len(axes))] if indexing == "xy" and len(axes) > 1 else [*range(len(axes))]
    shown = [
        x[tuple(slice(None) if n == at else None for n in range(len(axes)))] for x, at in zip(axes, order, strict=True)
    ]
    return tuple(shown) if sparse else _broadcast_arrays(*shown)


def _broadcast_arrays(*arrays: Any, **_: Any) -> tuple[Array, ...]:
    shape = common_shape([as_array(a).shape for a in arrays], "broadcast_arrays")
    return tuple(broadcast_to(a, shape) for a in arrays)


def _append(arr: Any, values: Any, axis: Any = None) -> Array:
    return concatenate([arr, values] if axis is not None else [ravel(arr), ravel(values)], axis or 0)


def _vander(x: Any, N: int | None = None, increasing: bool = False) -> Array:
    v = as_array(x)
    powers = [filled(v.shape, 1.0)]
    for _ in range((len(v) if N is None else N) - 1):
        powers.append(powers[-1] * v)
    return stack(powers if increasing else powers[::-1], -1)


def _polyval(p: Any, x: Any) -> Array:
    """By Horner's rule."""
    out = as_array(0.0)
    for c in as_array(p):
        out = out * x + c
    return out


def _unravel(indices: Any, shape: Any, order: str = "C") -> tuple[Array, ...]:
    plain("unravel_index", order=None if order == "C" else order)
    rest, out = as_array(indices), list[Array]()
    for n in reversed([operator.index(n) for n in np.atleast_1d(shape)]):
        out.append(UFUNCS["remainder"](rest, n))
        rest = UFUNCS["floor_divide"](rest, n)
    return tuple(reversed(out))


def _at_least(ndim: int) -> Callable[..., Any]:
    """`np.atleast_1d` and `np.atleast_2d`."""

    def call(*arrays: Any) -> Any:
        out = [a if a.ndim >= ndim else a[(None,) * (ndim - a.ndim)] for a in map(as_array, arrays)]
        return out[0] if len(out) == 1 else tuple(out)

    return call


def _columns(arrays: Sequence[Any]) -> Array:
    parts = [as_array(a) for a in arrays]
    return concatenate([p if p.ndim > 1 else reshape(p, (-1, 1)) for p in parts], 1)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "dot": dot, "vdot": lambda a, b: dot(reshape(a, -1), reshape(b, -1)),
    "inner": lambda a, b: tensordot(a, b, (-1, -1)) if as_array(a).ndim and as_array(b).ndim else UFUNCS["multiply"](a, b),
    "outer": outer, "take": take, "einsum": einsum, "tensordot": tensordot, "matmul": matmul, "kron": _kron, "cross": _cross,
    "convolve": _convolve, "correlate": _correlate, "vander": _vander, "polyval": _polyval,
    "diagonal": diagonal, "diag": diagonal, "transpose": transpose, "permute_dims": transpose, "swapaxes": swapaxes,
    "matrix_transpose": lambda a: swapaxes(a, -1, -2), "moveaxis": moveaxis, "reshape": reshape, "ravel": ravel,
    "expand_dims": expand_dims, "squeeze": squeeze, "concatenate": concatenate, "sliding_window_view": sliding_window_view,
    "split": split, "array_split": lambda a, n, axis=0: split(a, n, axis, even=False), "pad": pad,
    "hsplit": lambda a, n: split(a, n, 1 if as_array(a).ndim > 1 else 0), "vsplit": lambda a, n: split(a, n, 0),
    "stack": stack, "vstack": stack_rows, "hstack": stack_columns, "column_stack": _columns, "append": _append,
    "flip": flip, "fliplr": lambda a: flip(a, 1), "flipud": lambda a: flip(a, 0), "roll": roll, "rot90": _rot90,
    "tile": tile, "repeat": repeat, "broadcast_to": broadcast_to, "broadcast_arrays": _broadcast_arrays,
    "meshgrid": _meshgrid, "tril": triangle(-1), "triu": triangle(1), "unravel_index": _unravel,
    "zeros_like": _like(0), "ones_like": _like(1), "empty_like": _like(0), "full_like": _like(None),
    "zeros": _new(0), "ones": _new(1), "empty": _new(0), "full": _new(None), "copy": _array, "array": _array,
    "asarray": lambda x, dtype=None, **_: _array(x, dtype, copy=False), "astype": lambda x, dtype, **_: as_type(x, dtype),
    "eye": known(np.eye), "identity": known(np.identity), "tri": known(np.tri), "arange": known(np.arange),
    "linspace": _linspace, "shape": lambda a: a.shape, "ndim": lambda a: a.ndim,
    "size": lambda a, axis=None: a.size if axis is None else a.shape[axis],
    "atleast_1d": _at_least(1), "atleast_2d": _at_least(2), "iscomplexobj": lambda x: False, "isrealobj": lambda x: True,
}  # fmt: skip
"""numpy's functions of places and products, by their names."""
