# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
"""The table: python -m bench.suite [name]..., all of it into RESULTS.md; with --json NAME one program's figures, as JSON.

Each program has a process of its own, on one processor, at real-time priority where the system grants that.  In it native
code, jitted JAX (64 bits) and numpy take turns.  Figures are the least of many calls, as others use the machine.  Results
are compared.  Programs are functions of JAX; native code gets them by `upl.from_jax`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import numpy as np

from bench.report import apart, update

ROUNDS = 15
"""Rounds in which each contender has its turn."""
TURN_S = 0.02
"""What a turn takes about: several calls, or one that takes longer."""
MOST_S = 0.5
"""What all turns of one contender take, about."""
LIMIT_S = 300
"""Seconds for a program."""
Calls = dict[str, Callable[[], Any]]


def least(calls: Calls) -> dict[str, float]:
    """Microseconds of the fastest call of each, taken in turns."""
    times: dict[str, list[float]] = {n: [] for n in calls}
    counts: dict[str, int] = {}
    for name, call in calls.items():
        call()  # compiles, where nothing has been compiled yet
        start = time.perf_counter()
        call()
        counts[name] = max(1, int(TURN_S / max(time.perf_counter() - start, 1e-7)))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            for _ in range(counts[name] if sum(times[name]) < 1e6 * MOST_S else 0):
                start = time.perf_counter()
                call()
                times[name].append(1e6 * (time.perf_counter() - start))
    return {n: min(t) for n, t in times.items()}


def measure(name: str) -> dict[str, Any]:
    """The figures of a program."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import upl_mlir as upl
    from bench.suite.cases import CASES
    from bench.suite.in_numpy import in_numpy

    case = CASES[name]
    given = [jax.numpy.asarray(a) for a in case.args]
    value, both = jax.jit(case.function), jax.jit(jax.value_and_grad(case.function, case.wrt))
    ours = upl.from_jax(case.function, engine="native")
    start = time.perf_counter()
    gradient = upl.value_and_grad(ours, case.wrt)
    wanted, found = both(*given), gradient(*case.args)
    first = time.perf_counter() - start
    np.testing.assert_allclose(float(found[0]), float(wanted[0]), rtol=1e-8)
    for a, b in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9 * max(1.0, float(np.abs(b).max())))
    calls: Calls = {"native": lambda: ours(*case.args), "jax": lambda: jax.block_until_ready(value(*given))}
    plain = in_numpy(case.function)
    try:
        np.testing.assert_allclose(plain(*case.args), float(wanted[0]), rtol=1e-8)
        calls["numpy"] = lambda: plain(*case.args)
    except (AttributeError, TypeError):
        pass
    out = {"first": first, "value": least(calls)}
    out["gradient"] = least({
        "native": lambda: gradient(*case.args), "jax": lambda: jax.block_until_ready(both(*given)),
    })  # fmt: skip
    return out


def this_machine() -> str:
    """Processors, and how busy they are."""
    load = " to ".join(f"{x:.1f}" for x in sorted(os.getloadavg()))
    return f"{os.cpu_count()} cores, load {load}."


def mean(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main(names: Sequence[str]) -> None:
    """Print the table, the means, and the five that are slowest beside JAX."""
    from bench.suite.cases import CASES

    ratios: dict[str, dict[str, float]] = {"value": {}, "gradient": {}}
    lines: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    say(f"`python -m bench.suite`, {date.today()}: the least of many calls of each, in turns, one process for a program, on "
        "one processor at real-time priority; JAX in 64 bits, jitted; native code of the same by `from_jax`. "
        f"{this_machine()}")  # fmt: skip
    say("\n| program | value: native, µs | JAX | numpy | JAX / native | gradient: native, µs | JAX | JAX / native |")
    say("|" + "---|" * 8)
    for name in names or CASES:
        found = apart([sys.executable, "-m", "bench.suite", "--json", name], LIMIT_S)
        if isinstance(found, str):
            say(f"| {name} | {found} |" + " |" * 6)
            continue
        v, g = found["value"], found["gradient"]
        for what, t in (("value", v), ("gradient", g)):
            ratios[what][name] = t["jax"] / t["native"]
        plain = f"{v['numpy']:.3g}" if "numpy" in v else "–"
        say(f"| {name} | {v['native']:.3g} | {v['jax']:.3g} | {plain} | {ratios['value'][name]:.2f} | "
              f"{g['native']:.3g} | {g['jax']:.3g} | {ratios['gradient'][name]:.2f} |")  # fmt: skip
    say("")
    for later in (False, True):
        for what, every in ratios.items():
            by = {n: r for n, r in every.items() if CASES[n].later == later}
            if by:
                worst = ", ".join(f"{n} {by[n]:.2f}" for n in sorted(by, key=lambda n: by[n])[:5])
                whose = f"{len(by)} programs" + (" that joined because JAX was ahead" if later else "")
                say(f"{what.capitalize()}: geometric mean {mean(list(by.values())):.2f} of {whose}; "
                    f"{sum(r < 0.9 for r in by.values())} below 0.9; the worst five: {worst}.\n")  # fmt: skip
    if not names:
        update("suite", {"text": "\n".join(lines)})


if __name__ == "__main__":
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if sys.argv[1:2] == ["--json"]:
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        print(json.dumps(measure(sys.argv[2])))
    else:
        main(sys.argv[1:])
