"""A graph of nodes as a tensor program, once the shapes of what is fed are known."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import UplType
from upl_mlir.frontend.graph.backward import Gradient, Request, ordered
from upl_mlir.frontend.graph.branches import Loop, State, while_statement
from upl_mlir.frontend.graph.functions import Call, Result
from upl_mlir.frontend.graph.node import Node, Reader, Shape
from upl_mlir.frontend.graph.ops import Elementwise, ReduceSum, Transpose, indices, ranges
from upl_mlir.frontend.graph.text import meaning
from upl_mlir.frontend.tensor import Derivative, Read, Statement, Tensor, TensorProgram, TensorStatement, renamed
from upl_mlir.frontend.tensor.wiring import unused

LIMIT = 20
"""An expression of more operations is cut into statements."""


@dataclass(frozen=True)
class Built:
    """A tensor program, and under what name each node stands in it."""

    program: TensorProgram
    names: dict[Node, str]
    constants: dict[str, NDArray[Any]]
    """What further inputs are fed with: arrays that functions in the graph read from outside."""


def build(results: Sequence[Node], shapes: Mapping[Node, Shape]) -> Built:
    """The program that computes the nodes `results` from its inputs, the nodes in `shapes`, whose shapes these are.

    Raises UplError: UPL1921 for shapes that do not fit, UPL1924 for an operation that does not fit.
    """
    return _Builder(results, shapes).run()


class _Builder:
    def __init__(self, results: Sequence[Node], shapes: Mapping[Node, Shape]):
        self.results = results
        self.nodes = ordered(results, shapes)
        self.shapes: dict[Node, Shape] = dict(shapes)
        self.inputs = frozenset(shapes)
        self.names: dict[Node, str] = {}
        self.tensors: dict[str, Tensor] = {}
        self.statements: list[TensorStatement] = []
        self.loops: dict[Loop, list[str]] = {}  # the tensors of the states
        self.calls: dict[Call, list[str]] = {}  # the tensors of functions' results
        self.constants: dict[str, NDArray[Any]] = {}
        self.sizes: dict[Node, int] = {}  # of the nodes that are parts of others: their operations
        self.reader = _only_readers(self.nodes, results, self.inputs)

    def run(self) -> Built:
        inputs: list[str] = []
        for n in self.nodes:
            self._shape(n)
        for n in self.nodes:
            if n in self.inputs:
                inputs.append(self._tensor(n, n.name))
            elif isinstance(n.op, Gradient):
                if n not in self.names:
                    self._gradients(n.const_attr)
            elif isinstance(n.op, State):
                self._state(n)
            elif isinstance(n.op, Result):
                self._result(n)
            else:
                operands = [self.shapes[m] for m in n.inputs]
                op = meaning(n)
                if self._is_part(n):
                    continue
                target = self._tensor(n, op.word.partition(" ")[0])
                self.statements.append(op.statement(n, target, [self._reader(m) for m in n.inputs], operands))
        outputs = tuple(dict.fromkeys(self.names[n] for n in self.results))
        program = TensorProgram(
            "graph", UplType.REAL, self.tensors, (*inputs, *self.constants), outputs, tuple(self.statements)
        )  # fmt: skip
        return Built(program, self.names, self.constants)

    def _shape(self, n: Node) -> None:
        """Find the shape of a node; those of its operands are known."""
        if n in self.inputs:
            return
        if n.op.upl is not None and len(n.inputs) != len(n.op.operands):
            what = f"`{n.name}` has {len(n.inputs)} operands, the operation {len(n.op.operands)}"
            raise error("UPL1924", what, help=f"they are {', '.join(n.op.operands)}")
        self.shapes[n] = meaning(n).shape(n, [self.shapes[m] for m in n.inputs])

    def _state(self, n: Node) -> None:
        """A state of a loop; the first one that is met computes them all."""
        loop, at = n.const_attr
        if loop not in self.loops:
            shapes = [self.shapes[m] for m in n.inputs]
            self.loops[loop] = [self._named(self.shapes[n], s.name) for s in loop.states]
            reads = [self._reader(m) for m in n.inputs]
            self.statements.append(while_statement(loop, n, self.loops[loop], reads, shapes))
        self.names[n] = self.loops[loop][at]

    def _result(self, n: Node) -> None:
        """A result of a function; the first one that is met brings the statements of the function's program."""
        call, at = n.const_attr
        if call not in self.calls:
            traced = call.traced([self.shapes[m] for m in n.inputs])
            form = traced.form
            names = {name: self.names[m] for m, (_, name) in zip(n.inputs, traced.arguments, strict=True) if name}
            for name, value in traced.constants.items():
                names[name] = self._named(value.shape, name)
                self.constants[names[name]] = value
            written = {s.target for s in form.statements if isinstance(s, Statement)}
            for name, t in form.tensors.items():
                given = names.get(name)
                if given is None or name in written:  # others read the operand, too: the function writes into a copy
                    names[name] = self._named(t.shape, call.name if name in form.outputs else name)
                if given is not None and name in written:
                    index = indices(t.shape)
                    self.statements.append(Statement(names[name], index, Read(given, index), ranges(t.shape)))
            for s in form.statements:
                self.statements.append(renamed(s, names))
            self.calls[call] = [names[t] for t in form.outputs]
        self.names[n] = self.calls[call][at]

    def _is_part(self, n: Node) -> bool:
        """Whether the node is computed inside the one statement that reads it, element by element."""
        inner = sum(self.sizes.get(m, 0) for m in n.inputs)
        reader = self.reader.get(n)
        if not isinstance(meaning(n), Elementwise) or n.op.leads or reader is None or inner >= LIMIT:
            return False
        others = [self.shapes.get(m) for m in reader.inputs if m is not n]
        if isinstance(meaning(reader), Elementwise):
            fits = all(s is not None and _broadcasts(s, self.shapes[n]) for s in others)
        else:
            fits = isinstance(reader.op, ReduceSum | Transpose)
        if fits:
            self.sizes[n] = inner + 1
        return fits

    def _reader(self, node: Node) -> Reader:
        """How a statement reads the elements of a node."""
        if node not in self.sizes:
            return lambda index: Read(self.names[node], index)
        op = meaning(node)
        assert isinstance(op, Elementwise)
        reads, shapes = [self._reader(m) for m in node.inputs], [self.shapes[m] for m in node.inputs]
        return lambda index: op.element(node, index, reads, shapes)

    def _tensor(self, node: Node, wish: str) -> str:
        """A tensor for a node."""
        name = self.names[node] = self._named(self.shapes[node], wish)
        return name

    def _named(self, shape: Shape, wish: str) -> str:
        """A tensor, under a name of letters, digits and `_`."""
        stem = re.sub(r"\W+", "_", wish).strip("_") or "x"
        name = unused(stem if not stem[0].isdigit() else f"x{stem}", self.tensors)
        self.tensors[name] = Tensor(name, shape)
        return name

    def _gradients(self, request: Request) -> None:
        """All derivatives of one request that are needed."""
        wanted = [n for n in self.nodes if isinstance(n.op, Gradient) and n.const_attr is request]
        by: dict[Node, list[Node]] = {}  # the gradient nodes for each node of `wrt`
        for n in wanted:
            by.setdefault(n.inputs[1], []).append(n)
        for x, nodes in by.items():
            name = self._tensor(nodes[0], f"d_{self.names[x]}")
            self.names |= dict.fromkeys(nodes, name)
        seed = request.seed
        if seed is not None and self.shapes[seed] != self.shapes[request.of]:
            word = type(request.by.op).__name__ if request.by is not None else ""
            raise error(
                "UPL1924", f"`gradient` of the operation `{word}` returned a derivative of shape {self.shapes[seed]} for "
                f"`{request.of.name}`, whose shape is {self.shapes[request.of]}",
                help="sum over the axes along which the operand was broadcast",
            )  # fmt: skip
        wrt = tuple(self.names[x] for x in by)
        into = tuple(self.names[nodes[0]] for nodes in by.values())
        self.statements.append(
            Derivative(self.names[request.of], wrt, into, total=True, seed=None if seed is None else self.names[seed])
        )


def _broadcasts(shape: Shape, to: Shape) -> bool:
    """Whether an array of the one shape can stand beside one of the other, which stays as it is."""
    tail = to[len(to) - len(shape) :]
    return len(shape) <= len(to) and all(m in (1, n) for m, n in zip(shape, tail, strict=True))


def _only_readers(nodes: Sequence[Node], results: Sequence[Node], inputs: Collection[Node]) -> dict[Node, Node]:
    """The node that reads a node, where it is the only one, reads it once, and nobody refers to the node by name."""
    inner = [n for n in nodes if n not in inputs]
    reads = Counter(m for n in inner for m in n.inputs)
    asked = [n.const_attr for n in inner if isinstance(n.op, Gradient)]
    named = {*results, *(m for request in asked for m in (*request.given, *request.wrt))}
    return {m: n for n in inner for m in n.inputs if reads[m] == 1 and m not in named}
