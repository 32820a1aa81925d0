"""The picture of a circuit: ports, head, a box for the lanes of each process, channels with kind and depth.

The boxes lie one below the other, each process below those that it reads of.  The place of everything in a box follows from
its stage: a unit is a bar from the stage at which it begins to that at which it ends.  What comes from a port enters a box
from the left, what comes from earlier instances, of the same or of another process, from the right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from upl_mlir.passes.circuit.body import Node
from upl_mlir.passes.circuit.channels.inner import Stream
from upl_mlir.passes.circuit.channels.inputs import Input
from upl_mlir.passes.circuit.channels.orders import Order
from upl_mlir.passes.circuit.channels.outputs import Output
from upl_mlir.passes.circuit.ir import channels, process_name, stream_name, units
from upl_mlir.passes.circuit.plan import Part, Plan, at_sites
from upl_mlir.passes.circuit.stages import Site
from upl_mlir.picture.style import Theme, style_sheet
from upl_mlir.picture.text import SIZE, SMALL, cut, escape, widest, width

ROW, PAD, AXIS = 40.0, 18.0, 560.0
HEAD = 92.0
"""Above the first row of a box: its texts and the axis of stages."""
BETWEEN = 46.0
"""Between boxes."""
BUS = 14.0
"""Between lines beside each other."""


@dataclass
class _Drawing:
    """Elements of SVG."""

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

    def dot(self, x: float, y: float) -> None:
        """Where lines meet."""
        self.out.append(f'<circle class="u-head" cx="{x:g}" cy="{y:g}" r="2.6"/>')

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


@dataclass(eq=False)
class _Columns:
    """From left to right: ports, lines of inputs that several processes read, boxes, streams between processes, a line for
    the results of each process that is read, outputs."""

    ports: float
    trunks: dict[str, float]
    labels: float
    box: float
    streams: float
    stream_width: float
    buses: dict[int, float]
    outputs: float


@dataclass(eq=False)
class _Box:
    """The box of a process: where it is, and the rows of its reads and units."""

    number: int
    part: Part
    units: list[tuple[str, Node]]
    ports: list[tuple[str, list[Site]]]
    others: list[Site]
    streams: list[tuple[str, list[Site]]]
    own: list[Site]
    x: float
    y: float
    rows: dict[object, float] = field(default_factory=dict[object, float])
    low: float = 0.0

    width = AXIS + 110

    @property
    def bottom(self) -> float:
        """The row of the result."""
        return self.low - ROW * 0.5

    def at(self, stage: float) -> float:
        """Where a stage is."""
        return self.x + 34 + AXIS * stage / max(1, self.part.at.result)


def title_of(plan: Plan) -> str:
    """What a plan is called: its process, or the program if there are several."""
    return plan.parts[0].process.name if len(plan.parts) == 1 else plan.name


def channel_texts(plan: Plan) -> dict[Site, tuple[str, str]]:
    """Of each channel its name with its kind, and its depth with the number of reads."""
    out: dict[Site, tuple[str, str]] = {}
    for (_, s), c in zip(at_sites(plan), channels(plan), strict=True):
        index = "<" + ", ".join(map(str, s.index)) + ">" if s.index else " sum" if s.running else ""
        depth = f"depth {c.depth.value.data}, {c.reads.value.data} reads"
        out[s] = f"{c.sym_name.data}{index} {c.kind.data}", depth
    return out


def svg_of_circuit(plan: Plan, theme: Theme | None = Theme.AUTO) -> str:
    """The picture as SVG; without a theme it has no colours of its own (the page has them)."""
    d = _Drawing()
    labels = channel_texts(plan)
    left = {i.name: _port_lines(i.name, i.order, i.words, _input_note(plan, i)) for i in plan.inputs}
    inner = {n: _port_lines(n, s.sent.order, s.sent.words, _output_note(s.sent)) for n, s in _streams(plan).items()}
    right = {o.name: _port_lines(o.name, o.order, o.words, _output_note(o)) for o in plan.outputs}
    port_width = max(widest(t, SMALL) for t in [*left.values(), *right.values()]) + 24
    c = _columns(plan, labels, port_width, max((widest(t, SMALL) for t in inner.values()), default=0.0))
    boxes: list[_Box] = []
    y = PAD + 62
    drawn: set[str] = set()
    for n in range(len(plan.parts)):
        box = _box(plan, n, c.box, y)
        _rows(box, {k: len(lines) for k, lines in left.items() if k not in drawn}, {k: len(v) for k, v in inner.items()})
        drawn |= {name for name, _ in box.ports}
        boxes.append(box)
        y = box.low + ROW + BETWEEN
        box.low += ROW
    _head(d, plan, boxes)
    for box in boxes:
        _frame(d, plan, box)
        shown = any(o.part == box.number for o in plan.outputs)
        _body(d, box, c.outputs if shown else c.buses.get(box.number, c.outputs), shown)
    low = _inputs(d, boxes, c, left, port_width, labels)
    low = max(low, _results(d, plan, boxes, c, labels, inner, right, port_width))
    w, h = c.outputs + port_width + PAD, max(boxes[-1].low, low) + PAD + 6
    sheet = "" if theme is None else style_sheet(theme)
    sheet += ".c-thin{stroke-width:.6}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="upl-picture" width="{w:g}" height="{h:g}" '
        f'viewBox="0 0 {w:g} {h:g}"><style>{sheet}</style><title>{escape(f"circuit {title_of(plan)}")}</title>'
        f'<rect class="u-page" width="{w:g}" height="{h:g}"/>{"".join(d.out)}</svg>\n'
    )


def _streams(plan: Plan) -> dict[str, Stream]:
    return {stream_name(plan, s): s for s in plan.streams}


def _columns(plan: Plan, labels: Mapping[Site, tuple[str, str]], port_width: float, stream_text: float) -> _Columns:
    """The columns, as wide as their texts."""
    inputs = [s for _, s in at_sites(plan) if s.written is None]
    links = [s for _, s in at_sites(plan) if s.written is not None]
    several = [i.name for i in plan.inputs if len(i.feeds) > 1]
    read = {s.array for s in links}
    buses = [n for n, p in enumerate(plan.parts) if p.process.name in read]
    in_gap = max((widest(labels[s], SMALL) for s in inputs), default=60.0) + 34
    if len(plan.parts) > 1:
        in_gap += BUS  # the line from the head
    out_gap = max((widest(labels[s], SMALL) for s in links), default=60.0)
    out_gap = max(out_gap, width("result of each instance", SMALL)) + 46
    ports = PAD + port_width
    label = ports + BUS * len(several)
    box = label + in_gap
    streams = box + _Box.width + out_gap - BUS
    stream_width = stream_text + 24 if plan.streams else 0.0
    bus = streams + (stream_width + 2 * BUS if plan.streams else 0.0)
    return _Columns(
        ports, {n: ports + BUS * (k + 1) for k, n in enumerate(several)}, label, box, streams, stream_width,
        {n: bus + BUS * k for k, n in enumerate(buses)}, bus + BUS * max(1, len(buses)),
    )  # fmt: skip


def _box(plan: Plan, n: int, x: float, y: float) -> _Box:
    """The box of a process, without its rows."""
    part = plan.parts[n]
    ports = [(i.name, [r.site for r in f.reads]) for i in plan.inputs for f in i.feeds if f.part == n]
    streams = [(name, [r.site for r in s.feed.reads]) for name, s in _streams(plan).items() if s.feed.part == n]
    others = [s for s in part.sites if not s.own and (s in part.links or s in part.buffers)]
    made = [(name, node) for name, of, node in units(plan) if of is part]
    return _Box(n, part, made, ports, others, streams, [s for s in part.sites if s.own], x, y)


def _rows(box: _Box, ports: Mapping[str, int], streams: Mapping[str, int]) -> None:
    """The height of each row, and where the last one ends; rows of a port or stream leave room for its box, of so many
    lines."""
    at = box.y + HEAD
    between: list[tuple[str, list[Site]]] = [("", [s]) for s in box.others]
    for name, sites in [*box.ports, *between, *box.streams]:
        lines = ports.get(name, streams.get(name))
        free = max(0.0, 14 * lines + 20 - ROW * len(sites)) if lines is not None else 0.0
        for n, s in enumerate(sites):
            box.rows[s] = at + free / 2 + ROW * (n + 0.5)
        at += free + ROW * len(sites)
    for row in [*box.own, *(node for _, node in box.units)]:
        box.rows[row] = at + ROW / 2
        at += ROW
    box.low = at


def _head(d: _Drawing, plan: Plan, boxes: Sequence[_Box]) -> None:
    """The head, and the ways to the first lane of each process."""
    bx, by = boxes[0].x, boxes[0].y
    text = "head: a slot passes if the words are there that the next group needs, and room for results"
    d.box(bx, PAD, max(width(text, SMALL) + 20, 200), 30, "u-constants")
    d.text(bx + 10, PAD + 19, text, SMALL)
    d.line([(bx + 60, PAD + 30), (bx + 60, by)])
    d.text(bx + 70, by - 10, "enable, start: lane after lane, a clock later each", SMALL)
    for box in boxes[1:]:
        d.line([(bx, PAD + 15), (bx - BUS, PAD + 15), (bx - BUS, box.y + 18), (bx, box.y + 18)])
        d.text(bx + 70, box.y - 10, f"enable as above, start {box.part.nest.start} slots after the circuit's", SMALL)


def _frame(d: _Drawing, plan: Plan, box: _Box) -> None:
    """The box of all lanes (behind it the edges of others), its texts and the axis of stages."""
    part, nest, bx, by, bw, bh = box.part, box.part.nest, box.x, box.y, box.width, box.low - box.y
    for n in range(min(2, nest.lanes - 1), 0, -1):
        d.box(bx + 6 * n, by + 6 * n, bw, bh, "u-node")
    d.box(bx, by, bw, bh, "u-node", f"process {part.process.name}")
    lanes = f"×{nest.lanes} along {nest.along}, skew {nest.skew}" if nest.lanes > 1 else "one lane"
    if len(plan.parts) > 1:
        lanes += f", from slot {nest.start} on"
    d.text(bx + 14, by + 22, f"{cut(process_name(part), 40)}  {lanes}")
    over = "over " + ", ".join(map(str, nest.dims))
    ways = [f"{f} down" if f in nest.down else f for f in nest.order]
    loops = ", ".join(f"{f}: {e}" for f, e in zip(ways, nest.every, strict=True))
    d.text(bx + 14, by + 40, cut(over, 96), SMALL, "u-domain")
    d.text(bx + 14, by + 56, cut(f"loops with the slots of an iteration {loops}; a run {nest.slots} slots", 96), SMALL)
    marks = sorted({0, part.at.result, *part.at.start.values()})
    taken = -100.0
    for stage in marks:
        at = box.at(stage)
        d.out.append(f'<path class="u-band c-thin" d="M{at:g} {by + HEAD - 8:g}V{by + bh - 8:g}"/>')
        if at - taken > 26:
            d.text(at, by + HEAD - 12, str(stage), SMALL, "u-condition", "middle")
            taken = at
    d.text(bx + bw - 8, by + 22, "numbers: stages; name: latency", SMALL, "u-condition", "end")


def _body(d: _Drawing, box: _Box, to: float, shown: bool) -> None:
    """The units of a box, and the way of the result to an output that shows it, or to where it is read."""
    part, y = box.part, box.rows
    ends: dict[Node, tuple[float, float]] = {s.node: (box.at(s.stage), y[s]) for s in part.sites if s in y}
    ends |= {node: (box.at(part.at.end(node)), y[node]) for _, node in box.units}
    own = {(s.node, s.stage): (box.at(s.stage), y[s]) for s in box.own}
    for _, node in box.units:
        _operands(d, box, node, [own.get((a, part.at.start[node]), ends.get(a)) for a in node.args])
    for name, node in box.units:  # bars lie over the lines
        _unit(d, box, node, name)
    result = box.at(max(1, part.at.result))
    at = ends.get(part.process.body.result, (box.at(0), box.bottom - ROW * 0.5))
    d.line([at, (result, at[1]), (result, box.bottom), (to, box.bottom)], head=shown)


def _operands(d: _Drawing, box: _Box, node: Node, args: Sequence[tuple[float, float] | None]) -> None:
    """The ways of the operands of a unit."""
    start, y = box.at(box.part.at.start[node]), box.rows[node]
    for n, source in enumerate(args):
        if source is not None:
            sx, sy = source
            to = y - 8 + 5 * n
            d.line([(sx, sy), (sx, to), (start, to)], head=False)
            d.dot(start, to)


def _unit(d: _Drawing, box: _Box, node: Node, name: str) -> None:
    """A unit as a bar."""
    at, y = box.part.at, box.rows[node]
    start, end = box.at(at.start[node]), box.at(at.end(node))
    w = max(end - start, 5.0)
    d.box(start, y - 12, w, 24, "u-value", f"{name}: {node.kind}, stages {at.start[node]} to {at.end(node)}")
    label = f"{name}: {at.end(node) - at.start[node]}"
    if w > width(label, SMALL) + 8:
        d.text(start + 6, y + 4, label, SMALL)
    elif end + width(label, SMALL) > box.at(at.result) + 60:
        d.text(start - 7, y + 4, label, SMALL, anchor="end")
    else:
        d.text(end + 8, y + 4, label, SMALL)


def _inputs(
    d: _Drawing, boxes: Sequence[_Box], c: _Columns, lines: Mapping[str, list[str]], port_width: float,
    labels: Mapping[Site, tuple[str, str]],
) -> float:  # fmt: skip
    """The boxes of inputs, each beside the first process that reads it, and the lines to all that do; returns the lowest
    end."""
    first: dict[str, list[float]] = {}
    trunks: dict[str, list[float]] = {}
    for box in boxes:
        for name, sites in box.ports:
            again = name in first
            if not again:
                first[name] = [box.rows[s] for s in sites]
            for s in sites:
                y = box.rows[s]
                d.line([(c.trunks[name] if again else c.ports, y), (box.at(s.stage), y)])
                _channel(d, labels[s], c.labels + 10, y)
                if again:
                    d.dot(c.trunks[name], y)
                    trunks.setdefault(name, [first[name][-1]]).append(y)
    for name, ys in trunks.items():
        d.line([(c.trunks[name], ys[0]), (c.trunks[name], ys[-1])], head=False)
        d.dot(c.trunks[name], ys[0])
    return _ports(d, {n: lines[n] for n in first}, first, PAD, port_width)


def _results(
    d: _Drawing, plan: Plan, boxes: Sequence[_Box], c: _Columns, labels: Mapping[Site, tuple[str, str]],
    inner: Mapping[str, list[str]], lines: Mapping[str, list[str]], port_width: float,
) -> float:  # fmt: skip
    """Where results go: to the lines of the processes that are read, from there to their readers, and to outputs; returns
    the lowest end."""
    numbers = {p.process.name: n for n, p in enumerate(plan.parts)}
    read: dict[int, list[float]] = {}
    for box in boxes:
        right = box.x + box.width
        n, bottom = box.number, box.bottom
        d.text(right + 20, bottom - 6, "result of each instance", SMALL)
        for s in box.own:
            d.line([(c.buses[n], box.rows[s]), (box.at(s.stage), box.rows[s])], glued=True)
            _channel(d, labels[s], right + 20, box.rows[s])
        if box.own:
            d.line([(c.buses[n], bottom), (c.buses[n], min(box.rows[s] for s in box.own))], head=False, glued=True)
        for s in box.others:
            y, of = box.rows[s], numbers[s.array]
            read.setdefault(of, []).append(y)
            d.line([(c.buses[of], y), (box.at(s.stage), y)])
            _channel(d, labels[s], right + 20, y)
        for name, sites in box.streams:
            ys, of = [box.rows[s] for s in sites], numbers[sites[0].array]
            read.setdefault(of, []).append(sum(ys) / len(ys))
            d.line([(c.buses[of], read[of][-1]), (c.streams + c.stream_width, read[of][-1])])
            for s in sites:
                d.line([(c.streams, box.rows[s]), (box.at(s.stage), box.rows[s])])
                _channel(d, labels[s], right + 20, box.rows[s])
            _ports(d, {name: inner[name]}, {name: ys}, c.streams, c.stream_width)
    for of, ys in read.items():
        d.line([(c.buses[of], boxes[of].bottom), (c.buses[of], max(ys))], head=False)
        for y in [boxes[of].bottom, *ys]:
            d.dot(c.buses[of], y)
    shown: dict[str, list[float]] = {}
    for box in boxes:
        y = box.bottom
        for o in (o for o in plan.outputs if o.part == box.number):
            shown[o.name] = [y]
            if y > box.bottom:
                d.line([(c.outputs - BUS / 2, box.bottom), (c.outputs - BUS / 2, y), (c.outputs, y)])
            y += 14 * len(lines[o.name]) + 18
    return _ports(d, {n: lines[n] for n in shown}, shown, c.outputs, port_width)


def _channel(d: _Drawing, label: tuple[str, str], x: float, y: float) -> None:
    d.text(x, y - 5, label[0], SMALL, "u-domain")
    d.text(x, y + 13, label[1], SMALL)


def _ports(
    d: _Drawing, ports: Mapping[str, list[str]], rows: Mapping[str, list[float]], x: float, w: float
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


def _input_note(plan: Plan, i: Input) -> list[str]:
    notes = [cut(f"{what} loop {r.level}: " + ", ".join(f"{n} x {w}" for n, w in r.runs), 36)
             for what, r in (("need", i.need), ("free", i.free))]  # fmt: skip
    if len(plan.parts) == 1:
        return notes
    loops = " and ".join(plan.parts[n].process.name for n in dict.fromkeys((i.by, i.until)))
    return [*notes, cut(f"by the loops of {loops}", 36)]


def _output_note(o: Output) -> list[str]:
    return [f"turns from slot {o.wait}", f"queue of {o.depth} a lane"] if len(o.lanes) > 1 else [f"of lane {max(o.lanes)}"]
