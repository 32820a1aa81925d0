"""Registers in streams: where the payload is made late in a cycle, or where `ready` comes late.

They cut ways that would else lead through several units in one cycle; no token is lost, doubled or overtaken (proved).
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out


class _Slice(wiring.Component):
    """source (in stream), target (out stream): what stands in a stream."""

    def __init__(self, layout: data.Layout):
        signature = stream.Signature(layout)
        super().__init__({"source": In(signature), "target": Out(signature)})


class Forward(_Slice):
    """`valid` and payload of the target are registers; a cycle of latency."""

    def elaborate(self, platform: object) -> Module:
        """One register, which is filled whenever it is free or becomes free."""
        m = Module()
        m.d.comb += self.source.ready.eq(~self.target.valid | self.target.ready)
        with m.If(self.source.ready):
            m.d.sync += [self.target.valid.eq(self.source.valid), self.target.payload.eq(self.source.payload)]
        return m


class Skid(_Slice):
    """`ready` of the source is a register; no latency."""

    def elaborate(self, platform: object) -> Module:
        """What was taken in a cycle in which the target does not take it waits in a register, and goes first."""
        m = Module()
        source, target = self.source, self.target
        full = Signal()
        held = Signal.like(source.payload)
        m.d.comb += [
            source.ready.eq(~full), target.valid.eq(source.valid | full),
            Value.cast(target.payload).eq(Mux(full, Value.cast(held), Value.cast(source.payload))),
        ]  # fmt: skip
        m.d.sync += full.eq(target.valid & ~target.ready)
        with m.If(~full):
            m.d.sync += held.eq(source.payload)
        return m
