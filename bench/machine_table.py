"""The table of docs/machine_table.md: the perceptron's training on machines of 1 to 16 cores, and what they cost.

make machine-table                                     # all of it; finished runs are taken from build/machine-table
.venv/bin/python bench/machine_table.py --cores 1 2    # the others are then said to be missing, if they are not kept
"""

from __future__ import annotations

import argparse
import platform
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from upl_mlir.diagnostics import UplError
from upl_mlir.explore.bounds import bounds
from upl_mlir.explore.dependences import Dependences, dependences
from upl_mlir.explore.energy import energy
from upl_mlir.explore.job import Job, Outcome, Task, bind, run_task
from upl_mlir.explore.records import Records, versions
from upl_mlir.explore.reference import reference_lines
from upl_mlir.hw.machine import Host, Machine, Matching, Network, Organisation, Topology
from upl_mlir.hw.synth.ecp5 import Clock
from upl_mlir.hw.synth.figures import Figures, figures

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "docs" / "machine_table.md"
KEPT = ROOT / "build" / "machine-table"
COMMAND = "make machine-table"
SYNTHESISED = 256
"""Records and tokens in the backing memories of the machines whose cost is found: with many more a core does not fit."""
RANDOM = {"X": "random", "Y": "random", "W": "random"}


@dataclass(frozen=True)
class Case:
    """A program with its sizes."""

    name: str
    file: str
    define: dict[str, Any]
    queue: int = 4096
    """Tokens of backing memory of each core's token queue; records of that of its store, too."""
    records: int = 1024
    """Records of each core's store, if it is `hashed`."""
    ways: int = 4
    entries: tuple[int, ...] = (1024, 1024, 1024, 1024)
    """Entries of each core's associative memory on 1, 2, 4 and 16 cores, if it is `cam`: a power of two that holds all
    tokens that wait, as there is no backing memory. More than a few hundred can be simulated, hardly built."""
    places: tuple[int, ...] = (8192, 8192, 8192, 8192)
    """Likewise the places of each core's store, if it is `direct`."""


CASES = (
    Case("per example: 7 layers, 8 examples one after the other", "training.upl", {"D": 8}),
    Case(
        "mini-batch of 8, the same 7 layers", "iris_batch.upl", {"D": 8, "K": 7, "N": [4, 4, 5, 6, 4, 3, 3]},
        records=4096, entries=(4096, 4096, 4096, 4096),
    ),
    Case("64-32-10, mini-batch of 8", "iris_batch.upl", {"D": 8, "K": 3, "N": [64, 32, 10]}, 1 << 15, 1 << 16, 8,
         (1 << 16, 1 << 15, 1 << 14, 1 << 12), (1 << 15, 1 << 14, 1 << 13, 1 << 11)),
)  # fmt: skip


def machine(case: Case, organisation: Organisation, cores: int) -> Machine:
    """The machine of a cell: everything else is the default."""
    column = (1, 2, 4, 16).index(cores)
    capacities = {
        Organisation.HASHED: case.records, Organisation.CAM: case.entries[column], Organisation.DIRECT: case.places[column],
    }  # fmt: skip
    capacity = capacities[organisation]
    matching = Matching(
        organisation=organisation, capacity=capacity, ways=case.ways, spill_capacity=case.queue, queue_capacity=case.queue
    )
    network = Network(topology=Topology.CROSSBAR)
    return Machine(name=organisation.value, cores=cores, matching=matching, network=network, host=Host(ports=cores))


