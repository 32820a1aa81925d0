"""What a traced Python function leaves behind: a graph of computations on whole arrays, in the order of execution.

A computation says what each element of its result is: element ``i0, i1, …``, with sums (or maxima, …) over ``r0, r1, …``.
Slices, transposes and the like are no computations; they are the index at which an operand is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import Span
from upl_mlir.dialects.upl import Gather
from upl_mlir.frontend.tensor import ENDLESS, Expr
from upl_mlir.frontend.trace.position import fail, here
from upl_mlir.poly.expr import IndexExpr

Shape = tuple[int, ...]
Index: TypeAlias = tuple[IndexExpr, ...]


@dataclass(eq=False)
class Loop:
    """A loop that is traced once: its index `name` runs over ``0 <= name < extent``."""

    name: str
    extent: int


@dataclass(eq=False)
class Phase(Loop):
    """A part of a loop that data end, which is traced once: its condition, or the body of a round that takes place."""

    rounds: Rounds
    body: bool


@dataclass(eq=False)
class Node:
    """An array; `number` orders the nodes of a trace, `loops` are those inside which it is computed, `span` is the place in
    the Python text."""

    number: int
    shape: Shape
    loops: tuple[Loop, ...]
    span: Span | None

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What it is computed from."""
        return ()


@dataclass(frozen=True)
class Operand:
    """A node as it is read: at element `index`, over the reader's ``i0, …, r0, …`` and the indices of loops."""

    node: Node
    index: Index


@dataclass(eq=False)
class Leaf(Node):
    """An argument (`value` is None) or a constant array of the Python program."""

    name: str
    value: NDArray[Any] | None = None


@dataclass(eq=False)
class Fill(Node):
    """An array whose elements are one number."""

    value: float


@dataclass(eq=False)
class Compute(Node):
    """``make`` of the operands at each element, folded by `gather` over indices ``r0, …`` of the extents `over`.

    A `boolean` one has truth values.
    """

    make: Callable[..., Expr]
    reads: tuple[Operand, ...]
    over: Shape = ()
    gather: Gather = Gather.SUM
    boolean: bool = False
    word: str = ""

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.reads


@dataclass(eq=False)
class Chosen(Node):
    """What the numbers `at` choose along `axis` of the larger array."""

    array: Node
    at: Node
    axis: int
    wraps: bool

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (whole(self.array), whole(self.at))


class Pick(Chosen):
    """The elements of `array` that are chosen: the numbers' shape stands in place of the axis."""


@dataclass(eq=False)
class Scatter(Chosen):
    """The elements of `array` at the places that are chosen, those of one place joined by `op`."""

    op: Gather = Gather.SUM


@dataclass(eq=False)
class Update(Node):
    """The array `old` with new values at elements `index`, over the ``i0, …`` of `value`'s shape."""

    old: Operand
    value: Operand
    index: Index
    extents: Shape
    boolean: bool = False

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (self.old, self.value)


@dataclass(eq=False)
class Request:
    """One derivative: of the number `of` by the arrays `wrt`."""

    of: Operand
    wrt: tuple[Operand, ...]
    results: list[Gradient] = field(default_factory=list["Gradient"])


@dataclass(eq=False)
class Gradient(Node):
    """The derivative by one of a request's arrays."""

    request: Request
    by: Operand

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (self.request.of, *self.request.wrt)


@dataclass(eq=False)
class State(Node):
    """An array that a loop carries, as it is at the start of a round: `first` before the first one, then `next`."""

    first: Operand
    next: Operand | None = None  # known once the body has been traced
    boolean: bool = False

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (self.first,) if self.next is None else (self.first, self.next)


@dataclass(eq=False)
class Passed(Node):
    """A state of a loop that data end, in a round that takes place."""

    state: State
    rounds: Rounds
    boolean: bool = False

    @property
    def operands(self) -> tuple[Operand, ...]:
        assert self.rounds.holds is not None, "the condition comes before the body"
        return (whole(self.state), self.rounds.holds, self.state.first)


@dataclass(eq=False)
class After(Node):
    """The state number `at` of a loop that data end, after the loop; `few` is the whole loop, where it is so small as to be
    one node."""

    passed: Passed
    at: int
    few: Few | None

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (whole(self.passed),) if self.few is None else self.few.first


