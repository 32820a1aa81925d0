"""Timing: contenders in turn, round by round, so that a slow minute of the machine meets all of them; medians."""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

Name = TypeVar("Name")
BLOCK_SECONDS = 0.05  # a contender's share of a round: as many calls as fit, at least one


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: median, quickest and slowest round; how many rounds, how many calls in each."""

    median: float
    least: float
    most: float
    rounds: int
    calls: int


def interleaved(timers: Mapping[Name, timeit.Timer], rounds: int, budget: float) -> dict[Name, Timing]:
    """Time every contender; one that needs more than its share of `budget` seconds gets fewer rounds, but three."""
    calls: dict[Name, int] = {}
    wanted: dict[Name, int] = {}
    for name, timer in timers.items():
        timer.timeit(1)  # caches, lazily made buffers
        once = timer.timeit(1)
        calls[name] = max(1, int(BLOCK_SECONDS / max(once, 1e-9)))
        if calls[name] > 1:  # one call of a quick function says little
            once = timer.timeit(min(calls[name], 1000)) / min(calls[name], 1000)
            calls[name] = max(1, int(BLOCK_SECONDS / max(once, 1e-9)))
        block = max(once * calls[name], 1e-9)
        wanted[name] = max(3, min(rounds, int(budget / len(timers) / block)))
    found: dict[Name, list[float]] = {name: [] for name in timers}
    for number in range(max(wanted.values())):
        for name, timer in timers.items():
            if number < wanted[name]:
                found[name].append(timer.timeit(calls[name]) / calls[name])
    return {
        n: Timing(statistics.median(f), min(f), max(f), len(f), calls[n]) for n, f in found.items()
    }  # fmt: skip
