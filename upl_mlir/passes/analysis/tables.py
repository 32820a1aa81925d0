"""What is known of a program as HTML, for notebooks.  Text of programs is shown as text, whatever it says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from upl_mlir.passes.analysis.obligations import Obligation, Status

_CELL = "text-align:left;vertical-align:top;padding:2px 10px 2px 0"
_COLOURS = {Status.REFUTED: "#b3140f", Status.UNPROVED: "#8a5a00", Status.PROVED: "#1b6e3c"}


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of texts."""
    top = "".join(f'<th style="{_CELL}">{escape(h)}</th>' for h in head)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{_cell(cell)}</td>' for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, Status):
        return f'<b style="color:{_COLOURS[value]}">{value.value}</b>'
    return escape("" if value is None else str(value)).replace("\n", "<br/>")


def folded(title: str, inside: str) -> str:
    """Something that is shown when its title is clicked."""
    return f"<details><summary>{escape(title)}</summary>{inside}</details>"


def of_report(
    obligations: Sequence[Obligation], counts: Mapping[str, tuple[object, object]], lines: Sequence[str]
) -> str:
    """A report: how many obligations have which status; those that are not proved; the others, and the counts, folded."""
    by = {s: [o for o in obligations if o.status is s] for s in (Status.REFUTED, Status.UNPROVED, Status.PROVED)}
    numbers = {s: len(found) for s, found in by.items() if found or s is Status.PROVED}
    said = ", ".join(f'<b style="color:{_COLOURS[s]}">{n} {s.value}</b>' for s, n in numbers.items())
    parts = [f"<p>{said}" + "".join(f"<br/>{escape(line)}" for line in lines) + "</p>"]
    open_ = [*by[Status.REFUTED], *by[Status.UNPROVED]]
    if open_:
        parts.append(table(("", "where", "what"), [(o.status, o.span or o.where, _words(o)) for o in open_]))
    rows = [(o.status, o.where, o.kind.value) for o in by[Status.PROVED]]
    parts.append(folded(f"{len(rows)} proved", table(("", "where", "what"), rows)))
    if counts:
        rows = [(name, "?" if f is None else f, "?" if t is None else t) for name, (f, t) in counts.items()]
        parts.append(folded("firings and tokens", table(("", "firings", "tokens"), rows)))
    return "\n".join(parts)


def _words(o: Obligation) -> str:
    return o.message + (f"\nhelp: {o.help}" if o.help else "")
