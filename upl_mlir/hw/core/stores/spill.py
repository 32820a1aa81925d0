"""Backing memory of the store: what finds no room in its set waits in a chain of that set.

A search goes through the chain record by record, each a read of the backing memory. Beside the head of a chain stands its
signature, a bit for each of a few classes of keys: a key whose class no record has is not searched for. Records are
numbered from 1; 0 ends a chain. Free records form a chain too; those never used follow `fresh`.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from upl_mlir.hw.core.layouts import LATENCY_BITS, Dimensions, key_layout
from upl_mlir.hw.core.stores.hash import set_of
from upl_mlir.hw.core.stores.store import Shape, join_shape

SIGNATURE_BITS = 4
"""Bits of the number of a class of keys."""
SIGNATURE_FIRST = 16
"""The first one, of the bits of the hash: those before it choose the set, in cores of any size."""


class Spill(wiring.Component):
    """address (in): a set; any (out), a cycle later: whether its chain may have the record of `key` (in).

    All below are about that set, whose address must be held, and come one at a time, when not busy (out):
    find (in): search for `key`; done (out) tells its end, found (out) and record (out) the outcome.
    replace (in): put `given` (in) in the place of what was found. remove (in): take what was found out of the chain.
    insert (in): put `given` into the chain; full (out): there is no room for it.
    used (out): records in use. look (in): at rest, the record to look at: looked (out), a cycle later.
    words, cycles (in): how many records may be in use, up to `spill_words`, and the latency of a read.
    """

    def __init__(self, d: Dimensions, shape: Shape | None = None):
        self.d = d
        self.shape = shape = shape or join_shape(d)
        record = shape.record(d)
        super().__init__(
            {
                "address": In(shape.set_bits),
                "set": In(shape.set_bits),
                "any": Out(1),
                "busy": Out(1),
                "find": In(1),
                "key": In(key_layout(d)),
                "done": Out(1),
                "found": Out(1),
                "record": Out(record),
                "given": In(record),
                "replace": In(1),
                "remove": In(1),
                "insert": In(1),
                "full": Out(1),
                "used": Out(range(d.spill_words + 2)),
                "look": In(range(d.spill_words + 1)),
                "looked": Out(record),
                "words": In(range(d.spill_words + 1), init=d.spill_words),
                "cycles": In(LATENCY_BITS, init=d.backing_cycles),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Records, the chains' links, and the heads of the chains, in memories of their own."""
        d = self.d
        m = Module()
        bits = bits_for(d.spill_words)
        m.submodules.records = records = Memory(shape=self.shape.record(d), depth=d.spill_words + 1, init=[])
        m.submodules.links = links = Memory(shape=bits, depth=d.spill_words + 1, init=[])
        heading = data.StructLayout({"first": bits, "signature": 1 << SIGNATURE_BITS})
        m.submodules.heads = heads = Memory(shape=heading, depth=self.shape.sets, init=[])
        record_write, link_write, head_write = records.write_port(), links.write_port(), heads.write_port()
        record_read = records.read_port(transparent_for=(record_write,))
        link_read = links.read_port(transparent_for=(link_write,))
        head_read = heads.read_port(transparent_for=(head_write,))
        head, signature = head_read.data.first, head_read.data.signature
        seen = Signal(1 << SIGNATURE_BITS)  # classes of the records that the search has passed
        entering = Signal(1 << SIGNATURE_BITS)  # that of the record that goes into the chain
        at, before, after = Signal(bits), Signal(bits), Signal(bits)
        vacant, fresh = Signal(bits), Signal(range(d.spill_words + 2), init=1)
        latency = Signal(LATENCY_BITS)
        place = Signal(bits)
        m.d.comb += [
            head_read.addr.eq(self.address),
            self.any.eq((head != 0) & ((signature & self._class(self.key)) != 0)),
            head_write.addr.eq(self.set),
            head_write.data.first.eq(head),
            head_write.data.signature.eq(signature | self._class(self.given.key)),
            record_read.addr.eq(at),
            link_read.addr.eq(at),
            self.record.eq(record_read.data),
            self.looked.eq(record_read.data),
            self.full.eq(self.used >= self.words),
            place.eq(Mux(vacant != 0, vacant, fresh)),
            record_write.data.eq(self.given),
            self.busy.eq(1),
        ]
        kept = Signal()  # `at` is the place of what was found, until that has been used
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.busy.eq(0)
                with m.If(self.find):
                    m.d.sync += [at.eq(head), before.eq(0), latency.eq(self.cycles), seen.eq(0)]
                    m.next = "READ"
                with m.Elif(self.replace):
                    m.d.comb += [record_write.en.eq(1), record_write.addr.eq(at), head_write.en.eq(1)]
                    m.d.sync += kept.eq(0)
                with m.Elif(self.remove):
                    # Round the record that was found, from its head or from the one before it.
                    with m.If(before == 0):
                        m.d.comb += [head_write.en.eq(1), head_write.data.first.eq(after),
                                     head_write.data.signature.eq(signature)]  # fmt: skip
                    with m.Else():
                        m.d.comb += [link_write.en.eq(1), link_write.addr.eq(before), link_write.data.eq(after)]
                    m.d.sync += [self.used.eq(self.used - 1), kept.eq(0)]
                    m.next = "FREE"
                with m.Elif(self.insert):
                    m.d.comb += [record_write.en.eq(1), record_write.addr.eq(place)]
                    m.d.sync += [at.eq(place), self.used.eq(self.used + 1), kept.eq(0),
                                 entering.eq(self._class(self.given.key))]  # fmt: skip
                    m.next = "TAKE"
                with m.Elif(~kept):
                    m.d.sync += at.eq(self.look)
            with m.State("READ"):
                with m.If(latency != 0):
                    m.d.sync += latency.eq(latency - 1)
                with m.Else():
                    hit = record_read.data.key.as_value()[1:] == self.key.as_value()[1:]
                    passed = seen | self._class(record_read.data.key)
                    m.d.sync += after.eq(link_read.data)
                    with m.If(hit | (link_read.data == 0)):
                        m.d.comb += [self.done.eq(1), self.found.eq(hit)]
                        m.d.sync += kept.eq(hit)
                        m.next = "IDLE"
                        with m.If(~hit):  # of records that have left the chain nothing need remain
                            m.d.comb += [head_write.en.eq(1), head_write.data.signature.eq(passed)]
                    with m.Else():
                        m.d.sync += [before.eq(at), at.eq(link_read.data), latency.eq(self.cycles), seen.eq(passed)]
            with m.State("FREE"):
                # In the backing memory a record without its mark is free.
                m.d.comb += [link_write.en.eq(1), link_write.addr.eq(at), link_write.data.eq(vacant)]
                m.d.comb += [record_write.en.eq(1), record_write.addr.eq(at), record_write.data.as_value().eq(0)]
                m.d.sync += vacant.eq(at)
                m.next = "IDLE"
            with m.State("TAKE"):
                m.next = "LINK"  # the link of the free record is being read
            with m.State("LINK"):
                m.d.comb += [link_write.en.eq(1), link_write.addr.eq(at), link_write.data.eq(head)]
                m.d.comb += [head_write.en.eq(1), head_write.data.first.eq(at),
                             head_write.data.signature.eq(Mux(head == 0, 0, signature) | entering)]  # fmt: skip
                with m.If(at == vacant):
                    m.d.sync += vacant.eq(link_read.data)
                with m.Else():
                    m.d.sync += fresh.eq(fresh + 1)
                m.next = "IDLE"
        return m

    def _class(self, key: Value) -> Value:
        """The bit of the signature that stands for a key."""
        number = set_of((key["class"], key.node, key.tag), SIGNATURE_FIRST + SIGNATURE_BITS)[SIGNATURE_FIRST:]
        return Value.cast((Const(1) << number)[: 1 << SIGNATURE_BITS])
