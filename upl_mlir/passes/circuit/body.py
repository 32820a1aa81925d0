"""The body of a process: what one instance computes, as operations of units with latencies, each at its stage.

Stage 0 of an instance is its own slot; a unit of latency n gives its result n stages later.  Everything happens as late as
the result allows, so that no value waits: what comes from a channel is read when it is needed.

A gather over iterators is a running sum: its instances are those of the node times the values of the iterators, and each adds
its summand to the sum so far.  The sum begins with -0.0, to which x is added as x for every x (IEEE 754-2019, 6.3); a summand
that is left out is -0.0 for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith

from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl import Gather
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops.terms import Apply, Choice, Convert, Fold, Get, Number, Part, Term
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr
from upl_mlir.poly.linear import Cons


@dataclass(frozen=True, eq=False)
class Node:
    """A value of a body.  `kind` is "read", "constant", "select", "previous" (the running sum so far) or a unit's operation."""

    kind: str
    args: tuple[Node, ...] = ()
    array: str = ""
    index: tuple[IndexExpr, ...] = ()
    number: float = 0.0
    when: tuple[Formula, ...] = ()
    """Of a selection: the condition of each argument; the last one is taken without a test."""


@dataclass(eq=False)
class Body:
    """`result` is what an instance computes, `total` the running sum in it; `nodes` are all, arguments first."""

    result: Node
    nodes: list[Node]
    total: Node | None


NEGATIVE_ZERO = -0.0
OPERATIONS: Mapping[type, str] = {arith.AddfOp: "add", arith.SubfOp: "sub", arith.MulfOp: "mul"}
LATENCY: dict[str, int] = {"add": 12, "sub": 12, "mul": 15, "select": 1, "neg": 0}
"""Registers of the units (`hw/fp/pipelined.py`)."""


def latency(node: Node, units: Mapping[str, int]) -> int:
    """Stages from the operands to the result."""
    if node.kind in ("read", "constant", "previous"):
        return 0
    return units[node.kind.partition(" ")[0]]


@dataclass
class Builder:
    """Makes the nodes of a process of the pieces of its equation.

    `refuse` makes the error for what has no circuit yet; `first` holds at the first summand of a running sum.
    """

    refuse: Callable[[str], UplError]
    first: Formula = TRUE
    nodes: dict[object, Node] = field(default_factory=dict[object, Node])
    total: Node | None = None

    def node(self, kind: str, args: tuple[Node, ...] = (), **more: object) -> Node:
        """The node, the same one for the same arguments."""
        key = (kind, *map(id, args), *more.items(), str(more.get("number")))
        if key not in self.nodes:
            self.nodes[key] = Node(kind, args, **more)  # pyright: ignore[reportArgumentType]
        return self.nodes[key]

    def body(self, pieces: Sequence[tuple[Formula, Term]]) -> Body:
        """The body of the pieces of an equation, each with its condition."""
        found = [(when, self.term(term)) for when, term in pieces]
        result = self.select(found)
        return Body(result, _ordered(result), self.total)

    def select(self, cases: Sequence[tuple[Formula, Node]]) -> Node:
        """The first value whose condition holds; conditions of equal values are one."""
        merged: dict[Node, list[Formula]] = {}
        for when, value in cases:
            merged.setdefault(value, []).append(when)
        if len(merged) == 1:
            return next(iter(merged))
        return self.node("select", tuple(merged), when=tuple(Formula.any(w) for w in merged.values()))

    def term(self, t: Term) -> Node:
        """The node of a term."""
        if t.kind is not Kind.F32:
            raise self.refuse(f"a value of type {t.kind.value}")
        match t:
            case Number(_, value):
                return self.node("constant", number=float(value))
            case Get(_, array, index):
                return self.node("read", array=array, index=index)
            case Apply(_, op, args):
                return self.apply(op, args)
            case Choice(_, cases):
                return self.select([(formula(when), self.term(value)) for when, value in cases])
            case Fold():
                return self.fold(t)
            case Convert():
                raise self.refuse("a conversion between f32 and f64")
            case _:
                raise self.refuse("an index as a value")

    def apply(self, op: object, args: Sequence[Term]) -> Node:
        """An operation; one with a constant that has a unit of its own becomes that."""
        if isinstance(op, arith.NegfOp):
            return self.node("neg", (self.term(args[0]),))
        if isinstance(op, arith.DivfOp) and isinstance(args[1], Number):
            return self.node(f"div {args[1].value!r}", (self.term(args[0]),))
        kind = OPERATIONS.get(type(op))
        if kind is None:
            raise self.refuse(f"`{getattr(op, 'name', op)}`")
        return self.node(kind, tuple(map(self.term, args)))

    def fold(self, t: Fold) -> Node:
        """A gather: its summands one after the other, or a running sum."""
        if t.gather is not Gather.SUM:
            raise self.refuse(f"@({t.gather.value})")
        if t.count is not None:
            raise self.refuse("a gather that may have no summand")
        if not any(p.dims for p in t.parts):
            return self.chain(t.parts)
        if self.total is not None or len(t.parts) > 1:
            raise self.refuse("more than one gather of many summands")
        before = self.node("select", (self.zero, self.node("previous")), when=(self.first, TRUE))
        self.total = self.node("add", (before, self.guarded(t.parts[0])))
        return self.total

    @property
    def zero(self) -> Node:
        """What leaves every summand as it is."""
        return self.node("constant", number=NEGATIVE_ZERO)

    def guarded(self, part: Part) -> Node:
        """The summand of a part, -0.0 where it is left out."""
        when = formula(part.cons)
        if part.guards:
            when = when & Formula.any(map(formula, part.guards))
        value = self.term(part.body)
        return value if when.is_true else self.node("select", (value, self.zero), when=(when, TRUE))

    def chain(self, parts: Sequence[Part]) -> Node:
        """A sum of a few summands, in their order."""
        out = self.guarded(parts[0])
        for p in parts[1:]:
            out = self.node("add", (out, self.guarded(p)))
        return out


def formula(cons: Cons) -> Formula:
    """Constraints as a formula."""
    return Formula.all(Formula.compare(c.e, "==" if c.eq else ">=", 0) for c in cons)


def _ordered(result: Node) -> list[Node]:
    """All nodes, arguments first."""
    out: dict[Node, None] = {}
    stack = [(result, False)]
    while stack:
        node, ready = stack.pop()
        if node in out:
            continue
        if ready:
            out[node] = None
        else:
            stack.append((node, True))
            stack += [(a, False) for a in reversed(node.args)]
    return list(out)
