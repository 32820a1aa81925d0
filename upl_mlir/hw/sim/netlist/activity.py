"""How often the steps of a model have something to do, and which of them at the same time: a profile.

`activity.npz` has it for the steps of a core, and of the fabric of four, of some hundred cycles of two programs (`python -m
bench.activity` makes it anew). A step is known by what it computes from which registers, whatever the widths are; so the
profile of a core serves machines of all sizes, and a change of the hardware makes unknown only what it changes. Models are
right without it, and slower.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from upl_mlir.hw.sim.netlist.expression import Node, Variable
from upl_mlir.hw.sim.netlist.program import Program, Step

FILE = "activity.npz"
_KNOWN = 0.5
"""The share of steps that have to be known: others are of something else, or of a fabric of another size."""

Bits = NDArray[np.uint64]
"""A bit for each cycle that was looked at."""


class Activity:
    """In which cycles each step has had something to do."""

    def __init__(self, of: Mapping[Step, Bits], cycles: int):
        self.of, self.cycles = of, cycles

    def rows(self, steps: list[Step]) -> NDArray[np.uint64]:
        """The bits of these steps."""
        return np.stack([self.of[s] for s in steps])

    def cycle_bits(self, steps: list[Step]) -> NDArray[np.bool_]:
        """Whether each of these steps had something to do in each of the cycles: cycles by steps."""
        return np.unpackbits(self.rows(steps).view(np.uint8), axis=1, bitorder="little")[:, : self.cycles].T.astype(bool)


def keys(program: Program) -> list[int]:
    """A number for each step that names it: a digest of what it computes from registers and inputs, without most numbers."""
    names = {v: f"{v.word.name}:{v.low}" for v in program.initial}
    for name, word in program.netlist.inputs.items():
        names |= {v: f"{name}:{v.low}" for v in program.variables[word]}
    out: list[int] = []
    times: Counter[int] = Counter()
    for s in program.steps:
        inside = names | {v: f"out{n}" for n, v in enumerate(s.outs)}
        each = [*([s.let.value] if s.let else []), *(value for _, value in s.sets)]
        text = " ".join([*(_shape(value, inside) for value in each), _end(s)])
        key = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")
        names |= {v: f"{key:x}:{n}" for n, v in enumerate(s.outs)}
        times[key] += 1
        out.append(key << 8 | min(times[key], 255))
    return out


def _shape(node: Node, names: Mapping[Variable, str]) -> str:
    """An expression without its numbers, but for 0: they follow from widths."""
    if node.number is not None:
        return "#" if node.number else "0"
    name = names.get(node.variable, "") if node.variable is not None else node.name if node.kind in ("call", "unit") else ""
    return f"({node.kind} {name} {' '.join(_shape(p, names) for p in node.parts)})"


def _end(s: Step) -> str:
    memory = s.rows or s.writes
    register: Variable | None = s.register
    return f"{getattr(memory, 'name', '')} {f'{register.word.name}:{register.low}' if register else ''}"


def recorded(program: Program) -> Activity | None:
    """The activity of the steps of a core or a fabric; that of one that is not known is as what it reads lets one expect.
    None if most are not known."""
    known, cycles = _file()
    own = keys(program)
    if sum(k in known for k in own) < _KNOWN * len(own):
        return None
    of: dict[Step, Bits] = {}
    made: dict[Variable, Bits] = {}
    never = np.zeros(-(-cycles // 64), np.uint64)
    for key, s in zip(own, program.steps, strict=True):
        bits = known.get(key)
        if bits is None:
            bits = np.bitwise_or.reduce([never, *(made[v] for v in s.ins if v in made)])
        of[s] = bits
        made |= dict.fromkeys(s.outs, bits)
    return Activity(of, cycles)


@cache
def _file() -> tuple[dict[int, Bits], int]:
    data = resources.files("upl_mlir.hw.sim.netlist").joinpath(FILE).read_bytes()
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        rows: NDArray[np.uint64] = np.ascontiguousarray(file["bits"]).view(np.uint64)
        return dict(zip(file["keys"].tolist(), rows, strict=True)), 64 * rows.shape[1]
