"""How programs and callables show themselves in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Protocol

from upl_mlir.api.drawing import Drawable, shown
from upl_mlir.api.ports import PortView
from upl_mlir.passes.analysis.tables import folded, table


class Shown(Drawable, Protocol):
    """What a display needs of a program."""

    @property
    def name(self) -> str:
        """The program's name."""
        ...

    @property
    def params(self) -> tuple[str, ...]:
        """Names of the open parameters."""
        ...

    @property
    def inputs(self) -> dict[str, PortView]:
        """The host inputs."""
        ...

    @property
    def outputs(self) -> dict[str, PortView]:
        """The host outputs."""
        ...

    @property
    def lowered(self) -> bool:
        """Whether it is a program of the machine."""
        ...


def of_program(p: Shown) -> str:
    """The picture, if it can be drawn, and the text: folded under the picture."""
    text = f"<pre>{escape(str(p))}</pre>"
    if p.lowered:
        return text
    picture = shown(p)
    return text if picture is None else f'<div style="overflow-x:auto">{picture}</div>\n{folded("text", text)}'


def of_compiled(p: Shown, engine: str, given: Mapping[str, int], stats: Mapping[str, Any]) -> str:
    """The engine, what goes in and comes out, and the figures of the last run."""
    title = f"{p.name} on the engine {engine}"
    rows: list[tuple[object, ...]] = [("parameter", n, given.get(n, "from the arrays, or given")) for n in p.params]
    rows += [(what, port, "") for what, ports in (("input", p.inputs), ("output", p.outputs)) for port in _texts(ports, p)]
    parts = [f"<p><b>{escape(title)}</b></p>", table(("", "", ""), rows)]
    if stats:
        figures = [(n, v) for n, v in stats.items() if not isinstance(v, Mapping | list)]
        parts.append(folded("the last run", table(("", ""), figures)))
    return "\n".join(parts)


def _texts(ports: Mapping[str, PortView], p: Shown) -> Iterable[str]:
    """The ports with their fields and types; of a program of the machine only their names."""
    return list(ports) if p.lowered else [repr(v) for v in ports.values()]
