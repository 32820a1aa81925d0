"""From the code of a node to instructions and send descriptors of the core: operands, jumps, registers.

The image's code is in single assignment. Constants become immediates, inputs are read where they lie, and an index that
is a field or a register plus a constant is left to the send engine; only what remains becomes instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from upl_mlir.diagnostics import error
from upl_mlir.hw.core.alu import Code
from upl_mlir.hw.core.functions import FUNCTIONS, Bits, lines_of
from upl_mlir.hw.core.layouts import FIRST_INPUT, MAX_REGISTERS
from upl_mlir.hw.execute import to_bits
from upl_mlir.hw.image import Node
from upl_mlir.hw.microcode import FromRegister, Instruction, Loop, Op, Send, ValueType

_CODES: dict[Op, Code] = {
    Op.ADD_F32: Code.ADD_F32, Op.SUB_F32: Code.SUB_F32, Op.MUL_F32: Code.MUL_F32, Op.DIV_F32: Code.DIV_F32,
    Op.SQRT_F32: Code.SQRT_F32, Op.NEG_F32: Code.NEG_F32, Op.ABS_F32: Code.ABS_F32, Op.FLOOR_F32: Code.FLOOR_F32,
    Op.MIN_F32: Code.MIN_F32, Op.MAX_F32: Code.MAX_F32, Op.ADD_I32: Code.ADD_I32, Op.SUB_I32: Code.SUB_I32,
    Op.MUL_I32: Code.MUL_I32, Op.FLOORDIV_I32: Code.FLOORDIV_I32, Op.CEILDIV_I32: Code.CEILDIV_I32,
    Op.MOD_I32: Code.MOD_I32, Op.NEG_I32: Code.NEG_I32, Op.ABS_I32: Code.ABS_I32, Op.MIN_I32: Code.MIN_I32,
    Op.MAX_I32: Code.MAX_I32, Op.LT_F32: Code.LT_F32, Op.LE_F32: Code.LE_F32, Op.GT_F32: Code.LT_F32,
    Op.GE_F32: Code.LE_F32, Op.EQ_F32: Code.EQ_F32, Op.NE_F32: Code.NE_F32, Op.LT_I32: Code.LT_I32,
    Op.LE_I32: Code.LE_I32, Op.GT_I32: Code.LT_I32, Op.GE_I32: Code.LE_I32, Op.EQ_I32: Code.EQ_I32,
    Op.NE_I32: Code.NE_I32, Op.AND_BOOL: Code.AND_BOOL, Op.OR_BOOL: Code.OR_BOOL, Op.XOR_BOOL: Code.XOR_BOOL,
    Op.NOT_BOOL: Code.NOT_BOOL, Op.SELECT: Code.SELECT, Op.I32_TO_F32: Code.I32_TO_F32,
    Op.F32_TO_I32: Code.F32_TO_I32, Op.BOOL_TO_F32: Code.I32_TO_F32, Op.LDTAB: Code.LOAD,
}  # fmt: skip
_SWAPPED = {Op.GT_F32, Op.GE_F32, Op.GT_I32, Op.GE_I32}
_COMMUTATIVE = {
    Code.ADD_F32, Code.MUL_F32, Code.MIN_F32, Code.MAX_F32, Code.ADD_I32, Code.MUL_I32, Code.MIN_I32, Code.MAX_I32,
    Code.EQ_F32, Code.NE_F32, Code.EQ_I32, Code.NE_I32, Code.AND_BOOL, Code.OR_BOOL, Code.XOR_BOOL,
}  # fmt: skip
_CONSTANTS = {Op.CONST_F32: ValueType.F32, Op.CONST_I32: ValueType.I32, Op.CONST_BOOL: ValueType.BOOL}


@dataclass(frozen=True)
class InputOperand:
    """A value of the activation."""

    number: int


@dataclass(frozen=True)
class Immediate:
    """32 bits in the instruction."""

    bits: int


Operand = int | InputOperand | Immediate
"""Where a value comes from; an integer is a register of the image's code, negative for one that was made up here."""


@dataclass(frozen=True)
class Place:
    """An index value: a field of the sender's index, or an operand, or nothing, plus a constant."""

    base_field: int | None
    operand: int | InputOperand | None
    constant: int