@dataclass(eq=False)
class Few:
    """A loop of few operations on elements: `first` are its states before it, those that its user named and then those that
    come from outside; `condition` and `body` are expressions over them, as in `frontend.tensor.While`."""

    first: tuple[Operand, ...]
    condition: Expr
    body: tuple[Expr, ...]


@dataclass(eq=False)
class Rounds:
    """A loop that data end.  Inside it, what comes from outside is a state as well, which no round changes: so its elements
    arrive once in each round.

    `elements` is the shape of all states if each element has rounds of its own, else None: then `holds`, the condition, is
    one truth value for all.
    """

    name: str
    outer: tuple[Loop, ...]
    elements: Shape | None
    holds: Operand | None = None
    outside: dict[Operand, State] = field(default_factory=dict["Operand", "State"])
    passed: dict[State, Passed] = field(default_factory=dict["State", "Passed"])

    def __post_init__(self) -> None:
        self.test, self.body = (Phase(self.name, ENDLESS, self, body) for body in (False, True))

    def state(self, trace: Trace, first: Operand, shape: Shape) -> State:
        """A new state, as it is when the condition is asked for."""
        boolean = getattr(first.node, "boolean", False)
        return State(next(trace.numbers), shape, (*self.outer, self.test), here(), first, boolean=boolean)

    def passing(self, trace: Trace, state: State) -> Passed:
        """The same in a round that takes place."""
        if state not in self.passed:
            number, loops = next(trace.numbers), (*self.outer, self.body)
            self.passed[state] = Passed(number, state.shape, loops, state.span, state, self, boolean=state.boolean)
        return self.passed[state]

    def brought(self, trace: Trace, o: Operand, phase: Phase) -> Operand:
        """What comes from outside as it is read in a phase; where each element has its own rounds, at its place.

        Raises UplError (UPL1932) for what is read in one phase and was computed in the other.
        """
        first = whole(o.node) if self.elements is None else o
        shape = o.node.shape if self.elements is None else self.elements
        if first not in self.outside:
            self.outside[first] = self.state(trace, first, shape)
        state = self.outside[first]
        node = self.passing(trace, state) if phase.body else state
        return Operand(node, o.index if self.elements is None else places(shape))


@dataclass(eq=False)
class Last(Node):
    """An array that a loop carried, after the loop."""

    state: State

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (whole(self.state),)


@dataclass(eq=False)
class Stacked(Node):
    """The values that a node in the body of a loop has in all rounds, after the loop; rounds are the first dimension."""

    inner: Node

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (whole(self.inner),)


def places(shape: Shape) -> Index:
    """The indices ``i0, i1, …`` of an array's own elements."""
    return tuple(IndexExpr.of(f"i{n}") for n in range(len(shape)))


def reduced(shape: Shape) -> Index:
    """The indices ``r0, r1, …`` over which something is folded."""
    return tuple(IndexExpr.of(f"r{n}") for n in range(len(shape)))


def whole(node: Node) -> Operand:
    """A node read at the reader's own index."""
    return Operand(node, places(node.shape))


