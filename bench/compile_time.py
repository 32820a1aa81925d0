"""How long inference, checks and derivatives take, and that this does not depend on sizes and grows evenly with nodes."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np

import upl_mlir as upl
from bench.report import Row, interleaved
from upl_mlir.api.programs import reverse

EXAMPLES = Path(__file__).parent.parent / "examples"
PERCEPTRON = EXAMPLES / "perceptron.upl"
STENCIL = Path(__file__).parent / "native" / "programs" / "jacobi.upl"
NARROW = [4, 4, 5, 6, 4, 3, 3]
LAYERS = 60
SLOW_RUNS = 3  # of actions that take seconds

Load = Callable[[], upl.Program]
Action = Callable[[upl.Program], object]


def timed(load: Load, action: Action, prepare: Action = lambda _: None) -> Callable[[], float]:
    """Seconds of an action on a program read afresh; `prepare` is not counted."""

    def once() -> float:
        program = load()
        prepare(program)
        begin = time.perf_counter()
        action(program)
        return time.perf_counter() - begin

    return once


def infer(program: upl.Program) -> object:
    """Domain inference alone."""
    return program.infer_domains()


def check(program: upl.Program) -> object:
    """All obligations; a refuted one would make the figure worthless."""
    report = program.check()
    assert report.ok
    return report


def by(of: str, *wrt: str) -> Action:
    """The derivative of `of` by `wrt`."""
    return lambda program: reverse(program, of, wrt)


def wide(factor: int) -> Load:
    """The paper's perceptron with layers `factor` times as wide."""
    return lambda: upl.load(PERCEPTRON, N=[n * factor for n in NARROW])


def deep() -> upl.Program:
    """A perceptron of 60 layers with widths between 2 and 60, none like its neighbour by design."""
    widths = np.random.default_rng(60).integers(2, 61, LAYERS).tolist()
    return upl.load(PERCEPTRON, K=LAYERS, N=widths)


def chain(length: int) -> Load:
    """`length` nodes in a row on a vector of symbolic length, each with a body and a neighbour's value."""
    lines = ["program chain", "param n >= 2", "input X<i> in 0<=i<n { -> N1.x }", "output Y<i>"]
    for k in range(1, length + 1):
        target = f"N{k + 1}.x" if k < length else "Y"
        lines.append(f"node N{k}<i> {{ in x; y = x*x + {k}; y -> {target} }}")
    text = "\n".join(lines)
    return lambda: upl.load(text)


def sizes() -> list[Row]:
    """Sizes times 10 and times 100 against the sizes of the paper."""
    rows: list[Row] = []
    for what, action in (("check", check), ("differentiate", by("R", "W"))):
        small, large, huge = interleaved(*(timed(wide(f), action) for f in (1, 10, 100)))
        for factor, seconds in ((10, large), (100, huge)):
            title = f"{what} the perceptron with layers {factor} times as wide"
            rows.append(Row(title, seconds, "s", "independent of sizes", "as in the paper", small))
    return rows


def chains() -> list[Row]:
    """Chains of 10, 100 and 1000 nodes: the time for a node beside that in the shorter chain."""
    rows: list[Row] = []
    lengths = (10, 100, 1000)
    times = interleaved(*(timed(chain(n), check) for n in lengths), runs=SLOW_RUNS)
    for k, (length, seconds) in enumerate(zip(lengths, times, strict=True)):
        aim = "<= 10" if length == 1000 else ""
        before = times[k - 1] * lengths[k] / lengths[k - 1] if k else seconds
        rows.append(
            Row(f"check a chain of {length} nodes", seconds, "s", aim, "in proportion to the shorter chain", before)
        )
    return rows


def chain_derivative() -> list[Row]:
    """The chain of 100 nodes, beside ten times that of 10."""
    ten, hundred = interleaved(*(timed(chain(n), by("Y", "X")) for n in (10, 100)), runs=SLOW_RUNS)
    return [Row("differentiate a chain of 100 nodes", hundred, "s", "<= 2", "ten times the chain of 10", 10 * ten)]


def machine_code() -> list[Row]:
    """Chains of 50 to 400 nodes as machine code, values and gradients: the time beside that for the shorter chain."""
    rows: list[Row] = []
    lengths = (50, 100, 200, 400)
    for what, gradient, aim in (("", False, "<= 2"), ("the gradient of ", True, "<= 5")):
        times = interleaved(*(partial(compiled, n, gradient) for n in lengths), runs=SLOW_RUNS)
        for k, (n, seconds) in enumerate(zip(lengths, times, strict=True)):
            title = f"compile {what}a chain of {n} nodes"
            before = times[k - 1] * n / lengths[k - 1] if k else seconds
            rows.append(Row(title, seconds, "s", aim if n == 200 else "", "in proportion to the shorter chain", before))
    return rows


def compiled(length: int, gradient: bool) -> float:
    """Seconds from a chain to its machine code, or its gradient's, with an empty cache."""
    program = chain(length)()
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {"XDG_CACHE_HOME": folder}):
        begin = time.perf_counter()
        upl.compile(upl.vjp(program, "Y", "X") if gradient else program, engine="native")
        return time.perf_counter() - begin


def layers() -> list[Row]:
    """Sixty layers of known, uneven widths beside the paper's seven."""
    rows: list[Row] = []
    shallow = wide(1)
    for what, aim, action, prepare in (
        ("infer the domains of", "<= 0.5", infer, lambda _: None),
        ("check", "<= 2", check, infer),
        ("differentiate", "<= 2", by("R", "W"), infer),
    ):
        many, seven = interleaved(timed(deep, action, prepare), timed(shallow, action, prepare), runs=SLOW_RUNS)
        rows.append(Row(f"{what} a perceptron of {LAYERS} layers", many, "s", aim, "of 7 layers", seven))
    return rows


def symbolic() -> list[Row]:
    """Time loops and strides with open sizes: differentiating beside checking."""
    rows: list[Row] = []
    for title, path, derivative in (
        ("Jacobi-2D, steps and width open", STENCIL, by("L", "U0")),
        ("LSTM, length and widths open", EXAMPLES / "lstm.upl", by("Y", "X", "W", "V", "B", "H0", "C0")),
        ("convolution with stride 2, channels and size open", EXAMPLES / "conv_strided.upl", by("Y", "X", "W", "Bias")),
    ):
        load = partial(upl.load, path)
        found = interleaved(timed(load, derivative), timed(load, check), runs=SLOW_RUNS)
        rows.append(Row(f"differentiate {title}", found[0], "s", "<= 2", "check", found[1]))
    return rows


def rows() -> tuple[list[Row], str]:
    """All of them; and a note on a group that could not be measured, because an action ended in an error."""
    found: list[Row] = []
    failed: list[str] = []
    for group in (sizes, chains, chain_derivative, machine_code, layers, symbolic):
        try:
            found += group()
        except upl.UplError as e:
            failed.append(f"{group.__name__}: {e.diagnostics[0].code} {e.diagnostics[0].message}")
    return found, f"**Not measured: {'; '.join(failed)}.**" if failed else ""
