"""How long pictures and pages take: programs of 50 and 200 nodes laid out and written, a page with a long trace.

Part `picture` of `make bench`; beside each picture the text for Graphviz of the same program, which lays nothing out.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import numpy as np

import upl_mlir as upl
from bench.report import Row, interleaved
from upl_mlir.observe.replay import record
from upl_mlir.observe.viewing import view


def program(nodes: int, seed: int = 1) -> str:
    """A program whose nodes get tokens from one or two of the six before them."""
    choose = random.Random(seed)
    sources = {k: sorted({max(0, k - 1 - choose.randrange(6)) for _ in range(2)}) for k in range(1, nodes)}
    arrows: dict[int, list[str]] = {k: [] for k in range(nodes)}
    for k, found in sources.items():
        for source, name in zip(found, "ab", strict=False):
            arrows[source].append(f"v -> N{k}.{name}")
    arrows[nodes - 1].append("v -> Y")
    lines = ["program big", "param D >= 1", "input X<i> in 1<=i<=D { -> N0.a }", "output Y<i>"]
    for k in range(nodes):
        names = "ab"[: len(sources.get(k, (0,)))]
        lines.append(f"node N{k}<i> {{ in {', '.join(names)}; v = {'*'.join(names)} + 1; {'; '.join(arrows[k])} }}")
    return "\n".join(lines) + "\n"


LONG = "program long\nparam n >= 1\ninput A<i> in 0<=i<n { -> M.a }\noutput Y<i>\nnode M<i> { in a; 2*a -> Y<i> }\n"


def timed(action: Callable[[], object]) -> Callable[[], float]:
    """Seconds of an action."""

    def once() -> float:
        start = time.perf_counter()
        action()
        return time.perf_counter() - start

    return once


def rows() -> list[Row]:
    """Pictures of 50 and of 200 nodes, and the page of a run of a million events beside one of ten thousand."""
    out: list[Row] = []
    for nodes, aim in ((50, "<= 2"), (200, "<= 10")):
        p = upl.load(program(nodes)).infer_domains()
        svg, dot = interleaved(timed(lambda p=p: upl.draw(p).svg()), timed(lambda p=p: upl.draw(p).dot()), runs=3)
        out.append(Row(f"picture of {nodes} nodes, laid out", svg, "s", aim, "as text for Graphviz", dot))
    p = upl.load(LONG)
    long, short = (record(p, {"A": np.arange(float(n))})[0] for n in (250_000, 2_500))
    page, small = interleaved(timed(lambda: view(p, trace=long)), timed(lambda: view(p, trace=short)), runs=1)
    out.append(Row("page with a trace of a million events, written", page, "s", "", "ten thousand", small))
    return out
