# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownParameterType=false, reportAttributeAccessIssue=false
# pyright: reportUnknownLambdaType=false
# (an extra, which need not be there; JAX is typed in part)
"""Functions of JAX that have a derivative rule of their own (`jax.custom_jvp`, `jax.custom_vjp`).

The rule of a function of elements becomes the derivative of its value (`with_derivative`): JAX makes a jaxpr of the rule,
which is walked through like any other.  What is inside need not have that derivative: ``xlogy(x, y)`` is 0 at x = 0 by a
case of its own, and `custom_root` bisects.  Other functions are differentiated as they stand inside if that is as good;
else they are refused.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import numpy as np

from upl_mlir.frontend.jaxpr.evaluate import evaluate, inlines, is_concrete, is_library, traced
from upl_mlir.frontend.jaxpr.folding import jax
from upl_mlir.frontend.tensor import Apply, Number
from upl_mlir.frontend.trace.array import Array, computed, filled, numbers
from upl_mlir.frontend.trace.functions.elements import UFUNCS, where
from upl_mlir.frontend.trace.position import fail

LAYERS = 3
"""How often the rule of a function inside a rule is looked at.  It often names its own function, without end; after so many
derivatives none is known."""
SMOOTH = frozenset(("logaddexp", "logaddexp2"))
"""Functions that traced functions have with derivatives of any order."""
INSIDE = frozenset(("_softmax", "_det", "_slogdet_small", "_slogdet_lu", "_slogdet_qr", "_pinv"))
"""Functions of whole arrays whose derivative is that of what is inside, except where docs/frontends.md says otherwise."""
ELEMENTS = frozenset((
    "floor", "ceil", "exp", "exp2", "log", "log1p", "expm1", "tanh", "sin", "cos", "tan", "sinh", "cosh", "sqrt",
    "cbrt", "sign", "add", "add_any", "sub", "mul", "div", "rem", "max", "min", "neg", "abs", "round", "asin", "acos",
    "atan", "atan2", "asinh", "acosh", "atanh", "rsqrt", "square", "logistic", "erf", "erfc", "pow", "integer_pow",
    "is_finite", "clamp", "select_n", "convert_element_type", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor",
    "not", "stop_gradient", "copy", "copy_p",
))  # fmt: skip
"""Primitives of elements."""
CALLS = frozenset(("jit", "pjit", "closed_call", "core_call", "custom_jvp_call"))
_layer: ContextVar[int] = ContextVar("layer", default=0)


def custom(eqn: Any, *args: Any) -> list[Any]:
    """The results of a call of a function with a rule.  Raises UplError (UPL1936) where the rule would be lost."""
    inner = next(eqn.params[name] for name in ("call_jaxpr", "fun_jaxpr") if name in eqn.params)
    info = inner.jaxpr.debug_info
    name, file = getattr(info, "func_name", ""), getattr(info, "func_filename", None)
    if not is_library(file):
        if not inlines():
            what = f"`{name}` has a derivative rule of its own, which is not taken over: UPL differentiates what is inside"
            raise fail("UPL1936", what, help="where that is as good: upl.from_jax(f, inline_custom=True)")
    elif name == "relu":
        x = traced(args[0])
        return [where(x <= 0, 0, x)]
    elif name in SMOOTH:
        return [UFUNCS[name](*map(traced, args))]
    elif eqn.primitive.name == "custom_jvp_call" and _of_elements(eqn, inner):
        return [_by_rule(eqn, inner, args)]
    elif name not in INSIDE and not inlines():
        what = f"`{name}` of JAX has a derivative rule of its own, which is not taken over"
        help_ = "where the derivative of what is inside is as good: upl.from_jax(f, inline_custom=True)"
        raise fail("UPL1936", what, help=help_)
    return evaluate(inner.jaxpr, inner.consts, args)


def _of_elements(eqn: Any, inner: Any) -> bool:
    """Whether an element of the one result depends on those elements of the operands alone that stand beside it, as numpy
    broadcasts them."""
    return len(eqn.outvars) == 1 and _in_place(inner.jaxpr, eqn.outvars[0].aval.shape)


def _in_place(jaxpr: Any, whole: Any) -> bool:
    """Whether no equation takes an element from another place than its own.  In an array of one number there is no other."""
    if not whole and all(not v.aval.shape for v in jaxpr.invars):
        return True
    for eqn in jaxpr.eqns:
        shapes, name = [v.aval.shape for v in (*eqn.invars, *eqn.outvars)], eqn.primitive.name
        inside = [getattr(p, "jaxpr", p) for p in eqn.params.values() if hasattr(p, "eqns") or hasattr(p, "jaxpr")]
        if name == "broadcast_in_dim":
            placed = enumerate(zip(eqn.params["broadcast_dimensions"], shapes[0], strict=True))
            kept = all(n == 1 or len(shapes[-1]) - d == len(shapes[0]) - k for k, (d, n) in placed)
        elif name in ("reshape", "squeeze", "expand_dims"):
            kept = _without_ones(shapes[0]) == _without_ones(shapes[-1])
        else:
            kept = name in ELEMENTS or (name in CALLS and bool(inside))
        if not (kept and all(_fits(n, whole) for n in shapes) and all(_in_place(j, whole) for j in inside)):
            return False
    return all(_fits(v.aval.shape, whole) for v in jaxpr.invars)


def _fits(shape: Any, whole: Any) -> bool:
    """Whether a shape broadcasts to another one."""
    pairs = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(n in (1, m) for n, m in pairs)


def _without_ones(shape: Any) -> Any:
    """A shape from its first extent on that is not 1."""
    first = next((k for k, n in enumerate(shape) if n != 1), len(shape))
    return tuple(shape[first:])


def _by_rule(eqn: Any, inner: Any, args: Any) -> Array:
    """The value, with the derivatives that the rule says."""
    (value,) = evaluate(inner.jaxpr, inner.consts, args)
    real = [n for n, v in enumerate(eqn.invars) if v.aval.dtype.kind == "f" and not is_concrete(args[n])]
    if not real:
        return value
    layer = _layer.get()
    pairs: list[Array] = []
    token = _layer.set(layer + 1)
    try:
        for n in real:
            operand = numbers(traced(args[n]))
            pairs += [operand, _slope(eqn, n, args) if layer < LAYERS else filled(operand.shape, 0.0)]
    finally:
        _layer.reset(token)
    unknown = Apply("/", (Number(0.0), Number(0.0)))

    def make(v: Any, *rest: Any) -> Apply:
        slopes = [x if k % 2 == 0 or layer < LAYERS else unknown for k, x in enumerate(rest)]
        return Apply("with_derivative", (v, *slopes))

    return computed(make, numbers(traced(value)), *pairs, word=eqn.primitive.name)


def _slope(eqn: Any, n: int, args: Any) -> Array:
    """The derivative by operand `n`, element by element: the rule, for a tangent of ones there and none elsewhere."""
    avals = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    bound = eqn.primitive.get_bind_params(eqn.params)
    subfuns, params = ((), bound) if isinstance(bound, dict) else bound  # before JAX 0.10 it is a pair

    def along(*given: Any) -> Any:
        def f(x: Any) -> Any:
            (out,) = eqn.primitive.bind(*subfuns, *given[:n], x, *given[n + 1 :], **params)
            return out

        return jax.jvp(f, (given[n],), (jax.numpy.ones_like(given[n]),))[1]

    closed = jax.make_jaxpr(along)(*avals)
    (found,) = evaluate(closed.jaxpr, closed.consts, [np.asarray(a) if is_concrete(a) else a for a in args])
    return numbers(traced(found))
