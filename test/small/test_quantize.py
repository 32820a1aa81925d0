"""`quantize`: intervals hold all results, the proof of a range is one, and errors are those of runs."""

import json

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.numbers.watching import ON_INTERVALS, Interval, Maybe, Undecided
from upl_mlir.tools.upl import main

BODY = """
program body
param n >= 1
input A<i> in 0<=i<n { -> F.a }
output P<i>
node F<i> {
  in a
  c: bool = a > 0.25
  p = c ? exp(a) - a*a : sigmoid(a)/(3 + abs(a)) + max(a, 0.1)*sin(a) - a**2
  p + c*a -> P
}
"""


@pytest.mark.parametrize("seed", range(5))
def test_intervals_hold_what_numbers_in_them_give(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.normal(size=(2, 2)) * 3)
    x, y = Interval(*ends[0]), Interval(*ends[1])
    for _ in range(50):
        a, b = rng.uniform(*ends[0]), rng.uniform(*ends[1])
        for found, value in (
            (x + y, a + b), (x - y, a - b), (x * y, a * b), (-x, -a), (abs(x), abs(a)), (1.0 - x, 1.0 - a),
            *((ON_INTERVALS[n](x), f(a)) for n, f in (("exp", np.exp), ("tanh", np.tanh), ("floor", np.floor))),
            (ON_INTERVALS["minimum"](x, y), min(a, b)), (ON_INTERVALS["maximum"](x, y), max(a, b)),
        ):  # fmt: skip
            assert found.low <= value <= found.high


def test_what_is_open_is_not_decided() -> None:
    assert (Interval(0, 1) < Interval(2, 3)) is True and (Interval(2, 3) < Interval(0, 1)) is False
    open_ = Interval(0, 2) < Interval(1, 3)
    assert isinstance(open_, Maybe)
    with pytest.raises(Undecided):
        bool(open_)
    as_number = ON_INTERVALS["float"](open_)
    assert (as_number.low, as_number.high) == (0, 1)
    for same in (Interval(0, 2) == Interval(0, 2), Interval(0, 2) == 1.0, Interval(0, 2) != 1.0, open_ != True):  # noqa: E712
        assert isinstance(same, Maybe)
    assert (Interval(1, 1) == 1.0) is True and (Interval(1, 1) != 1.0) is False and (Interval(0, 2) != 3.0) is True


NARROW = {  # bodies, with data, the range of inputs, and other data in it whose results are larger
    "equal": ("(a == 0)*100", [0.5, -0.5], (-0.5, 0.5), [0.0]),
    "one or the other": ("(((a > 0) != (a > 5)) != true)*100", [0.5, 0.25], (-0.5, 0.5), [-0.5]),
    "compared alone": ("a > b ? 1.0 : 0.0", [1000.0, 3.0], (0, 1000), [1000.0, 900.0]),
    "floor": ("floor(a*3)*1.0", [0.5, -0.5], (-2, 2), [2.0]),
    "a constant that is rounded": ("a*1.5", [70.0], (0, 70), [70.0]),
    "a coarse step": ("a*a*33", [1.5], (0, 1.5), [1.5]),
}


@pytest.mark.parametrize(("body", "data", "range_", "other"), NARROW.values(), ids=NARROW)
def test_what_is_proved_not_to_saturate_does_not(
    body: str, data: list[float], range_: tuple[float, float], other: list[float]
) -> None:
    """Each type with the bits that are proved gives what a type with many more bits before the point does."""
    p = upl.load(f"""program p
    param n >= 1
    input A<i> in 0<=i<n {{ -> F.a; -> F.b<n-1-i> }}
    output O<i>
    node F<i> {{ in a, b; {body} -> O }}
    """)
    found = upl.quantize(p, {"A": data}, ranges={"A": range_}, error=1e9)
    for t in found.tried if found.by_proof else ():
        if t.real.startswith("q"):
            fraction = t.bits - found.integer
            wide = f"q{32 - fraction}.{fraction}"
            assert (upl.compile(p, real=t.real)(A=other)["O"] == upl.compile(p, real=wide)(A=other)["O"]).all(), t.real


