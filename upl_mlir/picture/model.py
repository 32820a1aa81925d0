"""What the picture of a program shows, before anything has a place: boxes with inputs, arrows with their texts.

The elements are those of the paper's notation: a node is a box with its name, index fields, assignments and inputs; a
node with one input and no expression is that input alone; an arrow has a condition at its base, a value with its
multiplicity, and the index of its target.  A program of derivatives has two bands.  An arrow from one band to the other
starts or ends at the node's *second place* (the paper's glued node), so that no arrow crosses between the bands.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from xdsl.dialects.builtin import StringAttr

from upl_mlir.dialects.upl import InputOp, NodeOp, ProgramOp, SendOp, UplType
from upl_mlir.dialects.upl.attributes import index_text
from upl_mlir.dialects.upl.query import Endpoint, arrows, domain_of, endpoints, source_of, span_of, target_port
from upl_mlir.frontend.upl_text.printing.printer import (
    ArrowText,
    arrow_texts,
    assignment_texts,
    comment_of,
    declaration_texts,
)
from upl_mlir.passes.arrows import PRIMAL
from upl_mlir.picture.factored import factored
from upl_mlir.poly.expr import IndexExpr

KEPT = ("stash", "kept", "handed on")
"""Rules of arrows that keep a value for the derivative."""


class BoxKind(Enum):
    """What a box is; each kind has a shape of its own."""

    NODE = "node"
    LONE = "lone"  # one input and no expression
    INPUT = "input"  # of the host
    OUTPUT = "output"


class Band(Enum):
    """Where a box belongs in a program of derivatives."""

    PROGRAM = "program"
    DERIVATIVE = "derivative"


@dataclass(frozen=True)
class PortText:
    """An input of a box."""

    name: str
    text: str  # `r`, `n: int`, `@(+) s[#]`
    gathers: bool


@dataclass(frozen=True)
class Box:
    """A node or a host port at one of its places; texts are empty where there is nothing to say."""

    id: str
    kind: BoxKind
    name: str
    type: str  # of a host port, if it is not `real`
    fields: str | None  # `d,k,i`; None without index fields
    ports: tuple[PortText, ...]
    lines: tuple[str, ...]  # assignments
    domain: str
    declared: bool  # whether the domain stands in the text
    comment: str
    where: str  # FILE:LINE:COLUMN
    primal: str  # of a node that a pass made: the node that it belongs to
    band: Band = Band.PROGRAM
    glued: bool = False  # the second place of a node

    @property
    def title(self) -> str:
        """The whole text of the box, for the tooltip."""
        index = f"<{self.fields}>" if self.fields is not None else ""
        what = {BoxKind.INPUT: "host input", BoxKind.OUTPUT: "host output"}.get(self.kind, "node")
        head = f"{what} {self.name}{index}" + (f": {self.type}" if self.type else "")
        second = ["second place of the node"] if self.glued else []
        inputs = [f"in {', '.join(p.text for p in self.ports)}"] if self.ports else []
        domain = [f"{'declared' if self.declared else 'inferred'} domain: {self.domain}"] if self.domain else []
        return "\n".join(p for p in (head, *second, self.comment, *inputs, *self.lines, *domain, self.where) if p)


@dataclass(frozen=True)
class Arrow:
    """A send of tokens between two boxes."""

    id: str
    source: str  # id of a box
    target: str
    port: str  # of the target; its own name for a host output
    condition: str  # at the base
    loops: str
    value: str  # empty where it is the only input
    count: str  # `#n` or `##`; empty for one
    index: str | None  # None for a target without fields
    rule: str
    where: str
    text: str  # as `.upl` has it
    source_name: str

    @property
    def keeps(self) -> bool:
        """Whether it keeps a value for later; such arrows are dashed."""
        return self.rule in KEPT

    @property
    def title(self) -> str:
        """The whole text of the arrow, for the tooltip."""
        rule = f"rule: {self.rule}" if self.rule else ""
        return "\n".join(p for p in (f"{self.source_name}: {self.text}", rule, self.where) if p)


@dataclass(frozen=True)
class Picture:
    """All that is to be drawn."""

    name: str
    constants: tuple[str, ...]
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    mirrored: bool = False  # whether the second band runs against the first: derivatives in reverse mode

    @property
    def bands(self) -> tuple[Band, ...]:
        """The bands that hold something."""
        return tuple(b for b in Band if any(box.band is b for box in self.boxes))


def picture_of(program: ProgramOp) -> Picture:
    """The picture of a program; of domains it shows those that are declared or have been inferred.

    Raises UplError (UPL1113) for what a pass has made of operations that UPL has no text for.
    """
    texts, assigned = arrow_texts(program), assignment_texts(program)
    ends = endpoints(program)
    bands = _bands(program, ends)
    boxes: dict[str, Box] = {}
    for i, (name, op) in enumerate(ends.items()):
        lines = assigned.get(op, ()) if isinstance(op, NodeOp) else ()
        boxes[name] = _box(f"n{i}", op, lines, texts, bands[name])
    drawn: list[Arrow] = []
    places = _Places(boxes)
    for i, send in enumerate(arrows(program)):
        source, target = places.ends(source_of(send).symbol, send)
        drawn.append(_arrow(f"a{i}", send, source, target, texts[send], ends[send.target_name]))
    mirrored = any(s.rule is not None and s.rule.data.startswith("reversed arrow") for s in texts)
    return Picture(
        program.sym_name.data, declaration_texts(program), (*boxes.values(), *places.second.values()), tuple(drawn),
        mirrored,
    )  # fmt: skip


def _bands(program: ProgramOp, ends: dict[str, Endpoint]) -> dict[str, Band]:
    """Nodes that a pass made for another one are the second band, with the host ports that only they use."""
    second = {n for n, op in ends.items() if PRIMAL in op.attributes}
    near: dict[str, set[str]] = {n: set() for n in ends}
    for s in arrows(program):
        near[source_of(s).symbol].add(s.target_name)
        near[s.target_name].add(source_of(s).symbol)
    for n, op in ends.items():
        if not isinstance(op, NodeOp) and near[n] and near[n] <= second:
            second.add(n)
    return {n: Band.DERIVATIVE if n in second else Band.PROGRAM for n in ends}


def _box(id_: str, op: Endpoint, lines: tuple[str, ...], texts: dict[SendOp, ArrowText], band: Band) -> Box:
    ports: tuple[PortText, ...] = ()
    kind, type_ = BoxKind.NODE, ""
    if isinstance(op, NodeOp):
        ports = tuple(PortText(p.name, str(p), p.gather is not None) for p in op.ports)
        plain = all(texts[s].value in [p.name for p in ports] for s in op.sends)
        if len(ports) == 1 and not lines and plain:
            kind = BoxKind.LONE
    else:
        kind = BoxKind.INPUT if isinstance(op, InputOp) else BoxKind.OUTPUT
        type_ = "" if op.type is UplType.REAL else op.type.value
    domain, primal = domain_of(op), op.attributes.get(PRIMAL)
    return Box(
        id_, kind, op.symbol, type_, ",".join(op.fields) if op.fields else None, ports, lines,
        domain.text(domain=True) if domain is not None and not domain.is_true else "", op.declared is not None,
        comment_of(op).strip(" /"), str(span_of(op) or ""), primal.data if isinstance(primal, StringAttr) else "", band,
    )  # fmt: skip


@dataclass
class _Places:
    """Where arrows begin and end: at a box, or at its second place in the band of the other end."""

    first: dict[str, Box]
    second: dict[str, Box] = field(default_factory=dict[str, Box])

    def ends(self, source: str, send: SendOp) -> tuple[Box, Box]:
        """The boxes at both ends; the second place is always in the band of the derivatives."""
        a, b = self.first[source], self.first[send.target_name]
        if a.band is b.band:
            return a, b
        if a.band is Band.PROGRAM:
            return self._again(a, None), b
        return a, self._again(b, send.target_port)

    def _again(self, box: Box, port: str | None) -> Box:
        """The second place of a box, with the inputs that it receives on there."""
        old = self.second.get(box.name)
        if old is None:
            kind = BoxKind.NODE if box.kind is BoxKind.LONE else box.kind
            old = replace(
                box, id=f"{box.id}g", kind=kind, glued=True, ports=(), lines=(), domain="", band=Band.DERIVATIVE,
            )  # fmt: skip
        if port is not None and all(p.name != port for p in old.ports):
            old = replace(old, ports=tuple(p for p in box.ports if p in old.ports or p.name == port))
        self.second[box.name] = old
        return old


def _arrow(id_: str, send: SendOp, source: Box, target: Box, text: ArrowText, end: Endpoint) -> Arrow:
    op = source_of(send)
    names = [p.name for p in op.ports] if isinstance(op, NodeOp) else [op.symbol]
    plain = names == [text.value]
    number = send.count.data if send.count is not None else None
    count = f"#{factored(number)}" if isinstance(number, IndexExpr) else text.count
    port = target_port(end, send.target_port).name
    index = index_text(send.index.data) if send.index.data else None
    return Arrow(
        id_, source.id, target.id, port, text.condition, text.loops, "" if plain else text.value, count, index,
        send.rule.data if send.rule is not None else "", str(span_of(send) or ""), str(text), op.symbol,
    )  # fmt: skip
