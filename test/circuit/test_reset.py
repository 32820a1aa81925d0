"""A reset in the middle of a run, at any clock: the next run is as the first one."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator
from circuit.circuits import CASES, data

from upl_mlir.engines.circuit.engine import to_stream
from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.passes.circuit.plan import cycles


@pytest.mark.parametrize(("name", "lanes", "at"), [("matmul-5-7-3", 2, 70), ("jacobi1d-2-5", 3, 60), ("fir-3-5", 1, 40)])
def test_after_a_reset(name: str, lanes: int, at: int) -> None:
    _, plan = next(c for c in CASES if str(c) == name).planned(lanes)
    circuit = Circuit(plan)
    words = {i.name: to_stream(plan, i, data(plan, 3)[i.name]) for i in plan.inputs}
    (o,) = plan.outputs
    reset = Signal()

    async def bench(ctx):  # type: ignore[no-untyped-def]
        async def stream(until: int) -> list[tuple[int, int]]:
            sent, found = dict.fromkeys(words, 0), []
            ctx.set(getattr(circuit, f"{o.name}_tready"), 1)
            for _ in range(until):
                for n, w in words.items():
                    ctx.set(getattr(circuit, f"{n}_tvalid"), sent[n] < len(w))
                    ctx.set(getattr(circuit, f"{n}_tdata"), int(w[sent[n] % len(w)]))
                    sent[n] += sent[n] < len(w) and ctx.get(getattr(circuit, f"{n}_tready"))
                if ctx.get(getattr(circuit, f"{o.name}_tvalid")):
                    found.append(tuple(ctx.get(getattr(circuit, f"{o.name}_{end}")) for end in ("tdata", "tlast")))
                await ctx.tick()
            return found

        results.append(await stream(cycles(plan) + 5))
        for n in (at, at + 1, at + 7):
            await stream(n)  # of another run, which is cut off
            for name_ in words:
                ctx.set(getattr(circuit, f"{name_}_tvalid"), 0)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            results.append(await stream(cycles(plan) + 5))

    results: list[list[tuple[int, int]]] = []
    simulator = Simulator(ResetInserter(reset)(circuit))
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert len(results[0]) == o.words and results[0][-1][1] == 1
    for found in results[1:]:
        np.testing.assert_array_equal(found, results[0])
