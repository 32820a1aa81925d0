"""What crosses the ports of a core's units: widths, layouts of tokens, node table and code, codes of modes and errors.

Widths come from one `Dimensions`, so that RTL, encoder and test benches cannot disagree. The machine page of the
documentation has the same layouts as tables.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# Amaranth's layouts are untyped.

from __future__ import annotations

import enum
from dataclasses import dataclass

from amaranth.lib import data
from amaranth.utils import bits_for

from upl_mlir.hw.machine import Machine, Organisation

VALUE_BITS = 32
"""Width of every value: IEEE binary32, two's complement, or 0/1 for a bool."""
MODE_BITS = 4
REGISTER_BITS = 5
OPERAND_BITS = 6
"""An operand: a register, or from 32 on an input of the activation."""
FIRST_INPUT = 1 << REGISTER_BITS
MAX_REGISTERS = 1 << REGISTER_BITS
OFFSET_BITS = 6
"""Width of a place in a tag, and of the width of a field."""


class Mode(enum.IntEnum):
    """How an input of a node takes its tokens."""

    PLAIN = 0
    """Full index, multiplicity 1: waits in the record that such inputs of an instance share."""
    COUNTED = 1
    """With `*` fields or another multiplicity: waits in a record of its own."""
    ADD_F32 = 2
    MUL_F32 = 3
    MUL_I32 = 4
    ADD_I32 = 5
    MIN_F32 = 6
    MAX_F32 = 7
    MIN_I32 = 8
    MAX_I32 = 9
    AND = 10
    OR = 11


FIRST_GATHER = Mode.ADD_F32
LAST_PIPELINED = Mode.MUL_I32
"""Gathers up to here go through the reducer; later ones are done in place."""


class Failure(enum.IntEnum):
    """Why a core has stopped; NONE while it works."""

    NONE = 0
    FULL = 1
    """A token had to be stored and there was no free entry where it may be kept."""
    COUNT = 2
    """Summands of one gather disagree on their number, or there are too many."""
    BAD_TOKEN = 3
    """A token for an input that the node table does not have, or with a multiplicity that its input cannot have."""
    DUPLICATE = 4
    """A token for a place where one of the same input and index waits already."""
    OVERFLOW = 5
    """A 32-bit integer result overflowed."""
    DIVISION = 6
    """An integer was divided by 0."""
    CONVERSION = 7
    """A real that no 32-bit integer can hold."""
    TABLE = 8
    """An index outside of a constant array."""
    MULTIPLICITY = 9
    """A token was sent with multiplicity below 1, or one too large for its bits."""
    INDEX = 10
    """A token was sent to an index that does not fit in the target's bits."""
    QUEUE = 11
    """The backing memory of the token queue is full."""
    PARITY = 12
    """A record of the store is not as it was written."""
    OPEN = 13
    """An activation whose tokens leave a field of its index open."""


class Kind(enum.IntEnum):
    """What a token is: 2 bits."""

    DATA = 0
    COMPLETE = 1
    """A completed gather, which goes to matching at once."""
    HOST = 2
    """On its way to the host: `node` is the number of the output."""


