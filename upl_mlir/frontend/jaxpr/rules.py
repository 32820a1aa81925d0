# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownLambdaType=false
"""What each primitive of JAX means on traced arrays: one rule a primitive.

A rule gets the equation and its operands: traced arrays, numpy arrays, or indices of traced loops.  It returns the
result, or a list of results.  Rules say what a primitive's documentation in `jax.lax` says; numbers are floats here,
whole ones, too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from upl_mlir.dialects.upl import Gather
from upl_mlir.frontend.jaxpr import matrices, shapes, windows
from upl_mlir.frontend.jaxpr.custom import custom
from upl_mlir.frontend.jaxpr.evaluate import (
    RULES,
    evaluate,
    is_concrete,
    is_index,
    traced,
)
from upl_mlir.frontend.tensor import Apply
from upl_mlir.frontend.trace import loops
from upl_mlir.frontend.trace.array import Array, computed, filled, numbers, truths
from upl_mlir.frontend.trace.functions import elements, folds, order
from upl_mlir.frontend.trace.functions.elements import UFUNCS, where
from upl_mlir.frontend.trace.position import fail
from upl_mlir.frontend.trace.rounds import while_loop

Rule = Callable[..., Any]


# -- elements -----------------------------------------------------------------------------------------------------------
def _ufunc(name: str) -> Rule:
    """A primitive that is a numpy function of elements."""
    f = UFUNCS[name]
    return lambda eqn, *args: f(*map(traced, args))


def _linear(name: str, op: Callable[[Any, Any], Any]) -> Rule:
    """The same for sums and products, which keep the index of a traced loop an index."""
    plain = _ufunc(name)

    def rule(eqn: Any, a: Any, b: Any) -> Any:
        parts = [x if is_index(x) else int(x) for x in (a, b) if is_index(x) or _whole(x)]
        if len(parts) == 2 and any(map(is_index, parts)):
            return op(*parts)
        return _wrapped(plain(eqn, a, b)) if name == "subtract" and _is(eqn.outvars[0], np.uint32) else plain(eqn, a, b)

    return rule


def _is(v: Any, dtype: Any) -> bool:
    return v.aval.dtype == dtype


def _wrapped(x: Array) -> Array:
    """A number below 0 as one of 32 bits without a sign."""
    return where(x < 0, x + 2.0**32, x)


def _whole(x: Any) -> bool:
    return is_concrete(x) and np.ndim(x) == 0 and np.asarray(x).dtype.kind in "iu"


def _compare(name: str, op: Callable[[Any, Any], bool]) -> Rule:
    """A comparison; of a loop's index with a number it is known if all rounds agree."""
    plain = _ufunc(name)

    def rule(eqn: Any, a: Any, b: Any) -> Any:
        if (is_index(a) and _whole(b)) or (is_index(b) and _whole(a)):
            low, high = ([x.bounds[k] if is_index(x) else int(x) for x in (a, b)] for k in (0, 1))
            answers = {op(low[0], low[1]), op(high[0], high[1])}
            if len(answers) == 1 and name not in ("equal", "not_equal"):
                return np.bool_(answers.pop())
        return plain(eqn, a, b)

    return rule


def _logic(of_truths: str) -> Rule:
    """`and`, `or`, `xor`, `not`: on truth values.  Bits of numbers are not built."""

    def rule(eqn: Any, *args: Any) -> Array:
        _truths_alone(eqn)
        return UFUNCS[of_truths](*map(traced, args))

    return rule


def _truths_alone(eqn: Any) -> None:
    """Raises UplError (UPL1936) for operations on the bits of numbers."""
    if any(v.aval.dtype != np.bool_ for v in eqn.invars):
        raise fail("UPL1936", f"`{eqn.primitive.name}` of whole numbers works on their bits, which UPL has not",
                   help="use it on truth values, or compute it before the call")  # fmt: skip


def _is_whole(eqn: Any) -> bool:
    return np.dtype(eqn.invars[0].aval.dtype).kind in "iu"


def _div(eqn: Any, a: Any, b: Any) -> Array:
    q = UFUNCS["divide"](traced(a), traced(b))
    return elements.truncated(q) if _is_whole(eqn) else q


