"""From the code of a node to instructions and send descriptors of the core: operands, jumps, registers.

The image's code is in single assignment. Constants become immediates, inputs are read where they lie, and an index that
is a field or a register plus a constant is left to the send engine; only what remains becomes instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from upl_mlir.diagnostics import error
from upl_mlir.hw.core.alu import ITERATIVE, Code
from upl_mlir.hw.core.code.functions import FUNCTIONS, Bits, lines_of
from upl_mlir.hw.core.code.index_values import CONSTANTS, FieldGuard, IndexValues, InputOperand, Place, code_of
from upl_mlir.hw.core.code.outcomes import comparisons, given
from upl_mlir.hw.core.layouts import FIRST_INPUT, MAX_REGISTERS, MOST_SENDS
from upl_mlir.hw.execute import to_bits
from upl_mlir.hw.image import Node
from upl_mlir.hw.microcode import FromRegister, Instruction, Loop, Op, Send

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

@dataclass(frozen=True)
class Immediate:
    """32 bits in the instruction."""

    bits: int


Operand = int | InputOperand | Immediate
"""Where a value comes from; an integer is a register of the image's code, negative for one that was made up here."""


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
    sends: tuple[SendStep, ...] = ()
    last: bool = False

    def sent(self) -> list[Operand | None]:
        """What the sends read."""
        found: list[Operand | None] = []
        for send in self.sends:
            guard = None if isinstance(send.guard, FieldGuard) else send.guard
            found += [send.value, guard, send.times, *(p.operand for p in send.places if p)]
        return found


@dataclass
class SendStep:
    """A send descriptor before registers are known; `places` has None for `*`. Of `times` (an operand), `table` (number of a
    constant array, and the field and constant that say where) and `constant_times` one is the multiplicity."""

    send: Send
    value: Operand
    guard: Operand | FieldGuard | None
    times: Operand | None
    table: tuple[int, Place] | None
    constant_times: int | None
    places: list[Place | None]


@dataclass
class NodeCode:
    """What a node becomes: its steps, and the machine register of each register of the image's code."""

    steps: list[Step]
    registers: dict[int, int]

    @property
    def descriptors(self) -> int:
        """Send descriptors."""
        return sum(len(step.sends) for step in self.steps)

    @property
    def slots(self) -> int:
        """Turns of the execution unit and of the send engine, of straight-line code."""
        return len(self.steps) + self.descriptors


def compile_node(node: Node, unbounded: int) -> NodeCode:
    """The code of a node; no steps if it sends nothing.

    Raises `UplError`: UPL1710 more registers than a context has.
    """
    if not node.sends:
        return NodeCode([], {})
    steps = _Compiler(node, unbounded, IndexValues(node)).steps()
    return NodeCode(steps, _allocate(node, steps))


@dataclass
class Outcomes:
    """The code of a node for either outcome of a comparison."""

    guard: FieldGuard
    true: NodeCode
    false: NodeCode

    @property
    def codes(self) -> tuple[NodeCode, NodeCode]:
        """Both."""
        return self.true, self.false


def compile_outcomes(node: Node, unbounded: int, whole: NodeCode) -> Outcomes | None:
    """The code of a node divided by the comparison that saves most; None if none saves anything against `whole`."""
    best, least = None, 2 * whole.slots
    for guard in comparisons(node):
        true, false = (compile_node(given(node, guard, holds=holds), unbounded) for holds in (True, False))
        if true.slots + false.slots < least:
            best, least = Outcomes(guard, true, false), true.slots + false.slots
    return best


