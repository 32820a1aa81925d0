# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownParameterType=false, reportAttributeAccessIssue=false
# pyright: reportUnknownLambdaType=false
# (an extra, which need not be there; JAX is typed in part)
"""The walk over the equations of a jaxpr, and what may stand in them: traced arrays, numbers, indices of loops."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from upl_mlir.diagnostics import Span
from upl_mlir.frontend.jaxpr.folding import folded, jax, known
from upl_mlir.frontend.trace.array import Array, as_array, computed
from upl_mlir.frontend.trace.indexing import LoopIndex
from upl_mlir.frontend.trace.position import fail, placed
from upl_mlir.frontend.trace.reshape import stack

_LIBRARIES = tuple(str(Path(str(module.__file__)).parent) for module in (jax, np))
_HERE = str(Path(__file__).parents[2])
RULES: dict[str, Callable[..., Any]] = {}
"""What primitives mean, by their names: `rules.py` fills it."""
COSTLY = frozenset((
    "exp", "exp2", "log", "log1p", "expm1", "tanh", "logistic", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan",
    "atan2", "sqrt", "rsqrt", "cbrt", "pow", "erf", "erfc", "div", "dot_general", "conv_general_dilated", "reduce_sum",
    "reduce_max", "reduce_min", "reduce_prod", "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "sort",
))  # fmt: skip
"""Primitives that are computed once where they are computed twice.  Others cost less than a look at what was kept."""
_inline: ContextVar[bool] = ContextVar("inline", default=False)


@contextmanager
def inlining(on: bool) -> Generator[None]:
    """Whether derivative rules of the user's own are passed over in this context."""
    token = _inline.set(on)
    try:
        yield
    finally:
        _inline.reset(token)


def inlines() -> bool:
    """Whether they are."""
    return _inline.get()


def evaluate(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """The results of a jaxpr for traced arrays, numpy arrays and indices of traced loops.

    Equations on known arrays alone are computed (`folding.py`).  Raises UplError (UPL1936) at the first primitive without a
    rule.
    """
    env: dict[Any, Any] = {}

    def read(v: Any) -> Any:
        return np.asarray(v.val) if hasattr(v, "val") else env[v]

    env.update(zip(jaxpr.constvars, [c if isinstance(c, Array | LoopIndex) else known(c) for c in consts], strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    first: dict[Any, Any] = {}  # of equal computations the variables of the first one
    same: dict[Any, Any] = {}
    for eqn in jaxpr.eqns:
        if (key := _content(eqn, same)) is not None:
            before = first.setdefault(key, eqn.outvars)
            if before is not eqn.outvars:
                same.update(zip(eqn.outvars, before, strict=True))
                if eqn.primitive.name in COSTLY:
                    env.update((v, env[w]) for v, w in zip(eqn.outvars, before, strict=True))
                    continue
        given = [read(v) for v in eqn.invars]
        name = eqn.primitive.name
        with placed(_place(eqn)):
            rule = RULES.get(name)
            if all(isinstance(a, np.ndarray | np.generic | jax.Array) for a in given) and not _has_inner(eqn):
                found = folded(eqn, given)
            elif rule is None:
                raise _unknown(name)
            else:
                _refuse_narrow(eqn)
                found = rule(eqn, *given)
                found = found if isinstance(found, list) else [found]
        for v, x in zip(eqn.outvars, found, strict=True):
            env[v] = x
    return [read(v) for v in jaxpr.outvars]


def _content(eqn: Any, same: dict[Any, Any]) -> Any:
    """What an equation computes: equal for equations that compute the same; None for one with others inside.

    A costly `tanh(x)` in two places of a program is computed once, as XLA does it (value numbering: Cocke 1970).  JAX's
    arrays do not change.
    """
    if _has_inner(eqn) or eqn.effects:
        return None
    read = tuple(
        (str(v.aval), np.asarray(v.val).tobytes()) if hasattr(v, "val") else same.get(v, v) for v in eqn.invars
    )
    key = (eqn.primitive.name, read, tuple(eqn.params.items()))
    try:
        hash(key)
    except TypeError:
        return None
    return key


_ARITHMETIC = frozenset((
    "add", "add_any", "sub", "mul", "neg", "abs", "integer_pow", "pow", "dot_general", "reduce_sum", "reduce_prod", "cumsum",
    "cumprod", "scatter-add", "scatter-mul",
))  # fmt: skip
"""Primitives whose results may not fit the type of what they are made of."""
_BELOW = frozenset(("sub", "neg"))
"""Those of them whose results may be below 0 where no operand is."""


def _refuse_narrow(eqn: Any) -> None:
    """Raise UplError (UPL1936) where JAX may wrap a whole number round: UPL's are exact, so the two would differ unseen.

    Types of 32 and 64 bits are taken to hold their sums and products.  What is below 0 in uint32 is wrapped by the rules."""
    name = eqn.primitive.name
    made = np.dtype(eqn.outvars[0].aval.dtype) if name in (*_ARITHMETIC, "convert_element_type") else None
    if made is None or made.kind not in "iu" or (made.itemsize >= 4 and made.kind == "i"):
        return
    converts, was = name == "convert_element_type", np.dtype(eqn.invars[0].aval.dtype)
    if made.itemsize < 4:
        wraps = not (converts and np.can_cast(was, made))
    elif made.itemsize == 4:
        wraps = name == "neg"
    else:
        wraps = name in _BELOW or (converts and was.kind in "if")
    if wraps:
        what = f"a conversion of {was} to {made}" if converts else f"arithmetic of {made}"
        raise fail("UPL1936", f"{what} wraps round or saturates in JAX, which UPL's numbers do not",
                   help="compute with int32, int64 or floats")  # fmt: skip


def is_library(file: str | None) -> bool:
    """Whether a function stands in JAX itself, or in numpy."""
    return file is not None and file.startswith(_LIBRARIES)


def _has_inner(eqn: Any) -> bool:
    """Whether an equation calls other jaxprs: those are walked through, so that positions and folding go on inside."""
    return any(hasattr(p, "eqns") or hasattr(p, "jaxpr") for p in eqn.params.values())


def _unknown(name: str) -> Exception:
    help_ = "compute it before the call and pass the result"
    return fail("UPL1936", f"the JAX primitive `{name}` has no meaning in UPL yet", help=help_)


def _place(eqn: Any) -> Span | None:
    """The line of the user's text that an equation comes from."""
    traceback = eqn.source_info.traceback
    for frame in () if traceback is None else traceback.frames:
        if not frame.file_name.startswith((*_LIBRARIES, _HERE, "<")):
            return Span(frame.file_name, frame.line_num, 1)
    return None


class Places(tuple[Any, ...]):
    """The indices of one place, as JAX writes them: a vector, with indices of traced loops among them."""

    __slots__ = ()


def traced(x: Any) -> Array:
    """A traced array of whatever stands in an equation; an index of a loop becomes its value."""
    return stack([as_array(part) for part in x]) if isinstance(x, Places) else as_array(x)


def is_concrete(x: Any) -> bool:
    """Whether a value is known while tracing."""
    return isinstance(x, np.ndarray | np.generic | int | float)


def is_index(x: Any) -> bool:
    """Whether a value is the index of a loop that is traced once, or linear in such indices."""
    return isinstance(x, LoopIndex)


def copied(x: Any) -> Array:
    """An array of its own, which may be written."""
    return computed(lambda a: a, traced(x), boolean=traced(x).boolean, word="copy")