def _rem(eqn: Any, a: Any, b: Any) -> Array:
    x, y = numbers(traced(a)), numbers(traced(b))
    return x - elements.truncated(x / y) * y if _is_whole(eqn) else UFUNCS["fmod"](x, y)


def _convert(eqn: Any, x: Any) -> Any:
    kind, was = np.dtype(eqn.params["new_dtype"]).kind, np.dtype(eqn.invars[0].aval.dtype).kind
    if eqn.params["new_dtype"] == np.uint32 and not is_index(x) and was in "if":
        return _wrapped(numbers(traced(x))) if was == "i" else UFUNCS["maximum"](elements.truncated(traced(x)), 0)
    if kind in "iu" and (is_index(x) or was in "iu"):
        return x
    if kind == "b":
        return truths(traced(x))
    if kind not in "fiu" or (np.dtype(eqn.params["new_dtype"]).itemsize < 4 and kind == "f"):
        help_ = "use float32 or float64; for small types of numbers see docs/numbers.md"
        raise fail("UPL1936", f"numbers of type {eqn.params['new_dtype']} are not built", help=help_)
    return elements.truncated(traced(x)) if kind in "iu" and was == "f" else numbers(traced(x))


def _select(eqn: Any, which: Any, *cases: Any) -> Any:
    if is_concrete(which) and np.ndim(which) == 0:
        return cases[int(which)]
    w = traced(which)
    if w.boolean or eqn.invars[0].aval.dtype == np.bool_:
        return _chosen(w, cases[1], cases[0])
    out = traced(cases[-1])
    for n in reversed(range(len(cases) - 1)):
        out = _chosen(UFUNCS["equal"](w, n), cases[n], out)
    return out


def _chosen(condition: Any, yes: Any, no: Any) -> Array:
    a, b = traced(yes), traced(no)
    if a.boolean and b.boolean:
        c = UFUNCS["logical_and"](condition, a)
        return UFUNCS["logical_or"](c, UFUNCS["logical_and"](UFUNCS["logical_not"](condition), b))
    return where(condition, a, b)


def _clamp(eqn: Any, low: Any, x: Any, high: Any) -> Array:
    """Between two bounds.  At a bound nothing has a derivative, as in JAX."""
    a, lo, hi = numbers(traced(x)), numbers(traced(low)), numbers(traced(high))
    clamped = UFUNCS["minimum"](UFUNCS["maximum"](a, lo), hi)
    if np.dtype(eqn.outvars[0].aval.dtype).kind != "f":
        return clamped  # an index, maybe
    inside, below = _both(lo < a, a < hi), _both(a < lo, lo < hi)
    return where(inside, a, where(below, lo, where(hi < a, hi, elements.still(clamped))))


def _both(a: Any, b: Any) -> Array:
    return UFUNCS["logical_and"](a, b)


def _integer_pow(eqn: Any, x: Any) -> Array:
    y = int(eqn.params["y"])
    base = traced(x)
    if y == 0:
        return filled(base.shape, 1.0)
    power, square, n = None, base, abs(y)
    while n:  # by squares, so that the power has a derivative everywhere
        if n & 1:
            power = square if power is None else power * square
        n >>= 1
        square = square * square if n else square
    assert power is not None
    return power if y > 0 else 1 / power


def _round(eqn: Any, x: Any) -> Array:
    return elements.rounded(traced(x), even=int(eqn.params["rounding_method"]) == 1)


# -- folds --------------------------------------------------------------------------------------------------------------
def _reduce(gather: Gather) -> Rule:
    fold = {
        Gather.SUM: folds.fold_sum, Gather.MAX: folds.fold_max, Gather.MIN: folds.fold_min,
        Gather.PRODUCT: folds.fold_prod,
    }[gather]  # fmt: skip

    def rule(eqn: Any, x: Any) -> Array:
        return fold(numbers(traced(x)), tuple(eqn.params["axes"]))

    return rule


