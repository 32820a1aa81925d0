# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""`vmap` and `check_grads` of Python functions, as in JAX.

A function is mapped by `upl.batch` of its program, traced for one example: what does not depend on the mapped arguments is
computed once.  Inside a function that is being traced, the examples stand one after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from upl_mlir.api import gradient_check
from upl_mlir.api import programs as api
from upl_mlir.api.programs import Program
from upl_mlir.frontend.trace import tree
from upl_mlir.frontend.trace.array import as_array
from upl_mlir.frontend.trace.node import recording
from upl_mlir.frontend.trace.position import fail
from upl_mlir.frontend.trace.program import Call, argument_array
from upl_mlir.frontend.trace.transforms import function_of

Axes = int | None | Sequence[int | None]


class Mapped:
    """A function of many examples: what `vmap` returns.  `program(…)` is the UPL program behind it."""

    def __init__(self, fun: Any, in_axes: Axes, out_axes: int | None):
        function = function_of(fun, "upl.vmap")
        functools.update_wrapper(self, function)  # first: it brings the function's own attributes
        self._fun, self._in, self._out = function, in_axes, out_axes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        axes = self._axes(args)
        if recording() is not None:
            return self._one_by_one(args, axes, kwargs)
        call, mapped, size = self._bound(args, axes, kwargs)
        names = {call.traced.arguments[m][1]: value for m, value in mapped.items() if call.traced.arguments[m][1]}
        how = ("vmap", tuple(sorted(names)), size)
        out = self._fun.run(call, how, lambda t: _batched(t.program, tuple(names), size), names)
        for (name, _), tensor in zip(call.traced.outputs, call.traced.form.outputs, strict=True):
            out[name] = self._placed(out[name], call.traced.form.tensors[tensor].shape, size)
        return call.traced.unpacked(out)

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """The UPL program for arguments of these shapes."""
        call, mapped, size = self._bound(args, self._axes(args), kwargs)
        names = tuple(name for m in mapped if (name := call.traced.arguments[m][1]))
        return _batched(call.traced.program, names, size)

    def _axes(self, args: Sequence[Any]) -> list[int | None]:
        """The axis of each positional argument.  Raises UplError (UPL1934)."""
        given = [self._in] * len(args) if self._in is None or isinstance(self._in, int) else list(self._in)
        if len(given) != len(args):
            raise fail(
                "UPL1934", f"upl.vmap: in_axes has {len(given)} entries for {len(args)} arguments",
                help="give one for each, None for an argument that all examples share",
            )  # fmt: skip
        for n in self._fun.fixed(len(args)):
            if given[n] is not None:
                raise fail("UPL1934", f"upl.vmap: argument {n} is static, and is mapped", help=SHARED)
        return given

    def _bound(
        self, args: Sequence[Any], axes: Sequence[int | None], kwargs: dict[str, Any]
    ) -> tuple[Call, dict[int, NDArray[Any]], int]:
        """The function bound to the first example; the mapped arrays by their place, examples first; how many there are."""
        fixed = self._fun.fixed(len(args))
        moved = [(a, axis) for n, (a, axis) in enumerate(zip(args, axes, strict=True)) if n not in fixed]
        every = [(leaf, axis) for a, axis in moved for leaf in tree.leaves(a, "argument")]
        every += [(leaf, 0) for name, a in kwargs.items() for leaf in tree.leaves(a, name)]
        mapped: dict[int, NDArray[Any]] = {}
        sizes: dict[int, str] = {}
        for m, ((name, leaf), axis) in enumerate(every):
            if axis is not None:
                mapped[m] = _first(name, argument_array(name, leaf), axis)
                sizes.setdefault(len(mapped[m]), name)
        if len(sizes) != 1:
            found = " and ".join(str(n) for n in sorted(sizes)) or "nothing"
            raise fail(
                "UPL1934", f"upl.vmap: the mapped arguments have {found} examples",
                help="their mapped axes have one length, and at least one argument is mapped",
            )  # fmt: skip
        place = iter(range(len(every)))

        def one(leaf: Any) -> Any:
            m = next(place)
            return mapped[m][0] if m in mapped else leaf

        example = [a if n in fixed else tree.map_tree(one, a) for n, a in enumerate(args)]
        given = {name: tree.map_tree(one, a) for name, a in kwargs.items()}
        return self._fun.bind(example, given), mapped, next(iter(sizes))

    def _placed(self, value: NDArray[Any], shape: tuple[int, ...], size: int) -> NDArray[Any]:
        """A result with its examples along `out_axes`; one that no mapped argument moves is the same for all."""
        if value.ndim == len(shape):
            if self._out is None:
                return value
            value = np.broadcast_to(value, (size, *shape))
        elif self._out is None:
            raise fail(
                "UPL1934", "upl.vmap: out_axes=None, and a result depends on the mapped arguments",
                help="say along which axis the examples shall lie",
            )  # fmt: skip
        self._require_axis(value.ndim)
        return np.ascontiguousarray(np.moveaxis(value, 0, self._out))

    def _require_axis(self, ndim: int) -> None:
        """A result with the examples has an axis `out_axes`.  Raises UplError (UPL1934)."""
        if not -ndim <= (self._out or 0) < ndim:
            message = f"upl.vmap: out_axes={self._out}, and a result with its examples has {ndim} axes"
            raise fail("UPL1934", message, help="say along which of them the examples shall lie")

    def _one_by_one(self, args: Sequence[Any], axes: Sequence[int | None], kwargs: dict[str, Any]) -> Any:
        """The examples one after the other, inside a traced function."""
        moved = list(zip(args, axes, strict=True))
        leaves = [(as_array(x), axis) for a, axis in moved if axis is not None for _, x in tree.leaves(a)]
        for x, axis in leaves:
            _require_axis("argument", len(x.shape), axis)
        sizes = {x.shape[axis] for x, axis in leaves}
        if len(sizes) != 1 or kwargs:
            raise fail(
                "UPL1934", "upl.vmap: inside a traced function it maps positional arguments with as many examples each",
                help="their mapped axes have one length",
            )  # fmt: skip
        results = [self._fun(*(_example(a, axis, n) for a, axis in moved)) for n in range(sizes.pop())]
        for _, leaf in tree.leaves(results[0]):
            self._require_axis(len(as_array(leaf).shape) + 1)
        columns = zip(*([leaf for _, leaf in tree.leaves(r)] for r in results), strict=True)
        return tree.rebuilt(results[0], [np.stack(c, axis=self._out or 0) for c in columns])


