"""The send engine: makes tokens from send descriptors, one a cycle as long as indices need at most one register."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from upl_mlir.hw.core.alu import compares, field_of
from upl_mlir.hw.core.layouts import (
    COUNT_BITS,
    FIRST_INPUT,
    REGISTER_BITS,
    Dimensions,
    Failure,
    FieldKind,
    Guard,
    Times,
    activation_layout,
    send_layout,
    token_layout,
)
from upl_mlir.hw.machine import Organisation


def request_layout(d: Dimensions) -> data.StructLayout:
    """A request: how many descriptors, and the first of them, for a context; and whether the context ends with them."""
    return data.StructLayout({"context": d.context_bits, "send": d.send_bits, "count": COUNT_BITS, "last": 1})


class ReadRequest(wiring.Signature):
    """A read port of the register file, seen from its user; the value comes a cycle later."""

    def __init__(self, d: Dimensions):
        super().__init__({"address": Out(d.context_bits + REGISTER_BITS), "en": Out(1), "value": In(32)})


PORTS = ("value", "guard", "times", "field")


class SendEngine(wiring.Component):
    """request (in stream); token (out stream). reads (out): ports of the register file, for `PORTS`.

    context (out): the context of the token in the last stage; activation (in): its activation. finished, ended (out): a
    bit per context, which may go on, or has come to its end. failure (out): a token that cannot be made.
    fetched_context (out): that of the descriptor that was fetched last; fetched_tag (in): the index of its activation.
    send_*, table_* (in): writes to the memories.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        super().__init__(
            {
                "request": In(stream.Signature(request_layout(d))),
                "token": Out(stream.Signature(token_layout(d))),
                "send_en": In(1),
                "send_address": In(d.send_bits),
                "send_data": In(send_layout(d)),
                "reads": Out(ReadRequest(d)).array(len(PORTS)),
                "context": Out(d.context_bits),
                "activation": In(activation_layout(d)),
                "fetched_context": Out(d.context_bits),
                "fetched_tag": In(d.tag_bits),
                "table_en": In(1),
                "table_address": In(range(d.table_words)),
                "table_data": In(32),
                "finished": Out(d.contexts),
                "ended": Out(d.contexts),
                "failure": Out(Failure),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fetch the descriptor; read registers, the fields' one after the other; put the token together."""
        d = self.d
        m = Module()
        m.submodules.sends = sends = Memory(shape=send_layout(d), depth=d.send_words, init=[])
        port = sends.write_port()
        m.d.comb += [port.en.eq(self.send_en), port.addr.eq(self.send_address), port.data.eq(self.send_data)]
        read = sends.read_port()
        m.submodules.table = table = Memory(shape=d.multiplicity_bits, depth=d.table_words, init=[])
        table_write, table_read = table.write_port(), table.read_port()
        large = (self.table_data >> d.multiplicity_bits) != 0  # as all ones, which are none of a table's
        m.d.comb += [table_write.en.eq(self.table_en), table_write.addr.eq(self.table_address),
                     table_write.data.eq(Mux(large, d.unbounded, self.table_data))]  # fmt: skip

        # ---- fetch
        fetched, gathering, leaves = Signal(), Signal(), Signal()
        about = Signal(request_layout(d))
        take_next = Signal()  # the fetched descriptor goes on to the last stage
        more = fetched & (about.count > 1)  # of the same request
        m.d.comb += [
            self.request.ready.eq((~fetched | take_next) & ~more),
            read.addr.eq(Mux(more, about.send + 1, self.request.payload.send)),
            read.en.eq(~fetched | take_next),
            self.fetched_context.eq(about.context),
        ]
        with m.If(self.request.ready):
            m.d.sync += [fetched.eq(self.request.valid), about.eq(self.request.payload)]
        with m.Elif(take_next):
            m.d.sync += [about.send.eq(about.send + 1), about.count.eq(about.count - 1)]
        send = read.data

        # ---- registers: the n-th field that needs one is read in the n-th cycle
        needs = Signal(d.max_fields)
        for n in range(d.max_fields):
            m.d.comb += needs[n].eq(send.fields[n].kind == FieldKind.REGISTER)
        seen = Signal(d.max_fields)  # fields whose registers have been asked for
        rest = Signal(d.max_fields)
        number = Signal(bits_for(d.max_fields))
        source = Signal(6)
        m.d.comb += rest.eq(needs & ~seen)
        for n in reversed(range(d.max_fields)):
            with m.If(rest[n]):
                m.d.comb += [number.eq(n), source.eq(send.fields[n].source)]
        many = Signal()
        m.d.comb += many.eq((rest & (rest - 1)[: d.max_fields]) != 0)
        free = ~gathering | leaves
        asks = fetched & free & ~many
        collects = fetched & free & many
        m.d.comb += take_next.eq(asks)
        sources = {"value": send.value, "guard": send.guard, "times": send.times_register, "field": source}
        for name, operand in sources.items():
            request = self.reads[PORTS.index(name)]
            m.d.comb += [
                request.address.eq(Cat(operand[:REGISTER_BITS], about.context)),
                request.en.eq(asks | collects if name == "field" else asks),
            ]
        entry = Signal(signed(34))
        m.d.comb += [
            entry.eq(field_of(self.fetched_tag, send.times_register, send.times_width) + send.times_constant.as_signed()),
            table_read.addr.eq(send.multiplicity + entry), table_read.en.eq(asks),
        ]  # fmt: skip
        inside = Signal()
        with m.If(asks):
            m.d.sync += inside.eq((entry >= 0) & (entry < send.times_length))
        # A register that was read for one of several fields comes a cycle later and is kept.
        kept = [Signal(32, name=f"kept{n}") for n in range(d.max_fields)]
        reading, reading_number = Signal(), Signal.like(number)
        m.d.sync += reading.eq(0)
        with m.If(collects):
            m.d.sync += [seen.eq(seen | (rest & (~rest + 1))), reading.eq(1), reading_number.eq(number)]
        with m.Elif(asks):
            m.d.sync += seen.eq(0)
        for n in range(d.max_fields):
            with m.If(reading & (reading_number == n)):
                m.d.sync += kept[n].eq(self.reads[PORTS.index("field")].value)

        # ---- the token
        now, request = Signal(send_layout(d)), Signal(request_layout(d))
        last_number = Signal.like(number)
        final = Signal()  # the last one of its request
        with m.If(asks):
            m.d.sync += [gathering.eq(1), now.eq(send), request.eq(about), last_number.eq(number), final.eq(~more)]
        with m.Elif(leaves):
            m.d.sync += gathering.eq(0)
        # While the last stage waits, the register file keeps its outputs only if nothing else is asked for; so they are
        # caught in the first cycle.
        first = Signal()
        m.d.sync += first.eq(asks)
        got: dict[str, Value] = {}
        for name in PORTS:
            caught = Signal(32, name=f"caught_{name}")
            value = self.reads[PORTS.index(name)].value
            with m.If(first):
                m.d.sync += caught.eq(value)
            got[name] = Mux(first, value, caught)
        act = self.activation
        m.d.comb += self.context.eq(request.context)

        def operand_value(number: Value, name: str) -> Value:
            return Mux(number >= FIRST_INPUT, act["values"][number[: d.input_bits]], got[name])

        tag: Value = Const(0, d.tag_bits)
        bad = Signal(d.max_fields)
        for n in range(d.max_fields):
            field = now.fields[n]
            base, total = Signal(32, name=f"base{n}"), Signal(signed(33), name=f"total{n}")
            place = Signal(d.tag_bits, name=f"place{n}")
            from_register = Mux(last_number == n, got["field"], kept[n])
            with m.If(field.kind == FieldKind.FIELD):
                m.d.comb += base.eq(field_of(act.tag, field.source, field.width))
            with m.Elif(field.kind == FieldKind.REGISTER):
                given = act["values"][field.source[: d.input_bits]]
                m.d.comb += base.eq(Mux(field.source >= FIRST_INPUT, given, from_register))
            m.d.comb += [
                total.eq(base.as_signed() + field.constant.as_signed()),
                bad[n].eq((field.kind != FieldKind.NONE) & ((total >> field.bits) != 0)),
                place.eq(Mux(field.kind == FieldKind.NONE, 0, total[:32] << field.offset)),
            ]
            tag = tag | place
            if d.organisation is Organisation.CAM:
                tag = tag | Mux(field.kind == FieldKind.NONE, 1 << (d.index_bits + n), 0)
        times = Mux(now.times == Times.TABLE, table_read.data, operand_value(now.times_register, "times"))
        counted = now.times != Times.CONSTANT
        wrong_times = counted & ((times == 0) | times[-1] | (times >= d.unbounded))
        by_field = compares(now.guarded, field_of(act.tag, now.guard, now.guard_width), now.guard_constant)
        goes = Signal()
        m.d.comb += goes.eq(Mux(now.guarded == Guard.REGISTER, operand_value(now.guard, "guard")[0], by_field))
        m.d.comb += [
            self.token.valid.eq(gathering & goes & (self.failure == Failure.NONE)),
            self.token.payload.kind.eq(now.kind),
            self.token.payload.node.eq(now.node),
            self.token.payload.input.eq(now.input),
            self.token.payload.tag.eq(tag),
            self.token.payload.multiplicity.eq(Mux(counted, times, now.multiplicity)),
            self.token.payload.value.eq(operand_value(now.value, "value")),
            leaves.eq(gathering & (~goes | self.token.ready)),
            self.finished.eq(Mux(leaves & final, 1 << request.context, 0)),
            self.ended.eq(Mux(leaves & final & request.last, 1 << request.context, 0)),
        ]
        with m.If(gathering & goes & (bad != 0)):
            m.d.comb += self.failure.eq(Failure.INDEX)
        with m.Elif(gathering & goes & (now.times == Times.TABLE) & ~inside):
            m.d.comb += self.failure.eq(Failure.TABLE)
        with m.Elif(gathering & goes & wrong_times):
            m.d.comb += self.failure.eq(Failure.MULTIPLICITY)
        return m
