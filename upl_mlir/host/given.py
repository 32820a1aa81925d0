"""What a caller may pass for a host input: sorted into a dense array, a list along a field, or `{index: value}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import Span, UplError, error
from upl_mlir.dialects.upl import UplType

Array = NDArray[Any]


@dataclass(frozen=True)
class Dense:
    """An array whose element 0 is the lower bound of the domain."""

    values: Array


@dataclass(frozen=True)
class Ragged:
    """One array for each value of some field, each dense over its own bounding box."""

    slices: tuple[Array, ...]


@dataclass(frozen=True)
class Sparse:
    """Values by index."""

    values: Mapping[tuple[int, ...], Any]

    def extents(self) -> tuple[int, ...]:
        """How many values each field spans."""
        columns = zip(*self.values, strict=True)
        return tuple(max(c) - min(c) + 1 for c in columns)


Given = Dense | Ragged | Sparse


def classify(name: str, fields: Sequence[str], value: object, span: Span | None) -> Given:
    """Sort what was passed for the port `name`.

    Raises UplError: UPL1503 for a wrong form, UPL1504 for wrong values.
    """
    if isinstance(value, Mapping):
        return _sparse(name, fields, cast("Mapping[object, object]", value), span)
    if isinstance(value, list | tuple) and len(fields) > 0:
        items = list(cast("Sequence[object]", value))
        parts = [_array(v) for v in items]
        whole = None if len({p.shape for p in parts if p is not None}) > 1 else _array(items)
        if whole is None:
            if any(p is None for p in parts):
                raise error("UPL1503", f"the list given for `{name}` is not a list of arrays along one field", span)
            return Ragged(tuple(p for p in parts if p is not None))
        if whole.ndim != len(fields) and whole.ndim >= 1:
            raise _dimensions(name, fields, whole.shape, span)
        return Dense(whole)
    array = _array(cast(object, value))
    if array is None:
        found = type(cast(object, value)).__name__
        raise error("UPL1504", f"what is given for `{name}` is not an array: {found}", span)
    return Dense(array)


def _array(value: object) -> Array | None:
    """The value as an array, None if it is not rectangular."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError):
        return None


def _dimensions(name: str, fields: Sequence[str], shape: Sequence[int], span: Span | None) -> UplError:
    what = f"the {len(fields)} fields <{','.join(fields)}>" if fields else "no fields"
    return error("UPL1503", f"`{name}` has {what}, but the array given has shape {tuple(shape)}", span)


def _sparse(name: str, fields: Sequence[str], value: Mapping[object, object], span: Span | None) -> Sparse:
    out: dict[tuple[int, ...], Any] = {}
    for key, entry in value.items():
        index: tuple[object, ...] = cast("tuple[object, ...]", key) if isinstance(key, tuple) else (key,)
        if len(index) != len(fields) or not all(isinstance(i, int | np.integer) for i in index):
            wanted = f"({', '.join(fields)})" if fields else "()"
            raise error("UPL1503", f"`{key!r}` is not an index of `{name}`: expected integers {wanted}", span)
        out[tuple(int(cast(int, i)) for i in index)] = entry
    return Sparse(out)


def cast_values(name: str, type_: UplType, dtype: np.dtype[Any], values: Array, span: Span | None) -> Array:
    """The values in the type of a port.  Raises UplError (UPL1504) for a value that the type does not have."""

    def refuse(why: str) -> UplError:
        return error("UPL1504", f"`{name}` is `{type_.value}`: {why}", span)

    if values.dtype == object:
        values = _plain(values, type_, refuse)
    kind = values.dtype.kind
    if kind == "c":
        raise refuse("complex numbers have no place in UPL")
    if kind not in "biuf":
        raise refuse(f"the array given holds `{values.dtype}`, expected numbers")
    if type_ is UplType.BOOL:
        if not np.isin(values, (0, 1)).all():
            raise refuse("a value other than true (1) and false (0) is given")
    elif type_ is UplType.INT:
        if kind == "f":
            if not np.isfinite(values).all():
                raise refuse("the array given holds NaN or an infinity")
            if (values != np.floor(values)).any():
                raise refuse(f"the array given holds {values[values != np.floor(values)].flat[0]}, not an integer")
            if (np.abs(values.astype(np.float64)) >= 2.0**63).any():  # which f16 cannot hold
                raise refuse("a value does not fit 64 bits")
        elif kind == "u" and (values > np.uint64(2**63 - 1)).any():
            raise refuse("a value does not fit 64 bits")
    with np.errstate(over="ignore"):  # a real beyond f32 becomes an infinity, as IEEE says
        return values.astype(dtype)


def _plain(values: Array, type_: UplType, refuse: Any) -> Array:
    """An array of Python objects as one of numbers; integers too large for 64 bits are reals, where a real is wanted."""
    found = values.ravel().tolist()
    bad = [v for v in found if not isinstance(v, bool | int | float | np.number | np.bool_)]
    if bad:
        raise refuse(f"the array given holds {type(bad[0]).__name__}, expected numbers")
    whole = all(isinstance(v, bool | int | np.integer | np.bool_) for v in found)
    real = type_ not in (UplType.INT, UplType.BOOL)
    try:
        if whole and not real:
            return np.array([int(v) for v in found], dtype=np.int64).reshape(values.shape)
        return np.array([float(v) for v in found], dtype=np.float64).reshape(values.shape)
    except OverflowError:
        raise refuse(f"a value does not fit {'f64' if real else '64 bits'}") from None
