"""Values of bodies as UPL expressions, with as few parentheses and conversions as reading them back needs.

Texts are made bottom up, one for each operation in block order.  Conversions that `to_ir` puts in by itself are left
out: `ranks.py` says which.  A value that several others use gets a name, so that the text does not grow exponentially.
"""

from __future__ import annotations

import math as pymath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise, product

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Operation, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import AlongOp, LetOp, LookupOp, ModOp, RefOp, StopGradientOp
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.frontend.upl_text.ranks import Rank, arithmetic, power, rank_of, real_valued
from upl_mlir.numbers.floats import as_single
from upl_mlir.ops import BY_OP

MAX_DEPTH, MAX_NESTING = 150, 30
"""Expressions with more operators or brackets inside one another are broken up."""


class Strength(IntEnum):
    """How strongly an expression's outermost operator binds."""

    ANY = 0  # ?:
    OR = 1
    AND = 2
    COMPARISON = 3
    SUM = 4
    DIVISION = 5  # `floordiv` and its like: as strong as a product, but in parentheses where it is a factor
    PRODUCT = 6
    UNARY = 7
    POWER = 8
    ATOM = 9


@dataclass(frozen=True)
class Text:
    """An expression: its text, how it binds, its type when read back; `count`: a non-negative integer literal."""

    text: str
    strength: Strength
    rank: Rank
    count: bool = False
    depth: int = 0

    def at(self, needed: Strength, *, right: bool = False) -> str:
        """The text where only operators of at least that strength may stand; `right`: after another operator."""
        if self.strength < needed or (right and self.text.startswith("-")):
            return f"({self.text})"
        return self.text


_BINARY: dict[str, tuple[str, Strength]] = {
    arith.AddfOp.name: (" + ", Strength.SUM), arith.AddiOp.name: (" + ", Strength.SUM),
    arith.SubfOp.name: (" - ", Strength.SUM), arith.SubiOp.name: (" - ", Strength.SUM),
    arith.MulfOp.name: ("*", Strength.PRODUCT), arith.MuliOp.name: ("*", Strength.PRODUCT),
    arith.DivfOp.name: ("/", Strength.PRODUCT), arith.FloorDivSIOp.name: (" floordiv ", Strength.DIVISION),
    arith.CeilDivSIOp.name: (" ceildiv ", Strength.DIVISION), ModOp.name: (" mod ", Strength.DIVISION),
}  # fmt: skip
_EXTREMA = {
    arith.MinSIOp.name: "min", arith.MinimumfOp.name: "min", arith.MaxSIOp.name: "max", arith.MaximumfOp.name: "max",
}  # fmt: skip
_ABS = {math.AbsFOp.name, math.AbsIOp.name}
_INT_TESTS = ("==", "!=", "<", "<=", ">", ">=")  # by the predicate's number; the unsigned ones serve truth values
_FLOAT_TESTS = {1: "==", 2: ">", 3: ">=", 4: "<", 5: "<=", 13: "!="}
_NEGATED_TESTS = {9: "<=", 10: "<", 11: ">=", 12: ">"}  # unordered or …: not the opposite
_WIDENING = (arith.SIToFPOp, arith.UIToFPOp, arith.ExtUIOp, arith.ExtFOp)

Rule = Callable[[Sequence[Text]], Rank]


def _arithmetic(texts: Sequence[Text]) -> Rank:
    return arithmetic(*[t.rank for t in texts])


def _real_valued(texts: Sequence[Text]) -> Rank:
    return real_valued(*[t.rank for t in texts])


def _widest(texts: Sequence[Text]) -> Rank:
    return max(t.rank for t in texts)


def _power(texts: Sequence[Text]) -> Rank:
    return power(texts[0].rank, texts[1].rank, literal=texts[1].count)


@dataclass(frozen=True)
class Chain:
    """``a < b <= c``: operands, each with whether it is written exactly; tests; the last operand that serves two."""

    operands: list[tuple[SSAValue, bool]]
    tests: list[str]
    shared: SSAValue

    @property
    def is_crooked(self) -> bool:
        """Whether the tests do not all lead one way; a person writes that with `&&`."""
        return not any(set(self.tests) <= way for way in ({"<", "<="}, {">", ">="}, {"=="}))


