"""The counters of a loop nest: one iteration in a slot, and slots that are waited where a dependence needs them."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class LoopNest(wiring.Component):
    """Counters c0, c1, … of loops from 0 to extents[k]-1, the outermost first.

    `start` in slot s makes slot s+1 the first iteration, if nothing runs in slot s or s is the nest's last slot; else
    it is ignored.  After each complete run of loop k the nest waits idle[k] slots: those of inner loops first, so
    that after the last iteration of all it waits the sum.  `running`: the slot is an iteration's.  `last`: it is the
    nest's last slot, those that are waited included.  While the nest waits, the counters stay at the last iteration;
    when it is at rest, at 0.
    `steps`: in the next slot another iteration begins, or none is left; `carry` then has one bit set: bit k if loop k
    goes on to its next value, the last bit if all are complete.
    """

    def __init__(self, extents: Sequence[int], idle: Sequence[int]):
        if len(extents) != len(idle) or any(n < 1 for n in extents) or any(n < 0 for n in idle):
            raise ValueError(
                f"extents={[*extents]}, idle={[*idle]}: expected as many, of 1 and more, and of 0 and more"
            )
        self.extents, self.idle = tuple(extents), tuple(idle)
        counters = {f"c{k}": Out(range(n)) for k, n in enumerate(extents)}
        super().__init__({"start": In(1), "enable": In(1), "running": Out(1), "last": Out(1), "steps": Out(1),
                          "carry": Out(len(extents) + 1), **counters})  # fmt: skip

    @property
    def counters(self) -> list[Any]:
        """The counters, the outermost first."""
        return [getattr(self, f"c{k}") for k in range(len(self.extents))]

    @property
    def slots(self) -> int:
        """The slots from the first iteration to the nest's last slot."""
        return reduce(lambda inner, level: level[0] * inner + level[1],
                      [*zip(self.extents, self.idle, strict=True)][::-1], 1)  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        """All that decides is in registers: which loops are at their ends, and whether this is a wait's last slot."""
        m = Module()
        steps, ends = self.steps, Signal()  # the slot ends an iteration with its wait; it is the last one of a wait
        full = self._count(m, steps)
        waits = [k for k, n in enumerate(self.idle) if n]
        pauses = full[waits[-1]] if waits else Const(0)
        m.d.comb += [
            steps.eq(self.running & ~pauses | ends), self.last.eq(full[0] & (ends if waits else self.running)),
        ]  # fmt: skip
        m.d.comb += self.carry.eq(Cat(*(full[k + 1] & ~full[k] for k in range(len(self.extents))), full[0]))
        waiting = self._wait(m, full, pauses, ends) if waits else Const(0)
        with m.If(self.enable):
            with m.If(steps):
                m.d.sync += self.running.eq(~full[0] | self.start)
            with m.Elif(self.running):
                m.d.sync += self.running.eq(0)
            with m.Elif(~waiting):
                m.d.sync += self.running.eq(self.start)
        return m

    def _count(self, m: Module, steps: Value) -> Sequence[Value]:
        """The counters; whether all loops from k on inwards are at their last values is a register for each k.

        It is computed a slot ahead: a counter comes to its end only in a step of the innermost one that does not carry.
        """
        real = [k for k, n in enumerate(self.extents) if n > 1]
        if not real:
            return [Const(1)] * len(self.extents) + [Const(1)]
        at_end = {k: Signal(name=f"at_end{k}") for k in real}
        from_here = [Signal(name=f"full{k}") for k in real]
        full = [next((f for r, f in zip(real, from_here, strict=True) if r >= k), Const(1))
                for k in range(len(self.extents) + 1)]  # fmt: skip
        inner = self.counters[real[-1]] == self.extents[real[-1]] - 2
        with m.If(self.enable & steps):
            for n, flag in enumerate(from_here):
                m.d.sync += flag.eq(inner & reduce(and_, [at_end[k] for k in real[n:-1]], Const(1)))
            for k in real:
                counter = self.counters[k]
                with m.If(full[k + 1]):
                    m.d.sync += [
                        counter.eq(Mux(full[k], 0, counter + 1)), at_end[k].eq(counter == self.extents[k] - 2)
                    ]  # fmt: skip
        return full

    def _wait(self, m: Module, full: Sequence[Value], pauses: Value, ends: Signal) -> Value:
        """Count the slots after an iteration that completes loops; whether any are left is the result."""
        total = [sum(self.idle[k:]) for k in range(len(self.idle))]
        left, waiting = Signal(range(max(2, total[0]))), Signal()  # slots after this one
        with m.If(self.enable):
            with m.If(waiting):
                m.d.sync += [left.eq(left - 1), ends.eq(left == 1), waiting.eq(~ends)]
                with m.If(ends):
                    m.d.sync += ends.eq(0)
            with m.Elif(self.running & pauses):
                m.d.sync += waiting.eq(1)
                for k in reversed(range(len(total))):  # the outermost loop that is complete decides
                    if total[k]:
                        with m.If(full[k]):
                            m.d.sync += [left.eq(total[k] - 1), ends.eq(total[k] == 1)]
        return waiting
