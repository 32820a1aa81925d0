"""The least fixpoint backward along arrows: a trial with new parts only is a shorter way to the same instances."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import upl_mlir as upl
from upl_mlir.passes.analysis import backward


@pytest.mark.parametrize("example", ["training", "iris", "iris_batch"])
def test_a_trial_gives_the_same_program(example: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """These programs' derivatives have cycles that do not settle soon."""
    source = root / "examples" / f"{example}.upl"
    rounds = backward._rounds  # pyright: ignore[reportPrivateUsage]
    trials: list[bool] = []

    def noted(reached: Any, here: set[Any], steps: Sequence[Any], new: Any, often: Any, only_new: bool = False) -> bool:
        ended = rounds(reached, here, steps, new, often, only_new)
        if only_new:
            trials.append(ended)
        return ended

    monkeypatch.setattr(backward, "_rounds", noted)
    tried = str(upl.load(source).expanded())
    assert trials
    trials.clear()
    monkeypatch.setattr(backward, "SOON", backward.MAX_ROUNDS)
    assert str(upl.load(source).expanded()) == tried
    assert not trials
