"""The picture of a circuit: ports, head, one box for all lanes with units along the stages, channels with kind and depth.

The place of everything follows from its stage: a unit is a bar from the stage at which it begins to that at which it ends.
What comes from a port enters the box from the left, what comes from earlier instances from the right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from upl_mlir.passes.circuit.body import Node
from upl_mlir.passes.circuit.ir import channels, units
from upl_mlir.passes.circuit.plan import Plan
from upl_mlir.passes.circuit.ports import Input, Order, Output
from upl_mlir.passes.circuit.stages import Site
from upl_mlir.picture.style import Theme, style_sheet
from upl_mlir.picture.text import SIZE, SMALL, cut, escape, widest, width

Stage = Callable[[float], float]
"""Where a stage is on the axis."""
ROW, PAD, AXIS = 40.0, 18.0, 560.0
HEAD = 92.0
"""Above the first row of the lanes' box: its texts and the axis of stages."""


@dataclass
class _Drawing:
    """Elements of SVG, and where the rows of the box are."""

    out: list[str] = field(default_factory=list[str])

    def box(self, x: float, y: float, w: float, h: float, style: str, title: str = "") -> None:
        """A rectangle."""
        shown = f"<title>{escape(title)}</title>" if title else ""
        self.out.append(f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="5">{shown}</rect>')

    def text(self, x: float, y: float, text: str, size: float = SIZE, style: str = "u-text", anchor: str = "start") -> None:
        """A line of text."""
        self.out.append(
            f'<text class="{style}" x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def line(self, points: Sequence[tuple[float, float]], head: bool = True, glued: bool = False) -> None:
        """A line through points, with a head at its end."""
        way = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        self.out.append(f'<path class="u-line{" u-glued" if glued else ""}" d="{way}"/>')
        if head:
            (x0, y0), (x, y) = points[-2:]
            if abs(x - x0) >= abs(y - y0):
                d = -7 if x >= x0 else 7
                self.out.append(f'<path class="u-head" d="M{x:g} {y:g}l{d} -4v8z"/>')
            else:
                d = -7 if y >= y0 else 7
                self.out.append(f'<path class="u-head" d="M{x:g} {y:g}l-4 {d}h8z"/>')


def channel_texts(plan: Plan) -> dict[Site, tuple[str, str]]:
    """Of each channel its name with its kind, and its depth with the number of reads."""
    out: dict[Site, tuple[str, str]] = {}
    for s, c in zip(plan.sites, channels(plan), strict=True):
        index = "<" + ", ".join(map(str, s.index)) + ">" if s.index else " sum"
        depth = f"depth {c.depth.value.data}, {c.reads.value.data} reads"
        out[s] = f"{c.sym_name.data}{index} {c.kind.data}", depth
    return out


def svg_of_circuit(plan: Plan, theme: Theme | None = Theme.AUTO) -> str:
    """The picture as SVG; without a theme it has no colours of its own (the page has them)."""
    d = _Drawing()
    inputs = [s for s in plan.sites if s.written is None]
    links = [s for s in plan.sites if s.written is not None]
    labels = channel_texts(plan)
    bodies = units(plan)
    result = max(1, plan.at.result)
    left_ports = {i.host.name: _port_lines(i.host.name, i.order, i.words, _input_note(i)) for i in plan.inputs}
    right_ports = {o.host.name: _port_lines(o.host.name, o.order, o.words, _output_note(o)) for o in plan.outputs}
    port_width = max(widest(t, SMALL) for t in [*left_ports.values(), *right_ports.values()]) + 24
    in_gap = max((widest(labels[s], SMALL) for s in inputs), default=60.0) + 34
    out_gap = max((widest(labels[s], SMALL) for s in links), default=60.0)
    out_gap = max(out_gap, width("result of each instance", SMALL)) + 46
    box_x, box_y = PAD + port_width + in_gap, PAD + 62
    x0, rows = box_x + 34, [*inputs, *links, *(node for _, node in bodies)]
    y, low = _rows(plan, rows, left_ports, box_y + HEAD)
    box_w, box_h = AXIS + 110, low + ROW - box_y
    last = box_y + box_h

    def x(stage: float) -> float:
        return x0 + AXIS * stage / result

    _frame(d, plan, (box_x, box_y, box_w, box_h), x)
    ends: dict[Node, tuple[float, float]] = {}
    for s in [*inputs, *links]:
        ends[s.node] = x(s.stage), y[s]
    for _, node in bodies:
        ends[node] = x(plan.at.end(node)), y[node]
    own = {(s.node, s.stage): (x(s.stage), y[s]) for s in links}
    for name, node in bodies:
        _unit(d, plan, node, name, (x, y[node]), [own.get((a, plan.at.start[node]), ends.get(a)) for a in node.args])
    heights = _ports(d, plan, left_ports, {i.host.name: [y[r.site] for r in i.reads] for i in plan.inputs}, PAD, port_width)
    for s in inputs:
        d.line([(PAD + port_width, y[s]), (x(s.stage), y[s])])
        _channel(d, labels[s], PAD + port_width + 10, y[s])
    right = box_x + box_w
    for s in links:
        d.line([(right + out_gap - 14, y[s]), (x(s.stage), y[s])], glued=True)
        _channel(d, labels[s], right + 20, y[s])
    at = ends.get(plan.process.body.result, (x(0), last - ROW))
    bottom = last - ROW * 0.5
    far = right + out_gap
    d.line([at, (x(result), at[1]), (x(result), bottom), (far, bottom)])
    d.text(right + 20, bottom - 6, "result of each instance", SMALL)
    if links:
        top = min(y[s] for s in links)
        d.line([(far - 14, bottom), (far - 14, top)], head=False, glued=True)
    _ports(d, plan, right_ports, {n: [bottom] for n in right_ports}, far, port_width)
    w, h = far + port_width + PAD, max([last, heights, bottom + 40 * len(right_ports)]) + PAD + 6
    sheet = "" if theme is None else style_sheet(theme)
    sheet += ".c-thin{stroke-width:.6}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="upl-picture" width="{w:g}" height="{h:g}" '
        f'viewBox="0 0 {w:g} {h:g}"><style>{sheet}</style><title>{escape(f"circuit {plan.process.name}")}</title>'
        f'<rect class="u-page" width="{w:g}" height="{h:g}"/>{"".join(d.out)}</svg>\n'
    )


def _rows(
    plan: Plan, rows: Sequence[Site | Node], ports: dict[str, list[str]], top: float
) -> tuple[dict[object, float], float]:
    """The height of each row, and where the last one ends; the rows of a port leave room for its box."""
    y: dict[object, float] = {}
    at = top
    for i in plan.inputs:
        sites = [r.site for r in i.reads]
        free = max(0.0, 14 * len(ports[i.host.name]) + 20 - ROW * len(sites))
        for n, s in enumerate(sites):
            y[s] = at + free / 2 + ROW * (n + 0.5)
        at += free + ROW * len(sites)
    for row in rows:
        if row not in y:
            y[row] = at + ROW / 2
            at += ROW
    return y, at


def _frame(d: _Drawing, plan: Plan, box: tuple[float, float, float, float], x: Stage) -> None:
    """The head, the box of all lanes (behind it the edges of others), its texts and the axis of stages."""
    nest, (bx, by, bw, bh) = plan.nest, box
    text = "head: a slot passes if the words are there that the next group needs, and room for results"
    d.box(bx, PAD, max(width(text, SMALL) + 20, 200), 30, "u-constants")
    d.text(bx + 10, PAD + 19, text, SMALL)
    d.line([(bx + 60, PAD + 30), (bx + 60, by)])
    d.text(bx + 70, by - 10, "enable, start: lane after lane, a clock later each", SMALL)
    for n in range(min(2, nest.lanes - 1), 0, -1):
        d.box(bx + 6 * n, by + 6 * n, bw, bh, "u-node")
    d.box(bx, by, bw, bh, "u-node", f"process {plan.process.name}")
    lanes = f"×{nest.lanes} along {nest.along}, skew {nest.skew}" if nest.lanes > 1 else "one lane"
    d.text(bx + 14, by + 22, f"{plan.process.name}.process  {lanes}")
    over = "over " + ", ".join(map(str, nest.dims))
    loops = ", ".join(f"{f}: {e}" for f, e in zip(nest.order, nest.every, strict=True))
    d.text(bx + 14, by + 40, cut(over, 96), SMALL, "u-domain")
    d.text(bx + 14, by + 56, cut(f"loops with the slots of an iteration {loops}; a run {nest.slots} slots", 96), SMALL)
    marks = sorted({0, plan.at.result, *plan.at.start.values()})
    taken = -100.0
    for stage in marks:
        at = x(stage)
        d.out.append(f'<path class="u-band c-thin" d="M{at:g} {by + HEAD - 8:g}V{by + bh - 8:g}"/>')
        if at - taken > 26:
            d.text(at, by + HEAD - 12, str(stage), SMALL, "u-condition", "middle")
            taken = at
    d.text(bx + bw - 8, by + 22, "numbers: stages; name: latency", SMALL, "u-condition", "end")


def _unit(
    d: _Drawing, plan: Plan, node: Node, name: str, at: tuple[Stage, float], args: Sequence[tuple[float, float] | None]
) -> None:
    """A unit as a bar, and the ways of its operands."""
    x, y = at
    start, end = x(plan.at.start[node]), x(plan.at.end(node))
    w = max(end - start, 5.0)
    for n, source in enumerate(args):
        if source is not None:
            sx, sy = source
            to = y - 8 + 5 * n
            d.line([(sx, sy), (sx, to), (start, to)], head=False)
            d.out.append(f'<circle class="u-head" cx="{start:g}" cy="{to:g}" r="2.6"/>')
    d.box(start, y - 12, w, 24, "u-value", f"{name}: {node.kind}, stages {plan.at.start[node]} to {plan.at.end(node)}")
    label = f"{name}: {plan.at.end(node) - plan.at.start[node]}"
    if w > width(label, SMALL) + 8:
        d.text(start + 6, y + 4, label, SMALL)
    elif end + width(label, SMALL) > x(plan.at.result) + 60:
        d.text(start - 7, y + 4, label, SMALL, anchor="end")
    else:
        d.text(end + 8, y + 4, label, SMALL)


def _channel(d: _Drawing, label: tuple[str, str], x: float, y: float) -> None:
    d.text(x, y - 5, label[0], SMALL, "u-domain")
    d.text(x, y + 13, label[1], SMALL)


def _ports(
    d: _Drawing, plan: Plan, ports: dict[str, list[str]], rows: dict[str, list[float]], x: float, w: float
) -> float:
    """The boxes of ports beside their rows, none over another one; returns the lowest end."""
    low = 0.0
    for name, lines in ports.items():
        h = 14 * len(lines) + 12
        wanted = rows[name] or [low + h]
        top = max(low + 6 if low else 0.0, min(wanted[0] - 14, sum(wanted) / len(wanted) - h / 2))
        h = max(h, max(wanted) - top + 12)
        d.box(x, top, w, h, "u-host", f"port {name}")
        for n, line in enumerate(lines):
            d.text(x + 12, top + 18 + 14 * n, line, SIZE if not n else SMALL)
        low = top + h
    return low


def _port_lines(name: str, order: Order, words: int, notes: Sequence[str]) -> list[str]:
    return [name, f"order {', '.join(map(str, order))}", f"{words} words a run", *notes]


def _input_note(i: Input) -> list[str]:
    return [cut(f"{what} loop {r.level}: " + ", ".join(f"{n} x {w}" for n, w in r.runs), 36)
            for what, r in (("need", i.need), ("free", i.free))]  # fmt: skip


def _output_note(o: Output) -> list[str]:
    return [f"turns from slot {o.wait}", f"queue of {o.depth} a lane"] if len(o.lanes) > 1 else [f"of lane {max(o.lanes)}"]
