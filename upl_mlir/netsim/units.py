"""Modules of which no netlist is made, as they are better described in C++ by hand: *units* of a netlist.

Such a module is Verilog that a cell of its name stands for. Its description is a class with a method for the outputs that
depend on the same inputs, and `edge` for what happens at the edge of the clock.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UnitKind:
    """A module that is described by the class template `name` of `header` with the module's `parameters`.

    `shows`: methods that give some outputs in one word, the first one lowest, from some inputs and the state.
    `edge`: the inputs that the method of this name takes. It changes nothing unless one of the inputs `on` is not 0.
    No port has more than 64 bits, nor have the outputs of a method together.
    """

    name: str
    header: str
    parameters: tuple[str, ...]
    shows: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]
    edge: tuple[str, ...]
    on: tuple[str, ...]
