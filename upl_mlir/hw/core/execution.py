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
from upl_mlir.hw.fp.units import Adder, Multiplier


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
                "entry_en": In(1),
                "entry_address": In(d.node_bits),
                "entry_data": In(entry_layout(d)),
                "code_en": In(1),
                "code_address": In(d.code_bits),
                "code_data": In(instruction_layout()),
                "send_en": In(1),
                "send_address": In(d.send_bits),
                "send_data": In(send_layout(d)),
                "table_en": In(1),
                "table_address": In(range(d.table_words)),
                "table_data": In(32),
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
        """Take activations; choose a context; fetch; read; select operands; compute; write."""
        d = self.d
        m = Module()
        n = d.contexts
        memories = {
            "entries": (entry_layout(d), 1 << d.node_bits, self.entry_en, self.entry_address, self.entry_data),
            "codes": (instruction_layout(), d.code_words, self.code_en, self.code_address, self.code_data),
            "tables": (32, d.table_words, self.table_en, self.table_address, self.table_data),
        }
        made = {}
        for name, (shape, depth, enable, address, written) in memories.items():
            m.submodules[name] = memory = Memory(shape=shape, depth=depth, init=[])
            port = memory.write_port()
            m.d.comb += [port.en.eq(enable), port.addr.eq(address), port.data.eq(written)]
            made[name] = memory.read_port()
        entry_read, code_read, table_read = made["entries"], made["codes"], made["tables"]

        # ---- contexts
        used = Signal(n)
        ready = Signal(n)
        pcs = Array(Signal(d.code_bits, name=f"pc{c}") for c in range(n))
        m.submodules.activations = activations = Memory(shape=activation_layout(d), depth=n, init=[])
        free = Signal(n)
        m.d.comb += free.eq(~used & (used + 1))  # the lowest free one
        taking = Signal()  # an activation whose entry is being read
        taken = Signal(activation_layout(d))
        begins = Signal(n)
        entry = entry_read.data
        holds, begins_at = Signal(), Signal(d.code_bits)
        m.d.comb += [
            holds.eq(compares(entry.guarded, field_of(taken.tag, entry.guard, entry.guard_width), entry.guard_constant)),
            begins_at.eq(Mux(holds, entry.pc, entry.other_pc)),
            self.activation.ready.eq((~used & ~Mux(taking, free, 0)).any()),
            self.full.eq(self.activation.valid & used.all()),
            entry_read.addr.eq(self.activation.payload.node),
        ]
        m.d.sync += taking.eq(self.activation.valid & self.activation.ready)
        with m.If(self.activation.ready):
            m.d.sync += taken.eq(self.activation.payload)
        begun = activations.write_port()
        m.d.comb += begun.data.eq(taken)
        with m.If(taking & Mux(holds, entry.any, entry.other_any)):
            m.d.comb += [begins.eq(free), begun.en.eq(1)]
            for c in range(n):
                with m.If(free[c]):
                    m.d.comb += begun.addr.eq(c)
                    m.d.sync += pcs[c].eq(begins_at)

        # ---- choose: the next ready context after the last one
        turn = Signal(d.context_bits)
        chosen = Signal(d.context_bits)
        after = Signal(n)
        m.d.comb += after.eq(ready & ~((Const(2, n + 1) << turn) - 1)[:n])
        for c in reversed(range(n)):
            with m.If(ready[c]):
                m.d.comb += chosen.eq(c)
        for c in reversed(range(n)):
            with m.If(after[c]):
                m.d.comb += chosen.eq(c)
        fetching = Signal()
        m.d.comb += [fetching.eq(ready.any()), code_read.addr.eq(pcs[chosen])]
        with m.If(fetching):
            m.d.sync += turn.eq(chosen)
        fetched = Signal()
        fetched_context = Signal(d.context_bits)
        m.d.sync += [fetched.eq(fetching), fetched_context.eq(chosen)]

        # ---- read registers
        writes = data.StructLayout({"en": 1, "address": d.context_bits + REGISTER_BITS, "value": 32})
        write = Signal(writes)
        fetched_code = code_read.data
        read: dict[str, Value] = {}
        for name in ("a", "b", "c"):
            port = self._registers(m, name, write)
            m.d.comb += port.addr.eq(Cat(fetched_code[name][:REGISTER_BITS], fetched_context))
            read[name] = port.data
        m.submodules.engine = engine = SendEngine(d)
        failing_context = Signal(d.context_bits)
        reading, reading_context = Signal(), Signal(d.context_bits)  # its registers are there
        about = Signal(instruction_layout())
        m.d.sync += [reading.eq(fetched), reading_context.eq(fetched_context), about.eq(fetched_code)]
        now = Signal(activation_layout(d))
        reads = [activations.read_port(domain="comb") for _ in range(4)]
        places = (reading_context, engine.fetched_context, engine.context, failing_context)
        m.d.comb += [port.addr.eq(place) for port, place in zip(reads, places, strict=True)]
        m.d.comb += now.eq(reads[0].data)

        def operand(name: str) -> Value:
            number = about[name]
            picked = now["values"][number[: d.input_bits]]
            return Mux(number >= FIRST_INPUT, picked, read[name])

        executing, context = Signal(), Signal(d.context_bits)  # its operands are there
        code, tag = Signal(instruction_layout()), Signal(d.tag_bits)
        a, b, c = Signal(32), Signal(32), Signal(32)
        m.d.sync += [
            executing.eq(reading), context.eq(reading_context), code.eq(about), tag.eq(now.tag),
            a.eq(operand("a")), b.eq(Mux(about.immediate_b, about.immediate, operand("b"))), c.eq(operand("c")),
        ]  # fmt: skip

        # ---- compute
        m.submodules.alu = alu = Alu(d.tag_bits)
        passed = result_layout(d)
        m.submodules.adder = adder = Adder(BINARY32, d.pass_cycles, passed.size)
        m.submodules.multiplier = multiplier = Multiplier(BINARY32, d.pass_cycles)
        m.submodules.fma = fma = FusedMultiplyAdd(BINARY32, d.pass_cycles)
        m.submodules.slow = slow = SlowUnit(d)
        # A context has at most one request: there is always room.
        m.submodules.sends = sends = SyncFIFO(width=request_layout(d).size, depth=n)
        operation = Signal(7)
        m.d.comb += operation.eq(code.op)
        table_base, table_length = code.immediate[:16], code.immediate[16:]
        table_lower = Cat(code.b, code.c).as_signed()
        relative = Signal(33)
        m.d.comb += relative.eq(a.as_signed() - table_lower)
        iterative = Signal()
        for one in ITERATIVE:
            with m.If(operation == one):
                m.d.comb += iterative.eq(1)
        plain = Signal()  # leaves by the pipeline
        going = Signal(passed)
        m.d.comb += [
            plain.eq(executing & ~iterative & (operation != Code.BRANCH) & (operation != Code.JUMP)),
            going.writes.eq(operation != Code.SEND), going.sends.eq(code.sends),
            going.first.eq(code.immediate), going.count.eq(code.immediate[COUNT_PLACE:]),
            alu.code.eq(operation), alu.a.eq(a), alu.b.eq(b), alu.c.eq(c), alu.tag.eq(tag),
            alu.place.eq(code.a), alu.width.eq(code.b), alu.constant.eq(code.immediate),
            table_read.addr.eq(table_base + relative),
            going.valid.eq(plain), going.context.eq(context), going.register.eq(code.result), going.last.eq(code.last),
            going.value.eq(alu.result), going.kind.eq(0),
            adder.a.eq(a), adder.b.eq(Mux(operation == Code.SUB_F32, b ^ BINARY32.sign, b)), adder.pass_in.eq(going),
            multiplier.a.eq(a), multiplier.b.eq(b),
            fma.a.eq(a), fma.b.eq(Mux(operation == Code.FMA_F32, b, c)), fma.c.eq(Mux(operation == Code.FMA_F32, c, b)),
            slow.start.eq(executing & iterative), slow.code.eq(operation), slow.a.eq(a), slow.b.eq(b),
            slow.context.eq(context), slow.register.eq(code.result), slow.last.eq(code.last),
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
        # A word of a table comes a cycle later than what is computed here, and is taken along from there.
        word: Value = table_read.data
        for stage in range(d.pass_cycles - 1):
            delayed = Signal(32, name=f"word{stage}")
            m.d.sync += delayed.eq(word)
            word = delayed

        # Two cycles before its result is written a context may be chosen again: by then it reads its registers, which see
        # the write.
        soon: Value = Mux(plain & ~code.sends & ~code.last, 1 << context, 0)[:n]
        for stage in range(d.pass_cycles - 2):
            delayed = Signal(n, name=f"soon{stage}")
            m.d.sync += delayed.eq(soon)
            soon = delayed

        # ---- write
        out = Signal(passed)
        m.d.comb += out.eq(adder.pass_out)
        finished, ended = Signal(n), Signal(n)
        request = Signal(request_layout(d))
        m.d.comb += sends.w_data.eq(request)
        with m.If(out.valid):
            m.d.comb += [
                write.en.eq(out.writes), write.address.eq(Cat(out.register, out.context)),
                write.value.eq(Mux(out.kind == 1, adder.result, Mux(out.kind == 2, multiplier.result,
                               Mux(out.kind == 3, word, Mux(out.kind == 4, fma.result, out.value))))),
                ended.eq(Mux(out.last & ~out.sends, 1 << out.context, 0)),
                sends.w_en.eq(out.sends), request.context.eq(out.context), request.send.eq(out.first),
                request.count.eq(out.count), request.last.eq(out.last),
            ]  # fmt: skip
        with m.Elif(slow.valid):
            m.d.comb += [
                slow.take.eq(1), write.en.eq(1), write.address.eq(Cat(slow.out_register, slow.out_context)),
                write.value.eq(slow.result), finished.eq(1 << slow.out_context),
                ended.eq(Mux(slow.out_last, 1 << slow.out_context, 0)),
            ]  # fmt: skip

        # ---- branches, and the next instruction of each context
        branching, follows = Signal(n), Signal(n)
        branch = executing & ((operation == Code.JUMP) | (operation == Code.BRANCH))
        taken_branch = (operation == Code.JUMP) | ~a[0]
        with m.If(branch):
            m.d.comb += branching.eq(1 << context)
        with m.If(executing & ~(branch & taken_branch)):
            m.d.comb += follows.eq(1 << context)
        for k in range(n):
            with m.If(branching[k] & taken_branch):
                m.d.sync += pcs[k].eq(code.immediate)
            with m.Elif(follows[k]):
                m.d.sync += pcs[k].eq(pcs[k] + 1)
        over = Signal(n)
        m.d.comb += over.eq(ended | engine.ended | Mux(code.last, branching, 0))
        leaves = Signal(n)
        m.d.comb += leaves.eq(Mux(fetching, 1 << chosen, 0))
        again = slow.refused  # the unit was busy: the same instruction once more
        m.d.sync += [
            used.eq((used | begins) & ~over),
            ready.eq((((ready & ~leaves) | begins | soon | finished | engine.finished | branching) & ~over) | again),
        ]
        with m.If(again.any()):
            for k in range(n):
                with m.If(again[k]):
                    m.d.sync += pcs[k].eq(pcs[k])

        # ---- sends
        m.d.comb += [
            engine.request.valid.eq(sends.r_rdy), sends.r_en.eq(engine.request.ready),
            engine.request.payload.as_value().eq(sends.r_data),
            engine.send_en.eq(self.send_en), engine.send_address.eq(self.send_address),
            engine.send_data.eq(self.send_data), engine.activation.eq(reads[2].data),
            engine.fetched_tag.eq(reads[1].data.tag), engine.table_en.eq(self.table_en),
            engine.table_address.eq(self.table_address), engine.table_data.eq(self.table_data),
        ]  # fmt: skip
        for number, request in enumerate(engine.reads):
            port = self._registers(m, f"send{number}", write)
            m.d.comb += [port.addr.eq(request.address), port.en.eq(request.en), request.value.eq(port.data)]
        m.submodules.leaving = leaving = Forward(token_layout(d))
        wiring.connect(m, engine.token, leaving.source)
        wiring.connect(m, leaving.target, wiring.flipped(self.token))
        m.d.comb += self.sending.eq(self.token.valid & self.token.ready)

        # ---- failures: the first one is kept
        failing = Signal(Failure)
        m.d.comb += failing_context.eq(context)
        with m.If(plain & (alu.failure != Failure.NONE)):
            m.d.comb += failing.eq(alu.failure)
        with m.Elif(executing & (operation == Code.LOAD) & (relative >= table_length)):
            m.d.comb += failing.eq(Failure.TABLE)
        with m.Elif(slow.failure != Failure.NONE):
            m.d.comb += [failing.eq(slow.failure), failing_context.eq(slow.out_context)]
        with m.Elif(engine.failure != Failure.NONE):
            m.d.comb += [failing.eq(engine.failure), failing_context.eq(engine.context)]
        with m.If((self.failure == Failure.NONE) & (failing != Failure.NONE)):
            m.d.sync += [
                self.failure.eq(failing),
                self.failing_node.eq(reads[3].data.node),
                self.failing_tag.eq(reads[3].data.tag),
            ]
        m.d.comb += [self.idle.eq((used == 0) & ~taking & ~self.token.valid), self.issuing.eq(fetching)]
        return m

    def _registers(self, m: Module, name: str, write: Value) -> ReadPort:
        """A copy of the register file with a read port of its own."""
        d = self.d
        m.submodules[f"registers_{name}"] = memory = Memory(shape=32, depth=d.contexts << REGISTER_BITS, init=[])
        port = memory.write_port()
        m.d.comb += [port.en.eq(write.en), port.addr.eq(write.address), port.data.eq(write.value)]
        return memory.read_port(transparent_for=(port,))
