"""What becomes of bits that flip in the matching store: one in a live record, at a random time, run after run.

Each run ends in one of four ways: *masked*, the outputs are the same bits; *parity*, the store notices (`matching.parity`);
*end check*, the machine notices otherwise (a token is stranded, an output is missing or comes twice, a count is wrong, it
does not come to an end); *silent*, the outputs are wrong and nobody has noticed.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportAttributeAccessIssue=false, reportMissingParameterType=false, reportPrivateUsage=false
# Amaranth's simulator is untyped.

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Fragment
from amaranth.hdl._mem import MemoryInstance
from amaranth.lib import data

from upl_mlir.diagnostics import UplError
from upl_mlir.hw.core.layouts import Dimensions, key_layout
from upl_mlir.hw.core.store import Shape, gather_shape, join_shape
from upl_mlir.hw.engine import Array, RtlEngine
from upl_mlir.hw.run import run_machine
from upl_mlir.hw.sim.amaranth_sim import AmaranthSimulation
from upl_mlir.hw.system.layouts import System

CLASSES = ("masked", "parity", "end check", "silent")
PARTS = ("valid", "tag", "count", "mask", "value")
"""Parts of a record: the mask are the inputs that are present in a record that inputs share."""
_FIELDS = {"valid": ("valid",), "tag": ("class", "node", "tag"), "count": ("left", "total"), "mask": ("present",)}


@dataclass(frozen=True)
class Fault:
    """A bit that flipped: in which cycle, which part of a record, which bit of it; and how the run ended."""

    cycle: int
    part: str
    bit: int
    outcome: str


@dataclass(frozen=True)
class _Place:
    """A memory of a store: rows in the simulation, what its words are, the number of the way."""

    rows: Any
    kind: str
    way: int


class Campaign:
    """Runs of one program on one machine (organisation `hashed`, one core), each with another bit that flips."""

    def __init__(self, engine: RtlEngine, inputs: Mapping[str, Array], seed: int = 0):
        self.engine = engine
        self.tokens = tuple(engine.inject(inputs))
        self.random = random.Random(seed)
        self.simulation = AmaranthSimulation(System.of(engine.machine))
        self.simulation.disturb = self._disturb
        self.d = Dimensions.of(engine.machine)
        self.part: str | None = None
        self.at = 0
        self.hit: tuple[int, str, int] | None = None
        self.reference = self._outputs(1_000_000)
        self.cycles = self.last_cycles

    def _outputs(self, limit: int) -> dict[str, bytes]:
        self.simulation.writes.clear()
        result = run_machine(
            self.engine.image, self.engine.machine, self.tokens, simulation=self.simulation, max_cycles=limit,
            audit=False,
        )  # fmt: skip
        self.last_cycles = result.stats.cycles
        return {name: a.tobytes() for name, a in self.engine.collect(result.outputs).items()}

    def run(
        self, count: int, progress: Callable[[Fault], None] | None = None, parts: Sequence[str] = PARTS
    ) -> list[Fault]:  # fmt: skip
        """So many runs with a fault in a live record, the parts in turns."""
        out: list[Fault] = []
        while len(out) < count:
            self.part, self.at, self.hit = parts[len(out) % len(parts)], self.random.randrange(self.cycles), None
            try:
                outcome = "masked" if self._outputs(2 * self.cycles + 200) == self.reference else "silent"
            except UplError as e:
                outcome = "parity" if "UPL1716" in str(e) else "end check"
            if self.hit is not None:  # there was a live record with this part
                out.append(Fault(self.hit[0], self.hit[1], self.hit[2], outcome))
                if progress is not None:
                    progress(out[-1])
        return out

    async def _disturb(self, context: Any, design: Fragment) -> None:
        """Wait for the cycle, choose a record that is live, flip a bit of it."""
        if self.part is None:
            return
        await context.tick().repeat(len(self.simulation.writes) + self.at + 1)
        choices: list[tuple[Any, int]] = []
        for store, shape in (("joins", join_shape(self.d)), ("gathers", gather_shape(self.d))):
            places = _places(design, store)
            keys = {p.way: p.rows for p in places if p.kind == "keys"}
            for p in places:
                bits = self._bits(p.kind, shape)
                for row in range(shape.sets):
                    if bits and context.get(keys[p.way][row]) & 1:
                        choices += [(p.rows[row], bit) for bit in bits]
        if choices:
            row, bit = self.random.choice(choices)
            context.set(row, context.get(row) ^ 1 << bit)
            self.hit = (self.at, self.part, bit)

    def _bits(self, kind: str, shape: Shape) -> list[int]:
        """The bits of a word that belong to the part that is to be hit."""
        if kind.startswith("values"):
            return list(range(32)) if self.part == "value" else []
        layout: data.StructLayout = key_layout(self.d) if kind == "keys" else shape.state
        fields = [f for name, f in layout if name in _FIELDS.get(self.part or "", ())]
        return [f.offset + n for f in fields for n in range(f.width)]


def _places(design: Fragment, store: str) -> list[_Place]:
    """The memories of a store, wherever it is in the design."""
    out: list[_Place] = []

    def visit(fragment: Fragment, path: tuple[str, ...]) -> None:
        for inner, name, _ in fragment.subfragments:
            here = (*path, name or "")
            if isinstance(inner, MemoryInstance):
                names = (re.fullmatch(r"(keys|states|values\d+_)(\d+)", name) for name in here[-2:])
                found = next(filter(None, names), None)
                if found is not None and store in here and "store" in here:
                    out.append(_Place(inner._data, found[1].rstrip("_"), int(found[2])))
            else:
                visit(inner, here)

    visit(design, ())
    assert out, f"the design has no store `{store}`"
    return out


def table(faults: list[Fault]) -> str:
    """The shares of outcomes by part, as a table in Markdown."""
    lines = ["| part | faults | " + " | ".join(CLASSES) + " |", "|---|---|" + "---|" * len(CLASSES)]
    for part in (*PARTS, "all"):
        count = Counter(f.outcome for f in faults if part in (f.part, "all"))
        total = count.total()
        shares = (f"{100 * count[c] / total:.0f} %" if total else "–" for c in CLASSES)
        lines.append(f"| {part} | {total} | " + " | ".join(shares) + " |")
    return "\n".join(lines)
