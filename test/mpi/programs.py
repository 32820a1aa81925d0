"""The programs that run on ranks, with their data: `case`.

A case is an example, `NAME@SCALE` for a larger one, `NAME:OUT:IN,IN` for a gradient, `bench:NAME` for a program of
bench/ranks, or `random:SEED` for one of test/agreement's generator.  A `~` before it, which stands for relaxed sums, is left
out.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "examples"), str(ROOT / "test")]
from agreement.campaign import case_of  # noqa: E402
from agreement.generator import generate as random_program  # noqa: E402
from agreement.properties import host_arrays  # noqa: E402
from data import generate  # noqa: E402

import upl_mlir as upl  # noqa: E402
from bench.ranks.cases import SMALL  # noqa: E402
from upl_mlir.diagnostics import UplError  # noqa: E402


def case(text: str) -> tuple[upl.Program, dict[str, Any], dict[str, int]]:
    """The program, its inputs, and parameters that do not follow from these."""
    name, _, rest = text.removeprefix("~").partition(":")
    if name == "random":
        c = case_of(random_program(int(rest)), int(rest), noise=True)
        p = upl.load(c.text)
        return p, host_arrays(p, c.params, c.seed, noise=True), dict(c.params)
    if name == "bench":
        found = SMALL[rest]()
        return found.program, found.inputs, found.params
    name, _, scale = name.partition("@")
    d = generate(name, int(scale or 1))
    try:
        plain = upl.load(ROOT / "examples" / f"{name}.upl", **{n: v for n, v in d.params.items() if isinstance(v, list)})
    except UplError:  # how long a list is follows from a parameter
        plain = upl.load(ROOT / "examples" / f"{name}.upl", **d.params)
    params: dict[str, int] = {n: v for n, v in d.params.items() if n in plain.params and isinstance(v, int)}
    p = upl.load(ROOT / "examples" / f"{name}.upl", **{n: v for n, v in d.params.items() if n not in params})
    inputs: dict[str, Any] = dict(d.inputs)
    if rest:
        of, _, wrt = rest.partition(":")
        p = upl.vjp(p, of=of, wrt=wrt.split(","))
        inputs[f"d_{of}"] = np.random.default_rng(1).normal(size=np.shape(d.outputs[of]))
    return p, inputs, params
