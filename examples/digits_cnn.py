"""Handwritten digits by a convolutional network: the whole training run, all epochs and batches, is one UPL program.

A convolution, batch normalisation, ReLU, the maximum of windows and a dense layer, by Adam with weight decay along a cosine;
written with `upl_mlir.nn`, traced once, compiled, and called once.

    python examples/digits_cnn.py [EPOCHS]
    python examples/digits_cnn.py 4 --program          # the UPL program itself

The images are those of `examples/data/digits.npz`: 1797 of 8 by 8 pixels, of which 1440 are trained on.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import upl_mlir as upl
from upl_mlir import nn

DATA = Path(__file__).parent / "data" / "digits.npz"
BATCH = 32  # images in a batch: chosen, not tuned
TRAINED = 45 * BATCH  # images that are trained on, about four in five
EPOCHS = 10  # 98.0 to 98.9 % on three splits

MODEL = nn.chain(nn.conv(16, 3, bias=False), nn.batch_norm(), nn.relu, nn.max_pool(2), nn.flatten, nn.dense(10))


def digits(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 1, 8, 8] between 0 and 1 and their digits [n], in a random order."""
    with np.load(DATA) as data:
        x, y = data["X"].copy(), np.argmax(data["Y"], axis=1)
    x[:, 0] = 0  # the file has a constant there, for programs without biases
    order = np.random.default_rng(seed).permutation(len(x))
    return x[order].reshape(-1, 1, 8, 8), y[order].astype(float)


def objective(params: Any, state: Any, x: Any, y: Any) -> Any:
    """The loss of a batch, and the state of the layers after it."""
    logits, state = MODEL(params, state, x, train=True)
    return nn.cross_entropy(logits, y), state


def train(params: Any, state: Any, xs: Any, ys: Any, epochs: int) -> Any:
    """Parameters and state after the run, and the mean loss of each epoch; `xs` is [batches, batch, 1, 8, 8]."""
    steps = epochs * len(xs)
    adam = nn.adam(nn.schedules.warmup(len(xs) // 2, nn.schedules.cosine(0.02, steps)), decay=1e-3)

    def step(carry: Any, batch: Any) -> Any:
        params, state, moments = carry
        (loss, state), gradient = upl.value_and_grad(objective, has_aux=True)(params, state, *batch)
        params, moments = adam.update(gradient, moments, params)
        return (params, state, moments), loss

    def epoch(carry: Any, _: Any) -> Any:
        carry, losses = upl.scan(step, carry, (xs, ys))
        return carry, np.mean(losses)

    (params, state, _), losses = upl.scan(epoch, (params, state, adam.init(params)), length=epochs)
    return params, state, losses


def main() -> None:
    """Train, and say how well it went."""
    parser = argparse.ArgumentParser(description="Handwritten digits by a convolutional network: one UPL program.")
    parser.add_argument("epochs", nargs="?", type=int, default=EPOCHS)
    parser.add_argument("--program", action="store_true", help="print the UPL program")
    given = parser.parse_args()
    x, y = digits()
    xs, ys = x[:TRAINED].reshape(-1, BATCH, 1, 8, 8), y[:TRAINED].reshape(-1, BATCH)
    params, state = MODEL.init(0, (1, 8, 8))
    run = upl.function(train, static_argnums=4, engine="native")
    if given.program:
        print(run.program(params, state, xs, ys, given.epochs))
        return
    start = time.perf_counter()
    run(params, state, xs, ys, given.epochs)
    first = time.perf_counter() - start
    start = time.perf_counter()
    params, state, losses = run(params, state, xs, ys, given.epochs)
    again = time.perf_counter() - start
    for number, loss in enumerate(losses, 1):
        print(f"epoch {number:3}   loss {loss:.5f}")
    logits, _ = MODEL(params, state, x[TRAINED:])
    print(f"test accuracy {100 * nn.accuracy(logits, y[TRAINED:]):.2f} % of {len(x) - TRAINED} images")
    print(f"{first:.1f} s with compilation, {again:.2f} s for the run alone")


if __name__ == "__main__":
    main()
