"""The gallery in `docs/` is what the examples give today: to the byte where no pass but the inference of domains has a hand
in it; of derivatives, which change with the passes, the pictures are there.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import upl_mlir as upl
from upl_mlir.dialects.upl import AdjointOp


@pytest.fixture(scope="module")
def make(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_gallery", root / "docs" / "gallery" / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pictures_are_those_of_the_examples(make: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    gallery = root / "docs" / "gallery"
    names: set[str] = set()
    old: list[str] = []
    for name, program in (*make.programs(), *make.rules()):
        names.add(f"{name}.svg")
        path = gallery / f"{name}.svg"
        directed = any(isinstance(op, AdjointOp) for op in program.op.body.block.ops)
        derived = directed or name.endswith(".derivative") or name.startswith("rule.")
        if derived:
            assert path.exists(), name
        elif not path.exists() or path.read_text(encoding="utf-8") != upl.draw(program).svg():
            old.append(name)
    assert not old, f"`make gallery` makes these anew: {', '.join(old)}"
    assert {p.name for p in gallery.glob("*.svg")} == names
    text = (gallery / "README.md").read_text(encoding="utf-8")
    pictured = (root / "docs" / "rules.md").read_text(encoding="utf-8")
    assert all(f"]({name})" in text or f"](gallery/{name})" in pictured for name in names)