class Trace:
    """The run of a Python function that is being recorded."""

    def __init__(self, single: bool = False):
        self.single = single  # f32, not f64
        self.loops: tuple[Loop, ...] = ()
        self.arguments: list[Leaf] = []
        self.numbers = count()
        self.writes: list[tuple[Storage, Node]] = []  # what was written, and what it held before
        self.dropped: list[range] = []  # numbers of nodes from first, discarded passes through the bodies of loops
        self._constants: dict[int, tuple[Any, Leaf]] = {}

    def common(self) -> tuple[int, tuple[Loop, ...], Span | None]:
        """Number, loops and position of a new node; its shape goes between the first two."""
        return next(self.numbers), self.loops, here()

    def argument(self, name: str, shape: Shape, span: Span | None) -> Leaf:
        """A new argument of the program."""
        leaf = Leaf(next(self.numbers), shape, (), span, name)
        self.arguments.append(leaf)
        return leaf

    def constant(self, value: NDArray[Any]) -> Node:
        """An array of the Python program: one number where all elements are equal, else an input of the program."""
        number, loops, span = self.common()
        first = value.flat[0].item() if value.size else 0.0
        if value.size and np.isfinite(first) and (value == first).all() and not (first == 0 and np.signbit(value).any()):
            return Fill(number, value.shape, loops, span, float(first))
        key = id(value)
        if key not in self._constants:
            copy = np.array(value, dtype=np.float64, order="C")  # it may be changed later on
            self._constants[key] = value, Leaf(number, value.shape, (), span, "const", copy)
        _, leaf = self._constants[key]
        assert leaf.value is not None
        if not np.array_equal(value, leaf.value, equal_nan=True):  # changed since, in place
            leaf = Leaf(number, value.shape, (), span, "const", np.array(value, dtype=np.float64, order="C"))
            self._constants[key] = value, leaf
        return leaf

    def compute(
        self, shape: Shape, make: Callable[..., Expr], reads: Sequence[Operand], *, over: Shape = (),
        gather: Gather = Gather.SUM, **more: Any,
    ) -> Node:  # fmt: skip
        """A new computation; of nothing, if an extent is 0.  Raises UplError (UPL1931) for a maximum of nothing.

        In a loop that data end, what no state has a part in is computed before it.
        """
        loops = self._around(reads)
        reads = [self.brought(o, loops) for o in reads]
        number, _, span = self.common()
        if 0 not in (*shape, *over):
            return Compute(number, shape, loops, span, make, tuple(reads), over=over, gather=gather, **more)
        if gather in (Gather.MAX, Gather.MIN) and 0 not in shape:
            raise fail("UPL1931", f"the {gather.value} of no elements", help="slice so that something is left")
        return Fill(number, shape, loops, span, 1.0 if gather is Gather.PRODUCT else 0.0)


    def _around(self, reads: Sequence[Operand]) -> tuple[Loop, ...]:
        """The loops in which something that reads this has to be computed."""
        inside = {loop for o in reads if not isinstance(o.node, Fill) for loop in o.node.loops}
        names = {name for o in reads for e in o.index for name in e.names}
        for n, loop in enumerate(self.loops):
            if isinstance(loop, Phase) and not any(x in inside or x.name in names for x in self.loops[n:]):
                return self.loops[:n]
        return self.loops

    def brought(self, o: Operand, loops: tuple[Loop, ...]) -> Operand:
        """An operand as it is read inside loops: what comes from outside of one that data end, it has to carry."""
        for loop in loops:
            if isinstance(loop, Phase) and loop not in o.node.loops and not isinstance(o.node, Fill):
                o = loop.rounds.brought(self, o, loop)
        return o

    def standing(self, node: Node) -> Node:
        """A node as it is read inside the present loops, by what needs its elements to arrive in each round."""
        if isinstance(node, Fill) and any(isinstance(loop, Phase) for loop in self.loops):
            node = self.compute(node.shape, _same, [whole(node)], word="copy")
        return self.brought(whole(node), self.loops).node


def _same(e: Expr) -> Expr:
    return e


class Storage:
    """A variable array: what it holds changes when Python writes into it or into a view of it."""

    def __init__(self, trace: Trace, node: Node):
        self.trace, self.number, self.node = trace, next(trace.numbers), node

    def write(self, node: Node) -> None:
        """From now on it holds `node`."""
        self.trace.writes.append((self, self.node))
        self.node = node


_current: ContextVar[Trace | None] = ContextVar("trace", default=None)


class Recording:
    """A context in which a trace is the current one."""

    def __init__(self, trace: Trace):
        self.trace = trace

    def __enter__(self) -> Trace:
        self.token = _current.set(self.trace)
        return self.trace

    def __exit__(self, *_: object) -> None:
        _current.reset(self.token)


def recording() -> Trace | None:
    """The current trace, if a function is being traced."""
    return _current.get()


def current() -> Trace:
    """The current trace.  Raises UplError (UPL1935) where no function is being traced."""
    trace = _current.get()
    if trace is None:
        raise fail(
            "UPL1935", "a traced value is used after its function has returned",
            help="return it from the function: outside, only results are arrays with values",
        )  # fmt: skip
    return trace