class ValuePrinter:
    """Texts of values; `define` must have seen an operation before its results are asked for."""

    def __init__(self) -> None:
        self.texts: dict[SSAValue, Text] = {}
        self.named: set[SSAValue] = set()

    def name(self, value: SSAValue, name: str) -> None:
        """From now on the value is written as a name."""
        self.texts[value] = Text(name, Strength.ATOM, rank_of(value.type))
        self.named.add(value)

    def define(self, op: Operation) -> None:
        """Make the text of an operation's result.  Raises UplError (UPL1113) if UPL has no text for it."""
        if len(op.results) != 1:
            raise _no_text(op)
        text = self._text(op)
        depth = 1 + max((self.texts[v].depth for v in op.operands), default=0)
        self.texts[op.results[0]] = Text(text.text, text.strength, rank_of(op.results[0].type), text.count, depth)

    def exact(self, value: SSAValue) -> Text:
        """The text that reads back as a value of the same type."""
        return self.texts[value]

    def bare(self, value: SSAValue, *, narrow: bool = False) -> Text:
        """The text without an outermost conversion to a wider type (`narrow`: of any that a token undergoes)."""
        if value in self.named or not isinstance(value.owner, Operation):
            return self.texts[value]
        op = value.owner
        if isinstance(op, _WIDENING) or (narrow and isinstance(op, arith.TruncFOp)):
            return self.texts[op.operands[0]]
        if isinstance(op, arith.ConstantOp) and isinstance(op.value, FloatAttr):
            number = op.value.value.data
            if _is_short(number):
                return _integer(int(number))
            if narrow and pymath.isfinite(number) and rank_of(value.type) is Rank.F32:
                text = _real(number, single=True)
                return Text(text, Strength.UNARY if number < 0 else Strength.ATOM, Rank.REAL)
        return self.texts[value]

    def fitted(self, operands: Sequence[SSAValue], rule: Rule, wanted: Rank) -> list[Text]:
        """Texts of operands, without the conversions that `rule`, the operator's typing, puts back."""
        bare = [self.bare(v) for v in operands]
        if rule(bare) is wanted:
            return bare
        for i, v in enumerate(operands):
            kept = [*bare[:i], self.exact(v), *bare[i + 1 :]]
            if rule(kept) is wanted:
                return kept
        return [self.exact(v) for v in operands]

    def _along(self, op: AlongOp, rank: Rank) -> Text:
        """A derivative that the user gave: the whole chain as one call."""
        pairs: list[SSAValue] = [op.at, op.slope]
        value = op.value
        while isinstance(value.owner, AlongOp) and value not in self.named:
            pairs = [value.owner.at, value.owner.slope, *pairs]
            value = value.owner.value
        if isinstance(value.owner, StopGradientOp) and value not in self.named:
            return _call("with_derivative", self.fitted([value.owner.value, *pairs], _real_valued, rank), rank)
        head, *rest = self.fitted([value, *pairs], _real_valued, rank)
        return _call("with_derivative", [head, head, Text("1", Strength.ATOM, rank), *rest], rank)

    # -- one operation -----------------------------------------------------------------------------------------
    def _text(self, op: Operation) -> Text:
        rank = rank_of(op.results[0].type)
        name = op.name
        match op:
            case arith.ConstantOp():
                return _constant(op)
            case RefOp():
                return Text(op.symbol.string_value(), Strength.ATOM, rank)
            case LookupOp():
                return Text(f"{op.symbol.string_value()}[{self.bare(op.at).text}]", Strength.ATOM, rank)
            case arith.NegfOp():
                return self._negation(op.operand, rank)
            case arith.SubiOp() if _is_zero(op.lhs) and not isinstance(op.rhs.owner, arith.ConstantOp):
                return self._negation(op.rhs, rank)
            case arith.AndIOp() | arith.OrIOp() | arith.XOrIOp() if rank is Rank.BOOL:
                return self._logical(op)
            case arith.CmpiOp() | arith.CmpfOp():
                return self._comparison(op)
            case arith.SelectOp():
                then, other = self.fitted([op.lhs, op.rhs], _widest, rank)
                condition = self.exact(op.cond).at(Strength.OR)
                return Text(f"{condition} ? {then.at(Strength.OR)} : {other.at(Strength.ANY)}", Strength.ANY, rank)
            case math.PowFOp() | math.IPowIOp():
                base, exponent = self.fitted(op.operands, _power, rank)
                text = f"{base.at(Strength.ATOM)}**{exponent.at(Strength.UNARY, right=True)}"
                return Text(text, Strength.POWER, rank)
            case AlongOp():
                return self._along(op, rank)
            case StopGradientOp():
                return _call("stop_gradient", [self.exact(op.value)], rank)
            case _ if name in _BINARY:
                symbol, strength = _BINARY[name]
                rule = _real_valued if isinstance(op, arith.DivfOp) else _arithmetic
                left, right = self.fitted(op.operands, rule, rank)
                first = Strength.PRODUCT if strength is Strength.DIVISION else strength
                second = Strength.DIVISION if strength is Strength.SUM else Strength.UNARY
                return Text(f"{left.at(first)}{symbol}{right.at(second, right=True)}", strength, rank)
            case _ if name in _EXTREMA:
                return _call(_EXTREMA[name], self.fitted(self._flat(op, name), _arithmetic, rank), rank)
            case _ if name in _ABS:
                return _call("abs", self.fitted(op.operands, _arithmetic, rank), rank)
            case _ if (function := BY_OP.get(type(op))) is not None and function.spoken:
                return _call(function.name, self.fitted(op.operands, _real_valued, rank), rank)
            case _:
                return self._conversion(op, rank)

    def _conversion(self, op: Operation, rank: Rank) -> Text:
        if isinstance(op, math.FloorOp):
            floor = _call("floor", [self.exact(op.operand)], Rank.INT)
            return _call(rank.word, [floor], rank)
        if isinstance(op, arith.FPToSIOp) and rank is Rank.INT:
            inner = op.input.owner
            if isinstance(inner, math.FloorOp) and op.input not in self.named:
                return _call("floor", [self.exact(inner.operand)], rank)
            return _call("int", [self.exact(op.input)], rank)
        given = rank_of(op.operands[0].type) if op.operands else rank
        signed = isinstance(op, arith.SIToFPOp) and given is Rank.INT
        truth = isinstance(op, arith.UIToFPOp | arith.ExtUIOp) and given is Rank.BOOL
        if signed or truth or isinstance(op, arith.ExtFOp | arith.TruncFOp):
            return _call(rank.word, [self.exact(op.operands[0])], rank)
        raise _no_text(op)

    def _negation(self, operand: SSAValue, rank: Rank) -> Text:
        (text,) = self.fitted([operand], _arithmetic, rank)
        return Text(f"-{text.at(Strength.UNARY, right=True)}", Strength.UNARY, rank)

    def _flat(self, op: Operation, name: str) -> list[SSAValue]:
        """The arguments of nested calls on the left, ``min(min(a,b),c)``, as one list."""
        last: list[SSAValue] = []
        while True:
            last.append(op.operands[1])
            first = op.operands[0]
            if first in self.named or not isinstance(first.owner, Operation) or first.owner.name != name:
                return [first, *reversed(last)]
            op = first.owner

    def _logical(self, op: arith.AndIOp | arith.OrIOp | arith.XOrIOp) -> Text:
        left, right = self.exact(op.lhs), self.exact(op.rhs)
        if isinstance(op, arith.XOrIOp):
            if right.text == "true" and op.rhs not in self.named:
                return Text(f"!{left.at(Strength.UNARY)}", Strength.UNARY, Rank.BOOL)
            text = f"{left.at(Strength.SUM)} != {right.at(Strength.SUM)}"
            return Text(text, Strength.COMPARISON, Rank.BOOL)
        chain = self.chain(op)
        if chain is not None and not (chain.is_crooked and all(v in self.named for v, _ in chain.operands[1:-1])):
            shown = [(self.texts[v] if exact else self.bare(v)).at(Strength.SUM) for v, exact in chain.operands]
            parts = [shown[0], *[f" {test} {t}" for test, t in zip(chain.tests, shown[1:], strict=True)]]
            return Text("".join(parts), Strength.COMPARISON, Rank.BOOL)
        strength = Strength.AND if isinstance(op, arith.AndIOp) else Strength.OR
        symbol = " && " if strength is Strength.AND else " || "
        text = f"{left.at(strength)}{symbol}{right.at(Strength(strength + 1))}"
        return Text(text, strength, Rank.BOOL)

    def _comparison(self, op: arith.CmpiOp | arith.CmpfOp) -> Text:
        wanted = arithmetic(rank_of(op.lhs.type))
        left, right = (t.at(Strength.SUM) for t in self.fitted([op.lhs, op.rhs], _arithmetic, wanted))
        test = _test(op)
        if test is not None:
            return Text(f"{left} {test} {right}", Strength.COMPARISON, Rank.BOOL)
        opposite = _NEGATED_TESTS.get(op.predicate.value.data)
        if opposite is None:
            raise _no_text(op)
        return Text(f"!({left} {opposite} {right})", Strength.UNARY, Rank.BOOL)

    # -- chains of comparisons ---------------------------------------------------------------------------------
    def chain(self, op: Operation) -> Chain | None:
        """The conjunction as ``a < b <= c``, if each comparison has the right operand of the one before."""
        links = self._links(op)
        if len(links) < 2:
            return None
        ends = [(links[0].lhs, self._forms(links[0].lhs))]
        shared = links[0].lhs
        for left, right in pairwise(links):
            value, exact = self._joint(left.rhs, right.lhs)
            assert value is not None, "links are joined"
            ends.append((value, [(exact, rank_of(value.type) if exact else self._bare_rank(value))]))
            shared = value if exact else self._stripped(value)
        ends.append((links[-1].rhs, self._forms(links[-1].rhs)))
        options = [forms for _, forms in ends]
        for choice in product(*options):  # four at most: only the first and the last have two forms
            joint = [arithmetic(a, b) for (_, a), (_, b) in pairwise(choice)]
            if joint == [arithmetic(rank_of(c.lhs.type)) for c in links]:
                break
        else:
            return None
        chosen = [(value, exact) for (value, _), (exact, _) in zip(ends, choice, strict=True)]
        return Chain(chosen, [t for t in map(_test, links) if t is not None], shared)

    def _links(self, op: Operation) -> list[arith.CmpiOp | arith.CmpfOp]:
        """The comparisons of a chain; empty if the operation is not a conjunction of such."""
        if not isinstance(op, arith.AndIOp):
            return []
        right = self._link(op.rhs)
        if right is None:
            return []
        inner = op.lhs.owner
        links: list[arith.CmpiOp | arith.CmpfOp] = []
        if isinstance(inner, arith.AndIOp) and op.lhs.has_one_use() and op.lhs not in self.named:
            links = self._links(inner)
        elif (left := self._link(op.lhs)) is not None:
            links = [left]
        return [*links, right] if links and self._joint(links[-1].rhs, right.lhs)[0] is not None else []

    def _link(self, value: SSAValue) -> arith.CmpiOp | arith.CmpfOp | None:
        """The comparison behind a value, if it can be part of a chain."""
        op = value.owner
        if not isinstance(op, arith.CmpiOp | arith.CmpfOp) or not value.has_one_use() or value in self.named:
            return None
        return op if _test(op) is not None else None

    def _joint(self, left: SSAValue, right: SSAValue) -> tuple[SSAValue | None, bool]:
        """The operand that two comparisons share before conversion, and whether it is written exactly."""
        if left is right or self._stripped(right) is left:
            return left, True
        if self._stripped(left) is right:
            return right, True
        return (left, False) if self._stripped(left) is self._stripped(right) else (None, False)

    def _stripped(self, value: SSAValue) -> SSAValue:
        """The value before conversion."""
        op = value.owner
        return op.operands[0] if isinstance(op, _WIDENING) and value not in self.named else value

    def _forms(self, value: SSAValue) -> list[tuple[bool, Rank]]:
        """The ways to write an operand, shortest first: whether exactly, and the type it then has."""
        return [(False, self._bare_rank(value)), (True, rank_of(value.type))]

    def _bare_rank(self, value: SSAValue) -> Rank:
        """The type of what `bare` gives, before there is a text."""
        op = value.owner
        if value in self.named or not isinstance(op, Operation):
            return rank_of(value.type)
        if isinstance(op, _WIDENING):
            return rank_of(op.operands[0].type)
        if isinstance(op, arith.ConstantOp) and isinstance(op.value, FloatAttr):
            return Rank.INT if _is_short(op.value.value.data) else rank_of(value.type)
        return rank_of(value.type)


