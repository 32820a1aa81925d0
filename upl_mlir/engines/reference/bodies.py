"""What one instance sends: its body, then its arrows (LANGUAGE 2, 3.5 and 3.6).

An operation is computed when an arrow that is taken needs it, and once; of `?:` the side that is chosen, the second
operand of `&&` and `||` where the first one does not decide.  So one that has no value (an overflow, an entry outside an
array) is an error only where no condition guards against it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith
from xdsl.dialects import math as mlir_math
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, IntegerType, i1
from xdsl.ir import Block, Operation, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import (
    ArrayOp,
    ConstOp,
    InputOp,
    LetOp,
    LookupOp,
    NodeOp,
    OutputOp,
    ProgramOp,
    RefOp,
    SendOp,
    Special,
    UplType,
)
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.dialects.upl.precision import needed, require_one_real
from upl_mlir.dialects.upl.query import (
    array_values,
    arrows,
    directives,
    endpoints,
    first_index,
    is_integer_array,
    span_of,
    target_port,
)
from upl_mlir.engines.reference.points import Point, entry, holds, value
from upl_mlir.engines.reference.values import COMPUTE, Form, Value, comparison, computed, fitted, form_of
from upl_mlir.poly.expr import IndexExpr

Index = tuple[int | None, ...]
"""An index; None stands for `*`."""
Count = int | float
"""A number of activations; infinite for `##`."""


@dataclass
class Token:
    """A token on its way: `arrow` has sent it to `target.port`; `place` says where ordered sums put it (LANGUAGE 3.10)."""

    arrow: SendOp
    target: str
    port: str | None
    index: Index
    value: Value
    left: Count
    place: tuple[int, Point, Point]


class World:
    """What does not change while a program runs: its declarations with numbers for all parameters.

    Raises UplError: UPL1410 for an `adjoint of` that is not expanded, UPL1513 for an array without values, UPL1607 for an
    operation that is not known, UPL1808 for another real beside a small type.
    """

    def __init__(self, program: ProgramOp, params: Mapping[str, int], real: Form):
        self.program, self.real = program, real
        if real.small is not None:
            require_one_real(program, Kind.of(real.name))
        for op in directives(program):
            raise error("UPL1410", "an `adjoint of` is not expanded: the reference runs programs without them", span_of(op))
        self.numbers: dict[str, Value] = {}
        self.entries: dict[str, dict[int, int | float]] = {}
        for op in program.body.block.ops:
            if isinstance(op, ConstOp):
                self.numbers[op.symbol] = op.value.value.data
            elif isinstance(op, ArrayOp):
                self.entries[op.symbol] = dict(enumerate(array_values(op), first_index(op)))
        self.numbers |= params
        self.integers = {n: v for n, v in self.numbers.items() if isinstance(v, int)}
        whole = {op.symbol for op in program.body.block.ops if isinstance(op, ArrayOp) and is_integer_array(op)}
        self.tables = {n: {i: int(v) for i, v in t.items()} for n, t in self.entries.items() if n in whole}
        self.ends = endpoints(program)
        self.number_of = {send: at for at, send in enumerate(arrows(program))}
        self.bodies = {op: Body(self, op) for op in self.ends.values() if not isinstance(op, OutputOp)}

    def count(self, e: IndexExpr, fields: Sequence[str], at: Point) -> int:
        """An expression over the fields of an instance.  Raises NoValue."""
        return value(e, {**self.integers, **dict(zip(fields, at, strict=True))}, self.tables)


@dataclass
class Send:
    """An arrow."""

    op: SendOp
    named: Mapping[str, SSAValue]  # the variables of the body that its index, count and bounds name
    wanted: Form
    counts: bool  # whether its multiplicity means anything: not on a gather that knows its number of summands


@dataclass
class Body:
    """The body of a node or of a host input."""

    world: World
    op: NodeOp | InputOp
    sends: list[Send] = field(default_factory=list[Send])
    forms: dict[SSAValue, Form] = field(default_factory=dict[SSAValue, Form])

    def __post_init__(self) -> None:
        block, real = self.op.block, self.world.real
        if isinstance(self.op, NodeOp):
            self.ports = {p.name: form_of(p.type, real) for p in self.op.ports}
        else:
            self.ports = {self.op.symbol: form_of(self.op.type, real)}
        self.forms |= zip(block.args, [*(Form.INT for _ in self.op.fields), *self.ports.values()], strict=True)
        for op in block.ops:
            if isinstance(op, SendOp):
                self.sends.append(self._send(op, block))
            else:
                self._known(op)
                self.forms[op.results[0]] = self._form(op)

    def _known(self, op: Operation) -> None:
        if isinstance(op, LetOp | RefOp | LookupOp | arith.ConstantOp) or type(op) in COMPUTE:
            return
        if comparison(op) is None:
            raise error("UPL1607", f"the reference does not know the operation `{op.name}`", span_of(op))

    def _form(self, op: Operation) -> Form:
        """The form of a result.  The IR writes `real` as f64: it is one where `real` is, or a declared f64 takes part."""
        type_ = op.results[0].type
        if isinstance(type_, IntegerType):
            return Form.BOOL if type_ == i1 else Form.INT
        if type_ == UplType.F32.mlir() or isinstance(op, RefOp | LookupOp | arith.ConstantOp):
            return Form.F32 if type_ == UplType.F32.mlir() else self.world.real
        wide = any(self.forms[v] is Form.F64 for v in op.operands)
        return Form.F64 if wide else self.world.real

    def _send(self, op: SendOp, block: Block) -> Send:
        names = set[str]().union(*(e.names for e in op.index.data if e is not None), op.when_point.names)
        names = names.union(*(loop.lo.names | loop.hi.names for loop in op.loops))
        if not isinstance(op.multiplicity, Special):
            names |= op.multiplicity.names
        named = {o.var.data: o.result for o in block.ops if isinstance(o, LetOp) and o.var.data in names}
        end = self.world.ends[op.target_name]
        port = target_port(end, op.target_port)
        counts = isinstance(end, NodeOp) and (port.gather is None or isinstance(port.count, Special))
        return Send(op, named, form_of(port.type, self.world.real), counts)


def _definer(v: SSAValue) -> Operation | None:
    """The operation that computes a value, None for a field, an input, a literal or a constant."""
    op = v.owner
    while isinstance(op, LetOp):
        op = op.value.owner
    return None if isinstance(op, Block | arith.ConstantOp | RefOp) else op


def _known(v: SSAValue) -> bool:
    """Whether a value is a literal or a constant's."""
    op = v.owner
    while isinstance(op, LetOp):
        op = op.value.owner
    return isinstance(op, arith.ConstantOp | RefOp)


