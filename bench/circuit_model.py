"""The model of a circuit's area and clock, fitted to what was synthesised: docs/circuit_model.md, circuit_model.json.

make circuit-model                                     # synthesises what is not in the JSON file, fits, and writes both
.venv/bin/python bench/circuit_model.py --kept         # fits to what is in the JSON file

The coefficients that it prints belong into upl_mlir/explore/estimate.py; a test compares them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np

import upl_mlir as upl
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.explore.estimate import LUT_RAM_SITES, PERIOD_NS, Estimate, numbers, of_contents
from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.hw.circuit.contents import REST, Contents, contents, operation, unit_contents
from upl_mlir.hw.circuit.fixed_units import units_of
from upl_mlir.hw.synth.ecp5 import NO_RESETS, area
from upl_mlir.hw.synth.figures import as_rtlil
from upl_mlir.passes.circuit.numbers import Numbers
from upl_mlir.passes.lower_to_circuit import planned_circuit, wish
from upl_mlir.tools.synth import progress

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "bench" / "circuit_model.json"
PAGE = ROOT / "docs" / "circuit_model.md"
FEATURES = ("arithmetic", "equal", "logic", "choice", "table", "shift")
TOGETHER = (("arithmetic",), ("equal", "logic"), ("choice",), ("table",), ("shift",))
"""Kinds that get one coefficient."""
ROUNDS = 30
"""Of the fit, which takes coefficients and factors in turn; it stands still after a few."""
UNIT_WEIGHT = 0.5
"""A unit alone counts so much of a circuit in the fit. Chosen."""
MEASURED = ("luts", "ff", "dsp", "block_ram")

UNITS = {
    "f32": ("add", "mul", "div", "sqrt", "by 3", "down 1", "min", "compare olt", "mask", "exp", "log",
            "tanh"),
    "f16": ("add", "mul", "div", "sqrt"), "bf16": ("add", "mul"), "q16.16": ("add", "mul"),
    "q8.8": ("add", "mul", "div", "by 3"),
    "q4.14": ("add", "mul", "div", "by 3", "min", "compare olt", "mask"),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A program of the examples as a circuit; the fit takes it, or it checks the fit."""

    name: str
    sizes: Mapping[str, Any]
    lanes: int = 1
    real: str = "f32"
    share: bool = False
    fitted: bool = True
    replaced: tuple[str, str] | None = None
    """What is replaced in its text."""

    @property
    def title(self) -> str:
        """How table and file call it."""
        sizes = " ".join(f"{k}={v}" for k, v in self.sizes.items() if not isinstance(v, list))
        more = " shared" if self.share else ""
        return f"`{self.name}` {sizes}, {self.real}, {self.lanes} lane{'s' if self.lanes > 1 else ''}{more}"

    def plan(self) -> Any:
        """The plan of the circuit."""
        text = (ROOT / "examples" / f"{self.name}.upl").read_text(encoding="utf-8")
        p = upl.load(text.replace(*self.replaced) if self.replaced else text, **self.sizes)
        module = p.expanded().infer_domains().module.clone()
        return planned_circuit(module, {}, wish(self.lanes, share=self.share, real=self.real))[1]


CUBE = {"m": 16, "n": 16, "r": 16}
SMALL = {"m": 8, "n": 8, "r": 8}
LINE = {"T": 6, "n": 100}
CASES = (
    Case("matmul", CUBE), Case("matmul", CUBE, 4), Case("matmul", SMALL), Case("fir", {"K": 8, "n": 64}),
    Case("matmul", SMALL, 4, "f16"), Case("matmul", SMALL, 4, "q4.14"), Case("fir", {"K": 8, "n": 64}, 4, "q8.8"),
    Case("jacobi1d", LINE), Case("wave", {"T": 6, "n": 64}), Case("softmax", {"D": 4, "n": 4}),
    Case("iris_batch", {"D": 4}, 2), Case("lstm", {"T": 3, "E": 4, "H": 4}),
    Case("scan", {"K": 5, "P": [1, 2, 4, 8, 16, 32]}), Case("diagonal", {"n": 8}, 4, "q4.14"),
    Case("conv2d", {"H": 16, "W": 12}, replaced=("tanh(s)", "s")),
    Case("matmul", CUBE, 16, fitted=False), Case("matmul", CUBE, 16, "q4.14", fitted=False),
    Case("matmul", {"m": 64, "n": 64, "r": 64}, 64, "q4.14", fitted=False),
    Case("matmul", CUBE, 4, "q16.16", fitted=False), Case("matmul", CUBE, 4, "bf16", fitted=False),
    Case("jacobi1d", LINE, 16, fitted=False), Case("jacobi1d", LINE, 4, "q4.14", fitted=False),
    Case("floyd_warshall", {"n": 6}, fitted=False), Case("mds", {"n": 6, "K": 2}, 1, "f16", fitted=False),
    Case("triangular_solve", {"n": 8}, 2, "q8.8", fitted=False),
    Case("jacobi2d", {"T": 4, "m": 10, "n": 10}, 1, "q8.8", fitted=False),
    Case("iris_batch", {"D": 4}, 4, share=True, fitted=False),
)  # fmt: skip