def _is_short(number: float) -> bool:
    """Whether a real literal may be written as an integer one."""
    return number.is_integer() and abs(number) <= 1e6 and (number != 0 or pymath.copysign(1.0, number) > 0)


def _test(op: arith.CmpiOp | arith.CmpfOp) -> str | None:
    number = op.predicate.value.data
    if isinstance(op, arith.CmpfOp):
        return _FLOAT_TESTS.get(number)
    if rank_of(op.lhs.type) is Rank.BOOL:  # an i1 counts as unsigned
        return {0: "==", 1: "!=", 6: "<", 7: "<=", 8: ">", 9: ">="}.get(number)
    return _INT_TESTS[number] if number < len(_INT_TESTS) else None


def _call(function: str, arguments: Sequence[Text], rank: Rank) -> Text:
    return Text(f"{function}({', '.join(a.text for a in arguments)})", Strength.ATOM, rank)


def _integer(number: int) -> Text:
    if number == -(2**63):
        return Text(f"-{2**63 - 1} - 1", Strength.SUM, Rank.INT)
    return Text(str(number), Strength.UNARY if number < 0 else Strength.ATOM, Rank.INT, count=number >= 0)


def _constant(op: arith.ConstantOp) -> Text:
    rank = rank_of(op.result.type)
    if isinstance(op.value, IntegerAttr):
        number = op.value.value.data
        if rank is Rank.BOOL:
            return Text("true" if number else "false", Strength.ATOM, rank)
        return _integer(number)
    if not isinstance(op.value, FloatAttr):
        raise _no_text(op)
    real = op.value.value.data
    text = real_text(real, single=rank is Rank.F32)
    if rank is Rank.F32:
        return Text(f"f32({text})", Strength.ATOM, rank)
    if not pymath.isfinite(real):
        return Text(text, Strength.PRODUCT, rank)
    return Text(text, Strength.UNARY if text.startswith("-") else Strength.ATOM, rank)


