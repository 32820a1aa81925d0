"""Whether the processors are ours alone while something is measured, and near to each other.

What a cloud rents out as a processor is often one of the two threads of a processor core, and the other one is somebody
else's. While that one works, code that keeps a core busy takes up to twice the time; code that waits for its own results
does not, and neither the load nor the stolen time that Linux knows tells of it. And a host may move a processor to a core
that shares no cache with the others: then a message from one to another takes several times as long. So runs are taken
between two looks at how long additions take that could be done at once, on all processors at the same time, and at how
long a message takes. (Linux only.)
"""

from __future__ import annotations

import ctypes
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from upl_mlir.hw.sim import build

SLACK = 1.1, 1.5
"""So many times the shortest time of the additions, and of a message, is still undisturbed."""
FAR = 150.0
"""Nanoseconds of a message between processor cores that share no cache, at least (some 60 if they do)."""


class Look(NamedTuple):
    """What the slowest processor needs for six additions, and what a message takes; both in ns."""

    additions: float
    message: float

    def undisturbed(self, shortest: Look) -> bool:
        """Whether no processor was slower, or farther, than it can be."""
        near = min(SLACK[1] * shortest.message, FAR)
        return self.additions <= SLACK[0] * shortest.additions and self.message <= near


@dataclass(frozen=True)
class Run:
    """A figure, and looks just before and just after it."""

    figure: float
    before: Look
    after: Look


@dataclass(frozen=True)
class Runs:
    """Runs of one kind; `shortest`: the shortest times that were seen."""

    all: Sequence[Run]
    shortest: Look

    @property
    def undisturbed(self) -> list[Run]:
        """Those before and after which no processor was."""
        return [r for r in self.all if all(look.undisturbed(self.shortest) for look in (r.before, r.after))]

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
    looks = [look() for _ in range(20)]
    found: list[list[Run]] = [[] for _ in actions]

    def enough() -> bool:
        return all(len(Runs(some, _shortest(looks)).undisturbed) >= runs for some in found)

    end = time.monotonic() + seconds
    while len(found[0]) < runs or not (enough() or time.monotonic() > end):
        for some, action in zip(found, actions, strict=True):
            before = look()
            figure = action()
            some.append(Run(figure, before, look()))
            looks += [before, some[-1].after]
    return [Runs(some, _shortest(looks)) for some in found]


def _shortest(looks: Sequence[Look]) -> Look:
    """The shortest times; that of a message between processors of cores of their own, as two threads of one have a shorter
    one, and slow additions."""
    additions = min(look.additions for look in looks)
    return Look(additions, min(look.message for look in looks if look.additions <= SLACK[0] * additions))


def _yardstick() -> Callable[[], Look]:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "processors.cpp")
        source.write_text(Path(__file__).with_suffix(".cpp").read_text(encoding="utf-8"), encoding="utf-8")
        library = ctypes.CDLL(str(build.link([build.compile_source(source)], Path(folder, "processors.so"))))
    library.slowest_additions.restype = library.message.restype = ctypes.c_double
    return lambda: Look(library.slowest_additions(), library.message())
