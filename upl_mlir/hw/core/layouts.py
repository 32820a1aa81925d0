"""What crosses the ports of a core's units: widths, layouts of tokens, node table and code, codes of modes and errors.

Widths come from one `Dimensions`, so that RTL, encoder and test benches cannot disagree. The machine page of the
documentation has the same layouts as tables.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# Amaranth's layouts are untyped.

from __future__ import annotations

import enum

from amaranth.lib import data
from amaranth.utils import bits_for

from upl_mlir.hw.core.dimensions import Dimensions

VALUE_BITS = 32
"""Width of every value: IEEE binary32, two's complement, or 0/1 for a bool."""
MODE_BITS = 4
"""Bits of the mode of an input."""
REGISTER_BITS = 5
"""Bits of the number of a register of an activation."""
OPERAND_BITS = 6
"""An operand: a register, or from 32 on an input of the activation."""
FIRST_INPUT = 1 << REGISTER_BITS
"""The number of the first input among operands: registers stand before it."""
MAX_REGISTERS = 1 << REGISTER_BITS
"""Registers of an activation."""
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
    AND_BOOL = 10
    OR_BOOL = 11
    XOR_BOOL = 12


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
    LATE = 14
    """A summand of an open gather that has ended."""


class TokenKind(enum.IntEnum):
    """What a token is: 2 bits, or 3 where there are open gathers."""

    DATA = 0
    COMPLETE = 1
    """A completed gather, which goes to matching at once."""
    HOST = 2
    """On its way to the host: `node` is the number of the output."""
    SUMMAND = 3
    """Of an open gather: the multiplicity is its rank, plus 1."""
    PRESENT = 4
    """No summand: an open gather exists, with the value that it has without summands; the multiplicity is as of one."""
    CLOSE = 5
    """An open gather ends."""


def kind_bits(d: Dimensions) -> int:
    """Width of the kind of a token."""
    return 3 if d.closes else 2


def token_layout(d: Dimensions) -> data.StructLayout:
    """A token. `tag` is 0 in the fields that are `*`; which these are is the same for all tokens of an input, or it is said
    above the index (`Dimensions.index_bits`)."""
    return data.StructLayout(
        {
            "kind": kind_bits(d),
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
    token that left the send engine, the operation that the reducer began, and that of the store beside, if there is one."""
    token = data.StructLayout({"valid": 1, "token": token_layout(d)})
    fired = data.StructLayout({"valid": 1, "node": d.node_bits, "tag": d.tag_bits})
    beside = {"added_beside": added_layout(d)} if d.beside is not None else {}
    return data.StructLayout({"taken": token, "fired": fired, "sent": token, "added": added_layout(d), **beside})


LATENCY_BITS = 17
"""Width of the latency of a read of backing memory."""


def limits_layout(d: Dimensions) -> data.StructLayout:
    """How much of a matching unit is used: masks of the numbers of sets and of chains, the last way, records in each backing
    memory, and its latency."""
    return data.StructLayout(
        {
            "set_mask": d.set_bits,
            "gather_mask": bits_for(max(1, (d.gather_sets or d.sets) - 1)),
            "chain_mask": bits_for(max(1, d.chains - 1)),
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
"""The bit at which the number of sends stands in an outcome's word."""
COUNT_BITS = 3
"""Bits of that number."""
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
            "kind": kind_bits(d),
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
