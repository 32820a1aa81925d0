"""What the language server knows of texts that nobody has finished; and of every example, whatever is renamed in it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.frontend.upl_text import ast
from upl_mlir.tools.lsp.completion import proposals
from upl_mlir.tools.lsp.document import Document, meaning
from upl_mlir.tools.lsp.fixes import fixes
from upl_mlir.tools.lsp.rename import rename
from upl_mlir.tools.lsp.text import Edit, Text

FOLDER = Path(__file__).parents[2] / "examples"
PERCEPTRON = (FOLDER / "perceptron.upl").read_text(encoding="utf-8")
EXAMPLES = [
    pytest.param(p, id=p.stem, marks=() if p.stem in ("perceptron", "training", "spmv", "scan") else pytest.mark.slow)
    for p in sorted(FOLDER.rglob("*.upl"))
]


def ask_everything(content: str) -> Document:
    """All questions that need no proof, at some places."""
    d = Document("file:///t.upl", "t.upl", Text(content))
    chosen = random.Random(1)
    d.hints()
    for _ in range(3):
        line = chosen.randint(1, len(d.text.lines) + 1)
        place = line, chosen.randint(1, len(d.text.line(line)) + 2)
        proposals(d.text, d.names, place)
        d.about(place)
    for e in d.read.errors:
        assert e.span is not None
        assert d.placed(e.span) < ((10**6, 0), (0, 0))
        fixes(d.text, d.names, e, lambda text: Document("", "t.upl", Text(text)).read.errors)
    return d


@pytest.mark.parametrize("path", EXAMPLES)
def test_torn_texts(path: Path) -> None:
    text, chosen = path.read_text(encoding="utf-8"), random.Random(path.stem)
    for _ in range(6):
        a, b = sorted(chosen.randrange(len(text)) for _ in range(2))
        ask_everything(text[:a] + text[min(b, a + chosen.choice((1, 5, 60))) :])
        ask_everything(text[:a])
        ask_everything(text[:a] + chosen.choice(("(", "{", "<", ">", "->", "/*", "#", "node", "\x00", "≤", "\r")) + text[a:])


@pytest.mark.parametrize(
    "text",
    ["", "\n", "\ufeff", "program", "node", "node A<", "}", "/*", "\x00\x01", "\r\n\r\n", "x" * 10_000, "(" * 5_000,
     "program p\nnode A { in x; " + "-" * 3_000 + "x -> A.x }", "program p\r\ninput X {\r\n", "δ<≤", "𝔸𝔸𝔸 -> ",
     "->" * 2_000],
)  # fmt: skip
def test_texts_that_are_none(text: str) -> None:
    d = ask_everything(text)
    assert d.read.errors or meaning("t.upl", text) or upl.load(text)


def test_what_is_right_is_read_beside_what_is_wrong() -> None:
    """One statement is typed; nothing else of its node, and no other item, is forgotten."""
    d = ask_everything(PERCEPTRON.replace("r*w #N[k-1] -> Sum.s<d,k,j>", "r*w #N[k-1] -> Sum.s<d,"))
    assert len(d.read.errors) == 1
    assert set(d.names.shapes) == {"X", "W", "R", "Res", "Link", "Sum", "AF_ReLU"}
    assert list(d.names.shapes["Link"].inputs) == ["r", "w"]


@pytest.mark.parametrize("path", EXAMPLES)
def test_hints_are_what_a_program_means(path: Path) -> None:
    """With all that arrows leave out written into it, it is the same program."""
    text = path.read_text(encoding="utf-8")
    d = Document("", "t.upl", Text(text))
    written = d.text.edited(Edit(at, at, piece) for at, piece in d.hints())
    assert str(upl.load(written)) == str(upl.load(text))


@pytest.mark.parametrize("path", EXAMPLES)
def test_every_name_of_an_example_can_be_renamed(path: Path) -> None:
    """It is then the program whose text has the new name: read, written out in full, and compared without its names."""
    text = path.read_text(encoding="utf-8")
    d = Document("", "t.upl", Text(text))
    whole = _nameless(text)
    chosen = random.Random(path.stem)
    keys = list(d.names.declared)
    for key in chosen.sample(keys, min(len(keys), 8)):
        try:
            edits = rename(d.text, "t.upl", d.names, key, "renamed")
        except UplError as e:
            assert e.diagnostics[0].code == "UPL1811" and "send something else" in e.diagnostics[0].message
            continue
        new = d.text.edited(edits)
        assert meaning("t.upl", new) == [], new
        assert _nameless(new) == whole, (key, new)


def _nameless(text: str) -> list[tuple[str, ...]]:
    """What arrows send where, with every default written out, by the numbers of the names' declarations."""
    d = Document("", "t.upl", Text(text))
    written = d.text.edited(Edit(at, at, piece) for at, piece in d.hints())
    d = Document("", "t.upl", Text(written))
    numbers = {key: str(n) for n, key in enumerate(sorted(d.names.declared, key=lambda k: _at(d, k)))}
    out: list[tuple[str, ...]] = []
    for _, arrow in d.names.arrows():
        inside = [o for o in d.names.occurrences if _covers(arrow, o.span.line, o.span.col)]
        out.append(tuple(numbers[o.key] for o in inside))
    return out


def _at(d: Document, key: tuple[str, str]) -> tuple[int, int]:
    found = d.names.declared[key].span
    return found.line, found.col


def _covers(node: ast.Node, line: int, col: int) -> bool:
    start, end = (node.span.line, node.span.col), (node.span.end_line, node.span.end_col)
    return start <= (line, col) < end