@dataclass(frozen=True)
class Dimensions:
    """The parameters of one core: widths in bits; `sets` and `ways` of its store, records and read
    latency of its backing memory, latencies of its arithmetic, depths of its memories. The store of open gathers has
    `gather_sets` sets (0: as many as the other one); `joining` plain and `walkers` counted tokens can wait for the
    join pipe, `activations` for a context. The token queue has
    `queue_front` tokens, and `queue_words` in a backing memory of its own. `network`: tokens may be for another
    core. `adjustable`: less than all of it can be used, see `settings.py`. `parity`: words of the
    stores have a bit that makes their parity even."""

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
    organisation: Organisation = Organisation.HASHED
    network: bool = False
    adjustable: bool = False
    parity: bool = False

    @classmethod
    def of(cls, machine: Machine) -> Dimensions:
        """The dimensions of each core of a machine."""
        token, execution, matching = machine.token, machine.execution, machine.matching
        direct = matching.organisation is Organisation.DIRECT
        cam = matching.organisation is Organisation.CAM
        return cls(
            tag_bits=token.tag_bits + (token.max_fields if cam else 0),
            max_fields=token.max_fields,
            max_inputs=token.max_inputs,
            node_bits=token.node_bits,
            multiplicity_bits=token.multiplicity_bits,
            sets=matching.entries if direct or cam else matching.entries // matching.ways,
            ways=token.max_inputs + 1 if direct else 1 if cam else matching.ways,  # banks, and the gather store
            spill_words=0 if direct or cam else matching.spill_capacity,
            late_words=max(1, matching.spill_capacity) if direct else 1,
            backing_cycles=machine.matching.backing_latency_cycles,
            queue_words=machine.matching.queue_capacity,
            add_cycles=execution.add_cycles,
            mul_cycles=execution.mul_cycles,
            div_cycles=execution.div_cycles,
            sqrt_cycles=execution.sqrt_cycles,
            window_bits=matching.stages.bit_length() - 1,
            organisation=machine.matching.organisation,
            network=machine.cores > 1,
            parity=matching.parity,
        )

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
        """Sets that can be looked at: those of waiting tokens, then those of gathers."""
        if self.organisation is not Organisation.HASHED:
            return self.sets
        return self.sets + (self.gather_sets or self.sets)

    @property
    def look_bits(self) -> int:
        """Width of the number of one."""
        return bits_for(self.look_sets - 1)

    @property
    def look_spilled(self) -> int:
        """Records of backing memory that can be looked at: those of waiting tokens, then those of gathers."""
        return 2 * self.spill_words

    @property
    def most_records(self) -> int:
        """Records that there may be."""
        return self.look_sets * self.ways + self.look_spilled

    @property
    def limits(self) -> dict[str, int]:
        """The limits (`limits_layout`) with which everything is used."""
        gather_mask = (self.gather_sets or self.sets) - 1
        return {"set_mask": self.sets - 1, "gather_mask": gather_mask, "last_way": self.ways - 1,
                "spill_words": self.spill_words, "backing_cycles": self.backing_cycles}  # fmt: skip

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


def token_layout(d: Dimensions) -> data.StructLayout:
    """A token. `tag` is 0 in the fields that are `*`; which these are is the same for all tokens of an input, or it is said
    above the index (`Dimensions.index_bits`)."""
    return data.StructLayout(
        {
            "kind": 2,
            "node": d.node_bits,
            "input": d.input_bits,
            "tag": d.tag_bits,
            "multiplicity": d.multiplicity_bits,
            "value": VALUE_BITS,
        }
    )


def activation_layout(d: Dimensions) -> data.StructLayout:
    """One firing: `node`, its full index `tag`, and `values` of its inputs."""
    return data.StructLayout(
        {"node": d.node_bits, "tag": d.tag_bits, "values": data.ArrayLayout(VALUE_BITS, d.max_inputs)}
    )


CORE_BITS = 4
"""Width of the number of a core."""


def flit_layout(d: Dimensions) -> data.StructLayout:
    """What goes between cores: a token, and the core that it is for."""
    return data.StructLayout({"home": CORE_BITS, "token": token_layout(d)})


def added_layout(d: Dimensions) -> data.StructLayout:
    """An operation that the reducer begins: the gather it belongs to, and its two operands."""
    return data.StructLayout(
        {
            "valid": 1,
            "node": d.node_bits,
            "input": d.input_bits,
            "tag": d.tag_bits,
            "left": VALUE_BITS,
            "right": VALUE_BITS,
        }
    )


def watch_layout(d: Dimensions) -> data.StructLayout:
    """What a core does in a cycle, for traces: the token that was taken, the activation that left the matching unit, the
    token that left the send engine, the operation that the reducer began."""
    token = data.StructLayout({"valid": 1, "token": token_layout(d)})
    fired = data.StructLayout({"valid": 1, "node": d.node_bits, "tag": d.tag_bits})
    return data.StructLayout({"taken": token, "fired": fired, "sent": token, "added": added_layout(d)})


LATENCY_BITS = 17
"""Width of the latency of a read of backing memory."""


def limits_layout(d: Dimensions) -> data.StructLayout:
    """How much of a matching unit is used: masks of the numbers of sets, the last way, records in each backing memory, and
    its latency."""
    return data.StructLayout(
        {
            "set_mask": d.set_bits,
            "gather_mask": bits_for(max(1, (d.gather_sets or d.sets) - 1)),
            "last_way": d.way_bits,
            "spill_words": bits_for(d.spill_words),
            "backing_cycles": LATENCY_BITS,
        }
    )


def node_layout(d: Dimensions) -> data.StructLayout:
    """A row of the node table: which inputs are plain (gathers included) and which counted, one bit each; the mode and
    the bits of the tag (`key`) of each, for inputs that there are not those of all fields."""
    return data.StructLayout(
        {
            "plain": d.max_inputs,
            "counted": d.max_inputs,
            "modes": data.ArrayLayout(MODE_BITS, d.max_inputs),
            "keys": data.ArrayLayout(d.tag_bits, d.max_inputs),
        }
    )


