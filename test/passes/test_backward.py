"""The least fixpoint backward along arrows: shorter ways, from above or with new parts only, lead to the same instances."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.analysis import backward
from upl_mlir.passes.analysis.relations import ProgramSets

ROOTS = """program roots
param n >= 2
input X<j> in 0<=j<n { -> A.x<j> }
output Y<i>
node A<j> in 0<=j<n { in x; x -> B.x<i> for i in 0..j if j == PLACE }
node B<i> in 0<=i<n { in x; if PLACE < n: x -> Y }
"""


@pytest.mark.parametrize(("place", "exact"), [("i*i", False), ("2*i", True)])
def test_a_hull_on_the_way_is_not_exact(place: str, exact: bool) -> None:
    """It may have squares and others; what is found exactly behind it changes nothing."""
    sets = ProgramSets(upl.load(ROOTS.replace("PLACE", place)).infer_domains().op)
    found = {n: sets.ctx.empty(op.fields) for n, op in sets.ends.items()} | {"Y": sets.domain("Y")}
    steps = [backward.Step(a, a.target.symbol, [a.source.symbol]) for a in sets.arrows]
    assert backward.reaching(sets, found, steps, sets.domain) == exact
    assert (sets.domain("X") <= found["X"]) == (not exact)


def gradient(source: Path) -> str:
    """The program of the derivatives of the first output by the first inputs."""
    p = upl.load(source)
    return str(upl.vjp(p, of=next(iter(p.outputs)), wrt=list(p.inputs)[:2]))


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
    tried = gradient(source)
    assert trials
    trials.clear()
    monkeypatch.setattr(backward, "SOON", backward.MAX_ROUNDS)
    assert gradient(source) == tried
    assert not trials


def relaxation(a: Any) -> Any:
    """Of a row of numbers, of which the first ones count at the end."""

    def step(_: Any, a: Any) -> Any:
        return np.concatenate([a[:1], 0.5 * (a[:-2] + a[2:]), a[-1:]])

    return (upl.fori_loop(0, 12, step, a)[:3] ** 2).sum()


def ladder(x: Any, y: Any) -> Any:
    """Two values that follow each other, one of which counts."""
    return upl.fori_loop(0, 20, lambda _, v: (np.sin(v[1]), v[0] * 0.9), (x, y))[0].sum()


@pytest.mark.parametrize("f", [relaxation, ladder])
def test_from_above_gives_the_same_program(f: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle of these programs' derivatives does not settle soon from below, and does from above."""
    descend = backward._descend  # pyright: ignore[reportPrivateUsage]
    ended: list[bool] = []

    def noted(reached: Any, here: set[Any], steps: Sequence[Any]) -> bool:
        ended.append(descend(reached, here, steps))
        return ended[-1]

    def derived() -> str:
        args = [np.arange(9.0)] * f.__code__.co_argcount
        p = upl.function(f).program(*args)
        return str(upl.vjp(p, of=next(iter(p.outputs)), wrt=list(p.inputs)))

    monkeypatch.setattr(backward, "_descend", noted)
    from_above = derived()
    assert True in ended
    monkeypatch.setattr(backward, "_descend", lambda *_: False)
    assert derived() == from_above


LONG = """program long
input  A<i> in 1<=i<=4 { -> U.u<0,i> }
output B<i> in 1<=i<=4
node U<t,i> in 0<=t<=150 && 1<=i<=4 {
  in u
  if t<150: sin(u) -> U.u<t+1,i>
  if t==90: u -> B<i>
  if t==150: u -> C<i>
}
output C<i> in 1<=i<=4
"""


def test_a_long_loop_takes_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of 150 steps lead to C, which is seen at once.  To B those lead that come before: none after is live."""
    program = upl.load(LONG)
    backs: list[object] = []
    back = backward._Reached.back  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(backward._Reached, "back", lambda *a: backs.append(a) or back(*a))  # pyright: ignore[reportPrivateUsage]
    assert "t<=150" in str(upl.vjp(program, of="C", wrt=["A"]).infer_domains())
    assert len(backs) < 20
    assert "t<=90" in str(upl.vjp(program, of="B", wrt=["A"]).infer_domains())
