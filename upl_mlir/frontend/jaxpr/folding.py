# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownParameterType=false
# (an extra, which need not be there; JAX is typed in part)
"""Equations on known values: the plain ones are computed by numpy, all others by JAX.

JAX compiles each primitive for each shape when it meets it first, which takes 10 to 30 ms; the identity matrix alone is
four of them.  Only what is exact in both is here, so the results have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from upl_mlir.diagnostics import error

try:
    import jax
except ModuleNotFoundError as e:
    raise error("UPL1804", "JAX is not installed", help="pip install 'upl-mlir[jax]'") from e

Known = np.ndarray[Any, Any]


def folded(eqn: Any, given: Sequence[Any]) -> list[Any]:
    """The results of an equation whose arguments are arrays of numpy or JAX, or keys of random numbers."""
    name = eqn.primitive.name
    if name in BY_NUMPY and all(isinstance(a, np.ndarray | np.generic) for a in given):
        found = BY_NUMPY[name](eqn.params, *map(np.asarray, given))
        aval = eqn.outvars[0].aval
        if found is not None and found.shape == aval.shape and found.dtype == aval.dtype:
            return [found]
    found = eqn.primitive.bind(*map(jax.numpy.asarray, given), **eqn.params)
    return [known(x) for x in (found if eqn.primitive.multiple_results else [found])]


def known(x: Any) -> Any:
    """A value of JAX as an array of numpy; a key of random numbers stays what it is."""
    return x if isinstance(x, jax.Array) and str(x.dtype).startswith("key<") else np.asarray(x)


def _iota(params: Any) -> Known:
    shape, along = params["shape"], params["dimension"]
    index = np.arange(shape[along], dtype=params["dtype"])
    return np.broadcast_to(index.reshape([-1 if d == along else 1 for d in range(len(shape))]), shape)


def _broadcast(params: Any, x: Known, *sizes: Known) -> Known | None:
    shape, kept = params["shape"], params["broadcast_dimensions"]
    if sizes:
        return None
    place = dict(zip(kept, x.shape, strict=True))
    return np.broadcast_to(x.reshape([place.get(d, 1) for d in range(len(shape))]), shape)


def _convert(params: Any, x: Known) -> Known | None:
    to = np.dtype(params["new_dtype"])
    whole = x.dtype.kind in "fc" and to.kind not in "fc"  # JAX says what numbers beyond the type become, numpy does not
    return None if whole else x.astype(to)


def _by_element(f: Callable[..., Any]) -> Callable[..., Known | None]:
    """An operation on numbers, element by element."""

    def compute(_params: Any, *given: Known) -> Known | None:
        if any(a.dtype.kind not in "fiub" for a in given):
            return None
        with np.errstate(all="ignore"):
            return np.asarray(f(*given))

    return compute


def _transpose(params: Any, x: Known) -> Known:
    return np.transpose(x, params["permutation"])


def _reshape(params: Any, x: Known) -> Known | None:
    return None if params["dimensions"] is not None else x.reshape(params["new_sizes"])


def _squeeze(params: Any, x: Known) -> Known:
    return np.squeeze(x, axis=tuple(params["dimensions"]))


def _concatenate(params: Any, *parts: Known) -> Known:
    return np.concatenate(parts, axis=params["dimension"])


BY_NUMPY: dict[str, Callable[..., Known | None]] = {
    "iota": _iota, "broadcast_in_dim": _broadcast, "convert_element_type": _convert, "transpose": _transpose,
    "reshape": _reshape, "squeeze": _squeeze, "concatenate": _concatenate,
    "add": _by_element(np.add), "sub": _by_element(np.subtract), "mul": _by_element(np.multiply),
    "sqrt": _by_element(np.sqrt), "eq": _by_element(np.equal), "ne": _by_element(np.not_equal), "lt": _by_element(np.less),
    "le": _by_element(np.less_equal), "gt": _by_element(np.greater), "ge": _by_element(np.greater_equal),
}  # fmt: skip
