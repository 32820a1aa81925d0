"""Where everything stands: every band is laid out by ELK's layered algorithm, then the bands are aligned, so that a node
of the derivative stands under the node that it belongs to.

The first band runs to the right.  In reverse mode the second one runs to the left, as derivatives do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from upl_mlir.picture import elk
from upl_mlir.picture.align import Map, stretches
from upl_mlir.picture.model import Arrow, Band, Box, Picture
from upl_mlir.picture.notes import Notes
from upl_mlir.picture.shapes import PlacedShape, Point, Shape, base_shape, box_shape, domain_shape, label_shape

OPTIONS = {
    "elk.algorithm": "layered",
    "elk.edgeRouting": "ORTHOGONAL",
    "elk.randomSeed": "1",
    "elk.padding": "[top=16,left=16,bottom=16,right=16]",
    "elk.spacing.nodeNode": "30",
    "elk.spacing.edgeNode": "18",
    "elk.spacing.edgeEdge": "14",
    "elk.spacing.edgeLabel": "3",
    "elk.spacing.labelNode": "8",
    "elk.spacing.componentComponent": "36",
    "elk.layered.spacing.nodeNodeBetweenLayers": "34",
    "elk.layered.spacing.edgeNodeBetweenLayers": "16",
    "elk.layered.spacing.edgeEdgeBetweenLayers": "14",
    "elk.layered.cycleBreaking.strategy": "GREEDY_MODEL_ORDER",
    "elk.layered.nodePlacement.strategy": "NETWORK_SIMPLEX",
    "elk.layered.considerModelOrder.strategy": "PREFER_EDGES",
}
"""What ELK is asked for; distances in pixels."""
ROUGH = {"elk.layered.nodePlacement.strategy": "SIMPLE", "elk.edgeRouting": "POLYLINE"}
"""What is enough to learn in which order arrows leave; a quarter of the time."""


@dataclass(frozen=True)
class PlacedBox:
    """A box with its place."""

    box: Box
    at: PlacedShape
    domain: PlacedShape | None


@dataclass(frozen=True)
class PlacedArrow:
    """An arrow: its line from the source's outline to the target's, and its texts."""

    arrow: Arrow
    line: tuple[Point, ...]
    label: PlacedShape | None
    base: PlacedShape | None
    joins: tuple[Point, ...] = ()  # where it joins arrows to the same input


@dataclass
class LayoutPlan:
    """A band, or several, with every place known."""

    boxes: list[PlacedBox] = field(default_factory=list[PlacedBox])
    arrows: list[PlacedArrow] = field(default_factory=list[PlacedArrow])
    bands: list[tuple[Band, float, float]] = field(default_factory=list[tuple[Band, float, float]])  # from y, height
    width: float = 0.0
    height: float = 0.0

    def add(self, other: LayoutPlan) -> None:
        """Take in the boxes and arrows of another plan, where they are."""
        self.boxes += other.boxes
        self.arrows += other.arrows

    def moved(self, dx: float, dy: float) -> LayoutPlan:
        """The plan somewhere else."""
        def by(x: float) -> float:
            return x + dx

        return self.stretched(by, dy)

    def stretched(self, where: Map, dy: float = 0.0) -> LayoutPlan:
        """The plan with every x mapped by a function, which keeps boxes and labels rigid, and moved down by `dy`."""

        def shape(at: PlacedShape) -> PlacedShape:
            return PlacedShape(at.shape, where(at.x), at.y + dy)

        def arrow(a: PlacedArrow) -> PlacedArrow:
            line = tuple((where(x), y + dy) for x, y in a.line)
            joins = tuple((where(x), y + dy) for x, y in a.joins)
            return PlacedArrow(a.arrow, line, a.label and shape(a.label), a.base and shape(a.base), joins)

        return LayoutPlan(
            [PlacedBox(b.box, shape(b.at), b.domain and shape(b.domain)) for b in self.boxes],
            [arrow(a) for a in self.arrows], [(band, y + dy, h) for band, y, h in self.bands],
            where(self.width), self.height,
        )  # fmt: skip


BAND_GAP, CAPTION = 22.0, 26.0


def lay_out(picture: Picture, notes: Notes) -> LayoutPlan:
    """Places for the whole picture.  Raises UplError (UPL1804) without the JavaScript engine."""
    plans = [lay_out_band(picture, band, notes) for band in picture.bands]
    if len(plans) == 2:
        first, second = plans
        maps = stretches([_spans(first), _spans(second)], _pairs(first, second))
        plans = [plan.stretched(f) for plan, f in zip(plans, maps, strict=True)]
    return stacked(picture.bands, plans)


def stacked(bands: Sequence[Band], plans: Sequence[LayoutPlan]) -> LayoutPlan:
    """The plans of bands, one under the other; several have captions."""
    if len(plans) < 2:
        return plans[0] if plans else LayoutPlan()
    out = LayoutPlan(width=max(p.width for p in plans))
    for band, plan in zip(bands, plans, strict=True):
        top = out.height + (BAND_GAP if out.bands else 0.0)
        out.add(plan.moved(0.0, top + CAPTION))
        out.bands.append((band, top, plan.height + CAPTION))
        out.height = top + CAPTION + plan.height
    return out


def _pairs(first: LayoutPlan, second: LayoutPlan) -> list[tuple[float, float]]:
    """The middles of nodes of the first band, and of what belongs to them in the second."""
    middles = {b.box.name: b.at.x + b.at.shape.width / 2 for b in first.boxes if not b.box.glued}
    return [
        (middles[b.box.primal], b.at.x + b.at.shape.width / 2)
        for b in second.boxes
        if b.box.primal in middles and not b.box.glued
    ]


def _spans(plan: LayoutPlan) -> list[tuple[float, float]]:
    """The intervals of x that must keep their length: of boxes and of texts."""
    shapes = [b.at for b in plan.boxes]
    shapes += [b.domain for b in plan.boxes if b.domain is not None]
    shapes += [s for a in plan.arrows for s in (a.label, a.base) if s is not None]
    return [(s.x, s.x + s.shape.width) for s in shapes]


def lay_out_band(picture: Picture, band: Band, notes: Notes) -> LayoutPlan:
    """Places for what is in one band."""
    boxes = [b for b in picture.boxes if b.band is band]
    ids = {b.id for b in boxes}
    arrows = [a for a in picture.arrows if a.source in ids]
    mirrored = picture.mirrored and band is Band.DERIVATIVE
    graph = _Graph(boxes, arrows, mirrored, notes)
    if any(len(own) > 1 for own in graph.leaving.values()):  # once more, now that it is known in which order they leave
        graph.sort_exits(elk.layout(graph.json(fixed=False)))
    return graph.plan(elk.layout(graph.json(fixed=True)))


class _Graph:
    """The graph of one band, for ELK and back."""

    def __init__(self, boxes: Sequence[Box], arrows: Sequence[Arrow], mirrored: bool, notes: Notes):
        self.boxes, self.arrows, self.mirrored = boxes, arrows, mirrored
        self.leaving: dict[str, list[str]] = {b.id: [] for b in boxes}
        for a in arrows:
            self.leaving[a.source].append(a.id)
        self.shapes = {
            b.id: box_shape(b, [a for a in arrows if a.source == b.id], notes, mirrored=mirrored) for b in boxes
        }
        self.domains = {b.id: domain_shape(b, notes) for b in boxes}
        self.loops = [a for a in arrows if a.source == a.target]
        self.labels = {a.id: (label_shape(a, notes, mirrored=mirrored), base_shape(a, notes)) for a in arrows}

    def sort_exits(self, answer: dict[str, Any]) -> None:
        """Let arrows leave in the order that ELK has found."""
        for child in cast("list[dict[str, Any]]", answer["children"]):
            if child["id"] not in self.leaving:
                continue
            heights = {p["id"].partition(" ")[2]: p["y"] for p in child["ports"] if p["id"].startswith("out ")}
            self.leaving[child["id"]].sort(key=lambda a: (heights[a], a))

    def json(self, *, fixed: bool) -> dict[str, Any]:
        """The graph as ELK's JSON; without `fixed` it may choose the order of ports on a side."""
        return {
            "id": "root",
            "layoutOptions": {
                **OPTIONS, **({} if fixed else ROUGH), "elk.direction": "LEFT" if self.mirrored else "RIGHT",
            },
            "children": [*(self._child(b, fixed) for b in self.boxes), *(self._way_point(a) for a in self.loops)],
            "edges": [*map(self._edge, self.arrows), *map(self._way_back, self.loops)],
        }

    def _child(self, box: Box, fixed: bool) -> dict[str, Any]:
        shape = self.shapes[box.id]
        side_in, side_out = ("EAST", "WEST") if self.mirrored else ("WEST", "EAST")
        ports = [
            {"id": f"in {box.id} {name}", "x": x, "y": y, "layoutOptions": {"elk.port.side": side_in}}
            for name, ((x, y), _) in shape.entries.items()
        ]
        ports += [
            {"id": f"out {a}", "x": x, "y": y, "layoutOptions": {"elk.port.side": side_out}}
            for a, ((x, y), _) in zip(self.leaving[box.id], shape.exits, strict=True)
        ]
        under = self.domains[box.id]
        labels: list[dict[str, Any]] = []
        if under is not None:
            labels = [{"text": "domain", "width": under.width, "height": under.height}]
        return {
            "id": box.id, "width": shape.width, "height": shape.height, "ports": ports, "labels": labels,
            "layoutOptions": {
                "elk.portConstraints": "FIXED_POS" if fixed else "FIXED_SIDE",
                "elk.nodeLabels.placement": "[H_CENTER, V_BOTTOM, OUTSIDE]",
            },
        }  # fmt: skip

    def _way_point(self, a: Arrow) -> dict[str, Any]:
        """The label of an arrow from a node to itself, as a node: ELK writes the labels of such arrows over each other."""
        label = self.labels[a.id][0] or Shape(1.0, 1.0)
        ends = ((0.0, "WEST"), (label.width, "EAST"))
        places = zip(("to", "from"), reversed(ends) if self.mirrored else ends, strict=True)
        return {
            "id": f"loop {a.id}", "width": label.width, "height": label.height,
            "ports": [
                {"id": f"{name} {a.id}", "x": x, "y": label.height / 2, "layoutOptions": {"elk.port.side": side}}
                for name, (x, side) in places
            ],
            "layoutOptions": {"elk.portConstraints": "FIXED_POS"},
        }  # fmt: skip

    def _way_back(self, a: Arrow) -> dict[str, Any]:
        return {"id": f"back {a.id}", "sources": [f"from {a.id}"], "targets": [f"in {a.target} {a.port}"]}

    def _edge(self, a: Arrow) -> dict[str, Any]:
        labels: list[dict[str, Any]] = []
        loop = a in self.loops
        for shape, where in zip(self.labels[a.id], ("CENTER", "TAIL"), strict=True):
            if shape is not None and not (loop and where == "CENTER"):
                options = {"elk.edgeLabels.placement": where}
                if where == "CENTER":
                    options["elk.edgeLabels.inline"] = "true"
                labels.append({
                    "id": f"{where} {a.id}", "text": where, "width": shape.width, "height": shape.height,
                    "layoutOptions": options,
                })  # fmt: skip
        target = f"to {a.id}" if loop else f"in {a.target} {a.port}"
        return {"id": a.id, "sources": [f"out {a.id}"], "targets": [target], "labels": labels}

    def plan(self, answer: dict[str, Any]) -> LayoutPlan:
        """The places that ELK has found."""
        out = LayoutPlan(width=answer["width"], height=answer["height"])
        at: dict[str, PlacedShape] = {}
        domains: dict[str, PlacedShape] = {}
        children = {c["id"]: c for c in cast("list[dict[str, Any]]", answer["children"])}
        for child in (children[b.id] for b in self.boxes):
            at[child["id"]] = PlacedShape(self.shapes[child["id"]], child["x"], child["y"])
            under = self.domains[child["id"]]
            if under is not None:
                label = child["labels"][0]
                domains[child["id"]] = PlacedShape(under, child["x"] + label["x"], child["y"] + label["y"])
        out.boxes = [PlacedBox(b, at[b.id], domains.get(b.id)) for b in self.boxes]
        edges = {e["id"]: e for e in cast("list[dict[str, Any]]", answer["edges"])}
        for a in self.arrows:
            parts = [edges[a.id], edges[f"back {a.id}"]] if a in self.loops else [edges[a.id]]
            out.arrows.append(self._arrow(a, parts, at, children.get(f"loop {a.id}")))
        return out

    def _arrow(
        self, a: Arrow, edges: Sequence[dict[str, Any]], at: dict[str, PlacedShape], way_point: dict[str, Any] | None
    ) -> PlacedArrow:
        """An arrow made of edges, one behind the other."""
        sections = [e["sections"][0] for e in edges]
        points = [p for s in sections for p in (s["startPoint"], *s.get("bendPoints", ()), s["endPoint"])]
        source, target = at[a.source], at[a.target]
        outer, drawn = source.shape.exits[self.leaving[a.source].index(a.id)]
        start = source.x + drawn[0]
        tip = target.x + target.shape.entries[a.port][1][0]
        line = [(start, points[0]["y"]), *[(p["x"], p["y"]) for p in points], (tip, points[-1]["y"])]
        placed: dict[str, PlacedShape] = {}
        for label, shape in zip(("CENTER", "TAIL"), self.labels[a.id], strict=True):
            found = next((x for x in edges[0]["labels"] if x["text"] == label), None)
            if way_point is not None and label == "CENTER":
                found = way_point
            elif found is not None and label == "CENTER":
                found = {**found, "y": found["y"] + 1.0}  # ELK puts it above the middle by the thickness of the line
            if shape is not None and found is not None:
                placed[label] = PlacedShape(shape, found["x"], found["y"])
        base = placed.get("TAIL")
        if base is not None:  # ELK puts it behind the domain, which may be wide; there is room up to the shape
            edge = source.x + outer[0]
            x = max(base.x, edge - base.shape.width - 3) if self.mirrored else min(base.x, edge + 3)
            placed["TAIL"] = PlacedShape(base.shape, x, base.y)
        joins = tuple((p["x"], p["y"]) for e in edges for p in e.get("junctionPoints", ()))
        return PlacedArrow(a, straightened(line), placed.get("CENTER"), placed.get("TAIL"), joins)


def straightened(line: Sequence[Point]) -> tuple[Point, ...]:
    """A line without points that lie on its way."""
    out: list[Point] = []
    for p in line:
        if out and abs(out[-1][0] - p[0]) < 0.01 and abs(out[-1][1] - p[1]) < 0.01:
            continue
        if len(out) > 1 and any(abs(out[-2][i] - out[-1][i]) < 0.01 and abs(out[-1][i] - p[i]) < 0.01 for i in (0, 1)):
            out.pop()
        out.append(p)
    return tuple(out)
