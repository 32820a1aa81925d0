"""`upl run --break`: where it stops, what it shows, how it goes on."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

FIT = (Path(__file__).resolve().parents[1] / "Inputs" / "fit.upl").read_text(encoding="utf-8")
ARRAYS = ("--input", "X=[1,2,3]", "--input", "a=2")


@pytest.fixture
def fit(tmp_path):
    path = tmp_path / "fit.upl"
    path.write_text(FIT)
    return path


class Terminal(io.StringIO):
    """A standard input at which somebody sits."""

    def isatty(self) -> bool:
        """Yes."""
        return True


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("Point<2>", ["Point<2> fires", "x = 2.0", "a = 2.0"]),
        ("Sum", ["Sum<> fires", "s = 2.0, 4.0, 6.0"]),
        ("Point.x<3>", ["Point.x<3> is sent 3.0"]),
        ("L", ["L<> is sent 12.0"]),
        ("Point.a<2>", ["Point.a<*> is sent 2.0"]),
    ],
)
def test_one_stop(upl, fit, place, shown):
    done = upl("run", fit, *ARRAYS, "--break", place)
    assert (done.status, done.out) == (0, "L = 12.0\n")
    assert [line.split("  (")[0].strip() for line in done.err.splitlines()] == shown


@pytest.mark.parametrize("place", ["Point", "Point<*>"])
def test_all_instances(upl, fit, place):
    done = upl("run", fit, *ARRAYS, "--break", place, "--break", "Sum")
    stops = [line for line in done.err.splitlines() if "fires" in line]
    assert stops == [
        "Point<1> fires  (0 firings before)", "Point<2> fires  (1 firings before)", "Point<3> fires  (2 firings before)",
        "Sum<> fires  (3 firings before)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "stops", "out"), [("\n\n\n", 3, "L = 12.0\n"), ("\nr\n", 2, "L = 12.0\n"), ("q\n", 1, ""), ("", 1, "")]
)
def test_a_user_at_a_terminal_is_asked(upl, fit, monkeypatch, typed, stops, out):
    """Go on, go on without stops, end; the end of the input ends it too."""
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    done = upl("run", fit, *ARRAYS, "--break", "Point")
    assert (done.status, done.out) == (0, out)
    assert done.err.count("fires") == stops
    assert done.err.count("q: end the run") == stops


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("Poitn<1>", "did you mean `Point`?"), ("Point.y", "has no input `y`"), ("Point<1,2>", "for each field of Point<i>"),
        ("Point<x>", "for each field of Point<i>"), ("<1>", "is not a place"), ("X", "neither a node nor an output"),
        ("L.s", "has no input `s`"),
    ],
)  # fmt: skip
def test_places_that_there_are_not(upl, fit, place, message):
    done = upl("run", fit, *ARRAYS, "--break", place)
    assert done.status == 1
    assert "error[UPL1810]" in done.err and message in done.err


@pytest.mark.parametrize(("option", "value", "word"), [("--engine", "native", "native"), ("--trace", "t.json", "not both")])
def test_only_for_the_interpreter(upl, fit, option, value, word):
    done = upl("run", fit, *ARRAYS, "--break", "Sum", option, value)
    assert done.status == 2 and word in done.err