@dataclass
class Step:
    """One instruction before registers are known. `target` is a label (a place in the list of steps)."""

    code: Code
    result: int | None = None
    a: Operand | None = None
    b: Operand | None = None
    c: Operand | None = None
    immediate: int = 0
    table: int | None = None
    index_field: int | None = None
    target: int | None = None
    send: SendStep | None = None
    last: bool = False

    def operands(self) -> list[int]:
        """The registers that are read."""
        found: list[Operand | None] = [self.a, self.b, self.c]
        if self.send is not None:
            found += [self.send.value, self.send.guard, self.send.times, *(p.operand for p in self.send.places if p)]
        return [o for o in found if isinstance(o, int)]


@dataclass
class SendStep:
    """A send descriptor before registers are known; `places` has None for `*`; `times` is a register's operand or None for
    the image's own multiplicity."""

    send: Send
    value: Operand
    guard: Operand | None
    times: Operand | None
    constant_times: int | None
    places: list[Place | None]


@dataclass
class NodeCode:
    """What a node becomes: its steps, and the machine register of each register of the image's code."""

    steps: list[Step]
    registers: dict[int, int]


def compile_node(node: Node, unbounded: int) -> NodeCode:
    """The code of a node; no steps if it sends nothing.

    Raises `UplError`: UPL1735 an operation the core does not have; UPL1710 more registers than a context has.
    """
    if not node.sends:
        return NodeCode([], {})
    steps = _Compiler(node, unbounded).steps()
    return NodeCode(steps, _allocate(node, steps))


