"""A machine behind two AXI-stream ports, for boards: commands in, answers out, one beat each; see the machine page."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

import enum
from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.layouts import CONFIG_BITS, Failure, token_layout
from upl_mlir.hw.system.layouts import System
from upl_mlir.hw.system.machine import Machine, machine_ports, part


class Command(enum.IntEnum):
    """What a beat that comes in means: its lowest 8 bits."""

    NOTHING = 0
    WRITE = 1
    """One write of the configuration bus."""
    TOKEN = 2
    END = 3
    """No token comes until the machine is at rest, which it then tells."""


class Answer(enum.IntEnum):
    """What a beat that goes out means: its lowest 8 bits."""

    RESULT = 1
    """A token for the host: `node` is the number of the output."""
    FINISHED = 2
    """The answer to END: cycles since the first token, and records left in the stores, none if nothing is stranded."""
    FAILED = 3
    """The machine has stopped, until it is reset."""


def stream_bits(s: System) -> int:
    """Width of TDATA: a power of two that has room for every beat."""
    least = 8 + max(token_layout(s.core).size, write_layout().size, finished_layout().size, failed_layout(s).size)
    return 1 << (least - 1).bit_length()


def write_layout() -> data.StructLayout:
    """A WRITE, from bit 8 on."""
    return data.StructLayout({"select": 8, "address": 16, "data": CONFIG_BITS})


def finished_layout() -> data.StructLayout:
    """FINISHED, from bit 8 on."""
    return data.StructLayout({"cycles": 48, "left": 32})


def failed_layout(s: System) -> data.StructLayout:
    """FAILED, from bit 8 on: which core, why (`Failure`), for which token."""
    return data.StructLayout({"core": 8, "failure": 8, "node": 16, "input": 8, "tag": s.core.tag_bits})


class Board(wiring.Component):
    """s_axis_*: commands; m_axis_*: answers, with TLAST at the last one of a run. Names are those of AXI4-Stream; clock and
    reset are those of the machine (reset active high)."""

    def __init__(self, s: System, *, apart: bool = False):
        assert s.ports == 1
        self.s, self.apart = s, apart
        bits = stream_bits(s)
        super().__init__(
            {
                "s_axis_tdata": In(bits),
                "s_axis_tvalid": In(1),
                "s_axis_tready": Out(1),
                "m_axis_tdata": Out(bits),
                "m_axis_tvalid": Out(1),
                "m_axis_tready": In(1),
                "m_axis_tlast": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A register for the command, one for the answer, and the machine between them."""
        s = self.s
        m = Module()
        made = part(m, "machine", "machine", lambda: Machine(s), machine_ports(s), apart=self.apart)
        machine = SimpleNamespace(**{name: signal for name, (signal, _) in made.items()})
        held, command = Signal(), Signal(len(self.s_axis_tdata))
        done = Signal()
        m.d.comb += self.s_axis_tready.eq(~held | done)
        with m.If(self.s_axis_tready):
            m.d.sync += [held.eq(self.s_axis_tvalid), command.eq(self.s_axis_tdata)]
        kind = command[:8]
        write = data.View(write_layout(), command[8 : 8 + write_layout().size])
        ending, stopped = Signal(), Signal()
        m.d.comb += [
            machine.config_en.eq(held & (kind == Command.WRITE)),
            machine.config_select.eq(write.select),
            machine.config_address.eq(write.address),
            machine.config_data.eq(write.data),
            machine.port_valid_0.eq(held & (kind == Command.TOKEN)),
            machine.port_data_0.eq(command[8 : 8 + token_layout(s.core).size]),
            ending.eq(held & (kind == Command.END)),
        ]
        if s.core.closes:
            m.d.comb += machine.host_over.eq(ending)

        failures: list[Value] = [getattr(machine, f"failure_{n}") for n in range(s.cores)]
        failed, why = Signal(), Signal(failed_layout(s))
        m.d.comb += failed.eq(Cat(*(f != Failure.NONE for f in failures)).any())
        for n in reversed(range(s.cores)):
            with m.If(failures[n] != Failure.NONE):
                m.d.comb += [
                    why.core.eq(n), why.failure.eq(failures[n]), why.node.eq(getattr(machine, f"failing_node_{n}")),
                    why.input.eq(getattr(machine, f"failing_input_{n}")), why.tag.eq(getattr(machine, f"failing_tag_{n}")),
                ]  # fmt: skip
        cycles, begun = Signal(48), Signal()
        over = Signal(finished_layout())
        left: Value = Const(0, 32)
        for n in range(s.cores):
            left = left + getattr(machine, f"used_{n}")
        m.d.comb += [over.cycles.eq(cycles), over.left.eq(left)]
        with m.If(machine.port_valid_0 & ~begun):
            m.d.sync += [begun.eq(1), cycles.eq(1)]
        with m.Elif(begun & ~(ending & machine.idle)):
            m.d.sync += cycles.eq(cycles + 1)

        # ---- answers: results first, so that none comes after the end
        room = ~self.m_axis_tvalid | self.m_axis_tready
        finishes = ending & machine.idle & ~machine.result_valid_0
        m.d.comb += [
            machine.result_ready_0.eq(room & ~stopped),
            done.eq(Mux(machine.port_valid_0, machine.port_ready_0, Mux(ending, finishes & room, held)) & ~failed),
        ]
        with m.If(room):
            m.d.sync += [self.m_axis_tvalid.eq(0), self.m_axis_tlast.eq(0)]
            with m.If(failed & ~stopped):
                m.d.sync += [
                    self.m_axis_tvalid.eq(1), self.m_axis_tlast.eq(1), stopped.eq(1),
                    self.m_axis_tdata.eq(Cat(Const(Answer.FAILED, 8), why)),
                ]  # fmt: skip
            with m.Elif(machine.result_valid_0 & ~stopped):
                result = Cat(Const(Answer.RESULT, 8), machine.result_data_0)
                m.d.sync += [self.m_axis_tvalid.eq(1), self.m_axis_tdata.eq(result)]
            with m.Elif(finishes & ~failed):
                m.d.sync += [
                    self.m_axis_tvalid.eq(1), self.m_axis_tlast.eq(1), begun.eq(0),
                    self.m_axis_tdata.eq(Cat(Const(Answer.FINISHED, 8), over)),
                ]  # fmt: skip
        return m
