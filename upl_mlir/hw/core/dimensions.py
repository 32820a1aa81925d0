"""The parameters of one core: widths, sizes of its stores and memories, latencies."""

# pyright: reportUnknownVariableType=false
# Amaranth's utilities are untyped.

from __future__ import annotations

from dataclasses import dataclass, replace

from amaranth.utils import bits_for

from upl_mlir.hw.machine import Machine, Organisation

CHAINS = 4096
"""Heads of chains on the chip, of some 29 bits, at least, if there are so many records: seven block RAMs of an ECP5."""


@dataclass(frozen=True)
class Dimensions:
    """The parameters of one core: widths in bits; `sets` and `ways` of its store, records and read latency of its
    backing memory, latencies of its arithmetic, depths of its memories. The store of open gathers has `gather_sets` sets
    (0: as many as the other one); `joining` plain and `walkers` counted tokens can wait for the join pipe, `activations`
    for a context. The token queue has `queue_front` tokens, and `queue_words` in a backing memory of its own. `stages`:
    so many are told apart for the throttle of the host, 0 if there is none; `drains`: that waits until nothing is under
    way. `network`: tokens may be for another core. `closes`: a gather may end when no summand can come any more.
    `beside_sets`, `beside_ways`: the hashed store beside a direct one, if there is one. `adjustable`: less than all of
    it can be used, see `settings.py`. `parity`: words of the stores have a bit that makes their parity even."""

    tag_bits: int = 40
    max_fields: int = 6
    max_inputs: int = 4
    node_bits: int = 6
    multiplicity_bits: int = 16
    sets: int = 256
    ways: int = 4
    gather_sets: int = 0
    joining: int = 1024
    walkers: int = 256
    activations: int = 128
    spill_words: int = 4096
    backing_cycles: int = 20
    add_cycles: int = 4
    mul_cycles: int = 4
    div_cycles: int = 16
    sqrt_cycles: int = 16
    contexts: int = 16
    code_words: int = 4096
    send_words: int = 256
    table_words: int = 4096
    queue_front: int = 64
    queue_words: int = 4096
    late_words: int = 4096
    rank_rows: int = 64
    window_bits: int = 2
    stages: int = 0
    drains: bool = False
    beside_sets: int = 0
    beside_ways: int = 1
    organisation: Organisation = Organisation.HASHED
    network: bool = False
    closes: bool = False
    adjustable: bool = False
    parity: bool = False

    @classmethod
    def of(cls, machine: Machine) -> Dimensions:
        """The dimensions of each core of a machine."""
        token, execution, matching = machine.token, machine.execution, machine.matching
        direct = matching.organisation is Organisation.DIRECT
        cam = matching.organisation is Organisation.CAM
        beside, beside_ways = matching.store_beside
        return cls(
            tag_bits=token.tag_bits + (token.max_fields if cam else 0),
            max_fields=token.max_fields,
            max_inputs=token.max_inputs,
            node_bits=token.node_bits,
            multiplicity_bits=token.multiplicity_bits,
            sets=matching.entries if direct or cam else matching.entries // matching.ways,
            # of direct: the banks, and the gather store
            ways=max(token.max_inputs + 1, beside_ways) if direct else 1 if cam else matching.ways,
            beside_sets=beside // beside_ways,
            beside_ways=beside_ways,
            spill_words=0 if direct or cam else matching.spill_capacity,
            late_words=max(1, matching.spill_capacity) if direct else 1,
            backing_cycles=machine.matching.backing_latency_cycles,
            queue_words=machine.matching.queue_capacity,
            add_cycles=execution.add_cycles,
            mul_cycles=execution.mul_cycles,
            div_cycles=execution.div_cycles,
            sqrt_cycles=execution.sqrt_cycles,
            window_bits=matching.stages.bit_length() - 1,
            stages=machine.stages,
            drains=machine.host.fit,
            organisation=machine.matching.organisation,
            network=machine.cores > 1,
            closes=machine.matching.open_gathers is True,
            parity=matching.parity,
        )

    @property
    def beside(self) -> Dimensions | None:
        """The dimensions of the hashed store beside a direct one, if there is one: its backing memories are as large as
        those for tokens that are put off."""
        if not self.beside_sets:
            return None
        return replace(
            self, organisation=Organisation.HASHED, sets=self.beside_sets, ways=self.beside_ways, gather_sets=0,
            spill_words=self.late_words, beside_sets=0, beside_ways=1, stages=0,
        )  # fmt: skip

    @property
    def alone(self) -> Dimensions:
        """The dimensions of the direct store, without the one beside it."""
        return replace(self, ways=self.max_inputs + 1, beside_sets=0, beside_ways=1, stages=0)

    @property
    def unbounded(self) -> int:
        """The multiplicity that is never counted down: all ones."""
        return (1 << self.multiplicity_bits) - 1

    @property
    def index_bits(self) -> int:
        """Width of the index in a tag; what is above it says which fields are `*` (organisation `cam`)."""
        return self.tag_bits - (self.max_fields if self.organisation is Organisation.CAM else 0)

    @property
    def input_bits(self) -> int:
        """Width of the number of an input."""
        return bits_for(self.max_inputs - 1)

    @property
    def class_bits(self) -> int:
        """Width of the class of a record: the number of its input, or `max_inputs` for a record that inputs share."""
        return bits_for(self.max_inputs)

    @property
    def set_bits(self) -> int:
        """Width of the number of a set."""
        return max(1, bits_for(self.sets - 1))

    @property
    def chains(self) -> int:
        """Chains of a backing memory, a power of two: as many as it has records, so that most have one record or none; but
        no more than the store has records, as their heads are on the chip. 0 without a backing memory."""
        if self.organisation is not Organisation.HASHED:
            return 0
        return 1 << bits_for(min(max(self.spill_words, 1), max(CHAINS, self.sets * self.ways)) - 1)

    @property
    def way_bits(self) -> int:
        """Width of the number of a way."""
        return max(1, bits_for(self.ways - 1))

    @property
    def pass_cycles(self) -> int:
        """Latency of every pipelined operation of the execution unit and of the reducer."""
        return max(self.add_cycles, self.mul_cycles, 2)

    @property
    def pending(self) -> int:
        """Operations of the reducer that may be under way or wait with their results."""
        return 2 * self.pass_cycles + 8

    @property
    def accumulators(self) -> int:
        """Gathers for which operations of the reducer may be under way."""
        return 1 << bits_for(self.pass_cycles + 7)

    @property
    def accumulator_bits(self) -> int:
        """Width of the number of one."""
        return bits_for(self.accumulators - 1)

    @property
    def look_sets(self) -> int:
        """Sets that can be looked at: those of waiting tokens, then those of gathers; of a direct store its places, then the
        sets of the store beside it."""
        if self.organisation is not Organisation.HASHED:
            return self.sets + (self.beside.look_sets if self.beside is not None else 0)
        return self.sets + (self.gather_sets or self.sets)

    @property
    def look_bits(self) -> int:
        """Width of the number of one."""
        return bits_for(self.look_sets - 1)

    @property
    def look_spilled(self) -> int:
        """Records of backing memory that can be looked at: those of waiting tokens, then those of gathers."""
        return 2 * (self.spill_words if self.beside is None else self.beside.spill_words)

    @property
    def most_records(self) -> int:
        """Records that there may be."""
        return self.look_sets * self.ways + self.look_spilled

    @property
    def gathers(self) -> int:
        """Gathers that there is room for, in the store and in backing memory; with a direct store, in the one beside it."""
        if self.beside is not None:
            return self.beside.gathers
        return (self.gather_sets or self.sets) * self.ways + self.spill_words

    @property
    def limits(self) -> dict[str, int]:
        """The limits (`limits_layout`) with which everything is used."""
        gather_mask = (self.gather_sets or self.sets) - 1
        return {"set_mask": self.sets - 1, "gather_mask": gather_mask, "chain_mask": max(0, self.chains - 1),
                "last_way": self.ways - 1, "spill_words": self.spill_words,
                "backing_cycles": self.backing_cycles}  # fmt: skip

    @property
    def pending_bits(self) -> int:
        """Width of a number of them."""
        return bits_for(self.pending)

    @property
    def code_bits(self) -> int:
        """Width of an address of the code."""
        return bits_for(self.code_words - 1)

    @property
    def send_bits(self) -> int:
        """Width of the number of a send descriptor."""
        return bits_for(self.send_words - 1)

    @property
    def context_bits(self) -> int:
        """Width of the number of a context."""
        return bits_for(self.contexts - 1)
