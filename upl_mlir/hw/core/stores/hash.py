"""The hash that spreads records over the sets of the store, and over the chains of its backing memory."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportArgumentType=false, reportReturnType=false
# pyright: reportOperatorIssue=false

from __future__ import annotations

import hashlib

from amaranth.hdl import Cat, Value


def hash_masks(width: int, bits: int) -> list[int]:
    """For each bit of the hash the bits of the key that it is the parity of: fixed, and as good as random.

    Two keys that differ meet with probability 2**-bits whatever they are; the folding that is often used instead makes
    neighbours of different fields meet.
    """
    size = -(-width // 8)
    stream = hashlib.shake_256(f"hash {width}".encode()).digest(size * bits)
    return [int.from_bytes(stream[size * n : size * (n + 1)], "little") & ((1 << width) - 1) for n in range(bits)]


def set_of(key: tuple[Value, Value, Value], bits: int) -> Value:
    """The set of a record by class, node and tag."""
    whole = Cat(*key)
    return Cat(*((whole & mask).xor() for mask in hash_masks(len(whole), bits)))


CHAIN_FIRST = 16
"""The first bit of the hash that chooses a chain: those before it choose the set, in cores of any size."""


def chain_of(key: tuple[Value, Value, Value], bits: int) -> Value:
    """The chain of a record, which says nothing of its set."""
    return set_of(key, CHAIN_FIRST + bits)[CHAIN_FIRST:]


def home_of(key: tuple[Value, Value, Value], set_bits: int, chain_bits: int) -> Value:
    """The set of a record and, above it, its chain."""
    return Cat(set_of(key, set_bits), chain_of(key, chain_bits))
