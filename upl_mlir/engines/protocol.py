"""What an engine is: how a program is to run on it, and what a program on an engine does and gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from upl_mlir.engines.names import Simulator

Array = NDArray[Any]


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
    checkpoint: str | Path | None = None
    every: int = 1
    local: bool = False


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
