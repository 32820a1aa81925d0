"""The value that an arrow leaves out: where no variable of the target's name and no only input decides, it is the last
expression of the body above the arrow, named or not."""

from __future__ import annotations

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.frontend.upl_text.printing.format import format_text

HEAD = """program p
input A<i> in 0<=i<3 { -> M.a }
input B<i> in 0<=i<3 { -> M.b }
output O<i>
output Q<i>
node M<i> { in a, b; BODY }
"""
A, B = np.array([1.0, 2.0, 3.0]), np.array([5.0, 7.0, 11.0])


def program(body: str) -> upl.Program:
    return upl.load(HEAD.replace("BODY", body))


@pytest.mark.parametrize(
    ("body", "o", "q"),
    [
        ("a*b; -> O; -> Q", A * B, A * B),
        ("c = a*b; -> O; -> Q", A * B, A * B),
        ("a*b; -> O; a + b; -> Q", A * B, A + B),
        ("c = a*b; -> O; a - b; -> Q", A * B, A - B),
        ("a*b; -> O; c = a - b; -> Q", A * B, A - B),
        ("a*b; -> O; O = a; Q = b; -> Q", A * B, B),  # a variable of the target's name comes first
        ("c = a*b; d = c + 1; if i>0: -> O; if i==0: c -> O; d -> Q", np.array([5.0, 15.0, 34.0]), A * B + 1),
        ("a > b; -> O; int(b) mod 2; -> Q", np.zeros(3), np.array([1.0, 1.0, 1.0])),  # converted to the target's type
    ],
)
@pytest.mark.parametrize("engine", ["interp", "reference", "native"])
def test_the_last_expression_is_sent(body: str, o: np.ndarray, q: np.ndarray, engine: str) -> None:
    out = upl.compile(program(body), engine=engine)(A=A, B=B)  # type: ignore[arg-type]
    assert out["O"].tolist() == o.tolist()
    assert out["Q"].tolist() == q.tolist()


def test_the_blocks_of_a_glued_node_are_one_body() -> None:
    p = upl.load(HEAD.replace("BODY", "a*b; -> O") + "node M { -> Q }\n")
    assert upl.compile(p)(A=A, B=B)["Q"].tolist() == (A * B).tolist()


def test_it_is_differentiated() -> None:
    p = upl.vjp(program("a*b; -> O; -> Q"), of="O", wrt=["A"])
    out = upl.compile(p)(A=A, B=B, d_O=np.array([1.0, 2.0, 3.0]))
    assert out["d_A"].tolist() == (B * [1.0, 2.0, 3.0]).tolist()


@pytest.mark.parametrize("body", ["a*b; -> O; -> Q", "a*b; if i>0 && a>0: -> O; if !(i>0 && a>0): b -> O; c = a + b; -> Q"])
def test_text_and_dialect_keep_it(body: str) -> None:
    """The text that is printed names the value; it is the same program, as is the dialect's text."""
    p = program(body)
    again = upl.load(str(p))
    assert str(again) == str(p)
    by_dialect = upl.load(str(p.module))
    assert str(by_dialect) == str(p)
    f, g = upl.compile(p), upl.compile(again)
    assert f(A=A, B=B)["O"].tolist() == g(A=A, B=B)["O"].tolist()


def test_one_value_for_several_arrows_is_computed_once() -> None:
    assert str(program("a*b; -> O; -> Q").module).count("arith.mulf") == 1


@pytest.mark.parametrize(
    "text",
    [
        "node M<i> { in a, b; a*b; -> O }\n",
        "node M<i> {\n  in a, b\n  a*b;  // the product\n  -> O\n  a + b;\n  if i>0: -> Q\n}\n",
    ],
)
def test_the_formatter_keeps_the_end_of_an_expression(text: str) -> None:
    """Without its `;` the next line's `->` would go on with it."""
    assert format_text(text) == text


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("a*b; a -> O; b -> Q", "UPL1012", "no arrow takes the value of this statement"),
        ("a*b; a + b; -> O; -> Q", "UPL1012", "no arrow takes the value"),
        ("-> O; a*b; -> Q", "UPL1107", "no variable `O` is assigned above"),
        ("a*b", "UPL1012", "this statement has no arrow"),
        ("a*b;", "UPL1012", "no arrow takes the value"),
        ("a*c; -> O; -> Q", "UPL1103", "unknown name `c`"),
    ],
)
def test_errors(body: str, code: str, message: str) -> None:
    with pytest.raises(upl.UplError) as e:
        program(body)
    found = e.value.diagnostics[0]
    assert found.code == code
    assert message in found.message


def test_an_only_input_decides_before_an_expression() -> None:
    """The value would be lost in silence; the message says why nobody takes it."""
    with pytest.raises(upl.UplError, match=r"UPL1012.*: where an arrow leaves it out, the only input `x` is meant"):
        upl.load("program p\ninput X { -> M.x }\noutput O\nnode M { in x; x*x; -> O }\n")


def test_the_type_of_the_target_is_checked() -> None:
    with pytest.raises(upl.UplError, match=r"UPL1106"):
        upl.load(HEAD.replace("BODY", "a*b; -> O; -> Q").replace("output O<i>", "output O<i>: int"))
