"""The engine "native": a checked affine program as machine code, arrays in and arrays out.

One compilation serves all sizes: parameters are arguments.  Calls whose arrays are of the types and shapes of an earlier
call skip the binding of parameters and layouts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.upl import InputOp, NodeOp, ProgramOp
from upl_mlir.dialects.upl.query import endpoints, inputs, outputs, poly_context, span_of
from upl_mlir.host.arrays import MAX_ARRAY_BYTES, HostPort, bind_arrays, bind_parameters, host_ports
from upl_mlir.native.backend import Kernel, compile_module
from upl_mlir.passes.lower_to_loops import Layout, Lowered, lower_to_loops
from upl_mlir.passes.proved import require_proved
from upl_mlir.passes.relations import ProgramSets
from upl_mlir.poly.counting import count
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.quota import TooComplex, limited
from upl_mlir.poly.sets import PSet

Array = NDArray[Any]

_FAULTS = {
    1: ("UPL1604", "integer overflow: a result does not fit 64 bits"),
    2: ("UPL1604", "integer division by zero"),
    3: ("UPL1605", "a gather got another number of summands than its count says"),
    4: ("UPL1604", "a real that has no 64-bit integer value was converted to `int`"),
    5: ("UPL1604", "an index outside a constant array was read"),
}


@dataclass(frozen=True)
class Stats:
    """What one run did: the part of ``stats.json`` that this engine has.

    `firings` by node and `tokens` received by node and host output are those of the program, counted without running it;
    None where no count is known.
    """

    firings: dict[str, int | None]
    tokens: dict[str, int | None]
    seconds: float
    compile_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The object for ``stats.json``."""
        return {
            "engine": "native", "firings": self.firings, "tokens": self.tokens, "seconds": self.seconds,
            "compile_seconds": self.compile_seconds,
        }  # fmt: skip


@dataclass(eq=False)
class _Binding:
    """What follows from the parameters: the layouts, and which ports have to be copied into the function's own."""

    params: dict[str, int]
    ports: dict[str, HostPort]
    moved: dict[str, tuple[tuple[int, ...], tuple[slice, ...]]]