@dataclass
class Point:
    """What was synthesised: what its netlist has, and what the tools found; `mhz`, if it was routed, of the worst seed."""

    title: str
    fitted: bool
    contents: dict[str, Contents]
    measured: dict[str, int]
    mhz: float | None = None
    unit: bool = False

    @property
    def logic(self) -> int:
        """LUT sites without memories."""
        return self.measured["luts"] - LUT_RAM_SITES * sum(c["lut_ram"] for c in self.contents.values())

    @property
    def estimate(self) -> Estimate:
        """What the model says."""
        return of_contents(self.contents)

    def off(self, what: str) -> float:
        """How far the model is off, relative to what was measured."""
        return getattr(self.estimate, what) / max(1, self.measured[what]) - 1


@dataclass
class Model:
    """What is fitted."""

    luts: dict[str, float] = field(default_factory=dict[str, float])
    lut_factors: dict[str, float] = field(default_factory=dict[str, float])
    ff_factors: dict[str, float] = field(default_factory=dict[str, float])
    period: dict[str, float] = field(default_factory=dict[str, float])
    root: float = 0.0


def load() -> list[Point]:
    """The points that are kept."""
    if not DATA.exists():
        return []
    return [
        Point(**{**p, "contents": {op: Counter(c) for op, c in p["contents"].items()}})
        for p in json.loads(DATA.read_text(encoding="utf-8"))
    ]


def save(points: Sequence[Point]) -> None:
    """Keep points."""
    text = ",\n".join(json.dumps(vars(p), sort_keys=True) for p in points)
    DATA.write_text(f"[\n{text}\n]\n", encoding="utf-8")


def measured(found: Any) -> dict[str, int]:
    """What the tools found of an area."""
    return {what: getattr(found, what) for what in MEASURED}


def all_points(kept: Sequence[Point]) -> list[Point]:
    """All units and cases; those that are not kept are synthesised."""
    there = {p.title: p for p in kept}
    out: list[Point] = []
    with progress() as say:
        for real, kinds in UNITS.items():
            reals = Numbers(Kind.of_real(real))
            for kind in kinds:
                title = f"{kind}, {real}"
                if title not in there:
                    has = unit_contents(reals, tuple(reals.latency.items()), kind)[0]
                    made = units_of(reals, reals.latency, "ecp5").unit(kind)
                    cost = area(as_rtlil(made), "top", lambda what, title=title: say(f"{title}: {what}"), NO_RESETS)
                    there[title] = Point(title, True, {operation(reals, kind): has}, measured(cost), unit=True)
                out.append(there[title])
        for case in CASES:
            if case.title not in there:
                plan = case.plan()
                text = as_rtlil(Circuit(plan, target="ecp5"))
                cost = area(text, "top", lambda what, case=case: say(f"{case.title}: {what}"), NO_RESETS)
                there[case.title] = Point(case.title, case.fitted, contents(plan), measured(cost))
            out.append(there[case.title])
            save(out)
    save(out)
    return out


# ------------------------------------------------------------------------------------------------------------------ fit


def fit(points: Sequence[Point]) -> Model:
    """Least squares of relative errors, for circuits and units alone, in turn with the factors of operations, each of which
    is the geometric mean over its units; only what is `fitted` counts."""
    used = [p for p in points if p.fitted]
    units = [p for p in used if p.unit]
    factors = dict.fromkeys((op for p in units for op in p.contents), 1.0)
    k = np.zeros(len(TOGETHER))
    for _ in range(ROUNDS):
        weights = [UNIT_WEIGHT if p.unit else 1.0 for p in used]
        rows = [
            w / p.logic * sum(factors.get(op, 1.0) * _vector(c) for op, c in p.contents.items())
            for w, p in zip(weights, used, strict=True)
        ]  # fmt: skip
        k = _not_below_zero(np.array(rows), np.array(weights))
        for op in factors:
            quotients = [p.logic / float(_vector(c) @ k) for p in units for o, c in p.contents.items() if o == op]
            factors[op] = exp(sum(map(log, quotients)) / len(quotients))
    luts = {what: round(float(c), 3) for names, c in zip(TOGETHER, k, strict=True) for what in names}
    ff = {
        op: sum(p.measured["ff"] for p in units if op in p.contents) / max(1, sum(c["ff"] for c in _of(units, op)))
        for op in factors
    }
    left = [p.measured["ff"] - sum(ff.get(op, 0.0) * c["ff"] for op, c in p.contents.items()) for p in used if not p.unit]
    whole = [sum(c["ff"] for op, c in p.contents.items() if op not in ff) for p in used if not p.unit]
    ff[REST] = sum(left) / sum(whole)
    return Model(luts, {op: round(x, 3) for op, x in sorted(factors.items())},
                 {op: round(x, 3) for op, x in sorted(ff.items())}, *_period(points))  # fmt: skip


