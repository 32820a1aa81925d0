"""Parameters in files, and what is said of files that do not fit."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir import nn

MODEL = nn.chain(nn.conv(2, 3), nn.batch_norm(), nn.flatten, nn.dense(3))


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "digits.safetensors"
    params, state = MODEL.init(4, (1, 5, 4))
    params = nn.map_tree(lambda a: np.asfortranarray(a, np.float32), params)
    nn.save(path, {"params": params, "state": state})
    found = nn.load(path, {"params": params, "state": state})
    for wanted, read in ((params, found["params"]), (state, found["state"])):
        nn.map_tree(np.testing.assert_array_equal, read, wanted)
    assert found["params"][0]["w"].dtype == np.float32 and found["state"][1]["mean"].dtype == np.float64
    names = {"params.0.b", "params.0.w", "params.1.scale", "params.1.shift", "params.3.b", "params.3.w"}
    assert {*nn.load(path)} == {*safetensors.load_file(path)} == names | {"state.1.mean", "state.1.variance"}


def test_what_does_not_fit(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "p.safetensors"
    nn.save(path, {"w": np.ones((2, 3)), "b": np.ones(3)})
    (tmp_path / "text").write_text("no tensors")
    cases = [
        (lambda: nn.load(path, {"w": np.ones((2, 3))}), "UPL1501", "beside what is asked for, `b`"),
        (lambda: nn.load(path, {"w": np.ones((2, 3)), "b": np.ones(3), "bb": np.ones(3)}), "UPL1501", "holds no `bb`"),
        (lambda: nn.load(path, {"w": np.ones((3, 2)), "b": np.ones(3)}), "UPL1503", r"\(2, 3\).*expected \(3, 2\)"),
        (lambda: nn.load(tmp_path / "none"), "UPL1504", "cannot read"),
        (lambda: nn.load(tmp_path / "text"), "UPL1504", "cannot read"),
        (lambda: nn.save(tmp_path / "no" / "folder", {"w": np.ones(2)}), "UPL1504", "cannot write"),
        (lambda: nn.save(path, {"a.b": np.ones(2), "a": {"b": np.ones(2)}}), "UPL1504", "two arrays"),
        (lambda: nn.save(path, {"w": np.array(["text"])}), "UPL1504", "cannot write"),
    ]  # fmt: skip
    for run, code, text in cases:
        with pytest.raises(upl.UplError, match=f"{code}.*{text}"):
            run()


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "safetensors"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(upl.UplError, match=r"UPL1804.*safetensors"):
        nn.save(tmp_path / "p", {"w": np.ones(2)})