def _reduce_logic(least: bool) -> Rule:
    fold = folds.FUNCTIONS["all" if least else "any"]

    def rule(eqn: Any, x: Any) -> Array:
        _truths_alone(eqn)
        return fold(traced(x), tuple(eqn.params["axes"]))

    return rule


def _arg(*, least: bool) -> Rule:
    """The first place of the greatest or least element."""
    place = folds.extreme_place(least)
    return lambda eqn, x: place(traced(x), *eqn.params["axes"])


def _cumulative(op: str) -> Rule:
    """A fold of all elements up to each."""
    return lambda eqn, x: folds.cumulative(op, traced(x), eqn.params["axis"], backward=eqn.params["reverse"])


# -- orders -------------------------------------------------------------------------------------------------------------
def _sort(eqn: Any, *operands: Any) -> list[Array]:
    p = eqn.params
    return order.ordered([traced(x) for x in operands], p["dimension"], p["num_keys"])


def _top(eqn: Any, x: Any) -> list[Array]:
    """The greatest elements and their places; those that are no numbers come first, as in JAX."""
    a, axis = numbers(traced(x)), eqn.params.get("axis", -1) % np.ndim(x)
    places = shapes.broadcast_in_dim(np.arange(a.shape[axis], dtype=float), a.shape, (axis,))
    return order.ordered([a, places], axis, descending=True, most=eqn.params["k"])


def _ordered(strict: bool) -> Rule:
    """Comparisons in which what is no number comes last."""
    before = order.before
    return lambda eqn, a, b: before(traced(a), traced(b)) if strict else UFUNCS["logical_not"](before(traced(b), traced(a)))


# -- calls and loops ----------------------------------------------------------------------------------------------------
def _inlined(name: str) -> Rule:
    """A call of another jaxpr: its equations in its place."""

    def rule(eqn: Any, *args: Any) -> list[Any]:
        inner = eqn.params[name]
        jaxpr, consts = (inner.jaxpr, inner.consts) if hasattr(inner, "jaxpr") else (inner, ())
        return evaluate(jaxpr, consts, args)

    return rule


def _reduce_precision(eqn: Any, x: Any) -> Any:
    if eqn.params["mantissa_bits"] < np.finfo(eqn.invars[0].aval.dtype).nmant:
        raise fail("UPL1936", "rounding to fewer bits is not built", help="see docs/numbers.md for small types of numbers")
    return x


def _counters(body: Any, consts: int, init: list[Any]) -> dict[int, int]:
    """The carried values that count rounds, by place, and where they begin: 1 is added to a number in each round."""
    made = {v: e for e in body.jaxpr.eqns for v in e.outvars}
    out: dict[int, int] = {}
    for n, start in enumerate(init):
        carried, last = body.jaxpr.invars[consts + n], body.jaxpr.outvars[n]
        new = None if hasattr(last, "val") else made.get(last)  # a literal is a constant
        if new is not None and new.primitive.name == "add" and _whole(start):
            values = [v.val if hasattr(v, "val") else v for v in new.invars]
            if carried in [v for v in values if not isinstance(v, int | np.generic | np.ndarray)]:
                others = [v for v in values if v is not carried]
                if len(others) == 1 and isinstance(others[0], int | np.generic | np.ndarray) and int(others[0]) == 1:
                    out[n] = int(start)
    return out


def _scan(eqn: Any, *args: Any) -> list[Any]:
    p = eqn.params
    if not p["length"]:
        raise fail("UPL1936", "a loop without a round is not built", help="leave it out")
    body, rounds, nc, nk = p["jaxpr"], p["length"], p["num_consts"], p["num_carry"]
    consts, init, xs = list(args[:nc]), list(args[nc : nc + nk]), list(args[nc + nk :])
    counters = {} if p["reverse"] else _counters(body, nc, init)
    kept = [n for n in range(nk) if n not in counters]
    xs = [shapes.flipped(traced(x), (0,)) if p["reverse"] else traced(x) for x in xs]
    consts = [c if is_concrete(c) or is_index(c) else traced(c) for c in consts]

    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        k, rows = row
        carried = dict(zip(kept, carry, strict=True)) | {n: k + start for n, start in counters.items()}
        found = evaluate(body.jaxpr, body.consts, [*consts, *(carried[n] for n in range(nk)), *rows])
        return [traced(found[n]) for n in kept], [traced(y) for y in found[nk:]]

    carry, ys = loops.counted_scan(step, [traced(init[n]) for n in kept], xs, rounds)
    last = dict(zip(kept, carry, strict=True)) | {n: np.asarray(start + rounds) for n, start in counters.items()}
    ys = [shapes.flipped(traced(y), (0,)) if p["reverse"] else y for y in ys]
    return [*(last[n] for n in range(nk)), *ys]


