"""Backing memory of the store: what finds no room in its set waits in a chain, chosen by a hash of its key.

There are as many chains as records, so that few have more than one, whatever the number of sets. A search goes through the
chain record by record, each a read of the backing memory. Beside the head of a chain stands its signature, a bit for each
of a few classes of keys: a key whose class no record has is not searched for. Records are numbered from 1; 0 ends a chain.
Free records form a chain too; those never used follow `fresh`.
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
from upl_mlir.hw.core.stores.hash import CHAIN_FIRST, chain_of, set_of
from upl_mlir.hw.core.stores.store import Shape, join_shape

SIGNATURE_BITS = 4
"""Bits of the number of a class of keys."""
SIGNATURE_FIRST = CHAIN_FIRST + 20
"""The first one, of the bits of the hash: those before it choose the set and the chain, in cores of any size."""


class Spill(wiring.Component):
    """address (in): a chain; any (out), a cycle later: whether it may have the record of `key` (in).

    All below come one at a time, when not busy (out), while the address is held, as `at` (in), too:
    find (in): search the chain for `key`; done (out) tells its end, found (out) and record (out) the outcome.
    remove (in): take what was found out of the chain. replace (in): the same, and put `given` (in) into its own chain.
    insert (in): put `given` into its own chain; full (out): there is no room for it.
    used (out): records in use. look (in): at rest, the record to look at: looked (out), a cycle later.
    words, cycles (in): how many records may be in use, up to `spill_words`, and the latency of a read.
    chain_mask (in): the bits of the number of a chain that are used.
    """

    def __init__(self, d: Dimensions, shape: Shape | None = None):
        self.d = d
        self.shape = shape = shape or join_shape(d)
        record = shape.record(d)
        super().__init__(
            {
                "address": In(shape.chain_bits),
                "at": In(shape.chain_bits),
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
                "chain_mask": In(shape.chain_bits, init=-1),
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
        m.submodules.heads = heads = Memory(shape=heading, depth=self.shape.chains, init=[])
        record_write, link_write, head_write = records.write_port(), links.write_port(), heads.write_port()
        record_read = records.read_port(transparent_for=(record_write,))
        link_read = links.read_port(transparent_for=(link_write,))
        head_read = heads.read_port(transparent_for=(head_write,))
        head, signature = head_read.data.first, head_read.data.signature
        seen = Signal(1 << SIGNATURE_BITS)  # classes of the records that the search has passed
        entering = Signal(1 << SIGNATURE_BITS)  # that of the record that goes into a chain
        its_chain, moved = Signal(self.shape.chain_bits), Signal()  # that chain; it has the place of what was found
        at, before, after = Signal(bits), Signal(bits), Signal(bits)
        vacant, fresh = Signal(bits), Signal(range(d.spill_words + 2), init=1)
        latency = Signal(LATENCY_BITS)
        place = Signal(bits)
        m.d.comb += [
            head_read.addr.eq(self.address),
            self.any.eq((head != 0) & ((signature & self._class(self.key)) != 0)),
            head_write.addr.eq(self.at),
            head_write.data.first.eq(head),
            head_write.data.signature.eq(signature),
            record_read.addr.eq(at),
            link_read.addr.eq(at),
            self.record.eq(record_read.data),
            self.looked.eq(record_read.data),
            self.full.eq(self.used >= self.words),
            place.eq(Mux(vacant != 0, vacant, fresh)),
            record_write.data.eq(self.given),
            self.busy.eq(1),
        ]
        with m.If(~self.busy):
            m.d.sync += [
                entering.eq(self._class(self.given.key)), its_chain.eq(self._chain(self.given.key) & self.chain_mask)
            ]  # fmt: skip
        kept = Signal()  # `at` is the place of what was found, until that has been used
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.busy.eq(0)
                with m.If(self.find):
                    m.d.sync += [at.eq(head), before.eq(0), latency.eq(self.cycles), seen.eq(0)]
                    m.next = "READ"
                with m.Elif(self.remove | self.replace):
                    # Round the record that was found, from its head or from the one before it.
                    with m.If(before == 0):
                        m.d.comb += [head_write.en.eq(1), head_write.data.first.eq(after)]
                    with m.Else():
                        m.d.comb += [link_write.en.eq(1), link_write.addr.eq(before), link_write.data.eq(after)]
                    m.d.comb += [record_write.en.eq(self.replace), record_write.addr.eq(at)]
                    m.d.sync += [self.used.eq(self.used - self.remove), kept.eq(0), moved.eq(1)]
                    m.next = "FREE"
                    with m.If(self.replace):
                        m.next = "TAKE"
                with m.Elif(self.insert):
                    m.d.comb += [record_write.en.eq(1), record_write.addr.eq(place)]
                    m.d.sync += [at.eq(place), self.used.eq(self.used + 1), kept.eq(0), moved.eq(0)]
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
                m.d.comb += head_read.addr.eq(its_chain)
                m.next = "LINK"  # the head of its chain is being read, and the link of the free record
            with m.State("LINK"):
                m.d.comb += [link_write.en.eq(1), link_write.addr.eq(at), link_write.data.eq(head)]
                m.d.comb += [head_write.en.eq(1), head_write.addr.eq(its_chain), head_write.data.first.eq(at),
                             head_write.data.signature.eq(Mux(head == 0, 0, signature) | entering)]  # fmt: skip
                with m.If(~moved):
                    with m.If(at == vacant):
                        m.d.sync += vacant.eq(link_read.data)
                    with m.Else():
                        m.d.sync += fresh.eq(fresh + 1)
                m.next = "IDLE"
        return m

    def _chain(self, key: Value) -> Value:
        """The chain of a key."""
        return chain_of((key["class"], key.node, key.tag), self.shape.chain_bits)

    def _class(self, key: Value) -> Value:
        """The bit of the signature that stands for a key."""
        number = set_of((key["class"], key.node, key.tag), SIGNATURE_FIRST + SIGNATURE_BITS)[SIGNATURE_FIRST:]
        return Value.cast((Const(1) << number)[: 1 << SIGNATURE_BITS])
