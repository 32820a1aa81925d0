"""The body of a process: what one instance computes, as operations of units with latencies, each at its stage.

Stage 0 of an instance is its own slot; a unit of latency n gives its result n stages later.  Everything happens as
late as the result allows, so that no value waits: what comes from a channel is read when it is needed.

A gather over iterators is a running sum: its instances are those of the node times the values of the iterators, and
each adds its summand to the sum so far; a greatest, a least, and a product run in the same way.  The sum begins with
-0.0, to which x is added as x for every x (IEEE 754-2019, 6.3), the others with 1 and the infinities; a summand that is
left out is that number for the same reason.

Values are reals of one type (`Numbers`), truth values of one bit, or integers of 32 bits.  An operation on integers is there
only if no result can need more bits: the program's integers have 64 (`Builder.ranges`).
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
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr, Var
from upl_mlir.poly.linear import Cons

REAL, TRUTH, INTEGER = 0, 1, 32
"""The bits of values; of a real, as many as its type has (`Numbers.width`)."""
LEAVES = ("read", "constant", "previous", "index")
"""Nodes that are no operations of units."""


@dataclass(frozen=True, eq=False)
class Node:
    """A value of a body.  `kind` is "read", "constant", "select", "previous" (the running sum so far), "index" (an index
    expression as an integer: the only one of `index`) or a unit's operation; "sum" and "product" are those of `fuse.py`."""

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
    arith.AddiOp: "int_add", arith.SubiOp: "int_sub", arith.MuliOp: "int_mul", arith.MinSIOp: "int_min",
    arith.MaxSIOp: "int_max", arith.ExtUIOp: "int",
}  # fmt: skip
"""Operations that are the same in a body; "real", "int": a truth value as 0 or 1."""
INTEGER_TESTS = ("==", "!=", "<", "<=", ">", ">=")
"""Comparisons of integers, as `arith.cmpi` counts them."""
Range = tuple[int, int]
"""The least and the greatest value of an integer."""
INTEGER_ARITHMETIC = ("int_add", "int_sub", "int_mul", "int_min", "int_max")
"""Operations on two integers."""
BITS = {Kind.BOOL: TRUTH, Kind.INT: INTEGER}
"""The bits of values that are no reals."""
WORDS: Range = (-(1 << INTEGER - 1), (1 << INTEGER - 1) - 1)
"""The integers of words."""
LONG = 64
"""The bits of an integer on its way to a comparison, if 32 may be too few."""


def latency(node: Node, units: Mapping[str, int]) -> int:
    """Stages from the operands to the result."""
    if node.kind in LEAVES:
        return 0
    return units[node.kind.partition(" ")[0]]


