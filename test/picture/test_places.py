"""Nodes that stand in several places, as an arrow would be long otherwise: what is drawn stays the same program."""

from __future__ import annotations

from pathlib import Path

import pytest

import upl_mlir as upl
from upl_mlir.api.drawing import draw
from upl_mlir.picture import layout
from upl_mlir.picture.layout import LayoutPlan
from upl_mlir.picture.model import Picture
from upl_mlir.picture.notes import Notes
from upl_mlir.picture.places import LONG, _length, _lines, with_short_arrows
from upl_mlir.picture.svg import svg_of

STEPS = 12


def skipping(*, back: bool = False) -> str:
    """A chain of nodes whose first one sends to the last one as well, or with `back` the last one to the first."""
    first = "t = x*x; t -> A1.x" if back else "t = x*x; t -> A1.x; t -> End.s"
    nodes = [f"node A{k}<i> {{ in x; y = sin(x); y -> A{k + 1}.x }}" for k in range(1, STEPS)]
    last = "y -> End.x; if i<n: y -> Start.x<i+1>" if back else "y -> End.x"
    end = "in x; x -> R" if back else "in x, s; x + s -> R"
    domain = "1<=i<=1" if back else "1<=i<=n"
    return "\n".join([
        "program skipping", "param n >= 1", f"input X<i> in {domain} {{ -> Start.x }}", "output R<i>",
        f"node Start<i> in 1<=i<=n {{ in x; {first} }}", *nodes, f"node A{STEPS}<i> {{ in x; y = sin(x); {last} }}",
        f"node End<i> {{ {end} }}", "",
    ])  # fmt: skip


def lay_out(picture: Picture) -> LayoutPlan:
    return layout.lay_out(picture, Notes())


def plans(text: str) -> tuple[Picture, LayoutPlan, LayoutPlan]:
    picture = draw(upl.load(text)).picture
    return picture, lay_out(picture), with_short_arrows(picture, lay_out)


def test_a_long_arrow_begins_at_a_second_place() -> None:
    picture, plain, plan = plans(skipping())
    assert max(map(_length, plain.arrows)) > LONG
    (second,) = (b.box for b in plan.boxes if b.box.glued)
    assert (second.name, second.fields, second.ports, second.lines) == ("Start", "i", (), ())
    (moved,) = (a for a in plan.arrows if a.arrow.source == second.id)
    assert moved.arrow.target == next(b.id for b in picture.boxes if b.name == "End")
    assert _length(moved) < LONG / 2
    assert _lines(plan) < 0.9 * _lines(plain)


def test_every_arrow_is_drawn_once_and_says_what_it_said() -> None:
    picture, _, plan = plans(skipping())
    assert sorted(a.arrow.id for a in plan.arrows) == sorted(a.id for a in picture.arrows)
    assert {a.arrow.id: a.arrow.title for a in plan.arrows} == {a.id: a.title for a in picture.arrows}
    assert [b.box for b in plan.boxes if not b.box.glued] == list(picture.boxes)
    svg = svg_of(picture)
    assert svg.count('data-name="Start"') == 2 and "second place of the node" in svg


def test_a_loop_stays_a_loop() -> None:
    _, plain, plan = plans(skipping(back=True))
    assert max(map(_length, plain.arrows)) > LONG
    assert plan.boxes == plain.boxes


@pytest.mark.parametrize("name", ["perceptron", "matmul", "cholesky", "lstm"])
def test_what_is_at_hand_stays(examples: Path, name: str) -> None:
    """No long arrow, or only those of loops: the picture is as it was."""
    picture = draw(upl.load(examples / f"{name}.upl")).picture
    assert with_short_arrows(picture, lay_out).boxes == lay_out(picture).boxes


def test_both_bands_keep_their_second_places(examples: Path) -> None:
    """In a program of derivatives the places for kept values and those for long arrows stand beside each other."""
    picture = draw(upl.load(examples / "digits.upl")).picture
    plan = with_short_arrows(picture, lay_out)
    before, after = ({b.id for b in boxes if b.glued} for boxes in (picture.boxes, [b.box for b in plan.boxes]))
    assert before < after
    assert {b.box.band for b in plan.boxes if b.box.id in after - before} == {picture.bands[0]}
