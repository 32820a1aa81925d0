"""The language server, spoken to by a client: what an editor sees of examples/perceptron.upl."""

from __future__ import annotations

import asyncio
import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

import upl_mlir as upl

if TYPE_CHECKING:
    from test.lsp.conftest import Editor

TEXT = (Path(__file__).parents[2] / "examples" / "perceptron.upl").read_text(encoding="utf-8")
NUMBERS = itertools.count()


@pytest.fixture
def uri(editor: Editor) -> str:
    """A document with the perceptron, as it was opened and proved."""
    return opened(editor, TEXT)


def opened(editor: Editor, text: str) -> str:
    uri = f"file:///p/perceptron{next(NUMBERS)}.upl"
    editor.write(uri, text)
    editor.until(uri, lambda _: True)
    return uri


def at(text: str, piece: str, inside: int = 0) -> lsp.Position:
    """The position of a piece of a text, so many characters into it."""
    before = text[: text.index(piece) + inside]
    return lsp.Position(before.count("\n"), len(before) - (before.rfind("\n") + 1))


def shown(text: str, where: lsp.Range) -> str:
    """The text of a range within one line."""
    assert where.start.line == where.end.line
    return text.split("\n")[where.start.line][where.start.character : where.end.character]


def applied(text: str, edits: list[lsp.TextEdit]) -> str:
    """A text after the edits of a server."""
    starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def offset(p: lsp.Position) -> int:
        return min(starts[p.line] + p.character, len(text)) if p.line < len(starts) else len(text)

    for e in sorted(edits, key=lambda e: (e.range.start.line, e.range.start.character), reverse=True):
        text = text[: offset(e.range.start)] + e.new_text + text[offset(e.range.end) :]
    return text


def place(uri: str) -> lsp.TextDocumentIdentifier:
    return lsp.TextDocumentIdentifier(uri)


# -- errors --------------------------------------------------------------------------------------------------------
def test_a_right_program_has_no_errors(editor: Editor, uri: str) -> None:
    assert editor.told[uri][-1] == []


@pytest.mark.parametrize(
    ("old", "new", "code", "marked"),
    [
        ("-> Sum.s<d,k,j>", "-> ", "UPL1002", "}"),  # text
        ("-> Sum.s<d,k,j>", "-> Summ.s<d,k,j>", "UPL1104", "Summ"),  # names
        ("b: bool = s > 0", "b: bool = t > 0", "UPL1103", "t"),
        ("#N[k] -> Link.r", "#N[k]-1 -> Link.r", "UPL1304", "if k<K:  #N[k]-1 -> Link.r<d,k,i,*>"),  # proofs
    ],
)
def test_errors_come_while_typing(editor: Editor, uri: str, old: str, new: str, code: str, marked: str) -> None:
    wrong = TEXT.replace(old, new)
    assert wrong != TEXT
    editor.write(uri, wrong)
    found = editor.until(uri, lambda ds: any(d.code == code for d in ds))
    error = next(d for d in found if d.code == code)
    assert error.severity is lsp.DiagnosticSeverity.Error and error.source == "upl"
    assert shown(wrong, error.range) == marked
    editor.write(uri, TEXT)
    editor.until(uri, lambda ds: ds == [])


def test_all_errors_of_a_text_are_told(editor: Editor, uri: str) -> None:
    """Also where the first one keeps the parser from going on."""
    editor.write(uri, TEXT.replace("in r, w", "in r, , w").replace("@(+) s[#]", "@(+) s").replace("K = 7", "K ="))
    found = editor.until(uri, lambda ds: len(ds) > 0)
    assert [d.code for d in found] == ["UPL1002"] * 3


def test_an_error_shows_the_other_place(editor: Editor) -> None:
    text = "program p\ninput X<i> in 0<=i<3 { -> R; -> R }\noutput R<i>\n"
    uri = opened(editor, "program p\n")
    editor.write(uri, text)
    (found,) = editor.until(uri, lambda ds: any(d.code == "UPL1303" for d in ds))
    assert found.related_information
    assert shown(text, found.related_information[0].location.range) == "-> R"


