"""The main job on one screen: a perceptron from UPL text to its adjoint to hardware, then trained on real data.

`make demo` runs this.  Every stage prints what it did and asserts what it claims; a stage that fails ends the program with
a message and status 1.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import upl_mlir as upl
from upl_mlir.api.training import Epoch, Training
from upl_mlir.dialects import ttm
from upl_mlir.observe.replay import record
from upl_mlir.observe.viewing import view
from upl_mlir.passes.hardware.lower_hw import lower_hw

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "build" / "demo"
LAYERS = [4, 4, 5, 6, 4, 3, 3]
WEIGHTS = {"W_out": "W"}
"""The weights that a call gives are those of the next call."""
CLOCK = 100e6
"""Hz at which the time of a circuit is told; those of docs/circuit_table.md do 110 to 159 MHz on an ECP5."""
console = Console(highlight=False, soft_wrap=True)


@contextmanager
def stage(number: int, title: str) -> Iterator[None]:
    """Print a stage's title before it and its time after it."""
    console.print(f"[bold]{number}. {title}[/bold]")
    start = time.perf_counter()
    yield
    console.print(f"   [dim]{time.perf_counter() - start:.2f} s[/dim]")


def say(text: str) -> None:
    """One line of a stage's result."""
    console.print(f"   {text}", markup=False)


def require(condition: bool, claim: str) -> None:
    """Print a claim that holds; stop at one that does not."""
    if not condition:
        console.print(f"   FAILED: {claim}", markup=False)
        sys.exit(1)
    say(f"ok: {claim}")


