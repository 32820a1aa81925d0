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
from upl_mlir.engines.rtl.engine import Array, RtlEngine
from upl_mlir.engines.rtl.run import run_machine
from upl_mlir.hw.core.layouts import Dimensions, key_layout
from upl_mlir.hw.core.stores.store import gather_shape, join_shape
from upl_mlir.hw.direct.layouts import entry_layout, sum_state_layout
from upl_mlir.hw.machine import Organisation
from upl_mlir.hw.sim.amaranth_sim import AmaranthSimulation
from upl_mlir.hw.system.layouts import System

CLASSES = ("masked", "parity", "end check", "silent")
PARTS = ("valid", "tag", "count", "mask", "value")
"""Parts of a record: the mask are the inputs that are present in a record that inputs share. A direct store has no tags, but
generations; of a waiting token it is valid if its count is not 0, and the mask says which of two inputs it is of."""
_FIELDS = {
    "valid": ("valid",), "tag": ("class", "node", "tag", "generation"), "count": ("left", "total"),
    "mask": ("present", "second"),
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """A bit that flipped: in which cycle, which part of a record, which bit of it; and how the run ended."""

    cycle: int
    part: str
    bit: int
    outcome: str


@dataclass(frozen=True)
class _Words:
    """A memory of a store: its rows in the simulation, the layout of its words (None: a value), and the rows and the mask
    that say which records are live."""

    rows: Any
    layout: data.StructLayout | None
    guards: Any
    mask: int

    def bits(self, part: str) -> list[int]:
        """The bits of a word that belong to a part of a record."""
        if self.layout is None:
            return list(range(32)) if part == "value" else []
        fields = [f for name, f in self.layout if name in _FIELDS.get(part, ())]
        return [f.offset + n for f in fields for n in range(f.width)]


class Campaign:
    """Runs of one program on one machine (organisation `hashed` or `direct`, one core), each with another bit that flips."""

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
        for words in _words(design, self.d):
            bits = words.bits(self.part)
            for row in range(words.rows.depth):
                if bits and context.get(words.guards[row]) & words.mask:
                    choices += [(words.rows[row], bit) for bit in bits]
        if choices:
            row, bit = self.random.choice(choices)
            context.set(row, context.get(row) ^ 1 << bit)
            self.hit = (self.at, self.part, bit)


def _words(design: Fragment, d: Dimensions) -> list[_Words]:
    """The memories of the stores of a core."""
    out: list[_Words] = []
    if d.organisation is Organisation.DIRECT:
        entries, states = entry_layout(d), sum_state_layout(d)
        left, valid = entries["left"], states["valid"]
        found = _memories(design, ("joins",))
        for n in range(d.max_inputs):
            guards, mask = found[f"entries{n}"], (1 << left.width) - 1 << left.offset
            out += [_Words(guards, entries, guards, mask), _Words(found[f"values{n}"], None, guards, mask)]
        found = _memories(design, ("gathers", "records"))
        guards, mask = found["states"], 1 << valid.offset
        return [*out, _Words(guards, states, guards, mask), _Words(found["values"], None, guards, mask)]
    for name, shape in (("joins", join_shape(d)), ("gathers", gather_shape(d))):
        found = _memories(design, (name, "store"))
        layouts = {"keys": key_layout(d), "states": shape.state, "values": None}
        for memory, rows in found.items():
            kind, way = _split(memory)
            out.append(_Words(rows, layouts[kind], found[f"keys{way}"], 1))
    return out


def _split(memory: str) -> tuple[str, str]:
    """What a memory of a hashed store keeps, and the way: `keys2`, `values0_2`."""
    found = re.fullmatch(r"(keys|states|values)(?:\d+_)?(\d+)", memory)
    assert found is not None, memory
    return found[1], found[2]


def _memories(design: Fragment, inside: Sequence[str]) -> dict[str, Any]:
    """The rows of all memories for records in the units of these names, wherever they are in the design."""
    out: dict[str, Any] = {}

    def visit(fragment: Fragment, path: tuple[str, ...]) -> None:
        for inner, name, _ in fragment.subfragments:
            here = (*path, name or "")
            if isinstance(inner, MemoryInstance):
                names = [name for name in here[-2:] if re.match(r"keys|states|values|entries\d", name)]
                if names and set(inside) <= set(here):
                    out[names[0]] = inner._data
            else:
                visit(inner, here)

    visit(design, ())
    assert out, f"the design has no memories for records in {inside}"
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
