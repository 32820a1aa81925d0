# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportAttributeAccessIssue=false
# pyright: reportUntypedFunctionDecorator=false, reportUnknownLambdaType=false, reportFunctionMemberAccess=false
# (an extra, which need not be there; JAX and PyTorch are typed in part)
"""A UPL program as a function for JAX, with its derivative: `jax_function`.  Needs the extra `jax`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from upl_mlir.api.programs import Program
from upl_mlir.diagnostics import error
from upl_mlir.interop.pullback import Pullback

try:
    import jax
except ModuleNotFoundError as e:
    raise error("UPL1804", "JAX is not installed", help="pip install 'upl-mlir[jax]'") from e


def fitting(values: Any, name: str, dtype: Any) -> Any:
    """A result in the type that JAX has for it.  Raises UplError (UPL1504) for an integer that is too large for it."""
    if dtype.kind == "i" and dtype != values.dtype and (values.astype(dtype) != values).any():
        message = f"`{name}` holds an integer that does not fit JAX's {dtype}"
        raise error("UPL1504", message, help='jax.config.update("jax_enable_x64", True)')
    return values.astype(dtype, copy=False)


def jax_function(
    p: Program,
    /,
    of: str,
    wrt: str | Sequence[str] | None = None,
    *,
    engine: Literal["native", "interp", "token"] = "native",
    gather: Literal["relaxed", "ordered"] = "relaxed",
    **params: int,
) -> Callable[..., Any]:
    """The output `of` as a function of all inputs in text order, for use under `jax.jit`, `jax.grad`, `jax.vmap`.

        f = jax_function(upl.load("matmul.upl"), "C")
        jax.grad(lambda a, b: f(a, b).sum(), argnums=(0, 1))(a, b)

    `wrt` are the inputs to differentiate by (all real ones unless told; the derivative by others is 0).  The program's own
    derivative runs backwards (`jax.custom_vjp`), so there is no forward mode and no second derivative.  Calls leave JAX by
    `jax.pure_callback`; under `vmap` they are made one after the other.  f32 arguments and shorter ones compute in f32.
    Where JAX has no types of 64 bits (`jax_enable_x64`), results are f32 and int32.  Raises UplError.
    """
    pullback = Pullback(p, of, wrt, engine, gather, params)

    def taken(args: Sequence[Any]) -> tuple[list[Any], Any]:
        """The arguments as the program takes them, and what `real` is."""
        arrays = [jax.numpy.asarray(a) for a in args]
        arrays = [a.astype(np.float32) if a.dtype == jax.numpy.bfloat16 else a for a in arrays]  # no type of numpy's
        return arrays, pullback.real_of([a.dtype for a in arrays])

    @jax.custom_vjp
    def f(*args: Any) -> Any:
        arrays, real = taken(args)
        dtype = jax.dtypes.canonicalize_dtype(pullback.dtype(real))
        result = jax.ShapeDtypeStruct(pullback.shape([a.shape for a in arrays]), dtype)
        return jax.pure_callback(
            lambda *xs: fitting(pullback.value(xs, real), of, dtype), result, *arrays, vmap_method="sequential"
        )

    def forward(*args: Any) -> Any:
        return f(*args), args

    def backward(args: Any, seed: Any) -> Any:
        arrays, real = taken(args)
        types = [jax.numpy.asarray(a).dtype for a in args]
        where = [pullback.names.index(n) for n in pullback.wrt]
        results = [jax.ShapeDtypeStruct(arrays[i].shape, arrays[i].dtype) for i in where]

        def pull(*xs: Any) -> Any:
            found = pullback.pull(xs[:-1], xs[-1], real)
            return [np.asarray(d, r.dtype) for d, r in zip(found, results, strict=True)]

        found = jax.pure_callback(pull, results, *arrays, *taken([seed])[0], vmap_method="sequential")
        real_types = [t if jax.numpy.issubdtype(t, np.floating) else jax.dtypes.float0 for t in types]
        zeros = [np.zeros(a.shape, t) for a, t in zip(arrays, real_types, strict=True)]
        for i, d in zip(where, found, strict=True):
            zeros[i] = d.astype(types[i])
        return tuple(zeros)

    f.defvjp(forward, backward)
    return f
