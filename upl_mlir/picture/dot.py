"""The picture as a graph for Graphviz: what can be had without the JavaScript engine that lays out our own.

Shapes and colours are those of the notation as far as Graphviz has them.
"""

from __future__ import annotations

from collections.abc import Iterable

from upl_mlir.picture.model import Arrow, Box, BoxKind, Picture
from upl_mlir.picture.style import LIGHT
from upl_mlir.picture.text import escape


def dot_of(picture: Picture) -> str:
    """The picture in the DOT language."""
    head = _quoted("\n".join([picture.name, *picture.constants]), left=True)
    lines = [
        f"digraph {_quoted(picture.name)} {{",
        f'  graph [rankdir=LR, fontname="monospace", labelloc=t, labeljust=r, label={head}];',
        '  node [fontname="monospace", fontsize=12, style=filled];',
        '  edge [fontname="monospace", fontsize=11];',
    ]
    for band in picture.bands:
        boxes = [b for b in picture.boxes if b.band is band]
        if len(picture.bands) == 1:
            lines += [f"  {_box(b)}" for b in boxes]
        else:
            lines += [f"  subgraph cluster_{band.value} {{", f"    label={_quoted(band.value)};"]
            lines += [*(f"    {_box(b)}" for b in boxes), "  }"]
    ends = {b.id: b for b in picture.boxes}
    lines += [f"  {_arrow(a, ends[a.target])}" for a in picture.arrows]
    return "\n".join([*lines, "}", ""])


def _box(b: Box) -> str:
    colors = {BoxKind.NODE: (LIGHT.node, LIGHT.node_line), BoxKind.LONE: (LIGHT.port, LIGHT.port_line)}
    fill, line = colors.get(b.kind, (LIGHT.host, LIGHT.host_line))
    style = "filled,dashed" if b.glued else "filled"
    facts = {"tooltip": _quoted(b.title), "fillcolor": f'"{fill}"', "color": f'"{line}"', "style": f'"{style}"'}
    index = f"<{b.fields}>" if b.fields is not None else ""
    if b.kind is BoxKind.NODE:
        facts |= {"shape": "plain", "label": _table(b, index, line), "style": '""'}
    else:
        shape = {BoxKind.LONE: "ellipse", BoxKind.INPUT: "cds", BoxKind.OUTPUT: "note"}[b.kind]
        gathers = [p.text for p in b.ports if p.gathers]
        name = f"{b.name}: {b.type}" if b.type else b.name
        facts |= {"shape": shape, "label": _quoted("\n".join(t for t in (name, *gathers, index) if t))}
    return f"{b.id} [{', '.join(f'{k}={v}' for k, v in facts.items())}];"


def _table(b: Box, index: str, line: str) -> str:
    """A node as a table: name and fields, inputs with a port each, assignments."""
    style = "dashed" if b.glued else "solid"
    rows = [f"<tr><td colspan='2'><b>{_cell(b.name)}</b> {_cell(index)}</td></tr>"]
    body = "<br align='left'/>".join(_cell(t) for t in b.lines) + ("<br align='left'/>" if b.lines else "")
    for i, p in enumerate(b.ports):
        rest = f"<td rowspan='{len(b.ports)}'>{body or ' '}</td>" if i == 0 else ""
        rows.append(f"<tr><td port='p{i}' bgcolor='{LIGHT.port}'>{_cell(p.text)}</td>{rest}</tr>")
    return (
        f"<<table border='1' cellborder='0' cellspacing='2' color='{line}' bgcolor='{LIGHT.node}' style='{style}'>"
        f"{''.join(rows)}</table>>"
    )


def _cell(text: str) -> str:
    return escape(text) or " "


def _arrow(a: Arrow, target: Box) -> str:
    head = ", ".join(t for t in (f"if {a.condition}" if a.condition else "", f"for {a.loops}" if a.loops else "") if t)
    index = f"<{a.index}>" if a.index is not None else ""
    label = "\n".join(t for t in (head, " ".join(t for t in (a.value, a.count, index) if t)) if t)
    facts = {"label": _quoted(label), "tooltip": _quoted(a.title), "labeltooltip": _quoted(a.title)}
    if a.keeps:
        facts["style"] = "dashed"
    facts["color"] = f'"{LIGHT.arrow}"'
    names = [p.name for p in target.ports] if target.kind is BoxKind.NODE else []
    port = f":p{names.index(a.port)}" if a.port in names else ""
    return f"{a.source} -> {a.target}{port} [{_join(facts.items())}];"


def _join(facts: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{k}={v}" for k, v in facts)


def _quoted(text: str, *, left: bool = False) -> str:
    """A quoted string of the DOT language; lines are centred, or end on the left."""
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + text.replace("\n", "\\l" if left else "\\n") + ("\\l" if left and "\n" in text else "") + '"'