class NativeEngine:
    """A program compiled once.  `run` and `__call__` may be called any number of times, with any sizes.

    `program` has its `adjoint of` expanded; `real` is what `real` means, `gather` the order of folds ("relaxed" or
    "ordered").  Raises UplError: UPL13xx if it is wrong, UPL19xx if it is not in the class that this engine runs.
    """

    def __init__(self, program: ProgramOp, *, real: str = "f64", gather: str = "relaxed", threads: int = 1):
        start = time.perf_counter()
        self.program = program
        self.real = np.dtype(np.float32 if real == "f32" else np.float64)
        require_proved(program)
        self.lowered: Lowered = lower_to_loops(program, real=real, gather=gather)
        self.kernel: Kernel = compile_module(self.lowered.module, threads=threads)
        self.compile_seconds = time.perf_counter() - start
        self.seconds = 0.0
        self.bound: dict[str, int] = {}
        self._inputs = [op.symbol for op in inputs(program)]
        self._outputs = [op.symbol for op in outputs(program)]
        self._params = poly_context(program).params
        self._status = np.zeros((), np.int64)
        self._known: dict[tuple[object, ...], _Binding] = {}
        self._polynomials: dict[str, IndexExpr | None] | None = None

    # -- calls ----------------------------------------------------------------------------------------------------------
    def __call__(
        self, arrays: Mapping[str, Any], given: Mapping[str, int], out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Run on what a caller passes: see `host.bind_parameters` and `host.bind_arrays`.  `out` are arrays to write to.

        Raises UplError (UPL15xx, UPL1604, UPL1827).
        """
        key = _signature(arrays, given)
        binding = None if key is None else self._known.get(key)
        if binding is not None and all(
            type(a := arrays[n]) is np.ndarray and a.dtype == binding.ports[n].dtype and a.flags.c_contiguous
            for n in self._inputs
        ):
            dense = cast("Mapping[str, Array]", arrays)
        else:
            params = bind_parameters(self.program, arrays, given)
            binding = self._binding(params)
            dense = bind_arrays(self.program, binding.ports, arrays)
            if key is not None:
                self._known[key] = binding
        return self._run(binding, dense, out)

    def run(self, params: Mapping[str, int], dense: Mapping[str, Array]) -> dict[str, Array]:
        """Run on dense arrays in the types and shapes of the ports for `params`."""
        return self._run(self._binding(dict(params)), dense, None)

    def _run(self, binding: _Binding, dense: Mapping[str, Array], out: Mapping[str, Array] | None) -> dict[str, Array]:
        start = time.perf_counter()
        self.bound = binding.params
        args: list[Any] = [binding.params[p] for p in self._params]
        for name in self._inputs:
            args.append(self._placed(binding, name, dense[name]) if name in binding.moved else dense[name])
        results: dict[str, Array] = {}
        for name in self._outputs:
            port = binding.ports[name]
            results[name] = self._target(port, out)
            args.append(np.zeros(binding.moved[name][0], port.dtype) if name in binding.moved else results[name])
        self._status[()] = 0
        self.kernel.run([*args, self._status])
        if self._status:
            raise self._fault(int(self._status))
        for name, buffer in zip(self._outputs, args[len(args) - len(self._outputs) :], strict=True):
            if name in binding.moved:
                results[name][...] = buffer[binding.moved[name][1]]
        self.seconds = time.perf_counter() - start
        return results

    def _target(self, port: HostPort, out: Mapping[str, Array] | None) -> Array:
        """The array that an output is written to: the caller's, or a new one."""
        if out is None or port.name not in out:
            return np.empty(port.shape, port.dtype)
        found = out[port.name]
        if type(found) is not np.ndarray or found.shape != port.shape or found.dtype != port.dtype:
            raise error(
                "UPL1503", f"out[{port.name!r}]: expected an array of shape {port.shape} and type {port.dtype}, found "
                f"{getattr(found, 'shape', type(found).__name__)} {getattr(found, 'dtype', '')}", port.span,
            )  # fmt: skip
        if not (found.flags.c_contiguous and found.flags.writeable):
            raise error("UPL1503", f"out[{port.name!r}] must be contiguous and writeable", port.span)
        return found

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
        ports = host_ports(self.program, params, self.real)
        self._check_scratch(params)
        moved: dict[str, tuple[tuple[int, ...], tuple[slice, ...]]] = {}
        for name, port in ports.items():
            lower, shape = self._assumed(self.lowered.layouts[name], params)
            if lower != port.origin and 0 not in port.shape:
                at = tuple(slice(o - lo, o - lo + n) for o, lo, n in zip(port.origin, lower, port.shape, strict=True))
                whole = tuple(max(n, s.stop) for n, s in zip(shape, at, strict=True))
                moved[name] = (whole, at)
        return _Binding(params, ports, moved)

    def _assumed(self, layout: Layout, params: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Origin and shape that the function assumes of a port's array."""

        def number(e: IndexExpr) -> int:
            return self._number(e, params)

        return tuple(map(number, layout.lower)), tuple(max(0, number(e)) for e in layout.shape)

    def _number(self, e: IndexExpr, params: Mapping[str, int]) -> int:
        ctx = poly_context(self.program)
        return e.evaluate({**ctx.constants, **params}, ctx.read)

    def _check_scratch(self, params: Mapping[str, int]) -> None:
        """Refuse sizes for which intermediate arrays would not fit.  Raises UplError (UPL1827)."""
        total, largest, name = 0, 0, ""
        for array in self.lowered.scratch:
            size = array.element_bytes
            for e in array.shape:
                size *= max(0, self._number(e, params))
            total += size
            if size > largest:
                largest, name = size, array.name
        if total > MAX_ARRAY_BYTES:
            raise error(
                "UPL1827",
                f"the intermediate arrays need {total} bytes (`{name}` alone {largest}); the limit is {MAX_ARRAY_BYTES}",
                span_of(self.program),
                help="use smaller sizes, or keep fewer steps (upl.checkpoint)",
            )

    def _placed(self, binding: _Binding, name: str, array: Array) -> Array:
        """An input at the place where the function looks for it."""
        whole, at = binding.moved[name]
        out = np.zeros(whole, array.dtype)
        out[at] = array
        return out

    def _fault(self, status: int) -> UplError:
        code, message = _FAULTS.get(status, ("UPL1604", f"status {status}"))
        return error(
            code, message, span_of(self.program), help='engine="interp" names the instance at which it happens'
        )

    # -- figures --------------------------------------------------------------------------------------------------------
    def stats(self) -> Stats:
        """What the last run did."""
        counts = self._counts()
        at = {**poly_context(self.program).constants, **self.bound}
        values = {n: None if e is None else e.evaluate(at, poly_context(self.program).read) for n, e in counts.items()}
        ends = endpoints(self.program)
        firings = {n: values[n] for n, op in ends.items() if isinstance(op, NodeOp)}
        tokens = {n: values[f"{n}."] for n, op in ends.items() if not isinstance(op, InputOp)}
        return Stats(firings, tokens, self.seconds, self.compile_seconds)

    def _counts(self) -> dict[str, IndexExpr | None]:
        """Polynomials for the firings of each node (by name) and the tokens of each node and output (by name and a dot)."""
        if self._polynomials is None:
            found: dict[str, IndexExpr | None] = {}
            sets = ProgramSets(self.program)

            def counted(s: PSet) -> IndexExpr | None:
                try:
                    with limited():
                        return count(s)
                except TooComplex:
                    return None

            for name, op in sets.ends.items():
                if isinstance(op, NodeOp):
                    found[name] = counted(sets.domain(name))
                sent = [counted(sets.tokens(a)) for a in sets.into(name)]
                known = [e for e in sent if e is not None]
                found[f"{name}."] = sum(known, IndexExpr()) if len(known) == len(sent) else None
            self._polynomials = found
        return self._polynomials


def _signature(arrays: Mapping[str, Any], given: Mapping[str, int]) -> tuple[object, ...] | None:
    """What decides the binding of a call: the shapes of arrays, and the parameters given; None if one is no array."""
    parts: list[object] = []
    for name, a in arrays.items():
        shape = getattr(a, "shape", None)
        if shape is None:
            return None
        parts.append((name, shape))
    return (*parts, *given.items())