def _example(argument: Any, axis: int | None, n: int) -> Any:
    """The n-th example of a traced argument."""
    if axis is None:
        return argument

    def one(leaf: Any) -> Any:
        array = as_array(leaf)
        before = (slice(None),) * (axis % len(array.shape))
        return array[(*before, n)]

    return tree.map_tree(one, argument)


def vmap(fun: Callable[..., Any], in_axes: Axes = 0, out_axes: int | None = 0) -> Mapped:
    """The function of many examples at once, as in JAX: `in_axes` says for each positional argument (one number: for all)
    along which axis its examples lie, None that all share it; `out_axes` along which axis those of the results do.

    Arguments by name are mapped along axis 0.  `fun` may be a derivative, ``upl.vmap(upl.grad(f), in_axes=(None, 0))``.
    Raises UplError (UPL1934).
    """
    return Mapped(fun, in_axes, out_axes)


SHARED = "in_axes=None is for an argument that all examples share"


def _require_axis(name: str, ndim: int, axis: int) -> None:
    if not -ndim <= axis < ndim:
        raise fail("UPL1934", f"upl.vmap: `{name}` has {ndim} axes, and is mapped along axis {axis}", help=SHARED)


def _first(name: str, value: NDArray[Any], axis: int) -> NDArray[Any]:
    _require_axis(name, value.ndim, axis)
    return np.ascontiguousarray(np.moveaxis(value, axis, 0))


def _batched(program: Program, names: Sequence[str], size: int) -> Program:
    """The program for so many examples of some inputs."""
    whole = program.expanded()
    ports = {**whole.inputs, **whole.outputs}
    taken = {*ports, *(f for v in ports.values() for f in v.fields)}
    field = next(f for n in range(len(taken) + 1) if (f := f"b{n or ''}") not in taken)
    return api.batch(whole, names, field, size) if names else whole


@overload
def check_grads(fun: Program, of: str, wrt: str | Sequence[str], inputs: Any, *args: Any, **options: Any) -> None: ...
@overload
def check_grads(fun: Callable[..., Any], args: Sequence[Any], *, order: int = 1, **options: Any) -> None: ...
def check_grads(fun: Any, *args: Any, **options: Any) -> None:
    """Of a function: check the derivatives of all its results by all its arguments, at `args`, in both modes, against
    differences; options as for programs.  Of a `Program`: see `upl_mlir.api.gradient_check.check_grads`.

    Raises UplError: UPL1410 for a derivative that is off, UPL1934 for arguments that are not real.
    """
    if isinstance(fun, Program):
        gradient_check.check_grads(fun, *args, **options)
        return
    _check_function(fun, *args, **options)


def _check_function(fun: Any, args: Any, **options: Any) -> None:
    f = function_of(fun, "upl.check_grads")
    if not isinstance(args, tuple | list):
        raise fail("UPL1934", "upl.check_grads: the arguments are a tuple", help="call upl.check_grads(f, (x, y))")
    call = f.bind(args, {})
    wrt: list[str] = []
    for (leaf, name), value in zip(call.traced.arguments, call.values, strict=True):
        if value.dtype.kind != "f":
            raise fail("UPL1934", f"upl.check_grads: `{leaf.name}` holds {value.dtype}", help="pass floats")
        wrt += [name] if name else []
    for name, boolean in call.traced.outputs:
        if wrt and not boolean:
            inputs = {n: v for n, v in call.traced.named(call.values).items() if n in call.traced.program.inputs}
            gradient_check.check_grads(call.traced.program, name, wrt, inputs, **options)