@dataclass
class Builder:
    """Makes the nodes of a process of the pieces of its equation.

    `refuse` makes the error for what has no circuit yet; `always` says of a condition whether it holds at all
    instances, `extent` between which values an index expression is; `first` holds at the first summand of a running sum,
    which has `most` at most.
    """

    numbers: Numbers
    refuse: Callable[[str], UplError]
    always: Callable[[Formula], bool]
    extent: Callable[[IndexExpr], Range]
    first: Formula = TRUE
    most: int = 1
    nodes: dict[object, Node] = field(default_factory=dict[object, Node])
    total: Node | None = None
    folds: dict[Fold, Node] = field(default_factory=dict[Fold, Node])
    ranges: dict[Node, Range] = field(default_factory=dict[Node, Range])
    """Of integers."""

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
        node = self.node("select", tuple(merged), when=tuple(Formula.any(w) for w in merged.values()), bits=bits)
        return self.within(node, *merged)

    def term(self, t: Term) -> Node:
        """The node of a term, a real, an integer that fits a word, or a truth value."""
        node = self.long(t)
        if node.bits == LONG:
            raise self.too_large(self.range(node))
        return node

    def long(self, t: Term) -> Node:
        """The node of a term; an integer may need more bits than a word has."""
        if t.kind not in (self.numbers.kind, Kind.BOOL, Kind.INT):
            raise self.refuse(f"a value of type {t.kind.value}")
        if t.kind is Kind.INT and self.numbers.width < INTEGER:
            raise self.refuse(f"an integer beside {self.numbers.kind.value}, whose words have {self.numbers.width} bits,")
        match t:
            case Number(Kind.BOOL, value):
                return self.truth(bool(value))
            case Number(Kind.INT, value):
                return self.integer(int(value))
            case Number(kind, value):
                return self.node("constant", number=kind.nearest(float(value)))
            case Get(kind, array, index):
                return self.node("read", array=array, index=index, bits=BITS.get(kind, REAL))
            case IndexValue(e):
                return self.counted(e)
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

    def integer(self, value: int) -> Node:
        """An integer that is known."""
        node = self.node("constant", number=float(value), bits=INTEGER)
        return self.ranged(node, (value, value))

    def counted(self, e: IndexExpr) -> Node:
        """An index expression as a value, which follows the counters."""
        if any(len(m) > 1 or not all(isinstance(a, Var) for a in m) for m, _ in e.terms):
            raise self.refuse(f"`{e}`, which is not affine, as a value")
        return self.ranged(self.node("index", index=(e,), bits=INTEGER), self.extent(e))

    def ranged(self, node: Node, range_: Range) -> Node:
        """An integer between these values; refused if it may not fit a word."""
        if range_[0] < WORDS[0] or range_[1] > WORDS[1]:
            raise self.too_large(range_)
        self.ranges[node] = range_
        return node

    def too_large(self, range_: Range) -> UplError:
        """The error for an integer that a word may have no room for."""
        what = f"an integer that may be between {range_[0]} and {range_[1]}, and does not fit {INTEGER} bits,"
        return self.refuse(what)

    def range(self, node: Node) -> Range:
        """Between which values an integer is."""
        return self.ranges.get(node, WORDS)

    def within(self, node: Node, *values: Node) -> Node:
        """One of some values, integers or not."""
        if node.bits == INTEGER:
            found = [self.range(v) for v in values]
            return self.ranged(node, (min(low for low, _ in found), max(high for _, high in found)))
        return node

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
        if kind in INTEGER_ARITHMETIC:
            return self.computed(kind, *map(self.long, args))
        nodes = tuple(map(self.term, args))
        if kind == "mul" and nodes[0].kind == "real":
            nodes = (nodes[1], nodes[0])
        if kind == "mul" and nodes[1].kind == "real" and self.numbers.kind.nearest(1.0) == 1:
            return self.node("mask", (nodes[0], *nodes[1].args))
        if kind == "xor" and nodes[1].kind == "constant":
            return self.node("not", nodes[:1], bits=TRUTH) if nodes[1].number else nodes[0]
        node = self.node(kind, nodes, bits=BITS.get(t.kind, REAL))
        return self.ranged(node, (0, 1)) if kind == "int" else node

    def computed(self, kind: str, a: Node, b: Node) -> Node:
        """An operation on two integers, of as many bits as its result needs."""
        (low, high), (least, most) = self.range(a), self.range(b)
        products = [x * y for x in (low, high) for y in (least, most)]
        if kind == "int_mul" and low < high and least < most:
            raise self.refuse("a product of two integers")
        range_ = {
            "int_mul": (min(products), max(products)),
            "int_add": (low + least, high + most), "int_sub": (low - most, high - least),
            "int_min": (min(low, least), min(high, most)), "int_max": (max(low, least), max(high, most)),
        }[kind]  # fmt: skip
        bits = max(a.bits, b.bits, INTEGER if WORDS[0] <= range_[0] and range_[1] <= WORDS[1] else LONG)
        node = self.node(f"{kind} {bits}", (a, b), bits=bits)
        self.ranges[node] = range_
        if max(-range_[0], range_[1] + 1) > 1 << LONG - 1:
            raise self.too_large(range_)
        return node

    def joins(self, kind: str, a: Node, b: Node) -> Node:
        """Two summands of a gather as one."""
        return self.computed(kind, a, b) if kind in INTEGER_ARITHMETIC else self.node(kind, (a, b), bits=a.bits)

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
            args = self.long(a), self.long(b)
            kind = f"int_compare {INTEGER_TESTS[predicate]} {max(n.bits for n in args)}"
            return self.node(kind, args, bits=TRUTH)
        differ = self.node("xor", tuple(self.term(t.args[0]) for t in (a, b) if isinstance(t, Apply)), bits=TRUTH)
        return differ if predicate else self.node("not", (differ,), bits=TRUTH)

    def choose(self, condition: Node, yes: Node, no: Node) -> Node:
        """One of two values by a truth value; a selection, if that is known for each instance."""
        if condition.kind == "select" and all(a.kind == "constant" for a in condition.args):
            return self.select([(when, yes if a.number else no)
                                for when, a in zip(condition.when, condition.args, strict=True)])  # fmt: skip
        kind = "choose bit" if yes.bits == TRUTH else "choose"
        return self.within(self.node(kind, (condition, yes, no), bits=yes.bits), yes, no)

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
        joins = {Kind.BOOL: t.gather.truth, Kind.INT: t.gather.integer}.get(t.kind, t.gather.real)
        assert joins is not None
        if joins is arith.MuliOp:
            raise self.refuse("a gather of products of integers")
        kind, bits = OPERATIONS[joins], BITS.get(t.kind, REAL)
        neutral, empty = self.neutral(t)
        if kind == "mul" and neutral.number != 1:
            raise self.refuse(f"a gather of products of {self.numbers.kind.value}, which has no 1,")
        many = [n for n, p in enumerate(t.parts) if p.dims]
        if not many:
            out = self.chain(kind, t.parts, neutral)
        else:
            if self.total is not None or len(many) > 1:
                raise self.refuse("more than one gather of many summands")
            begins = self.chain(kind, t.parts[: many[0]], neutral) if many[0] else neutral
            summand = self.guarded(t.parts[many[0]], neutral)
            before = self.node("select", (begins, self.node("previous", bits=bits)), when=(self.first, TRUE), bits=bits)
            if bits == INTEGER:
                self.ranged(before, self.of_many(kind, begins, summand))
            self.total = self.joins(kind, before, summand)
            out = self.joined(kind, self.total, t.parts[many[0] + 1 :], neutral)
        if t.count is None or empty is neutral:
            return out
        if t.kind is Kind.INT and not t.gather.rounds:
            raise self.refuse(f"a gather `{t.gather.value}` of integers that may have no summands")
        return self.select([(Formula.compare(t.count, ">=", 1), out), (TRUE, empty)])

    def neutral(self, t: Fold) -> tuple[Node, Node]:
        """What leaves every summand as it is, and the value of no summands."""
        if t.kind is Kind.INT:
            return self.integer(t.gather.empty_integer(*WORDS)), self.integer(t.gather.empty_integer(*WORDS))
        found = (float(t.gather.neutral), float(t.gather.empty))
        if t.kind is not Kind.BOOL:
            found = tuple(map(self.numbers.kind.nearest, found))
        neutral, empty = (self.node("constant", number=x, bits=BITS.get(t.kind, REAL)) for x in found)
        return neutral, empty

    def of_many(self, kind: str, begins: Node, summand: Node) -> Range:
        """Between which values a running gather of integers is, before its last summand."""
        (a, b), (c, d) = self.range(begins), self.range(summand)
        if kind == "int_add":
            return a + (self.most - 1) * min(c, 0), b + (self.most - 1) * max(d, 0)
        return min(a, c), max(b, d)

    def guarded(self, part: Part, neutral: Node) -> Node:
        """The summand of a part; where it is left out, what leaves every other summand as it is."""
        when = formula(part.cons)
        if part.guards:
            when = when & Formula.any(map(formula, part.guards))
        value = self.term(part.body)
        if self.always(when):
            return value
        return self.within(self.node("select", (value, neutral), when=(when, TRUE), bits=neutral.bits), value, neutral)

    def chain(self, kind: str, parts: Sequence[Part], neutral: Node) -> Node:
        """A few summands, in their order."""
        return self.joined(kind, self.guarded(parts[0], neutral), parts[1:], neutral)

    def joined(self, kind: str, before: Node, parts: Sequence[Part], neutral: Node) -> Node:
        """A value, and a few summands behind it."""
        for p in parts:
            before = self.joins(kind, before, self.guarded(p, neutral))
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
