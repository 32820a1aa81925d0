"""A graph of nodes as a tensor program, once the shapes of what is fed are known."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from upl_mlir.dialects.upl import UplType
from upl_mlir.frontend.graph.node import Node, PlaceholderOp, Reader, Shape
from upl_mlir.frontend.graph.ops import Elementwise, Gradient, ReduceSum, Request, Transpose
from upl_mlir.frontend.tensor import Derivative, Read, Statement, Tensor, TensorProgram
from upl_mlir.frontend.tensor.wiring import unused

LIMIT = 20
"""An expression of more operations is cut into statements."""


def placeholders(nodes: Sequence[Node]) -> list[Node]:
    """The placeholders that the nodes depend on, each once."""
    return [n for n in ordered(nodes) if isinstance(n.op, PlaceholderOp)]


def ordered(nodes: Sequence[Node]) -> list[Node]:
    """The nodes and all that they depend on, operands first."""
    needed: set[Node] = set()
    todo = list(nodes)
    while todo:
        n = todo.pop()
        if n not in needed:
            needed.add(n)
            todo += n.inputs
    joint: dict[Request, list[Node]] = {}  # the derivatives of one request are computed together
    for n in needed:
        if isinstance(n.op, Gradient):
            joint.setdefault(n.const_attr, []).append(n)
    out: dict[Node, None] = {}
    stack = [(n, False) for n in reversed(nodes)]
    while stack:
        n, done = stack.pop()
        if done:
            out[n] = None
        elif n not in out:
            operands = n.inputs
            if isinstance(n.op, Gradient):
                wanted = {m.inputs[1] for m in joint[n.const_attr]}
                operands = [n.inputs[0], *(x for x in n.const_attr.wrt if x in wanted)]
            stack.append((n, True))
            stack += [(m, False) for m in reversed(operands) if m not in out]
    return list(out)


@dataclass(frozen=True)
class Built:
    """A tensor program, and under what name each node stands in it."""

    program: TensorProgram
    names: dict[Node, str]


def build(results: Sequence[Node], shapes: Mapping[Node, Shape]) -> Built:
    """The program that computes the nodes `results`; `shapes` has the shape of every placeholder.

    Raises UplError (UPL1921) for shapes that do not fit.
    """
    return _Builder(results, shapes).run()


class _Builder:
    def __init__(self, results: Sequence[Node], shapes: Mapping[Node, Shape]):
        self.results = results
        self.nodes = ordered(results)
        self.shapes: dict[Node, Shape] = dict(shapes)
        self.names: dict[Node, str] = {}
        self.tensors: dict[str, Tensor] = {}
        self.statements: list[Statement | Derivative] = []
        self.sizes: dict[Node, int] = {}  # of the nodes that are parts of others: their operations
        self.reader = _only_readers(self.nodes, results)

    def run(self) -> Built:
        inputs: list[str] = []
        for n in self.nodes:
            if isinstance(n.op, PlaceholderOp):
                inputs.append(self._tensor(n, n.name))
            elif isinstance(n.op, Gradient):
                if n not in self.names:
                    self._gradients(n.const_attr)
            else:
                operands = [self.shapes[m] for m in n.inputs]
                self.shapes[n] = n.op.shape(n, operands)
                if self._is_part(n):
                    continue
                target = self._tensor(n, n.op.word.partition(" ")[0])
                self.statements.append(n.op.statement(n, target, [self._reader(m) for m in n.inputs], operands))
        outputs = tuple(dict.fromkeys(self.names[n] for n in self.results))
        program = TensorProgram(
            "graph", UplType.REAL, self.tensors, tuple(inputs), outputs, tuple(self.statements)
        )  # fmt: skip
        return Built(program, self.names)

    def _is_part(self, n: Node) -> bool:
        """Whether the node is computed inside the one statement that reads it, element by element."""
        inner = sum(self.sizes.get(m, 0) for m in n.inputs)
        reader = self.reader.get(n)
        if not isinstance(n.op, Elementwise) or reader is None or inner >= LIMIT:
            return False
        others = [self.shapes.get(m) for m in reader.inputs if m is not n]
        if isinstance(reader.op, Elementwise):
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
        assert isinstance(node.op, Elementwise)
        op, reads, shapes = node.op, [self._reader(m) for m in node.inputs], [self.shapes[m] for m in node.inputs]
        return lambda index: op.element(node, index, reads, shapes)

    def _tensor(self, node: Node, wish: str) -> str:
        """A tensor for a node, under a name of letters, digits and `_`."""
        stem = re.sub(r"\W+", "_", wish).strip("_") or "x"
        stem = stem if not stem[0].isdigit() else f"x{stem}"
        name = self.names[node] = unused(stem, self.tensors)
        self.tensors[name] = Tensor(name, self.shapes[node])
        return name

    def _gradients(self, request: Request) -> None:
        """All derivatives of one request that are needed."""
        wanted = [n for n in self.nodes if isinstance(n.op, Gradient) and n.const_attr is request]
        by: dict[Node, list[Node]] = {}  # the gradient nodes for each node of `wrt`
        for n in wanted:
            self.shapes[n] = self.shapes[n.inputs[1]]
            by.setdefault(n.inputs[1], []).append(n)
        for x, nodes in by.items():
            name = self._tensor(nodes[0], f"d_{self.names[x]}")
            self.names |= dict.fromkeys(nodes, name)
        wrt = tuple(self.names[x] for x in by)
        into = tuple(self.names[nodes[0]] for nodes in by.values())
        self.statements.append(Derivative(self.names[request.of], wrt, into, total=True))


def _broadcasts(shape: Shape, to: Shape) -> bool:
    """Whether an array of the one shape can stand beside one of the other, which stays as it is."""
    tail = to[len(to) - len(shape) :]
    return len(shape) <= len(to) and all(m in (1, n) for m, n in zip(shape, tail, strict=True))


def _only_readers(nodes: Sequence[Node], results: Sequence[Node]) -> dict[Node, Node]:
    """The node that reads a node, where it is the only one, reads it once, and nobody refers to the node by name."""
    reads = Counter(m for n in nodes for m in n.inputs)
    named = {*results, *(m for n in nodes if isinstance(n.op, Gradient) for m in (n.const_attr.of, *n.const_attr.wrt))}
    return {m: n for n in nodes for m in n.inputs if reads[m] == 1 and m not in named}