def small_integers(examples: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, weights and seeds of which every intermediate result is a small integer: exact in float32."""
    random = np.random.default_rng(seed)
    weights = np.zeros((examples, len(LAYERS) - 1, max(LAYERS), max(LAYERS)))
    for k in range(len(LAYERS) - 1):
        weights[:, k, : LAYERS[k], : LAYERS[k + 1]] = random.integers(-1, 3, (examples, LAYERS[k], LAYERS[k + 1]))
    x = random.integers(1, 4, (examples, LAYERS[0])).astype(float)
    return x, weights, random.integers(-2, 3, (examples, LAYERS[-1])).astype(float)


def by_hand(x: np.ndarray, w: np.ndarray, seed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Forward pass and weight gradient in numpy, layer by layer: the independent reference."""
    out, grad = np.zeros(seed.shape), np.zeros(w.shape)
    for d in range(len(x)):
        values, active = [x[d]], []
        for k in range(len(LAYERS) - 1):
            s = values[-1] @ w[d, k, : LAYERS[k], : LAYERS[k + 1]]
            active.append(s > 0)
            values.append(np.where(s > 0, s, 0.0))
        out[d] = values[-1]
        delta = seed[d]
        for k in reversed(range(len(LAYERS) - 1)):
            delta = delta * active[k]
            grad[d, k, : LAYERS[k], : LAYERS[k + 1]] = np.outer(values[k], delta)
            delta = w[d, k, : LAYERS[k], : LAYERS[k + 1]] @ delta
    return out, grad


def main() -> None:
    """Run all stages."""
    with stage(1, "Check: no token strands, nothing deadlocks, for any number of examples"):
        primal = upl.load(HERE / "perceptron.upl")
        report = primal.check()
        for name, count in report.firings.items():
            say(f"{name:8} fires {count} times")
        require(report.ok and all(o.status.value == "proved" for o in report.obligations),
                f"{len(report.obligations)} obligations proved")  # fmt: skip

    with stage(2, "Differentiate: the program of the derivatives by W, dead derivatives removed by instance"):
        adjoint = upl.vjp(primal, of="R", wrt=["W"])
        text = str(adjoint)
        for line in text[text.index("node DAF_ReLU") :].splitlines():
            say(line)
        require(adjoint.check().ok, "the derivative is an ordinary program, and passes the same check")

    with stage(3, "Lower to hardware: tag layouts, routes and microcode of the tagged-token machine"):
        sized = upl.load(HERE / "perceptron.upl", D=1)
        module = upl.vjp(sized, of="R", wrt=["W"]).infer_domains().module
        program = lower_hw(upl.Program(module.clone()).op)
        for op in program.body.block.ops:
            if isinstance(op, ttm.NodeOp) and op.host is None:
                fields, ports = (", ".join(map(str, x)) for x in (op.fields, op.ports))
                say(f"{op.symbol:9} tag {fields:75} inputs {ports}")

    with stage(4, "Run on four engines: interpreter, compiled tokens, machine code, simulated hardware"):
        exact(adjoint)

    with stage(5, "Draw the program and its derivative; make the page on which a run can be replayed"):
        pictures(primal)

    with stage(6, "Train on Fisher's Iris, example by example and in mini-batches"):
        for file, batch, epochs, target in (("iris.upl", 150, 15, 0.95), ("iris_batch.upl", 10, 12, 0.95)):
            train(file, batch, epochs, target)

    with stage(7, "Train on a circuit: the step in mini-batches as hardware of its own, fed by streams"):
        train_on_a_circuit(batch=10, epochs=12, target=0.95)


def exact(adjoint: upl.Program) -> None:
    """Gradients of both engines on data where float32 is exact, and of the interpreter in float64 on any data."""
    found = next(s for s in range(1000) if by_hand(*small_integers(1, s))[0].all())  # no neuron of the last layer is dead
    x, w, seed = small_integers(1, found)
    interpreter = upl.compile(adjoint, real="f32")
    machine = upl.compile(adjoint, engine="rtl")
    soft, hard = interpreter(X=x, W=w, d_R=seed), machine(X=x, W=w, d_R=seed)
    reference, gradient = by_hand(x, w, seed)
    for name in ("token", "native"):
        other = upl.compile(adjoint, engine=name, real="f32")
        out = other(X=x, W=w, d_R=seed)
        same = all(soft[n].tobytes() == out[n].tobytes() for n in soft)
        require(same and other.stats["tokens"] == interpreter.stats["tokens"],
                f"interpreter = engine {name}, bit for bit, and by the same number of tokens")  # fmt: skip
    s = machine.stats
    say(f"hardware: {s['cycles']} cycles, {s['matches']} matches, at most {s['occupancy']['peak']} tokens waiting, "
        f"{sum(s['firings'].values())} firings")  # fmt: skip
    require(all(soft[n].tobytes() == hard[n].tobytes() for n in soft), "interpreter = hardware, bit for bit")
    require(np.array_equal(hard["d_W"], gradient) and np.array_equal(hard["R"], reference), "both = numpy by hand")
    random = np.random.default_rng(7)
    x, w, seed = small_integers(3, found)
    w = w * random.normal(1.0, 0.1, w.shape)
    out = upl.compile(adjoint)(X=x, W=w, d_R=seed)
    gradient = by_hand(x, w, seed)[1]
    worst = float(np.max(np.abs(out["d_W"] - gradient)) / np.max(np.abs(gradient)))
    require(worst <= 1e-12, f"interpreter in float64 against numpy: relative difference {worst:.1e}")


def pictures(primal: upl.Program) -> None:
    """The SVG of the program beside its derivative, and the page of `upl view` with a run of a smaller instance."""
    OUT.mkdir(parents=True, exist_ok=True)
    upl.draw(upl.vjp(primal, of="R", wrt=["W"])).save(OUT / "perceptron.svg")
    small = upl.load(HERE / "perceptron.upl", K=3, N=[3, 4, 2])
    gradient = upl.vjp(small, of="R", wrt=["W"])
    random = np.random.default_rng(0)
    trace, _ = record(gradient, {name: random.normal(size=port.shape(D=2)) for name, port in gradient.inputs.items()})
    (OUT / "perceptron.html").write_text(view(small, of="R", wrt=["W"], trace=trace), encoding="utf-8")
    for file in ("perceptron.svg", "perceptron.html"):
        say(f"{(OUT / file).relative_to(HERE.parent)}: {(OUT / file).stat().st_size // 1000} kB")


def train(file: str, batch: int, epochs: int, target: float) -> None:
    """Train with one of the Iris programs and print the last epoch."""
    training = Training(upl.load(HERE / file), iris(), WEIGHTS, batch=batch, seed=1)
    learned(file, batch, trained(training, file, epochs), target)


def train_on_a_circuit(batch: int, epochs: int, target: float) -> None:
    """Train with a circuit of the step in mini-batches: the weights that a run sends go in again in the next run.

    The hidden layer has max(s, 0) in place of tanh(s): of tanh a circuit may give the number beside the interpreter's.
    """
    text = (HERE / "iris_batch.upl").read_text(encoding="utf-8")
    step = upl.load(text.replace("tanh(s)", "max(s, 0)"), D=batch)
    circuit = Training(step, iris(), WEIGHTS, engine="circuit", share=True, batch=batch, seed=1)
    history = trained(circuit, "circuit", epochs)
    cycles = circuit.call.stats["cycles"]
    steps = epochs * (circuit.rows // batch)
    say(f"{cycles} cycles a step; {steps} steps: {1e3 * steps * cycles / CLOCK:.1f} ms at {CLOCK / 1e6:.0f} MHz")
    tokens = upl.compile(step, engine="rtl")
    tokens(**{n: values[:batch] for n, values in circuit.examples.items()}, **circuit.state)
    say(f"the machine of stage 3, which runs any program: {tokens.stats['cycles']} cycles a step")
    require(all(f["cycles"] == f["predicted_cycles"] == cycles for _, f in history), "as many cycles as predicted")
    software = Training(step, iris(), WEIGHTS, real="f32", gather="ordered", batch=batch, seed=1)
    trained(software, "interpreter", epochs)
    same = circuit.state["W"].tobytes() == software.state["W"].tobytes()
    require(same, f"the weights after {steps} steps = interpreter, bit for bit")
    learned("iris_batch.upl with max(s, 0)", batch, history, target)


def iris() -> dict[str, np.ndarray]:
    """Examples, wanted answers, and the weights to begin with."""
    return dict(np.load(HERE / "data" / "iris.npz"))


def trained(training: Training, name: str, epochs: int) -> list[tuple[Epoch, dict[str, Any]]]:
    """Train, with a bar; the epochs, each with the figures of its last call."""
    counter = TextColumn("{task.completed}/{task.total} epochs")
    columns = (TextColumn("   {task.description}"), BarColumn(), counter, TimeElapsedColumn())
    history: list[tuple[Epoch, dict[str, Any]]] = []
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=epochs)
        for epoch in training.epochs(epochs):
            history.append((epoch, training.call.stats))
            progress.advance(task)
    return history


def learned(name: str, batch: int, history: list[tuple[Epoch, dict[str, Any]]], target: float) -> None:
    """Print the last epoch, which is as good as it should be."""
    epoch, _ = history[-1]
    say(f"{name}: {epoch.number} epochs in calls of {batch} examples, loss {epoch.loss:.4f}, "
        f"accuracy {100 * epoch.accuracy:.1f} %")  # fmt: skip
    require(epoch.accuracy >= target, f"training accuracy at least {100 * target:.0f} %")


if __name__ == "__main__":
    try:
        main()
    except upl.UplError as e:
        print(e, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
