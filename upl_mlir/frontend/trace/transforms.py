# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""`grad`, `value_and_grad`, `jvp`, `vjp`, `hessian`, `jacobian` of Python functions, as in JAX.

The derivatives are those of the function's UPL program.  Inside a function that is being traced, the derivative is the
directive `adjoint of` in the program that comes of it; so derivatives of derivatives are written as in JAX too.  The names
that programs have as well (`upl.grad`, `upl.vjp`, …) do for a `Program` what the API does.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from upl_mlir.api import jacobians
from upl_mlir.api import programs as api
from upl_mlir.api.programs import Compiled, Program
from upl_mlir.frontend.tensor import Apply, Expr, lower
from upl_mlir.frontend.tensor.objective import with_objective
from upl_mlir.frontend.trace import tree
from upl_mlir.frontend.trace.again import Last, Pick
from upl_mlir.frontend.trace.array import Array, as_array, computed, filled, made, numbers
from upl_mlir.frontend.trace.node import Gradient, Phase, Request, current, recording
from upl_mlir.frontend.trace.position import fail
from upl_mlir.frontend.trace.program import Call, Function, Traced, argument_array
from upl_mlir.passes.pipelines import TANGENT
from upl_mlir.pipeline import passes_of, run

Argnums = int | Sequence[int]
Ports = str | Sequence[str]


class Transformed:
    """A function made of another one: what `call` does with arguments; `program(…)` is the UPL program behind it."""

    def __init__(
        self, fun: Function, call: Callable[..., Any], program: Callable[[Call], Program], last: Last | None = None
    ):  # fmt: skip
        functools.update_wrapper(self, fun)
        self._fun, self._call, self._program = fun, call, program
        self._last = last or Last("")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs and recording() is None and (found := self._last.whole(args)) is not NotImplemented:
            return found
        return self._call(args, kwargs)

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """The UPL program for arguments of these shapes."""
        return self._program(self._fun.bind(args, kwargs))


# -- gradients ---------------------------------------------------------------------------------------------------------


