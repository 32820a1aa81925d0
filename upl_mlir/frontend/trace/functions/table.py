# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""numpy's functions on traced arrays by their names, and numpy's protocols, which find them here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from upl_mlir.frontend.trace.array import Array, as_array
from upl_mlir.frontend.trace.functions import eigen, elements, folds, matrices, order, shapes
from upl_mlir.frontend.trace.functions.elements import UFUNCS
from upl_mlir.frontend.trace.late import LATE, METHODS
from upl_mlir.frontend.trace.position import fail
from upl_mlir.frontend.trace.reshape import reshape, stack, transpose

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **elements.FUNCTIONS, **folds.FUNCTIONS, **shapes.FUNCTIONS, **order.FUNCTIONS, **matrices.FUNCTIONS,
    **eigen.FUNCTIONS,
}  # fmt: skip
"""numpy's functions that are no ufuncs."""


def _sorted_in_place(a: Array, axis: int = -1, **options: Any) -> None:
    a[...] = FUNCTIONS["sort"](a, axis, **options)


METHODS.update({name: FUNCTIONS[name] for name in (
    "sum", "prod", "max", "min", "mean", "var", "std", "all", "any", "cumsum", "cumprod", "argmax", "argmin", "argsort",
    "clip", "dot", "trace", "diagonal", "swapaxes", "squeeze", "repeat", "ravel", "round", "astype", "take", "searchsorted",
)})  # fmt: skip
METHODS.update({
    "flatten": lambda a, order="C": shapes.ravel(a, order).copy(), "sort": _sorted_in_place, "conj": lambda a: a,
    "transpose": lambda a, *axes: transpose(a, (axes[0] if len(axes) == 1 else axes) or None),
    "reshape": lambda a, *shape, **options: reshape(a, shape[0] if len(shape) == 1 else shape, **options),
})  # fmt: skip
"""Methods of arrays."""

_COUNTED = "how many elements it has is data: np.where(c, x, 0) keeps the shape, np.sum(c) counts"
_NEAR = {
    **dict.fromkeys(("eig", "eigvals"), "eigenvalues may be complex; np.linalg.eigh is for symmetric matrices"),
    **dict.fromkeys(("matrix_rank", "cond"), "np.linalg.svdvals has the singular values, greatest first"),
    **dict.fromkeys("nonzero argwhere flatnonzero extract compress unique union1d intersect1d".split(), _COUNTED),
    **dict.fromkeys(("fft", "ifft", "rfft", "irfft", "fft2", "ifft2", "fftn"),
                    "numbers are real: multiply by the tables np.cos(2*np.pi*k*n/N) and np.sin(…)"),
    **dict.fromkeys(("bincount", "histogram"), "upl.segment_sum(np.ones_like(x), k, n) counts"),
    **dict.fromkeys(("put", "place", "copyto", "putmask", "put_along_axis"), "np.where(c, a, b), or x.at[k].add(v)"),
    **dict.fromkeys(("partition", "argpartition"), "np.sort and np.argsort can"),
    **dict.fromkeys(("vectorize", "apply_along_axis", "apply_over_axes"), "upl.vmap(f)(x)"),
    **dict.fromkeys(("nanmax", "nanmin"), "np.max(np.where(np.isnan(x), -np.inf, x))"),
    **dict.fromkeys(("delete", "insert"), "put slices together with np.concatenate"),
    **dict.fromkeys(("allclose", "array_equal", "array_equiv"), "np.all(np.isclose(a, b)) is a value of the program"),
    "choose": "np.select", "signbit": "x < 0", "copysign": "np.where(b < 0, -np.abs(a), np.abs(a))",
    "digitize": "np.searchsorted", "nanmedian": "np.median of what has no NaN", "block": "np.concatenate",
}  # fmt: skip
"""What to write in place of functions that cannot be traced.  (A name that is spelt alike would be no help.)"""


def call_ufunc(ufunc: Any, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """A ufunc on traced arrays.  Raises UplError (UPL1932) for what cannot be traced."""
    name: str = ufunc.__name__
    if method == "reduce" and name in folds.REDUCED:
        axis = options.pop("axis", 0)
        return folds.REDUCED[name](*inputs, axis=axis, **options)
    if method == "accumulate":
        return folds.accumulated(name, *inputs, **options)
    if method == "outer" and name in UFUNCS:
        a, b = as_array(inputs[0]), as_array(inputs[1])
        return UFUNCS[name](a[(..., *(None,) * b.ndim)], b)
    if method != "__call__" or name not in UFUNCS:
        raise _unsupported(name if method == "__call__" else f"{name}.{method}")
    if options.get("where", True) is not True:
        raise fail("UPL1932", f"{name}: the option `where` cannot be traced", help="use np.where")
    return UFUNCS[name](*inputs)


def call_function(func: Any, args: Any, kwargs: Any) -> Any:
    """A function of numpy on traced arrays.  Raises UplError (UPL1932) for what cannot be traced."""
    name: str = func.__name__
    if name not in FUNCTIONS:
        raise _unsupported(name)
    kwargs.pop("like", None)
    try:
        return FUNCTIONS[name](*args, **kwargs)
    except TypeError as e:
        if "argument" not in str(e):
            raise
        message = f"np.{name}: this way to call it cannot be traced ({e})"
        raise fail("UPL1932", message, help="leave the option out") from None


def _unsupported(name: str) -> Exception:
    help = _NEAR.get(name, "write it with elementwise functions, sums, products and slices")
    return fail("UPL1932", f"numpy's `{name}` cannot be traced", help=f"{help}; docs/frontends.md lists what can be")


def install() -> None:
    """Let traced arrays find these functions."""
    LATE.update(call_ufunc=call_ufunc, call_function=call_function, stack=stack)
