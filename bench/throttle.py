"""What the throttle of the host does to programs that stream, at stores of several sizes:
python -m bench.throttle
python -m bench.throttle --large    # mini-batches of 8 in 64-32-10, at stores of 4,096 to 16,384 records

Cycles, the most records that waited, and records that went to backing memory, without a throttle and with windows of some
stages. Outputs are compared with the interpreter's, and with the re-execution of the recorded additions. Cycles do not
depend on the computer. A machine that was not built before takes a minute or more.
"""

from __future__ import annotations

import sys
from typing import Any

from bench.example_run import figures, machine, parser
from upl_mlir.hw.machine import Matching

PROGRAMS: dict[str, dict[str, Any]] = {
    "training": {"D": 32},
    "iris_batch": {"D": 16},
    "perceptron": {"D": 16},
    "matmul": {"m": 12, "n": 12, "r": 12},
    "jacobi1d": {"T": 8, "n": 32},
}
LARGE = {"iris_batch": {"D": 8, "K": 3, "N": [64, 32, 10]}}


def main() -> int:
    """Print the table as Markdown."""
    p = parser(__doc__)
    p.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    p.add_argument("--capacities", type=int, nargs="+", help="records of a core")
    p.add_argument("--windows", type=int, nargs="+", default=[0, 1, 2, 4], help="0: no throttle")
    p.add_argument("--cores", type=int, default=1)
    p.add_argument("--large", action="store_true")
    args = p.parse_args()
    programs = LARGE if args.large else {name: PROGRAMS[name] for name in args.programs}
    backing = 1 << 15 if args.large else 4096
    capacities = args.capacities or ([16384, 8192, 4096] if args.large else [1024, 512, 256, 128])
    titles = ["program", "records", *(f"window {w}" if w else "no throttle" for w in args.windows)]
    print("| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|")
    for name, sizes in programs.items():
        said = ", ".join(f"{k}={v}" for k, v in sizes.items())
        for capacity in capacities:
            matching = Matching(capacity=capacity, spill_capacity=backing, queue_capacity=backing)
            cells = [f"`{name}` {said}", f"{capacity}"]
            for window in args.windows:
                stats = figures(name, sizes, machine(args.cores, matching, window=window))
                cells.append(f"{stats['cycles']:,} ({stats['peak_waiting']:,}; {stats['spills']:,})")
            print("| " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