@dataclass
class _Compiler:
    node: Node
    unbounded: int
    definitions: dict[int, Instruction] = field(default_factory=dict[int, Instruction])
    needed: set[int] = field(default_factory=set[int])
    out: list[Step] = field(default_factory=list[Step])
    labels: dict[int, int] = field(default_factory=dict[int, int])
    fresh: int = -1

    def steps(self) -> list[Step]:
        """Everything in order; labels become places."""
        for code in [self.node.body, *(c for s in self.node.sends for c in _codes(s))]:
            for step in code:
                self.definitions[step.result] = step
        for send in self.node.sends:
            self._need_send(send)
        self._block(self.node.body)
        for send in self.node.sends:
            self._send(send)
        ends = {self.labels[s.target] for s in self.out if s.target is not None}
        if len(self.out) in ends or self.out[-1].code in (Code.JUMP, Code.BRANCH):
            self.out.append(Step(Code.MOVE, result=self._new(), b=Immediate(0)))
        self.out[-1].last = True
        for step in self.out:
            if step.target is not None:
                step.target = self.labels[step.target]
        return self.out

    # -- what must be computed
    def _need_send(self, send: Send) -> None:
        self._need(send.value)
        for register in (send.guard, send.predicate):
            if register is not None:
                self._need(register)
        for loop in send.loops:
            self._need(loop.lower, second=True)
            self._need(loop.upper, second=True)
        if isinstance(send.multiplicity, FromRegister) and self._constant(send.multiplicity.register) is None:
            self._need(send.multiplicity.register)
        for register in send.index:
            if register is not None:
                operand = self._place(register).operand
                if isinstance(operand, int):
                    self._need(operand)

    def _need(self, register: int, second: bool = False) -> None:
        """A register is read: by an operand, or by the second one, which may be a constant."""
        step = self.definitions.get(register)
        if step is None or step.op is Op.INPUT or register in self.needed:
            return  # an iterator is set by its loop
        if second and step.op in _CONSTANTS:
            return
        self.needed.add(register)
        a, b, c = self._ordered(step)
        for place, operand in enumerate((a, b, c)):
            if operand is not None:
                self._need(operand, second=place == 1)

    def _ordered(self, step: Instruction) -> tuple[int | None, int | None, int | None]:
        """The operands of an instruction in the places a, b, c."""
        operands = step.operands
        if step.op in _SWAPPED:
            return operands[1], operands[0], None
        if step.op is Op.BOOL_TO_I32:
            return None, operands[0], None
        if len(operands) == 3:
            return operands[0], operands[1], operands[2]
        if len(operands) < 2:
            return (operands[0] if operands else None), None, None
        a, b = operands
        if _CODES.get(step.op) in _COMMUTATIVE and self._constant(a) is not None:
            a, b = b, a
        return a, b, None

    def _constant(self, register: int) -> int | None:
        """The value of an i32 or other constant as the number it is, None if it is computed."""
        step = self.definitions.get(register)
        if step is None or step.op not in _CONSTANTS:
            return None
        assert step.immediate is not None
        return int(step.immediate) if step.op is Op.CONST_I32 else to_bits(step.immediate, _CONSTANTS[step.op])

    def _place(self, register: int) -> Place:
        """An index value as field or operand plus a constant."""
        step = self.definitions.get(register)
        if step is None:
            return Place(None, register, 0)
        match step.op:
            case Op.CONST_I32:
                assert step.immediate is not None
                return Place(None, None, int(step.immediate))
            case Op.FIELD:
                assert step.immediate is not None
                number = int(step.immediate)
                return Place(number, None, self.node.fields[number].bias)
            case Op.INPUT:
                assert step.immediate is not None
                return Place(None, InputOperand(int(step.immediate)), 0)
            case Op.ADD_I32 | Op.SUB_I32:
                sign = 1 if step.op is Op.ADD_I32 else -1
                left, right = step.operands
                amount = self._constant(right)
                if amount is None and sign == 1:
                    left, amount = right, self._constant(left)
                if amount is not None:
                    inner = self._place(left)
                    total = inner.constant + sign * amount
                    if -(1 << 31) <= total < 1 << 31:
                        return Place(inner.base_field, inner.operand, total)
            case _:
                pass
        return Place(None, register, 0)

    # -- code
    def _new(self) -> int:
        self.fresh -= 1
        return self.fresh

    def _label(self) -> int:
        return self._new()

    def _here(self, label: int) -> None:
        self.labels[label] = len(self.out)

    def _operand(self, register: int, second: bool = False) -> Operand:
        step = self.definitions.get(register)
        if step is not None and step.op is Op.INPUT:
            assert step.immediate is not None
            return InputOperand(int(step.immediate))
        if second and step is not None and step.op in _CONSTANTS:
            assert step.immediate is not None
            return Immediate(to_bits(step.immediate, _CONSTANTS[step.op]))
        return register

    def _block(self, code: Iterable[Instruction]) -> None:
        for step in code:
            if step.result in self.needed:
                self._instruction(step)

    def _any(self, code: Iterable[Instruction]) -> bool:
        return any(step.result in self.needed for step in code)

    def _instruction(self, step: Instruction) -> None:
        if step.op in _CONSTANTS:
            assert step.immediate is not None
            bits = to_bits(step.immediate, _CONSTANTS[step.op])
            self.out.append(Step(Code.MOVE, step.result, b=Immediate(bits)))
            return
        if step.op is Op.FIELD:
            assert step.immediate is not None
            self.out.append(Step(Code.FIELD, step.result, index_field=int(step.immediate)))
            return
        a, b, c = self._ordered(step)
        places = [None if r is None else self._operand(r, second=n == 1) for n, r in enumerate((a, b, c))]
        if step.op is Op.BOOL_TO_I32:
            self.out.append(Step(Code.MOVE, step.result, b=places[1]))
            return
        if step.op in FUNCTIONS:
            self._function(step, [p for p in places if p is not None])
            return
        if step.op not in _CODES:
            raise error(
                "UPL1735", f"node `{self.node.name}`: the core has no operation `{step.op.value}` yet",
                help='use [matching] organisation = "cam", whose execution unit is a model',
            )  # fmt: skip
        table = None
        if step.op is Op.LDTAB:
            assert step.immediate is not None
            table = int(step.immediate)
        self.out.append(Step(_CODES[step.op], step.result, places[0], places[1], places[2], table=table))

    def _function(self, step: Instruction, arguments: list[Operand]) -> None:
        """A function that is a sequence of instructions, in place."""
        for n, argument in enumerate(arguments):
            if isinstance(argument, Immediate):
                arguments[n] = self._new()
                self.out.append(Step(Code.MOVE, self.fresh, b=argument))
        values = list(arguments)
        for line in lines_of(step.op):
            a, b, c = (Immediate(o.bits) if isinstance(o, Bits) else None if o is None else values[o]
                       for o in (line.a, line.b, line.c))  # fmt: skip
            values.append(self._new())
            self.out.append(Step(line.code, self.fresh, a, b, c))
        self.out[-1].result = step.result

    def _send(self, send: Send) -> None:
        inner = any(self._any(code) for code in _codes(send))
        end = self._label()
        guard = send.guard
        if guard is not None and (inner or send.loops or send.predicate is not None):
            self.out.append(Step(Code.BRANCH, a=self._operand(guard), target=end))
            guard = None
        self._nest(send, guard, send.loops)
        self._here(end)

    def _nest(self, send: Send, guard: int | None, loops: Sequence[Loop]) -> None:
        """The loops round a token, outermost first, and the token."""
        if loops:
            loop = loops[0]
            self._block(loop.code)
            head, done, more = self._label(), self._label(), self._new()
            self.out.append(Step(Code.MOVE, loop.iterator, b=self._operand(loop.lower, second=True)))
            self._here(head)
            upper = self._operand(loop.upper, second=True)
            self.out.append(Step(Code.LE_I32, more, a=loop.iterator, b=upper))
            self.out.append(Step(Code.BRANCH, a=more, target=done))
            self._nest(send, guard, loops[1:])
            self.out.append(Step(Code.ADD_I32, loop.iterator, a=loop.iterator, b=Immediate(1)))
            self.out.append(Step(Code.JUMP, target=head))
            self._here(done)
            return
        self._block(send.condition_code)
        skip = self._label()
        if send.predicate is not None:
            if self._any(send.code):
                self.out.append(Step(Code.BRANCH, a=self._operand(send.predicate), target=skip))
            else:
                guard = send.predicate
        self._block(send.code)
        self._token(send, guard)
        self._here(skip)

    def _token(self, send: Send, guard: int | None) -> None:
        times: Operand | None = None
        constant: int | None = None
        match send.multiplicity:
            case FromRegister(register):
                constant = self._constant(register)
                if constant is None:
                    times = self._operand(register)
            case other:
                constant = getattr(other, "value", self.unbounded)
        places = [None if r is None else self._place(r) for r in send.index]
        one = SendStep(
            send, self._operand(send.value), None if guard is None else self._operand(guard), times, constant, places
        )
        self.out.append(Step(Code.SEND, send=one))


