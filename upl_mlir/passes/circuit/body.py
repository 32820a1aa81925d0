"""The body of a process: what one instance computes, as operations of units with latencies, each at its stage.

Stage 0 of an instance is its own slot; a unit of latency n gives its result n stages later.  Everything happens as
late as the result allows, so that no value waits: what comes from a channel is read when it is needed.

A gather over iterators is a running sum: its instances are those of the node times the values of the iterators, and
each adds its summand to the sum so far; a greatest, a least, and a product run in the same way.  The sum begins with
-0.0, to which x is added as x for every x (IEEE 754-2019, 6.3), the others with 1 and the infinities; a summand that is
left out is that number for the same reason.

Values are reals of one type (`Numbers`), or truth values of one bit.  Integers are there only on the way from a truth value
or a literal to a real.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, math
from xdsl.dialects.arith import CMPF_COMPARISON_OPERATIONS
from xdsl.ir import Operation

from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl import SigmoidOp
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.circuit.numbers import Numbers
from upl_mlir.passes.loops.terms import Apply, Choice, Convert, Fold, Get, IndexValue, Number, Part, Term
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr
from upl_mlir.poly.linear import Cons

REAL, TRUTH = 0, 1
"""The bits of values; of a real, as many as its type has (`Numbers.width`)."""


@dataclass(frozen=True, eq=False)
class Node:
    """A value of a body.  `kind` is "read", "constant", "select", "previous" (the running sum so far) or a unit's
    operation; "sum" and "product" are those of `fuse.py`."""

    kind: str
    args: tuple[Node, ...] = ()
    array: str = ""
    index: tuple[IndexExpr, ...] = ()
    number: float = 0.0
    when: tuple[Formula, ...] = ()
    """Of a selection: the condition of each argument; the last one is taken without a test.  Of a sum: its first
    summand."""
    bits: int = REAL


@dataclass(eq=False)
class Body:
    """`result` is what an instance computes, `total` the running sum in it; `nodes` are all, arguments first."""

    result: Node
    nodes: list[Node]
    total: Node | None


OPERATIONS: Mapping[type[Operation], str] = {
    arith.AddfOp: "add", arith.SubfOp: "sub", arith.MulfOp: "mul", arith.DivfOp: "div", arith.NegfOp: "neg",
    arith.MinimumfOp: "min", arith.MaximumfOp: "max", math.AbsFOp: "abs",
    arith.AndIOp: "and", arith.OrIOp: "or", arith.XOrIOp: "xor", arith.UIToFPOp: "real",
    math.SqrtOp: "sqrt", math.ExpOp: "exp", math.LogOp: "log", math.TanhOp: "tanh", SigmoidOp: "sigmoid",
    math.SinOp: "sin", math.CosOp: "cos",
}  # fmt: skip
"""Operations that are the same in a body; "real": a truth value as 0 or 1."""
INTEGER_TESTS = ("==", "!=", "<", "<=", ">", ">=")
"""Comparisons of integers, as `arith.cmpi` counts them."""


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

    numbers: Numbers
    refuse: Callable[[str], UplError]
    always: Callable[[Formula], bool]
    first: Formula = TRUE
    nodes: dict[object, Node] = field(default_factory=dict[object, Node])
    total: Node | None = None
    folds: dict[Fold, Node] = field(default_factory=dict[Fold, Node])

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
        return Body(result, ordered(result), self.total)

    def select(self, cases: Sequence[tuple[Formula, Node]]) -> Node:
        """The first value whose condition holds; conditions of equal values are one."""
        merged: dict[Node, list[Formula]] = {}
        for when, value in cases:
            merged.setdefault(value, []).append(when)
            if self.always(when):
                break
        if len(merged) == 1:
            return next(iter(merged))
        bits = next(iter(merged)).bits
        return self.node("select", tuple(merged), when=tuple(Formula.any(w) for w in merged.values()), bits=bits)

    def term(self, t: Term) -> Node:
        """The node of a term, a real or a truth value."""
        if t.kind not in (self.numbers.kind, Kind.BOOL):
            raise self.refuse(f"a value of type {t.kind.value}")
        match t:
            case Number(Kind.BOOL, value):
                return self.truth(bool(value))
            case Number(kind, value):
                return self.node("constant", number=kind.nearest(float(value)))
            case Get(Kind.BOOL):
                raise self.refuse("a truth value of an array")
            case Get(_, array, index):
                return self.node("read", array=array, index=index)
            case Apply():
                return self.apply(t)
            case Choice(_, cases):
                return self.select([(formula(when), self.term(value)) for when, value in cases])
            case Fold():
                return self.fold(t)
            case Convert():
                raise self.refuse("a conversion between types of reals")
            case _:
                raise self.refuse("an index as a value")

    def truth(self, value: bool) -> Node:
        """A truth value that is known."""
        return self.node("constant", number=float(value), bits=TRUTH)

    def apply(self, t: Apply) -> Node:
        """An operation; by a constant that has a unit of its own it is that unit's."""
        op, args = t.op, t.args
        match op:
            case arith.CmpfOp():
                predicate = CMPF_COMPARISON_OPERATIONS[op.predicate.value.data]
                if predicate in ("false", "true"):
                    return self.truth(predicate == "true")
                return self.node(f"compare {predicate}", tuple(map(self.term, args)), bits=TRUTH)
            case arith.CmpiOp():
                return self.compare(op.predicate.value.data, *args)
            case arith.SelectOp():
                return self.choose(self.term(args[0]), self.term(args[1]), self.term(args[2]))
            case arith.SIToFPOp():
                return self.real(args[0])
            case math.PowFOp() if isinstance(args[1], Number) and args[1].value == 2:
                return self.node("mul", (self.term(args[0]),) * 2)  # rounded once, as the interpreter does
            case _:
                pass
        kind = OPERATIONS.get(type(op))
        if kind is None or kind not in self.numbers.latency:
            raise self.refuse(f"`{op.name}`" if kind is None else f"`{op.name}` of {self.numbers.kind.value}")
        if kind == "mul" and isinstance(args[0], Number):
            args = (args[1], args[0])  # the product is the same, of NaNs, too: there is one
        if kind in ("mul", "div") and isinstance(args[1], Number):
            special = self.by_constant(kind, args[0], self.numbers.kind.nearest(float(args[1].value)))
            if special is not None:
                return special
        nodes = tuple(map(self.term, args))
        if kind == "mul" and nodes[0].kind == "real":
            nodes = (nodes[1], nodes[0])
        if kind == "mul" and nodes[1].kind == "real" and self.numbers.kind.nearest(1.0) == 1:
            return self.node("mask", (nodes[0], *nodes[1].args))
        if kind == "xor" and nodes[1].kind == "constant":
            return self.node("not", nodes[:1], bits=TRUTH) if nodes[1].number else nodes[0]
        return self.node(kind, nodes, bits=TRUTH if t.kind is Kind.BOOL else REAL)

    def compare(self, predicate: int, a: Term, b: Term) -> Node:
        """A comparison of integers: of indices, which is known for each instance, or of truth values that are equal or
        not."""
        if predicate >= len(INTEGER_TESTS):
            raise self.refuse("a comparison of integers without sign")
        indices = [t.e if isinstance(t, IndexValue) else int(t.value) if isinstance(t, Number) else None for t in (a, b)]
        left, right = indices
        if left is not None and right is not None:
            when = Formula.compare(left, INTEGER_TESTS[predicate], right)
            return self.select([(when, self.truth(True)), (TRUE, self.truth(False))])
        if predicate > 1 or not all(isinstance(t, Apply) and isinstance(t.op, arith.ExtUIOp) for t in (a, b)):
            raise self.refuse("a comparison of integers")
        differ = self.node("xor", tuple(self.term(t.args[0]) for t in (a, b) if isinstance(t, Apply)), bits=TRUTH)
        return differ if predicate else self.node("not", (differ,), bits=TRUTH)

    def choose(self, condition: Node, yes: Node, no: Node) -> Node:
        """One of two values by a truth value; a selection, if that is known for each instance."""
        if condition.kind == "select" and all(a.kind == "constant" for a in condition.args):
            return self.select([(when, yes if a.number else no)
                                for when, a in zip(condition.when, condition.args, strict=True)])  # fmt: skip
        return self.node("choose" if yes.bits == REAL else "choose bit", (condition, yes, no), bits=yes.bits)

    def real(self, t: Term) -> Node:
        """An integer as a real: what is made of truth values and literals."""
        match t:
            case Number(_, value):
                return self.node("constant", number=self.numbers.kind.nearest(float(value)))
            case Apply(_, arith.ExtUIOp(), (arg,)):
                return self.node("real", (self.term(arg),))
            case Apply(_, arith.SelectOp(), (condition, yes, no)):
                return self.choose(self.term(condition), self.real(yes), self.real(no))
            case IndexValue():
                raise self.refuse("an index as a value")
            case _:
                raise self.refuse("a value of type int")

    def by_constant(self, kind: str, arg: Term, constant: float) -> Node | None:
        """A product or quotient by a constant that has a unit of its own."""
        operation = self.numbers.constant(kind, constant)
        if operation is None:
            return None
        node = self.term(arg)
        negative = constant < 0 and not operation.startswith("by")
        first = negative and operation.startswith("up") and self.numbers.fixed is not None
        if first:  # a saturated number is not the negative of the other one
            node = self.node("neg", (node,))
        if operation:
            node = self.node(operation, (node,))
        return self.node("neg", (node,)) if negative and not first else node

    def fold(self, t: Fold) -> Node:
        """A gather: its summands one after the other, those of an arrow that sends many by a running sum."""
        if t not in self.folds:
            self.folds[t] = self.folded(t)
        return self.folds[t]

    def folded(self, t: Fold) -> Node:
        """The node of a gather that was not met before."""
        joins = t.gather.truth if t.kind is Kind.BOOL else t.gather.real
        assert joins is not None
        kind = OPERATIONS[joins]
        bits = TRUTH if t.kind is Kind.BOOL else REAL
        number = float(t.gather.neutral)
        if bits != TRUTH:
            number = self.numbers.kind.nearest(number)
        if kind == "mul" and number != 1:
            raise self.refuse(f"a gather of products of {self.numbers.kind.value}, which has no 1,")
        neutral = self.node("constant", number=number, bits=bits)
        many = [n for n, p in enumerate(t.parts) if p.dims]
        if not many:
            out = self.chain(kind, t.parts, neutral)
        else:
            if self.total is not None or len(many) > 1:
                raise self.refuse("more than one gather of many summands")
            if bits == TRUTH:
                raise self.refuse("a gather of many truth values")
            begins = self.chain(kind, t.parts[: many[0]], neutral) if many[0] else neutral
            before = self.node("select", (begins, self.node("previous")), when=(self.first, TRUE))
            self.total = self.node(kind, (before, self.guarded(t.parts[many[0]], neutral)))
            out = self.joined(kind, self.total, t.parts[many[0] + 1 :], neutral)
        value = float(t.gather.empty)
        empty = self.node("constant", number=value if bits == TRUTH else self.numbers.kind.nearest(value), bits=bits)
        if t.count is None or empty is neutral:
            return out
        return self.select([(Formula.compare(t.count, ">=", 1), out), (TRUE, empty)])

    def guarded(self, part: Part, neutral: Node) -> Node:
        """The summand of a part; where it is left out, what leaves every other summand as it is."""
        when = formula(part.cons)
        if part.guards:
            when = when & Formula.any(map(formula, part.guards))
        value = self.term(part.body)
        return value if self.always(when) else self.node("select", (value, neutral), when=(when, TRUE), bits=neutral.bits)

    def chain(self, kind: str, parts: Sequence[Part], neutral: Node) -> Node:
        """A few summands, in their order."""
        return self.joined(kind, self.guarded(parts[0], neutral), parts[1:], neutral)

    def joined(self, kind: str, before: Node, parts: Sequence[Part], neutral: Node) -> Node:
        """A value, and a few summands behind it."""
        for p in parts:
            before = self.node(kind, (before, self.guarded(p, neutral)), bits=neutral.bits)
        return before


def formula(cons: Cons) -> Formula:
    """Constraints as a formula."""
    return Formula.all(Formula.compare(c.e, "==" if c.eq else ">=", 0) for c in cons)


def ordered(result: Node) -> list[Node]:
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
