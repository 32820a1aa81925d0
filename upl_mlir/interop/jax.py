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
from upl_mlir.interop.pullback import Pullback

try:
    import jax
except ModuleNotFoundError as e:
    from upl_mlir.diagnostics import error

    raise error("UPL1804", "JAX is not installed", help="pip install 'upl-mlir[jax]'") from e


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
    `jax.pure_callback`; under `vmap` they are made one after the other.  f32 arguments compute in f32.  Raises UplError.
    """
    pullback = Pullback(p, of, wrt, engine, gather, params)

    @jax.custom_vjp
    def f(*args: Any) -> Any:
        args = tuple(map(jax.numpy.asarray, args))
        real = pullback.real_of([a.dtype for a in args])
        result = jax.ShapeDtypeStruct(pullback.shape([a.shape for a in args]), pullback.dtype(real))
        return jax.pure_callback(lambda *xs: pullback.value(xs, real), result, *args, vmap_method="sequential")

    def forward(*args: Any) -> Any:
        return f(*args), args

    def backward(args: Any, seed: Any) -> Any:
        args = tuple(map(jax.numpy.asarray, args))
        real = pullback.real_of([a.dtype for a in args])
        where = [pullback.names.index(n) for n in pullback.wrt]
        results = [jax.ShapeDtypeStruct(args[i].shape, args[i].dtype) for i in where]

        def pull(*xs: Any) -> Any:
            found = pullback.pull(xs[:-1], xs[-1], real)
            return [np.asarray(d, r.dtype) for d, r in zip(found, results, strict=True)]

        found = jax.pure_callback(pull, results, *args, seed, vmap_method="sequential")
        zeros = [np.zeros(a.shape, a.dtype if a.dtype.kind == "f" else jax.dtypes.float0) for a in args]
        for i, d in zip(where, found, strict=True):
            zeros[i] = d
        return tuple(zeros)

    f.defvjp(forward, backward)
    return f
