# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownParameterType=false, reportAttributeAccessIssue=false
# pyright: reportUnknownLambdaType=false
# (an extra, which need not be there; JAX is typed in part)
"""A JAX function as a traced function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from upl_mlir.diagnostics import error
from upl_mlir.frontend.jaxpr import rules
from upl_mlir.frontend.jaxpr.evaluate import inlining
from upl_mlir.frontend.trace import tree
from upl_mlir.frontend.trace.position import fail
from upl_mlir.frontend.trace.program import Function
from upl_mlir.host.collector import rarely_collecting

try:
    import jax
except ModuleNotFoundError as e:
    raise error("UPL1804", "JAX is not installed", help="pip install 'upl-mlir[jax]'") from e


class Imported(Function):
    """A JAX function that runs as a UPL program: see `Function`, whose calls, derivatives and `program` it has."""

    def __init__(
        self, fun: Callable[..., Any], static: Sequence[int] = (), engine: str | None = None, *, inline: bool = False
    ):  # fmt: skip
        super().__init__(fun, static, engine)
        self._inline = inline
        self._jax = fun

        @functools.wraps(fun)
        def evaluated(*args: Any, **kwargs: Any) -> Any:
            return self._evaluated(*args, **kwargs)

        self.fun = evaluated
        self._avals: list[Any] = []

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """As for any traced function.  JAX tells whole numbers from real ones, so their types are told apart here."""
        args = [a if n in self._static_places(len(args)) else tree.map_tree(np.asarray, a) for n, a in enumerate(args)]
        kwargs = {name: tree.map_tree(np.asarray, a) for name, a in kwargs.items()}
        return super().bind(args, kwargs)

    def _kinds(self, values: Sequence[Any]) -> tuple[str, ...]:
        return tuple(v.dtype.kind for v in values)

    @rarely_collecting
    def _trace(self, args: Sequence[Any], kwargs: Any, fixed: Any, names: Any, shapes: Any, single: bool) -> Any:
        free = [None if n in fixed else a for n, a in enumerate(args)]
        self._avals = [_abstract(v, single) for _, v in tree.leaves([free, kwargs])]
        return super()._trace(args, kwargs, fixed, names, shapes, single)

    def _static_places(self, count: int) -> set[int]:
        return {n % count for n in self.static if -count <= n < count}

    def _evaluated(self, *args: Any, **kwargs: Any) -> Any:
        """The function on traced arrays: JAX's trace of it, equation by equation."""
        fixed = self._static_places(len(args))
        free = [None if n in fixed else a for n, a in enumerate(args)]
        leaves = [leaf for _, leaf in tree.leaves([free, kwargs])]
        avals = self._avals if len(self._avals) == len(leaves) else [_abstract(a, False) for a in leaves]
        rest = iter(avals)
        shown = [a if n in fixed else tree.map_tree(lambda _: next(rest), a) for n, a in enumerate(args)]
        named = {name: tree.map_tree(lambda _: next(rest), a) for name, a in kwargs.items()}
        with inlining(self._inline), _double(not any(a.dtype == np.float32 for a in avals)):
            closed, out = jax.make_jaxpr(
                lambda *free, **named: self._jax(*_with(fixed, args, free), **named), return_shape=True
            )(*[a for n, a in enumerate(shown) if n not in fixed], **named)
            results = rules.evaluate(closed.jaxpr, closed.consts, leaves)
        numbered = iter(results)
        flat, structure = jax.tree.flatten(out)
        return jax.tree.unflatten(structure, [next(numbered) for _ in flat])


def _with(fixed: set[int], args: Sequence[Any], free: Sequence[Any]) -> list[Any]:
    rest = iter(free)
    return [a if n in fixed else next(rest) for n, a in enumerate(args)]


def _abstract(value: Any, single: bool) -> Any:
    """What JAX's trace knows of an argument."""
    dtype = np.dtype(value.dtype)
    types = {"f": np.float32 if single else np.float64, "i": np.int32 if single else np.int64, "b": np.bool_, "u": dtype}
    return jax.ShapeDtypeStruct(value.shape, types[dtype.kind])


def _double(on: bool) -> Any:
    """A context in which JAX's numbers are double, or not."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(on)
    from jax.experimental import enable_x64  # before JAX 0.8

    return enable_x64(on)


_COMPILER = (
    "api.fastest", "passes.autodiff.autodiff", "passes.autodiff.eliminate_dead_derivatives", "passes.lower_to_loops",
    "passes.analysis.proved", "engines.native.engine", "engines.native.llvm.entry", "engines.native.products.contraction",
)
"""What most functions need at their first call."""


@functools.cache
def _load_compiler() -> None:
    """Load the compiler with the first function, as `import jax` loads that of JAX: no first call waits for it."""
    for name in _COMPILER:
        import_module(f"upl_mlir.{name}")


def from_jax(
    fun: Callable[..., Any], *, static_argnums: int | Sequence[int] = (), engine: str | None = None,
    inline_custom: bool = False,
) -> Imported:  # fmt: skip
    """A JAX function over arrays (and tuples, lists and dicts of them) as one that runs as a UPL program.

        f = upl.from_jax(lambda w, x: jnp.tanh(x @ w).sum())
        upl.grad(f)(w, x)

    `static_argnums` and `engine` are as for `upl.function`.  Functions with derivative rules of the user's own
    (`jax.custom_vjp`, `custom_jvp`) are refused, unless `inline_custom`: then UPL differentiates what is inside.
    f32 arguments compute in f32, others in f64.  Raises UplError: UPL1936 for a primitive of JAX that UPL has no rule for,
    with its line; UPL193x as traced functions do.
    """
    if not callable(fun):
        raise fail("UPL1934", f"upl.from_jax: expected a function, found {type(fun).__name__}", help="pass the function")
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    if engine in (None, "native"):
        _load_compiler()
    return Imported(fun, static, engine, inline=inline_custom)
