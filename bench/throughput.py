"""How full the units of a machine are, and how much faster several cores are: the perceptron 64-32-10 in mini-batches of 8.

.venv/bin/python -m bench.throughput                                    # training on one core and on four
.venv/bin/python -m bench.throughput --program forward --cores 1 2 4
.venv/bin/python -m bench.throughput --records 32768 --ways 4           # of all cores together

Outputs are compared with the interpreter's, and with the re-execution of the recorded additions if `--audit` is given.
Cycles do not depend on the computer. A machine that was not built before takes a minute or more.
"""

from __future__ import annotations

import sys

from bench.example_run import figures, machine, parser
from upl_mlir.hw.machine import Matching, Topology

PROGRAMS = {"training": "iris_batch", "forward": "perceptron"}


def main() -> int:
    """Print a table."""
    p = parser(__doc__)
    p.add_argument("--program", choices=sorted(PROGRAMS), default="training")
    p.add_argument("--cores", type=int, nargs="+", default=[1, 4])
    p.add_argument("--records", type=int, default=1 << 16, help="of all cores together")
    p.add_argument("--ways", type=int, help="8 on one core and 4 on several if nothing is said")
    p.add_argument("--layers", type=int, nargs="+", default=[64, 32, 10], help="their sizes")
    p.add_argument("--topology", choices=[t.value for t in Topology], default=Topology.CROSSBAR.value)
    p.add_argument("--ports", type=int, help="ports of the host; one for each core if nothing is said")
    p.add_argument("--audit", action="store_true", help="compare with the re-execution of what was recorded, too")
    args = p.parse_args()
    sizes = {"D": 8, "K": len(args.layers), "N": args.layers}
    print("cores   cycles  speed-up  taken  sent  probes  ALU  waiting  spilled  lost to")
    alone: int | None = None
    for cores in args.cores:
        matching = Matching(
            capacity=args.records // cores, ways=args.ways or (8 if cores == 1 else 4),
            spill_capacity=1 << 15, queue_capacity=1 << 15,
        )  # fmt: skip
        on = machine(cores, matching, ports=args.ports, topology=Topology(args.topology))
        stats = figures(PROGRAMS[args.program], sizes, on, audit=args.audit)
        cycles = stats["cycles"]
        alone = cycles if cores == 1 else alone
        faster = f"{alone / cycles:.2f}" if alone is not None else ""
        use = [stats["utilisation"][unit] for unit in ("match_in", "send", "probe", "alu")]
        lost = sorted(stats["attribution"]["match"].items(), key=lambda item: -item[1])
        shares = ", ".join(f"{name} {n / cycles / cores:.0%}" for name, n in lost[:5] if name != "busy")
        print(f"{cores:5} {cycles:8,} {faster:>9} {use[0]:6.2f} {use[1]:5.2f} {use[2]:7.2f} {use[3]:4.2f} "
              f"{stats['peak_waiting']:8,} {stats['spills']:8,}  {shares}", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
