"""The direct store on two cores: programs against the interpreter, places divided among the cores, windows, leftovers.

Every run is audited (conftest.py): its outputs are those of its own additions, repeated in binary32, whatever the data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.engines.rtl.run import run_machine
from upl_mlir.hw.image import HostOutput, Input, Node, ProgramImage, layout_fields
from upl_mlir.hw.machine import Machine, Matching, Network, Organisation, Topology
from upl_mlir.hw.microcode import Constant, Instruction, Op, Send, ToHost, ValueType
from upl_mlir.hw.results import HostToken
from upl_mlir.hw.sim.compiled import available

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
F32 = ValueType.F32
Arrays = dict[str, np.ndarray]


def exact(program: upl.Program) -> Arrays:
    """Small integers, with which every program here is exact in binary32."""
    out: Arrays = {}
    for n, (port, v) in enumerate(program.inputs.items()):
        low = -1 if port == "X" and "Y" in program.inputs else 0  # training: small errors, else weights grow
        out[port] = np.random.default_rng(n).integers(low, 2, v.shape()).astype(np.float32)
    if "L" in out:
        np.fill_diagonal(out["L"], 1)
    return out


def on_two(folder: Path, program: upl.Program, arrays: Arrays, more: str = "") -> tuple[Arrays, dict[str, Any]]:
    """Outputs and figures on two cores; the first section of `more` goes on with `matching`."""
    if not available():
        pytest.skip("no C++ compiler")
    path = folder / "m.toml"
    path.write_text(f'cores = 2\n[matching]\norganisation = "direct"\n{more}')
    hard = upl.compile(program, engine="rtl", machine=path)
    return hard(**arrays), hard.stats


@pytest.mark.parametrize(
    ("name", "constants", "more"),
    [
        ("training", {"D": 2, "eta": 0.5}, ""),  # ragged, with counted tokens and gathers
        ("training", {"D": 4, "eta": 0.5}, 'stages = 1\n[network]\ntopology = "crossbar"\n[host]\nports = 2\n'),  # windows
        ("perceptron", {"D": 2}, '[placement]\nLink = "d mod 2"\n'),  # places for all instances on both
        ("matmul", {"m": 3, "n": 4, "r": 2}, ""),  # both inputs with `*`
        ("triangular_solve", {"n": 6}, ""),  # triangular, gathers of no summands
        ("floyd_warshall", {"n": 4}, ""),  # gathers by min
    ],
)
def test_programs_give_what_the_interpreter_gives(
    name: str, constants: dict[str, float], more: str, tmp_path: Path
) -> None:
    """On data where binary32 is exact: bit for bit, with the same firings, on both cores, and nothing is left."""
    program = upl.load(EXAMPLES / f"{name}.upl", **constants)
    arrays = exact(program)
    soft = upl.compile(program, real="f32")
    wanted = soft(**arrays)
    got, stats = on_two(tmp_path, program, arrays, more)
    assert all(values.tobytes() == got[port].tobytes() for port, values in wanted.items())
    assert any(np.abs(a).max() > 0 for a in wanted.values())
    assert stats["firings"] == soft.stats["firings"]
    assert all(core["matches"] > stats["matches"] / 5 for core in stats["cores"])
    if "stages = 1" in more:
        assert {node.get("along") for node in stats["store"]["nodes"].values()} - {None} == {"d"}


def test_a_core_needs_about_half_of_the_places(tmp_path: Path) -> None:
    program = upl.load(EXAMPLES / "matmul.upl", m=4, n=6, r=2)
    random = np.random.default_rng(0)
    arrays = {name: random.standard_normal(v.shape()).astype(np.float32) for name, v in program.inputs.items()}
    got, stats = on_two(tmp_path, program, arrays, "stages = 64\n")
    np.testing.assert_allclose(got["C"], arrays["A"] @ arrays["B"], rtol=1e-5)
    # A<i,k,*>, B<*,k,j>: those of one k each; the sums: half of them
    assert stats["store"]["places"] == [4, 6, 0, 0, 12]
    assert {n: v.get("split") for n, v in stats["store"]["nodes"].items() if "split" in v}


def test_leftovers_are_named_by_their_places_and_cores() -> None:
    fields = [("i", 1, 4), ("j", 3, 6)]
    value = Instruction(2, Op.INPUT, immediate=0)
    body = (Instruction(0, Op.FIELD, immediate=0), Instruction(1, Op.FIELD, immediate=1), value)
    inputs = (Input("a", F32), Input("b", F32))
    node = Node("N", layout_fields(fields), inputs, body, (Send(ToHost(0), 2, (0, 1), Constant(1)),))
    image = ProgramImage("two", (node,), (HostOutput("Y", ("i", "j"), F32),))
    matching, network = Matching(organisation=Organisation.DIRECT, capacity=16), Network(topology=Topology.CROSSBAR)
    small = Machine(cores=2, matching=matching, network=network)
    tokens = [HostToken(0, 1, (1, 3), 1.0), HostToken(0, 1, (2, 5), 1.0), HostToken(0, 0, (4, 6), 1.0)]
    with pytest.raises(UplError) as caught:
        run_machine(image, small, tokens, simulator="amaranth")
    assert caught.value.diagnostics[0].code == "UPL1701"
    for left in ("N.b<1,3> waits for input `a`", "N.b<2,5> waits for input `a`", "N.a<4,6> waits for input `b`"):
        assert left in str(caught.value)
