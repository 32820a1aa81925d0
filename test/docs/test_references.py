"""What docstrings and pages refer to is there: codes of diagnostics, numbered sections, headings of pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from upl_mlir.passes.analysis.obligations import Kind

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = sorted((ROOT / "upl_mlir").rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = re.compile(r"UPL\d{4}")
EXAMPLE = "UPL1234"
"""It stands for any code."""


@cache
def texts(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The docstrings of a module, and its other strings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    docs = {id(n.value): n.value for n in nodes if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}
    others = [n for n in nodes if isinstance(n, ast.Constant) and id(n) not in docs]
    said, used = ([n.value for n in these if isinstance(n.value, str)] for these in (docs.values(), others))
    return tuple(said), tuple(used)


def raised() -> set[str]:
    """Every code that stands in code; those of refuted obligations are made from their number."""
    found = {code for path in PACKAGE for text in texts(path)[1] for code in CODE.findall(text)}
    return found | {f"UPL13{n:02d}" for n in range(1, len(Kind) + 1)}


def written() -> Iterator[tuple[Path, str]]:
    """What people read: docstrings with their module, lines of pages."""
    for path in PACKAGE:
        yield from ((path, text) for text in texts(path)[0])
    for page in PAGES:
        yield from ((page, line) for line in page.read_text(encoding="utf-8").splitlines())


def test_codes_that_are_named_are_raised() -> None:
    """A text about a code that is gone says so."""
    there = raised() | {EXAMPLE}
    named = {(str(p.relative_to(ROOT)), c) for p, t in written() if "is gone" not in t for c in CODE.findall(t)}
    assert not [(path, code) for path, code in named if code not in there]


def test_the_page_of_diagnostics_has_every_code_and_no_other() -> None:
    listed: set[str] = set()
    for row in re.findall(r"(?m)^\| ([\d–, ]+) \|", (ROOT / "docs" / "diagnostics.md").read_text(encoding="utf-8")):
        for part in row.split(","):
            first, _, last = part.strip().partition("–")
            listed |= {f"UPL{n}" for n in range(int(first), int(last or first) + 1)}
    assert listed == raised()


def sections(page: str) -> set[str]:
    """The numbers of a page's sections and of the items in them: "3", "3.10"."""
    out, section = set[str](), ""
    for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines():
        if m := re.match(r"## (?:(\d+)\. )?", line):
            section = m[1] or ""
            out.add(section)
        elif (m := re.match(r"(\d+)\. ", line)) and section:
            out.add(f"{section}.{m[1]}")
    return out - {""}


NUMBERED = {"LANGUAGE": "language.md", "AUTODIFF": "autodiff.md"}
_NUMBER = r"\d+(?:\.\d+)?"
REFERENCE = re.compile(rf"\b([A-Z]{{4,}})(?:\]\([a-z.]+\))?,? (?:sections? )?({_NUMBER}(?:(?:,| to|,? and) {_NUMBER})*)\b")
PAGE = re.compile(r'docs/(\w+\.md), "([^"]+)"')


@pytest.mark.parametrize("name", NUMBERED)
def test_numbered_sections_are_there(name: str) -> None:
    there, seen = sections(NUMBERED[name]), 0
    for path, text in (*written(), *((p, p.read_text(encoding="utf-8")) for p in sorted((ROOT / "test").rglob("*.py")))):
        for page, numbers in REFERENCE.findall(text):
            if page == name:
                seen += 1
                for number in re.findall(r"\d+(?:\.\d+)?", numbers):
                    assert number in there, f"{path.relative_to(ROOT)}: {name} {number}"
    assert seen > 10


def test_no_other_page_is_referred_to_by_numbers() -> None:
    names = {p.stem.upper() for p in PAGES} - NUMBERED.keys()
    wrong = [(str(p), page, n) for p, t in written() for page, n in REFERENCE.findall(t) if page in names]
    assert not wrong


def test_headings_that_are_named_are_there() -> None:
    found = [(p, *m) for p, text in written() for m in PAGE.findall(text)]
    assert found
    for path, page, heading in found:
        heads = re.findall(r"(?m)^#+ (.*)$", (ROOT / "docs" / page).read_text(encoding="utf-8"))
        assert any(h.startswith(heading) for h in heads), f"{path.relative_to(ROOT)}: {page}, {heading}"
