"""A circuit that trains: the weights that a run sends go into the next one, and nothing is built or reset in between."""

from __future__ import annotations

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.api.training import Training
from upl_mlir.diagnostics import UplError
from upl_mlir.engines.circuit import simulation
from upl_mlir.engines.circuit.engine import CircuitEngine, run
from upl_mlir.passes.circuit.plan import cycles
from upl_mlir.passes.lower_to_circuit import wish

UNREAD = """
program unread
const n = 4
input X<i> in 0<=i<2*n { if i<n: -> A.x }
output Y<i>
node A<i> in 0<=i<n { in x; x*x -> Y }
"""


def test_training_is_that_of_the_interpreter(examples, monkeypatch) -> None:
    """One layer, so that there is no tanh: two steps, bit for bit; one library."""
    built: list[object] = []
    made = simulation._library
    monkeypatch.setattr(simulation, "_library", lambda circuit: built.append(circuit) or made(circuit))
    p = upl.load(examples / "iris_batch.upl", K=2, N=[2, 1])
    iris = np.load(examples / "data" / "iris.npz")
    data = {"X": iris["X"][:4, :2], "Y": iris["X"][:4, 2:3], "W": np.array([[[0.3], [-0.2]]])}
    states = []
    for options in ({"engine": "circuit", "share": True}, {"real": "f32", "gather": "ordered"}):
        training = Training(p, data, {"W_out": "W"}, batch=2, seed=3, **options)
        for _ in training.epochs(1):
            states.append(training.state["W"])
            if "cycles" in training.call.stats:
                assert training.call.stats["cycles"] == training.call.stats["predicted_cycles"]
    circuit, interpreter = states
    assert circuit.dtype == np.float32 and circuit.tobytes() == interpreter.tobytes()
    assert len(built) == 1


def test_each_run_begins_where_the_last_one_ended() -> None:
    """Also if an input has words that nobody reads, and after a run that came to nothing."""
    engine = CircuitEngine(upl.load(UNREAD).infer_domains().module, {}, wish(1))
    rng = np.random.default_rng(0)
    given = [{"X": rng.normal(size=8).astype(np.float32)} for _ in range(3)]

    def right(arrays: dict[str, np.ndarray]) -> None:
        (out,), streamed = run(engine.simulation, [arrays])
        np.testing.assert_array_equal(out["Y"], arrays["X"][:4] ** 2)
        assert streamed.cycles == cycles(engine.plan)

    right(given[0])
    right(given[1])
    with pytest.raises(UplError, match="UPL1702"):
        run(engine.simulation, given[:1], limit=5)
    right(given[2])
