"""Sphinx makes the site from the Markdown pages beside this file: `make docs`."""

import sys
from pathlib import Path

project = "upl-mlir"
author = "The upl-mlir authors"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "upl-mlir"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
exclude_patterns = ["check.schema.json"]
myst_heading_anchors = 4
# Pages link to files of the checkout too, which are not pages; and Pygments has no lexer for MLIR.
suppress_warnings = ["misc.highlighting_failure", "myst.xref_missing"]


def setup(app):
    """Colour `.upl` blocks by the project's own lexer."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "editors"))
    from upl_lexer import UplLexer

    app.add_lexer("upl", UplLexer)