@overload
def grad(fun: Program, of: str, wrt: Ports) -> Program: ...
@overload
def grad(fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Transformed: ...
def grad(fun: Any, *args: Any, **options: Any) -> Any:
    """Of a function: the function that computes its gradient by the arguments at `argnums`; options `argnums=0` and
    `has_aux=False` as in JAX.  Of a `Program`: see `upl_mlir.api.programs.grad`.
    """
    if isinstance(fun, Program):
        return api.grad(fun, *args, **options)
    return _gradient(fun, "upl.grad", False, *args, **options)


def value_and_grad(fun: Any, argnums: Argnums = 0, has_aux: bool = False) -> Transformed:
    """As `grad`, with the function's value in front."""
    return _gradient(fun, "upl.value_and_grad", True, argnums, has_aux)


def _gradient(fun: Any, what: str, with_value: bool, argnums: Argnums = 0, has_aux: bool = False) -> Transformed:
    f = function_of(fun, what)
    last = Last((what, argnums if isinstance(argnums, int) else tuple(argnums), has_aux))

    def program(call: Call) -> Program:
        of = _number(call.traced, has_aux, what)
        names = _inputs(call, _chosen(call, argnums, what))
        return api.grad(call.traced.program, of, names) if names else call.traced.program

    def run_(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if recording() is not None:
            value, d = _gradient_inside(f, argnums, has_aux, what, args, kwargs)
        else:
            return f.called(args, kwargs, last, prepare)
        return both(value, d)

    def prepare(call: Call) -> tuple[Compiled, Any]:
        leaves = _chosen(call, argnums, what)
        compiled = f.prepared(call, ("grad", tuple(leaves), has_aux), lambda _: program(call))
        d = _by_argument(call, argnums, _found(call, leaves, {n: Pick(n) for n in compiled.program.outputs}))
        return compiled, both(call.traced.shape, d)

    def both(value: Any, d: Any) -> Any:
        if has_aux:
            return (value, d) if with_value else (d, value[1])
        return (value, d) if with_value else d

    return Transformed(f, run_, program, last)


def function_of(fun: Any, what: str) -> Function:
    """A callable as a function that can be traced.  Raises UplError (UPL1934)."""
    if isinstance(fun, Function):
        return fun
    if not callable(fun):
        help = "pass a Python function over arrays, or a Program as upl.load gives it"
        raise fail("UPL1934", f"{what}: expected a function or a program, found {type(fun).__name__}", help=help)
    return Function(fun)


def _positions(argnums: Argnums, count: int, what: str) -> tuple[int, ...]:
    """The positions of arguments, from 0.  Raises UplError (UPL1934)."""
    given = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in given:
        if not -count <= operator.index(n) < count:
            help = f"the function is called with {count} positional arguments"
            raise fail("UPL1934", f"{what}: there is no argument {n} to differentiate by", help=help)
    return tuple(n % count for n in given)


def _chosen(call: Call, argnums: Argnums, what: str) -> list[int]:
    """The arrays that one differentiates by, as positions in `call.values`.  Raises UplError (UPL1934)."""
    where = _positions(argnums, len(call.args), what)
    for n in where:
        if n not in call.owners and any(True for _ in tree.leaves(call.args[n])):
            message = f"{what}: argument {n} is static; one differentiates by arrays"
            raise fail("UPL1934", message, help="name other arguments")
    leaves = [m for n in dict.fromkeys(where) for m, owner in enumerate(call.owners) if owner == n]
    for m in leaves:
        _need_real(what, call.traced.arguments[m][0].name, call.values[m])
    return leaves


def _need_real(what: str, name: str, value: NDArray[Any]) -> None:
    if value.dtype.kind != "f":
        help = "pass floats: 3.0 in place of 3, x.astype(float)"
        raise fail("UPL1934", f"{what}: `{name}` holds {value.dtype}; one differentiates by real numbers", help=help)


def _inputs(call: Call, leaves: Sequence[int]) -> list[str]:
    """The program's inputs for these arrays; those that it does not need are left out."""
    return [name for m in leaves if (name := call.traced.arguments[m][1])]


def _found(call: Call, leaves: Sequence[int], out: dict[str, Any]) -> dict[int, Any]:
    """For each array that one differentiates by the derivative: the outputs that a program's derivative has added, in
    their order; 0 where the program does not need the array."""
    present = [m for m in leaves if call.traced.arguments[m][1]]
    names = [n for n in out if n not in dict(call.traced.outputs)]
    given = dict(zip(present, names, strict=True))
    return {m: out[given[m]] if m in given else np.zeros(call.values[m].shape, call.traced.dtype) for m in leaves}


def _by_argument(call: Call, argnums: Argnums, values: dict[int, Any]) -> Any:
    """Derivatives with the structure of the arguments: one tree for a number, a tuple of trees for several."""
    parts: list[Any] = []
    for n in _positions(argnums, len(call.args), ""):
        own = iter([values[m] for m, owner in enumerate(call.owners) if owner == n])
        parts.append(tree.map_tree(lambda _, own=own: _shown(next(own)), call.args[n]))
    return parts[0] if isinstance(argnums, int) else tuple(parts)


def _shown(value: Any) -> Any:
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _number(traced: Traced, has_aux: bool, what: str) -> str:
    """The output that is differentiated: one number.  Raises UplError (UPL1934)."""
    result = traced.result
    span = traced.form.span
    if has_aux:
        if not isinstance(result, tuple) or len(result) != 2:
            raise fail("UPL1934", f"{what}: has_aux=True needs a pair", span, help="return value, other results")
        result = result[0]
    if not isinstance(result, int):
        kind = type(result).__name__
        message = f"{what}: the function returns a {kind}, not one number"
        raise fail("UPL1934", message, span, help="use upl.vjp, or has_aux=True")
    tensor = traced.form.outputs[result]
    shape = traced.form.tensors[tensor].shape
    if shape:
        message = f"{what}: the function returns an array of shape {shape}, not one number"
        raise fail("UPL1934", message, traced.form.tensors[tensor].span, help="sum it up, or use upl.vjp or upl.jacobian")
    return traced.outputs[result][0]


# -- forward mode ------------------------------------------------------------------------------------------------------


@overload
def jvp(fun: Program, of: str, wrt: Ports) -> Program: ...
@overload
def jvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]: ...
def jvp(fun: Any, *args: Any, **options: Any) -> Any:
    """Of a function: its value at `primals`, and its derivative there along `tangents`, as in JAX.  Of a `Program`:
    ``jvp(p, of, wrt)``, see `upl_mlir.api.programs.jvp`.
    """
    if isinstance(fun, Program):
        return api.jvp(fun, *args, **options)
    return _jvp(fun, *args, **options)


def _jvp(fun: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
    f, what = function_of(fun, "upl.jvp"), "upl.jvp"
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        raise fail("UPL1934", "upl.jvp: primals and tangents are tuples", help="call upl.jvp(f, (x,), (t,))")
    if tree.structure(tuple(primals)) != tree.structure(tuple(tangents)):
        raise fail("UPL1934", "upl.jvp: primals and tangents differ in structure", help="give a tangent for each primal")
    if recording() is not None:
        return _tangent_inside(f, tuple(primals), tuple(tangents))
    call = f.bind(primals, {})
    every = tuple(range(len(primals)))
    leaves = _chosen(call, every, what)
    given = [v for _, v in tree.leaves(list(tangents))]
    seeds = {m: _fitting(what, call, m, given[m]) for m in leaves}
    names = {m: call.traced.arguments[m][1] for m in leaves if call.traced.arguments[m][1]}
    ofs = tuple(name for name, _ in call.traced.outputs)
    if not names:
        value = call.traced.unpacked(f.run(call, "", lambda t: t.program, {}))
        return value, tree.map_tree(np.zeros_like, value)

    def program(traced: Traced) -> Program:
        out = traced.program.clone()
        with out.errors():
            run(out.module, passes_of(TANGENT, {"tangent": {"of": ofs, "wrt": tuple(names.values())}}))
        return out

    added = _new_ports(f, call, "jvp", program)
    out = f.run(call, "jvp", program, {added[k]: seeds[m] for k, m in enumerate(names)})
    tangent = [_shown(out[n]) for n in out if n not in ofs]
    return call.traced.unpacked(out), tree.map_tree(lambda n: tangent[n], call.traced.result)


def _new_ports(f: Function, call: Call, how: str, make: Callable[[Traced], Program]) -> list[str]:
    """The inputs that a derivative has added to the program, in order."""
    return [n for n in f.prepared(call, how, make).program.inputs if n not in call.traced.program.inputs]


def _fitting(what: str, call: Call, m: int, value: Any) -> NDArray[Any]:
    name = call.traced.arguments[m][0].name
    array = argument_array(f"tangent of {name}", value)
    if array.shape != call.values[m].shape:
        message = f"{what}: the tangent of `{name}` has shape {array.shape}, the primal {call.values[m].shape}"
        raise fail("UPL1934", message, help="make the shapes equal")
    return array


# -- reverse mode ------------------------------------------------------------------------------------------------------


@overload
def vjp(fun: Program, of: str, wrt: Ports) -> Program: ...
@overload
def vjp(fun: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]: ...
def vjp(fun: Any, *primals: Any, **options: Any) -> Any:
    """Of a function: its value at `primals`, and the function from derivatives by its results to those by its arguments
    (a tuple), as in JAX.  Of a `Program`: ``vjp(p, of, wrt)``, see `upl_mlir.api.programs.vjp`.
    """
    if isinstance(fun, Program):
        return api.vjp(fun, *primals, **options)
    f, what = function_of(fun, "upl.vjp"), "upl.vjp"
    if options:
        raise fail("UPL1934", f"upl.vjp: unknown option `{next(iter(options))}`", help="call upl.vjp(f, x, …)")
    if recording() is not None:
        return f(*primals), functools.partial(_pull_back_inside, f, primals)
    call = f.bind(primals, {})
    call = replace(call, values=[v.copy() for v in call.values])  # the caller may change them before `pull_back`
    leaves = _chosen(call, tuple(range(len(primals))), what)
    names = _inputs(call, leaves)

    def program(traced: Traced) -> Program:
        form, objective = with_objective(traced.form)
        whole = Program(lower(form), traced.program.sources)
        return api.grad(whole, objective, names)

    def pull_back(cotangents: Any) -> tuple[Any, ...]:
        if tree.structure(cotangents) != tree.structure(call.traced.result):
            help = "give an array for each result"
            raise fail("UPL1934", "upl.vjp: the derivatives differ in structure from the function's result", help=help)
        if not names:
            return _by_argument(call, tuple(range(len(primals))), _found(call, leaves, {}))
        seeds = [v for _, v in tree.leaves(cotangents)]
        more: dict[str, Any] = {}
        added = _new_ports(f, call, "vjp", program)
        for k, (tensor, seed) in enumerate(zip(call.traced.form.outputs, seeds, strict=True)):
            array, shape = argument_array("derivative by the result", seed), call.traced.form.tensors[tensor].shape
            if array.shape != shape:
                message = f"upl.vjp: a derivative of shape {array.shape} for a result of shape {shape}"
                raise fail("UPL1934", message, help="make the shapes equal")
            more[added[k]] = array
        out = f.run(call, "vjp", program, more)
        plain = {n: v for n, v in out.items() if n in dict(call.traced.outputs)}
        new = [n for n in out if n not in plain]
        kept = plain | {n: out[n] for n in new if n.startswith("d_")}
        return _by_argument(call, tuple(range(len(primals))), _found(call, leaves, kept))

    value = call.traced.unpacked(f.run(call, "", lambda t: t.program, {}))
    return value, pull_back


# -- all derivatives ---------------------------------------------------------------------------------------------------


@overload
def hessian(fun: Program, of: str, wrt: Ports) -> Program: ...
@overload
def hessian(fun: Callable[..., Any], argnums: Argnums = 0) -> Transformed: ...
def hessian(fun: Any, *args: Any, **options: Any) -> Any:
    """Of a function: the function that computes the second derivatives by the arguments at `argnums` (0), as in JAX.  Of a
    `Program`: see `upl_mlir.api.jacobians.hessian`.
    """
    if isinstance(fun, Program):
        return jacobians.hessian(fun, *args, **options)
    return _hessian(fun, *args, **options)


def _hessian(fun: Any, argnums: Argnums = 0) -> Transformed:
    f, what = function_of(fun, "upl.hessian"), "upl.hessian"

    def program(call: Call) -> Program:
        names = _inputs(call, _chosen(call, argnums, what))
        return jacobians.hessian(call.traced.program, _number(call.traced, False, what), names)

    def run_(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        _outermost(what)
        call = f.bind(args, kwargs)
        leaves = _chosen(call, argnums, what)
        out = f.run(call, ("hessian", tuple(leaves)), lambda _: program(call), {}) if _inputs(call, leaves) else {}
        return _by_argument(call, argnums, {m: _row(call, argnums, m, leaves, "H", out) for m in leaves})

    return Transformed(f, run_, program)


@overload
def jacobian(fun: Program, of: Ports, wrt: Ports, mode: jacobians.Mode = "auto") -> Program: ...
@overload
def jacobian(fun: Callable[..., Any], argnums: Argnums = 0, mode: jacobians.Mode = "auto") -> Transformed: ...
def jacobian(fun: Any, *args: Any, **options: Any) -> Any:
    """Of a function: the function that computes the derivatives of all results by the arguments at `argnums` (0), as
    jax.jacobian; `mode` as for programs.  Of a `Program`: see `upl_mlir.api.jacobians.jacobian`.
    """
    if isinstance(fun, Program):
        return jacobians.jacobian(fun, *args, **options)
    return _jacobian(fun, *args, **options)


def _jacobian(fun: Any, argnums: Argnums = 0, mode: Any = "auto") -> Transformed:
    f, what = function_of(fun, "upl.jacobian"), "upl.jacobian"

    def program(call: Call) -> Program:
        names = _inputs(call, _chosen(call, argnums, what))
        return jacobians.jacobian(call.traced.program, [n for n, _ in call.traced.outputs], names, mode)

    def run_(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        _outermost(what)
        call = f.bind(args, kwargs)
        leaves = _chosen(call, argnums, what)
        key = ("jacobian", tuple(leaves), mode)
        out = f.run(call, key, lambda _: program(call), {}) if _inputs(call, leaves) else {}

        def of(n: int) -> Any:
            name = call.traced.outputs[n][0]
            shape = call.traced.form.tensors[call.traced.form.outputs[n]].shape
            return _by_argument(call, argnums, {m: _block(call, shape, f"J_{name}", m, out) for m in leaves})

        return tree.map_tree(of, call.traced.result)

    return Transformed(f, run_, program)


def _row(call: Call, argnums: Argnums, m: int, leaves: Sequence[int], head: str, out: dict[str, Any]) -> Any:
    """The second derivatives by one array and by all."""
    prefix, shape = f"{head}_{call.traced.arguments[m][1]}", call.values[m].shape
    return _by_argument(call, argnums, {n: _block(call, shape, prefix, n, out) for n in leaves})


def _block(call: Call, shape: tuple[int, ...], prefix: str, m: int, out: dict[str, Any]) -> Any:
    name = f"{prefix}_{call.traced.arguments[m][1]}"
    zeros = np.zeros((*shape, *call.values[m].shape), np.float32 if call.traced.single else np.float64)
    found = out.get(name, zeros)
    if found.shape != zeros.shape:  # one does not depend on the other: the program answers for all seeds with the same 0
        assert not found.any(), f"{name} has shape {found.shape}, expected {zeros.shape}"
        return zeros
    return found


def _outermost(what: str) -> None:
    if recording() is not None:
        raise fail(
            "UPL1932", f"{what} cannot be used inside a traced function",
            help="upl.grad, upl.vjp and upl.jvp can; or call it outside",
        )  # fmt: skip


def stop_gradient(x: Any) -> Any:
    """The arrays of a tree as constants: no derivative goes through them, as jax.lax.stop_gradient.  Outside of traced
    functions they are what they are."""
    if recording() is None:
        return x

    def stopped(e: Expr) -> Expr:
        return Apply("stop_gradient", (e,))

    return tree.map_tree(lambda a: computed(stopped, numbers(as_array(a)), word="stop_gradient"), x)


# -- inside a traced function ------------------------------------------------------------------------------------------


def _variables(args: Any) -> Any:
    """Copies of arrays by which one can differentiate."""

    def copy(a: Any) -> Array:
        array = numbers(as_array(a))
        if 0 in array.shape:
            help = "differentiate by arrays with elements"
            raise fail("UPL1934", f"an array to differentiate by is empty: its shape is {array.shape}", help=help)
        return computed(lambda e: e, array, word="variable")

    return tree.map_tree(copy, args)


def _derivatives(of: Array, wrt: Sequence[Array], what: str) -> list[Array]:
    """The derivatives of a number."""
    trace = current()
    if any(isinstance(loop, Phase) for loop in trace.loops):
        raise fail(
            "UPL1932", f"{what} cannot be used inside upl.while_loop",
            help="write the derivative out, or go round a fixed number of times: upl.fori_loop",
        )  # fmt: skip
    number = computed(lambda e: e, numbers(of), word="objective").operand()
    request = Request(number, tuple(a.operand() for a in wrt))
    out: list[Array] = []
    for by in request.wrt:
        n, loops, span = trace.common()
        node = Gradient(n, by.node.shape, loops, span, request, by)
        request.results.append(node)
        out.append(made(node))
    return out


def _gradient_inside(
    f: Function, argnums: Argnums, has_aux: bool, what: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Any, Any]:
    where = _positions(argnums, len(args), what)
    variables = {n: _variables(args[n]) for n in where}
    value = f(*(variables.get(n, a) for n, a in enumerate(args)), **kwargs)
    of = value[0] if has_aux else value
    if not isinstance(of, Array) or of.shape:
        found = f"an array of shape {of.shape}" if isinstance(of, Array) else type(of).__name__
        raise fail("UPL1934", f"{what}: the function returns {found}, not one number", help="sum it up, or use upl.vjp")
    wrt = [a for v in variables.values() for _, a in tree.leaves(v)]
    results = iter(_derivatives(of, wrt, what))
    parts = {n: tree.map_tree(lambda _: next(results), v) for n, v in variables.items()}
    return value, parts[where[0]] if isinstance(argnums, int) else tuple(parts[n] for n in where)


def _weighted(values: Any, weights: Any) -> Array:
    """The sum of all elements, each times its weight."""
    total: Any = 0.0
    for (_, v), (_, w) in zip(tree.leaves(values), tree.leaves(weights), strict=True):
        total = total + np.sum(as_array(v) * w)
    return as_array(total)


def _pull_back_inside(f: Function, primals: Sequence[Any], cotangents: Any) -> tuple[Any, ...]:
    variables = _variables(tuple(primals))
    of = _weighted(f(*variables), cotangents)
    found = iter(_derivatives(of, [a for _, a in tree.leaves(variables)], "upl.vjp"))
    return tree.map_tree(lambda _: next(found), variables)


def _tangent_inside(f: Function, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    """By reverse mode twice: the product of a vector with the Jacobian is linear in the vector; its derivative is wanted."""
    value = f(*primals)
    weights = _variables(tree.map_tree(lambda a: filled(as_array(a).shape, 0.0), value))
    back = _pull_back_inside(f, primals, weights)
    found = iter(_derivatives(_weighted(back, tangents), [a for _, a in tree.leaves(weights)], "upl.jvp"))
    return value, tree.map_tree(lambda _: next(found), weights)
