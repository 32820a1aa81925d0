"""Programs on whole machines: against the interpreter, and both simulators against each other in every cycle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import upl_mlir as upl
from upl_mlir.hw.execute import to_bits
from upl_mlir.hw.image import ProgramImage, pack
from upl_mlir.hw.microcode import ValueType
from upl_mlir.hw.results import HostToken
from upl_mlir.hw.sim.amaranth_sim import AmaranthSimulation
from upl_mlir.hw.sim.compiled import CompiledSimulation
from upl_mlir.hw.sim.interface import TOKEN, Ended, Report, Tokens
from upl_mlir.hw.system.layouts import System

LAYER = """program layer
param n >= 1
input X<i> in 1<=i<=n { #n -> M.x<i,*> }
input W<i,j> in 1<=i<=n, 1<=j<=n { -> M.w<i,j> }
output R<j>
node M<i,j> { in x, w; x*w #n -> S.s<j> }
node S<j> { in @(+) s[#]; s -> R }
"""
"""A vector times a matrix, by tokens that many instances use and gathers."""


def small(shape: tuple[int, ...], seed: int, low: int = -1) -> np.ndarray:
    """Whole numbers that binary32 adds and multiplies exactly."""
    return np.random.default_rng(seed).integers(low, 2, shape).astype(np.float32)


def same_as_the_interpreter(program: upl.Program, machine: Path) -> dict[str, Any]:
    """On data where binary32 is exact: bit for bit, with the same firings.  Returns the machine's figures."""
    arrays = {port: small(v.shape(), 1, -1 if port == "X" else 0) for port, v in program.inputs.items()}
    soft, hard = upl.compile(program, real="f32"), upl.compile(program, engine="rtl", machine=machine)
    wanted, got = soft(**arrays), hard(**arrays)
    assert all(wanted[port].tobytes() == got[port].tobytes() for port in wanted)
    assert any(np.abs(a).max() > 0 for a in wanted.values())
    assert hard.stats["firings"] == soft.stats["firings"]
    return hard.stats


def rows_of(image: ProgramImage, tokens: Sequence[HostToken]) -> Tokens:
    """Tokens of reals as the simulators take them."""
    rows = np.zeros(len(tokens), TOKEN)
    for n, t in enumerate(tokens):
        tag, _ = pack(image.nodes[t.node].fields, t.index, "")
        rows[n] = (tag, 0, t.node, t.input, t.multiplicity, to_bits(t.value, ValueType.F32), 0)
    return rows


def same_in_every_cycle(system: System, writes: Any, rows: Tokens, cycles: int) -> None:
    """The same checksum of everything at the units' ports in each of the first cycles, and the same report."""
    reports: list[Report] = []
    for simulation in (AmaranthSimulation(system), CompiledSimulation(system)):
        simulation.configure(writes)
        reports.append(simulation.run(rows, cycles, checks=cycles))
    slow, fast = reports
    assert slow.checksums == fast.checksums
    assert len(set(slow.checksums)) > cycles - 101
    assert (slow.cycles, slow.injected, slow.cores) == (fast.cycles, fast.injected, fast.cores)
    assert slow.ended is Ended.LIMIT
