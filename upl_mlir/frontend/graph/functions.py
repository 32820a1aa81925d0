"""Python functions over arrays as operations of a graph: layers, losses and optimisers of `upl_mlir.nn`, or one's own.

A function is traced once the shapes of its operands are known (`frontend/trace`); the statements that come of it become part
of the graph's program, and are differentiated with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from upl_mlir.diagnostics import error
from upl_mlir.frontend.graph.node import Node, Op, Shape
from upl_mlir.frontend.graph.ops import need_node
from upl_mlir.frontend.trace import Function, function, tree
from upl_mlir.frontend.trace.program import Traced


class Call:
    """One call of a function: with which trees of nodes, and how many arrays are expected."""

    def __init__(self, fun: Function, args: Sequence[Any], results: int):
        self.fun, self.args, self.results = fun, tuple(args), results
        self.name = getattr(fun, "__name__", "f").strip("<>")

    def traced(self, shapes: Sequence[Shape]) -> Traced:
        """The function's program for operands of these shapes.  Raises UplError (UPL1924, UPL193x)."""
        zeros = [np.broadcast_to(0.0, s) for s in shapes]  # shapes count, values do not
        found = self.fun.bind(tree.rebuilt(self.args, list(zeros)), {}).traced
        if len(found.outputs) != self.results:
            raise error(
                "UPL1924", f"`{self.name}` returns {len(found.outputs)} arrays, {self.results} expected",
                found.form.span, help=f"call_op(f, …, results={len(found.outputs)})",
            )  # fmt: skip
        return found


class Result(Op):
    """An array that a function returns; `const_attr` is the call and which array."""

    word = "call"

    def shape(self, node: Node, shapes: Sequence[Shape]) -> Shape:
        call, at = cast("tuple[Call, int]", node.const_attr)
        form = call.traced(shapes).form
        return form.tensors[form.outputs[at]].shape


_result = Result()


def call_op(f: Callable[..., Any], *args: Any, results: int = 1) -> Any:
    """The node of what ``f(*args)`` returns, where `args` are nodes, or tuples, lists and dicts of them; a list of nodes if
    `f` returns several arrays, in the order of the tree that it returns.

    Raises UplError: UPL1923 for what is no node; at `run` UPL1924 for another number of `results`, UPL193x for what cannot
    be traced.
    """
    operands = [leaf for _, leaf in tree.leaves(args)]
    for n in operands:
        need_node(_result, n)
    call = Call(f if isinstance(f, Function) else function(f), args, results)
    names = ",".join(n.name for n in operands)
    nodes = [Node(_result, operands, (call, at), f"{call.name}({names})") for at in range(results)]
    return nodes[0] if results == 1 else nodes
