"""The picture of the paper's perceptron, element by element, and what holds of every picture: nothing overlaps, text
stands inside its shape, texts of a program stay texts."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from xdsl.parser import Parser

import upl_mlir as upl
from upl_mlir.api.programs import Program, reverse
from upl_mlir.picture.align import stretches
from upl_mlir.picture.style import DARK, LIGHT, Palette
from upl_mlir.picture.text import cut, escape, fold, wrap
from upl_mlir.pipeline import new_context

Read = Any


@pytest.fixture(scope="module")
def perceptron(examples: Path) -> upl.Program:
    return upl.load(examples / "perceptron.upl")


@pytest.fixture(scope="module")
def picture(perceptron: upl.Program, read: Read) -> Any:
    return read(upl.draw(perceptron).svg())


@pytest.fixture(scope="module")
def adjoint(perceptron: upl.Program, read: Read) -> Any:
    return read(upl.draw(upl.vjp(perceptron, of="R", wrt=["W", "X"])).svg())


# ---------------------------------------------------------------------------------------- the notation, by the paper


def test_a_node_is_a_rectangle_with_its_name_its_expression_and_a_hexagon_of_fields(picture: Any) -> None:
    box = picture.box("AF_ReLU")
    assert box.facts["kind"] == "node"
    assert [o.tag for o in box.styled("u-node")] == ["rect"]
    assert box.words("u-text") == ["AF_ReLU", "b = s > 0"]
    assert [len(o.corners) for o in box.styled("u-fields")] == [6]
    assert box.words("u-on-fields") == ["d,k,i"]


def test_inputs_are_ovals_on_the_left_edge(picture: Any) -> None:
    box = picture.box("Link")
    (rect,) = box.styled("u-node")
    ovals = box.styled("u-port")
    assert [o.tag for o in ovals] == ["ellipse", "ellipse"] and box.words("u-on-port") == ["r", "w"]
    assert all(o.area.left < rect.area.left < o.area.right < rect.area.right for o in ovals)
    assert ovals[0].area.bottom <= ovals[1].area.top, "in the order of the text"


def test_a_gathering_input_says_how_it_gathers(picture: Any) -> None:
    assert picture.box("Sum").words("u-on-port") == ["Sum", "@(+) s[#]"]


def test_a_node_with_one_input_and_no_expression_is_a_lone_oval_with_its_index(picture: Any) -> None:
    for name in ("Res", "Sum"):
        box = picture.box(name)
        assert box.facts["kind"] == "lone"
        assert not box.styled("u-node") and [o.tag for o in box.styled("u-port")] == ["ellipse"]
        assert box.words("u-on-fields") == ["d,k,i"] and [len(o.corners) for o in box.styled("u-fields")] == [6]


def test_an_arrow_has_its_condition_at_its_base(picture: Any) -> None:
    (arrow,) = picture.between("Res", "R")
    (condition,) = [t for t in arrow.texts if t.style == "u-condition"]
    assert condition.words == "if k==K"
    start, end = arrow.points[0], arrow.points[-1]
    assert condition.area.left - start[0] < 25, "near where the arrow leaves"
    assert end[0] - condition.area.right > 60, "far from where it goes"


def test_an_arrow_carries_its_value_with_its_multiplicity_in_a_rectangle_and_its_index_in_a_hexagon(picture: Any) -> None:
    (arrow,) = picture.between("Link", "Sum")
    (value,), (index,) = arrow.styled("u-value"), arrow.styled("u-index")
    assert value.tag == "rect" and arrow.words("u-text") == ["r*w #N[k-1]"]
    assert len(index.corners) == 6 and arrow.words("u-on-index") == ["d,k,j"]
    assert value.area.right <= index.area.left, "in the order in which the arrow passes them"
    middle = (value.area.top + value.area.bottom) / 2
    assert any(abs(y - middle) < 1 for _, y in arrow.points), "on the arrow"


def test_the_only_input_of_a_node_is_not_said_again_as_a_value(picture: Any) -> None:
    (multicast,) = picture.between("Res", "Link")
    assert multicast.words("u-text") == ["#N[k]"] and multicast.words("u-on-index") == ["d,k,i,*"]
    (plain,) = picture.between("Sum", "AF_ReLU")
    assert not plain.styled("u-value") and plain.words("u-on-index") == ["d,k,i"]


def test_every_arrow_of_the_program_is_drawn_once_from_box_to_input(perceptron: upl.Program, picture: Any) -> None:
    ends = [
        ("X", "Res"), ("W", "Link"), ("Res", "Link"), ("Res", "R"), ("Link", "Sum"), ("Sum", "AF_ReLU"), ("AF_ReLU", "Res"),
    ]  # fmt: skip
    assert len(picture.arrows) == len(ends)
    for source, target in ends:
        (arrow,) = picture.between(source, target)
        x, _ = arrow.points[0]
        assert any(o.area.left - 1 <= x <= o.area.right + 1 for o in picture.box(source).outlines), source
        head = arrow.points[-1]  # the line ends under the head, which reaches the oval
        ports = picture.box(target).styled("u-port") or picture.box(target).styled("u-host")
        assert any(o.area.holds(head[0] + 7, head[1]) for o in ports), target


def test_ports_of_the_host_have_shapes_of_their_own(picture: Any) -> None:
    (flag,), (notch,) = picture.box("X").styled("u-host"), picture.box("R").styled("u-host")
    assert len(flag.corners) == len(notch.corners) == 5
    assert max(flag.corners)[1] == (flag.area.top + flag.area.bottom) / 2, "points to where its arrows go"
    assert notch.corners[-1][0] > notch.area.left, "open to where they come from"


def test_constants_stand_in_a_box_at_the_top_on_the_right(picture: Any) -> None:
    (box,) = picture.loose.styled("u-constants")
    texts = [t for t in picture.loose.texts if box.area.overlaps(t.area)]
    assert [t.words for t in texts] == ["param D >= 1", "const K = 7", "const N[0:K-1] = [4, 4, 5, 6, 4, 3, 3]"]
    width = float(picture.root.attrib["width"])
    others = [o.area for g in (*picture.boxes, *picture.arrows) for o in g.outlines]
    assert width - box.area.right < 30 and all(box.area.bottom <= a.top for a in others)


def test_domains_are_comments_in_blue(picture: Any) -> None:
    box = picture.box("Sum")
    assert " ".join(box.words("u-domain")) == "// 1<=d<=D, 1<=k<K, 1<=i<=N[k]"
    assert min(t.area.top for t in box.texts if t.style == "u-domain") >= max(o.area.bottom for o in box.outlines) - 1
    for palette in (LIGHT, DARK):
        red, green, blue = _channels(palette.domain)
        assert blue > max(red, green)


def test_tooltips_say_all(picture: Any) -> None:
    assert picture.box("Link").title.splitlines()[:2] == ["node Link<d,k,i,j>", "in r, w"]
    assert "inferred domain: 1<=d<=D, 1<=k<K, 1<=i<=N[k-1], 1<=j<=N[k]" in picture.box("Link").title
    (arrow,) = picture.between("Res", "Link")
    assert arrow.title.splitlines()[0] == "Res: if k<K: r #N[k] -> Link.r<d,k,i,*>"
    assert all(g.title for g in (*picture.boxes, *picture.arrows))


# ------------------------------------------------------------------------------------------------------- derivatives


def test_the_derivative_is_a_second_band_under_the_program_that_runs_against_it(adjoint: Any) -> None:
    above, below = adjoint.loose.styled("u-band")
    assert above.area.bottom <= below.area.top
    for b in adjoint.boxes:
        band = below if b.facts.get("primal") or "u-second" in b.styles or b.facts["name"].startswith("d_") else above
        assert all(band.area.left <= o.area.left and o.area.right <= band.area.right for o in b.outlines), b.facts
        assert all(band.area.top <= o.area.top and o.area.bottom <= band.area.bottom for o in b.outlines), b.facts
    (rect,) = adjoint.box("DLink").styled("u-node")
    assert all(o.area.left < rect.area.right < o.area.right for o in adjoint.box("DLink").styled("u-port"))
    (arrow,) = adjoint.between("DSum", "DLink")
    assert arrow.points[-1][0] < arrow.points[0][0]


def test_a_node_of_the_derivative_stands_under_its_own(adjoint: Any) -> None:
    for b in adjoint.boxes:
        if "primal" in b.facts and "u-second" not in b.styles:
            here, there = _middle(b), _middle(adjoint.box(b.facts["primal"]))
            assert abs(here - there) < 40, (b.facts, here, there)


def test_a_node_that_keeps_values_has_a_second_place_with_two_dashed_outlines(adjoint: Any) -> None:
    second = adjoint.box("Link", second=True)
    outlines = second.styled("u-node")
    assert len(outlines) == 2 and all("u-glued" in o.style for o in outlines)
    assert ".u-glued{stroke-dasharray" in (adjoint.root.findtext("{http://www.w3.org/2000/svg}style") or "")
    kept = [a for a in adjoint.arrows if a.facts["source"] == second.facts["id"]]
    assert [a.words("u-text") for a in kept] == [["r"], ["w"]] and all("u-kept" in a.styles for a in kept)
    assert "second place" in second.title
    once = [b for b in adjoint.boxes if b.facts["name"] == "Sum"]
    assert len(once) == 1, "Sum keeps nothing"


def test_an_arrow_of_the_derivative_knows_its_rule_and_the_place_of_its_own(adjoint: Any) -> None:
    (reverse,), (forward,) = adjoint.between("DSum", "DLink"), adjoint.between("Link", "Sum")
    assert reverse.facts["rule"] == "reversed arrow, gather to multicast"
    assert reverse.facts["where"] == forward.facts["where"] and "rule" not in forward.facts


def _middle(group: Any) -> float:
    area = group.outlines[0].area
    return (area.left + area.right) / 2


# ------------------------------------------------------------------------------------------------------ every picture

PROGRAMS = sorted(p.name for p in (Path(__file__).resolve().parents[2] / "examples").glob("*.upl"))
ASKED = {"perceptron.upl": ("R", "W"), "lstm.upl": ("Y", "X"), "gmm.upl": ("L", "M"), "softmax.upl": ("Y", "X")}


@pytest.mark.parametrize("name", [*PROGRAMS, *(f"derivative of {n}" for n in ASKED)])
def test_nothing_overlaps_and_text_standsinside(name: str, examples: Path, read: Read, tidy: Any) -> None:
    program = upl.load(examples / name.removeprefix("derivative of "))
    if name.startswith("derivative of "):
        of, wrt = ASKED[name.removeprefix("derivative of ")]
        of = of if of in program.outputs else next(iter(program.outputs))
        wrt = wrt if wrt in program.inputs else next(iter(program.inputs))
        program = reverse(program, of=of, wrt=wrt)
    found = read(upl.draw(program).svg())
    assert found.boxes and found.arrows
    assert not [t for g in (*found.boxes, *found.arrows) for t in g.texts if "…" in t.words], "nothing is cut"
    tidy(found)


# -------------------------------------------------------------------------------------------------------- strange text

STRANGE = """\
builtin.module {
  upl.program @"<script>alert(1)</script>" {
    upl.input @"a\\22b'<i>" <"δ,и"> "real" in <"0<=δ<3 && 0<=и<3"> {
    ^bb0(%0: i64, %1: i64, %2: f64):
      upl.send %2 -> @"]]>&amp;"::@"</text>" <"δ,и"> : f64
    }
    upl.node @"]]>&amp;" <"δ,и"> <"</text>, узел"> {
    ^bb0(%0: i64, %1: i64, %2: f64, %3: f64):
      upl.send %2 -> @Y <"δ,и"> : f64
    }
    upl.output @Y <"δ,и"> "real"
  }
}
"""


def test_names_are_shown_as_text(read: Read) -> None:
    program = Program(Parser(new_context(), STRANGE, "strange.mlir").parse_module())
    text = upl.draw(program).svg()
    found = read(text)  # parses as XML
    assert "<script" not in text and "<i>" not in text
    assert found.loose.words("u-text") == ["<script>alert(1)</script>"]
    assert [b.facts["name"] for b in found.boxes] == ["a\"b'<i>", "]]>&amp;", "Y"]
    assert found.box("]]>&amp;").words("u-on-port") == ["</text>", "узел"]
    assert found.box("Y").words("u-on-fields") == ["δ,и"]
    unicode = upl.load("program ответ\ninput Δx { -> узел }\noutput δ\nnode узел { in ж; 2*ж -> δ }\n")
    assert read(upl.draw(unicode).svg()).box("узел").words("u-on-port") == ["ж"]
    dot = upl.draw(program).dot()
    assert '"a\\"b\'<i>\\n<δ,и>"' in dot and "<script>" not in dot.replace('"<script>', "").replace("label=\"<script>", "")


def test_text_of_xml_has_no_characters_that_xml_forbids() -> None:
    assert escape("a\x00b\x1bc\ud800<&>\"'") == "a\ufffdb\ufffdc\ufffd&lt;&amp;&gt;&quot;&#39;"


def test_long_texts_are_wrapped() -> None:
    assert cut("x" * 60, 10) == "x" * 9 + "…" and cut("short") == "short"
    assert wrap("1<=d<=D, 1<=k<K, 1<=i<=N[k]", 18) == ["1<=d<=D, 1<=k<K,", "1<=i<=N[k]"]
    assert wrap("i<j || j<k && k<l", 8) == ["i<j", "|| j<k", "&& k<l"]
    assert fold("max(0,i-R)*max(0,j-R) - x", 12) == ["max(0,i-R)*", "max(0,j-R) -", "x"]
    for text in ("x" * 60, " || ".join(f"i=={k}" for k in range(40)), "f(a,b)*(c-d)+min(e-f,g)" * 5):
        lines = fold(text, 17)
        assert max(map(len, lines)) <= 17 and "".join(lines).replace(" ", "") == text.replace(" ", "")


# --------------------------------------------------------------------------------------- themes, files, reproducibility


def _channels(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _luminance(color: str) -> float:
    parts = [c / 255 for c in _channels(color)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    """The contrast of WCAG 2."""
    high, low = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("p", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_contrast(p: Palette) -> None:
    pairs = [(p.ink, g) for g in (p.page, p.band, p.node, p.host, p.value)]
    pairs += [(p.on_fields, p.fields), (p.on_port, p.port), (p.on_index, p.index)]
    pairs += [(t, g) for t in (p.domain, p.condition) for g in (p.page, p.band)]
    assert [(a, b) for a, b in pairs if contrast(a, b) < 4.5] == []
    lines = (p.node_line, p.port_line, p.host_line, p.value_line, p.index_line, p.arrow)
    assert [(line, p.band) for line in lines if contrast(line, p.band) < 3] == []


def test_themes(perceptron: upl.Program) -> None:
    auto, light, dark = (upl.draw(perceptron, theme=t).svg() for t in ("auto", "light", "dark"))
    assert LIGHT.node in auto and DARK.node in auto and "prefers-color-scheme:dark" in auto
    assert LIGHT.node in light and DARK.node not in light
    assert DARK.node in dark and LIGHT.node not in dark
    with pytest.raises(upl.UplError, match="UPL1802"):
        upl.draw(perceptron, theme="blue")


def test_a_picture_is_the_same_in_every_process(examples: Path) -> None:
    code = f"import sys, upl_mlir as upl; sys.stdout.write(upl.draw(upl.load({str(examples / 'lstm.upl')!r})).svg())"
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True, check=True, timeout=120,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(texts) == 1 and next(iter(texts)).startswith(b"<svg")


def test_files(perceptron: upl.Program, tmp_path: Path) -> None:
    drawing = upl.draw(perceptron)
    for name, begin in (("p.svg", b"<svg"), ("p.png", b"\x89PNG"), ("p.pdf", b"%PDF"), ("p.dot", b'digraph "perceptron"')):
        drawing.save(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begin)
    assert perceptron._repr_svg_() == drawing._repr_svg_() == drawing.svg()
    with pytest.raises(upl.UplError, match=r"UPL1805.*\.gif"):
        drawing.save(tmp_path / "p.gif")
    assert not (tmp_path / "p.gif").exists()


def test_without_the_extra_there_is_a_message_and_dot(perceptron: upl.Program, monkeypatch: pytest.MonkeyPatch) -> None:
    from upl_mlir.picture import elk

    elk._runtime.cache_clear()
    monkeypatch.setitem(sys.modules, "py_mini_racer", None)
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    monkeypatch.setitem(sys.modules, "typst", None)
    with pytest.raises(upl.UplError, match=r"UPL1804.*mini-racer"):
        upl.draw(perceptron).svg()
    assert perceptron._repr_svg_() is None, "a notebook shows the text then"
    assert "n0 -> n3 [" in upl.draw(perceptron).dot() and "n1 -> n4:p1 [" in upl.draw(perceptron).dot()
    monkeypatch.delitem(sys.modules, "py_mini_racer")
    with pytest.raises(upl.UplError, match=r"UPL1804.*resvg"):
        upl.draw(perceptron).png()
    with pytest.raises(upl.UplError, match=r"UPL1804.*typst(.|\n)*upl-mlir\[pdf\]"):
        upl.draw(perceptron).pdf()


def test_pictures_are_drawn_in_an_event_loop_and_after_its_end(perceptron: upl.Program) -> None:
    from upl_mlir.picture import elk

    elk._runtime.cache_clear()

    async def inside() -> str:
        return upl.draw(perceptron).svg()

    assert asyncio.run(inside()) == upl.draw(perceptron).svg()


ANY_THREAD = """
import threading
import upl_mlir as upl
program, drawn = upl.load("program p\\ninput X { -> A.x }\\nnode A { in x; x -> Y }\\noutput Y"), []
def draw(): drawn.append(upl.draw(program).svg())
go = threading.Event()
before = threading.Thread(target=lambda: (go.wait(), draw()))
before.start()
first = threading.Thread(target=draw)
first.start(); first.join(); go.set(); before.join(); draw()
assert len(drawn) == 3 and len(set(drawn)) == 1
"""


def test_every_thread_can_draw() -> None:
    """The thread that draws first is one, that at the end of Python another.  On processors with protection keys, V8
    crashed the process there, with no word of Python's."""
    done = subprocess.run([sys.executable, "-c", ANY_THREAD], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_without_domains_can_be_drawn(read: Read) -> None:
    wrong = upl.load("program w\noutput Y<i>\ninput X<i> { -> A.x<i> }\nnode A<i> { in x; x -> A.x<i+1>; x -> Y<i> }\n")
    found = read(upl.draw(wrong).svg())
    assert found.box("A").words("u-domain") == [] and len(found.between("A", "A")) == 1


@pytest.mark.parametrize("text", ["program e\nparam n >= 1\n", "program e\noutput Y\nnode M { in x; x -> Y }\n"])
def test_programs_with_little_in_them(text: str, read: Read, tidy: Any) -> None:
    found = read(upl.draw(upl.load(text)).svg())
    assert len(found.boxes) == 2 * text.count("output") and "e" in found.loose.words("u-text")
    tidy(found)


def test_the_layout_library_is_the_one_that_is_named(root: Path) -> None:
    folder = root / "upl_mlir" / "picture" / "elk"
    for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        digest, name = line.split()
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name
    assert "Eclipse Public License" in (folder / "LICENSE.md").read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------------------------ aligning


def test_bands_are_pulled_apart_until_pairs_meet() -> None:
    first, second = [(0.0, 10.0), (20.0, 30.0), (50.0, 60.0)], [(0.0, 30.0), (35.0, 40.0), (90.0, 100.0)]
    f, g = stretches([first, second], [(25.0, 15.0), (55.0, 95.0)])
    assert f(25.0) == g(15.0) and f(55.0) == g(95.0)
    for h, spans in ((f, first), (g, second)):
        assert [round(h(hi) - h(lo), 9) for lo, hi in spans] == [hi - lo for lo, hi in spans], "columns keep their width"
        gaps = [h(b[0]) - h(a[1]) - (b[0] - a[1]) for a, b in pairwise(spans)]
        assert min(gaps) > -1e-9, "gaps only grow"


def test_pairs_that_cross_do_not_break_the_order() -> None:
    spans = [(0.0, 10.0), (20.0, 30.0)]
    f, g = stretches([spans, spans], [(5.0, 25.0), (25.0, 5.0)])
    assert f(5.0) < f(25.0) and g(5.0) < g(25.0)


def test_arrows_with_two_lines_at_their_base_leave_furtherapart(read: Read, tidy: Any) -> None:
    arms = "; ".join(f"if i<{k}: a -> Y{k}<i,c> for c in 0..{k}" for k in range(1, 5))
    outputs = "\n".join(f"output Y{k}<i,c>" for k in range(1, 5))
    program = f"program t\ninput A<i> in 0<=i<9 {{ -> M.a }}\n{outputs}\nnode M<i> {{ in a; {arms} }}\n"
    found = read(upl.draw(upl.load(program)).svg())
    assert [len(a.words("u-condition")) for a in found.arrows if a.words("u-condition")] == [2] * 4
    tidy(found)
