# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""From the graph of a trace to statements on tensors.

A computation that only one other reads, once for each element, becomes a part of that one's expression; the others are
statements of their own.  A write goes into the tensor in place if nobody reads the old elements later on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from upl_mlir.diagnostics import Span
from upl_mlir.dialects.upl import UplType
from upl_mlir.frontend.tensor import form
from upl_mlir.frontend.tensor.wiring import unused
from upl_mlir.frontend.trace.node import (
    After,
    Chosen,
    Compute,
    Few,
    Fill,
    Gradient,
    Index,
    Last,
    Leaf,
    Loop,
    Node,
    Operand,
    Passed,
    Pick,
    Request,
    Scatter,
    Shape,
    Stacked,
    State,
    Update,
    places,
    whole,
)
from upl_mlir.frontend.trace.position import assigned_name, usable
from upl_mlir.frontend.upl_text.lexer import RESERVED
from upl_mlir.poly.expr import Formula, IndexExpr, Var

LIMIT = 40
"""An expression of more operations is cut into statements."""
FEW = 8
"""Computations of so many operations on indices are made wherever they are read. Chosen, not measured."""
MOST = 2**31
"""Positions are less than this: the machine's integers have 32 bits."""


@dataclass(frozen=True)
class Built:
    """A tensor program; under which tensors the arguments and constants come in (those that are needed)."""

    program: form.TensorProgram
    inputs: dict[Leaf, str]


def build(name: str, arguments: Sequence[Leaf], results: Sequence[Compute], type_: UplType) -> Built:
    """The program that computes `results`; its outputs are called ``out``, ``out_2``, …, in their order."""
    return _Builder(name, arguments, results, type_).run()


@dataclass
class _Context:
    """Where an expression stands: the ranges of its statement's indices grow with the sums that it contains."""

    ranges: dict[str, tuple[int, int]]
    sums: int = field(default=0)


