"""Footnotes: what is too long for its place is a number there, and stands in full under the picture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.api.drawing import Drawing
from upl_mlir.api.programs import reverse
from upl_mlir.picture.factored import factored
from upl_mlir.picture.model import BoxKind
from upl_mlir.picture.notes import Notes
from upl_mlir.picture.text import LONGEST, pieces
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.parse import parse_index

Read = Any

LONG = "t<T && (i==0 || i==m-1 || j==0 || j==n-1 || i==j || i==j+1)"
VALUE = "x*x*x*x*x*x + 3*x*x*x*x*x - sin(x)*cos(x) + sin(2*x)"
PROGRAM = f"""\
program long
param T >= 1; param m >= 3; param n >= 3
input X<t,i,j> in 0<=t<=T, 0<=i<m, 0<=j<n {{ -> A.x }}
node A<t,i,j> {{ in x; if {LONG}: {VALUE} -> Y<t,i,j>; if {LONG}: x -> Z<t,i,j>; if t==T: x -> B<i,j> }}
output Y<t,i,j>
output Z<t,i,j>
output B<i,j>
"""


@pytest.fixture(scope="module")
def drawing() -> Drawing:
    return upl.draw(upl.load(PROGRAM))


@pytest.fixture(scope="module")
def picture(drawing: Drawing, read: Read) -> Any:
    return read(drawing.svg())


def squeezed(text: str) -> str:
    return "".join(text.split())


def test_a_long_condition_is_a_number_on_the_arrow_and_stands_in_full_under_the_picture(picture: Any) -> None:
    (arrow,) = picture.between("A", "Z")
    assert arrow.words("u-condition") == ["if"]
    (number,) = arrow.words("u-on-mark")
    assert picture.notes[number] == squeezed(LONG)
    assert LONG in arrow.title, "the tooltip has it as well"
    (short,) = picture.between("A", "B")
    assert short.words("u-condition") == ["if t==T"] and short.words("u-on-mark") == []


def test_a_long_value_is_a_footnote_and_equal_texts_are_one(picture: Any) -> None:
    (arrow,) = picture.between("A", "Y")
    value, condition = arrow.words("u-on-mark")
    assert picture.notes[value] == squeezed(VALUE)
    assert picture.between("A", "Z")[0].words("u-on-mark") == [condition]


def test_footnotes_are_numbered_from_one_and_all_are_used(picture: Any) -> None:
    used = {n for g in (*picture.boxes, *picture.arrows) for n in g.words("u-on-mark")}
    assert set(picture.notes) == used == {str(k + 1) for k in range(len(used))}


def test_footnotes_stand_under_all_else_and_on_the_page(drawing: Drawing, picture: Any) -> None:
    lowest = max(o.area.bottom for g in (*picture.boxes, *picture.arrows) for o in g.outlines)
    legend = drawing.svg().partition('<g class="u-notes">')[2]
    heights = [float(y) for y in re.findall(r'<text [^>]*?y="([\d.]+)"', legend)]
    assert heights and lowest < min(heights) and max(heights) < float(picture.root.attrib["height"])


def test_of_a_value_with_its_multiplicity_the_longer_one_is_a_footnote() -> None:
    notes = Notes(12)
    assert notes.value("x*y", "#n") == "x*y #n"
    assert [p for p, _ in pieces(notes.value("x*y", "#m*n+m+n+1"))] == ["x*y #", "1"]
    assert [p for p, _ in pieces(notes.value("x*y + x + y", "#n"))] == ["2", " #n"]
    assert [p for p, _ in pieces(notes.value("", "#m*n+m*k+n*k+1"))] == ["#", "3"]
    assert list(notes.numbers) == ["m*n+m+n+1", "x*y + x + y", "m*n+m*k+n*k+1"]


def test_a_long_domain_and_a_long_number_of_summands_are_footnotes(read: Read, examples: Path) -> None:
    text = "input X<i> in " + " && ".join(f"i!={k}*n" for k in range(20)) + " && 0<=i<30*n { -> Y<i> }"
    found = read(upl.draw(upl.load(f"program d\nparam n >= 1\n{text}\noutput Y<i>\n")).svg())
    assert found.box("X").words("u-domain") == ["//"]
    (number,) = found.box("X").words("u-on-mark")
    told = next(line for line in found.box("X").title.splitlines() if "domain" in line)
    assert found.notes[number] == squeezed(told.partition("domain: ")[2]) and "19*n" in found.notes[number]
    program = reverse(upl.load(examples / "jacobi2d.upl"), of="B", wrt=["A"])
    found = read(upl.draw(program).svg())
    port = found.box("DU")
    assert port.words("u-on-port")[-2:] == ["@(+) d_u[", "]"]
    (number,) = port.words("u-on-mark")
    assert f"@(+)d_u[{found.notes[number]}]" in squeezed(port.title)


@pytest.mark.parametrize("name", ["perceptron", "mlp", "jacobi2d", "conv2d", "lstm"])
def test_adjoints_keep_all_their_texts(name: str, examples: Path, read: Read, tidy: Any) -> None:
    """Each condition, value, multiplicity and range of an arrow is on the arrow, or under the picture with its number."""
    program = upl.load(examples / f"{name}.upl")
    of = "B" if name == "jacobi2d" else list(program.outputs)[-1]
    drawing = upl.draw(upl.vjp(program, of=of, wrt=[next(iter(program.inputs))]))
    found = read(drawing.svg())
    tidy(found)
    groups = {a.facts["id"]: a for a in found.arrows}
    for arrow in drawing.picture.arrows:
        group = groups[arrow.id]
        shown = squeezed("".join(t.words for t in group.texts) + "".join(found.notes[n] for n in group.words("u-on-mark")))
        for text in (arrow.condition, arrow.value, arrow.count.removeprefix("#"), arrow.loops, arrow.index or ""):
            assert squeezed(text) in shown, (arrow.text, text)
        assert all(len(t.words) <= LONGEST for t in group.texts)


@pytest.mark.parametrize("name", ["sparse/viterbi", "sparse/knapsack", "jacobi2d", "lstm", "spmv"])
def test_boxes_keep_all_their_texts(name: str, examples: Path, read: Read) -> None:
    """Each input with its type and its number of summands, each assignment and the fields."""
    drawing = upl.draw(upl.load(examples / f"{name}.upl"))
    found = read(drawing.svg())
    for box in drawing.picture.boxes:
        group = found.box(box.name)
        shown = squeezed("".join(t.words for t in group.texts) + "".join(found.notes[n] for n in group.words("u-on-mark")))
        lone = box.kind is BoxKind.LONE  # of which a plain input has the node's name alone
        inputs = [p.text for p in box.ports if not (lone and p.text.isidentifier())]
        for text in (*inputs, *box.lines, box.fields or ""):
            assert squeezed(text) in shown, (box.name, text)


# ------------------------------------------------------------------------------------------------- polynomials as products


@pytest.mark.parametrize(
    ("sum_", "product"),
    [
        ("m*n-2*m-2*n+4", "(m-2)*(n-2)"),
        ("2*m*n-4*m-4*n+8", "2*(m-2)*(n-2)"),
        ("k*m*n-2*k*m-2*k*n+4*k", "k*(m-2)*(n-2)"),
        ("2*m+2*n-m*n-4", "(m-2)*(-n+2)"),
        ("a*c+a*d+b*c+b*d", "(a+b)*(c+d)"),
        ("H*W+max(-a,a)*max(-b,b)-H*max(-b,b)-W*max(-a,a)", "(H-max(-a,a))*(W-max(-b,b))"),
        ("N[k]*N[k-1]+N[k]", "N[k]*(N[k-1]+1)"),
        ("m*n+1", "m*n+1"),
        ("n*n-1", "n*n-1"),
        ("m*n-m", "m*n-m"),
        ("0", "0"),
    ],
)
def test_a_polynomial_is_shown_as_a_product_where_that_is_not_longer(sum_: str, product: str) -> None:
    assert factored(parse_index(sum_)) == product


def test_a_product_always_means_the_polynomial() -> None:
    rng = np.random.default_rng(7)
    names, products = ["a", "b", "c", "d"], 0
    for _ in range(400):
        e = IndexExpr.of(int(rng.integers(1, 4)))
        for _ in range(int(rng.integers(1, 4))):
            factor = IndexExpr.of(int(rng.integers(-3, 4)))
            for name in rng.choice(names, size=2):
                factor = factor + IndexExpr.of(str(name)) * int(rng.integers(-2, 3))
            e = e * factor
        text = factored(e)
        assert parse_index(text) == e, text
        products += text.startswith("(") or ")*(" in text
    assert products > 30


def test_the_program_keeps_its_text(read: Read, examples: Path) -> None:
    """Only the label is a product; the tooltip shows the arrow as the program has it."""
    found = read(upl.draw(upl.load(examples / "jacobi2d.upl")).svg())
    (arrow,) = found.between("Diff", "Worst")
    assert arrow.words("u-text") == ["abs(new - old) #(m-2)*(n-2)"]
    assert "#m*n-2*m-2*n+4" in arrow.title
