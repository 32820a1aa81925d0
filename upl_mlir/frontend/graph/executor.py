"""Running a graph: feed arrays, get arrays.  The program for each combination of shapes is made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.api.fastest import fastest
from upl_mlir.api.programs import Compiled, Program
from upl_mlir.diagnostics import did_you_mean, error
from upl_mlir.frontend.graph.build import Built, build, placeholders
from upl_mlir.frontend.graph.node import Node, PlaceholderOp, Shape
from upl_mlir.frontend.tensor import lower
from upl_mlir.frontend.tensor.lower import output_name

Array = NDArray[np.float64]


class Executor:
    """Evaluates nodes.  Values are f64; whole numbers stay exact.

    `engine` is one of those of `upl.compile`; without it, the fastest that takes the program (`upl_mlir.api.fastest`).
    """

    def __init__(self, eval_node_list: Sequence[Node], engine: str | None = None):
        for n in eval_node_list:
            if not isinstance(n, Node):
                raise error("UPL1923", f"Executor: expected nodes, found {type(n).__name__}")
        self.eval_node_list = list(eval_node_list)
        self.engine = engine
        self.inputs = placeholders(self.eval_node_list)
        self._built: dict[tuple[Shape, ...], tuple[Built, Program, Compiled]] = {}

    def run(self, feed_dict: Mapping[Node, Any]) -> list[Array]:
        """The values of the nodes, in order.  Raises UplError (UPL1921 for shapes, UPL1922 for what is fed)."""
        fed = self._fed(feed_dict)
        computed = [n for n in self.eval_node_list if n not in fed]
        out: dict[str, Any] = {}
        built: Built | None = None
        if computed:
            built, _, run = self._for(tuple(fed[n].shape for n in self.inputs))
            out = run(**{built.names[n]: fed[n] for n in self.inputs})
        values: list[Array] = []
        for n in self.eval_node_list:
            if n in fed:
                values.append(fed[n].copy())
            else:
                assert built is not None
                values.append(out[output_name(built.program, built.names[n])])
        return values

    def program(self, feed_dict: Mapping[Node, Any]) -> Program:
        """The UPL program that `run` would use for values of these shapes."""
        fed = self._fed(feed_dict)
        return self._for(tuple(fed[n].shape for n in self.inputs))[1]

    def _for(self, shapes: tuple[Shape, ...]) -> tuple[Built, Program, Compiled]:
        if shapes not in self._built:
            computed = [n for n in self.eval_node_list if not isinstance(n.op, PlaceholderOp)]
            built = build(computed, dict(zip(self.inputs, shapes, strict=True)))
            program = Program(lower(built.program)).expanded()
            self._built[shapes] = built, program, fastest(program, self.engine)
        return self._built[shapes]

    def _fed(self, feed_dict: Mapping[Node, Any]) -> dict[Node, Array]:
        """What is fed for each placeholder that the nodes need, as f64 arrays."""
        for n in feed_dict:
            if not isinstance(n, Node) or not isinstance(n.op, PlaceholderOp):
                names = [m.name for m in self.inputs]
                help = did_you_mean(str(n), names) or "only variables and placeholders are fed"
                raise error("UPL1922", f"`{n}` is no placeholder: nothing can be fed for it", help=help)
        out: dict[Node, Array] = {}
        for n in self.inputs:
            if n not in feed_dict:
                raise error("UPL1922", f"nothing is fed for `{n.name}`", help="add it to feed_dict")
            out[n] = _array(n, feed_dict[n])
        return out


def _array(node: Node, value: Any) -> Array:
    """A fed value as an f64 array."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"it holds {array.dtype}")
    except (TypeError, ValueError) as e:
        raise error("UPL1922", f"what is fed for `{node.name}` is no array of numbers: {e}") from None
    if 0 in array.shape:
        raise error("UPL1922", f"what is fed for `{node.name}` is empty: its shape is {array.shape}")
    return np.ascontiguousarray(array, dtype=np.float64).reshape(array.shape)
