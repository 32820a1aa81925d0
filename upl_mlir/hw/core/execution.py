"""The execution unit: contexts take turns, one instruction a cycle; results leave by one pipeline of fixed length.

A context runs the code of one activation. It issues its next instruction so late that this reads its registers when the one
before writes its result, so that no hazards exist inside a context; with as many contexts as the pipeline is long an
instruction issues every cycle.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.memory import Memory, ReadPort
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.alu import ITERATIVE, Alu, Code, compares, field_of
from upl_mlir.hw.core.layouts import (
    COUNT_BITS,
    COUNT_PLACE,
    FIRST_INPUT,
    OFFSET_BITS,
    REGISTER_BITS,
    Dimensions,
    Failure,
    activation_layout,
    instruction_layout,
    send_layout,
    token_layout,
)
from upl_mlir.hw.core.send import SendEngine, request_layout
from upl_mlir.hw.core.slices import Forward
from upl_mlir.hw.core.slow import SlowUnit
from upl_mlir.hw.fp.fma import FusedMultiplyAdd
from upl_mlir.hw.fp.model import BINARY32
from upl_mlir.hw.fp.pipelined import Adder, Multiplier
from upl_mlir.hw.ports import writes, written


def entry_layout(d: Dimensions) -> data.StructLayout:
    """Where a node's code begins; `any` is 0 if it has none. If `guarded` (a `Guard`) compares a field of the index (place,
    width) with a constant, that is so if it holds, and the other two say where it begins if not."""
    return data.StructLayout(
        {
            "any": 1,
            "pc": d.code_bits,
            "guarded": 3,
            "guard": OFFSET_BITS,
            "guard_width": OFFSET_BITS,
            "guard_constant": 32,
            "other_any": 1,
            "other_pc": d.code_bits,
        }
    )


def result_layout(d: Dimensions) -> data.StructLayout:
    """What travels with an operation: whether there is one, where its result goes, what is sent then, whether its
    context ends with it."""
    return data.StructLayout(
        {
            "valid": 1,
            "writes": 1,
            "sends": 1,  # then descriptors are sent
            "first": d.send_bits,
            "count": COUNT_BITS,
            "kind": 3,  # 0 the value beside it, 1 sum, 2 product, 3 a table's word
            "context": d.context_bits,
            "register": REGISTER_BITS,
            "last": 1,
            "value": 32,
        }
    )


class _Stages:
    """What the stages of the execution unit share. A vector with a bit for each context is said to be of contexts."""

    def __init__(self, d: Dimensions):
        n = d.contexts
        self.used = Signal(n)  # of contexts: which run an activation
        self.ready = Signal(n)  # of contexts: which may issue
        self.pcs = Array(Signal(d.code_bits, name=f"pc{c}") for c in range(n))
        self.activations = Memory(shape=activation_layout(d), depth=n, init=[])
        self.taking = Signal()  # an activation whose entry is being read
        self.begins = Signal(n)  # of contexts
        self.chosen = Signal(d.context_bits)
        self.fetching = Signal()
        self.fetched = Signal()
        self.fetched_context = Signal(d.context_bits)
        self.write = Signal(data.StructLayout({"en": 1, "address": d.context_bits + REGISTER_BITS, "value": 32}))
        self.failing_context = Signal(d.context_bits)
        self.executing, self.context = Signal(), Signal(d.context_bits, name="context")  # its operands are there
        self.code, self.tag = Signal(instruction_layout()), Signal(d.tag_bits, name="tag")
        self.a, self.b, self.c = Signal(32), Signal(32), Signal(32, name="c")
        self.operation = Signal(7)
        self.relative = Signal(33)  # the number of a table's word
        self.plain = Signal()  # leaves by the pipeline
        self.finished, self.ended = Signal(n), Signal(n, name="ended")  # of contexts: may issue again; are over


class _Units:
    """What computes: `alu` at once, the pipelines in `pass_cycles`, `slow` when it is done. `sends`: requests for tokens."""

    def __init__(self, d: Dimensions, m: Module):
        m.submodules.alu = self.alu = Alu(d.tag_bits)
        m.submodules.adder = self.adder = Adder(BINARY32, d.pass_cycles, result_layout(d).size)
        m.submodules.multiplier = self.multiplier = Multiplier(BINARY32, d.pass_cycles)
        m.submodules.fma = self.fma = FusedMultiplyAdd(BINARY32, d.pass_cycles)
        m.submodules.slow = self.slow = SlowUnit(d)
        # A context has at most one request: there is always room.
        m.submodules.sends = self.sends = SyncFIFO(width=request_layout(d).size, depth=d.contexts)


class Execution(wiring.Component):
    """activation (in stream), token (out stream): tokens to nodes and to the host.

    entry_*, code_*, send_*, table_*: writes to the memories. failure (out), failing_node, failing_tag (out): why and in
    which activation the unit has stopped; it goes on working until it is reset. idle (out). issuing, sending (out): an
    instruction, a token left in this cycle; full (out): no context was free for the activation that waits.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        super().__init__(
            {
                "activation": In(stream.Signature(activation_layout(d))),
                "token": Out(stream.Signature(token_layout(d))),
                **writes("entry", d.node_bits, entry_layout(d)),
                **writes("code", d.code_bits, instruction_layout()),
                **writes("send", d.send_bits, send_layout(d)),
                **writes("table", range(d.table_words), 32),
                "failure": Out(Failure),
                "failing_node": Out(d.node_bits),
                "failing_tag": Out(d.tag_bits),
                "idle": Out(1),
                "issuing": Out(1),
                "sending": Out(1),
                "full": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Take activations; choose a context; fetch; read; select operands; compute; write.

        Of an activation: cycle 0 it is taken and its node's entry read; cycle 1 it gets a context, which is ready in 2.
        Of an instruction, with p = `pass_cycles`:
        Cycle 0: its context is chosen (`fetching`), the address of its code goes to the memory.
        Cycle 1: the code is there (`fetched`); its registers are asked for.
        Cycle 2: registers and activation are there (`reading`); operands are selected.
        Cycle 3: it executes (`executing`): operations enter the pipeline, branches set the context's next address.
        Cycle 3 + p: its result is written. In cycle 2 + p its context may be chosen again: it reads registers in 3 + p.
        Divisions and the like leave the slow unit when they are done, in a cycle in which the pipeline writes nothing.
        """
        m = Module()
        s = _Stages(self.d)
        entry_read, code_read, table_read = self._memories(m)
        self._take(m, s, entry_read)
        self._choose(m, s, code_read)
        engine, activations = self._read(m, s, code_read.data)
        units = _Units(self.d, m)
        self._compute(m, s, units, table_read)
        word, soon = self._delay(m, s, table_read.data)
        self._write(m, s, units, word)
        self._continue(m, s, units, soon, engine)
        self._send(m, s, units, engine, activations)
        self._fail(m, s, units, engine, activations[3])
        m.d.comb += [self.idle.eq((s.used == 0) & ~s.taking & ~self.token.valid), self.issuing.eq(s.fetching)]
        return m

    def _memories(self, m: Module) -> list[ReadPort]:
        """Read ports of entries, code and tables; what is read comes a cycle later."""
        d = self.d
        memories = {
            "entries": (entry_layout(d), 1 << d.node_bits, "entry"),
            "codes": (instruction_layout(), d.code_words, "code"),
            "tables": (32, d.table_words, "table"),
        }
        made = []
        for name, (shape, depth, ports) in memories.items():
            m.submodules[name] = memory = Memory(shape=shape, depth=depth, init=[])
            written(m, memory, self, ports)
            made.append(memory.read_port())
        return made

    def _take(self, m: Module, s: _Stages, entry_read: ReadPort) -> None:
        """An activation, cycles 0 and 1: read the entry of its node; begin a context, unless there is no code for it."""
        d = self.d
        n = d.contexts
        m.submodules.activations = s.activations
        free = Signal(n)
        m.d.comb += free.eq(~s.used & (s.used + 1))  # the lowest free one
        taken = Signal(activation_layout(d))
        entry = entry_read.data
        holds, begins_at = Signal(), Signal(d.code_bits)
        m.d.comb += [
            holds.eq(compares(entry.guarded, field_of(taken.tag, entry.guard, entry.guard_width), entry.guard_constant)),
            begins_at.eq(Mux(holds, entry.pc, entry.other_pc)),
            self.activation.ready.eq((~s.used & ~Mux(s.taking, free, 0)).any()),
            self.full.eq(self.activation.valid & s.used.all()),
            entry_read.addr.eq(self.activation.payload.node),
        ]
        m.d.sync += s.taking.eq(self.activation.valid & self.activation.ready)
        with m.If(self.activation.ready):
            m.d.sync += taken.eq(self.activation.payload)
        begun = s.activations.write_port()
        m.d.comb += begun.data.eq(taken)
        with m.If(s.taking & Mux(holds, entry.any, entry.other_any)):
            m.d.comb += [s.begins.eq(free), begun.en.eq(1)]
            for c in range(n):
                with m.If(free[c]):
                    m.d.comb += begun.addr.eq(c)
                    m.d.sync += s.pcs[c].eq(begins_at)

    def _choose(self, m: Module, s: _Stages, code_read: ReadPort) -> None:
        """An instruction, cycle 0: of the next ready context after the one that issued last."""
        d = self.d
        n = d.contexts
        turn = Signal(d.context_bits)
        after = Signal(n)
        m.d.comb += after.eq(s.ready & ~((Const(2, n + 1) << turn) - 1)[:n])
        for c in reversed(range(n)):
            with m.If(s.ready[c]):
                m.d.comb += s.chosen.eq(c)
        for c in reversed(range(n)):
            with m.If(after[c]):
                m.d.comb += s.chosen.eq(c)
        m.d.comb += [s.fetching.eq(s.ready.any()), code_read.addr.eq(s.pcs[s.chosen])]
        with m.If(s.fetching):
            m.d.sync += turn.eq(s.chosen)
        m.d.sync += [s.fetched.eq(s.fetching), s.fetched_context.eq(s.chosen)]

    def _read(self, m: Module, s: _Stages, fetched_code: Value) -> tuple[SendEngine, list[Value]]:
        """Cycles 1 and 2: read registers; select operands. The send engine, and the activations of: the instruction, the
        descriptor that the engine has fetched, the token that it makes, a failure."""
        d = self.d
        read: dict[str, Value] = {}
        for name in ("a", "b", "c"):
            port = self._registers(m, name, s.write)
            m.d.comb += port.addr.eq(Cat(fetched_code[name][:REGISTER_BITS], s.fetched_context))
            read[name] = port.data
        m.submodules.engine = engine = SendEngine(d)
        reading, reading_context = Signal(), Signal(d.context_bits)  # its registers are there
        about = Signal(instruction_layout())
        m.d.sync += [reading.eq(s.fetched), reading_context.eq(s.fetched_context), about.eq(fetched_code)]
        now = Signal(activation_layout(d))
        reads = [s.activations.read_port(domain="comb") for _ in range(4)]
        places = (reading_context, engine.fetched_context, engine.context, s.failing_context)
        m.d.comb += [port.addr.eq(place) for port, place in zip(reads, places, strict=True)]
        m.d.comb += now.eq(reads[0].data)

        def operand(name: str) -> Value:
            number = about[name]
            picked = now["values"][number[: d.input_bits]]
            return Mux(number >= FIRST_INPUT, picked, read[name])

        m.d.sync += [
            s.executing.eq(reading), s.context.eq(reading_context), s.code.eq(about), s.tag.eq(now.tag),
            s.a.eq(operand("a")), s.b.eq(Mux(about.immediate_b, about.immediate, operand("b"))), s.c.eq(operand("c")),
        ]  # fmt: skip
        return engine, [port.data for port in reads]

    def _compute(self, m: Module, s: _Stages, units: _Units, table_read: ReadPort) -> None:
        """Cycle 3: operands go to the units, and with each operation what is to become of its result."""
        alu, adder, multiplier, fma, slow = units.alu, units.adder, units.multiplier, units.fma, units.slow
        operation, code, a, b, c = s.operation, s.code, s.a, s.b, s.c
        going = Signal(result_layout(self.d))
        m.d.comb += operation.eq(code.op)
        table_lower = Cat(code.b, code.c).as_signed()
        m.d.comb += s.relative.eq(a.as_signed() - table_lower)
        iterative = Signal()
        for one in ITERATIVE:
            with m.If(operation == one):
                m.d.comb += iterative.eq(1)
        m.d.comb += [
            s.plain.eq(s.executing & ~iterative & (operation != Code.BRANCH) & (operation != Code.JUMP)),
            going.writes.eq(operation != Code.SEND), going.sends.eq(code.sends),
            going.first.eq(code.immediate), going.count.eq(code.immediate[COUNT_PLACE:]),
            alu.code.eq(operation), alu.a.eq(a), alu.b.eq(b), alu.c.eq(c), alu.tag.eq(s.tag),
            alu.place.eq(code.a), alu.width.eq(code.b), alu.constant.eq(code.immediate),
            table_read.addr.eq(code.immediate[:16] + s.relative),
            going.valid.eq(s.plain), going.context.eq(s.context), going.register.eq(code.result), going.last.eq(code.last),
            going.value.eq(alu.result), going.kind.eq(0),
            adder.a.eq(a), adder.b.eq(Mux(operation == Code.SUB_F32, b ^ BINARY32.sign, b)), adder.pass_in.eq(going),
            multiplier.a.eq(a), multiplier.b.eq(b),
            fma.a.eq(a), fma.b.eq(Mux(operation == Code.FMA_F32, b, c)), fma.c.eq(Mux(operation == Code.FMA_F32, c, b)),
            slow.start.eq(s.executing & iterative), slow.code.eq(operation), slow.a.eq(a), slow.b.eq(b),
            slow.context.eq(s.context), slow.register.eq(code.result), slow.last.eq(code.last),
        ]  # fmt: skip
        with m.Switch(operation):
            with m.Case(Code.ADD_F32, Code.SUB_F32):
                m.d.comb += going.kind.eq(1)
            with m.Case(Code.MUL_F32):
                m.d.comb += going.kind.eq(2)
            with m.Case(Code.LOAD):
                m.d.comb += going.kind.eq(3)
            with m.Case(Code.FMA_F32, Code.FMC_F32):
                m.d.comb += going.kind.eq(4)

    def _delay(self, m: Module, s: _Stages, read: Value) -> tuple[Value, Value]:
        """Beside the pipeline: a table's word, there in cycle 3 + p; the context that may be chosen in cycle 2 + p."""
        d = self.d
        # A word of a table comes a cycle later than what is computed here, and is taken along from there.
        word: Value = read
        for stage in range(d.pass_cycles - 1):
            delayed = Signal(32, name=f"word{stage}")
            m.d.sync += delayed.eq(word)
            word = delayed

        # Two cycles before its result is written a context may be chosen again: by then it reads its registers, which see
        # the write.
        soon: Value = Mux(s.plain & ~s.code.sends & ~s.code.last, 1 << s.context, 0)[: d.contexts]
        for stage in range(d.pass_cycles - 2):
            delayed = Signal(d.contexts, name=f"soon{stage}")
            m.d.sync += delayed.eq(soon)
            soon = delayed
        return word, soon

    def _write(self, m: Module, s: _Stages, units: _Units, word: Value) -> None:
        """Cycle 3 + p: the result goes to its register, what is to be sent to the queue of requests; the slow unit has the
        cycles that are left."""
        adder, multiplier, fma, slow, sends = units.adder, units.multiplier, units.fma, units.slow, units.sends
        out = Signal(result_layout(self.d))
        m.d.comb += out.eq(adder.pass_out)
        request = Signal(request_layout(self.d))
        m.d.comb += sends.w_data.eq(request)
        with m.If(out.valid):
            m.d.comb += [
                s.write.en.eq(out.writes), s.write.address.eq(Cat(out.register, out.context)),
                s.write.value.eq(Mux(out.kind == 1, adder.result, Mux(out.kind == 2, multiplier.result,
                                 Mux(out.kind == 3, word, Mux(out.kind == 4, fma.result, out.value))))),
                s.ended.eq(Mux(out.last & ~out.sends, 1 << out.context, 0)),
                sends.w_en.eq(out.sends), request.context.eq(out.context), request.send.eq(out.first),
                request.count.eq(out.count), request.last.eq(out.last),
            ]  # fmt: skip
        with m.Elif(slow.valid):
            m.d.comb += [
                slow.take.eq(1), s.write.en.eq(1), s.write.address.eq(Cat(slow.out_register, slow.out_context)),
                s.write.value.eq(slow.result), s.finished.eq(1 << slow.out_context),
                s.ended.eq(Mux(slow.out_last, 1 << slow.out_context, 0)),
            ]  # fmt: skip

    def _continue(self, m: Module, s: _Stages, units: _Units, soon: Value, engine: SendEngine) -> None:
        """Cycle 3: branches, and the next instruction of each context. Then, which contexts are used and ready."""
        n = self.d.contexts
        branching, follows = Signal(n), Signal(n)
        branch = s.executing & ((s.operation == Code.JUMP) | (s.operation == Code.BRANCH))
        taken_branch = (s.operation == Code.JUMP) | ~s.a[0]
        with m.If(branch):
            m.d.comb += branching.eq(1 << s.context)
        with m.If(s.executing & ~(branch & taken_branch)):
            m.d.comb += follows.eq(1 << s.context)
        for k in range(n):
            with m.If(branching[k] & taken_branch):
                m.d.sync += s.pcs[k].eq(s.code.immediate)
            with m.Elif(follows[k]):
                m.d.sync += s.pcs[k].eq(s.pcs[k] + 1)
        over = Signal(n)
        m.d.comb += over.eq(s.ended | engine.ended | Mux(s.code.last, branching, 0))
        leaves = Signal(n)
        m.d.comb += leaves.eq(Mux(s.fetching, 1 << s.chosen, 0))
        again = units.slow.refused  # the unit was busy: the same instruction once more
        begun = (s.ready & ~leaves) | s.begins | soon | s.finished | engine.finished | branching
        m.d.sync += [s.used.eq((s.used | s.begins) & ~over), s.ready.eq((begun & ~over) | again)]
        with m.If(again.any()):
            for k in range(n):
                with m.If(again[k]):
                    m.d.sync += s.pcs[k].eq(s.pcs[k])

    def _send(self, m: Module, s: _Stages, units: _Units, engine: SendEngine, activations: list[Value]) -> None:
        """From cycle 3 + p: requests wait for the send engine; its tokens leave through a slice that cuts the paths."""
        sends = units.sends
        m.d.comb += [
            engine.request.valid.eq(sends.r_rdy), sends.r_en.eq(engine.request.ready),
            engine.request.payload.as_value().eq(sends.r_data),
            engine.send_en.eq(self.send_en), engine.send_address.eq(self.send_address),
            engine.send_data.eq(self.send_data), engine.activation.eq(activations[2]),
            engine.fetched_tag.eq(activations[1].tag), engine.table_en.eq(self.table_en),
            engine.table_address.eq(self.table_address), engine.table_data.eq(self.table_data),
        ]  # fmt: skip
        for number, request in enumerate(engine.reads):
            port = self._registers(m, f"send{number}", s.write)
            m.d.comb += [port.addr.eq(request.address), port.en.eq(request.en), request.value.eq(port.data)]
        m.submodules.leaving = leaving = Forward(token_layout(self.d))
        wiring.connect(m, engine.token, leaving.source)
        wiring.connect(m, leaving.target, wiring.flipped(self.token))
        m.d.comb += self.sending.eq(self.token.valid & self.token.ready)

    def _fail(self, m: Module, s: _Stages, units: _Units, engine: SendEngine, activation: Value) -> None:
        """The first failure is kept, with the node and the index of its activation; of several in a cycle the instruction's
        counts, then the slow unit's, then the token's."""
        alu, slow = units.alu, units.slow
        failing = Signal(Failure)
        m.d.comb += s.failing_context.eq(s.context)
        with m.If(s.plain & (alu.failure != Failure.NONE)):
            m.d.comb += failing.eq(alu.failure)
        with m.Elif(s.executing & (s.operation == Code.LOAD) & (s.relative >= s.code.immediate[16:])):
            m.d.comb += failing.eq(Failure.TABLE)
        with m.Elif(slow.failure != Failure.NONE):
            m.d.comb += [failing.eq(slow.failure), s.failing_context.eq(slow.out_context)]
        with m.Elif(engine.failure != Failure.NONE):
            m.d.comb += [failing.eq(engine.failure), s.failing_context.eq(engine.context)]
        with m.If((self.failure == Failure.NONE) & (failing != Failure.NONE)):
            m.d.sync += [
                self.failure.eq(failing),
                self.failing_node.eq(activation.node),
                self.failing_tag.eq(activation.tag),
            ]

    def _registers(self, m: Module, name: str, write: Value) -> ReadPort:
        """A copy of the register file with a read port of its own."""
        d = self.d
        m.submodules[f"registers_{name}"] = memory = Memory(shape=32, depth=d.contexts << REGISTER_BITS, init=[])
        port = memory.write_port()
        m.d.comb += [port.en.eq(write.en), port.addr.eq(write.address), port.data.eq(write.value)]
        return memory.read_port(transparent_for=(port,))
