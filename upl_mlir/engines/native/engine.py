"""The engine "native": a checked affine program as machine code, arrays in and arrays out.

One compilation serves all sizes: parameters are arguments.  Calls whose arrays are of the types and shapes of an earlier
call skip the binding of parameters and layouts.
"""

from __future__ import annotations

import itertools
import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import UplError, error, nearest_or_all
from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.dialects.upl.query import outputs, poly_context, span_of
from upl_mlir.engines.native import shapes
from upl_mlir.engines.native.call import Again, Whole, again_call, whole_call
from upl_mlir.engines.native.whole import Source, compile_program
from upl_mlir.host.arrays import HostPort, bind_parameters, check_names, dense_arrays, dtype_of, host_ports
from upl_mlir.passes.analysis.at_sizes import require_at
from upl_mlir.passes.analysis.sizes import Sizes, total
from upl_mlir.passes.layouts import Layout, require_reach
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.sets import PolyContext

Array = NDArray[Any]

SMALL = 4
"""Parameters given when a program is compiled become numbers in the code up to this value: loops of so few iterations are
written out, so that the loops round them become vectors."""
INTEGERS = ("int64", "int32")
"""What arrays of `int` may hold."""
MAX_KNOWN = 256
"""Of how many sizes the layouts are remembered: each holds which elements of its boxes are in the domain."""
MAX_KEPT = 16
"""Of how many sizes they are kept on disk."""

_FAULTS = {
    1: ("UPL1604", "integer overflow: a result does not fit 64 bits"),
    2: ("UPL1604", "integer division by zero"),
    3: ("UPL1605", "a gather got another number of summands than its count says"),
    4: ("UPL1604", "a real that has no 64-bit integer value was converted to `int`"),
    5: ("UPL1604", "an index outside a constant array was read"),
    6: ("UPL1826", "native code computes indices in 64 bits, which may not do for these parameters"),
}


@dataclass(frozen=True)
class Stats:
    """What one run did: the part of ``stats.json`` that this engine has.

    `firings` by node and `tokens` received by node and host output (`tokens_sent` in all) are those of the program, counted
    without running it; None where no count is known.  ``peak_waiting`` is null: nothing waits here.  `cached`: program
    and code were found ready made; `calls`: how calls reach it, "extension", or "ctypes: " and why the extension is missing.
    """

    firings: dict[str, int | None]
    tokens: dict[str, int | None]
    seconds: float
    compile_seconds: float
    cached: bool
    threads: int
    calls: str

    def to_dict(self) -> dict[str, Any]:
        """The object for ``stats.json``."""
        return {
            "engine": "native", "firings": self.firings, "tokens": self.tokens,
            "tokens_sent": total(self.tokens), "peak_waiting": None,
            "seconds": self.seconds, "compile_seconds": self.compile_seconds, "cached": self.cached,
            "threads": self.threads, "calls": self.calls,
        }  # fmt: skip


@dataclass(eq=False)
class _Binding:
    """What follows from the parameters: the layouts, and which ports have to be copied into the function's own."""

    params: dict[str, int]
    ports: dict[str, HostPort]
    moved: dict[str, tuple[tuple[int, ...], tuple[slice, ...]]]
    bytes: int
    again: Remembered | None = None


@dataclass(frozen=True, eq=False)
class Remembered:
    """What a call like an earlier one needs: `given` and the arrays' shapes are the same, so `params` are.

    `run` is the call's, bound once.
    """

    given: dict[str, int]
    call: Again
    run: Callable[..., dict[str, Array] | int | None]
    params: dict[str, int]
    inputs: Sequence[str]
    outputs: Sequence[tuple[str, np.dtype[Any]]]

    def whole(self, arguments: Any, constants: Mapping[str, Array], result: Any, fault: str | None = None) -> Whole | None:
        """Such calls as one function: see `whole_call`."""
        return whole_call(self.call, self.inputs, self.outputs, arguments, constants, result, fault)


