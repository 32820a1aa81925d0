"""Host ports of a program as Python sees them: names, domains, and where the elements of their arrays lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import islpy as isl
import numpy as np
from numpy.typing import NDArray

from upl_mlir.dialects.upl import ArrayOp, InputOp, OutputOp, ProgramOp
from upl_mlir.dialects.upl.facts import Facts
from upl_mlir.dialects.upl.query import endpoints, first_index, poly_context

Array = NDArray[Any]


class Readable(Protocol):
    """What a view of a program needs of it."""

    def read(self) -> ProgramOp:
        """The program's operations, which are not to be changed."""
        ...

    def infer_domains(self) -> object:
        """Find out the domains of all ports.  Raises UplError."""
        ...

    @property
    def facts(self) -> Facts:
        """What is known of the program without its operations."""
        ...


@dataclass(frozen=True)
class PortView:
    """A host port of a program, seen from Python."""

    program: Readable
    name: str

    def __repr__(self) -> str:
        fields = f"<{','.join(self.fields)}>" if self.fields else ""
        return f"{self.name}{fields}: {self._op.dtype.data}"

    @property
    def _op(self) -> InputOp | OutputOp:
        op = endpoints(self.program.read())[self.name]
        assert isinstance(op, InputOp | OutputOp)
        return op

    def shape(self, /, **params: int) -> tuple[int, ...]:
        """Shape of the port's dense array for given parameters."""
        return self._layout(params).shape

    def origin(self, /, **params: int) -> tuple[int, ...]:
        """The index of the array's element 0: the lower bounds of the domain."""
        return self._layout(params).origin

    def slices(self, array: Array, field: str, /, **params: int) -> list[Array]:
        """A dense array of the port as a list along `field`, each element dense over its own box; see `upl.ragged`."""
        from upl_mlir.host.arrays import ragged

        return ragged(array, self._layout(params, {self.name: array}), field)

    def _layout(self, params: Mapping[str, int], arrays: Mapping[str, object] | None = None) -> Any:
        from upl_mlir.host.arrays import bind_parameters, make_port

        self.program.infer_domains()
        require_arrays(self.program.read())
        bound = bind_parameters(self.program.read(), arrays or {}, params, any_port=bool(arrays))
        return make_port(self._op, poly_context(self.program.read(), bound))

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the index fields."""
        facts = self.program.facts
        return {**facts.inputs, **facts.outputs}[self.name]

    @property
    def domain(self) -> isl.Set:
        """The domain as an isl set; parameters and constants are its parameters."""
        from upl_mlir.passes.analysis.relations import ProgramSets

        self.program.infer_domains()
        return ProgramSets(self.program.read(), directives=True).domain(self.name).isl

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of an element."""
        from upl_mlir.host.arrays import dtype_of

        return dtype_of(self._op.type)


def require_arrays(program: ProgramOp) -> None:
    """Raise UplError (UPL1513) if an array parameter has no values: sizes and engines need them."""
    for op in program.body.block.ops:
        if isinstance(op, ArrayOp):
            first_index(op)
