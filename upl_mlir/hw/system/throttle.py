"""The throttle: tokens of the host wait until the program has come near their stage, so that fewer records wait for others.

Host tokens come in the order of their stages. Those of the `window` stages from the oldest one on go through. The oldest
stage is over when no record of it has waited anywhere for some time, or as soon as nothing at all is under way: then a
token that is held back is let through whatever its stage. So a token is only ever held while the machine works without it.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.layouts import token_layout
from upl_mlir.hw.core.stages import STAGE_BITS, stage_layout, stage_of
from upl_mlir.hw.ports import writes, written
from upl_mlir.hw.system.layouts import System

QUIET = 64
"""Cycles without a waiting record after which a stage is taken to be over: about what a token takes from one record through
the execution unit to the next one."""


class Throttle(wiring.Component):
    """in_*: tokens at each port of the host; out_*: those that may go on, at least a cycle later.

    row_*: writes to the table of stages. live (in): stages, modulo their number, of which records wait anywhere. rest (in):
    nothing is under way, except for what is held back here. over (in): the run has ended: stages begin anew. empty (out):
    no token is here.
    """

    def __init__(self, s: System):
        self.s = s
        width = token_layout(s.core).size
        ports = {}
        for n in range(s.ports):
            ports |= {f"in_valid_{n}": In(1), f"in_ready_{n}": Out(1), f"in_data_{n}": In(width)}
            ports |= {f"out_valid_{n}": Out(1), f"out_ready_{n}": In(1), f"out_data_{n}": Out(width)}
        super().__init__(
            {
                **ports,
                **writes("row", s.core.node_bits, stage_layout(s.core)),
                "live": In(s.core.stages),
                "rest": In(1),
                "over": In(1),
                "empty": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A token of each port with its stage; the oldest stage."""
        s, d = self.s, self.s.core
        m = Module()
        m.submodules.rows = rows = Memory(shape=stage_layout(d), depth=1 << d.node_bits, init=[])
        written(m, rows, self, "row")
        oldest = Signal(STAGE_BITS)
        valids: list[Value] = []
        held: list[Value] = []  # at each port: it is
        stages: list[Signal] = []
        sent: Value = self.live  # stages of which something is there, or comes in this cycle
        for n in range(s.ports):
            offered = data.View(token_layout(d), getattr(self, f"in_data_{n}"))
            read = rows.read_port()
            token, valid = Signal(token_layout(d), name=f"token_{n}"), Signal(name=f"valid_{n}")
            staged, early = Signal(name=f"staged_{n}"), Signal(name=f"early_{n}")
            stage, end = Signal(STAGE_BITS, name=f"stage_{n}"), Signal(STAGE_BITS + 1, name=f"end_{n}")
            ready, goes = getattr(self, f"in_ready_{n}"), getattr(self, f"out_valid_{n}")
            m.d.comb += [
                ready.eq(~valid | (goes & getattr(self, f"out_ready_{n}"))),
                read.en.eq(ready), read.addr.eq(offered.node),
                stage.eq(stage_of(read.data, token.tag)), staged.eq((read.data.has >> token.input)[0]),
                end.eq(oldest + read.data.window), early.eq(staged & (stage >= end)),
                goes.eq(valid & ~early), getattr(self, f"out_data_{n}").eq(token.as_value()),
            ]  # fmt: skip
            with m.If(ready):
                m.d.sync += [valid.eq(getattr(self, f"in_valid_{n}")), token.eq(offered)]
            valids.append(valid)
            held.append(valid & early)
            stages.append(stage)
            sent = sent | Mux(goes & staged, 1 << stage[: len(self.live).bit_length() - 1], 0)
        m.d.comb += self.empty.eq(~Cat(*valids).any())

        quiet = [Signal(range(QUIET + 1), name=f"quiet_{n}") for n in range(d.stages)]
        for n in range(d.stages):
            with m.If(sent[n]):
                m.d.sync += quiet[n].eq(0)
            with m.Elif(quiet[n] != QUIET):
                m.d.sync += quiet[n].eq(quiet[n] + 1)
        past = Signal(d.stages)
        m.d.comb += past.eq(Cat(*(q == QUIET for q in quiet)))
        wanted, any_held = stages[0], Cat(*held).any()
        for n in range(1, s.ports):
            wanted = Mux(held[n], stages[n], wanted)
        with m.If(self.over):
            m.d.sync += oldest.eq(0)
        with m.Elif(any_held & self.rest):
            m.d.sync += oldest.eq(wanted)
        with m.Elif(Const(not d.drains) & any_held & (past >> oldest[: d.stages.bit_length() - 1])[0]):
            m.d.sync += oldest.eq(oldest + 1)
        return m
