"""What crosses the matching unit's ports: widths, layouts of tokens and activations, codes of modes and errors.

Widths come from one `Dimensions`; a layout is a function of it, so that RTL and bench cannot disagree.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# Amaranth's layouts are untyped.

from __future__ import annotations

import enum
from dataclasses import dataclass

from amaranth.lib import data
from amaranth.utils import bits_for

from upl_mlir.hw.machine import Machine

VALUE_BITS = 32
"""Width of every value: IEEE binary32, two's complement, or 0/1 for a bool."""


class InputMode(enum.IntEnum):
    """How an input of a node takes its tokens; 2 bits in the node table."""

    ORDINARY = 0
    GATHER_ADD_F32 = 1
    GATHER_ADD_I32 = 2


class MatchingError(enum.IntEnum):
    """Why a matching unit has stopped; 3 bits.  NONE while it works."""

    NONE = 0
    FULL = 1
    """A token had to be stored and every entry was occupied."""
    UNDETERMINED = 2
    """An activation's tokens left a field of its index open."""
    COUNT = 3
    """Summands of one gather disagree on their number."""
    BAD_TOKEN = 4
    """A token for an input that the node table does not have, a summand with an open field, or multiplicity 0."""
    OVERFLOW = 5
    """A 32-bit integer sum overflowed."""


class Fault(enum.Enum):
    """A defect built in on purpose, to see that a check notices it."""

    MATCH_STUCK_AT_0 = "match_stuck_at_0"
    """The match lines of all entries are 0: nothing stored is ever found again."""

    ADDER_SILENT = "adder_silent"
    """The adder takes additions and never answers."""


@dataclass(frozen=True)
class Dimensions:
    """The parameters of one matching unit; widths in bits, `capacity` in entries.

    `adder_depth` is the number of additions that may be under way: the adder must take that many before its first
    result is taken from it.
    """

    capacity: int
    tag_bits: int
    max_fields: int
    max_inputs: int
    node_bits: int
    multiplicity_bits: int
    adder_depth: int = 16

    @classmethod
    def of(cls, machine: Machine) -> Dimensions:
        """The dimensions of each core's unit of a machine."""
        token = machine.token
        return cls(
            capacity=machine.matching.entries,
            tag_bits=token.tag_bits,
            max_fields=token.max_fields,
            max_inputs=token.max_inputs,
            node_bits=token.node_bits,
            multiplicity_bits=token.multiplicity_bits,
            adder_depth=max(16, machine.execution.add_cycles),
        )

    @property
    def unbounded(self) -> int:
        """The multiplicity that is never counted down: all ones."""
        return (1 << self.multiplicity_bits) - 1

    @property
    def input_bits(self) -> int:
        """Width of the number of an input."""
        return bits_for(self.max_inputs - 1)

    @property
    def entry_bits(self) -> int:
        """Width of the number of an entry."""
        return bits_for(self.capacity - 1)

    @property
    def pending_bits(self) -> int:
        """Width of a count of additions under way."""
        return bits_for(self.adder_depth)


def token_layout(dim: Dimensions) -> data.StructLayout:
    """A token on its way into the unit.

    `complete`: 1 for a gather's result (or a boot token's identity), which goes to matching at once; `node`, `input`:
    where to; `tag`: the packed index; `wild`: one bit per field, 1 = `*` (the field's bits of `tag` are ignored);
    `multiplicity`: activations it takes part in, all ones = unbounded; for a summand the number of summands.
    """
    return data.StructLayout(
        {
            "complete": 1,
            "node": dim.node_bits,
            "input": dim.input_bits,
            "tag": dim.tag_bits,
            "wild": dim.max_fields,
            "multiplicity": dim.multiplicity_bits,
            "value": VALUE_BITS,
        }
    )


def activation_layout(dim: Dimensions) -> data.StructLayout:
    """One firing: `node`, its full index `tag`, and `values` of inputs 0 … (those the node does not have are 0)."""
    return data.StructLayout(
        {
            "node": dim.node_bits,
            "tag": dim.tag_bits,
            "values": data.ArrayLayout(VALUE_BITS, dim.max_inputs),
        }
    )


def node_row_layout(dim: Dimensions) -> data.StructLayout:
    """A row of the node table: `inputs` (0 = no such node), `modes` (an `InputMode` each), and for each field the
    bits of the tag it occupies (`field_bits`, a mask as wide as the tag; 0 for a field the node does not have).
    """
    return data.StructLayout(
        {
            "inputs": bits_for(dim.max_inputs),
            "modes": data.ArrayLayout(2, dim.max_inputs),
            "field_bits": data.ArrayLayout(dim.tag_bits, dim.max_fields),
        }
    )


def config_layout(dim: Dimensions) -> data.StructLayout:
    """One write to the node table: `node` is the address, `row` the contents."""
    return data.StructLayout({"node": dim.node_bits, "row": node_row_layout(dim)})


def addition_layout(dim: Dimensions) -> data.StructLayout:
    """A request to the adder: binary32 `left` + `right`; `entry` comes back with the sum."""
    return data.StructLayout({"entry": dim.entry_bits, "left": VALUE_BITS, "right": VALUE_BITS})


def sum_layout(dim: Dimensions) -> data.StructLayout:
    """A result of the adder: the binary32 `value` for the gather record in `entry`."""
    return data.StructLayout({"entry": dim.entry_bits, "value": VALUE_BITS})


def entry_layout(dim: Dimensions) -> data.StructLayout:
    """The part of an entry that never changes: `gather` = 1 for a gather record, then its token's place and index;
    `count` is the number of summands of a gather record.
    """
    return data.StructLayout(
        {
            "gather": 1,
            "node": dim.node_bits,
            "input": dim.input_bits,
            "tag": dim.tag_bits,
            "wild": dim.max_fields,
            "count": dim.multiplicity_bits,
        }
    )


def change_layout(dim: Dimensions) -> data.StructLayout:
    """An entry that is occupied (`comes`), or emptied, if `any`: its token's place, and of its tag the fields that are not
    `*`."""
    return data.StructLayout(
        {"any": 1, "comes": 1, "node": dim.node_bits, "input": dim.input_bits, "tag": dim.tag_bits}
    )


def content_layout(dim: Dimensions) -> data.StructLayout:
    """The part of an entry that changes: `left` is the multiplicity left (of a gather record: the summands yet to
    come), `value` the value, valid if `has_value` (always for an ordinary token), `pending` its additions under way.
    """
    return data.StructLayout(
        {
            "left": dim.multiplicity_bits,
            "value": VALUE_BITS,
            "has_value": 1,
            "pending": dim.pending_bits,
        }
    )


def dump_layout(dim: Dimensions) -> data.StructLayout:
    """What a read of the dump port shows of one entry; `occupied` = 0 makes the rest meaningless."""
    return data.StructLayout({"occupied": 1, "entry": entry_layout(dim), "content": content_layout(dim)})
