"""What an engine is: its name, how a program is to run on it, and what a program on an engine does and gives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from numpy.typing import NDArray

Array = NDArray[Any]


class EngineName(StrEnum):
    """Names of the engines."""

    INTERP = "interp"
    TOKEN = "token"
    NATIVE = "native"
    RTL = "rtl"
    CIRCUIT = "circuit"
    REFERENCE = "reference"


Simulator = Literal["amaranth", "compiled", "verilator"]
"""What simulates a machine: Amaranth's simulator, our models, Verilator's."""
SIMULATORS: tuple[Simulator, ...] = get_args(Simulator)


@dataclass(frozen=True)
class Setting:
    """How a program is to run; `compile` says what each means."""

    real: str
    gather: str
    order: str
    seed: int
    machine: str | Path | None
    threads: int
    lanes: int
    along: str | None
    bench: str | Path | None = None
    simulator: Simulator | None = None
    share: bool = False


class _Figures(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


class Result(Protocol):
    """What a run gives."""

    @property
    def outputs(self) -> dict[str, Array]:
        """Dense arrays, by name."""
        ...

    @property
    def stats(self) -> _Figures:
        """The figures of the run."""
        ...


class Runner(Protocol):
    """A program with its sizes on an engine."""

    def run(self, arrays: Any, /) -> Result:
        """Run once on the dense arrays of the inputs.  Raises UplError."""
        ...