def test_what_is_unproved_is_no_error(editor: Editor) -> None:
    uri = opened(editor, "program p\n")
    editor.write(uri, "program p\ninput X<i>: int in 0<=i<3 { -> A.x }\noutput R\nnode A<i> { in x: int; if x>1: -> R<> }\n")
    found = editor.until(uri, lambda ds: any("unproved" in d.message for d in ds))
    assert {d.severity for d in found} == {lsp.DiagnosticSeverity.Information}


def test_the_newest_text_counts(editor: Editor, uri: str) -> None:
    """A proof of an older text is given up, and nothing of it is told."""
    for n in range(12):
        editor.write(uri, TEXT.replace("#N[k] ->", f"#N[k]-{n % 3} ->"))
    editor.write(uri, TEXT)
    editor.write(uri, TEXT.replace("r*w #N[k-1]", "r*w #N[k-1]-1"))
    found = editor.until(uri, lambda ds: any(str(d.code).startswith("UPL13") for d in ds))
    assert {d.range.start.line for d in found if str(d.code).startswith("UPL13")} == {at(TEXT, "r*w").line}


def test_each_document_is_proved(editor: Editor) -> None:
    """A text of one document does not end the proof of another."""
    wrong = TEXT.replace("#N[k] ->", "#N[k]-1 ->")
    uris = [f"file:///p/beside{n}.upl" for n in range(4)]
    for uri in uris:
        editor.write(uri, wrong)
    for uri in uris:
        if not any(d.code == "UPL1304" for found in editor.told.get(uri, []) for d in found):
            editor.until(uri, lambda ds: any(d.code == "UPL1304" for d in ds))


# -- names -----------------------------------------------------------------------------------------------------------
def hovered(editor: Editor, uri: str, where: lsp.Position, words: str = "") -> tuple[str, lsp.Range | None]:
    """What the server says of a place, as soon as it has the words: counts come after the proofs."""
    for _ in range(200):
        found = editor.wait(editor.client.text_document_hover_async(lsp.HoverParams(place(uri), where)))
        assert found is not None and isinstance(found.contents, lsp.MarkupContent)
        if words in found.contents.value:
            return found.contents.value, found.range
        editor.wait(asyncio.sleep(0.05))
    raise AssertionError(found.contents.value)


def test_hover(editor: Editor) -> None:
    uri = opened(editor, TEXT)
    said, where = hovered(editor, uri, at(TEXT, "Link.r", 1), "firings: ")
    assert "node Link<d,k,i,j>" in said
    assert "domain: `1<=d<=D, 1<=k<K, 1<=i<=N[k-1], 1<=j<=N[k]`" in said
    assert "firings: `111*D`" in said and "tokens: `137*D`" in said
    assert "`Link.r` gets tokens from\n- `Res`, line 14: `if k<K: #N[k] -> Link.r<d,k,i,*>`" in said
    assert "- `W`, line 9: `-> Link.w<d,k,i,j>`" in said
    assert where is not None and shown(TEXT, where) == "Link"
    for piece, words in (("K = 7", "const K = 7"), ("b*s", "variable of `AF_ReLU`"), ("k<K:  #", "index field of `Res`")):
        assert words in hovered(editor, uri, at(TEXT, piece))[0]


