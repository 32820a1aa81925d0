# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Python functions as UPL programs: traced once for each combination of shapes and types, then run on an engine."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.api.fastest import fastest
from upl_mlir.api.program import known_by_content
from upl_mlir.api.programs import Compiled, Program
from upl_mlir.diagnostics import Span, UplError
from upl_mlir.dialects.upl import UplType
from upl_mlir.frontend.tensor import TensorProgram, lower
from upl_mlir.frontend.tensor.lower import output_name
from upl_mlir.frontend.trace import tree
from upl_mlir.frontend.trace.again import Again, Last, Pick, Unknown, filler, signature, unlike
from upl_mlir.frontend.trace.array import Array, as_array, computed, made, real_numbers
from upl_mlir.frontend.trace.build import Built, build
from upl_mlir.frontend.trace.indexing import LoopIndex
from upl_mlir.frontend.trace.node import Compute, Leaf, Recording, Trace, recording
from upl_mlir.frontend.trace.position import fail, sources_of, usable
from upl_mlir.host.collector import rarely_collecting

ENGINE: str | None = None
"""The engine of functions that name none; None is the fastest that takes the program: see `upl_mlir.api.fastest`."""


@dataclass(frozen=True)
class Traced:
    """One run of a function: its program, the leaves of its arguments, and the shape of its result.

    `arguments` has for each array among the arguments, in order, its node and the name of the program's input ("" if the
    result does not depend on it); `constants` are fed beside them.
    """

    program: Program
    form: TensorProgram
    arguments: tuple[tuple[Leaf, str], ...]
    constants: dict[str, NDArray[Any]]
    result: Any  # the structure of the result: each leaf is the number of an output
    outputs: tuple[tuple[str, bool], ...]  # names, and whether they are truth values
    single: bool

    def named(self, values: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The inputs for given arrays."""
        given = {name: v for (_, name), v in zip(self.arguments, values, strict=True) if name}
        return given | self.constants

    @functools.cached_property
    def shape(self) -> Any:
        """The result, with the output for each of its leaves."""
        return tree.map_tree(lambda n: Pick(*self.outputs[n]), self.result)

    @property
    def dtype(self) -> type[np.floating[Any]]:
        """The type of the program's numbers."""
        return np.float32 if self.single else np.float64

    def unpacked(self, out: dict[str, Any]) -> Any:
        """The result with its structure, from what the engine has computed."""
        return self._fill(out)

    @functools.cached_property
    def _fill(self) -> Callable[[dict[str, Any]], Any]:
        return filler(self.shape, self.dtype)


class Function:
    """A Python function that runs as a UPL program.  Calls take and return arrays, or tuples, lists and dicts of them.

    `static` are the positions of arguments that are no data: the function sees them as they are, and is traced anew for
    each value.  `program(…)` is the program for arguments like these.  In a function that is being traced, a call becomes
    part of the trace.
    """

    def __init__(self, fun: Callable[..., Any], static: Sequence[int] = (), engine: str | None = None):
        functools.update_wrapper(self, fun)
        self.fun, self.static, self.engine = fun, tuple(static), engine
        self._traced: dict[Any, Traced] = {}
        self._compiled: dict[Any, Compiled] = {}
        self._again: dict[Any, Again] = {}
        self._last = Last("")

    def __repr__(self) -> str:
        return f"<upl.function {getattr(self.fun, '__name__', self.fun)}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's value.  Raises UplError (UPL193x)."""
        if recording() is not None:
            return self.fun(*args, **kwargs)
        last = self._last
        if not kwargs and (found := last.whole(args)) is not NotImplemented:
            return found
        return self.called(args, kwargs, last, self._value)

    def _value(self, call: Call) -> tuple[Compiled, Any]:
        """The function's own program, and the shape of its result."""
        return self.prepared(call, "", lambda t: t.program), call.traced.shape

    def called(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], last: Last, prepare: Callable[[Call], tuple[Compiled, Any]]
    ) -> Any:
        """The result of a program made of the function.  `prepare` gives that program and the result with a `Pick` for each
        leaf; it is asked once for calls that are alike.  `last.whole` serves calls like this one afterwards."""
        values: list[Any] = []
        key = None
        if not kwargs and not self.static:
            try:
                key = last.what, signature(args, values)
                if (again := self._again.get(key)) is not None:
                    found = again(values)
                    if last.of is not again:
                        last.of, last.whole = again, again.whole(args) or unlike
                    return found
            except Unknown:
                pass
        call = self.bind(args, kwargs)
        compiled, shape = prepare(call)
        traced = call.traced
        names = [name for _, name in traced.arguments]
        again = Again(compiled, names, call.values, traced.constants, shape, traced.dtype)
        if key is not None:
            self._again[key] = again
        return again(call.values)

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """The UPL program for arguments of these shapes; directives `adjoint of` are expanded."""
        return self.bind(args, kwargs).traced.program.expanded()

    def fixed(self, count: int) -> list[int]:
        """The positions of static ones among so many arguments, from 0."""
        return sorted({n % count for n in self.static if -count <= n < count})

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
        """Trace the function for these arguments, unless that has been done."""
        fixed = {n: args[n] for n in self.fixed(len(args))}
        free = ([None if n in fixed else a for n, a in enumerate(args)], kwargs)
        names, values = self._leaves(free)
        single = any(v.dtype == np.float32 for v in values) and all(
            v.dtype == np.float32 or (v.ndim == 0 and v.dtype.kind in "iub") for v in values
        )
        shapes = tuple(v.shape for v in values)
        try:
            seen = tuple((n, tree.exact(value)) for n, value in fixed.items())
            key = (tree.structure(free), tree.order(free), shapes, self._kinds(values), single, seen)
            hash(key)
        except TypeError:
            raise fail("UPL1934", "a static argument must be hashable", help="pass tuples in place of lists") from None
        if key not in self._traced:
            self._traced[key] = self._trace(args, kwargs, fixed, names, shapes, single)
        owners = [n for n, a in enumerate(free[0]) for _ in tree.leaves(a)]
        owners += [-1] * (len(values) - len(owners))
        return Call(key, self._traced[key], tuple(args), values, owners)

    def run(self, call: Call, how: Any, make: Callable[[Traced], Program], more: dict[str, Any]) -> dict[str, Any]:
        """Run the program that `make` makes of the traced one; `how` tells such programs apart."""
        compiled = self.prepared(call, how, make)
        inputs = {n: v for n, v in (call.traced.named(call.values) | more).items() if n in compiled.inputs}
        dtype = call.traced.dtype
        out = compiled(**{n: np.asarray(v, dtype=dtype) for n, v in inputs.items()})
        return {n: v.astype(dtype, copy=False) for n, v in out.items()}

    def prepared(self, call: Call, how: Any, make: Callable[[Traced], Program]) -> Compiled:
        """That program, ready to run; it is made once."""
        key = (call.key, how)
        if key not in self._compiled:
            self._compiled[key] = fastest(make(call.traced), self.engine or ENGINE)
        return self._compiled[key]

    def _kinds(self, values: Sequence[NDArray[Any]]) -> Any:
        """What tells traces apart besides the shapes: nothing here, as all numbers are floats."""
        del values

    @functools.cached_property
    def _parameters(self) -> list[str]:
        """The names of the function's parameters, none if it does not tell; found once, as it takes longer than a call."""
        try:
            return list(inspect.signature(self.fun).parameters)
        except (TypeError, ValueError):
            return []

    def _leaves(self, free: Any) -> tuple[list[str], list[NDArray[Any]]]:
        """The arrays among the arguments, and names for them."""
        parameters = self._parameters
        args, kwargs = free
        named = [(parameters[n] if n < len(parameters) else f"x{n}", a) for n, a in enumerate(args)]
        names: list[str] = []
        values: list[NDArray[Any]] = []
        for stem, argument in [*named, *kwargs.items()]:
            for path, leaf in tree.leaves(argument, stem):
                names.append(path)
                values.append(argument_array(path, leaf))
        return names, values

    @rarely_collecting
    def _trace(
        self, args: Sequence[Any], kwargs: Any, fixed: dict[int, Any], names: list[str], shapes: Any, single: bool
    ) -> Traced:
        trace = Trace(single)
        span = _place(self.fun)
        leaves = [trace.argument(name, shape, span) for name, shape in zip(names, shapes, strict=True)]
        with Recording(trace):
            arrays = iter([made(leaf, trace) for leaf in leaves])
            free = [a if n in fixed else tree.map_tree(lambda _: next(arrays), a) for n, a in enumerate(args)]
            given = {name: tree.map_tree(lambda _: next(arrays), a) for name, a in kwargs.items()}
            try:
                result = self.fun(*free, **given)
            except (TypeError, ValueError) as e:
                if isinstance(e.__cause__, UplError):  # numpy asked for a value, and made the refusal an error of its own
                    raise e.__cause__ from None
                raise
            if trace.loops:
                raise fail(
                    "UPL1932", "a loop of upl.range was left before its end", span,
                    help="its body is traced once for all rounds: no `break` or `return`; or use Python's range",
                )  # fmt: skip
            outputs = [self._result(path, leaf) for path, leaf in tree.leaves(result)]
        if not outputs:
            raise fail("UPL1934", f"{self._name} returns no array", span, help="return what it computes")
        numbered = iter(range(len(outputs)))
        type_ = UplType.F32 if single else UplType.REAL
        built = build(usable(self._name), leaves, outputs, type_)
        with_texts = sources_of(*_files(outputs, span))
        program = known_by_content(_lowered(built, with_texts), with_texts, lambda: _lowered(built, with_texts))
        arguments = tuple((leaf, built.inputs.get(leaf, "")) for leaf in leaves)
        constants = {name: leaf.value for leaf, name in built.inputs.items() if leaf.value is not None}
        names_out = [output_name(built.program, t) for t in built.program.outputs]
        booleans = [o.boolean for o in outputs]
        return Traced(
            program, built.program, arguments, constants, tree.map_tree(lambda _: next(numbered), result),
            tuple(zip(names_out, booleans, strict=True)), single,
        )  # fmt: skip

    @property
    def _name(self) -> str:
        return getattr(self.fun, "__name__", "function").strip("<>")

    def _result(self, path: str, leaf: Any) -> Compute:
        """A leaf of the result as a computation of its own."""
        if not isinstance(leaf, Array | LoopIndex | int | float | np.ndarray | np.generic):
            where = f"its part {path}" if path else "it"
            raise fail(
                "UPL1934", f"{self._name} returns what is no array: {where} is {type(leaf).__name__}", _place(self.fun),
                help="return arrays and numbers, or tuples, lists and dicts of them",
            )  # fmt: skip
        array = as_array(leaf)
        if 0 in array.shape:
            message = f"{self._name} returns an empty array: its shape is {array.shape}"
            raise fail("UPL1934", message, _place(self.fun), help="return arrays with elements")
        out = computed(lambda a: a, array, boolean=array.boolean, word="result").operand().node
        assert isinstance(out, Compute)
        out.span = out.reads[0].node.span if isinstance(leaf, Array) else _place(self.fun)
        return out


