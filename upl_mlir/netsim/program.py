"""Programs: what a model has and what it computes in a cycle, as steps that set variables to expressions."""

from __future__ import annotations

from dataclasses import dataclass, field

from upl_mlir.netsim.expression import Node, Variable, scalar
from upl_mlir.netsim.read import Memory, Netlist, Unit, Word

WIDE = "w"
"""What a step calls a number of 128 bits."""


@dataclass(frozen=True)
class Let:
    """A name for a value that a step needs more than once: an address, or a number of 128 bits if it is `wide`."""

    value: Node
    wide: bool = False

    @property
    def name(self) -> str:
        return WIDE if self.wide else "a"

    @property
    def node(self) -> Node:
        """What stands for the value."""
        return Node("let", name=self.name)


@dataclass(eq=False)
class Step:
    """What is evaluated as a whole: variables that are set, one after the other, from others, `ins`.

    `register`: the variable of a register whose next value is set. `rows`: the memory or the unit whose state is read.
    `writes`: the one that is told at the end of the cycle what is set.
    """

    sets: list[tuple[Variable, Node]]
    ins: list[Variable]
    path: str = ""
    cost: int = 1
    let: Let | None = None
    rows: Memory | Unit | None = None
    writes: Memory | Unit | None = None
    register: Variable | None = None

    @property
    def outs(self) -> list[Variable]:
        """What is set."""
        return [v for v, _ in self.sets]

    def scalar(self, owner: str = "m") -> str:
        """It in C++, for one core, with the memories and units of `owner`."""
        text = " ".join(f"{v.name} = {scalar(value, owner)};" for v, value in self.sets)
        if self.let is None:
            return text
        return f"{{ const u{128 if self.let.wide else 64} {self.let.name} = {scalar(self.let.value, owner)}; {text} }}"


@dataclass(frozen=True)
class Commit:
    """What happens to a memory at the end of a cycle, if `on` is not 0: the row at `place` of each of its variables takes a
    value. Or to a unit: it is called."""

    memory: Memory | Unit
    on: Variable
    place: Variable | None
    sets: list[tuple[Node | None, Node]]

    def variables(self) -> list[Variable]:
        """What it reads."""
        each = (node for pair in self.sets for node in pair if node is not None)
        return list(dict.fromkeys(v for node in each for v in node.variables()))

    def scalar(self, owner: str = "m") -> str:
        """It in C++, for one core, whose memories and units `owner` has."""
        takes = ((f"{scalar(row, owner)} = " if row is not None else "") + scalar(value, owner) for row, value in self.sets)
        return " ".join(f"{one};" for one in takes)


@dataclass(frozen=True)
class Table:
    """Of a linear map of at most 64 bits to so many: what each byte of the argument adds to the result, by its value."""

    bits: int
    rows: tuple[tuple[int, ...], ...]


@dataclass
class Program:
    """What a model has: variables by word, steps in an order in which each can be done, the registers' initial values."""

    netlist: Netlist
    variables: dict[Word, list[Variable]]
    steps: list[Step]
    initial: dict[Variable, int]
    commits: list[Commit] = field(default_factory=list[Commit])
    outputs: dict[str, list[Variable]] = field(default_factory=dict[str, list[Variable]])
    tables: dict[Table, str] = field(default_factory=dict[Table, str])
    """Names of constant tables."""
