"""Which core the instances of a node are on, and what its ranks then count.

Core = (sum of the node's digits that no token leaves open + constant) mod cores. One of these digits is *split*: given the
others, all its values on a core have the same lowest bits, so that what is left of it counts the places of that core without
a hole. As the other digits take part in the sum, neighbours in any direction are on different cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from upl_mlir.hw.core.place import PLACE_BITS
from upl_mlir.hw.direct.lanes import LANE, Digit
from upl_mlir.hw.machine import Machine

Range = tuple[int, int]


@dataclass(frozen=True)
class Spread:
    """The number of cores, a power of two, and the names of the nodes whose cores the machine description chooses."""

    cores: int = 1
    chosen: frozenset[str] = frozenset()

    @classmethod
    def of(cls, machine: Machine) -> Spread:
        """What a machine description says."""
        return cls(machine.cores, frozenset(machine.placement) - {"policy"} if machine.cores > 1 else frozenset())

    @property
    def bits(self) -> int:
        """Width of the number of a core."""
        return self.cores.bit_length() - 1


ONE_CORE = Spread()


@dataclass(frozen=True)
class Home:
    """Core = sum of `digits` + `constant`, modulo 2**bits; `split`: the digit of which each core has every 2**bits-th value,
    if any has."""

    digits: tuple[int, ...] = ()
    bits: int = 0
    split: int | None = None
    constant: int = 0

    def core(self, values: Sequence[int]) -> int:
        """The core of an instance, by the values of all digits."""
        return sum((values[n] for n in self.digits), self.constant) % (1 << self.bits)

    def lowest(self, values: Sequence[int], core: int) -> int:
        """The lowest bits of the digit that is split, on a core, by the values of the other digits."""
        others = sum((values[n] for n in self.digits if n != self.split), self.constant)
        return (core - others) % (1 << self.bits)

    def row(self, digits: Sequence[Digit]) -> dict[str, int]:
        """The row of the placement table."""
        each = (1 << self.bits) - 1
        factor = 1 << PLACE_BITS - self.bits
        return {
            "mask": sum(each << digits[n].lane * LANE for n in self.digits), "hashed": 1, "shift": 0, "factor": factor,
            "constant": self.constant * factor, "count": 1 << self.bits, "first": 0,
        }  # fmt: skip


@dataclass(frozen=True)
class Local:
    """What ranks see of digits: `window`, the digit that counts modulo a power of two, and the power; the `home` of
    instances, None if the machine description chooses it (each core then has a place for every instance)."""

    window: Range | None = None
    home: Home | None = None

    @property
    def split(self) -> int | None:
        """The digit that is split."""
        return None if self.home is None else self.home.split

    @property
    def bits(self) -> int:
        """The number of its bits that are left out."""
        return 0 if self.home is None else self.home.bits

    def range(self, digit: int, found: Range) -> Range:
        """The range of a digit as ranks see it."""
        if self.window is not None and self.window[0] == digit:
            return 0, (1 << self.window[1]) - 1
        low, high = found
        return (low >> self.bits, high >> self.bits) if digit == self.split else found

    def value(self, digit: int, value: int) -> int:
        """The value of a digit as ranks see it."""
        seen = value >> self.bits if digit == self.split else value
        return seen & (1 << self.window[1]) - 1 if self.window is not None and self.window[0] == digit else seen

    def whole(self, values: list[int], core: int, generation: int) -> list[int] | None:
        """The values of all digits of an instance on a core, by what ranks see of them and the generation; None if it is on
        another core."""
        if self.window is not None:
            values[self.window[0]] |= generation << self.window[1]
        if self.home is None:
            return values
        if self.home.split is not None:
            low = self.home.lowest(values, core)
            values[self.home.split] = values[self.home.split] << self.home.bits | low
        return values if self.home.core(values) == core else None


WHOLE = Local()
"""All of every digit counts."""


def homes(spread: Spread, name: str, number: int, full: Sequence[int], table: int | None) -> list[Home | None]:
    """The ways of placing a node: `full`, the digits that none of its tokens leaves open; `table`, the one that chooses the
    row. What is a whole number of windows further along a stream is on the same core, as a window has a value or more for
    each core."""
    if spread.cores == 1:
        return [Home()]
    if name in spread.chosen:
        return [None]
    out: list[Home | None] = []
    for split in full:
        if split != table:
            out.append(Home(tuple(full), spread.bits, split))
    if table is not None and table in full:
        out.append(Home((table,), spread.bits))  # whole rows
    return out or [Home((), spread.bits, None, number % spread.cores)]
