"""A folder with which a circuit can be simulated elsewhere: its Verilog, the words of a run, and a bench for cocotb."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.hw.circuit.verilog import circuit_verilog

Words = Mapping[str, NDArray[Any]]


def write_bench(folder: Path, circuit: Circuit, inputs: Words, outputs: Words) -> None:
    """`circuit.v`, `streams.json` and `cocotb_bench.py`; words are given by the names that ports have in the program."""
    folder.mkdir(parents=True, exist_ok=True)
    streams = {
        kind: {circuit.names[name]: words.tolist() for name, words in ports.items()}
        for kind, ports in (("inputs", inputs), ("outputs", outputs))
    }
    bench = resources.files("upl_mlir.hw.circuit").joinpath("cocotb_bench.py").read_text(encoding="utf-8")
    texts = {"circuit.v": circuit_verilog(circuit.plan), "streams.json": json.dumps(streams), "cocotb_bench.py": bench}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
