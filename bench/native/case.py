"""What a case is: a UPL program, its sizes and inputs, and the contenders that compute the same value and gradient."""

from __future__ import annotations

import timeit
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import upl_mlir as upl

Array = NDArray[Any]
Arrays = dict[str, Array]
Sizes = Mapping[str, int]

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


class Absent(Exception):
    """A contender that cannot run here; the text says why."""


@dataclass(frozen=True)
class Run:
    """A contender, ready: `timer` computes value and gradient (in caller's hands when it returns), `value` the value alone.

    `outputs` runs once and gives the results by the names of the UPL program's ports.  Where a contender is too slow for
    the whole case it computes 1/`scale` of it; then `expected` holds what its outputs must be.
    """

    timer: timeit.Timer
    outputs: Callable[[], Arrays]
    value: timeit.Timer | None = None
    scale: float = 1.0
    expected: Arrays | None = None


@dataclass(frozen=True)
class Task:
    """What a contender gets: the inputs in the case's precision, the sizes, and how many threads it may use."""

    arrays: Arrays
    sizes: Sizes
    real: str
    threads: int = 1


def simple(
    gradient: Callable[[], Any], outputs: Callable[[Any], Arrays], value: Callable[[], Any] | None = None
) -> Run:
    """A contender made of functions without arguments; `outputs` names what `gradient` returns."""
    return Run(timeit.Timer(gradient), lambda: outputs(gradient()), timeit.Timer(value) if value else None)


@dataclass(frozen=True)
class Case:
    """One line of the table.

    `of` and `wrt` ask for the gradient; `of` is empty where the program itself holds `adjoint of`.  `reference` is the same
    computation by numpy in double precision.  `sizes` are constants and parameters of the program (`parameters` names the
    latter), `tiny` those at which the interpreter checks the program.  `tolerance` is of the largest element of each output.
    """

    key: str
    title: str
    program: Path
    of: str
    wrt: tuple[str, ...]
    sizes: Sizes
    tiny: Sizes
    parameters: tuple[str, ...]
    inputs: Callable[[Sizes], Arrays]
    reference: Callable[[Task], Arrays]
    contenders: Mapping[str, Callable[[Task], Run]]
    against_peers: float | None  # target: times as fast as the best peer
    first_seconds: float  # target: the first gradient, everything included
    seconds: float | None = None  # target: of one call
    real: str = "f64"
    against_c: float = 0.8
    tolerance: float = 1e-10
    parallel: bool = False
    scalar: bool = False
    trajectory_bytes: int = 0  # of all states together, where the memory is part of the target
    adapt: Callable[[upl.Program], upl.Program] = field(default=lambda p: p)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers."""
        return np.dtype(np.float32 if self.real == "f32" else np.float64)

    def task(self, sizes: Sizes, threads: int = 1) -> Task:
        """The inputs for these sizes, rounded to the case's precision."""
        arrays = {n: np.array(a, self.dtype, order="C") for n, a in self.inputs(sizes).items()}
        return Task(arrays, sizes, self.real, threads)

    def load(self, sizes: Sizes) -> upl.Program:
        """The program with these sizes; its parameters stay open."""
        return upl.load(self.program, **{n: v for n, v in sizes.items() if n not in self.parameters})

    def bound(self, sizes: Sizes) -> dict[str, int]:
        """The values of the parameters."""
        return {n: sizes[n] for n in self.parameters}

    def gradient(self, sizes: Sizes) -> upl.Program:
        """The program that computes value and gradient."""
        program = self.load(sizes)
        if not self.of:
            return self.adapt(program.expanded())
        scalar = not program.outputs[self.of].fields
        return self.adapt((upl.grad if scalar else upl.vjp)(program, self.of, self.wrt))

    def exact(self, task: Task) -> Arrays:
        """The reference in double precision, on the inputs as the contenders see them."""
        arrays = {n: a.astype(np.float64) for n, a in task.arrays.items()}
        return self.reference(Task(arrays, task.sizes, "f64"))


def differences(found: Arrays, expected: Arrays) -> dict[str, float]:
    """For each output the largest difference over the largest expected element; infinity where shapes or names differ."""
    out: dict[str, float] = {}
    for name, wanted in expected.items():
        got = np.asarray(found.get(name, np.nan), np.float64)
        if got.shape != np.shape(wanted):
            out[name] = float("inf")
            continue
        size = float(np.max(np.abs(wanted))) or 1.0
        off = float(np.max(np.abs(got - wanted))) / size
        out[name] = float("inf") if np.isnan(off) else off
    return out
