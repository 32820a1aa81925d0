"""`upl run --why`: the chain of causes from what never came back to who did not send it."""

from __future__ import annotations

from pathlib import Path

import pytest

import upl_mlir

FIT = (Path(__file__).resolve().parents[1] / "Inputs" / "fit.upl").read_text(encoding="utf-8")
FIT = "\n" + FIT.replace("input a { a #n", "input a { a #MANY")
ARRAYS = ("--input", "X=[1,2,3]", "--input", "a=2")
NEWTON = ("--input", "M=[1.0,2.0]", "--input", "e=[0.1,0.3]")


@pytest.fixture
def fit(tmp_path):
    path = tmp_path / "fit.upl"
    path.write_text(FIT.replace("MANY", "n-1"))
    return path


def test_the_chain_ends_at_the_token_that_was_used_up(upl, fit):
    done = upl("run", fit, *ARRAYS, "--why", "L")
    lines = [line.strip() for line in done.out.splitlines()]
    assert (done.status, done.err) == (0, "")
    assert [line.split(" (")[0] for line in lines] == [
        "L<> never came",
        "`Sum -> L`",
        "Sum<> never fired",
        "Sum.s<>: 2 of 3 summands came",
        "`Point -> Sum.s`",  # of the three senders the one that did not fire
        "Point<3> never fired",
        "Point.x<3>: 3.0 came",
        "Point.a<3>: 2.0 came",
        "the token Point.a<*> of `a -> Point.a`",
    ]
    assert lines[-1].endswith(":5:11) was for 2, and <1>, <2> took it")


def test_of_a_right_program_everything_came(upl, tmp_path):
    path = tmp_path / "fit.upl"
    path.write_text(FIT.replace("MANY", "n"))
    for place, says in (("L", "L<> = 12.0"), ("Point<3>", "Point<3> fired"), ("Point.x⟨3⟩", "Point.x<3>: 3.0 came"),
                        ("Sum.s", "Sum.s<>: 3 of 3 summands came")):  # fmt: skip
        assert upl("run", path, *ARRAYS, "--why", place).out == f"{says}\n"


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("It<0,2>", "It<0,2> fired"),
        ("E<5>", "E<5> never came: it is outside the domain, 0<=i<n"),
        ("It<0,31>", "It<0,31> never fired: it is outside the domain"),
        ("It<0,9>", "`It -> It.m` (examples/newton.upl:17:3): It<0,4> fired; data decide whether it sends there"),
    ],
)
def test_where_data_decide(upl, examples, place, says):
    done = upl("run", examples / "newton.upl", *NEWTON, "--why", place)
    assert done.status == 0
    assert says in done.out.replace(str(examples.parent) + "/", "")


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("Poimt<1>", "help: did you mean `Point`?"),
        ("X<1>", "`X` is a host input: nothing is sent to it"),
        ("Point.q<1>", "`Point` has no input `q`"),
        ("Point<1,2>", "has not one whole number for each field of Point<i>"),
        ("Point<x>", "has not one whole number for each field of Point<i>"),
        ("?", "is not a place in a program"),
    ],
)
def test_places_that_are_not(upl, fit, place, says):
    done = upl("run", fit, *ARRAYS, "--why", place)
    assert (done.status, done.out) == (1, "")
    assert "error[UPL1810]" in done.err
    assert says in done.err


def test_instances_are_written_as_in_the_language() -> None:
    """`Sum<2,1,3>`, never with other brackets: messages can be given to `--why` and `--break` as they are."""
    may_read = {"frontend/upl_text/lexer.py", "observe/why.py", "observe/breakpoints.py"}  # what users write
    package = Path(upl_mlir.__file__).parent
    texts = {str(path.relative_to(package)): path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    assert {name for name, text in texts.items() if "⟨" in text} <= may_read
