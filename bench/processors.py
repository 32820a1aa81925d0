"""Whether the processors are ours alone while something is measured.

What a cloud rents out as a processor is often one of the two threads of a processor core, and the other one is somebody
else's. While that one works, code that keeps a core busy takes up to twice the time; code that waits for its own results
does not, and neither the load nor the stolen time that Linux knows tells of it. So runs are taken between two looks at how
long additions take that could be done at once, on all processors at the same time. (Linux only.)
"""

from __future__ import annotations

import ctypes
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from upl_mlir.hw.sim import build

SLACK = 1.1
"""So many times the shortest time of the additions is still undisturbed."""


@dataclass(frozen=True)
class Run:
    """A figure, and what the slowest processor needed for six additions just before and just after it, in ns."""

    figure: float
    before: float
    after: float


@dataclass(frozen=True)
class Runs:
    """Runs of one kind; `shortest`: the shortest time of the additions that was seen."""

    all: Sequence[Run]
    shortest: float

    @property
    def undisturbed(self) -> list[Run]:
        """Those before and after which no processor was slower than it can be."""
        return [r for r in self.all if max(r.before, r.after) <= SLACK * self.shortest]

    @property
    def kept(self) -> str:
        """Which runs `median` is of."""
        good, count = len(self.undisturbed), len(self.all)
        return f"{good} undisturbed runs of {count}" if good else f"{count} runs, all of them disturbed"

    @property
    def median(self) -> float:
        """Of the undisturbed runs, or of all if there are none."""
        return statistics.median(r.figure for r in self.undisturbed or self.all)


def measured(*actions: Callable[[], float], runs: int, seconds: float) -> list[Runs]:
    """Figures measured in turn, after one round to warm up: until each has so many undisturbed ones, for `seconds` at most,
    but at least `runs` rounds."""
    look = _yardstick()
    for action in actions:
        action()
    shortest = min(look() for _ in range(20))
    found: list[list[Run]] = [[] for _ in actions]

    def enough() -> bool:
        return all(len(Runs(some, shortest).undisturbed) >= runs for some in found)

    end = time.monotonic() + seconds
    while len(found[0]) < runs or not (enough() or time.monotonic() > end):
        for some, action in zip(found, actions, strict=True):
            before = look()
            figure = action()
            some.append(Run(figure, before, look()))
            shortest = min(shortest, before, some[-1].after)
    return [Runs(some, shortest) for some in found]


def _yardstick() -> Callable[[], float]:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "processors.cpp")
        source.write_text(Path(__file__).with_suffix(".cpp").read_text(encoding="utf-8"), encoding="utf-8")
        library = ctypes.CDLL(str(build.link([build.compile_source(source)], Path(folder, "processors.so"))))
    library.slowest_additions.restype = ctypes.c_double
    return library.slowest_additions
