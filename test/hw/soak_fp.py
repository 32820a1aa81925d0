"""Random operands for the floating-point units for some minutes: `make soak` runs it; at least 10**6 for every unit.

PYTHONPATH=test/hw python -m soak_fp --minutes 1 --seed 7
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import pipelined_bench
from floats_bench import UNITS, compute, operands, wanted

LEAST = 1_000_000
AT_ONCE = 100_000


def main() -> int:
    """1 if a unit was wrong; its operands are printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None, help="default: from the clock")
    given = parser.parse_args()
    seed = time.time_ns() if given.seed is None else given.seed
    rng = np.random.default_rng(seed)
    end = time.monotonic() + 60 * given.minutes
    tried = 0
    while tried < LEAST or time.monotonic() < end:
        a, b, c = operands(rng, AT_ONCE)
        for unit in UNITS:
            got, right = compute(unit, a, b, c), wanted(unit, a, b, c)
            for n in np.flatnonzero(got != right)[:1]:
                print(f"{unit} of {a[n]:08x} {b[n]:08x} {c[n]:08x}: {got[n]:08x}, not {right[n]:08x} (seed {seed})")
                return 1
        if found := pipelined_bench.wrong(a, b) + pipelined_bench.beyond(a):
            print(*found, f"(seed {seed})", sep="\n")
            return 1
        tried += AT_ONCE
    pipelined = ", ".join(kind.__name__ for kind in pipelined_bench.KINDS)
    print(f"floating-point units: {tried} operands for each of {', '.join(UNITS)}; pipelined {pipelined} (seed {seed})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
