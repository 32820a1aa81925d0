"""The notebooks of the documentation run from end to end; what they claim they assert themselves."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("marimo", reason="marimo is not installed (extra `notebooks`)")
FOLDER = Path(__file__).resolve().parent.parent.parent / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    outputs, names = module.app.run()
    assert len(outputs) >= 5
    if path.stem == "differentiation":
        assert abs(names["found"]["d_a"] - names["by_complex_step"]) < 1e-12
        assert names["by_inputs"].check().ok
        assert "<svg" in names["picture"](names["chain"]).text
    if path.stem == "lecture":
        assert names["table"]["x1"] == 5.5 and max(names["off"].values()) < 1e-13
        reverse, forward = names["passes"]["reverse"], names["passes"]["forward"]
        assert reverse == sorted(reverse) and reverse[0] < forward[0] / 4 and forward[-1] < reverse[-1] / 4
        assert names["firings"][0] > names["firings"][-1] and names["peaks"][0] < names["peaks"][-1]
        assert abs(names["hutchinson"] - sum(names["spectrum"])) < 0.1 * sum(names["spectrum"])
    if path.stem == "price_of_matching":
        assert len(names["prices"]) == 6
        assert all(names["counts"][p]["circuit"] < names["counts"][p][s] for p in names["prices"] for s in names["stores"])
        assert all(time > 5 and area > 5 for of in names["prices"].values() for time, area in of.values())
        assert max(map(abs, names["off"].values())) < 0.2  # the model beside what was synthesised
        areas = [row["LUT sites"] for row in names["wider"]]
        assert areas[0] < areas[1] < areas[2] < names["cores"]["cam"]["LUT sites"]
    if path.stem == "machines":
        assert names["stores"][-1]["spills"] > 0 and names["stores"][-1]["cycles"] > names["stores"][0]["cycles"]
        assert names["machines"][1]["cycles"] < names["machines"][0]["cycles"]
