"""The pages hold together: generated ones are current, links lead somewhere, every page is in the site's contents."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from upl_mlir.hw.machine import Machine, machine_keys

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("upl_mlir/**/*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def reference():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["passes.md", "dialect.md", "dialect_loops.md", "dialect_ttm.md", "dialect_ppn.md"])
def test_generated_pages_are_current(page):
    written = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert written == reference().PAGES[page](), "run: .venv/bin/python docs/reference.py"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.S)
    for link in LINK.findall(text):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file) if file else page
        assert target.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_headings_leave_out_no_level(page):
    """Else `make docs` fails."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    levels = [len(marks) for marks in re.findall(r"^(#+) ", text, flags=re.M)]
    assert levels[0] == 1 and all(after <= before + 1 for before, after in pairwise(levels))


def test_the_readme_lists_every_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    part = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## Extras\n")[1].split("\n## ")[0]
    rows = [row.split("|")[1] for row in part.splitlines() if row.startswith("| `")]
    assert sorted(name for row in rows for name in re.findall(r"`([\w-]+)`", row)) == sorted(extras)


def test_the_machines_page_has_every_key_with_its_default():
    text = (ROOT / "docs" / "machine.md").read_text(encoding="utf-8")
    table = text.split("\n## Machine description\n")[1].split("\n## ")[0]
    default, said, section = msgspec.to_builtins(Machine()), dict[str, str](), ""
    for keys, values in re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", table, flags=re.M):
        if m := re.match(r"`\[(\w+)\]`", keys):
            section = f"{m[1]}."
        said |= zip((section + key for key in re.findall(r"`(\w+)`", keys)), values.split(", "), strict=False)
    assert {*said} == {key for key in machine_keys() if not key.startswith("energy.")}
    for key, value in said.items():
        first, _, name = key.partition(".")
        known = default[first].get(name) if name else default[first]  # None: what else there is decides
        assert known is None or json.loads(value.strip("`")) == known, key


def test_every_page_is_in_the_contents():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8").split()
    assert {p.stem for p in (ROOT / "docs").glob("*.md")} - {"index"} <= set(index)
