"""Every number of a module says what it counts, and how it was found: measured, or chosen."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NUMBER = re.compile(r"_?[A-Z][A-Z_0-9]*(: \w+)? = -?[\d.]")


def complaints(name: str, source: str) -> list[str]:
    """Numbers with neither a comment on their line or the one before, nor a docstring."""
    lines = [*source.split("\n"), ""]
    return [
        f"{name}:{n + 1}: say what `{line.split()[0]}` counts, in which unit, and how it was found"
        for n, line in enumerate(lines)
        if NUMBER.match(line)
        and not ("  # " in line or lines[n + 1].startswith('"""') or lines[n - 1].startswith("#"))
    ]  # fmt: skip


def test_numbers_are_explained() -> None:
    found = [c for path in sorted((ROOT / "upl_mlir").rglob("*.py")) for c in complaints(str(path), path.read_text("utf-8"))]
    assert not found, "\n".join(["", *found])


def test_a_number_without_a_word_is_found() -> None:
    assert complaints("a.py", "import os\nMOST = 4\nOTHER = 5  # places\n")[0].startswith("a.py:2:")
    assert not complaints("a.py", '"""What it is for."""\nMOST = 4\n"""Places. Chosen, not measured."""\n')