class Firing:
    """One instance: its index, its inputs, and what was computed so far."""

    def __init__(self, body: Body, at: Point, inputs: Sequence[Value]):
        self.body, self.world, self.at = body, body.world, at
        fields = dict(zip(body.op.fields, at, strict=True))
        ports = dict(zip(body.ports, inputs, strict=True))
        self.known: dict[SSAValue, Value] = dict(zip(body.op.block.args, [*at, *inputs], strict=True))
        self.static = {**self.world.integers, **fields}
        self.env = {**self.static, **{n: v for n, v in ports.items() if body.ports[n] is Form.INT and isinstance(v, int)}}

    def sent(self, send: Send) -> Iterator[Token]:
        """The tokens of one arrow.  Raises NoValue."""
        op, tables = send.op, self.world.tables
        if not holds(op.when, self.static, tables):
            return
        if op.predicate is not None:
            self._compute(op.predicate)
            if not self._value(op.predicate):
                return
        for v in (op.value, *send.named.values()):
            self._compute(v)
        what = self._converted(send)
        env = {**self.env, **{n: int(self._value(v)) for n, v in send.named.items()}}
        for at in self._iterated(op, env, 0):
            inner = {**env, **dict(zip((loop.name for loop in op.loops), at, strict=True))}
            if holds(op.when_point, inner, tables):
                index = tuple(None if e is None else value(e, inner, tables) for e in op.index.data)
                place = (self.world.number_of[op], self.at, at)
                yield Token(op, op.target_name, op.target_port, index, what, self._multiplicity(send, inner), place)

    def _iterated(self, op: SendOp, env: Mapping[str, int], k: int) -> Iterator[Point]:
        """The points of the iterators of `for`: both ends of each range are included."""
        if k == len(op.loops):
            yield ()
            return
        loop = op.loops[k]
        for i in range(value(loop.lo, env, self.world.tables), value(loop.hi, env, self.world.tables) + 1):
            for others in self._iterated(op, {**env, loop.name: i}, k + 1):
                yield (i, *others)

    def _multiplicity(self, send: Send, env: Mapping[str, int]) -> Count:
        n = send.op.multiplicity
        if not send.counts:
            return 1
        return math.inf if isinstance(n, Special) else value(n, env, self.world.tables)

    # -- the body --------------------------------------------------------------------------------------------------
    def _compute(self, v: SSAValue) -> None:
        """Compute a value, if it is not known, and before it what it needs."""
        todo = [op for op in [_definer(v)] if op is not None]
        while todo:
            op = todo[-1]
            missing = next((x for x in self._needs(op) if x.results[0] not in self.known), None)
            if missing is not None and op.results[0] not in self.known:
                todo.append(missing)
                continue
            todo.pop()
            if op.results[0] not in self.known:
                self.known[op.results[0]] = self._result(op, self.body.forms[op.results[0]])

    def _needs(self, op: Operation) -> Iterator[Operation]:
        """The operations that compute what an operation needs, for the first operand first: it may choose the others."""
        for v in needed(op):
            found = _definer(v)
            if found is not None and self._needed(op, v):
                yield found

    def _needed(self, op: Operation, v: SSAValue) -> bool:
        """Whether an operation needs one of its operands, of which the first one may be known."""
        first = needed(op)[0]
        found = _definer(first)
        if v is first or (found is not None and found.results[0] not in self.known):
            return v is first
        match op:
            case arith.SelectOp():
                return v is (op.lhs if self._value(first) else op.rhs)
            case arith.AndIOp() | arith.OrIOp() if op.results[0].type == i1:
                return bool(self._value(first)) is isinstance(op, arith.AndIOp)
            case _:
                return v in needed(op)

    def _result(self, op: Operation, form: Form) -> Value:
        if isinstance(op, LookupOp):
            name = op.symbol.root_reference.data
            return fitted(entry(name, self.world.entries[name], int(self._value(op.at))), form)
        forms = [form, *(self.body.forms[v] for v in op.operands)]
        wide = [Form.F64 if Form.F64 in forms else None for _ in op.operands]
        if form.small is not None and isinstance(op, mlir_math.PowFOp) and _known(op.rhs):
            wide[1] = Form.F64  # an exponent that is a constant is no number of the type
        first = needed(op)[0]  # decides if another one is not needed, and may stand for it
        operands = [
            self._value(v if self._needed(op, v) else first, w) for v, w in zip(op.operands, wide, strict=True)
        ]
        return computed(type(op), comparison(op) or COMPUTE[type(op)], form, *operands)

    def _value(self, v: SSAValue, wide: Form | None = None) -> Value:
        """A value.  Constants, and integers made real, have the precision (`wide`) of where they stand."""
        op = v.owner
        while isinstance(op, LetOp):
            v, op = op.value, op.value.owner
        form = self.body.forms[v]
        if form.real and wide is not None:
            form = wide
        match op:
            case RefOp():
                return fitted(self._constant(op), form)
            case arith.ConstantOp(value=IntegerAttr() | FloatAttr() as attr):
                return fitted(attr.value.data, form)
            case arith.SIToFPOp() | arith.UIToFPOp() if form is Form.F64:
                return float(self._value(op.operands[0]))
            case _:
                return self.known[v]

    def _constant(self, op: RefOp) -> Value:
        name = op.symbol.root_reference.data
        if name not in self.world.numbers:
            raise error("UPL1505", f"the parameter `{name}` has no value", span_of(op), help=f"give it as {name}=…")
        return self.world.numbers[name]

    def _converted(self, send: Send) -> Value:
        """The value in the type of the input that it goes to (LANGUAGE 2): a real may be rounded."""
        return fitted(self._value(send.op.value, send.wanted if send.wanted.real else None), send.wanted)
