"""Jacobians of networks whose input, middle and output differ in width, in reverse, forward and mixed mode:
python -m bench.jacobian

For each shape the instances of derivative nodes, as the program's note counts them, and the milliseconds of a call of native
code; the least of interleaved runs.  Writes `bench/jacobian.json` and the table in `docs/autodiff.md`, in two minutes.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np

import upl_mlir as upl
from bench.report import this_machine

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "bench" / "jacobian.json"
PAGE = ROOT / "docs" / "autodiff.md"
HEAD = "| layers | reverse | forward | mixed | over the better one |"
"""The first line of the table; it ends at the next empty line."""
RUNS = 25
"""Calls of each program, in turn."""
MODES: tuple[Literal["reverse", "forward", "mixed"], ...] = ("reverse", "forward", "mixed")
SHAPES = [
    [256, 256, 8, 256, 256], [256, 256, 64, 256, 256], [256, 128, 32, 128, 256], [512, 16, 512], [256, 128, 256],
    [256, 192, 256], [128, 16, 64], [256, 128, 64], [64, 128, 256], [64, 256, 128], [256, 256, 256, 256],
]  # fmt: skip
"""Widths of the layers, inputs first."""
NET = """program net
const K = 3
const N[0:K-1] = [2, 2, 2]
input X<i> in 1<=i<=N[0] { -> Res.r<1,i> }
input W<k,i,j> in 1<=k<K, 1<=i<=N[k-1], 1<=j<=N[k] { -> Link.w<k,i,j> }
output Y<i>
node Res<k,i> in 1<=k<=K, 1<=i<=N[k-1] { in r; if k<K: #N[k] -> Link.r<k,i,*>; if k==K: -> Y<i> }
node Link<k,i,j> { in r, w; r*w #N[k-1] -> Sum.s<k,j> }
node Sum<k,j> { in @(+) s[#]; tanh(s) -> Res.r<k+1,j> }
"""


def measured(widths: list[int]) -> dict[str, Any]:
    """The figures of one shape."""
    random = np.random.default_rng(0)
    p = upl.load(NET, K=len(widths), N=widths)
    arrays = {n: random.normal(0, 0.1, v.shape()) for n, v in p.inputs.items()}
    programs = [upl.jacobian(p, of="Y", wrt="X", mode=m) for m in MODES]
    calls = [upl.compile(q, engine="native") for q in programs]
    results = [f(**arrays)["J_Y_X"] for f in calls]
    for found in results[1:]:
        np.testing.assert_allclose(found, results[0], rtol=1e-9, atol=1e-12)
    best = [float("inf")] * len(calls)
    for _ in range(RUNS):
        for n, f in enumerate(calls):
            start = time.perf_counter()
            f(**arrays)
            best[n] = min(best[n], time.perf_counter() - start)
    notes = [q.notes[-1] for q in programs]
    counts = [int(re.search(r": (\d+) instances", note).group(1)) for note in notes]  # pyright: ignore[reportOptionalMemberAccess]
    return {
        "layers": widths, "note": notes[-1], "instances": dict(zip(MODES, counts, strict=True)),
        "ms": {m: round(s * 1e3, 4) for m, s in zip(MODES, best, strict=True)},
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """The figures in Markdown."""
    lines = [HEAD, "|---" * 5 + "|"]
    for row in rows:
        n, ms = row["instances"], row["ms"]
        cells = [f"{n[m] / 1e6:.3g} M, {ms[m]:.3g} ms" for m in MODES]
        said = row["note"].split(":")[0]
        kind = "cut, " + said.rpartition(", ")[2].split()[0] if said.startswith("mixed") else said
        better = [min(x["reverse"], x["forward"]) / x["mixed"] for x in (n, ms)]
        lines.append(f"| {'-'.join(map(str, row['layers']))} | {cells[0]} | {cells[1]} | {cells[2]} ({kind}) | "
                     f"{better[0]:.2f}, {better[1]:.2f} times |")  # fmt: skip
    return "\n".join(lines)


def main() -> int:
    """Measure all shapes, and write both files."""
    rows: list[dict[str, Any]] = []
    for widths in SHAPES:
        rows.append(measured(widths))
        print(rows[-1], flush=True)
    FIGURES.write_text(json.dumps({"machine": this_machine(), "rows": rows}, indent=1) + "\n", encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    start = text.index(HEAD)
    end = text.find("\n\n", start)
    PAGE.write_text(text[:start] + table(rows) + text[end if end >= 0 else len(text) :], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