def test_definition_and_references(editor: Editor, uri: str) -> None:
    where = at(TEXT, "Sum.s<d,k,j>", 1)
    (found,) = editor.wait(editor.client.text_document_definition_async(lsp.DefinitionParams(place(uri), where)))  # pyright: ignore
    assert found.range.start == at(TEXT, "Sum<d,k,i>")
    context = lsp.ReferenceContext(include_declaration=True)
    found = editor.wait(
        editor.client.text_document_references_async(lsp.ReferenceParams(context, place(uri), at(TEXT, "in r, w", 3)))
    )
    assert found is not None
    lines = TEXT.split("\n")
    assert [(lines[o.range.start.line].strip()[:9], shown(TEXT, o.range)) for o in found] == [
        ("if k<K:  ", "r"), ("in r, w", "r"), ("r*w #N[k-", "r"),
    ]  # fmt: skip
    marked = editor.wait(
        editor.client.text_document_document_highlight_async(lsp.DocumentHighlightParams(place(uri), where))
    )
    assert marked is not None and [shown(TEXT, m.range) for m in marked] == ["Sum", "Sum"]


def renamed(editor: Editor, uri: str, text: str, where: lsp.Position, new: str) -> str:
    found = editor.wait(editor.client.text_document_rename_async(lsp.RenameParams(place(uri), where, new)))
    assert found is not None and found.changes is not None
    return applied(text, list(found.changes[uri]))


@pytest.mark.parametrize(
    ("piece", "old", "new"),
    [("Link.w", "Link", "Synapse"), ("K = 7", "K", "Layers"), ("b: bool", "b", "active"), ("R<d,i>", "R", "Out"),
     ("X<d,i>", "X", "Input"), ("in r, w", "r", "from_left")],
)  # fmt: skip
def test_rename(editor: Editor, uri: str, piece: str, old: str, new: str) -> None:
    """The program is the same one: its counts are, and its proofs."""
    where = at(TEXT, piece, 3 if piece.startswith("in ") else 0)
    result = renamed(editor, uri, TEXT, where, new)
    assert new in result
    before, after = upl.load(TEXT).check(), upl.load(result).check()
    assert after.ok and len(after.obligations) == len(before.obligations)
    assert sorted(map(str, after.firings.values())) == sorted(map(str, before.firings.values()))


def test_rename_of_a_field_writes_out_what_followed_from_its_name(editor: Editor, uri: str) -> None:
    result = renamed(editor, uri, TEXT, at(TEXT, "Sum<d,k,i>", 8), "j")
    assert "node Sum<d,k,j>     { in @(+) s[#]; -> AF_ReLU<d,k,j> }" in result
    assert upl.load(result).check().ok


@pytest.mark.parametrize(("new", "why"), [("Sum", "taken"), ("2x", "no name"), ("node", "no name")])
def test_a_name_that_cannot_be(editor: Editor, uri: str, new: str, why: str) -> None:
    with pytest.raises(JsonRpcException, match=why):
        editor.wait(editor.client.text_document_rename_async(lsp.RenameParams(place(uri), at(TEXT, "Link.w"), new)))


def test_outline(editor: Editor, uri: str) -> None:
    found = editor.wait(editor.client.text_document_document_symbol_async(lsp.DocumentSymbolParams(place(uri))))
    assert found is not None
    assert [s.name for s in found] == ["D", "K", "N", "X", "W", "R", "Res", "Link", "Sum", "AF_ReLU"]
    assert [c.name for c in found[-1].children or ()] == ["s", "b"]  # pyright: ignore
    assert found[-1].detail == "<d,k,i>"  # pyright: ignore


# -- writing -----------------------------------------------------------------------------------------------------------
def completed(editor: Editor, text: str) -> dict[str, str]:
    """The proposals at the place of `|` in a text."""
    where = at(text, "|")
    uri = f"file:///p/typed{next(NUMBERS)}.upl"
    editor.write(uri, text.replace("|", "", 1))
    found = editor.wait(editor.client.text_document_completion_async(lsp.CompletionParams(place(uri), where)))
    assert isinstance(found, list)
    return {c.label: c.insert_text or "" for c in found}


