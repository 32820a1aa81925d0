"""Circuits against the interpreter: every output bit, every value that every site reads, every clock.

Each program has three sizes and 1, 2, 4 and 16 lanes, as far as there are so many; `make test` runs some of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from circuit.circuits import CASES, SPECIAL, Case, data, plain, seen, wholes

import upl_mlir as upl
from upl_mlir.engines.circuit.engine import run
from upl_mlir.engines.circuit.simulation import Simulation
from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.passes.circuit.plan import cycles

LANES = (1, 2, 4, 16)


def bits(a: object) -> np.ndarray:
    """The bits of float32 numbers; all NaNs are one."""
    values = np.asarray(a, np.float32)
    return np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))


FEW = [("fir-3-5", 1), ("matmul-5-7-3", 2), ("conv2d-5-7", 1), ("scan-3", 2), ("jacobi1d-2-5", 4), ("wave-3-7", 1)]
"""What `make test` runs; the others are slow."""


@pytest.mark.parametrize(("case", "lanes"), [(c, n) for c in CASES for n in LANES if (str(c), n) not in FEW], ids=str)
def test_more_circuits(case: Case, lanes: int) -> None:
    same_as_the_interpreter(case, lanes)


@pytest.mark.parametrize(("case", "lanes"), [(c, n) for c in CASES for n in LANES if (str(c), n) in FEW], ids=str)
def test_a_circuit_computes_as_the_interpreter(case: Case, lanes: int) -> None:
    same_as_the_interpreter(case, lanes)


def same_as_the_interpreter(case: Case, lanes: int, special: tuple[float, ...] = SPECIAL) -> None:
    """Outputs are the interpreter's."""
    interpreter = upl.compile(case.program, engine="interp", real="f32", gather="ordered")

    def wanted(arrays: dict[str, np.ndarray], _: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(interpreter(**arrays, **case.params))

    same(case, lanes, wanted, special)


def near_the_interpreter(case: Case, lanes: int) -> None:
    """Outputs are, bit for bit, what plain evaluation gives with the functions of circuits, and near the interpreter's."""
    interpreter = upl.compile(case.program, engine="interp", real="f32", gather="ordered")

    def wanted(arrays: dict[str, np.ndarray], made: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        for name, array in interpreter(**arrays, **case.params).items():
            np.testing.assert_allclose(made[name], array, rtol=2e-4, atol=1e-5, err_msg=name)
        return made

    same(case, lanes, wanted, (0.0, 1.0))


Outputs = dict[str, np.ndarray]


def same(case: Case, lanes: int, of: Callable[[Outputs, Outputs], Outputs], special: tuple[float, ...] = SPECIAL) -> None:
    """Four runs without a reset: outputs, reads, clocks; then the same with ports that wait at random.  `of` has what
    should come out, by the program's inputs and by plain evaluation."""
    loops, plan = case.planned(lanes)
    simulation = Simulation(Circuit(plan, watched=True))
    inputs = [data(plan, seed, special) for seed in range(4)]
    values = [plain(loops, plan, arrays) for arrays in inputs]
    wanted = [
        of(wholes(plan, arrays), wholes(plan, v.outputs(plan), "outputs")) for arrays, v in zip(inputs, values, strict=True)
    ]  # fmt: skip

    room = 4 * max(p.nest.instances for p in plan.parts)
    found, streamed = run(simulation, inputs, watched=room)
    for f, w in zip(found, wanted, strict=True):
        for name, array in wholes(plan, f, "outputs").items():
            np.testing.assert_array_equal(bits(array), bits(w[name]).reshape(array.shape), err_msg=name)
    assert streamed.cycles == cycles(plan, 4)
    for o in plan.outputs:
        marks = np.flatnonzero(streamed.last[o.name])
        assert marks.tolist() == [n * o.words - 1 for n in range(1, 5)]

    for probe, words in zip(simulation.circuit.probes, streamed.watched, strict=True):
        reads = [w for v in values for w in seen(plan.parts[probe.part], v, probe.site, probe.lane)]
        np.testing.assert_array_equal(bits(words.view(np.float32)), bits(np.array(reads, np.uint32).view(np.float32)),
                                      err_msg=f"{probe.site.array} in lane {probe.lane}")  # fmt: skip

    (one,), alone = run(simulation, inputs[:1])
    assert alone.cycles == cycles(plan)
    for hold_in, hold_out in ((120, 0), (0, 120), (60, 60)):
        held, slow = run(simulation, inputs, hold_in=hold_in, hold_out=hold_out, seed=lanes + hold_in)
        assert slow.cycles >= streamed.cycles
        for f, h in zip(found, held, strict=True):
            again = wholes(plan, h, "outputs")
            for name, array in wholes(plan, f, "outputs").items():
                np.testing.assert_array_equal(bits(array), bits(again[name]), err_msg=name)
    assert one.keys() == found[0].keys()