class _Builder:
    def __init__(self, name: str, arguments: Sequence[Leaf], results: Sequence[Compute], type_: UplType):
        self.name, self.results, self.type = name, results, type_
        self.nodes = _needed(results)
        self.taken = {*RESERVED, "out"}
        self.names: dict[Node, str] = {}
        self.tensors: dict[str, form.Tensor] = {}
        self.statements: list[form.TensorStatement] = []
        self.arguments = arguments
        self.uses = Counter(o.node for n in self.nodes for o in _reads(n))
        # what is referred to by name, however late: it keeps its tensor to itself
        spoken = [n for n in self.nodes if isinstance(n, Gradient | Stacked | State | Passed | After | Chosen)]
        self.named = {o.node for n in spoken for o in n.operands} | {*results}
        self.kept = self.named | {n.old.node for n in self.nodes if isinstance(n, Update)}
        self.lines = self._lines()
        others = [n for n in self.nodes if not isinstance(n, Compute | Update)]
        self.arrays = {*self.kept, *(o.node for n in others for o in n.operands)}
        """Constants among these have to be arrays, whatever they hold."""
        self.inlined = self._choose()
        self.roots = self._statements_of()
        self.done: set[Request | Few] = set()
        self.after = {n.passed: n for n in self.nodes if isinstance(n, After)}

    def run(self) -> Built:
        inputs: dict[Leaf, str] = {}
        present = {n for n in self.nodes if isinstance(n, Leaf)}
        ordered = [a for a in self.arguments if a in present]
        ordered += sorted(present - {*ordered}, key=lambda n: n.number)
        for leaf in ordered:
            inputs[leaf] = self._tensor(leaf, usable(leaf.name))
        self.taken.discard("out")
        outputs = [self._tensor(r, "out") for r in self.results]
        for node in self.nodes:
            if node not in self.inlined:
                self._emit(node)
        for node in self.nodes:
            if isinstance(node, State):
                self._close(node)
        inputs = {leaf: n for leaf, n in inputs.items() if leaf not in self.lines or leaf in self.arrays}
        program = form.TensorProgram(
            self.name, self.type, self.tensors, tuple(inputs.values()), tuple(outputs), tuple(self.statements),
            self.results[0].span if self.results else None,
        )  # fmt: skip
        return Built(program, inputs)

    def _lines(self) -> dict[Node, tuple[int, int]]:
        """The constants that are affine functions of their index: factor and first value."""
        return {n: found for n in self.nodes if isinstance(n, Leaf) and (found := line(n.value))}

    # -- what becomes a statement ------------------------------------------------------------------------------------
    def _choose(self) -> set[Node]:
        """The computations that become parts of the expressions that read them."""
        inlined: set[Node] = set()
        sizes: dict[Node, int] = {}
        for n in self.nodes:
            size = 1
            if self._of_indices(n, inlined):
                sizes[n] = 1 + sum(sizes.get(o.node, 1) for o in n.operands)
                if sizes[n] <= FEW:
                    inlined.add(n)
                    continue
            own = n.shape if not isinstance(n, Update) else n.extents
            dims = [f"i{d}" for d, extent in enumerate(own) if extent > 1]
            dims += [f"r{d}" for d, extent in enumerate(n.over) if extent > 1] if isinstance(n, Compute) else []
            for o in _reads(n):
                m = o.node
                if isinstance(m, Fill):
                    inlined.add(m)
                    continue
                if m in inlined:
                    size += sizes[m]
                    continue
                once = isinstance(m, Compute) and self.uses[m] == 1 and m not in self.kept and m.loops == n.loops
                names = frozenset(name for e in o.index for name in e.names)
                if once and names.issuperset(dims) and size + sizes[m] <= LIMIT:
                    inlined.add(m)
                    size += sizes[m]
            sizes[n] = size
        return inlined

    def _of_indices(self, n: Node, inlined: Collection[Node]) -> bool:
        """Whether a computation follows from indices alone, or compares one with a number: it is made again wherever it is
        read."""
        if not isinstance(n, Compute) or n.over or n in self.kept:
            return False
        if n.boolean and len(n.reads) == 2 and sum(o.node in self.lines for o in n.reads) == 1:
            return all(o.node in self.lines or (o.node.loops == n.loops and not o.node.shape) for o in n.reads)
        free = all(isinstance(o.node, Fill) or o.node in self.lines or o.node in inlined for o in n.reads)
        return free and all(o.node not in inlined or o.node.loops == n.loops for o in n.reads)

    def _statements_of(self) -> dict[Node, list[Node]]:
        """For each node the statements in which it is read: the nodes that are not inlined."""
        root: dict[Node, Node] = {}
        readers: dict[Node, list[Node]] = {n: [] for n in self.nodes}
        for n in reversed(self.nodes):
            root.setdefault(n, n)
            for o in _reads(n):
                readers[o.node].append(root[n])
                if o.node in self.inlined:
                    root[o.node] = root[n]
        return readers

    # -- statements ----------------------------------------------------------------------------------------------------
    def _tensor(self, node: Node, wish: str | None = None) -> str:
        """A tensor for a node; loops around it are dimensions in front."""
        if node in self.names:
            return self.names[node]
        name = self.names[node] = unused(wish or assigned_name(node.span) or "v", self.taken)
        self.taken.add(name)
        extents = [loop.extent for loop in node.loops]
        if isinstance(node, State) and extents[-1] != form.ENDLESS:
            extents[-1:] = [extents[-1] + 1]
        self.tensors[name] = form.Tensor(name, (*extents, *node.shape), node.span)
        return name

    def _emit(self, node: Node) -> None:
        around, ranges = _around(node.loops)
        match node:
            case Compute():
                target = self._tensor(node)
                value = self._value(node, _Context(ranges), places(node.shape))
                if node.boolean:
                    value = form.Apply("?:", (value, form.Number(1), form.Number(0)), node.span)
                ranges |= _ranges(node.shape)
                self._assign(form.Statement(target, (*around, *places(node.shape)), value, ranges, node.span))
            case Update():
                self._update(node)
            case Chosen():
                self._by_data(node)
            case Gradient(request=request):
                self._derivatives(request)
            case State():
                self._open(node)
            case Passed():
                self._passed(node)
            case After(few=few) if few is not None and few not in self.done:
                self.done.add(few)
                self._few(node, few)
            case Last(state=state):
                self._rounds(node, state, IndexExpr.of(state.loops[-1].extent), places(node.shape))
            case Stacked(inner=inner):
                first, *rest = places(node.shape)
                self._rounds(node, inner, first, rest)
            case _:
                pass

    def _assign(self, statement: form.Statement) -> None:
        self.statements.append(statement)

    def _update(self, node: Update) -> None:
        around, ranges = _around(node.loops)
        old = node.old.node
        if self._in_place(node, old):
            self.names[node] = self.names[old]
        else:
            target = self._tensor(node)
            if not (isinstance(old, Fill) and old.value == 0):
                value = self._read(node.old, _Context({}))
                every = ranges | _ranges(node.shape)
                self._assign(form.Statement(target, (*around, *places(node.shape)), value, every, node.span))
        context = _Context(dict(ranges))
        value = self._read(node.value, context)
        context.ranges |= _ranges(node.extents)
        self._assign(form.Statement(self.names[node], (*around, *node.index), value, context.ranges, node.span))

    def _by_data(self, node: Chosen) -> None:
        """What numbers choose, along one axis of the larger array (the source, or what is made)."""
        large, small = (node.array, node) if isinstance(node, Pick) else (node, node.array)
        own = tuple(f"i{n}" for n in range(len(small.shape)))
        chosen = own[node.axis : node.axis + len(node.at.shape)]
        for n in (node.array, node.at):
            self._stored(n)
        at = self._element(Operand(node.at, tuple(map(IndexExpr.of, chosen))), node.span)
        index = (*(x.name for x in large.loops), *own[: node.axis], None, *own[node.axis + len(chosen) :])
        assert len(index) == len(large.loops) + len(large.shape)
        names = (*(x.name for x in node.loops), *own)
        target, ranges = self._tensor(node), _around(node.loops)[1] | _ranges(small.shape)
        if isinstance(node, Pick):
            self.statements.append(form.Pick(target, names, self.names[large], index, at, ranges, node.span, node.wraps))
        else:
            value = self._element(whole(small), node.span)
            assert isinstance(node, Scatter)
            self.statements.append(form.Scatter(target, value, at, index, names, ranges, node.span, node.wraps, node.op))

    def _stored(self, node: Node) -> None:
        """A tensor for an array of one number, of which elements are chosen."""
        if isinstance(node, Fill) and node not in self.names:
            index, value = places(node.shape), form.Number(node.value, node.span)
            self._assign(form.Statement(self._tensor(node), index, value, _ranges(node.shape), node.span))

    def _in_place(self, node: Update, old: Node) -> bool:
        """Whether the old elements are not needed after the write."""
        if old.loops != node.loops or not isinstance(old, Compute | Update | Leaf):
            return False
        if old in self.named:
            return False
        return all(r.number < node.number for r in self.roots[old] if r is not node)

    def _derivatives(self, request: Request) -> None:
        if request in self.done:
            return
        self.done.add(request)
        into: dict[Node, str] = {}
        for r in request.results:
            if r in self.uses:
                into[r.by.node] = self._tensor(r, f"d_{self.names[r.by.node]}")
        wrt = tuple(self.names[n] for n in into)
        of, span = self.names[request.of.node], request.results[0].span
        held = tuple(self.names[n] for n in _held(request, self.nodes))
        self.statements.append(form.Derivative(of, wrt, tuple(into.values()), held=held, span=span))

    # -- loops -----------------------------------------------------------------------------------------------------------
    def _open(self, node: State) -> None:
        self._carry(node, node.first, 0)

    def _close(self, node: State) -> None:
        if node.next is not None:
            self._carry(node, node.next, 1)

    def _carry(self, node: State, source: Operand, later: int) -> None:
        """Before the first round (0), or in the round after another (1)."""
        *outer, loop = node.loops
        inside = source.node.loops
        names = (*(x.name for x in node.loops), *(f"i{n}" for n in range(len(node.shape))))
        round_ = IndexExpr.of(loop.name)
        when = Formula.compare(round_, "==", 0) if later == 0 else Formula.compare(round_, ">=", 1)
        value = self._element(source, node.span)
        if later:
            before = tuple(e.substitute({loop.name: round_ - 1}) for e in value.index)
            value = form.Read(value.tensor, before, node.span)
        assert len(inside) <= len(outer) + 1
        self.statements.append(form.Carry(self._tensor(node), names, when, value, node.span))

    def _passed(self, node: Passed) -> None:
        """A state in a round that takes place, and after the loop."""
        state, holds = node.state, node.rounds.holds
        assert holds is not None
        names = (*(x.name for x in node.loops), *(f"i{n}" for n in range(len(node.shape))))
        after = self.after.get(node)
        target = self._tensor(node) if self.uses[node] > (after is not None) else None
        self.statements.append(form.Gate(
            target, None if after is None else self._tensor(after), names, node.rounds.name,
            self._element(whole(state), node.span), self._element(holds, node.span), self._element(state.first, node.span),
            _around(node.loops)[1] | _ranges(node.shape), node.span,
        ))  # fmt: skip

    def _few(self, node: After, few: Few) -> None:
        """A loop that is one node."""
        states = [n for n in self.nodes if isinstance(n, After) and n.few is few]
        targets = {n.at: self._tensor(n) for n in states}
        names = (*(x.name for x in node.loops), *(f"i{n}" for n in range(len(node.shape))))
        first = tuple(self._element(o, node.span) for o in few.first)
        self.statements.append(form.While(
            tuple(targets.get(n) for n in range(len(first))), names, first, few.condition, few.body,
            _around(node.loops)[1] | _ranges(node.shape), node.span,
        ))  # fmt: skip

    def _rounds(self, node: Node, inner: Node, which: IndexExpr, index: Sequence[IndexExpr]) -> None:
        """After a loop, what a node inside it is in the round `which`."""
        around, ranges = _around(node.loops)
        target = self._tensor(node)
        value = form.Read(self.names[inner], (*around, which, *index), node.span)
        every = ranges | _ranges(node.shape)
        self._assign(form.Statement(target, (*around, *places(node.shape)), value, every, node.span))

    # -- expressions -----------------------------------------------------------------------------------------------------
    def _read(self, o: Operand, context: _Context) -> form.Expr:
        """An operand as an expression over the indices in its `index`."""
        node = o.node
        if isinstance(node, Fill):
            return form.Number(node.value, node.span)
        if node in self.inlined:
            assert isinstance(node, Compute)
            return self._value(node, context, o.index)
        if node in self.lines:
            factor, first = self.lines[node]
            at = o.index[0] * factor + first
            if all(len(m) <= 1 and isinstance((*m, Var(""))[0], Var) for m, _ in at.terms):
                return form.Position(at, node.span)
            self.arrays.add(node)
        around = tuple(IndexExpr.of(loop.name) for loop in node.loops)
        read = form.Read(self.names[node], (*around, *o.index), node.span)
        return form.Apply("!=", (read, form.Number(0)), node.span) if getattr(node, "boolean", False) else read

    def _element(self, o: Operand, span: Span | None) -> form.Read:
        """The number that stands for an element of a node that has a statement of its own."""
        around = tuple(IndexExpr.of(loop.name) for loop in o.node.loops)
        return form.Read(self.names[o.node], (*around, *o.index), span)

    def _value(self, node: Compute, context: _Context, index: Index) -> form.Expr:
        """A computation at an element; `index` is over the statement's indices."""
        names: dict[str, IndexExpr | int | str] = {f"i{n}": e for n, e in enumerate(index)}
        over: list[str] = []
        for n, extent in enumerate(node.over):
            names[f"r{n}"] = bound = f"r{context.sums}"
            context.sums += 1
            context.ranges[bound] = (0, extent - 1)
            over.append(bound)
        parts = [
            self._read(Operand(o.node, tuple(e.substitute(names) for e in o.index)), context) for o in node.reads
        ]  # fmt: skip
        value = _located(node.make(*parts), node, {id(p) for p in parts})
        return form.Sum(tuple(over), value, node.span, node.gather) if over else value


