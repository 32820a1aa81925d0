"""The claim about the organisation `direct`, program by program: python bench/direct.py [--synth]

Each program runs on a `direct` and on a `hashed` machine of one core. The table has cycles, places given away, the most
tokens that ever waited on the direct machine, and the bits of RAM that each of these costs: for `direct` the places and the
rows that the program uses; for `hashed` the smallest power of two of records of its join store that holds the most records
that ever waited (less than it needs not to spill, and without its gather store), and its rows. "put off" counts tries of
tokens whose place was taken by an earlier generation. `--synth` synthesises the two matching units for an ECP5 (minutes).
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# Amaranth's layouts are untyped.

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import upl_mlir as upl
from upl_mlir.hw.core.layouts import Dimensions, node_layout, walk_layout
from upl_mlir.hw.core.stores.store import join_shape
from upl_mlir.hw.direct.layouts import direct_node_layout, rank_layout, store_bits
from upl_mlir.hw.machine import Machine, Matching, Organisation

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
CAPACITY = {"direct": 1024, "hashed": 1024}

PROGRAMS: list[tuple[str, dict[str, float]]] = [
    ("perceptron", {"D": 2}),
    ("perceptron", {"D": 8}),
    ("training", {"D": 4, "eta": 0.5}),
    ("matmul", {"m": 8, "n": 8, "r": 8}),
    ("jacobi1d", {"T": 8, "n": 16}),
    ("jacobi2d", {"T": 4, "m": 6, "n": 6}),
    ("triangular_solve", {"n": 12}),
    ("cholesky", {"n": 8}),
    ("floyd_warshall", {"n": 6}),
    ("conv2d", {"H": 6, "W": 6}),
    ("upsample", {"m": 4, "n": 6}),
]


def machine_file(folder: Path, organisation: str, stages: int) -> Path:
    """A machine description."""
    path = folder / f"{organisation}.toml"
    keys = {"capacity": CAPACITY[organisation], "stages": stages}
    lines = "".join(f"{k} = {v}\n" for k, v in keys.items())
    path.write_text(f'[matching]\norganisation = "{organisation}"\n{lines}')
    return path


def run(program: upl.Program, path: Path, arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Outputs and figures."""
    compiled = upl.compile(program, engine="rtl", machine=path)
    return compiled(**arrays), compiled.stats


def data(program: upl.Program) -> dict[str, Any]:
    """Small integers; matrices that are divided by get ones on the diagonal."""
    out: dict[str, Any] = {}
    for n, (port, value) in enumerate(program.inputs.items()):
        out[port] = np.random.default_rng(n).integers(0, 2, value.shape()).astype(np.float32)
        if port in ("L", "A") and out[port].ndim == 2 and out[port].shape[0] == out[port].shape[1]:
            np.fill_diagonal(out[port], 4)
    return out


def line(name: str, constants: dict[str, float], folder: Path, stages: int) -> str:
    """One line of the table."""
    program = upl.load(EXAMPLES / f"{name}.upl", **constants)
    arrays = data(program)
    found = {o: run(program, machine_file(folder, o, stages), arrays) for o in ("direct", "hashed")}
    same = all(np.array_equal(a, found["hashed"][0][port], equal_nan=True) for port, a in found["direct"][0].items())
    direct, hashed = found["direct"][1], found["hashed"][1]
    d = Dimensions(sets=CAPACITY["direct"])
    store = direct["store"]
    rows = store["rows"] * rank_layout(d).size + len(store["nodes"]) * direct_node_layout(d).size
    record = join_shape(d).record(d).size
    hashed_rows = len(store["nodes"]) * (node_layout(d).size + d.max_inputs * walk_layout(d).size)
    places, live = sum(store["places"]), direct["peak_waiting"]
    records = 1 << max(0, hashed["peak_waiting"] - 1).bit_length()
    sizes = ", ".join(f"{k}={v:g}" for k, v in constants.items())
    cells = [
        f"`{name}` {sizes}", hashed["cycles"], hashed["spills"],
        direct["cycles"], f"{direct['cycles'] / hashed['cycles'] - 1:+.1%}",
        places, live, f"{places / live:.2f}", f"{record * records / live:.0f} + {hashed_rows / live:.0f}",
        f"{store_bits(d, store['places']) / live:.0f} + {rows / live:.0f}", store["rows"], store["put_off"],
        "yes" if same else "no: order of additions",
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def synthesis() -> str:
    """The two matching units, at 1024 records and at 1024 places a bank."""
    import os

    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    from amaranth.back import rtlil

    from upl_mlir.hw.core.core import matching_unit
    from upl_mlir.hw.synth.ecp5 import area

    out = ["| matching unit | LUT sites | LUT4 | flip-flops | DP16KD | MULT18X18D |", "|---|---|---|---|---|---|"]
    for organisation in (Organisation.HASHED, Organisation.DIRECT):
        machine = Machine(matching=Matching(organisation=organisation, capacity=1024))
        unit = matching_unit(Dimensions.of(machine))
        a = area(rtlil.convert(unit, name="top", emit_src=False), "top", lambda _: None)
        out.append(f"| `{organisation.value}` | {a.luts} | {a.lut4} | {a.ff} | {a.block_ram} | {a.dsp} |")
    return "\n".join(out)


def main() -> int:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--synth", action="store_true", help="synthesise the matching units, too")
    parser.add_argument("--only", help="these programs only")
    parser.add_argument("--stages", type=int, default=1, help="window of the field that streams (default 1)")
    arguments = parser.parse_args()
    titles = ["program", "cycles hashed", "spills", "cycles direct", "", "places", "most waiting", "places / waiting",
              "bits a token, hashed: store + rows", "bits a token, direct: store + rows", "rows", "put off",
              "same outputs"]  # fmt: skip
    print("| " + " | ".join(titles) + " |")
    print("|---" * len(titles) + "|")
    with tempfile.TemporaryDirectory(prefix="upl-direct-") as folder:
        for name, constants in PROGRAMS:
            if arguments.only is None or name in arguments.only.split(","):
                print(line(name, constants, Path(folder), arguments.stages), flush=True)
    if arguments.synth:
        print()
        print(synthesis())
    return 0


if __name__ == "__main__":
    sys.exit(main())