class Table:
    """Runs cells and keeps them."""

    def __init__(self, cores: list[int], only: list[str], synthesis: bool, clock: Clock | None):
        self.cores, self.only, self.synthesis, self.clock = cores, only, synthesis, clock
        self.records = Records(KEPT)

    def text(self) -> str:
        """The page."""
        lines = [
            "# The machine in numbers", "",
            f"Made by `{COMMAND}` on {datetime.now(UTC):%Y-%m-%d}. Cycles are exact and do not depend on the computer;",
            "inputs are random, with a fixed seed. All outputs agree with the interpreter's to 1e-3 of the greatest",
            "element (both are binary32, sums differ in their order), and bit for bit with the machine's own additions,",
            "made again. What the columns mean: [explore](explore.md).", "",
            "`cam` has no backing memory: its entries are a power of two that holds all tokens that wait in a core. That",
            "many can be simulated, not built.", "",
            "Versions: " + ", ".join(f"{k} {v}" for k, v in versions().items()) + f"; {platform.machine()}.",
        ]  # fmt: skip
        for case in CASES:
            lines += ["", f"## {case.name}", "", *self.case(case)]
        return "\n".join([*lines, "", *self.costs(), ""])

    def case(self, case: Case) -> list[str]:
        """The tables of a program."""
        source = (ROOT / "examples" / case.file).read_text(encoding="utf-8")
        job = Job(case.name + source, source, RANDOM)
        program, bound, dense = bind(job, case.define)
        graph = dependences(program, bound, dense, Machine().execution)
        sizes = ", ".join(f"{k} = {v}" for k, v in case.define.items())
        counts = f"{len(graph.units)} operations, {graph.depth} firings in the longest chain"
        entries, places = (" / ".join(f"{n:,}" for n in each) for each in (case.entries, case.places))
        lines = [
            f"`examples/{case.file}`, {sizes}; {counts}. Stores of each core: `hashed` {case.records:,} records in",
            f"{case.ways} ways. On 1 / 2 / 4 / 16 cores, `cam` has {entries}, and `direct` {places}.",
            f"{case.queue:,} tokens and records in each backing memory. Crossbar, a port of the host for each core.", "",
        ]  # fmt: skip
        lines += markdown([
            ["reference lines, cycles", *(f"{n} cores" if n > 1 else "1 core" for n in (1, 2, 4, 16))],
            ["ideal dataflow", *([str(graph.ideal)] * 4)],
            ["list schedule on the same units, without matching",
             *(str(reference_lines(graph, n)["scheduled"]) for n in (1, 2, 4, 16))],
            ["scalar core, in order, an instruction a cycle", str(reference_lines(graph, 1)["scalar"]), "", "", ""],
        ])  # fmt: skip
        head = ["organisation", "cores", "cycles", "speed-up", "greatest bound", "match in", "probe", "ALU", "send", "link",
                "host", "peak waiting", "spilled", "energy, nJ"]  # fmt: skip
        rows, causes, missing = [head], [["organisation", "cores", "unit", "busy", "lost to"]], list[str]()
        for organisation in (Organisation.CAM, Organisation.HASHED, Organisation.DIRECT):
            alone: int | None = None
            for cores in (1, 2, 4, 16):
                wanted = machine(case, organisation, cores)
                outcome = self.run(job, case, wanted)
                label = [organisation.value, str(cores)]
                if outcome.stats is None:
                    rows.append([*label, "–", *([""] * (len(head) - 3))])
                    missing.append(f"- {organisation.value}, {cores}: {(outcome.error or '').splitlines()[0]}")
                    continue
                stats = outcome.stats
                alone = stats["cycles"] if cores == 1 else alone
                rows.append([*label, *_cells(stats, wanted, graph, alone)])
                causes += [[*label, *line] for line in causes(stats)]
        lines += ["", *markdown(rows)]
        if len(causes) > 1:
            lines += ["", "Where the core-cycles of the two units went:", "", *markdown(causes)]
        return [*lines, "", "No figure, and why:", "", *missing] if missing else lines

    def run(self, job: Job, case: Case, wanted: Machine) -> Outcome:
        """A cell: kept, run now, or left out."""
        task = Task(case.define, wanted, audit=True)
        key = self.records.key(job, task)
        found = self.records.load(key)
        if found is None and (wanted.cores not in self.cores or wanted.name not in self.only):
            return Outcome(error="not run when this page was made: the command left it out, for want of time")
        if found is None:
            print(f"{case.name}: {wanted.name}, cores: {wanted.cores}", file=sys.stderr, flush=True)
            found = run_task(job, task)
            self.records.save(key, {}, task, found)
        return found

    def costs(self) -> list[str]:
        """What a core costs, and the network alone."""
        lines = ["## What a core costs", ""]
        clock = {
            None: "MHz was not asked for (`--clock`): [what one core was found to have](machine_measured.md#clock).",
            Clock.PLACED: "MHz: after placement, the delays of wires estimated from their lengths.",
            Clock.ROUTED: "MHz: placed and routed.",
        }[self.clock]
        lines += [
            "One core, and what joins four, on an ECP5; whole machines are composed of them. Backing memories of",
            f"{SYNTHESISED} records and tokens: those of a machine for real programs would be outside of the chip.",
            clock, "",
        ]  # fmt: skip
        head = ["part", "LUT sites", "LUT4", "flip-flops", "block RAMs", "multipliers", "MHz"]
        rows, missing = [head], list[str]()
        for organisation, capacity in (
            (Organisation.CAM, 16),
            (Organisation.HASHED, 1024),
            (Organisation.DIRECT, 1024),
        ):
            cores = 4 if organisation is Organisation.HASHED else 1
            matching = Matching(
                organisation=organisation, capacity=capacity, spill_capacity=SYNTHESISED, queue_capacity=SYNTHESISED
            )
            wanted = Machine(name=organisation.value, cores=cores, matching=matching)
            found = self.figures(wanted)
            if isinstance(found, str):
                rows.append([f"{organisation.value}, {capacity} entries", "–", *([""] * 5)])
                missing.append(f"- {organisation.value}: {found}")
                continue
            for part in found.parts:
                if part.name == "host":
                    continue
                core = f"{part.name}, {organisation.value}, {capacity} entries"
                name = "network of 4, ring" if part.name.startswith("network") else core
                a = part.area
                mhz = f"{part.timing.fmax_mhz:.1f}" if part.timing is not None else "–"
                rows.append([name, *map(str, (a.luts, a.lut4, a.ff, a.block_ram, a.dsp)), mhz])
        lines += markdown(rows)
        return [*lines, "", "No figure, and why:", "", *missing] if missing else lines

    def figures(self, wanted: Machine) -> Figures | str:
        """The figures of a machine, or why there are none."""
        if not self.synthesis:
            return "synthesis was not asked for"
        try:
            return figures(wanted, clock=self.clock, say=lambda what: None)
        except UplError as e:
            return str(e).splitlines()[0]