def _needed(results: Sequence[Node], leaves: Collection[Node] = ()) -> list[Node]:
    """The nodes that the results depend on, in order of execution; what `leaves` depend on is left out."""
    found: set[Node] = set()
    todo = list(results)
    while todo:
        n = todo.pop()
        if n not in found:
            found.add(n)
            todo += [o.node for o in n.operands] if n not in leaves else []
    return sorted(found, key=lambda n: n.number)


def _reads(n: Node) -> list[Operand]:
    return [Operand(o.node, ()) for o in n.operands] if isinstance(n, Last | Stacked | After) else list(n.operands)


def line(value: Any) -> tuple[int, int] | None:
    """Factor and first value of a constant array of whole numbers that grows evenly."""
    if value is None or value.ndim != 1 or value.size < 2 or not np.all(np.isfinite(value)):
        return None
    first, factor = float(value[0]), float(value[1]) - float(value[0])
    whole = first.is_integer() and factor.is_integer() and max(abs(first), abs(float(value[-1]))) < MOST
    return (int(factor), int(first)) if whole and np.array_equal(value, first + factor * np.arange(value.size)) else None


def _held(request: Request, nodes: Iterable[Node]) -> list[State]:
    """What loops around a derivative carry from round to round, and its objective reads, and `wrt` has an influence on.

    A round's derivative is that of its own objective by its own `wrt`: what earlier rounds have left is a constant in it.
    Every path from one round to another enters such a state.
    """
    wrt, loops = {o.node for o in request.wrt}, request.of.node.loops
    states = [n for n in nodes if isinstance(n, State) and n.loops == loops[: len(n.loops)]]
    read = set(_needed([request.of.node], {*wrt, *states}))
    return [n for n in states if n in read and not wrt.isdisjoint(_needed([n]))]


def _ranges(shape: Shape) -> dict[str, tuple[int, int]]:
    return {f"i{n}": (0, extent - 1) for n, extent in enumerate(shape)}


def _around(loops: Sequence[Loop]) -> tuple[Index, dict[str, tuple[int, int]]]:
    """The indices of loops, and their ranges."""
    return tuple(IndexExpr.of(x.name) for x in loops), {x.name: (0, x.extent - 1) for x in loops}


def _located(e: form.Expr, node: Compute, operands: set[int]) -> form.Expr:
    """The expression with the node's position wherever it has none; `operands` have their own."""
    if id(e) in operands or not isinstance(e, form.Apply):
        return e
    return form.Apply(e.op, tuple(_located(a, node, operands) for a in e.args), e.span or node.span)
