# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Calls like an earlier one: the program and the shape of the result are known, so only arrays pass.

A call of a small program takes some microseconds.  To find out what it is takes longer, so this is done once for all calls
whose arguments have the same structure, types and shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.api.programs import Compiled
from upl_mlir.frontend.trace.tree import map_tree

_NUMBERS = frozenset("?bBhHiIlLqQfd")
"""Codes of numpy's types whose arrays are looked at here."""


@dataclass(frozen=True)
class Pick:
    """A leaf of a result: the output that it is, and whether that holds truth values."""

    name: str
    boolean: bool = False


class Unknown(Exception):
    """An argument that is none of those looked at here."""


def signature(tree: Any, values: list[Any]) -> Hashable:
    """What calls that are alike have in common; the arrays and numbers in `tree` are appended to `values`, in the order of
    `upl_mlir.frontend.trace.tree.leaves`.  Raises Unknown."""
    kind = type(tree)
    if kind is np.ndarray:
        code: str = tree.dtype.char
        if code not in _NUMBERS:
            raise Unknown
        values.append(tree)
        return code, tree.shape
    if kind is float or kind is np.float64:
        values.append(tree)
        return kind
    if kind is tuple or kind is list or (isinstance(tree, tuple) and hasattr(kind, "_fields")):
        return kind, *[signature(part, values) for part in tree]
    if kind is dict:
        parts = [(name, signature(tree[name], values)) for name in sorted(tree, key=str)]
        return kind, tuple(tree), *parts
    raise Unknown


def looked_for(args: tuple[Any, ...], names: Sequence[str], dtype: np.dtype[Any]) -> Any:
    """Arguments as `whole_call` takes them; `names` has the program's input for each leaf, "" where it has none; `dtype` is
    that of numbers.  Raises Unknown for what is looked at nowhere else."""
    rest = iter(names)
    named = map_tree(lambda _: next(rest), args)

    def tree(arg: Any, name: Any) -> Any:
        kind = type(arg)
        match arg:
            case None:
                return None
            case dict() if kind is dict and all(type(key) is str for key in arg):
                return kind, tuple(arg), tuple(tree(arg[key], name[key]) for key in arg)
            case tuple() | list():
                return kind, None, tuple(map(tree, arg, name))
            case float():
                return name, kind, dtype.char, ()
            case np.ndarray():
                return name, None, arg.dtype.char, arg.shape
            case _:
                raise Unknown

    return tree(args, named)


class Again:
    """What serves the calls that are alike.  `names` has the program's input for each argument ("" where it needs none),
    `shape` is the result with a `Pick` for each of its leaves."""

    def __init__(
        self, compiled: Compiled, names: Sequence[str], values: Sequence[NDArray[Any]],
        constants: Mapping[str, NDArray[Any]], shape: Any, dtype: type[np.floating[Any]],
    ):  # fmt: skip
        self._compiled, self._dtype = compiled, dtype
        used = [(name, n) for n, name in enumerate(names) if name in compiled.inputs]
        self._plain = [(name, n) for name, n in used if values[n].dtype == dtype]
        self._cast = [(name, n) for name, n in used if values[n].dtype != dtype]
        self._constants = {n: np.asarray(v, dtype, order="C") for n, v in constants.items() if n in compiled.inputs}
        self._fill = filler(shape, dtype)
        self._shape, self._names = shape, names

    def __call__(self, values: Sequence[Any]) -> Any:
        """The result for the arguments' arrays."""
        arrays: dict[str, Any] = self._constants.copy()
        for name, n in self._plain:
            arrays[name] = values[n]
        for name, n in self._cast:
            arrays[name] = np.asarray(values[n], self._dtype)
        return self._fill(self._compiled(**arrays))

    @property
    def _made(self) -> Any:
        """The result as `whole_call` takes it.  Raises Unknown for one that it does not make."""

        def tree(shape: Any) -> Any:
            match shape:
                case None:
                    return None
                case Pick(name, False):
                    return name, None, np.dtype(self._dtype).char, ()
                case dict() if all(type(k) is str for k in shape):
                    return dict, tuple(shape), tuple(map(tree, shape.values()))
                case list() | tuple():
                    return type(shape), None, tuple(map(tree, shape))
                case _:
                    raise Unknown

        return tree(self._shape)

    def whole(self, args: tuple[Any, ...]) -> Callable[[tuple[Any, ...]], Any] | None:
        """Calls like the last one, of which these were the arguments, as one function of the tuple of arguments; it returns
        NotImplemented for others.  None where there is no such function."""
        used = [name if name in self._compiled.inputs else "" for name in self._names]
        try:
            return self._compiled.whole(looked_for(args, used, np.dtype(self._dtype)), self._constants, self._made)
        except Unknown:
            return None


def filler(shape: Any, dtype: type[np.floating[Any]]) -> Callable[[dict[str, Any]], Any]:
    """The function from outputs to a result of this shape.  Arrays in the shape are results that no output has."""
    match shape:
        case Pick(name, boolean):

            def leaf(out: dict[str, Any]) -> Any:
                value = out[name]
                if boolean:
                    value = value != 0
                elif value.dtype != dtype:
                    value = value.astype(dtype)
                return value if value.ndim else value[()]

            return leaf
        case np.ndarray():
            return lambda out: shape.copy() if shape.ndim else shape[()]
        case None:
            return lambda out: None
        case dict():
            named = [(name, filler(part, dtype)) for name, part in shape.items()]
            return lambda out: {name: part(out) for name, part in named}
        case list():
            listed = [filler(part, dtype) for part in shape]
            return lambda out: [part(out) for part in listed]
        case _:
            parts = [filler(part, dtype) for part in shape]
            if hasattr(shape, "_fields"):
                return lambda out: type(shape)(*[part(out) for part in parts])
            return lambda out: tuple([part(out) for part in parts])


class Last:
    """What serves calls of a function that are like its last one; `what` tells programs made of the function apart."""

    def __init__(self, what: Hashable):
        self.what = what
        self.whole: Callable[[tuple[Any, ...]], Any] = unlike
        self.of: Again | None = None


def unlike(args: tuple[Any, ...]) -> Any:
    """No call is like an earlier one."""
    return NotImplemented
