"""One case in a process of its own: every contender is verified, then all are timed in turn; the findings as JSON.

A process for each case, because peers keep their pools and memory; pinned to as many cores as threads are allowed, before
any library that makes a pool is imported.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.native import machine


@dataclass
class Findings:
    """What a worker reports.  `off` is the largest difference from the reference of each contender; `absent` and `failed`
    say why a contender has no time.  Times are in seconds of the whole case."""

    key: str
    threads: int
    off: dict[str, float] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    gradient: dict[str, Any] = field(default_factory=dict)
    value: dict[str, Any] = field(default_factory=dict)
    load: float = 0.0


def prepared(found: Findings, name: str, make: Callable[[], Any], expected: Any, tolerance: float) -> Any:
    """A contender whose outputs are right, or None; what happened is written down."""
    from bench.native.case import Absent, differences

    try:
        run = make()
        off = max(differences(run.outputs(), run.expected or expected).values())
    except Absent as e:
        found.absent[name] = str(e)
        return None
    except Exception as e:
        found.failed[name] = f"{type(e).__name__}: {e}".splitlines()[0][:300]
        return None
    found.off[name] = off
    if not off <= tolerance:
        found.failed[name] = f"wrong: differs by {off:.2g} of the largest element, {tolerance:.0e} allowed"
        return None
    return run


def measure(key: str, threads: int, rounds: int, budget: float, only: list[str]) -> Findings:
    """Verify and time one case; rounds = 0 only verifies."""
    from bench.native import engines
    from bench.native.cases import by_key
    from bench.native.measure import interleaved

    case = by_key(key)
    found = Findings(key, threads, load=machine.load())

    tiny = case.task(case.tiny)
    for engine in ("interp", engines.NATIVE) if threads == 1 else ():
        prepared(
            found, f"{engine}, tiny", lambda e=engine: engines.run(case, e, tiny), case.exact(tiny), case.tolerance
        )

    task = case.task(case.sizes, threads)
    makers = {engines.NATIVE: lambda: engines.run(case, engines.NATIVE, task)}
    if threads > 1:
        makers["native, one thread"] = lambda: engines.run(case, engines.NATIVE, case.task(case.sizes))
    makers |= {n: (lambda m=m: m(task)) for n, m in case.contenders.items()}
    if only:
        makers = {n: m for n, m in makers.items() if n in only}
    expected = case.exact(task)
    runs = {n: run for n, m in makers.items() if (run := prepared(found, n, m, expected, case.tolerance))}

    if rounds:
        timers = {(n, "gradient"): r.timer for n, r in runs.items()}
        timers |= {(n, "value"): r.value for n, r in runs.items() if r.value}
        for (name, what), timing in interleaved(timers, rounds, budget).items():
            record = asdict(timing)
            for figure in ("median", "least", "most"):
                record[figure] *= runs[name].scale
            getattr(found, what)[name] = record
    found.load = max(found.load, machine.load())
    return found


def memory(key: str, contender: str) -> int:
    """Bytes that a contender's work takes at its peak, beyond what it held before, inputs and code included there.

    Measured is the first whole call: later ones reuse what the process keeps. Ours has compiled at a tiny size before it, as
    its code does not depend on sizes; JAX compiles for a size, so its figure includes its compiler's memory.
    """
    from bench.native import engines
    from bench.native.cases import by_key

    case = by_key(key)
    task = case.task(case.sizes)
    if contender == engines.NATIVE:
        engines.run(case, contender, case.task(case.tiny)).timer.timeit(1)
        run = engines.run(case, contender, task)
    else:
        run = case.contenders[contender](task)
    machine.forget_peak()
    before = machine.resident()
    run.timer.timeit(1)
    return machine.resident(peak=True) - before


def main() -> None:
    """Called by `bench.native` with the case's key."""
    parser = argparse.ArgumentParser()
    parser.add_argument("key")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--budget", type=float, default=20.0)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--memory")
    given = parser.parse_args()
    machine.pin(given.threads)
    if given.memory:
        from bench.native.case import Absent

        try:
            print(json.dumps(memory(given.key, given.memory)))
        except Absent as e:
            print(json.dumps(str(e)))
        return
    json.dump(asdict(measure(given.key, given.threads, given.rounds, given.budget, given.only)), sys.stdout)


if __name__ == "__main__":
    main()