WALK_LEVELS = 2
"""Fields of a token that may be `*`."""


def walk_layout(d: Dimensions) -> data.StructLayout:
    """How a counted token's open fields are counted through: for each level the field's bits (`mask`, 0 if there is no
    such level), its lowest bit (`step`), and its last value in place (`last`); it begins at 0."""
    level = data.StructLayout({"mask": d.tag_bits, "step": d.tag_bits, "last": d.tag_bits})
    return data.StructLayout({"levels": data.ArrayLayout(level, WALK_LEVELS)})


def key_layout(d: Dimensions) -> data.StructLayout:
    """The part of a record that is compared."""
    return data.StructLayout({"valid": 1, "class": d.class_bits, "node": d.node_bits, "tag": d.tag_bits})


def state_layout(d: Dimensions) -> data.StructLayout:
    """What may be seen of a record: `left`, the multiplicity or the summands yet to come; of a shared record the inputs that
    are `present`; of a gather the number of summands in all."""
    return data.StructLayout({"left": d.multiplicity_bits, "present": d.max_inputs, "total": d.multiplicity_bits})


def instruction_layout() -> data.StructLayout:
    """An instruction, 64 bits; `immediate_b`: operand b is the immediate; `last`: the activation ends after it; `sends`:
    when its result is there, `COUNT_BITS` of the immediate from `COUNT_PLACE` on say how many descriptors are sent, from the
    one that its lowest bits name."""
    return data.StructLayout(
        {
            "op": 6,
            "sends": 1,
            "last": 1,
            "immediate_b": 1,
            "result": REGISTER_BITS,
            "a": OPERAND_BITS,
            "b": OPERAND_BITS,
            "c": OPERAND_BITS,
            "immediate": 32,
        }
    )


COUNT_PLACE = 16
COUNT_BITS = 3
MOST_SENDS = (1 << COUNT_BITS) - 1
"""Descriptors that an instruction may send."""


class FieldKind(enum.IntEnum):
    """Where a field of a token's index comes from."""

    NONE = 0
    """No such field, or `*`."""
    FIELD = 1
    """A field of the sender's index, plus a constant."""
    REGISTER = 2
    """A register, plus a constant: those of a descriptor are read one after the other."""
    CONSTANT = 3


def field_layout() -> data.StructLayout:
    """One field of a send descriptor: source place and width in the sender's tag, or the operand in `source`; what is
    added (biases included), and place and width in the target's tag."""
    return data.StructLayout(
        {
            "kind": 2,
            "source": OFFSET_BITS,
            "width": OFFSET_BITS,
            "constant": 32,
            "offset": OFFSET_BITS,
            "bits": OFFSET_BITS,
        }
    )


class Times(enum.IntEnum):
    """Where a token's multiplicity comes from."""

    CONSTANT = 0
    REGISTER = 1
    TABLE = 2
    """The constant array at a field of the sender's index, plus a constant."""


class Guard(enum.IntEnum):
    """Whether a token is sent: always, if the guard's register is not 0, or by a comparison of a field (without its bias)
    with a constant."""

    ALWAYS = 0
    REGISTER = 1
    EQUAL = 2
    UNEQUAL = 3
    LESS = 4
    NOT_LESS = 5


def send_layout(d: Dimensions) -> data.StructLayout:
    """A send descriptor: target, operand of the value, guard (register, or place, width and constant), multiplicity
    (a constant, or a register; of a table: the array's beginning, the place and width of the field, what is added, and the
    array's length), index."""
    return data.StructLayout(
        {
            "kind": 2,
            "node": d.node_bits,
            "input": d.input_bits,
            "value": OPERAND_BITS,
            "guarded": 3,
            "guard": OPERAND_BITS,
            "guard_width": OFFSET_BITS,
            "guard_constant": 32,
            "times": 2,
            "multiplicity": max(16, d.multiplicity_bits),
            "times_register": OPERAND_BITS,
            "times_width": OFFSET_BITS,
            "times_constant": 16,
            "times_length": 16,
            "fields": data.ArrayLayout(field_layout(), d.max_fields),
        }
    )


class Memory(enum.IntEnum):
    """The memories that the host loads, as `config_select` names them; 0 only moves data into the staging register."""

    STAGE = 0
    NODE = 1
    WALK = 2
    ENTRY = 3
    CODE = 4
    SEND = 5
    TABLE = 6
    PLACE = 7
    SETTING = 8
    """One row: `settings_layout`."""
    RANK = 9
    """Rows of ranks, of the organisation `direct`."""


CONFIG_BITS = 64
"""Width of the data bus of the configuration: wider rows are moved in parts, the highest first."""
