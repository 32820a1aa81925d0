"""Pictures of a width that is asked for, the dots where arrows join, and PDF."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import upl_mlir as upl
from upl_mlir.api.programs import reverse
from upl_mlir.tools.upl import main

Read = Any
WIDTH = 1200
"""What docs/drawing.md says of all examples."""
PROGRAMS = sorted(p.name for p in (Path(__file__).resolve().parents[2] / "examples").glob("*.upl"))


def width(found: Any) -> float:
    return float(found.root.attrib["width"])


@pytest.fixture(scope="module")
def adjoint(examples: Path) -> upl.Program:
    return reverse(upl.load(examples / "lstm.upl"), of="Y", wrt=["W"])


@pytest.mark.parametrize("name", [*PROGRAMS, "derivative of lstm"])
def test_examples_are_as_narrow_as_is_asked_for(
    name: str, examples: Path, read: Read, adjoint: upl.Program, tidy: Any
) -> None:
    program = adjoint if name.startswith("derivative") else upl.load(examples / name)
    found = read(upl.draw(program, width=WIDTH).svg())
    assert width(found) <= WIDTH
    tidy(found)


def test_what_is_narrow_enough_stays_as_it_is(examples: Path) -> None:
    program = upl.load(examples / "matmul.upl")
    assert upl.draw(program, width=WIDTH).svg() == upl.draw(program).svg()


def test_rows_show_every_arrow_once_with_its_texts(read: Read, adjoint: upl.Program) -> None:
    wide, rows = read(upl.draw(adjoint).svg()), read(upl.draw(adjoint, width=WIDTH).svg())
    assert width(wide) > 2 * WIDTH

    def told(found: Any) -> list[tuple[str, ...]]:
        names = {b.facts["id"]: b.facts["name"] for b in found.boxes}
        return sorted((names[a.facts["source"]], names[a.facts["target"]], a.facts["port"], a.title) for a in found.arrows)

    assert told(rows) == told(wide)
    boxes = {b.facts["id"]: b for b in rows.boxes}
    first_places = [sorted(b.title for b in found.boxes if "u-second" not in b.styles) for found in (rows, wide)]
    assert first_places[0] == first_places[1], "every node stands once with all that it has"
    for a in rows.arrows:
        (x, y), (tx, ty) = a.points[0], a.points[-1]
        assert any(o.area.holds(x, y, 2) for o in boxes[a.facts["source"]].outlines), a.title
        assert any(o.area.holds(tx, ty, 8) for o in boxes[a.facts["target"]].outlines), a.title


def test_derivatives_run_to_the_left_in_rows_too(read: Read, adjoint: upl.Program) -> None:
    found = read(upl.draw(adjoint, width=WIDTH).svg())
    _, below = found.loose.styled("u-band")
    straight = [a for a in found.arrows if a.points[0][1] > below.area.top and len(a.points) == 2]
    assert straight and all(a.points[-1][0] < a.points[0][0] for a in straight)


def test_an_impossible_width_gives_the_narrowest_picture(read: Read, examples: Path) -> None:
    program = upl.load(examples / "cholesky.upl")
    narrow = width(read(upl.draw(program, width=300).svg()))
    assert 300 < narrow < 1000 < width(read(upl.draw(program).svg()))


def test_bad_widths_are_errors(examples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, out = str(examples / "matmul.upl"), tmp_path / "p.svg"
    with pytest.raises(upl.UplError, match=r"UPL1802.*width=299: expected 300 pixels or more"):
        upl.draw(upl.load(program), width=299)
    for status, options, said in (
        (1, ["--width", "-5"], "width=-5: expected 300 pixels or more"),
        (2, ["--width", "900", "--unroll"], "--width does not go with --unroll"),
        (2, ["--width", "900", "--circuit"], "--width does not go with --circuit"),
    ):
        assert main(["draw", program, *options, "-o", str(out)]) == status
        assert said in capsys.readouterr().err
    assert main(["draw", program, "--width", "900", "-o", str(tmp_path / "p.dot")]) == 2
    assert "Graphviz lays it out" in capsys.readouterr().err
    assert main(["draw", program, "--width", "wide", "-o", str(out)]) == 2
    assert "--width: invalid int value: 'wide'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_constants_stand_under_the_name_where_there_is_no_room_beside_it(read: Read) -> None:
    text = f"program {'n' * 30}\nconst K = 12\nconst N[0:K] = [{', '.join(['1000'] * 13)}]\n{{}}"
    program = upl.load(text.format("input X { -> Y }\noutput Y\n"))
    found = read(upl.draw(program, width=400).svg())
    assert width(found) <= 400
    (box,) = found.loose.styled("u-constants")
    inside_box = [t.words for t in found.loose.texts if box.area.overlaps(t.area)]
    assert "".join("".join(inside_box).split()) == f"constK=12constN[0:K]=[{','.join(['1000'] * 13)}]"
    name = next(t for t in found.loose.texts if t.words == "n" * 30)
    assert not box.area.overlaps(name.area) and box.area.top > name.area.bottom


def test_a_dot_stands_where_arrows_to_one_input_join(read: Read, examples: Path) -> None:
    svg = upl.draw(upl.load(examples / "perceptron.upl")).svg()
    dots = [(float(x), float(y)) for x, y in re.findall(r'<circle class="u-head" cx="([\d.]+)" cy="([\d.]+)"', svg)]
    found = read(svg)
    joined = [*found.between("X", "Res"), *found.between("AF_ReLU", "Res")]
    assert len(joined) == 2 and len(dots) == 1, "only Res has two arrows to one input"
    for a in joined:
        assert any(_near(dots[0], p, q) for p, q in zip(a.points, a.points[1:], strict=False)), a.title


def _near(dot: tuple[float, float], p: tuple[float, float], q: tuple[float, float]) -> bool:
    """Whether a point lies on a piece of a line, give and take what a round corner does."""
    return all(min(a, b) - 8 <= x <= max(a, b) + 8 for x, a, b in zip(dot, p, q, strict=True))


def test_a_pdf_is_one_page_of_the_size_of_the_picture(read: Read, examples: Path, tmp_path: Path) -> None:
    drawing = upl.draw(upl.load(examples / "perceptron.upl"))
    drawing.save(tmp_path / "p.pdf")
    data = (tmp_path / "p.pdf").read_bytes()
    assert data.startswith(b"%PDF-") and len(re.findall(rb"/Type ?/Page\b(?!s)", data)) == 1
    (box,) = re.findall(rb"/MediaBox ?\[([^\]]*)\]", data)
    root = read(drawing.svg()).root
    size = [0.75 * float(root.attrib[k]) for k in ("width", "height")]  # 96 pixels and 72 points are an inch
    assert [float(n) for n in box.split()] == pytest.approx([0, 0, *size], abs=0.01)
    assert b"DejaVuSansMono" in data, "its font is in it"
    assert drawing.pdf() == data, "and it is the same each time"


def test_instances_and_circuits_as_pdf(examples: Path, tmp_path: Path) -> None:
    program = str(examples / "matmul.upl")
    sizes = [part for name in "mnr" for part in ("-D", f"{name}=2")]
    for name, options in (("u.pdf", ["--unroll"]), ("c.pdf", ["--circuit", "--lanes", "2"])):
        assert main(["draw", program, *options, *sizes, "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_bytes().startswith(b"%PDF-")