@pytest.mark.parametrize("seed", range(3))
def test_a_proved_range_holds_on_other_data(seed: int) -> None:
    """Inputs anywhere in the range: results stay in the range of the proof, and no narrow type saturates."""
    p = upl.load(BODY)
    rng = np.random.default_rng(seed)
    found = upl.quantize(p, {"A": rng.uniform(-1, 1, 30)}, ranges={"A": (-2.0, 2.0)})
    assert not isinstance(found.proved, str)
    for _ in range(5):
        out = upl.compile(p)(A=rng.uniform(-2, 2, 30))["P"]
        assert found.proved[0] <= out.min() and out.max() <= found.proved[1]


def test_saturation_is_what_a_bit_less_brings() -> None:
    """With the bits that are proved the error is that of rounding; with one less it is that of saturation."""
    p, rng = upl.load("examples/matmul.upl"), np.random.default_rng(1)
    a, b = rng.uniform(-1, 1, (4, 16)), rng.uniform(-1, 1, (16, 3))
    a[0], b[:, 0] = 1, 1
    found = upl.quantize(p, {"A": a, "B": b})
    assert found.by_proof and found.integer == 6  # 16 summands of at most 1 reach 16, which 5 bits with the sign do not hold
    exact = a @ b
    for bits, small in ((6, True), (5, True), (4, False)):
        off = np.abs(upl.compile(p, real=f"q{bits}.{18 - bits}")(A=a, B=b)["C"] - exact).max()
        assert (off < 0.01) == small


def test_errors_are_those_of_runs() -> None:
    p, a = upl.load("examples/jacobi1d.upl"), 4 * np.sin(np.arange(9.0))
    found = upl.quantize(p, {"A": a}, widths=(12, 18), error=3e-4, T=2)
    exact = upl.compile(p, T=2)(A=a)["B"]
    for t in found.tried:
        off = np.abs(upl.compile(p, real=t.real, T=2)(A=a)["B"] - exact).max()
        assert t.losses[0].absolute == off and t.losses[0].relative == off / np.abs(exact).max()
    assert found.chosen == f"q{found.integer}.{18 - found.integer}"
    assert [t.bits for t in found.tried] == sorted(t.bits for t in found.tried)


def test_constants_count() -> None:
    p = upl.load("program p\ninput A<i> in 0<=i<4 { -> F.a }\noutput O<i>\nnode F<i> { in a; a*100 -> O }")
    found = upl.quantize(p, {"A": np.full(4, 1e-3)})
    assert found.seen[1] == 100 and found.integer == 8


def test_data_that_decide_leave_no_proof() -> None:
    text = """
program p
input A<i> in 0<=i<4 { -> F.a }
output O<i>
node F<i> { in a; if a > 0: a -> O; if a <= 0: -a -> O }
"""
    found = upl.quantize(upl.load(text), {"A": np.array([1.0, -2, 3, -4])})
    assert found.proved == "a comparison of data, or an integer made of them, decides what is computed"
    assert not found.by_proof and found.integer == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widths": (40,)}, "width 40: expected 2 to 32"), ({"ranges": {"X": (0, 1)}}, "`X` is no input of reals"),
        ({"ranges": {"A": (2, 1)}}, "the range 2..1 is none"),
    ],
)  # fmt: skip
def test_what_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(upl.UplError, match=f"UPL1509.*{message}"):
        upl.quantize(upl.load(BODY), {"A": np.ones(3)}, **options)  # pyright: ignore


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["quantize", "examples/matmul.upl", "--input", "A=[[0.1, 2.5]]", "--input", "B=[[1.5], [3]]"]
    assert main(given) == 0
    text = capsys.readouterr().out
    assert "proved: nothing saturates" in text and "--real q5.7: the narrowest one" in text
    assert main([*given, "--json", "--widths", "8", "--error", "0.0001%"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["chosen"] is None and [t["real"] for t in found["tried"]] == ["q5.3", "bf16", "f16"]
    assert main([*given, "--range", "A=1"]) == 2
    assert "expected NAME=LOW..HIGH" in capsys.readouterr().err