def _cond(eqn: Any, index: Any, *args: Any) -> list[Any]:
    """All branches, of which one is chosen: none has effects."""
    branches = eqn.params["branches"]
    if is_concrete(index):
        chosen = branches[int(np.clip(int(index), 0, len(branches) - 1))]
        return evaluate(chosen.jaxpr, chosen.consts, args)
    results = [evaluate(b.jaxpr, b.consts, args) for b in branches]
    at = numbers(traced(index))
    out = list(results[-1])
    for n in reversed(range(len(branches) - 1)):
        out = [_chosen(at <= n, a, b) for a, b in zip(results[n], out, strict=True)]
    return out


def _while(eqn: Any, *args: Any) -> list[Any]:
    """How often it goes round is decided by data."""
    p = eqn.params
    tested, body = p["cond_jaxpr"], p["body_jaxpr"]
    nt, nb = p["cond_nconsts"], p["body_nconsts"]
    of_test, of_body, init = args[:nt], args[nt : nt + nb], [numbers(traced(x)) for x in args[nt + nb :]]

    def holds(state: Any) -> Any:
        return evaluate(tested.jaxpr, tested.consts, [*of_test, *state])[0]

    def step(state: Any) -> Any:
        return [traced(x) for x in evaluate(body.jaxpr, body.consts, [*of_body, *state])]

    return list(while_loop(holds, step, init))


# -- linear algebra -----------------------------------------------------------------------------------------------------
def _not_built(what: str, help: str) -> Rule:
    def rule(eqn: Any, *args: Any) -> Any:
        raise fail("UPL1936", f"{what} (the JAX primitive `{eqn.primitive.name}`) is not built", help=help)

    return rule


def _same(eqn: Any, x: Any) -> Any:
    return x