@dataclass(frozen=True)
class Call:
    """A function together with arguments: the traced program, and the arrays among the arguments, in order.

    `owners` has for each array the position of the argument that it belongs to (-1 for one that is given by name).
    """

    key: Any
    traced: Traced
    args: tuple[Any, ...]
    values: list[NDArray[Any]]
    owners: list[int]


def argument_array(name: str, value: Any) -> NDArray[Any]:
    """An argument as an array of numbers.  Raises UplError (UPL1934)."""
    if isinstance(value, Array):
        raise fail("UPL1935", f"`{name}` is a traced value", help="call the function inside the one that is traced")
    out = real_numbers(value)
    if out is None:
        raise fail(
            "UPL1934", f"the argument `{name}` is no array of numbers, but {type(value).__name__}",
            help="for an argument that is no data: upl.function(f, static_argnums=…)",
        )  # fmt: skip
    if 0 in out.shape:
        raise fail("UPL1934", f"the argument `{name}` is empty: its shape is {out.shape}", help="pass at least one element")
    return out


def _place(fun: Any) -> Span | None:
    code = getattr(inspect.unwrap(fun), "__code__", None)
    return Span(code.co_filename, code.co_firstlineno, 1) if code is not None else None


def _files(outputs: Sequence[Compute], span: Span | None) -> set[str]:
    """The Python files that the nodes come from."""
    found = {span.file} if span else set[str]()
    seen: set[Any] = set()
    todo: list[Any] = list(outputs)
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            found |= {node.span.file} if node.span else set()
            todo += [o.node for o in node.operands]
    return found


def _lowered(built: Built, sources: Any) -> Any:
    try:
        return lower(built.program)
    except UplError as e:
        e.sources.texts.update(sources.texts)
        raise


def function(fun: Any = None, *, static_argnums: int | Sequence[int] = (), engine: str | None = None) -> Any:
    """Turn a Python function over arrays into one that runs as a UPL program; also a decorator, with or without options.

        @upl.function
        def loss(w, x, y):
            return np.mean((np.tanh(x @ w) - y) ** 2)

    `static_argnums` are positions of arguments that are no data; `engine` is one of `upl.compile`'s, by default native
    code, or the interpreter where a RuntimeWarning says that native code cannot be made of the program.
    """
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    if fun is None:
        return lambda f: Function(f, static, engine)
    if not callable(fun):
        raise fail("UPL1934", f"upl.function: expected a function, found {type(fun).__name__}", help="pass the function")
    return Function(fun, static, engine)