def real_text(number: float, *, single: bool = False) -> str:
    """A real number as a constant expression with exactly that value; `single`: that value once rounded to f32."""
    if pymath.isnan(number):
        return "0/0"
    if pymath.isinf(number):
        return "1/0" if number > 0 else "-1/0"
    return _real(number, single=single)


def _real(number: float, *, single: bool = False) -> str:
    if single:
        for digits in range(1, 10):
            short = f"{number:.{digits}g}"
            if as_single(float(short)) == number:
                return short if any(c in short for c in ".e") else f"{short}.0"
    return repr(number)


def _is_zero(value: SSAValue) -> bool:
    op = value.owner
    if not isinstance(op, arith.ConstantOp) or not isinstance(op.value, IntegerAttr):
        return False
    return op.value.value.data == 0


def is_trivial(value: SSAValue, named: set[SSAValue]) -> bool:
    """Whether the text of a value is so short that repeating it does no harm."""
    op = value.owner
    if value in named or not isinstance(op, Operation) or isinstance(op, arith.ConstantOp | RefOp | LetOp):
        return True
    return isinstance(op, _WIDENING) and is_trivial(op.operands[0], named)


def is_deep(text: Text) -> bool:
    """Whether an expression is too deep to be printed in one piece."""
    if text.depth <= MAX_NESTING:
        return False
    nesting = deepest = 0
    for c in text.text:
        nesting += (c in "([") - (c in ")]")
        deepest = max(deepest, nesting)
    return text.depth > MAX_DEPTH or deepest > MAX_NESTING


def _no_text(op: Operation) -> Exception:
    return error("UPL1113", f"`{op.name}` cannot be written as UPL text", span_of(op))
