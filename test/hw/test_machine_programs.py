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
ROWS = """// The rows of a triangular matrix times a vector, and the number of positive products in each.
ttm.program @rows streams <"i"> {
  ttm.table @N from 1 : i64 = array<i64: 1, 3, 2, 5> : i32
  ttm.table @scale from 0 : i64 = array<f64: 0.5, 2.0> : f32
  ttm.node @A host <"i from 1 bits 2, j from 1 bits 3"> <"A: f32"> in <"1<=i<=4 && 1<=j<=N[i]"> {
  ^bb0(%i: i32, %j: i32, %A: f32):
    ttm.send %A -> @Mul::@a tag %i, %j as "xx" : f32
  }
  ttm.node @V host <"j from 1 bits 3"> <"V: i32"> in <"1<=j<=5"> {
  ^bb0(%j: i32, %V: i32):
    ttm.send %V -> @Mul::@v tag %j as "*x" unbounded : i32
  }
  ttm.output @Y <"i from 1 bits 2"> f32
  ttm.output @Count <"i from 1 bits 2"> i32 in <"1<=i<=4">
  ttm.node @Mul <"i from 1 bits 2, j from 1 bits 3"> <"a: f32, v: i32"> in <"1<=i<=4 && 1<=j<=N[i]"> {
  ^bb0(%i: i32, %j: i32, %a: f32, %v: i32):
    %w = arith.sitofp %v : i32 to f32
    %product = arith.mulf %a, %w : f32
    %n = ttm.load @N[%i] : i32
    ttm.send %product -> @Sum::@s tag %i as "x" times %n : f32
    %zero = arith.constant 0.0 : f32
    %positive = arith.cmpf ogt, %product, %zero : f32
    %one = arith.extui %positive : i1 to i32
    ttm.send %one -> @Sum::@n tag %i as "x" times %n : i32
  }
  ttm.node @Sum <"i from 1 bits 2"> <"@(+) s: f32, @(+) n: i32"> in <"1<=i<=4"> {
  ^bb0(%i: i32, %s: f32, %n: i32):
    %two = arith.constant 2 : i32
    %odd = ttm.mod %i, %two
    %factor = ttm.load @scale[%odd] : f32
    %scaled = arith.mulf %s, %factor : f32
    ttm.send %scaled -> @Y tag %i as "x" : f32
    ttm.send %n -> @Count tag %i as "x" : i32
  }
}
"""
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
    page = (EXAMPLES.parent / "docs" / "machine.md").read_text(encoding="utf-8")
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


