"""A picture as a PDF of one page, by Typst (the Python package `typst`, which brings all it needs, fonts too)."""

from __future__ import annotations

import re

from upl_mlir.diagnostics import not_installed

_PAGE = b"""\
#set document(date: none)
#set page(width: auto, height: auto, margin: 0pt)
#image(bytes(sys.inputs.picture), format: "svg")
"""
_LENGTH = re.compile(' textLength="[^"]*" lengthAdjust="[^"]*"')


def pdf_of(svg: str) -> bytes:
    """An SVG document as a PDF whose page is as large as the picture; 4 pixels are 3 points, as in CSS.

    Raises UplError (UPL1804) without the package.
    """
    try:
        import typst
    except ImportError as e:
        raise not_installed("a PDF needs", "typst", "pdf", "write an .svg file") from e
    words = _LENGTH.sub("", svg)  # a text with a length is written letter by letter, and nobody finds a word in it
    return typst.compile(_PAGE, format="pdf", sys_inputs={"picture": words})