def test_completion(editor: Editor) -> None:
    nodes = completed(editor, TEXT.replace("-> Sum.s<d,k,j>", "-> |"))
    assert nodes["Link.w"] == "Link.w<d,k,i,j>" and nodes["Sum"] == "Sum<d,k,i>" and nodes["R"] == "R<d,i>"
    assert "X" not in nodes, "nothing can be sent to an input of the host"
    assert set(completed(editor, TEXT.replace("-> Sum.s<d,k,j>", "-> Li|"))) == set(nodes)
    assert set(completed(editor, TEXT.replace("-> Sum.s<d,k,j>", "-> Link.|"))) == {"r", "w"}
    values = completed(editor, TEXT.replace("r*w #N[k-1]", "r*|"))
    assert {"r", "w", "d", "k", "i", "j", "D", "K", "N", "tanh"} <= set(values) and "s" not in values
    assert {"node ", "input ", "output "} <= set(completed(editor, TEXT + "\n|").values())
    asked = completed(editor, TEXT + "\nadjoint of R wrt |")
    assert {"W", "Link.w"} <= set(asked)
    assert completed(editor, "program p  // no|") == {}


def test_format(editor: Editor, uri: str) -> None:
    editor.write(uri, TEXT.replace("  in r, w\n", "      in   r,w\n"))
    options = lsp.FormattingOptions(tab_size=2, insert_spaces=True)
    found = editor.wait(editor.client.text_document_formatting_async(lsp.DocumentFormattingParams(place(uri), options)))
    assert found is not None
    assert applied(TEXT.replace("  in r, w\n", "      in   r,w\n"), list(found)) == TEXT
    editor.write(uri, TEXT.replace("in r, w", "in r,, w"))
    assert editor.wait(
        editor.client.text_document_formatting_async(lsp.DocumentFormattingParams(place(uri), options))
    ) is None, "a text with errors is left alone"  # fmt: skip


def test_hints_say_what_is_left_out(editor: Editor, uri: str) -> None:
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(100, 0))
    found = editor.wait(editor.client.text_document_inlay_hint_async(lsp.InlayHintParams(place(uri), whole)))
    assert found is not None
    said = {(h.position.line + 1, h.label) for h in found}
    assert {(21, ".s<d,k,i>"), (21, "s "), (14, "r "), (15, "r "), (8, "X "), (9, "W ")} == said
    written = applied(TEXT, [e for h in found for e in h.text_edits or ()])
    assert "{ in @(+) s[#]; s -> AF_ReLU.s<d,k,i> }" in written and "if k<K:  r #N[k] -> Link.r<d,k,i,*>" in written
    assert str(upl.load(written)) == str(upl.load(TEXT)), "it is what the text means"


SHIFT = """program shift
param n >= 2
input X<i> in 0<=i<n { -> A.x }
output R<i>
node A<i> in 0<=i<n {
  in x
  x -> B.y<i+1>
}
node B<i> in 1<=i<n { in y; y -> R }
"""


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        (SHIFT, "if i<=n-2: x -> B.y<i+1>"),
        (SHIFT.replace("x -> B", "if x > 0 || x <= 0: x -> B"), None),  # data decide: nothing is refuted
        (SHIFT.replace("x -> B", "if i>=0: x -> B"), "if (i>=0) && (i<=n-2): x -> B.y<i+1>"),
        ("program p\ninput X<i> in 0<=i<3 { -> S.s<> }\nnode S { in s; s -> R }\noutput R\n", "@(+) s[#]"),
        ("program p\ninput X<i> in 0<=i<3 { -> S.s<> }\nnode S { in @(+) s[4]; s -> R }\noutput R\n", "@(+) s[3]"),
    ],
)
def test_fixes_of_what_is_refuted(editor: Editor, text: str, fixed: str | None) -> None:
    uri = opened(editor, "program p\n")
    editor.write(uri, text)
    found = editor.until(uri, lambda ds: any("UPL13" in str(d.code) for d in ds))
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(100, 0))
    params = lsp.CodeActionParams(place(uri), whole, lsp.CodeActionContext(found))
    actions = editor.wait(editor.client.text_document_code_action_async(params)) or []
    results = [applied(text, list(a.edit.changes[uri])) for a in actions]  # pyright: ignore
    assert results == [] if fixed is None else any(fixed in r for r in results)


