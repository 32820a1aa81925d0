"""A program and its derivative as functions on numpy arrays: what the wrappers for JAX and PyTorch share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from upl_mlir.api.programs import Compiled, Program, added, compile, vjp
from upl_mlir.diagnostics import error, nearest_or_all
from upl_mlir.host.arrays import bind_parameters, host_ports, wrong_shape

Array = NDArray[Any]
Real = Literal["f32", "f64"]


class Pullback:
    """One output of a program as a function of its inputs, and the derivative of that.

    `of` is the output, `wrt` the real inputs to differentiate by (all of them unless told); `params` bind parameters that
    the shapes of the inputs do not tell.  Compiled at the first call for each precision.

    Raises UplError (UPL1502, UPL14xx).
    """

    def __init__(
        self, p: Program, of: str, wrt: str | Sequence[str] | None, engine: Any, gather: Any, params: Mapping[str, int]
    ):
        self.program = p.expanded().infer_domains()
        if of not in self.program.outputs:
            outputs = self.program.outputs
            raise error("UPL1502", f"there is no output `{of}`", help=nearest_or_all(of, outputs))
        self.of = of
        self.names = list(self.program.inputs)
        reals = [n for n, v in self.program.inputs.items() if v.dtype.kind == "f"]
        self.wrt = reals if wrt is None else list(dict.fromkeys([wrt] if isinstance(wrt, str) else wrt))
        for n in self.wrt:
            if n not in reals:
                what = "is not of real numbers" if n in self.names else "is not an input of the program"
                raise error("UPL1502", f"`{n}`, by which to differentiate, {what}", help=nearest_or_all(n, reals))
        self.engine, self.gather, self.params = engine, gather, dict(params)
        self._compiled: dict[tuple[str, Real], Compiled] = {}
        self._shapes: dict[tuple[tuple[int, ...], ...], tuple[int, ...]] = {}

    @cached_property
    def derivative(self) -> Program:
        """The program of the derivative."""
        return vjp(self.program, self.of, self.wrt)

    def _count(self, found: int) -> None:
        """There are as many arguments as inputs.  Raises UplError (UPL1501, UPL1502)."""
        if found != len(self.names):
            code = "UPL1501" if found < len(self.names) else "UPL1502"
            raise error(code, f"{found} arguments are given for the inputs {', '.join(self.names)}")

    def real_of(self, dtypes: Sequence[Any]) -> Real:
        """What `real` is for arguments of these types: f32 if a real one is, and none is f64."""
        reals = [np.dtype(d) for d in dtypes if np.dtype(d).kind == "f"]
        return "f32" if reals and all(d.itemsize <= 4 for d in reals) else "f64"

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """The shape of the result for arguments of these shapes.  Raises UplError (UPL150x)."""
        key = tuple(shapes)
        if key not in self._shapes:
            self._count(len(key))
            arrays = {n: np.broadcast_to(np.float64(0), s) for n, s in zip(self.names, key, strict=True)}
            with self.program.errors():
                bound = bind_parameters(self.program.read(), arrays, self.params)
                ports = host_ports(self.program.read(), bound)
                for n, a in arrays.items():
                    if a.shape != ports[n].shape:
                        raise wrong_shape(ports[n], a.shape)
            self._shapes[key] = ports[self.of].shape
        return self._shapes[key]

    def dtype(self, real: Real) -> np.dtype[Any]:
        """The type of the result."""
        from upl_mlir.dialects.upl.query import outputs
        from upl_mlir.host.arrays import dtype_of

        op = next(op for op in outputs(self.program.read()) if op.symbol == self.of)
        return dtype_of(op.type, np.dtype(np.float32 if real == "f32" else np.float64))

    def value(self, args: Sequence[Any], real: Real) -> Array:
        """The result for arguments in text order."""
        arrays = {n: np.asarray(a) for n, a in zip(self.names, args, strict=True)}
        return self._call("value", real)(**arrays, **self.params)[self.of]

    def pull(self, args: Sequence[Any], seed: Any, real: Real) -> list[Array]:
        """The derivatives by `wrt` of the result weighted with `seed`, in the order of `wrt`."""
        arrays = {n: np.asarray(a) for n, a in zip(self.names, args, strict=True)}
        (name,) = added(self.program.inputs, self.derivative.inputs)
        out = self._call("derivative", real)(**arrays, **{name: np.asarray(seed)}, **self.params)
        return [out[n] for n in added(self.program.outputs, self.derivative.outputs)]

    def _call(self, what: str, real: Real) -> Compiled:
        key = (what, real)
        if key not in self._compiled:
            program = self.program if what == "value" else self.derivative
            self._compiled[key] = compile(program, self.engine, real=real, gather=self.gather)
        return self._compiled[key]