RULES.update({
    **{name: _ufunc(name) for name in ("floor", "ceil", "exp", "exp2", "log", "log1p", "expm1", "tanh", "sin", "cos", "tan",
                                       "sinh", "cosh", "sqrt", "cbrt", "sign")},
    "add": _linear("add", operator.add), "add_any": _ufunc("add"), "sub": _linear("subtract", operator.sub),
    "mul": _linear("multiply", operator.mul), "div": _div, "rem": _rem, "max": _ufunc("maximum"),
    "min": _ufunc("minimum"), "neg": _ufunc("negative"), "abs": _ufunc("absolute"), "round": _round,
    "asin": _ufunc("arcsin"), "acos": _ufunc("arccos"), "atan": _ufunc("arctan"), "atan2": _ufunc("arctan2"),
    "asinh": _ufunc("arcsinh"),
    "acosh": _ufunc("arccosh"), "atanh": _ufunc("arctanh"),
    "rsqrt": lambda eqn, x: 1 / UFUNCS["sqrt"](traced(x)), "square": lambda eqn, x: traced(x) * traced(x),
    "logistic": lambda eqn, x: computed(lambda a: Apply("sigmoid", (a,)), numbers(traced(x)), word="logistic"),
    "erf": lambda eqn, x: computed(lambda a: Apply("erf", (a,)), numbers(traced(x)), word="erf"),
    "erfc": lambda eqn, x: elements.erfc(traced(x)),
    "pow": _ufunc("power"), "integer_pow": _integer_pow,
    "is_finite": _ufunc("isfinite"), "clamp": _clamp, "select_n": _select, "convert_element_type": _convert,
    "eq": _compare("equal", operator.eq), "ne": _compare("not_equal", operator.ne), "lt": _compare("less", operator.lt),
    "le": _compare("less_equal", operator.le), "gt": _compare("greater", operator.gt),
    "ge": _compare("greater_equal", operator.ge), "and": _logic("logical_and"), "or": _logic("logical_or"),
    "xor": _logic("logical_xor"), "not": _logic("logical_not"),
    "stop_gradient": lambda eqn, x: computed(lambda a: Apply("stop_gradient", (a,)), traced(x), word="stop_gradient"),
    "copy": _same, "copy_p": _same, "real": _same, "reduce_precision": _reduce_precision,
    "optimization_barrier": lambda eqn, *a: [*a],
    "sharding_constraint": _same, "device_put": lambda eqn, *a: [*a], "name": _same,
    # places
    "broadcast_in_dim": shapes.broadcast,
    "reshape": shapes.reshape, "transpose": shapes.transpose, "squeeze": shapes.squeeze, "expand_dims": shapes.expand_dims,
    "rev": shapes.rev, "slice": shapes.slice_, "concatenate": shapes.concatenate,
    "tile": shapes.tile, "stack": shapes.stack, "unstack": shapes.unstack, "pad": shapes.pad, "split": shapes.split,
    "dynamic_slice": shapes.dynamic_slice, "dynamic_update_slice": shapes.dynamic_update_slice, "gather": shapes.gather,
    "scatter": shapes.scatter, **{f"scatter-{word}": shapes.scattered(word) for word in shapes.JOINED},
    "iota": shapes.iota,
    # folds
    "reduce_sum": _reduce(Gather.SUM), "reduce_max": _reduce(Gather.MAX), "reduce_min": _reduce(Gather.MIN),
    "reduce_prod": _reduce(Gather.PRODUCT), "reduce_and": _reduce_logic(least=True), "reduce_or": _reduce_logic(least=False),
    "argmax": _arg(least=False), "argmin": _arg(least=True),
    "cumsum": _cumulative("add"), "cumprod": _cumulative("multiply"),
    "cummax": _cumulative("maximum"), "cummin": _cumulative("minimum"), "cumlogsumexp": _cumulative("logaddexp"),
    "sort": _sort, "top_k": _top, "lt_to": _ordered(strict=True), "le_to": _ordered(strict=False),
    "dot_general": windows.dot_general, "conv_general_dilated": windows.convolution,
    "reduce_window_sum": windows.reduce_window(Gather.SUM), "reduce_window_max": windows.reduce_window(Gather.MAX),
    "reduce_window_min": windows.reduce_window(Gather.MIN),
    # calls and loops
    "jit": _inlined("jaxpr"), "pjit": _inlined("jaxpr"), "closed_call": _inlined("call_jaxpr"),
    "core_call": _inlined("call_jaxpr"), "remat": _inlined("jaxpr"), "checkpoint": _inlined("jaxpr"),
    "remat2": _inlined("jaxpr"),
    "custom_jvp_call": custom, "custom_vjp_call": custom, "custom_vjp_call_jaxpr": custom,
    "scan": _scan, "cond": _cond, "while": _while,
    # matrices
    "triangular_solve": matrices.triangular_solve, "cholesky": matrices.cholesky, "lu": matrices.lu, "qr": matrices.qr,
    "custom_linear_solve": matrices.linear_solve,
    "eigh": matrices.eigh, "svd": matrices.svd,
    **{name: _not_built("this factorisation, which takes as many rounds as the values need,", "compute it before the call")
       for name in ("eig", "schur", "hessenberg")},
    **{name: _not_built("the inside of a factorisation", "use jnp.linalg.qr")
       for name in ("geqrf", "geqp3", "householder_product", "tridiagonal")},
    "fft": _not_built("a transform to complex numbers", "multiply by the tables jnp.cos(2*jnp.pi*k*n/N) and jnp.sin(…)"),
    "approx_top_k": _not_built("sorting by chance", "use jax.lax.top_k"),
    **{name: _not_built("drawing random numbers", "draw them before the call and pass them") for name in (
        "threefry2x32", "random_bits", "random_seed", "random_wrap", "random_unwrap", "random_fold_in", "random_split")},
})  # fmt: skip