FIXES = [
    ("-> Sum.s<d,k,j>", "-> Summ.s<d,k,j>", "-> Sum.s<d,k,j>"),
    ("-> Link.w<d,k,i,j>", "-> Link.v<d,k,i,j>", "-> Link.w<d,k,i,j>"),
    ("in s; b", "in s,; b", "in s; b"),
    ("-> Sum.s<d,k,j>", "=> Sum.s<d,k,j>", "-> Sum.s<d,k,j>"),
    ("output R<d,i>\n", "", "output R<d,i>\n"),
    ("s > 0", "s ≥ 0", "s >= 0"),
    ("b: bool", "b: boolean", "b: bool"),
    ("@(+) s[#]", "s", "@(+) s[#]"),
    ("node Sum<d,k,i>", "nod Sum<d,k,i>", "node Sum<d,k,i>"),
]


@pytest.mark.parametrize(("old", "new", "fixed"), FIXES)
def test_fixes(editor: Editor, uri: str, old: str, new: str, fixed: str) -> None:
    wrong = TEXT.replace(old, new)
    editor.write(uri, wrong)
    errors = editor.until(uri, lambda ds: any(d.severity is lsp.DiagnosticSeverity.Error for d in ds))
    results: set[str] = set()
    for error in errors:
        params = lsp.CodeActionParams(place(uri), error.range, lsp.CodeActionContext([error]))
        for action in editor.wait(editor.client.text_document_code_action_async(params)) or ():
            assert isinstance(action, lsp.CodeAction) and action.edit is not None and action.edit.changes is not None
            results.add(applied(wrong, list(action.edit.changes[uri])))
    assert results and any(fixed in text for text in results), results
    assert all(upl.load(text) for text in results), "what is offered can be read"


# -- any text ----------------------------------------------------------------------------------------------------------
def test_positions_count_in_the_units_of_the_client(editor: Editor) -> None:
    """UTF-16 where nothing else was agreed on: a letter outside the first plane is two."""
    text = "program p // 𝔸𝔹\ninput δ<i> in 0<=i<3 { /*𝔸*/ -> R }\noutput Q<i>\n"
    uri = f"file:///p/wide{next(NUMBERS)}.upl"
    editor.write(uri, text)
    (found,) = editor.until(uri, lambda ds: len(ds) == 1)
    line = text.split("\n")[1]
    assert found.range.start == lsp.Position(1, len(line[: line.index("R")].encode("utf-16-le")) // 2)


def test_a_document_can_be_closed(editor: Editor, uri: str) -> None:
    editor.client.text_document_did_close(lsp.DidCloseTextDocumentParams(place(uri)))
    assert editor.until(uri, lambda ds: True) == []
    assert editor.wait(editor.client.text_document_hover_async(lsp.HoverParams(place(uri), at(TEXT, "Link")))) is None


def test_half_typed_programs(editor: Editor) -> None:
    """Every 25th state of a text that is typed from its beginning, asked everything."""
    uri = f"file:///p/typing{next(NUMBERS)}.upl"
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(100, 0))
    for n in range(0, len(TEXT), 25):
        text = TEXT[:n]
        editor.write(uri, text)
        end = lsp.Position(text.count("\n"), n - (text.rfind("\n") + 1))
        client = editor.client
        editor.wait(client.text_document_completion_async(lsp.CompletionParams(place(uri), end)))
        editor.wait(client.text_document_hover_async(lsp.HoverParams(place(uri), end)))
        editor.wait(client.text_document_inlay_hint_async(lsp.InlayHintParams(place(uri), whole)))
        editor.wait(client.text_document_document_symbol_async(lsp.DocumentSymbolParams(place(uri))))
        context = lsp.CodeActionContext([])
        editor.wait(client.text_document_code_action_async(lsp.CodeActionParams(place(uri), whole, context)))
    editor.write(uri, TEXT)
    editor.until(uri, lambda ds: ds == [])