def _codes(send: Send) -> list[Sequence[Instruction]]:
    """All code of a send, in the order in which it runs."""
    return [*(loop.code for loop in send.loops), send.condition_code, send.code]


def _allocate(node: Node, steps: list[Step]) -> dict[int, int]:
    """A machine register for every register, by linear scan over the places where each is alive."""
    spans: dict[int, list[int]] = {}
    for place, step in enumerate(steps):
        for register in [*step.operands(), *([step.result] if step.result is not None else [])]:
            spans.setdefault(register, [place, place])[1] = place
    backs = [(s.target, place) for place, s in enumerate(steps) if s.target is not None and s.target <= place]
    changed = True
    while changed:  # what lives into a loop lives to its end
        changed = False
        for head, back in backs:
            for span in spans.values():
                if span[0] < head <= span[1] < back:
                    span[1] = back
                    changed = True
    registers: dict[int, int] = {}
    alive: list[tuple[int, int]] = []
    for register, (first, last) in sorted(spans.items(), key=lambda item: item[1]):
        # A result may take the register of an operand that is read for the last time by the same instruction.
        alive = [(end, number) for end, number in alive if end > first]
        free = set(range(MAX_REGISTERS)) - {number for _, number in alive}
        if not free:
            raise error(
                "UPL1710", f"node `{node.name}` needs more than {MAX_REGISTERS} registers at a time",
                help="split the node in two",
            )  # fmt: skip
        registers[register] = min(free)
        alive.append((last, registers[register]))
    return registers


def operand_number(operand: Operand | None, registers: dict[int, int]) -> int:
    """An operand as instructions and descriptors name it; 0 where there is none."""
    match operand:
        case int():
            return registers[operand]
        case InputOperand(number):
            return FIRST_INPUT + number
        case _:
            return 0
