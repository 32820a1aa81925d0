"""One program on two ranks, beside native code with one and two threads: `mpiexec -n 2 python -m bench.ranks.worker NAME`.

Contenders take turns.  While the first rank runs native code the other one sleeps.  Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from mpi4py import MPI

import upl_mlir as upl
from bench.ranks.cases import MEASURED, SMALL
from bench.ranks.model import Network, part
from bench.ranks.predicted import bytes_received
from upl_mlir.engines.mpi.engine import MpiEngine
from upl_mlir.engines.mpi.world import wait_for_all, wait_for_messages

COMM = MPI.COMM_WORLD
RANK, RANKS = COMM.Get_rank(), COMM.Get_size()
ROUNDS = 7
MOST_S = 20.0
"""Seconds that the rounds of a program take, about."""
SIZES = (8, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 24)
"""Bytes of the exchanges that are measured."""
SWAPS = 31
WORK = 1 << 19
"""Numbers that are added up between them: of more bytes than a second-level cache has."""
MODELLED = (2, 4, 16, 64, 256, 1024, 4096)


def timed(call: Callable[[], Any]) -> float:
    """Seconds of a call that comes after one like it: then caches hold its own data."""
    call()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def together(call: Callable[[], Any]) -> float:
    """Seconds of a call on all ranks: of the slowest."""
    call()
    COMM.Barrier()
    start = time.perf_counter()
    call()
    return max(COMM.allgather(time.perf_counter() - start))


def first_only(call: Callable[[], Any]) -> float:
    """Seconds of a call on the first rank; the others sleep."""
    seconds = timed(call) if RANK == 0 else 0.0
    wait_for_all(COMM)
    return seconds


def network() -> Network:
    """What an exchange with the other rank takes, by its bytes: the median of many, each after a piece of work."""
    other = np.zeros(WORK)
    out: list[tuple[float, float]] = []
    for size in SIZES:
        sent, into = np.zeros(size, np.uint8), np.zeros(size, np.uint8)

        def swap(sent: np.ndarray = sent, into: np.ndarray = into) -> float:
            start = time.perf_counter()
            if RANK < 2:
                wait_for_messages([COMM.Irecv(into, 1 - RANK, 0), COMM.Isend(sent, 1 - RANK, 0)])
            return time.perf_counter() - start

        seconds: list[float] = []
        for _ in range(SWAPS):
            other += 1
            seconds.append(swap())
        out.append((size, max(COMM.allgather(float(np.median(seconds))))))
    return out


def measure(name: str) -> dict[str, Any]:
    """The figures of a program."""
    case = {**MEASURED, **SMALL}[name]()
    sizes = {n: v for n, v in case.sizes.items() if n in case.program.params}
    f = upl.compile(case.program, engine="mpi", **sizes)
    one, two = (upl.compile(case.program, engine="native", threads=n) for n in (1, 2))
    given = {**case.inputs, **case.params}
    found = f(**given)
    if RANK == 0:
        wanted = one(**given)
        for n, a in wanted.items():
            np.testing.assert_allclose(found[n], a, rtol=1e-8, atol=1e-9 * max(1.0, float(np.max(np.abs(a), initial=0))))
        two(**given)
    wait_for_all(COMM)
    swaps = network()
    times: dict[str, list[float]] = {"one": [], "two": [], "ranks": []}
    began = time.perf_counter()
    for _ in range(ROUNDS):
        times["one"].append(first_only(lambda: one(**given)))
        times["two"].append(first_only(lambda: two(**given)))
        times["ranks"].append(together(lambda: f(**given)))
        if COMM.bcast(time.perf_counter() - began > MOST_S, root=0):
            break
    out: dict[str, Any] = {n: min(t) for n, t in times.items()}
    engine = cast(MpiEngine, vars(f)["_native"])
    parts = [part(engine, case.inputs, case.params, n) for n in MODELLED]
    if RANK == 0:
        out |= {"network": swaps, "sent": f.stats["bytes_sent_by_all"]}
        out["computed"] = bytes_received(case.program, case.inputs, case.params, RANKS, "relaxed", sizes)
        seconds = [None if p is None else p.time(swaps) for p in parts]
        out["model"] = dict(zip(map(str, MODELLED), seconds, strict=True))
    wait_for_all(COMM)
    return out


if __name__ == "__main__":
    figures = measure(sys.argv[1])
    if RANK == 0:
        print(json.dumps(figures), flush=True)