MUL = '<"i from 1 bits 2, j from 1 bits 3"> <"a: f32, v: i32">'
SUM = '<"@(+) s: f32, @(+) n: i32">'
SEND = 'ttm.send %product -> @Sum::@s tag %i as "x" times %n : f32'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # fields and inputs
        (MUL, '<"i from 1, j from 1 bits 3"> <"a: f32, v: i32">', "expected `NAME from BIAS bits WIDTH`, found `i from 1`"),
        (MUL, '<"i from 1 bits 99, j from 1 bits 3"> <"a: f32, v: i32">', "the field `i` has 99 bits"),
        (MUL, '<"i from 1 bits 2, i from 1 bits 3"> <"a: f32, v: i32">', "there are two fields `i`"),
        (MUL, '<"i from 1 bits 2, j from 1 bits 3"> <"a: f32, a: i32">', "there are two inputs `a`"),
        (MUL, '<"i from 1 bits 2, j from 1 bits 3"> <"a, v: i32">', r"expected `NAME: TYPE` or `@\(OPERATOR\) NAME: TYPE`"),
        (MUL, '<"i from 1 bits 2, j from 1 bits 3"> <"a: f64, v: i32">', "unknown type `f64`"),
        (MUL, '<"i from 1 bits 2, j from 1 bits 3"> <"">', "`Mul` has no input"),
        (SUM, '<"@(+) s: f32">', r"each field and input: expected \(i32, f32\), found \(i32, f32, i32\)"),
        (SUM, '<"@(avg) s: f32, @(+) n: i32">', r"unknown gather operator `avg`: expected one of \+, \*, min"),
        (SUM, '<"@(&&) s: f32, @(+) n: i32">', "`Sum.s` cannot gather f32 by `&&`"),
        ('<"A: f32">', '<"@(+) A: f32">', "the host input `A` has one input"),
        # domains, streams, tables
        ('<"V: i32"> in <"1<=j<=5">', '<"V: i32"> in <"1<=k<=5">', "`k` in `1<=k<=5` is no field here"),
        ('<"V: i32"> in <"1<=j<=5">', '<"V: i32"> in <"1<=j<=M[1]">', "there is no table `M`"),
        ('<"V: i32"> in <"1<=j<=5">', '<"V: i32"> in <"1<=j<=scale[1]">', "`scale`, whose entries are no integers"),
        ('streams <"i">', 'streams <"t">', "streams along `t`, which no node has"),
        ("array<f64: 0.5, 2.0> : f32", "array<i64: 1, 2> : f32", "the table `scale` of f32 is written as an array of f64"),
        ("array<i64: 1, 3, 2, 5>", "array<i64: 1, 3, 2, 5000000000>", "does not fit the machine's 32-bit integers"),
        # arrows
        (SEND, SEND.replace("@Sum::@s", "@Total::@s"), "there is no node `Total`"),
        (SEND, SEND.replace("@Sum::@s", "@Sum::@t"), "`Sum` has no input `t`: it has `s`, `n`"),
        (SEND, SEND.replace("@Sum::@s", "@Sum"), "`Sum` has no input ``"),
        (SEND, SEND.replace("@Sum::@s", "@A::@A"), "`A` is a host input"),
        (SEND, SEND.replace("@Sum::@s", "@Y::@s"), "`Y` is an output and has no inputs"),
        (SEND, SEND.replace('"x"', '"y"'), "the pattern `y` is of `x` and"),
        (SEND, SEND.replace('tag %i as "x"', 'tag %i, %j as "xx"'), "`Sum` has 1 fields, the pattern `xx` has 2"),
        (SEND, SEND.replace("tag %i", "tag %i, %j"), "the pattern `x` takes 1 from the tag, found 2 values"),
        (SEND, SEND.replace('tag %i as "x"', 'as "*"'), r"`Sum` takes no `\*`: its input gathers"),
        (SEND, SEND.replace("@Sum::@s", "@Sum::@n"), "`Sum` takes a value of type i32, found f32"),
        (SEND, SEND.replace("times %n", "times %n unbounded"), "a token that is unbounded has no multiplicity"),
        (SEND, SEND.replace("%n :", "%later :") + "\n%later = arith.constant 1 : i32", "used before it is computed"),
        ("ttm.send %A -> @Mul::@a tag %i, %j", "ttm.send %A -> @Y tag %i, %j", "sends to nodes only, `Y` is an output"),
        # code
        ("ttm.load @N[%i] : i32", "ttm.load @M[%i] : i32", "there is no table `M`"),
        ("ttm.load @scale[%odd] : f32\n", "ttm.load @N[%odd] : f32\n", "entries of `N` are of type i32, found f32"),
        ("ttm.send %n ->", "%x = arith.constant 2 : i64\nttm.send %n ->", "no values of type i64"),
        (SEND, "%bad = arith.andi %i, %j : i32\n" + SEND, "`arith.andi` is of i1 on the machine, found i32"),
        (SEND, "builtin.module {\n}\n" + SEND, "`builtin.module` cannot stand in a node"),
        (SEND, f'"ttm.for"(%i, %j) ({{\n^bb1():\n{SEND}\n}}) : (i32, i32) -> ()', "a loop has one iterator"),
        (
            "ttm.send %one -> @Sum::@n", "ttm.when %positive {\nttm.when %positive {\nttm.send %one -> @Sum::@n",
            "the machine has one guard outside of all loops",
        ),
        # the program
        ("ttm.output @Count", "ttm.boot @Mul::@a at array<i64: 1, 1>\nttm.output @Count", "`Mul.a` is no gather"),
        ("ttm.output @Count", "ttm.boot @Sum::@s at array<i64: 1, 1>\nttm.output @Count", "`Sum` has 1 fields, found 2"),
        ("ttm.output @Count", "ttm.boot @Sum::@s at array<i64: 9>\nttm.output @Count", "i = 9 does not fit in its 2 bits"),
        ("ttm.output @Count", "%c = arith.constant 1 : i32\nttm.output @Count", "`arith.constant` cannot stand"),
        ("@Y <\"i from 1 bits 2\"> f32", "@Y <\"i from 1 bits 2\"> f64", "the output `Y` is of type f64"),
    ],
)  # fmt: skip
def test_malformed_programs(old: str, new: str, message: str) -> None:
    """An error with a place for each, never an exception of another kind."""
    assert old in ROWS
    text = ROWS.replace(old, new, 1)
    if "ttm.when" in new:
        text = text.replace('as "x" times %n : i32', 'as "x" times %n : i32\n}\n}', 1)
    with pytest.raises(upl.UplError, match=message) as e:
        upl.load(text)
    span = e.value.diagnostics[0].span
    assert span is not None
    first = text[: text.index(new)].count("\n") + 1
    assert first <= span.line <= first + new.count("\n")


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
