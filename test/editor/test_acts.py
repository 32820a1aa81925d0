"""The edits behind acts on a picture: every act on every example and on texts of an odd layout.

What is asserted: the tree afterwards is the tree before with that one change, comments are all there, and the text can be
formatted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from upl_mlir.diagnostics import Span, UplError
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.parser import parse_text
from upl_mlir.frontend.upl_text.printing.format import format_text
from upl_mlir.tools.editor import acts
from upl_mlir.tools.editor.acts import Change, Draft

ROOT = Path(__file__).resolve().parent.parent.parent
ODD = {
    "one line": "program p\ninput A<i> in 0<=i<n { -> M.a; if i>0: -> M.b } /* c */\nparam n>=1\noutput Y<i>\n"
    "node M<i> { in a, b; c = a*b; -> Y; /* last */ }",
    "bare": "program p\noutput Y\ninput A\nnode M { in a // in\n a*a; -> Y; a; -> Y // two\n }\nnode Q { /* empty */ }\n",
    "glued": "program p\ninput A { -> M }\noutput Y // out\nnode M { in x }\nnode M { x // value\n  -> Y }\n",
    "comments": "// top\nprogram p /* of\nthree */ output Y\ninput A {\n // first\n -> M // to M\n // more\n}\n"
    "node M { in x\n  y = x /* two\n lines */\n  -> Y\n} // end\n",
    "long comments": "program p\ninput A { -> M } /* a\n b */\noutput Y /* c\n d */\n"
    "node M {\n  in x /* e\n f */\n} /* g\n h */\n",
    "indented": "program p\n  input A {\n\t-> M\n\t\t;   -> M\n  }\n  output Y\n  node M { in x; -> Y\n  }\n",
    "no newline": "program p\ninput A { -> M }\noutput Y\nnode M {\n  in x\n  y = x }",
    "letters": "program p\ninput δ { -> M.δ } // π 𝛿\noutput Y\nnode M { in δ; δ*δ; -> Y }\n",
}
FILES = sorted([*ROOT.glob("examples/*.upl"), *ROOT.glob("examples/sparse/*.upl")])
TEXTS = {**{p.stem: p.read_text(encoding="utf-8") for p in FILES}, **ODD}
TEXTS |= {f"{name}, CRLF": TEXTS[name].replace("\n", "\r\n") for name in ("perceptron", "comments", "bare", "indented")}


@pytest.fixture(params=list(TEXTS))
def text(request: pytest.FixtureRequest) -> str:
    return TEXTS[request.param]


def tree(content: str, *, formatted: bool = False) -> ast.Program:
    """The tree of a text, whose lines end in one way; it is formatted, too, where that is wished: it takes its time."""
    assert content.count("\r\n") in (0, content.count("\n")), "line ends are mixed"
    if formatted:
        assert parse_text(format_text(content, "p.upl"), "p.upl") == parse_text(content, "p.upl")
    return parse_text(content, "p.upl")


def comments(program: ast.Program, outside: Sequence[Span] = ()) -> list[str]:
    """The comments of a text, without those inside of some pieces."""
    def inside(c: ast.Comment) -> bool:
        return any((s.line, s.col) <= (c.span.line, c.span.col) < (s.end_line, s.end_col) for s in outside)

    return [c.text.replace("\r\n", "\n") for c in program.comments if not inside(c)]


def statements(item: ast.Item) -> tuple[ast.Node, ...]:
    return item.body if isinstance(item, ast.NodeBlock) else item.arrows if isinstance(item, ast.HostInput) else ()


def with_statements(item: ast.Item, found: tuple[ast.Node, ...]) -> ast.Item:
    if isinstance(item, ast.NodeBlock):
        return replace(item, body=found)
    assert isinstance(item, ast.HostInput)
    return replace(item, arrows=found)


def sources(program: ast.Program) -> Iterator[tuple[int, ast.HostInput | ast.NodeBlock]]:
    """The last block of each node or host input, with its number among the items."""
    last = {i.name.name: n for n, i in enumerate(program.items) if isinstance(i, ast.HostInput | ast.NodeBlock)}
    for n in last.values():
        item = program.items[n]
        assert isinstance(item, ast.HostInput | ast.NodeBlock)
        yield n, item


def targets(program: ast.Program) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    for item in program.items:
        if isinstance(item, ast.HostOutput):
            found.append((item.name.name, None))
        elif isinstance(item, ast.NodeBlock):
            ports = [d.name.name for s in item.body if isinstance(s, ast.Inputs) for d in s.inputs]
            found += [(item.name.name, p) for p in ports]
    return found


def test_nothing_of_the_layout_is_changed_by_changing_nothing(text: str) -> None:
    program = parse_text(text, "p.upl")
    for item in program.items:
        for node in (item, *(s for s in statements(item) if isinstance(s, ast.Arrow))):
            draft = Draft("p.upl", text)
            start, end = draft.range(node.span)
            acts.rewrite(draft, node.span, text[start:end])
            assert draft.content == text
    draft = Draft("p.upl", text)
    acts.type_text(draft, text.replace("\r\n", "\n"))
    assert draft.content == text and not draft.changes


@pytest.mark.parametrize("kind", ["node", "input", "output"])
def test_add(text: str, kind: str) -> None:
    before = tree(text)
    for after in (None, next(i.name.name for i in before.items if isinstance(i, ast.NodeBlock))):
        draft = Draft("p.upl", text)
        acts.add(draft, kind, "Novel", fields="i,j", inputs="a, n: int", domain="0<=i<4, 0<=j<4", after=after)
        found = tree(draft.content, formatted=after is None)
        new = [i for i in found.items if getattr(i, "name", None) and i.name.name == "Novel"]
        assert len(new) == 1 and [f.name for f in new[0].fields] == ["i", "j"]
        assert tuple(i for i in found.items if i is not new[0]) == before.items
        assert comments(found) == comments(before)
        acts.become(draft, text)
        assert draft.content == text


def test_draw_and_delete(text: str) -> None:
    before = tree(text)
    goals = targets(before)
    for n, item in sources(before):
        goal, port = goals[n % len(goals)]
        draft = Draft("p.upl", text)
        at = acts.draw(draft, item.name.name, goal, port)
        found = tree(draft.content)
        *same, new = statements(found.items[n])
        assert isinstance(new, ast.Arrow) and new.target.port.name == goal and draft.range(new.span)[0] == at
        assert port is None or (new.target.member is not None and new.target.member.name == port)
        assert (*found.items[:n], with_statements(found.items[n], tuple(same)), *found.items[n + 1 :]) == before.items
        assert comments(found) == comments(before)
        acts.delete_arrow(draft, at)
        found = tree(draft.content, formatted=n == 0)
        assert found == before and comments(found) == comments(before)


def test_delete_each_arrow(text: str) -> None:
    before = tree(text)
    for n, item in enumerate(before.items):
        for k, arrow in enumerate(statements(item)):
            if not isinstance(arrow, ast.Arrow):
                continue
            draft = Draft("p.upl", text)
            acts.delete_arrow(draft, draft.range(arrow.span)[0])
            rest = (*statements(item)[:k], *statements(item)[k + 1 :])
            found = tree(draft.content)
            assert found.items == (*before.items[:n], with_statements(item, rest), *before.items[n + 1 :])
            assert comments(found) == comments(before, [arrow.span])


def test_delete_each_node_and_port(text: str) -> None:
    before = tree(text)
    for name in {i.name.name for i in before.items if isinstance(i, acts.Endpoint)}:
        draft = Draft("p.upl", text)
        gone = [i.span for i in draft.blocks(name)]
        gone += [a.span for source, a in draft.document.names.sources_of(name) if source != name]
        acts.delete(draft, name)
        expected = [
            with_statements(i, tuple(
                s for s in statements(i) if not (isinstance(s, ast.Arrow) and s.target.port.name == name)
            )) if statements(i) else i
            for i in before.items if not (isinstance(i, acts.Endpoint) and i.name.name == name)
        ]  # fmt: skip
        found = tree(draft.content)
        assert list(found.items) == expected and comments(found) == comments(before, gone)


def test_rename_nodes_and_inputs(text: str) -> None:
    before = tree(text)
    for name in {i.name.name for i in before.items if isinstance(i, ast.NodeBlock)}:
        draft = Draft("p.upl", text)
        acts.rename_to(draft, ("", name), "Renamed")
        acts.rename_to(draft, ("", "Renamed"), name)
        assert draft.content == text


def test_layout_of_what_is_added() -> None:
    """What an author would have written: in line where the block is, on a line where statements are."""

    def drawn(text: str, source: str, target: str, port: str | None = None) -> str:
        draft = Draft("p.upl", f"program p\n{text}")
        acts.draw(draft, source, target, port)
        return draft.content.removeprefix("program p\n")

    out = "output Y<i>\n"
    assert drawn(out + "node M<i> { in a; a*a -> Y }", "M", "Y") == out + "node M<i> { in a; a*a -> Y; -> Y }"
    assert drawn(out + "node M<i> { in a; a*a; }", "M", "Y") == out + "node M<i> { in a; a*a; -> Y }"
    assert drawn(out + "node M<i> {\n   in a // the input\n}\n", "M", "Y") == (
        out + "node M<i> {\n   in a // the input\n   -> Y\n}\n"
    )
    assert drawn(out + "node M<j> { in a, b }", "M", "Y") == out + "node M<j> { in a, b; a -> Y<*> }"
    assert drawn(out + "input A<i> in 0<=i<4", "A", "Y") == out + "input A<i> in 0<=i<4 { -> Y }"
    assert drawn(out + "input A<i> in 0<=i<4 {}", "A", "Y") == out + "input A<i> in 0<=i<4 { -> Y }"
    node = "node M<i> { in a, b }\ninput A<i> in 0<=i<4 { -> M.a }\n"
    assert drawn(node, "A", "M", "b") == node.replace("-> M.a", "-> M.a; -> M.b")


def test_what_cannot_be_done() -> None:
    text = "program p\nparam n >= 1\ninput A { -> M }\noutput Y\nnode M { in x; -> Y }\n"

    def refused(what: str, act: object, *arguments: object, **named: object) -> None:
        draft = Draft("p.upl", text)
        with pytest.raises(UplError, match=what) as caught:
            act(draft, *arguments, **named)  # pyright: ignore
        assert caught.value.diagnostics[0].code == "UPL1811"
        assert draft.content == text

    refused("the name `M` is taken: it is a node", acts.add, "node", "M")
    refused("the name `n` is taken: it is a parameter", acts.add, "output", "n")
    refused("`a b` is no name", acts.add, "node", "a b")
    refused("no arrow leaves `Y`", acts.draw, "Y", "M", "x")
    refused("no arrow leads to `A`", acts.draw, "M", "A", None)
    refused("there is no node or host port `Z`", acts.delete, "Z")
    refused("not in the text any more", acts.delete_arrow, 3)
    refused("there is no name `z` in `M`", acts.rename_to, ("M", "z"), "y")


def test_places_move_with_the_text() -> None:
    here = (10, 20)
    assert Change(0, 0, 5).moved(here) == (15, 25)
    assert Change(12, 14, 5).moved(here) == (10, 23)
    assert Change(10, 10, 5).moved(here) == (10, 25), "put in front of it"
    assert Change(20, 20, 5).moved(here) == here, "put behind it"
    assert Change(10, 20, 3).moved(here) == (10, 13), "another text in its place"
    assert Change(5, 15, 0).moved(here) == (5, 10)
    assert Change(15, 30, 1).moved(here) == (10, 16)
    assert Change(0, 40, 0).moved(here) == (0, 0)
    assert Change(5, 40, 30).moved(here) == (5, 5), "nobody knows where it is in the new text"
