"""A picture as pixels, by resvg (the Python package `resvg-py`, which brings all it needs but fonts)."""

from __future__ import annotations

from upl_mlir.diagnostics import error, not_installed
from upl_mlir.picture.text import FACE

_LETTER = (
    f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><text y="8" font-family="{FACE}">%s</text></svg>'
)


def png_of(svg: str, *, zoom: float = 2.0) -> bytes:
    """An SVG document as a PNG file, `zoom` pixels to a unit.

    Raises UplError (UPL1804) without the package, or where the system has none of the fonts.
    """
    try:
        from resvg_py import svg_to_bytes
    except ImportError as e:
        raise not_installed("a PNG needs", "resvg-py", "draw", "write an .svg file") from e
    if svg_to_bytes(svg_string=_LETTER % "M") == svg_to_bytes(svg_string=_LETTER % " "):
        message = "there is no font for the texts of a PNG"
        raise error("UPL1804", message, help="install DejaVu Sans Mono, or write an .svg file")
    return bytes(svg_to_bytes(svg_string=svg, zoom=zoom))
