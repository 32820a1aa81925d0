"""The body of a process: what one instance computes, as operations of units with latencies, each at its stage.

Stage 0 of an instance is its own slot; a unit of latency n gives its result n stages later.  Everything happens as
late as the result allows, so that no value waits: what comes from a channel is read when it is needed.

A gather over iterators is a running sum: its instances are those of the node times the values of the iterators, and
each adds its summand to the sum so far.  The sum begins with -0.0, to which x is added as x for every x (IEEE
754-2019, 6.3); a summand that is left out is -0.0 for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import frexp

from xdsl.dialects import arith

from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl import Gather
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops.terms import Apply, Choice, Convert, Fold, Get, Number, Part, Term
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr
from upl_mlir.poly.linear import Cons


@dataclass(frozen=True, eq=False)
class Node:
    """A value of a body.  `kind` is "read", "constant", "select", "previous" (the running sum so far) or a unit's
    operation."""

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
"""What leaves every number as it is when it is added."""
MOST_PLACES = 24
"""Powers of two by which a shift multiplies: as many as a significand has bits."""
OPERATIONS: Mapping[type, str] = {arith.AddfOp: "add", arith.SubfOp: "sub", arith.MulfOp: "mul", arith.DivfOp: "div"}
LATENCY: Mapping[str, int] = {
    "add": 12, "sub": 12, "mul": 14, "div": 38, "by": 9, "up": 6, "down": 5, "select": 1, "neg": 0,
}  # fmt: skip
"""Registers of the units at their highest clock (`hw/circuit/units.py`); "by": division by a small integer; "up",
"down": multiplication by a power of two."""
GREATEST_ODD = 15
"""The odd part of a small integer is not greater (`hw/fp/by_constant.py`)."""


def latency(node: Node, units: Mapping[str, int]) -> int:
    """Stages from the operands to the result."""
    if node.kind in ("read", "constant", "previous"):
        return 0
    return units[node.kind.partition(" ")[0]]


@dataclass
class Builder:
    """Makes the nodes of a process of the pieces of its equation.

    `refuse` makes the error for what has no circuit yet; `always` says of a condition whether it holds at all
    instances;
    `first` holds at the first summand of a running sum.
    """

    refuse: Callable[[str], UplError]
    always: Callable[[Formula], bool]
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
        """An operation; by a constant that has a unit of its own it is that unit's."""
        if isinstance(op, arith.NegfOp):
            return self.node("neg", (self.term(args[0]),))
        kind = OPERATIONS.get(type(op))
        if kind is None:
            raise self.refuse(f"`{getattr(op, 'name', op)}`")
        if kind == "mul" and isinstance(args[0], Number):
            args = (args[1], args[0])  # the product is the same, of NaNs, too: there is one
        if kind in ("mul", "div") and isinstance(args[1], Number):
            special = self.by_constant(kind, args[0], float(args[1].value))
            if special is not None:
                return special
        return self.node(kind, tuple(map(self.term, args)))

    def by_constant(self, kind: str, arg: Term, constant: float) -> Node | None:
        """A product or quotient by a power of two, or a quotient by a small integer."""
        fraction, exponent = frexp(constant)
        if abs(fraction) == 0.5 and abs(exponent) <= MOST_PLACES:
            places = exponent - 1 if kind == "mul" else 1 - exponent
            node = self.term(arg)
            if places:
                node = self.node(f"up {places}" if places > 0 else f"down {-places}", (node,))
            return node if constant > 0 else self.node("neg", (node,))
        if kind == "div" and constant.is_integer() and 0 < abs(constant) < 1 << MOST_PLACES:
            n = abs(int(constant))
            if n // (n & -n) <= GREATEST_ODD:
                return self.node(f"by {int(constant)}", (self.term(arg),))
        return None

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
        part = next(iter(t.parts))
        self.total = self.node("add", (before, self.guarded(part)))
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
        return value if self.always(when) else self.node("select", (value, self.zero), when=(when, TRUE))

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
