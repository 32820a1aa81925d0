"""What the documentation shows is what happens: its programs, commands and Python snippets run, page by page.

The blocks of a page run in order, in a directory of their own that has `examples` and `docs`:

    ```upl        after a line that says "Save as `NAME`": the file is written; other blocks must parse as statements
    ```python, c, toml   after such a line likewise
    ```console    `$ command` lines, each with the output that is expected below it; `…` stands for any text, lines included
    ```python     run in one namespace
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.mpi import needs_mpi

ROOT = Path(__file__).resolve().parent.parent.parent
NAMES = "index tutorial numbers rules frontends nn token drawing extending native explore debugging machine circuits checked"
PAGES = [f"docs/{name}.md" for name in NAMES.split()]
BLOCK = re.compile(r"(?P<before>[^\n]*\n)?\n?```(?P<kind>upl|toml|console|python|c)\n(?P<text>.*?)^```$", re.S | re.M)


def matches(expected: str, found: str) -> bool:
    """Whether the output is what the page shows; `…` stands for any text."""
    parts = [re.escape(part) for part in expected.split("…")]
    return re.fullmatch(r"(?s:.*?)".join(parts), found.strip("\n")) is not None


def run_console(text: str, where: Path) -> None:
    """Run the commands of a block and compare what they print."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for step in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, expected = step.partition("\n")
        done = subprocess.run(
            ["sh", "-c", command], cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
            check=False, env={**os.environ, "PATH": path, "COLUMNS": "120"},
        )  # fmt: skip
        says = f"{command}\n--- the page says:\n{expected}\n--- it prints:\n{done.stdout}"
        assert matches(expected.strip("\n"), done.stdout), says


@pytest.mark.parametrize("page", [*PAGES, pytest.param("docs/mpi.md", marks=needs_mpi)])
def test_a_page(page, tmp_path, monkeypatch):
    for folder in ("examples", "docs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    done = 0
    for block in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")):
        text, done = block["text"], done + 1
        saved = re.search(r"Save as `([^`]+)`", block["before"] or "")
        match block["kind"]:
            case "upl" | "toml" | "python" | "c" if saved:
                Path(saved[1]).write_text(text, encoding="utf-8")
            case "upl" | "toml" | "c":
                pass
            case "python" if text.startswith("import jax") and importlib.util.find_spec("jax") is None:
                pass  # the extra `jax`; test/frontend/jaxpr says that it is not tried
            case "console":
                run_console(text, tmp_path)
            case _:
                exec(compile(text, f"{page}, block {done}", "exec"), names)  # noqa: S102  the page's own snippet
    assert done


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [("a\n…\nb", "a\nx\ny\nb\n", True), ("a\n…\nb", "a\nx", False), ("n+1", "n+1", True), ("n+1", "nn1", False),
     ("L = 0.25", "L = 0.250", False)],
)  # fmt: skip
def test_how_outputs_are_compared(expected, found, same):
    assert matches(expected, found) is same
