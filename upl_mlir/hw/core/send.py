"""The send engine: makes tokens from send descriptors, one a cycle as long as indices need at most one register."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory, ReadPort
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
from upl_mlir.hw.ports import writes, written


def request_layout(d: Dimensions) -> data.StructLayout:
    """A request: how many descriptors, and the first of them, for a context; and whether the context ends with them."""
    return data.StructLayout({"context": d.context_bits, "send": d.send_bits, "count": COUNT_BITS, "last": 1})


class ReadRequest(wiring.Signature):
    """A read port of the register file, seen from its user; the value comes a cycle later."""

    def __init__(self, d: Dimensions):
        super().__init__({"address": Out(d.context_bits + REGISTER_BITS), "en": Out(1), "value": In(32)})


PORTS = ("value", "guard", "times", "field")


class _Stages:
    """What the stages of a send engine share: `fetched`, `about` and the read descriptor are of stage 1, `gathering`, `now`
    and `request` of stage 2."""

    def __init__(self, d: Dimensions):
        self.fetched, self.gathering, self.leaves = Signal(), Signal(), Signal(name="leaves")
        self.about = Signal(request_layout(d))
        self.take_next = Signal()  # the fetched descriptor goes on to the last stage
        self.more = self.fetched & (self.about.count > 1)  # of the same request
        self.number = Signal(bits_for(d.max_fields))  # of the field whose register is asked for
        self.many = Signal()  # it is not the last such field
        self.free = ~self.gathering | self.leaves
        self.asks = self.fetched & self.free & ~self.many
        self.collects = self.fetched & self.free & self.many
        self.kept = [Signal(32, name=f"kept{n}") for n in range(d.max_fields)]  # registers of all such fields but the last
        self.inside = Signal()  # the index is one of the table of multiplicities
        self.now, self.request = Signal(send_layout(d)), Signal(request_layout(d), name="request")
        self.last_number = Signal.like(self.number)
        self.final = Signal()  # the last one of its request


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
                **writes("send", d.send_bits, send_layout(d)),
                "reads": Out(ReadRequest(d)).array(len(PORTS)),
                "context": Out(d.context_bits),
                "activation": In(activation_layout(d)),
                "fetched_context": Out(d.context_bits),
                "fetched_tag": In(d.tag_bits),
                **writes("table", range(d.table_words), 32),
                "finished": Out(d.contexts),
                "ended": Out(d.contexts),
                "failure": Out(Failure),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fetch the descriptor; read registers, the fields' one after the other; put the token together.

        Cycle 0: a request is taken, or the next descriptor of the same request; its address goes to the memory.
        Cycle 1: the descriptor is there (`fetched`); all registers that it needs are asked for (`asks`). Of several fields
            with registers each but the last takes a cycle of its own before that (`collects`).
        Cycle 2: registers are there (`gathering`); the token is offered, until it is taken or its guard is false.
        Each cycle is a stage, so that a token a cycle leaves.
        """
        m = Module()
        s = _Stages(self.d)
        descriptor, multiplicity = self._memories(m)
        self._fetch(m, s, descriptor)
        self._ask(m, s, descriptor.data, multiplicity)
        got = self._receive(m, s, descriptor.data)
        tag, bad = self._index(m, s, got)
        self._offer(m, s, got, tag, bad, multiplicity.data)
        return m

    def _memories(self, m: Module) -> tuple[ReadPort, ReadPort]:
        """Read ports of the descriptors and of the tables of multiplicities; what is read comes a cycle later."""
        d = self.d
        m.submodules.sends = sends = Memory(shape=send_layout(d), depth=d.send_words, init=[])
        written(m, sends, self, "send")
        read = sends.read_port()
        m.submodules.table = table = Memory(shape=d.multiplicity_bits, depth=d.table_words, init=[])
        table_write, table_read = table.write_port(), table.read_port()
        large = (self.table_data >> d.multiplicity_bits) != 0  # as all ones, which are none of a table's
        m.d.comb += [table_write.en.eq(self.table_en), table_write.addr.eq(self.table_address),
                     table_write.data.eq(Mux(large, d.unbounded, self.table_data))]  # fmt: skip
        return read, table_read

    def _fetch(self, m: Module, s: _Stages, read: ReadPort) -> None:
        """Cycle 0: the address of the next descriptor, of this request or of a new one."""
        m.d.comb += [
            self.request.ready.eq((~s.fetched | s.take_next) & ~s.more),
            read.addr.eq(Mux(s.more, s.about.send + 1, self.request.payload.send)),
            read.en.eq(~s.fetched | s.take_next),
            self.fetched_context.eq(s.about.context),
        ]
        with m.If(self.request.ready):
            m.d.sync += [s.fetched.eq(self.request.valid), s.about.eq(self.request.payload)]
        with m.Elif(s.take_next):
            m.d.sync += [s.about.send.eq(s.about.send + 1), s.about.count.eq(s.about.count - 1)]

    def _ask(self, m: Module, s: _Stages, send: Value, table_read: ReadPort) -> None:
        """Cycle 1: the n-th field that needs a register is read in the n-th cycle; the last one with all other registers."""
        d = self.d
        needs = Signal(d.max_fields)
        for n in range(d.max_fields):
            m.d.comb += needs[n].eq(send.fields[n].kind == FieldKind.REGISTER)
        seen = Signal(d.max_fields)  # fields whose registers have been asked for
        rest = Signal(d.max_fields)
        source = Signal(6)
        m.d.comb += rest.eq(needs & ~seen)
        for n in reversed(range(d.max_fields)):
            with m.If(rest[n]):
                m.d.comb += [s.number.eq(n), source.eq(send.fields[n].source)]
        m.d.comb += s.many.eq((rest & (rest - 1)[: d.max_fields]) != 0)
        m.d.comb += s.take_next.eq(s.asks)
        sources = {"value": send.value, "guard": send.guard, "times": send.times_register, "field": source}
        for name, operand in sources.items():
            request = self.reads[PORTS.index(name)]
            m.d.comb += [
                request.address.eq(Cat(operand[:REGISTER_BITS], s.about.context)),
                request.en.eq(s.asks | s.collects if name == "field" else s.asks),
            ]
        entry = Signal(signed(34))
        m.d.comb += [
            entry.eq(field_of(self.fetched_tag, send.times_register, send.times_width) + send.times_constant.as_signed()),
            table_read.addr.eq(send.multiplicity + entry), table_read.en.eq(s.asks),
        ]  # fmt: skip
        with m.If(s.asks):
            m.d.sync += s.inside.eq((entry >= 0) & (entry < send.times_length))
        # A register that was read for one of several fields comes a cycle later and is kept.
        reading, reading_number = Signal(), Signal.like(s.number)
        m.d.sync += reading.eq(0)
        with m.If(s.collects):
            m.d.sync += [seen.eq(seen | (rest & (~rest + 1))), reading.eq(1), reading_number.eq(s.number)]
        with m.Elif(s.asks):
            m.d.sync += seen.eq(0)
        for n in range(d.max_fields):
            with m.If(reading & (reading_number == n)):
                m.d.sync += s.kept[n].eq(self.reads[PORTS.index("field")].value)

    def _receive(self, m: Module, s: _Stages, send: Value) -> dict[str, Value]:
        """From cycle 1 to cycle 2: the descriptor goes on; what was read, by the names of `PORTS`, as long as it stays."""
        with m.If(s.asks):
            m.d.sync += [
                s.gathering.eq(1), s.now.eq(send), s.request.eq(s.about), s.last_number.eq(s.number), s.final.eq(~s.more),
            ]  # fmt: skip
        with m.Elif(s.leaves):
            m.d.sync += s.gathering.eq(0)
        # While the last stage waits, the register file keeps its outputs only if nothing else is asked for; so they are
        # caught in the first cycle.
        first = Signal()
        m.d.sync += first.eq(s.asks)
        got: dict[str, Value] = {}
        for name in PORTS:
            caught = Signal(32, name=f"caught_{name}")
            value = self.reads[PORTS.index(name)].value
            with m.If(first):
                m.d.sync += caught.eq(value)
            got[name] = Mux(first, value, caught)
        m.d.comb += self.context.eq(s.request.context)
        return got

    def _operand(self, number: Value, got: Value) -> Value:
        """The input of the activation with this number, or what was read if it is a register's."""
        return Mux(number >= FIRST_INPUT, self.activation["values"][number[: self.d.input_bits]], got)

    def _index(self, m: Module, s: _Stages, got: dict[str, Value]) -> tuple[Value, Signal]:
        """Cycle 2: the index of the token, and which of its fields do not fit."""
        d, act = self.d, self.activation
        tag: Value = Const(0, d.tag_bits)
        bad = Signal(d.max_fields)
        for n in range(d.max_fields):
            field = s.now.fields[n]
            base, total = Signal(32, name=f"base{n}"), Signal(signed(33), name=f"total{n}")
            place = Signal(d.tag_bits, name=f"place{n}")
            from_register = Mux(s.last_number == n, got["field"], s.kept[n])
            with m.If(field.kind == FieldKind.FIELD):
                m.d.comb += base.eq(field_of(act.tag, field.source, field.width))
            with m.Elif(field.kind == FieldKind.REGISTER):
                m.d.comb += base.eq(self._operand(field.source, from_register))
            m.d.comb += [
                total.eq(base.as_signed() + field.constant.as_signed()),
                bad[n].eq((field.kind != FieldKind.NONE) & ((total >> field.bits) != 0)),
                place.eq(Mux(field.kind == FieldKind.NONE, 0, total[:32] << field.offset)),
            ]
            tag = tag | place
            if d.organisation is Organisation.CAM:
                tag = tag | Mux(field.kind == FieldKind.NONE, 1 << (d.index_bits + n), 0)
        return tag, bad

    def _offer(self, m: Module, s: _Stages, got: dict[str, Value], tag: Value, bad: Value, from_table: Value) -> None:
        """Cycle 2: the token, if its guard holds; the end of a request; why no token can be made."""
        d, act, now = self.d, self.activation, s.now
        times = Mux(now.times == Times.TABLE, from_table, self._operand(now.times_register, got["times"]))
        counted = now.times != Times.CONSTANT
        wrong_times = counted & ((times == 0) | times[-1] | (times >= d.unbounded))
        by_field = compares(now.guarded, field_of(act.tag, now.guard, now.guard_width), now.guard_constant)
        goes = Signal()
        m.d.comb += goes.eq(Mux(now.guarded == Guard.REGISTER, self._operand(now.guard, got["guard"])[0], by_field))
        m.d.comb += [
            self.token.valid.eq(s.gathering & goes & (self.failure == Failure.NONE)),
            self.token.payload.kind.eq(now.kind),
            self.token.payload.node.eq(now.node),
            self.token.payload.input.eq(now.input),
            self.token.payload.tag.eq(tag),
            self.token.payload.multiplicity.eq(Mux(counted, times, now.multiplicity)),
            self.token.payload.value.eq(self._operand(now.value, got["value"])),
            s.leaves.eq(s.gathering & (~goes | self.token.ready)),
            self.finished.eq(Mux(s.leaves & s.final, 1 << s.request.context, 0)),
            self.ended.eq(Mux(s.leaves & s.final & s.request.last, 1 << s.request.context, 0)),
        ]
        with m.If(s.gathering & goes & (bad != 0)):
            m.d.comb += self.failure.eq(Failure.INDEX)
        with m.Elif(s.gathering & goes & (now.times == Times.TABLE) & ~s.inside):
            m.d.comb += self.failure.eq(Failure.TABLE)
        with m.Elif(s.gathering & goes & wrong_times):
            m.d.comb += self.failure.eq(Failure.MULTIPLICITY)