def _of(points: Sequence[Point], op: str) -> list[Contents]:
    return [p.contents[op] for p in points if op in p.contents]


def _vector(c: Contents) -> np.ndarray:
    return np.array([sum(c[what] for what in names) for names in TOGETHER], float)


def _not_below_zero(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Least squares; what would be negative is left out, the most negative first."""
    use = [*range(a.shape[1])]
    while True:
        found = np.linalg.lstsq(a[:, use], b, rcond=None)[0]
        if (found >= 0).all():
            break
        use.pop(int(found.argmin()))
    out = np.zeros(a.shape[1])
    out[use] = found
    return out


def _period(points: Sequence[Point]) -> tuple[dict[str, float], float]:
    """Of the clock, by all points that were routed: they are few."""
    routed = [p for p in points if p.mhz is not None and not p.unit]
    kinds = sorted(PERIOD_NS)
    blocks = [sqrt(p.measured["dsp"] + p.measured["block_ram"]) for p in routed]
    rows = [[*(float(numbers(p.contents) == k) for k in kinds), x] for p, x in zip(routed, blocks, strict=True)]
    *of, root = _not_below_zero(np.array(rows), np.array([1000 / (p.mhz or 1) for p in routed]))
    return {k: round(float(x), 2) for k, x in zip(kinds, of, strict=True)}, round(float(root), 3)


# ---------------------------------------------------------------------------------------------------------------- page


def page(points: Sequence[Point]) -> str:
    """The table of measured and estimated figures."""
    units, circuits = [p for p in points if p.unit], [p for p in points if not p.unit]
    out = [
        "# How good the model of circuits is", "",
        "Made by `make circuit-model` from `bench/circuit_model.json`. By this model `upl explore` estimates area and clock",
        "of circuits ([exploring](explore.md#circuits)). LUT sites, FF, DSP, BRAM: synthesised by yosys for an ECP5. MHz:",
        "routed, the worst of three seeds of the placement (of one seed in fixed point), when each lane still counted the",
        "addresses of its words. *Estimated*: by the model. Its DSP and",
        "BRAM are the same in all rows. Rows in fixed point are of circuits as they were when they were synthesised.",
        "Running sums of fixed point have had units of their own since then, not fitted: products of matrices in q4.14",
        "on 4, 16 and 128 lanes take 929, 2,034 and 12,975 LUT sites.", "",
    ]  # fmt: skip
    for title, rows in (
        ("## Circuits that were not fitted", [p for p in circuits if not p.fitted]),
        ("## Circuits that were fitted", [p for p in circuits if p.fitted]), ("## Units alone", units),
    ):  # fmt: skip
        out += [title, "", *_worst(rows), "", *_table(rows, clock=rows is not units), ""]
    return "\n".join(out)


def _worst(rows: Sequence[Point]) -> list[str]:
    offs = [abs(p.off("luts")) for p in rows]
    typical = sqrt(sum(x * x for x in offs) / len(offs))
    return [f"LUT sites are off by {100 * max(offs):.0f} % at most, by {100 * typical:.0f} % typically (root mean square)."]


def _table(rows: Sequence[Point], clock: bool) -> list[str]:
    head = ["circuit" if clock else "unit", "LUT sites", "estimated", "off", "FF", "estimated", "off", "DSP", "BRAM"]
    out = [[*head, *(["MHz", "estimated"] if clock else [])]]
    for p in rows:
        m, e = p.measured, p.estimate
        line = [p.title, f"{m['luts']:,}", f"{e.luts:,}", f"{100 * p.off('luts'):+.0f} %", f"{m['ff']:,}", f"{e.ff:,}",
                f"{100 * p.off('ff'):+.0f} %", str(m["dsp"]), str(m["block_ram"])]  # fmt: skip
        out.append([*line, *([f"{p.mhz:.0f}" if p.mhz else "", f"{e.fmax_mhz:.0f}"] if clock else [])])
    lines = [f"| {' | '.join(line)} |" for line in out]
    return [lines[0], "|" + "---|" * len(out[0]), *lines[1:]]


def main() -> int:
    """Fit, and write the page."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kept", action="store_true", help="synthesise nothing")
    args = p.parse_args()
    points = load() if args.kept else all_points(load())
    print(fit(points))
    PAGE.write_text(page(points), encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
