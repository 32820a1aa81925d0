"""Bodies as Python source: one table from operations to expressions, and the function that fires a node.

The body is evaluated first, then each arrow under its condition.  An operation that can fail (integer overflow, a real
without an integer value, an entry outside a constant array) is evaluated only where an arrow that is taken needs it:
"no traps" holds for everything that a condition guards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, i1
from xdsl.ir import Operation, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import (
    AlongOp,
    ArrayOp,
    ConstOp,
    InputOp,
    LetOp,
    LookupOp,
    ModOp,
    NodeOp,
    RefOp,
    SendOp,
    Special,
    StopGradientOp,
)
from upl_mlir.dialects.upl.kinds import Kind, kind_of
from upl_mlir.dialects.upl.precision import WEAK, Kinds, needed, resolve
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.engines.interp.exprs import Scope, Writer, number_text, tuple_text
from upl_mlir.engines.interp.ieee import round_f32
from upl_mlir.engines.interp.plan import Arrow, Mode, Plan
from upl_mlir.engines.interp.small import ROUND, small_text
from upl_mlir.ops import FUNCTIONS


@dataclass(frozen=True)
class Rule:
    """How one operation is written: `text` with the operands as {0}, {1}, {2}.

    `exact`: an f32 result needs no rounding.  `checked`: an integer result may overflow.  `traps`: may raise Trap.
    """

    text: str
    exact: bool = False
    checked: bool = False
    traps: bool = False


_exact = partial(Rule, exact=True)
_checked = partial(Rule, checked=True, traps=True)
_traps = partial(Rule, exact=True, traps=True)

TABLE: Mapping[type[Operation], Rule] = {
    # reals
    arith.AddfOp: Rule("{0} + {1}"),
    arith.SubfOp: Rule("{0} - {1}"),
    arith.MulfOp: Rule("{0} * {1}"),
    arith.DivfOp: Rule("{0} / {1} if {1} else divide({0}, {1})"),
    arith.NegfOp: _exact("-{0}"),
    arith.MinimumfOp: _exact("minimum({0}, {1})"),
    arith.MaximumfOp: _exact("maximum({0}, {1})"),
    arith.MinnumfOp: _exact("min_number({0}, {1})"),
    arith.MaxnumfOp: _exact("max_number({0}, {1})"),
    math.AbsFOp: _exact("abs({0})"),
    math.CopySignOp: _exact("copysign({0}, {1})"),
    math.FloorOp: _exact("floor({0})"),
    math.CeilOp: _exact("ceil({0})"),
    math.TruncOp: _exact("trunc({0})"),
    math.RoundOp: _exact("round_away({0})"),
    math.RoundEvenOp: _exact("round_even({0})"),
    math.FmaOp: Rule("fused({0}, {1}, {2})"),
    math.PowFOp: Rule("power({0}, {1})"),
    math.FPowIOp: Rule("power({0}, {1})"),
    math.RsqrtOp: Rule("rsqrt({0})"),
    **{f.op: Rule(f"{f.name}({', '.join(f'{{{i}}}' for i in range(f.arity))})") for f in FUNCTIONS},
    # integers
    arith.AddiOp: _checked("{0} + {1}"),
    arith.SubiOp: _checked("{0} - {1}"),
    arith.MuliOp: _checked("{0} * {1}"),
    arith.FloorDivSIOp: _traps("floordiv({0}, {1})"),
    arith.CeilDivSIOp: _traps("ceildiv({0}, {1})"),
    arith.DivSIOp: _traps("divide_to_zero({0}, {1})"),
    arith.RemSIOp: _traps("remainder_to_zero({0}, {1})"),
    ModOp: _traps("mod({0}, {1})"),
    math.IPowIOp: _traps("int_power({0}, {1})"),
    math.AbsIOp: _checked("abs({0})"),
    arith.MinSIOp: Rule("min({0}, {1})"),
    arith.MaxSIOp: Rule("max({0}, {1})"),
    # conversions
    arith.SIToFPOp: Rule("float({0})"),
    arith.UIToFPOp: Rule("float({0})"),
    arith.FPToSIOp: _traps("to_int({0})"),
    arith.ExtUIOp: Rule("int({0})"),
    arith.ExtFOp: _exact("{0}"),
    arith.TruncFOp: Rule("{0}"),
    # choice
    arith.SelectOp: _exact("{1} if {0} else {2}"),
    StopGradientOp: _exact("{0}"),
    AlongOp: _exact("{2}"),
}  # fmt: skip
"""Operations whose text does not depend on their attributes or types; `special_rule` has the others."""

_INT_TESTS = ("{0} == {1}", "{0} != {1}", "{0} < {1}", "{0} <= {1}", "{0} > {1}", "{0} >= {1}")
_FLOAT_TESTS = (
    "False", "{0} == {1}", "{0} > {1}", "{0} >= {1}", "{0} < {1}", "{0} <= {1}", "{0} < {1} or {0} > {1}",
    "{0} == {0} and {1} == {1}", "not ({0} < {1} or {0} > {1})", "not {0} <= {1}", "not {0} < {1}", "not {0} >= {1}",
    "not {0} > {1}", "{0} != {1}", "{0} != {0} or {1} != {1}", "True",
)  # fmt: skip
TRUTH_RULES: Mapping[type[Operation], Rule] = {
    arith.AndIOp: Rule("{0} and {1}"), arith.OrIOp: Rule("{0} or {1}"), arith.XOrIOp: Rule("{0} != {1}"),
}  # fmt: skip
_BITWISE = {arith.AndIOp: Rule("{0} & {1}"), arith.OrIOp: Rule("{0} | {1}"), arith.XOrIOp: Rule("{0} ^ {1}")}


def special_rule(op: Operation) -> Rule | None:
    """The rule of an operation whose text depends on a predicate or on its type; None if there is none."""
    match op:
        case arith.CmpfOp():
            return Rule(_FLOAT_TESTS[op.predicate.value.data])
        case arith.CmpiOp():
            at = op.predicate.value.data
            return Rule(_INT_TESTS[at]) if at < len(_INT_TESTS) else None
        case arith.AndIOp() | arith.OrIOp() | arith.XOrIOp():
            return (TRUTH_RULES if _is_bool(op.results[0]) else _BITWISE)[type(op)]
        case _:
            return None


def _is_bool(v: SSAValue) -> bool:
    return v.type == i1


@dataclass
class Body:
    """The body of one node or host input: writes its `fire` function.

    `number` numbers sources (nodes, then host inputs); `ordered` tells which inputs keep their summands for folding.
    """

    plan: Plan
    op: NodeOp | InputOp
    number: int
    arrows: Sequence[Arrow]
    scope: Scope
    tables: Mapping[str, str]
    traced: bool
    UNBOUNDED: ClassVar = "INF"

    def __post_init__(self) -> None:
        self.kind = Kinds(self.plan.real)
        self._texts: dict[SSAValue, str] = {}
        self._lets = {o.var.data: o for o in self.op.block.ops if isinstance(o, LetOp)}
        ports = [p.name for p in self.op.ports] if isinstance(self.op, NodeOp) else [self.op.symbol]
        args = self.op.block.args
        names: dict[str, str] = {}
        for i, f in enumerate(self.op.fields):
            names[f], self._texts[args[i]] = f"f{i}", f"f{i}"
        for i, name in enumerate(ports):
            names[name], self._texts[args[len(self.op.fields) + i]] = f"a{i}", f"a{i}"
        self._ports = len(ports)
        self.scope = Scope(self.scope.ctx, self.scope.tables, names, self._variable)
        self._order = [o for o in self.op.block.ops if not isinstance(o, SendOp | LetOp)]
        self._lazy: set[Operation] = set()
        for i, o in enumerate(self._order):
            rule = self._rule(o)
            if rule is not None:
                self._texts[o.results[0]] = f"v{i}"
            if (rule is not None and rule.traps) or any(d in self._lazy for d in self._definers(o)):
                self._lazy.add(o)

    def _variable(self, name: str) -> str | None:
        let = self._lets.get(name)
        return None if let is None else self.text(let.result)

    # -- values ----------------------------------------------------------------------------------------------------
    def _rule(self, op: Operation) -> Rule | None:
        """The rule of an operation, None for one that is written in place.  Raises UplError (UPL1607)."""
        if isinstance(op, LetOp | arith.ConstantOp | RefOp):
            return None
        if isinstance(op, LookupOp):
            return _traps(self.tables[op.symbol.root_reference.data] + "[{0}]")
        rule = special_rule(op) or TABLE.get(type(op))
        if rule is None:
            raise error("UPL1607", f"the interpreter does not know the operation `{op.name}`", span_of(op))
        return rule

    def _definers(self, op: Operation) -> list[Operation]:
        """The operations that compute the operands."""
        return [o for v in needed(op) for o in [resolve(v).owner] if isinstance(o, Operation)]

    def text(self, v: SSAValue, kind: Kind | None = None) -> str:
        """Source of a value; `kind` is the precision wanted of literals and of converted integers."""
        v = resolve(v)
        op = v.owner
        if isinstance(op, arith.ConstantOp | RefOp):
            return self._literal(op, kind or self.kind(v))
        if kind is Kind.F64 and self.kind(v) is Kind.F32 and isinstance(op, WEAK):
            rule = self._rule(op)
            assert rule is not None
            return rule.text.format(self.text(op.operands[0]))
        return self._texts[v]

    def _literal(self, op: arith.ConstantOp | RefOp, kind: Kind) -> str:
        value: bool | int | float
        if isinstance(op, RefOp):
            value = self._symbol(op.symbol.root_reference.data)
        elif isinstance(op.value, FloatAttr):
            value = op.value.value.data
        else:
            assert isinstance(op.value, IntegerAttr)
            value = op.value.value.data
        match kind:
            case Kind.BOOL:
                return str(bool(value))
            case Kind.INT:
                return number_text(int(value))
            case Kind.F32:
                return number_text(round_f32(float(value)))
            case _:
                text = number_text(kind.nearest(float(value)))
                return f"{ROUND}({text})" if kind.watch is not None and kind.watch.rounds(float(value)) else text

    def _symbol(self, name: str) -> int | float:
        if name in self.plan.ctx.constants:
            return self.plan.ctx.constants[name]
        for op in self.plan.program.body.block.ops:
            if isinstance(op, ConstOp) and op.symbol == name:
                return op.value.value.data
        help_ = f"give it as {name}=…, on the command line with -D {name}=…"
        raise error("UPL1505", f"the parameter `{name}` has no value", span_of(self.op), help=help_)

    def _computed(self, op: Operation, rule: Rule) -> tuple[str, Kind, bool]:
        """What one operation computes as an expression, its kind, and whether it is rounded to f32 after that."""
        result = op.results[0]
        kind = self.kind(result)
        wanted = Kind.F64 if Kind.F64 in map(self.kind, (*op.operands, result)) else None
        text = rule.text
        if kind.calls:
            text = small_text(type(op), text, rule.exact and not isinstance(op, arith.TruncFOp | LookupOp), kind)
        kinds = [wanted if self.kind(v).is_float else None for v in op.operands]
        if kind.calls and isinstance(op, math.PowFOp) and isinstance(resolve(op.rhs).owner, arith.ConstantOp | RefOp):
            kinds[1] = Kind.F64  # a constant exponent is no number of the type
        value = text.format(*map(self.text, op.operands, kinds))
        return value, kind, kind is Kind.F32 and (isinstance(op, arith.TruncFOp | LookupOp) or not rule.exact)

    def _assign_all(self, w: Writer, ops: Set[Operation]) -> None:
        """These operations, in the body's order."""
        for o in self._order:
            if o in ops:
                self._assign(w, o)

    def _assign(self, w: Writer, op: Operation) -> None:
        """Write one operation as an assignment."""
        rule = self._rule(op)
        if rule is None:
            return
        value, kind, rounded = self._computed(op, rule)
        name = self._texts[op.results[0]]
        if rounded:
            w.line(f"F[0] = {value}")
            w.line(f"{name} = F[0]")
        else:
            w.line(f"{name} = {value}")
        if rule.checked and kind is Kind.INT:
            w.line(f"if {name} > INT_MAX or {name} < INT_MIN: overflow({name})")

    # -- what is evaluated where -----------------------------------------------------------------------------------
    def _closure(self, values: Sequence[SSAValue]) -> set[Operation]:
        out: set[Operation] = set()
        todo = [resolve(v).owner for v in values]
        while todo:
            o = todo.pop()
            if isinstance(o, Operation) and o not in out:
                out.add(o)
                todo += self._definers(o)
        return out

    def _value_needs(self, s: SendOp) -> set[Operation]:
        """Operations behind an arrow's value, index, count and iterators."""
        names: set[str] = set()
        for e in s.index.data:
            names |= e.names if e is not None else set()
        if not isinstance(s.multiplicity, Special):
            names |= s.multiplicity.names
        for it in s.loops:
            names |= it.lo.names | it.hi.names
        names |= s.when_point.names
        return self._closure([s.value, *(self._lets[n].result for n in names if n in self._lets)])

    def _test_needs(self, s: SendOp) -> set[Operation]:
        return self._closure([s.predicate] if s.predicate is not None else [])

    def needs(self) -> tuple[set[Operation], list[set[Operation]], list[set[Operation]]]:
        """What is evaluated where: the operations that come first, and for each arrow those behind its value and those
        behind its condition.
        """
        sends = [a.op for a in self.arrows]
        values, tests = [self._value_needs(s) for s in sends], [self._test_needs(s) for s in sends]
        first: set[Operation] = set()
        for o in self._order:
            users = [i for i in range(len(sends)) if o in values[i] or o in tests[i]]
            open_ = any(
                sends[i].when.is_true and (o in tests[i] or (o in values[i] and sends[i].predicate is None))
                for i in users
            )
            if open_ or (len(users) > 1 and o not in self._lazy):
                first.add(o)
        return first, values, tests

    def write(self, w: Writer) -> None:
        """Write the function ``fire<number>(key, a0, ..., _)``; the last argument is a multiplicity, not used."""
        first, values, tests = self.needs()
        inner = Writer()
        inner.depth = w.depth + 1
        with inner.block("try:"):
            self._assign_all(inner, first)
        inner.line(f"except Trap as trap: trapped(trap, SOURCES[{self.number}], key)")
        if not first & self._lazy:  # nothing can fail: no need for the `try`
            inner = Writer()
            inner.depth = w.depth + 1
            self._assign_all(inner, first)
        for a, value, test in zip(self.arrows, values, tests, strict=True):
            self._write_send(inner, a, value - first, test - first)
        w.line(f"def fire{self.number}(key, {''.join(f'a{i}, ' for i in range(self._ports))}_=1):")
        counters = [f"fired{self.number}", *(f"sent{a.at}" for a in self.arrows if a.counted)]
        w.line(f"    nonlocal {', '.join(counters)}")
        w.line(f"    fired{self.number} += 1")
        unpack_fields(w, len(self.op.fields), inner.lines)
        if self.traced:
            w.line(f"    trace(FIRE, NAMES[{self.number}], key, None)")
        w.lines += inner.lines

    # -- arrows ----------------------------------------------------------------------------------------------------
    def _write_send(self, w: Writer, a: Arrow, value: set[Operation], test: set[Operation]) -> None:
        s, start = a.op, len(w.lines)
        depth = w.depth
        with w.block("try:"):
            if not s.when.is_true:
                w.line(f"if {self.scope.condition(s.when)}:")
                w.depth += 1
            self._assign_all(w, test)
            if s.predicate is not None:
                w.line(f"if {self.text(s.predicate)}:")
                w.depth += 1
            self._assign_all(w, value - test)
            scope = self.scope
            points: list[str] = []
            for i, it in enumerate(s.loops):
                w.line(f"for t{i} in range({scope.expr(it.lo)}, {scope.expr(it.hi)} + 1):")
                w.depth += 1
                scope = scope.extended({it.name: f"t{i}"})
                points.append(f"t{i}")
            if not s.when_point.is_true:
                w.line(f"if {scope.condition(s.when_point)}:")
                w.depth += 1
            self._write_token(w, a, scope, points)
            w.depth = depth + 1
        w.line(f"except Trap as trap: trapped(trap, ARROWS[{a.at}], key)")
        text = "\n".join(w.lines[start:])
        if not (_CAN_TRAP.search(text) or self._lazy & (value | test)):
            kept = [line[4:] for line in w.lines[start + 1 : -1]]
            w.lines[start:] = kept

    def _write_token(self, w: Writer, a: Arrow, scope: Scope, points: Sequence[str]) -> None:
        s = a.op
        parts = [scope.expr(e) for e in s.index.data if e is not None]
        own = [f"f{i}" for i in range(len(self.op.fields))]
        key = "key" if parts == own and len(a.pattern) == len(s.index.data) else tuple_text(parts)
        value = self._converted(s, a)
        if a.counted:
            w.line(f"sent{a.at} += 1")
        if self.traced:
            tag = ["None"] * len(s.index.data)
            for i, part in zip(a.pattern, parts, strict=True):
                tag[i] = part
            w.line(f"trace(SEND, TARGETS[{a.at}], {tuple_text(tag)}, {value})")
        if a.port is None:
            w.line(f"k = {key}")
            w.line(f"if k in o{a.output}: output_twice({a.output}, k, o{a.output}[k], {value})")
            w.line(f"o{a.output}[k] = {value}")
            return
        count = "1"
        if a.port.mode in (Mode.ORDINARY, Mode.CARRIED):
            count = self._count(w, a, scope)
        if a.port.folded:
            value = f"(({a.at}, key, {tuple_text(points)}), {value})"
        w.line(f"put(({a.port.receiver(a.pattern)}, {key}, {value}, {count}))")

    def _count(self, w: Writer, a: Arrow, scope: Scope) -> str:
        n = a.op.multiplicity
        if isinstance(n, Special):
            return self.UNBOUNDED
        text = scope.expr(n)
        if scope.positive(n):
            return text
        self._checked_count(w, a, text)
        return "n"

    def _checked_count(self, w: Writer, a: Arrow, text: str) -> None:
        """Write the computation of a count `n`, which must be at least 1."""
        w.line(f"n = {text}")
        w.line(f"if n < 1: few(ARROWS[{a.at}], key, n)")

    def _converted(self, s: SendOp, a: Arrow) -> str:
        """The value in the type of the input that it goes to.  Raises UplError (UPL1607)."""
        given = self.kind(s.value)
        if a.port is not None:
            want = a.port.kind
        else:
            assert a.output is not None
            want = kind_of(self.plan.outputs[a.output].type, self.plan.real)
        text = self.text(s.value, want if want.is_float and given.is_float else None)
        if given is want or (given is Kind.F32 and want is Kind.F64):
            return text
        if not (given is Kind.F64 and want is Kind.F32):  # the verifier has seen to all else
            raise error("UPL1607", f"a value of type `{given.value}` goes into `{want.value}`", span_of(s))
        literal = isinstance(resolve(s.value).owner, arith.ConstantOp | RefOp)
        return text if literal else f"round_f32({text})"


_CAN_TRAP = re.compile(r"\bT\d+\[|\b(?:floordiv|ceildiv|mod)\(")
_FIELD = re.compile(r"\bf(\d+)\b")


def unpack_fields(w: Writer, fields: int, body: Sequence[str]) -> None:
    """Write the line that unpacks `key` into the fields that the lines of `body` use; nothing if there are none."""
    used = {int(m) for line in body for m in _FIELD.findall(line)}
    if used:
        w.line(f"    {tuple_text([f'f{i}' if i in used else '_' for i in range(fields)])} = key")


def entry_tables(plan: Plan) -> dict[str, str]:
    """A name `T<i>` for every constant array of the program."""
    arrays = [op.symbol for op in plan.program.body.block.ops if isinstance(op, ArrayOp)]
    return {name: f"T{i}" for i, name in enumerate(arrays)}
