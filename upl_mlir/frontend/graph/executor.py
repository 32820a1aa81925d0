"""Running a graph: feed arrays, get arrays.  The program for each combination of shapes is made once.

Operations with a Python `compute` cut the graph into stages: the operands of the first ones are computed by a program, the
functions are called, and their values are inputs of the next program, as what is fed is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.api.fastest import fastest
from upl_mlir.api.program import WithSources
from upl_mlir.api.programs import Compiled, Program
from upl_mlir.diagnostics import UplError, did_you_mean, error
from upl_mlir.frontend.graph.backward import ordered
from upl_mlir.frontend.graph.build import Built, build
from upl_mlir.frontend.graph.node import Node, PlaceholderOp, Shape
from upl_mlir.frontend.graph.ops import Print
from upl_mlir.frontend.graph.text import sources_of
from upl_mlir.frontend.tensor import lower
from upl_mlir.frontend.tensor.lower import output_name

Array = NDArray[np.float64]


@dataclass
class _Stage:
    """A program's `results` from `inputs` (placeholders and values of called operations), and what is `called` then."""

    results: list[Node]
    inputs: list[Node]
    called: list[Node]
    shown: list[Node]  # of the results: those that are printed
    built: dict[tuple[Shape, ...], tuple[Built, Program, Compiled]] = field(
        default_factory=dict[tuple[Shape, ...], tuple[Built, Program, Compiled]]
    )


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
        order = ordered(self.eval_node_list)
        self.inputs = [n for n in order if isinstance(n.op, PlaceholderOp)]
        self._texts = sources_of({type(n.op).__name__: n.op.upl for n in order if n.op.upl is not None})
        self._stages = _stages(self.eval_node_list, order)

    def run(self, feed_dict: Mapping[Node | str, Any]) -> list[Array]:
        """The values of the nodes, in order; placeholders are fed by node or by name.

        Raises UplError (UPL1921 for shapes, UPL1922 for what is fed, UPL1924 for an operation that does not fit).
        """
        values = dict(self._fed(feed_dict))
        for stage in self._stages:
            self._run(stage, values)
        return [values[n].copy() if n in self.inputs else values[n] for n in self.eval_node_list]

    def program(self, feed_dict: Mapping[Node | str, Any]) -> Program:
        """The UPL program that `run` would use for values of these shapes; where Python operations are called, the last
        one."""
        values = dict(self._fed(feed_dict))
        *before, last = self._stages
        for stage in before:
            self._run(stage, values, show=False)
        return self._for(last, values)[1]

    def _run(self, stage: _Stage, values: dict[Node, Array], *, show: bool = True) -> None:
        """Compute a stage's results, print what is to be printed, call what is called."""
        if stage.results:
            built, _, run = self._for(stage, values)
            out = run(**{built.names[n]: values[n] for n in stage.inputs}, **built.constants)
            for n in stage.results:
                values[n] = out[output_name(built.program, built.names[n])]
        for n in stage.shown if show else ():
            assert isinstance(n.op, Print)
            n.op.seen(n, values[n])
        for n in stage.called:
            found = n.op.compute(n, [values[m] for m in n.inputs])
            values[n] = _array(found, f"what `compute` of `{n.name}` returned", "UPL1924")

    def _for(self, stage: _Stage, values: Mapping[Node, Array]) -> tuple[Built, Program, Compiled]:
        shapes = tuple(values[n].shape for n in stage.inputs)
        if shapes not in stage.built:
            with WithSources(self._texts):
                built = build(stage.results, dict(zip(stage.inputs, shapes, strict=True)))
                program = Program(lower(built.program), self._texts).expanded()
            stage.built[shapes] = built, program, fastest(program, self.engine)
        return stage.built[shapes]

    def _fed(self, feed_dict: Mapping[Node | str, Any]) -> dict[Node, Array]:
        """What is fed for each placeholder that the nodes need, as f64 arrays."""
        fed: dict[Node, Any] = {}
        for key, value in feed_dict.items():
            n = self._named(key) if isinstance(key, str) else key
            if not isinstance(n, Node) or not isinstance(n.op, PlaceholderOp):
                names = [m.name for m in self.inputs]
                help = did_you_mean(str(n), names) if str(n) not in names else None
                raise error(
                    "UPL1922", f"`{n}` is no placeholder: nothing can be fed for it",
                    help=help or "only variables and placeholders are fed",
                )  # fmt: skip
            if n in fed:
                raise error("UPL1922", f"`{n.name}` is fed twice, by node and by name")
            fed[n] = value
        out: dict[Node, Array] = {}
        for n in self.inputs:
            if n not in fed:
                raise error("UPL1922", f"nothing is fed for `{n.name}`", help="add it to feed_dict")
            out[n] = _array(fed[n], f"what is fed for `{n.name}`", "UPL1922")
        return out

    def _named(self, name: str) -> Node:
        """The placeholder of that name."""
        found = [n for n in self.inputs if n.name == name]
        if len(found) > 1:
            raise error("UPL1922", f"{len(found)} placeholders are called `{name}`", help="feed them by node")
        if not found:
            names = [n.name for n in self.inputs]
            help = did_you_mean(name, names) or f"they are {', '.join(f'`{n}`' for n in names)}"
            raise error("UPL1922", f"there is no placeholder `{name}`", help=help)
        return found[0]


def _stages(nodes: Sequence[Node], order: Sequence[Node]) -> list[_Stage]:
    """Which programs run, and which Python functions are called between them."""
    level: dict[Node, int] = {}  # how many calls come before, one after the other
    for n in order:
        level[n] = max((level[m] + m.op.called for m in n.inputs), default=0)
    known = {n for n in order if isinstance(n.op, PlaceholderOp) or n.op.called}
    depth = max((level[n] + n.op.called for n in nodes), default=0)
    out: list[_Stage] = []
    shown: set[Node] = set()
    for at in range(depth + 1):
        called = [n for n in order if n.op.called and level[n] == at]
        wanted = nodes if at == depth else [m for n in called for m in n.inputs]
        results = [n for n in dict.fromkeys(wanted) if n not in known]
        inside = ordered(results, known)
        prints = [n for n in inside if isinstance(n.op, Print) and n not in shown]
        shown |= set(prints)
        results += [n for n in prints if n not in results]
        out.append(_Stage(results, [n for n in inside if n in known], called, prints))
    return out


def _array(value: Any, what: str, code: str) -> Array:
    """A value from outside as an f64 array."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"it holds {array.dtype}")
    except UplError:
        raise
    except (TypeError, ValueError) as e:
        raise error(code, f"{what} is no array of numbers: {e}") from None
    if 0 in array.shape:
        raise error(code, f"{what} is empty: its shape is {array.shape}")
    return np.ascontiguousarray(array, dtype=np.float64).reshape(array.shape)
