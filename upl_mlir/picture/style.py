"""Colours and classes of a picture: a light and a dark theme, as style sheets.

Text has a contrast of at least 4.5 on what it stands on, in both (a test computes it); every kind of element has a
shape of its own, so that nothing is said by colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from upl_mlir.picture.text import FACE


class Theme(Enum):
    """Which colours; `AUTO` follows the reader's system."""

    AUTO = "auto"
    LIGHT = "light"
    DARK = "dark"


@dataclass(frozen=True)
class Palette:
    """Colours as hexadecimal numbers; `on_…` is text on that colour."""

    page: str
    ink: str
    band: str
    band_line: str
    node: str  # the pale pink of a node
    node_line: str
    fields: str  # the bright pink of index fields
    on_fields: str
    port: str  # the yellow of inputs
    port_line: str
    on_port: str
    host: str
    host_line: str
    value: str  # the grey of values
    value_line: str
    index: str  # the blue of indices
    index_line: str
    on_index: str
    arrow: str
    domain: str  # blue text
    condition: str


LIGHT = Palette(
    page="#ffffff", ink="#1b1b22", band="#f7f8fb", band_line="#d5d9e3",
    node="#fdebf0", node_line="#b0365f", fields="#ff5fae", on_fields="#1b1b22",
    port="#ffe66b", port_line="#8a6a00", on_port="#1b1b22", host="#dcf3ea", host_line="#1f7a5a",
    value="#e7e7ea", value_line="#6f7178", index="#a9d4ff", index_line="#1d5fa6", on_index="#1b1b22",
    arrow="#44464f", domain="#1a4fc0", condition="#7d2a00",
)  # fmt: skip
DARK = Palette(
    page="#15171c", ink="#eceef3", band="#1b1e25", band_line="#343945",
    node="#3b222c", node_line="#f08fb0", fields="#ff6db5", on_fields="#15171c",
    port="#e8c93f", port_line="#fff0a8", on_port="#15171c", host="#17382d", host_line="#6fd3ac",
    value="#3a3d45", value_line="#9a9ea9", index="#86bdf7", index_line="#d3e8ff", on_index="#15171c",
    arrow="#b9bdc8", domain="#8fb6ff", condition="#ffb38a",
)  # fmt: skip


def rules(p: Palette, prefix: str = "") -> str:
    """The style sheet of a theme; `prefix` stands before every selector."""
    table = {
        ".u-page": f"fill:{p.page}",
        ".u-band": f"fill:{p.band};stroke:{p.band_line}",
        ".u-text": f"fill:{p.ink}",
        ".u-node": f"fill:{p.node};stroke:{p.node_line}",
        ".u-fields": f"fill:{p.fields};stroke:{p.node_line}",
        ".u-on-fields": f"fill:{p.on_fields}",
        ".u-port": f"fill:{p.port};stroke:{p.port_line}",
        ".u-on-port": f"fill:{p.on_port}",
        ".u-host": f"fill:{p.host};stroke:{p.host_line}",
        ".u-value": f"fill:{p.value};stroke:{p.value_line}",
        ".u-index": f"fill:{p.index};stroke:{p.index_line}",
        ".u-on-index": f"fill:{p.on_index}",
        ".u-line": f"fill:none;stroke:{p.arrow}",
        ".u-head": f"fill:{p.arrow}",
        ".u-mark": f"fill:{p.page};stroke:{p.ink}",
        ".u-on-mark": f"fill:{p.ink}",
        ".u-domain": f"fill:{p.domain}",
        ".u-when": f"fill:{p.page};stroke:{p.condition}",
        ".u-condition": f"fill:{p.condition}",
        ".u-constants": f"fill:{p.page};stroke:{p.arrow}",
    }
    return "".join(f"{prefix}{selector}{{{style}}}" for selector, style in table.items())


SHARED = (
    f".upl-picture text{{font-family:{FACE};white-space:pre}}"
    ".u-band,.u-node,.u-fields,.u-port,.u-host,.u-value,.u-index,.u-constants{stroke-width:1.2}.u-when,.u-mark{stroke-width:.8}"
    ".u-line{stroke-width:1.4}.u-glued{stroke-dasharray:6 4}.u-kept .u-line{stroke-dasharray:7 3}"
)
"""What both themes share; `u-kept` are arrows that keep a value for the derivative."""


def style_sheet(theme: Theme) -> str:
    """The style sheet of a picture that stands alone."""
    match theme:
        case Theme.LIGHT:
            return SHARED + rules(LIGHT)
        case Theme.DARK:
            return SHARED + rules(DARK)
        case Theme.AUTO:
            return f"{SHARED}{rules(LIGHT)}@media (prefers-color-scheme:dark){{{rules(DARK)}}}"
