"""How long a picture takes: programs of 50 and 200 nodes, each with two inputs, laid out and written.

    python -m bench.picture
"""

from __future__ import annotations

import random
import time

import upl_mlir as upl


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


def main() -> None:
    """Print seconds by the clock and of the processor."""
    upl.draw(upl.load(program(2))).svg()  # the engine starts once
    for nodes in (50, 200):
        p = upl.load(program(nodes)).infer_domains()
        wall, cpu = time.perf_counter(), time.process_time()
        size = len(upl.draw(p).svg())
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(f"{nodes:4d} nodes: {wall:5.2f} s by the clock, {cpu:5.2f} s of the processor, {size} characters")


if __name__ == "__main__":
    main()
