"""The parser of the text form on whole programs: their trees, the positions in them, and arbitrary changes to them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upl_mlir.diagnostics import Span, UplError
from upl_mlir.frontend.upl_text import ast, parse_expression, parse_file, parse_text

INPUTS = Path(__file__).resolve().parents[1] / "Inputs"

PERCEPTRON = (INPUTS / "perceptron.upl").read_text(encoding="utf-8")

TRAINING = (INPUTS / "training.upl").read_text(encoding="utf-8")

NEWTON = (INPUTS / "newton.upl").read_text(encoding="utf-8")

JACOBI = (INPUTS / "stencil.upl").read_text(encoding="utf-8")

RESHAPE = (INPUTS / "reshape.upl").read_text(encoding="utf-8")

CONV = (INPUTS / "convolution.upl").read_text(encoding="utf-8")

PROGRAMS = {
    "perceptron": PERCEPTRON,
    "training": TRAINING,
    "newton": NEWTON,
    "jacobi": JACOBI,
    "reshape": RESHAPE,
    "conv": CONV,
}


# --- whole programs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, tmp_path: Path) -> None:
    program = parse_text(PROGRAMS[name])
    assert program.name is not None
    path = tmp_path / "p.upl"
    path.write_bytes(PROGRAMS[name].encode())
    assert parse_file(path) == (program, PROGRAMS[name])


def test_the_perceptron() -> None:
    program = parse_text(PERCEPTRON)
    assert [type(i).__name__ for i in program.items] == [
        "Param", "Const", "ConstArray", "HostInput", "HostInput", "HostOutput", *["NodeBlock"] * 4,
    ]  # fmt: skip
    blocks = [i for i in program.items if isinstance(i, ast.NodeBlock)]
    assert [[text_at(PERCEPTRON, s.span) for s in b.body] for b in blocks] == [
        ["in r", "if k<K:  #N[k] -> Link.r<d,k,i,*>", "if k==K: -> R<d,i>"],
        ["in r, w", "r*w #N[k-1] -> Sum.s<d,k,j>"],
        ["in @(+) s[#]", "-> AF_ReLU"],
        ["in s", "b: bool = s > 0", "b*s -> Res.r<d,k+1,i>"],
    ]
    assert len(program.comments) == 5


def test_the_training_program() -> None:
    program = parse_text(TRAINING)
    adjoint = program.items[-1]
    assert isinstance(adjoint, ast.Adjoint) and adjoint.seed
    assert text_at(TRAINING, adjoint.seed.span) == "Err.e"
    assert [(t.port.name, t.member and t.member.name) for t in adjoint.targets] == [("Upd", "dw")]
    assert [i.name.name for i in program.items if isinstance(i, ast.NodeBlock)] == [
        "Res", "Link", "Sum", "AF_ReLU", "Link", "Res", "Err", "Upd",
    ]  # fmt: skip


def test_conv_sends_in_a_loop() -> None:
    (x, *_) = [i for i in parse_text(CONV).items if isinstance(i, ast.HostInput)]
    (arrow,) = x.arrows
    assert [text_at(CONV, i.span) for i in arrow.iterators] == ["a in 0..F-1", "b in 0..F-1"]
    assert arrow.iterator_condition == parse_expression("0<=i-a<O && 0<=j-b<O")
    assert arrow.index is not None and arrow.index[0] == parse_expression("i-a")


# --- positions ----------------------------------------------------------------------------------------------------


def item(text: str) -> ast.Item:
    """The only item of a text."""
    (found,) = parse_text(text).items
    return found


def text_at(text: str, span: Span) -> str:
    """The text that a span covers."""
    lines = text.split("\n")
    if span.line == span.end_line:
        return lines[span.line - 1][span.col - 1 : span.end_col - 1]
    first, last = lines[span.line - 1][span.col - 1 :], lines[span.end_line - 1][: span.end_col - 1]
    return "\n".join([first, *lines[span.line : span.end_line - 1], last])


def descendants(node: ast.Node) -> list[ast.Node]:
    """A node and all nodes below it."""
    out: list[ast.Node] = [node]
    todo: list[object] = [getattr(node, f.name) for f in fields(node)]
    while todo:
        value = todo.pop()
        if isinstance(value, ast.Node):
            out += descendants(value)
        elif isinstance(value, tuple):
            todo += value
    return out


@pytest.mark.parametrize("name", PROGRAMS)
def test_spans_of_expressions_read_back_as_the_same_expression(name: str) -> None:
    text = PROGRAMS[name]
    count = 0
    for node in descendants(parse_text(text)):
        if isinstance(node, ast.Number | ast.Name | ast.Lookup | ast.Unary | ast.Binary | ast.Compare | ast.Logical):
            assert parse_expression(text_at(text, node.span)) == node
            count += 1
    assert count > 10


@pytest.mark.parametrize("name", PROGRAMS)
def test_spans_of_items_read_back_as_the_same_item(name: str) -> None:
    for found in parse_text(PROGRAMS[name]).items:
        assert item(text_at(PROGRAMS[name], found.span)) == found


def test_spans_of_each_part() -> None:
    arrow_text = "if a: x #2\n -> B.y<i, *> for j in 0..2 if j>i"
    text = "node A<i> in (0<=i)\n{ in n: int, @(+) s[n]: f32\n  x: real = -(a + b)*c\n " + arrow_text + " }"
    node = item(text)
    assert isinstance(node, ast.NodeBlock)
    inputs, assign, arrow = node.body
    assert isinstance(inputs, ast.Inputs) and isinstance(assign, ast.Assign) and isinstance(arrow, ast.Arrow)
    assert isinstance(assign.value, ast.Binary) and isinstance(assign.value.left, ast.Unary) and node.domain
    assert assign.type and arrow.condition and arrow.index and arrow.iterator_condition and arrow.multiplicity
    parts = {
        node: text,
        node.name: "A",
        node.domain[0]: "(0<=i)",
        inputs: "in n: int, @(+) s[n]: f32",
        inputs.inputs[0]: "n: int",
        inputs.inputs[1]: "@(+) s[n]: f32",
        assign: "x: real = -(a + b)*c",
        assign.type: "real",
        assign.value: "-(a + b)*c",
        assign.value.left: "-(a + b)",
        assign.value.left.operand: "(a + b)",
        arrow: arrow_text,
        arrow.condition: "a",
        arrow.multiplicity: "2",
        arrow.target: "B.y",
        arrow.index[1]: "*",
        arrow.iterators[0]: "j in 0..2",
        arrow.iterator_condition: "j>i",
    }
    for part, expected in parts.items():
        assert text_at(text, part.span) == expected


def test_columns_count_characters_and_tabs_are_one() -> None:
    (node,) = parse_text("\tnode Δ<я>\t{ in é }", "f.upl").items
    assert isinstance(node, ast.NodeBlock)
    assert str(node.name.span) == "f.upl:1:7"
    (inputs,) = node.body
    assert isinstance(inputs, ast.Inputs) and inputs.inputs[0].span.col == 17


# --- layout, arbitrary changes ----------------------------------------------------------------------------------------


@given(st.sampled_from(sorted(PROGRAMS)), st.data())
def test_blanks_and_comments_between_tokens_do_not_matter(name: str, data: st.DataObject) -> None:
    text = PROGRAMS[name]
    places = [i for i, c in enumerate(text) if c in " ,;(){}"]
    at = data.draw(st.sampled_from(places))
    comment_before = text.rfind("//", text.rfind("\n", 0, at) + 1, at) >= 0
    filler = data.draw(st.sampled_from([" ", "\t", " /* x */ ", "  /**/\t"]))
    if not comment_before:
        assert parse_text(text[:at] + filler + text[at:]) == parse_text(text)


PIECES = [
    *"<>(){}[];:,.#@*/+-=!?&|\\\"'\0\t\r\n \ufeff²δ→",
    *"## -> .. ** <= == // /* */ 0. 1e 1e999 .5".split(" "),
    *" program \nnode \ninput \noutput \nparam \nconst \nadjoint  in  if  for  of  wrt  seed  mod  int  true ".split(
        "  "
    ),
    "(" * 300,
    "-" * 300,
    "9" * 30,
    "x" * 500,
    "\ud800",
]


@given(st.sampled_from(sorted(PROGRAMS)), st.data())
def test_arbitrary_changes_of_a_program_raise_only_errors_with_a_position(name: str, data: st.DataObject) -> None:
    text = PROGRAMS[name]
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        until = min(len(text), at + data.draw(st.sampled_from([0, 0, 1, 1, 2, 5, 30])))
        text = text[:at] + data.draw(st.sampled_from(["", *PIECES]) | st.text(max_size=3)) + text[until:]
    check_outcome(text)


@given(st.lists(st.sampled_from([*PIECES, "a", "A<i>", "1", "node B {", "in s", "x = "]), max_size=30))
def test_arbitrary_sequences_of_tokens_raise_only_errors_with_a_position(pieces: list[str]) -> None:
    check_outcome("".join(pieces))
    check_outcome("node A<i> {" + " ".join(pieces))


@given(st.text(max_size=60))
def test_arbitrary_expressions_raise_only_errors(text: str) -> None:
    try:
        parse_expression(text)
    except UplError as e:
        assert str(e).startswith("<string>:")


def check_outcome(text: str) -> None:
    """The text is a program, or an error with a position within the text."""
    try:
        parse_text(text)
    except UplError as e:
        (diagnostic,) = e.diagnostics
        span = diagnostic.span
        assert span is not None
        lines = text.split("\n")
        assert 1 <= span.line <= len(lines) and 1 <= span.col <= len(lines[span.line - 1]) + 1
        assert diagnostic.code.startswith("UPL10") and diagnostic.message
        assert str(e).startswith(f"<string>:{span.line}:{span.col}: error[UPL10")


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_beginning_of_a_program_is_handled(name: str) -> None:
    for end in range(len(PROGRAMS[name])):
        check_outcome(PROGRAMS[name][:end])
