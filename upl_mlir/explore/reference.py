"""Reference lines: how many cycles other kinds of machines would take for the same run of the same program."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import Any

from upl_mlir.explore.dependences import Dependences, Unit

PER_CORE = {Unit.ADD: 2, Unit.MUL: 2, Unit.DIV: 1, Unit.SQRT: 1}
"""Units of a core: an adder and a multiplier in the execution unit, and another pair in the reducer."""
PIPELINED = (Unit.ADD, Unit.MUL)


def reference_lines(graph: Dependences, cores: int) -> dict[str, Any]:
    """`ideal`: every operation as soon as its operands are there; `scheduled`: on the units of so many cores, each started
    by a schedule made in advance, tokens moving for nothing; `scalar`: one core that executes an instruction a cycle, a
    load for each token used and a store for each token sent among them.  All inputs are there at the start."""
    kinds = Counter(graph.units)
    return {
        "ideal": graph.ideal,
        "scheduled": list_schedule(graph, cores),
        "scalar": len(graph.units) + graph.loads + graph.stores,
        "operations": {u.name.lower(): kinds[u] for u in Unit},
    }


def list_schedule(graph: Dependences, cores: int) -> int:
    """Cycles of a list schedule, the operation with the longest chain behind it first.  (Within twice the optimum.)"""
    count = len(graph.units)
    after: list[list[int]] = [[] for _ in range(count)]
    missing = [len(b) for b in graph.before]
    tail, there = [0] * count, [0] * count
    for n in range(count - 1, -1, -1):
        tail[n] += graph.latency[graph.units[n]]
        for b in graph.before[n]:
            after[b].append(n)
            tail[b] = max(tail[b], tail[n])
    waiting: dict[Unit, list[tuple[int, int]]] = {u: [] for u in Unit}
    coming: list[tuple[int, int]] = [(0, n) for n in range(count) if not missing[n]]
    free: dict[Unit, list[int]] = {u: [0] * (cores * number) for u, number in PER_CORE.items()}
    now = end = 0
    while coming or any(waiting.values()):
        while coming and coming[0][0] <= now:
            _, n = heapq.heappop(coming)
            heapq.heappush(waiting[graph.units[n]], (-tail[n], n))
        for unit, ready in waiting.items():
            while ready:
                if unit in free:
                    if free[unit][0] > now:
                        break
                    heapq.heapreplace(free[unit], now + (1 if unit in PIPELINED else graph.latency[unit]))
                _, n = heapq.heappop(ready)
                done = now + graph.latency[unit]
                end = max(end, done)
                for m in after[n]:
                    missing[m] -= 1
                    there[m] = max(there[m], done)
                    if not missing[m]:
                        heapq.heappush(coming, (there[m], m))
        later = [free[u][0] for u, ready in waiting.items() if ready] + ([coming[0][0]] if coming else [])
        now = max(now + 1, min(later, default=now + 1))
    return end