def _cells(stats: dict[str, Any], wanted: Machine, graph: Dependences, alone: int | None) -> list[str]:
    cycles, use = stats["cycles"], stats["utilisation"]
    limits = bounds(stats, wanted, graph) if stats["attribution"] else {}
    name = max(limits, key=lambda n: limits[n]) if limits else ""
    value = energy(stats, wanted.energy, None)
    return [
        f"{cycles:,}", f"{alone / cycles:.2f}" if alone else "", f"{name} {limits[name]:,}" if name else "not counted",
        *(f"{use[port]:.2f}" if port in use else "" for port in ("match_in", "probe", "alu", "send", "link", "host")),
        f"{stats['peak_waiting']:,}", f"{stats['spills']:,}", f"{value:,.0f}" if value is not None else "not counted",
    ]  # fmt: skip


def causes(stats: dict[str, Any]) -> list[list[str]]:
    total = stats["cycles"] * max(1, len(stats["cores"]))
    out: list[list[str]] = []
    for unit, causes in stats["attribution"].items():
        assert sum(causes.values()) == total, "a core-cycle without a cause, or with two"
        lost = sorted(((n, c) for n, c in causes.items() if n != "busy" and c), key=lambda item: -item[1])
        text = ", ".join(f"{n} {100 * c / total:.1f} %" for n, c in lost if c >= total / 1000)
        out.append([unit, f"{100 * causes['busy'] / total:.1f} %", text])
    return out or [["both", "not counted", ""]]


def markdown(rows: list[list[str]]) -> list[str]:
    head, *rest = rows
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rest)]


def main() -> int:
    """Write the page."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument(
        "--cores", type=int, nargs="+", default=[1, 2, 4, 16], help="run these; others only if they are kept"
    )
    names = [o.value for o in Organisation]
    p.add_argument("--only", choices=names, nargs="+", default=names, help="run these organisations; likewise")
    p.add_argument("--no-synthesis", action="store_true", help="leave out what a core costs")
    p.add_argument(
        "--clock", choices=["none", *(c.value for c in Clock)], default=Clock.PLACED.value,
        help="how far cores are taken to know their clock (placed: ten minutes each; routed: an hour or more)",
    )  # fmt: skip
    p.add_argument("-o", dest="output", type=Path, default=PLACE)
    args = p.parse_args()
    clock = None if args.clock == "none" else Clock(args.clock)
    text = Table(args.cores, args.only, not args.no_synthesis, clock).text()
    args.output.write_text(text, encoding="utf-8")
    print(args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
