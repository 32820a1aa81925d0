"""Programs of the dialect `ttm` written by hand: they run as they are, and malformed ones are told where."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.engines.rtl.engine import RtlEngine
from upl_mlir.engines.rtl.lowered import lowered
from upl_mlir.hw.machine import Machine, Matching, Organisation, load_machine
from upl_mlir.observe.machine_trace import record_machine

EXAMPLES = Path(__file__).parents[2] / "examples"
ROWS = (Path(__file__).parents[1] / "Inputs" / "rows.mlir").read_text()
ORGANISATIONS = ["hashed", "direct"]
DIRECT = Machine(matching=Matching(organisation=Organisation.DIRECT))


def description(folder: Path, organisation: str) -> Path:
    path = folder / f"{organisation}.toml"
    path.write_text(f'[matching]\norganisation = "{organisation}"\n')
    return path


def data() -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """A ragged matrix and a vector of small integers; the scaled products and the numbers of positive terms."""
    lengths = np.array([1, 3, 2, 5])
    inside = np.arange(5) < lengths[:, None]
    a = np.where(inside, np.random.default_rng(7).integers(-4, 5, (4, 5)), 0).astype(np.float32)
    v = np.array([3, -1, 2, 1, -2])
    scale = np.where(np.arange(1, 5) % 2, 2.0, 0.5)
    return {"A": a, "V": v}, scale * (a @ v), (a * v > 0).sum(axis=1)


@pytest.mark.parametrize("organisation", ORGANISATIONS)
def test_a_program_by_hand_runs(organisation: str, tmp_path: Path) -> None:
    """No UPL program is there: domains, tables and streams are in the text."""
    arrays, rows, counts = data()
    program = upl.load(ROWS)
    assert repr(program) == "<program of the machine rows(A, V) -> (Y, Count)>"
    assert (program.params, list(program.inputs), list(program.outputs)) == ((), ["A", "V"], ["Y", "Count"])
    f = upl.compile(program, "rtl", machine=description(tmp_path, organisation))
    found = f(**arrays)
    np.testing.assert_array_equal(found["Y"], rows)
    np.testing.assert_array_equal(found["Count"], counts)
    assert f.stats["cycles"] > 0


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_a_program_by_hand_runs_from_the_command_line(tmp_path: Path) -> None:
    arrays, rows, _ = data()
    path = tmp_path / "rows.mlir"
    path.write_text(ROWS.replace("@rows", f'@rows for "{description(tmp_path, "direct")}"'))
    for name, values in arrays.items():
        np.save(tmp_path / f"{name}.npy", values)
    given = [part for name in arrays for part in ("--input", f"{name}={tmp_path / name}.npy")]
    command = [sys.executable, "-c", "from upl_mlir.tools.upl import main; raise SystemExit(main())", "run", str(path)]
    out = tmp_path / "out.npz"
    ran = _run([*command, "--engine", "rtl", *given, "--output", str(out)])
    assert ran.returncode == 0, ran.stderr
    np.testing.assert_array_equal(np.load(out)["Y"], rows)
    other = _run([*command, *given])
    assert other.returncode == 1
    assert f"{path}:2:1: error[UPL1101]: `rows` is a program of the machine (`ttm`)" in other.stderr


def test_what_is_in_the_text_is_what_direct_ranks() -> None:
    """The instances of nodes and the fields along which the program streams, with no UPL program at hand."""
    engine = RtlEngine(upl.load(ROWS).module, {})
    assert not engine.image.domains
    inside = engine.on(DIRECT).image.domains["Mul"].inside
    assert inside is not None
    assert inside.sum(axis=1).tolist() == [1, 3, 2, 5]
    assert engine.image.streams == ({"Mul": 0, "Sum": 0},)


def test_the_program_of_the_page_runs() -> None:
    page = (EXAMPLES.parent / "docs" / "machine_program.md").read_text(encoding="utf-8")
    program = upl.load(page.split("```mlir\n")[1].split("```")[0])
    np.testing.assert_array_equal(upl.compile(program, "rtl")(X=np.array([1.0, 2.5, -3.0]))["Y"], [2, 5, -6])


def test_a_run_by_hand_is_recorded() -> None:
    arrays, rows, _ = data()
    _, result = record_machine(upl.load(ROWS), arrays, None)
    assert not isinstance(result, upl.UplError)
    np.testing.assert_array_equal(result.outputs["Y"], rows)


@pytest.mark.parametrize("organisation", ORGANISATIONS)
def test_a_lowered_program_runs_as_its_source(organisation: str, tmp_path: Path) -> None:
    """The same outputs and cycles from the text that `lower-hw` printed."""
    source = upl.load(EXAMPLES / "perceptron.upl", D=2).infer_domains()
    path = description(tmp_path, organisation)
    text = str(lowered(source.module, {}, load_machine(path), None))
    rng = np.random.default_rng(1)
    arrays = {n: rng.standard_normal(v.shape()) for n, v in source.inputs.items()}
    f, g = (upl.compile(p, "rtl", machine=path) for p in (source, upl.load(text)))
    np.testing.assert_array_equal(f(**arrays)["R"], g(**arrays)["R"])
    assert f.stats["cycles"] == g.stats["cycles"]


@pytest.mark.parametrize(
    ("name", "gradient"),
    [
        ("jacobi2d", ""), ("conv2d", "Y"), ("perceptron", "R"), ("iris_batch", ""), ("newton", ""), ("lstm", "Y"),
        ("matmul", "C"), ("wave", ""), ("floyd_warshall", ""), ("softmax", "P"), ("triangular_solve", "X"), ("upsample", ""),
    ],
)  # fmt: skip
def test_what_is_lowered_is_right_and_reads_back(name: str, gradient: str) -> None:
    """The verifier has nothing to say, and the text is that of the program that is read from it."""
    p = upl.load(EXAMPLES / f"{name}.upl").expanded()
    if gradient:
        p = upl.vjp(p, of=gradient, wrt=[n for n, v in p.inputs.items() if v.dtype.kind == "f"])
    text = str(lowered(p.infer_domains().module, dict.fromkeys(p.params, 3), Machine(), None))
    again = upl.load(text)
    assert str(again.module.body.block.first_op) == text
    assert list(again.inputs) == list(p.inputs)
    assert list(again.outputs) == list(p.outputs)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"V": np.ones(5, int)}, "error[UPL1501]: nothing is given for the input `A`: expected an array of shape (4, 5)"),
        ({"A": np.ones((4, 5)), "V": np.ones(4, int)}, "error[UPL1503]: `V`: expected shape (5,)"),
        ({"A": np.ones((4, 5)), "V": np.ones(5, int), "W": 1}, "error[UPL1502]: `W` is not an input of the program"),
        ({"A": np.ones((4, 5)), "V": np.full(5, 0.5)}, "error[UPL1504]"),
    ],
)
def test_wrong_arrays_for_a_program_by_hand(arrays: dict[str, object], message: str) -> None:
    with pytest.raises(upl.UplError) as e:
        upl.compile(upl.load(ROWS), "rtl")(**arrays)
    assert message in str(e.value)
    assert e.value.diagnostics[0].span


def test_a_parameter_of_a_program_by_hand() -> None:
    with pytest.raises(upl.UplError, match=r"UPL1505.*no parameter `D`"):
        upl.compile(upl.load(ROWS), "rtl", D=3)(**data()[0])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('<"V: i32"> in <"1<=j<=5">', '<"V: i32"> in <"1<=j">', r"UPL1507.*the domain of `V` has no bounding box"),
        ('in <"1<=i<=4"> {', 'in <"1<=i<=5"> {', r"UPL1712.*`Sum` has i from 1 to 5, its field holds 1..4"),
        ("arith.cmpf ogt", "arith.cmpf ult", r"UPL1735.*no such comparison of reals"),
        ("arith.mulf %s, %factor", "math.exp2 %s", r"UPL1735.*no operation for `math\.exp2`"),
    ],
)  # fmt: skip
def test_programs_that_do_not_run(old: str, new: str, message: str, tmp_path: Path) -> None:
    """What the text alone does not tell is an error with a place, too, before anything runs."""
    assert old in ROWS
    f = upl.compile(upl.load(ROWS.replace(old, new, 1)), "rtl", machine=description(tmp_path, "direct"))
    with pytest.raises(upl.UplError, match=message) as e:
        f(**data()[0])
    assert e.value.diagnostics[0].span