@dataclass
class _Compiler:
    node: Node
    unbounded: int
    values: IndexValues
    needed: set[int] = field(default_factory=set[int])
    out: list[Step] = field(default_factory=list[Step])
    labels: dict[int, int] = field(default_factory=dict[int, int])
    fresh: int = -1

    def steps(self) -> list[Step]:
        """Everything in order; labels become places."""
        for send in self.node.sends:
            self._need_send(send)
        self._block(self.node.body)
        for send in self.node.sends:
            self._send(send)
        ends = {self.labels[s.target] for s in self.out if s.target is not None}
        if len(self.out) in ends or self.out[-1].code in (Code.JUMP, Code.BRANCH):
            self.out.append(Step(Code.MOVE, result=self._new(), b=Immediate(0)))
        self._join_sends()
        self.out[-1].last = True
        for step in self.out:
            if step.target is not None:
                step.target = self.labels[step.target]
        return self.out

    # -- what must be computed
    def _need_send(self, send: Send) -> None:
        self._need(send.value)
        if send.predicate is not None:
            self._need(send.predicate)
        for loop in send.loops:
            self._need(loop.lower, second=True)
            self._need(loop.upper, second=True)
        if isinstance(send.multiplicity, FromRegister):
            register = send.multiplicity.register
            if self._said(register) is None and self.values.table(register) is None:
                self._need(register)
        for register in send.index:
            if register is not None:
                operand = self.values.place(register).operand
                if isinstance(operand, int):
                    self._need(operand)
        if send.guard is not None and (self._branches(send) or self.values.field_guard(send.guard) is None):
            self._need(send.guard)

    def _said(self, register: int) -> int | None:
        """A multiplicity that is known beforehand, and one that a token may have: others are an error where it is sent."""
        number = self.values.constant(register)
        return number if number is not None and 1 <= number < self.unbounded else None

    def _branches(self, send: Send) -> bool:
        """Whether a false guard jumps over code."""
        return any(self._any(code) for code in code_of(send)) or bool(send.loops) or send.predicate is not None

    def _join_sends(self) -> None:
        """Sends one after the other become one; it joins the instruction before it, if that has no immediate."""
        starts = {self.labels[s.target] for s in self.out if s.target is not None}
        out: list[Step] = []
        moved: list[int] = []
        for place, step in enumerate(self.out):
            before = out[-1] if out and place not in starts else None
            joins = before is not None and step.code is Code.SEND and (
                len(before.sends) < MOST_SENDS
                if before.sends
                else before.result is not None and not isinstance(before.b, Immediate)
                and before.code not in (*ITERATIVE, Code.FIELD, Code.LOAD)
            )  # fmt: skip
            if joins and before is not None:
                before.sends += step.sends
            else:
                out.append(step)
            moved.append(len(out) - 1)
        moved.append(len(out))
        self.labels = {label: moved[place] for label, place in self.labels.items()}
        self.out = out

    def _need(self, register: int, second: bool = False) -> None:
        """A register is read: by an operand, or by the second one, which may be a constant."""
        step = self.values.definitions.get(register)
        if step is None or step.op is Op.INPUT or register in self.needed:
            return  # an iterator is set by its loop
        if second and step.op in CONSTANTS:
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
        if _CODES.get(step.op) in _COMMUTATIVE and self.values.constant(a) is not None:
            a, b = b, a
        return a, b, None

    # -- code
    def _new(self) -> int:
        self.fresh -= 1
        return self.fresh

    def _label(self) -> int:
        return self._new()

    def _here(self, label: int) -> None:
        self.labels[label] = len(self.out)

    def _operand(self, register: int, second: bool = False) -> Operand:
        step = self.values.definitions.get(register)
        if step is not None and step.op is Op.INPUT:
            assert step.immediate is not None
            return InputOperand(int(step.immediate))
        if second and step is not None and step.op in CONSTANTS:
            assert step.immediate is not None
            return Immediate(to_bits(step.immediate, CONSTANTS[step.op]))
        return register

    def _block(self, code: Iterable[Instruction]) -> None:
        for step in code:
            if step.result in self.needed:
                self._instruction(step)

    def _any(self, code: Iterable[Instruction]) -> bool:
        return any(step.result in self.needed for step in code)

    def _instruction(self, step: Instruction) -> None:
        if step.op in CONSTANTS:
            assert step.immediate is not None
            bits = to_bits(step.immediate, CONSTANTS[step.op])
            self.out.append(Step(Code.MOVE, step.result, b=Immediate(bits)))
            return
        if step.op is Op.FIELD:
            assert step.immediate is not None
            self.out.append(Step(Code.FIELD, step.result, index_field=self._readable(int(step.immediate))))
            return
        a, b, c = self._ordered(step)
        places = [None if r is None else self._operand(r, second=n == 1) for n, r in enumerate((a, b, c))]
        if step.op is Op.BOOL_TO_I32:
            self.out.append(Step(Code.MOVE, step.result, b=places[1]))
            return
        if step.op in FUNCTIONS:
            self._function(step, [p for p in places if p is not None])
            return
        table = None
        if step.op is Op.LDTAB:
            assert step.immediate is not None
            table = int(step.immediate)
        self.out.append(Step(_CODES[step.op], step.result, places[0], places[1], places[2], table=table))

    def _readable(self, number: int) -> int:
        """The number of a field whose values are integers of the machine.  `UplError` UPL1731 for another one."""
        f = self.node.fields[number]
        last = f.bias + (1 << f.bits) - 1
        if f.bias < -(1 << 31) or last >= 1 << 31:
            what = f"the field `{f.name}` of `{self.node.name}` has values from {f.bias} to {last} in its {f.bits} bits"
            raise error("UPL1731", f"{what}; to compute with, the machine has 32-bit integers", self.node.span)
        return number

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
        end = self._label()
        guard = send.guard
        if guard is not None and self._branches(send):
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
        table: tuple[int, Place] | None = None
        match send.multiplicity:
            case FromRegister(register):
                constant = self._said(register)
                table = self.values.table(register)
                if constant is None and table is None:
                    times = self._operand(register)
            case other:
                constant = getattr(other, "value", self.unbounded)
        places = [None if r is None else self.values.place(r) for r in send.index]
        tested: Operand | FieldGuard | None = None
        if guard is not None:
            tested = self.values.field_guard(guard) if guard not in self.needed else None
            tested = tested or self._operand(guard)
        one = SendStep(send, self._operand(send.value), tested, times, table, constant, places)
        self.out.append(Step(Code.SEND, sends=(one,)))


def _allocate(node: Node, steps: list[Step]) -> dict[int, int]:
    """A machine register for every register, by linear scan over the places where each is alive."""
    spans: dict[int, list[int]] = {}
    for place, step in enumerate(steps):
        # What is sent is read after the result is written.
        for time, used in ((2 * place, [step.a, step.b, step.c]), (2 * place, [step.result]), (2 * place + 1, step.sent())):
            for register in used:
                if isinstance(register, int):
                    spans.setdefault(register, [time, time])[1] = time
    backs = [(2 * s.target, 2 * place) for place, s in enumerate(steps) if s.target is not None and s.target <= place]
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
                "UPL1710", f"node `{node.name}` needs more than {MAX_REGISTERS} registers at a time", node.span,
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
