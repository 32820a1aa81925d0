"""From a `ttm` program to a program image: symbols become numbers, SSA values become registers.

The image's node table, microcode and send descriptors are what the program says, one for one; nothing is decided here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, DenseArrayBase, FloatAttr, IntegerAttr, IntegerType, ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.dialects import ttm
from upl_mlir.dialects.ttm.query import host_inputs, machine_program, nodes, outputs, table_values, tables
from upl_mlir.dialects.upl.gathers import Gather
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.hw import microcode
from upl_mlir.hw.image import BootToken, HostOutput, IndexField, Input, Node, ProgramImage, Table, layout_fields
from upl_mlir.hw.microcode import Op, ValueType
from upl_mlir.ops import FUNCTIONS

_CODES = {op.value: op for op in Op}
OPERATIONS: dict[type[Operation], Op] = {
    arith.AddfOp: Op.ADD_F32, arith.SubfOp: Op.SUB_F32, arith.MulfOp: Op.MUL_F32, arith.DivfOp: Op.DIV_F32,
    arith.NegfOp: Op.NEG_F32, arith.MinimumfOp: Op.MIN_F32, arith.MaximumfOp: Op.MAX_F32,
    **{f.op: _CODES[code] for f in FUNCTIONS if (code := f"{f.name}.f32") in _CODES},
    math.PowFOp: Op.POW_F32, math.AbsFOp: Op.ABS_F32, math.FloorOp: Op.FLOOR_F32,
    ttm.SigmoidOp: Op.SIGMOID_F32,
    arith.AddiOp: Op.ADD_I32, arith.SubiOp: Op.SUB_I32, arith.MuliOp: Op.MUL_I32,
    arith.FloorDivSIOp: Op.FLOORDIV_I32, arith.CeilDivSIOp: Op.CEILDIV_I32, ttm.ModOp: Op.MOD_I32,
    arith.MinSIOp: Op.MIN_I32, arith.MaxSIOp: Op.MAX_I32, math.AbsIOp: Op.ABS_I32,
    arith.AndIOp: Op.AND_BOOL, arith.OrIOp: Op.OR_BOOL, arith.XOrIOp: Op.XOR_BOOL,
    arith.SelectOp: Op.SELECT, arith.SIToFPOp: Op.I32_TO_F32, arith.FPToSIOp: Op.F32_TO_I32,
    arith.ExtUIOp: Op.BOOL_TO_I32, arith.UIToFPOp: Op.BOOL_TO_F32,
}  # fmt: skip

# by the numbers that `arith` gives its predicates
_CMPI = (Op.EQ_I32, Op.NE_I32, Op.LT_I32, Op.LE_I32, Op.GT_I32, Op.GE_I32)
_CMPF = {1: Op.EQ_F32, 2: Op.GT_F32, 3: Op.GE_F32, 4: Op.LT_F32, 5: Op.LE_F32, 13: Op.NE_F32}


def ttm_program(module: ModuleOp) -> ttm.ProgramOp:
    """The machine program of a module.  Raises UplError (UPL1734) if it has not been lowered."""
    program = machine_program(module)
    if program is None:
        raise error("UPL1734", "the module holds no program for the machine", help="run --lower-hw first")
    return program


def assemble(program: ttm.ProgramOp) -> tuple[ProgramImage, dict[str, Node]]:
    """The image, and the host inputs by name: nodes with one input whose code the host runs for every element.

    The image has no domains: they may be large, and `direct` alone asks for them (`hw/direct/domains.py`).
    """
    assembler = _Assembler(program)
    return assembler.image(), assembler.hosts()


class _Assembler:
    def __init__(self, program: ttm.ProgramOp):
        self.program = program
        self.nodes = nodes(program)
        self.outputs = outputs(program)
        self.tables = tables(program)
        self.boots = [op for op in program.body.block.ops if isinstance(op, ttm.BootOp)]
        self.node_number = {op.symbol: n for n, op in enumerate(self.nodes)}
        self.output_number = {op.symbol: n for n, op in enumerate(self.outputs)}
        self.table_number = {op.symbol: n for n, op in enumerate(self.tables)}

    def image(self) -> ProgramImage:
        return ProgramImage(
            self.program.sym_name.data,
            tuple(self._node(op) for op in self.nodes),
            tuple(self._output(op) for op in self.outputs),
            tuple(self._table(op) for op in self.tables),
            tuple(self._boot(op) for op in self.boots),
            streams=self._streams(),
        )

    def _streams(self) -> tuple[dict[str, int], ...]:
        """For each field along which the program streams, its number in the nodes that have it."""
        fields = {op.symbol: [f.name for f in op.fields] for op in self.nodes}
        streams = () if self.program.streams is None else self.program.streams.data
        return tuple({node: there.index(name) for node, there in fields.items() if name in there} for name in streams)

    def hosts(self) -> dict[str, Node]:
        return {op.symbol: self._node(op) for op in host_inputs(self.program)}

    @staticmethod
    def _output(op: ttm.OutputOp) -> HostOutput:
        layout = _layout(op.fields)
        return HostOutput(op.symbol, tuple(f.name for f in op.fields), _value_type(op.element), layout)

    @staticmethod
    def _table(op: ttm.TableOp) -> Table:
        values = table_values(op)
        return Table(op.symbol, _value_type(op.element), (op.lower.value.data,), (len(values),), values)

    def _boot(self, op: ttm.BootOp) -> BootToken:
        node = self.node_number[op.target.root_reference.data]
        ports = self.nodes[node].ports
        number = [p.name for p in ports].index(op.target.nested_references.data[0].data)
        index = tuple(cast("DenseArrayBase[IntegerType]", op.index).get_values())
        gather = ports[number].gather
        assert gather is not None  # says the verifier
        rank = None if op.rank is None else op.rank.value.data
        return BootToken(node, number, index, _identity(gather, _value_type(ports[number].type)), rank)

    def _node(self, op: ttm.NodeOp) -> Node:
        fields = op.fields
        inputs = tuple(Input(p.name, _value_type(p.type), p.gather, p.open) for p in op.ports)
        code = _Code(self)
        for n in range(len(fields)):
            code.register(op.body.block.args[n], Op.FIELD, n)
        for n in range(len(inputs)):
            code.register(op.body.block.args[len(fields) + n], Op.INPUT, n)
        sends = code.block(op.body.block)
        return Node(op.symbol, _layout(fields), inputs, tuple(code.written), tuple(sends), span_of(op))


@dataclass
class _Code:
    """Registers of one node and the code of the block being read; nested blocks share the registers."""

    assembler: _Assembler
    registers: dict[SSAValue, microcode.Register] = field(default_factory=dict[SSAValue, microcode.Register])
    written: list[microcode.Instruction] = field(default_factory=list[microcode.Instruction])

    def register(self, value: SSAValue, op: Op, immediate: int | float | bool | None, *operands: microcode.Register) -> None:
        number = len(self.registers)
        self.registers[value] = number
        self.written.append(microcode.Instruction(number, op, operands, immediate))

    def block(self, block: Block) -> list[microcode.Send]:
        """Read a block: its instructions go to `written`, its arrows come back."""
        sends: list[microcode.Send] = []
        for op in block.ops:
            match op:
                case ttm.SendOp():
                    sends.append(self._send(op))
                case ttm.WhenOp():
                    sends += self._when(op)
                case ttm.ForOp():
                    sends += self._for(op)
                case _:
                    self._instruction(op)
        return sends

    def _nested(self, block: Block) -> tuple[list[microcode.Instruction], list[microcode.Send]]:
        inner = _Code(self.assembler, self.registers)
        sends = inner.block(block)
        return inner.written, sends

    def _when(self, op: ttm.WhenOp) -> list[microcode.Send]:
        """A condition round arrows: the guard of each; inside a loop nest it is the condition of the point."""
        written, sends = self._nested(op.body.block)
        condition = self.registers[op.condition]
        inside = isinstance(op.parent_op(), ttm.ForOp)
        out: list[microcode.Send] = []
        for s in sends:
            if inside:
                out.append(replace(s, predicate=condition, code=(*written, *s.code)))
            elif s.loops:
                first = replace(s.loops[0], code=(*written, *s.loops[0].code))
                out.append(replace(s, guard=condition, loops=(first, *s.loops[1:])))
            else:
                out.append(replace(s, guard=condition, code=(*written, *s.code)))
        return out

    def _for(self, op: ttm.ForOp) -> list[microcode.Send]:
        iterator = len(self.registers)
        self.registers[op.body.block.args[0]] = iterator
        written, sends = self._nested(op.body.block)
        loop = microcode.Loop(iterator, self.registers[op.lo], self.registers[op.hi])
        out: list[microcode.Send] = []
        for s in sends:
            if s.loops:  # what is computed between two loops belongs to the inner one
                inner = replace(s.loops[0], code=(*written, *s.loops[0].code))
                out.append(replace(s, loops=(loop, inner, *s.loops[1:])))
            elif s.predicate is not None:
                out.append(replace(s, loops=(loop,), condition_code=tuple(written)))
            else:
                out.append(replace(s, loops=(loop,), code=(*written, *s.code)))
        return out

    def _send(self, op: ttm.SendOp) -> microcode.Send:
        a = self.assembler
        name = op.target.root_reference.data
        nested = op.target.nested_references.data
        target: microcode.ToNode | microcode.ToHost
        if nested:
            node = a.node_number[name]
            ports = [p.name for p in a.nodes[node].ports]
            target = microcode.ToNode(node, ports.index(nested[0].data))
        else:
            target = microcode.ToHost(a.output_number[name])
        tag = iter(op.tag)
        index = tuple(None if c == "*" else self.registers[next(tag)] for c in op.pattern.data)
        times: microcode.Multiplicity = microcode.Constant(1)
        if op.unbounded is not None:
            times = microcode.Unbounded()
        elif op.multiplicity is not None:
            times = self._times(op.multiplicity)
        return microcode.Send(target, self.registers[op.value], index, times, present=op.present is not None)

    def _times(self, of: SSAValue) -> microcode.Multiplicity:
        """A multiplicity that the text says is checked before the run; one below 1 is an error where the token is sent."""
        op = of.owner
        if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr) and op.value.value.data >= 1:
            return microcode.Constant(op.value.value.data)
        return microcode.FromRegister(self.registers[of])

    def _instruction(self, op: Operation) -> None:
        result = op.results[0]
        operands = [self.registers[o] for o in op.operands]
        match op:
            case arith.ConstantOp():
                self._constant(op)
            case arith.CmpiOp():
                self._compare_integers(op, operands)
            case arith.CmpfOp():
                predicate = _CMPF.get(op.predicate.value.data)
                if predicate is None:
                    raise error("UPL1735", "the machine has no such comparison of reals", span_of(op))
                self.register(result, predicate, None, *operands)
            case ttm.LoadOp():
                table = self.assembler.table_number[op.symbol.root_reference.data]
                self._readable(self.assembler.tables[table], op)
                self.register(result, Op.LDTAB, table, *operands)
            case _:
                if type(op) not in OPERATIONS:
                    raise error("UPL1735", f"the machine has no operation for `{op.name}` yet", span_of(op))
                self.register(result, OPERATIONS[type(op)], None, *operands)

    @staticmethod
    def _readable(table: ttm.TableOp, at: Operation) -> None:
        """UPL1731 for a read of an array with an entry that is no integer of the machine; domains may read it."""
        wide = [v for v in table_values(table) if not -(2**31) <= v < 2**31]
        if wide and _value_type(table.element) is ValueType.I32:
            message = f"an entry of `{table.symbol}` is {wide[0]}, which does not fit the machine's 32-bit integers"
            raise error("UPL1731", message, span_of(at))

    def _constant(self, op: arith.ConstantOp) -> None:
        value = op.value
        assert isinstance(value, FloatAttr | IntegerAttr)
        kind = _value_type(value.type)
        ops = {ValueType.F32: Op.CONST_F32, ValueType.I32: Op.CONST_I32, ValueType.BOOL: Op.CONST_BOOL}
        number = value.value.data
        self.register(op.result, ops[kind], bool(number) if kind is ValueType.BOOL else number)

    def _compare_integers(self, op: arith.CmpiOp, operands: list[microcode.Register]) -> None:
        n = op.predicate.value.data
        if n >= len(_CMPI):
            raise error("UPL1735", "the machine has no unsigned comparison", span_of(op))
        if op.lhs.type == IntegerType(1):  # on booleans: == and != are xor
            if _CMPI[n] not in (Op.EQ_I32, Op.NE_I32):
                raise error("UPL1735", "the machine has no order on booleans", span_of(op))
            if _CMPI[n] is Op.NE_I32:
                self.register(op.result, Op.XOR_BOOL, None, *operands)
                return
            differ = len(self.registers)
            self.written.append(microcode.Instruction(differ, Op.XOR_BOOL, tuple(operands)))
            self.registers[_Anonymous().result] = differ
            self.register(op.result, Op.NOT_BOOL, None, differ)
            return
        self.register(op.result, _CMPI[n], None, *operands)


class _Anonymous:
    """A register that no SSA value of the module names."""

    def __init__(self) -> None:
        self.result: SSAValue = Block(arg_types=[IntegerType(1)]).args[0]


def _layout(fields: tuple[ttm.Field, ...]) -> tuple[IndexField, ...]:
    return layout_fields([(f.name, f.bias, f.last) for f in fields])


def _value_type(t: Attribute) -> ValueType:
    if isinstance(t, AnyFloat):
        return ValueType.F32
    assert isinstance(t, IntegerType)
    return ValueType.BOOL if t.width.data == 1 else ValueType.I32


def _identity(op: Gather, kind: ValueType) -> float | int | bool:
    """The value of a gather without summands."""
    match kind:
        case ValueType.F32:
            return float(op.empty)
        case ValueType.I32:
            return op.empty_integer(-(2**31), 2**31 - 1)
        case ValueType.BOOL:
            return bool(op.empty)