class NativeEngine:
    """A program compiled once.  `run` and `__call__` may be called any number of times, with any sizes.

    `real` is what `real` means, `gather` the order of folds ("relaxed" or "ordered"), `given` values of parameters that
    calls will have (others are served by code that is compiled then).  `narrow` are integer inputs that come as arrays of
    int32; calls in which others do are served by code that is compiled then.
    Raises UplError: UPL13xx if it is wrong, UPL19xx if it is not in the class that this engine runs.
    """

    def __init__(
        self, source: Source, *, real: str = "f64", gather: str = "relaxed", threads: int = 1,
        given: Mapping[str, object] | None = None, narrow: Set[str] = frozenset(),
    ):  # fmt: skip
        start = time.perf_counter()
        self._source = source
        facts = source.facts
        params = facts.params
        self.fixed = {
            n: v for n, v in (given or {}).items() if n in params and type(v) is int and 0 <= v <= SMALL
        }  # fmt: skip
        self._open: Callable[[], NativeEngine] = cache(
            lambda: NativeEngine(source, real=real, gather=gather, threads=threads, narrow=narrow)
        )

        def other(names: frozenset[str]) -> NativeEngine:
            return NativeEngine(source, real=real, gather=gather, threads=threads, given=given, narrow=names)

        self._other: Callable[[frozenset[str]], NativeEngine] = cache(other)
        self._narrow = narrow
        self.real = np.dtype(np.float32 if real == "f32" else np.float64)
        if threads < 1:
            raise error("UPL1802", f"threads={threads}: expected 1 or more")
        try:
            self.whole = compile_program(source, real=real, gather=gather, threads=threads, fixed=self.fixed, narrow=narrow)
        except RuntimeError as e:  # llvmlite's word for everything that LLVM refuses
            why = (str(e).strip().splitlines() or ["no reason given"])[0]
            help_ = 'this is a defect of upl-mlir: report it; engine="token" and "interp" run the program'
            raise error("UPL1828", f"LLVM cannot compile the program: {why}", span_of(self.program), help=help_) from e
        self.kernel = self.whole.kernel
        if self.kernel.threads < threads:
            why = self.kernel.call_path.removeprefix("ctypes: ")
            warnings.warn(f"one thread instead of {threads}: {why}", RuntimeWarning, stacklevel=3)
        self.compile_seconds = time.perf_counter() - start
        self._seconds = 0.0
        self._bound: Mapping[str, int] = {}
        self._inputs = list(facts.inputs)
        self._outputs = list(facts.outputs)
        self._integers = [a.name for a in self.kernel.arguments if a.rank and a.name in facts.inputs and a.dtype in INTEGERS]
        self._params = tuple(p for p in params if p not in self.fixed)
        if not self._params:
            self._require_reach({})
        self._known: dict[tuple[object, ...], _Binding] = {}
        self.last: Remembered | None = None
        """What served the last call, and serves those like it; None for a call whose arrays were copied."""

    @cached_property
    def program(self) -> ProgramOp:
        """The program; made now if nothing needed it so far."""
        return self._source.read()

    @cached_property
    def _context(self) -> PolyContext:
        return poly_context(self.program)

    # -- calls ----------------------------------------------------------------------------------------------------------
    def __call__(
        self, arrays: dict[str, Any], given: Mapping[str, int], out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Run on what a caller passes: see `host.bind_parameters` and `host.bind_arrays`.  `out` are arrays to write to.

        Raises UplError (UPL15xx, UPL1604, UPL1827).
        """
        last = self.last
        if last is not None and given == last.given:  # most calls are like the last one
            results = last.run(arrays, out)
            if results is not None:
                return self._returned(results)
        narrow = frozenset(n for n in self._integers if n in arrays and _is_narrow(arrays[n]))
        if narrow != self._narrow:
            return self._by(self._other(narrow), arrays, given, out)
        key = signature(arrays, given)
        binding = None if key is None else self._known.get(key)
        if binding is None:
            self.last = self._kept(key, given)
            results = None if self.last is None else self.last.run(arrays, out)
            if results is not None:
                return self._returned(results)
            params = bind_parameters(self.program, arrays, given)
            if any(params[n] != v for n, v in self.fixed.items()):
                return self._by(self._open(), arrays, given, out)
            binding = self._binding(params)
            if key is not None:
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known[key] = binding
                binding.again = self._remember(key, dict(given), binding)
        if binding.again is not None:
            self.last = binding.again
            results = self.last.run(arrays, out)
            if results is not None:
                return self._returned(results)
        if not arrays.keys() <= set(self._inputs):
            check_names(self.program, arrays)
        fitting = {n: a for n, a in arrays.items() if in_place_of(a, binding.ports[n])}
        others = dense_arrays([binding.ports[n] for n in self._inputs if n not in fitting], arrays)
        return self._run(binding, fitting | others, out)

    def _by(
        self, other: NativeEngine, arrays: dict[str, Any], given: Mapping[str, int], out: Mapping[str, Array] | None
    ) -> dict[str, Array]:
        """What another engine of the program makes of a call; what remembers it there serves those like it here."""
        found = other(arrays, given, out)
        self._bound, self._seconds, self.last = other.bound, other.seconds, other.last
        return found

    def _returned(self, results: dict[str, Array] | int) -> dict[str, Array]:
        """The results of a call, if it was one without a fault."""
        if isinstance(results, int):
            raise self._fault(results)
        return results

    def _remember(self, key: tuple[object, ...], given: dict[str, int], binding: _Binding) -> Remembered | None:
        """What serves calls like this one, kept for other processes, too; None where arrays have to be moved."""
        if binding.moved:
            return None
        inputs, outputs = (
            tuple((n, binding.ports[n].shape) for n in names) for names in (self._inputs, self._outputs)
        )  # fmt: skip
        call = shapes.Call(binding.params, inputs, outputs, binding.bytes)
        if self._source.key is not None and len(self._known) <= MAX_KEPT:
            shapes.keep(self.whole.key, key, call)
        return self._remembered(given, call)

    def _kept(self, key: tuple[object, ...] | None, given: Mapping[str, int]) -> Remembered | None:
        """What serves calls like this one, found on disk."""
        call = None if key is None or self._source.key is None else shapes.known(self.whole.key, key)
        return None if call is None or call.bytes > _memory() else self._remembered(dict(given), call)

    def _remembered(self, given: dict[str, int], call: shapes.Call) -> Remembered | None:
        """What serves calls of a kind; None without the extension."""
        dtypes = {a.name: np.dtype(a.dtype) for a in self.kernel.arguments[:-1]}  # the last is the status
        outputs = [(n, shape, dtypes[n]) for n, shape in call.outputs]
        found = again_call(self.kernel.run, [call.params[p] for p in self._params], call.inputs, outputs)
        if found is None:
            return None
        inputs = [n for n, _ in call.inputs]
        return Remembered(given, found, found.run, call.params, inputs, [(n, t) for n, _, t in outputs])

    @property
    def seconds(self) -> float:
        """How long the last run took."""
        return self._seconds if self.last is None else self.last.call.nanoseconds * 1e-9

    @property
    def bound(self) -> Mapping[str, int]:
        """The parameters of the last run."""
        return self._bound if self.last is None else self.last.params

    def run(self, params: Mapping[str, int], dense: Mapping[str, Array]) -> dict[str, Array]:
        """Run on dense arrays in the types and shapes of the ports for `params`."""
        if any(params[n] != v for n, v in self.fixed.items()):
            return self._open().run(params, dense)
        return self._run(self._binding(dict(params)), dense, None)

    def _run(self, binding: _Binding, dense: Mapping[str, Array], out: Mapping[str, Array] | None) -> dict[str, Array]:
        start = time.perf_counter()
        self._bound, self.last = binding.params, None
        args: list[Any] = [binding.params[p] for p in self._params]
        for name in self._inputs:
            args.append(self._placed(binding, name, dense[name]) if name in binding.moved else dense[name])
        results: dict[str, Array] = {}
        for name in out or ():
            if name not in self._outputs:
                help_ = nearest_or_all(str(name), self._outputs)
                raise error("UPL1502", f"out[{name!r}]: there is no such output", help=help_)
        for name in self._outputs:
            port = binding.ports[name]
            results[name] = target_of(port, out)
            args.append(np.zeros(binding.moved[name][0], port.dtype) if name in binding.moved else results[name])
        if out:
            args = self._apart(binding, args, results)
        status = np.zeros((), np.int64)  # of this call: other threads may be in others
        self.kernel.run([*args, status])
        if status:
            raise self._fault(int(status))
        for name, buffer in zip(self._outputs, args[len(args) - len(self._outputs) :], strict=True):
            if name in binding.moved:
                results[name][...] = buffer[binding.moved[name][1]]
        self._seconds = time.perf_counter() - start
        return results

    def _apart(self, binding: _Binding, args: list[Any], results: Mapping[str, Array]) -> list[Any]:
        """The arguments with inputs that share memory with an output copied: the function takes arrays for distinct.

        Raises UplError (UPL1503) for outputs that share memory with each other.
        """
        for (a, x), (b, y) in itertools.combinations(results.items(), 2):
            if np.may_share_memory(x, y):  # of contiguous arrays: they do
                span = binding.ports[b].span
                raise error("UPL1503", f"out[{a!r}] and out[{b!r}] share memory: each output needs its own", span)
        first = len(self._params)
        last = first + len(self._inputs)
        shared = [any(np.may_share_memory(x, y) for y in results.values()) for x in args[first:last]]
        inputs = [x.copy() if both else x for x, both in zip(args[first:last], shared, strict=True)]
        return [*args[:first], *inputs, *args[last:]]

    def scalar(self) -> Any:
        """A callable for programs whose ports have no fields: numbers in text order in, a tuple of numbers out."""

        def fail(code: int, values: tuple[Any, ...]) -> Any:
            if code >= 0:
                raise self._fault(code)
            given = dict(zip(self._inputs, values, strict=True)) if len(values) == len(self._inputs) else None
            if given is None:
                names = ", ".join(self._inputs)
                raise error("UPL1501", f"scalar() takes {len(self._inputs)} numbers ({names}), {len(values)} given")
            outs = self(given, {})
            return tuple(outs[n].item() for n in self._outputs)

        return self.kernel.scalar(fail)

    # -- layouts --------------------------------------------------------------------------------------------------------
    def _binding(self, params: dict[str, int]) -> _Binding:
        self._require_reach(params)
        needed = self._check_storage(params)
        if self.whole.open:
            require_at(self.program, params, self.whole.open)
        ports = host_ports(self.program, params, self.real)
        ports |= {n: replace(ports[n], dtype=np.dtype(np.int32)) for n in self._narrow}
        moved: dict[str, tuple[tuple[int, ...], tuple[slice, ...]]] = {}
        for name, port in ports.items():
            lower, shape = self._assumed(self.whole.layouts[name], params)
            fixed = next(a.shape for a in self.kernel.arguments if a.name == name)
            small = any(n >= 0 and n != m for n, m in zip(fixed, port.shape, strict=True))  # where there is no element
            if (lower != port.origin and 0 not in port.shape) or small:
                # A port without elements has the origin 0, wherever its domain would begin: nothing of it is moved.
                at = tuple(
                    slice(o - lo, o - lo + n) if 0 not in port.shape else slice(0, 0)
                    for o, lo, n in zip(port.origin, lower, port.shape, strict=True)
                )
                whole = tuple(max(n, s.stop) for n, s in zip(shape, at, strict=True))
                moved[name] = (whole, at)
        return _Binding(params, ports, moved, needed)

    def _require_reach(self, params: Mapping[str, int]) -> None:
        """Raise UplError (UPL1826) if indices may pass 64 bits."""
        require_reach(self.whole.reach, params, lambda: span_of(self.program))

    def _assumed(self, layout: Layout, params: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Origin and shape that the function assumes of a port's array."""

        def number(e: IndexExpr) -> int:
            return self._number(e, params)

        return tuple(map(number, layout.lower)), tuple(max(0, number(e)) for e in layout.shape)

    def _number(self, e: IndexExpr, params: Mapping[str, int]) -> int:
        return e.evaluate({**self._context.constants, **params}, self._context.read)

    def _check_storage(self, params: Mapping[str, int]) -> int:
        """The bytes of outputs and arrays between.  Raises UplError (UPL1827) if they would not fit, before any is made."""
        sizes: dict[str, int] = {}
        for array in self.whole.scratch:
            sizes[array.name] = array.element_bytes * self._product(array.shape, params)
        for op in outputs(self.program):
            item = dtype_of(op.type, self.real).itemsize
            sizes[op.symbol] = item * self._product(self.whole.layouts[op.symbol].shape, params)
        total, room = sum(sizes.values()), _memory()
        if total > room:
            name = max(sizes, key=lambda n: sizes[n])
            raise error(
                "UPL1827",
                f"intermediate arrays and outputs need {total} bytes (`{name}` alone {sizes[name]}); "
                f"this machine has {room}",
                span_of(self.program),
                help="use smaller sizes, or keep fewer steps (upl.checkpoint)",
            )
        return total

    def _product(self, shape: tuple[IndexExpr, ...], params: Mapping[str, int]) -> int:
        return math.prod(max(0, self._number(e, params)) for e in shape)

    def _placed(self, binding: _Binding, name: str, array: Array) -> Array:
        """An input at the place where the function looks for it."""
        whole, at = binding.moved[name]
        out = np.zeros(whole, array.dtype)
        out[at] = array
        return out

    def _fault(self, status: int) -> UplError:
        return fault_of(status, self.program)

    # -- figures --------------------------------------------------------------------------------------------------------
    def stats(self) -> Stats:
        """What the last run did."""
        sizes, k = self._sizes, self.kernel
        if self.bound.keys() >= set(self._params):
            firings, tokens = sizes.at(self.bound)
        else:  # before the first run
            firings, tokens = dict.fromkeys(sizes.firings), dict.fromkeys(sizes.tokens)
        return Stats(firings, tokens, self.seconds, self.compile_seconds, self.whole.again, k.threads, k.call_path)

    @cached_property
    def _sizes(self) -> Sizes:
        return Sizes.of(self.program)


def fault_of(status: int, program: ProgramOp) -> UplError:
    """The error that a status of the code stands for."""
    code, message = _FAULTS.get(status, ("UPL1604", f"status {status}"))
    return error(code, message, span_of(program), help='engine="interp" names the instance at which it happens')


def target_of(port: HostPort, out: Mapping[str, Array] | None) -> Array:
    """The array that an output is written to: the caller's, or a new one."""
    if out is None or port.name not in out:
        return np.empty(port.shape, port.dtype)
    found = out[port.name]
    if type(found) is not np.ndarray or found.shape != port.shape or found.dtype != port.dtype:
        raise error(
            "UPL1503", f"out[{port.name!r}]: expected an array of shape {port.shape} and type {port.dtype}, found "
            f"{getattr(found, 'shape', type(found).__name__)} {getattr(found, 'dtype', '')}", port.span,
        )  # fmt: skip
    if not found.flags.carray:
        raise error("UPL1503", f"out[{port.name!r}] must be contiguous, aligned and writeable", port.span)
    return found


def in_place_of(array: Any, port: HostPort) -> bool:
    """Whether an array is used as it is."""
    if type(array) is not np.ndarray or array.shape != port.shape or array.dtype != port.dtype:
        return False
    return array.flags.c_contiguous and array.flags.aligned


def _is_narrow(array: Any) -> bool:
    """Whether an array holds integers of 32 bits."""
    return type(array) is np.ndarray and array.dtype == np.int32


def signature(arrays: Mapping[str, Any], given: Mapping[str, int]) -> tuple[object, ...] | None:
    """What decides the binding of a call: the shapes of arrays, and the parameters given; None if one is no array."""
    parts: list[object] = []
    for name, a in arrays.items():
        shape = () if type(a) is float else getattr(a, "shape", None)
        if shape is None:
            return None
        parts.append((name, shape))
    return (*parts, *given.items())


def _memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
