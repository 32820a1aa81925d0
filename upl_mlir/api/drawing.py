"""Programs as pictures in UPL's notation: what `upl.draw`, `upl draw` and notebooks use.

    upl.draw(p)                          # shows itself in a notebook
    upl.draw(p).save("perceptron.svg")   # or .png, .pdf, .dot
    upl.draw(p, width=1200)              # in rows, at most so many pixels wide
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.picture.dot import dot_of
from upl_mlir.picture.model import Picture, picture_of
from upl_mlir.picture.pdf import pdf_of
from upl_mlir.picture.png import png_of
from upl_mlir.picture.style import Theme
from upl_mlir.picture.svg import svg_of

SUFFIXES = (".svg", ".png", ".pdf", ".dot")
NARROWEST = 300
"""Pixels; narrower pictures cannot be asked for."""


class Drawable(Protocol):
    """What a picture needs of a program."""

    @property
    def op(self) -> ProgramOp:
        """The program's operations."""
        ...

    def expanded(self) -> Drawable:
        """The program with its directives expanded."""
        ...

    def clone(self) -> Drawable:
        """A copy."""
        ...

    def infer_domains(self) -> object:
        """Find out all domains.  Raises UplError."""
        ...

    def errors(self) -> AbstractContextManager[None]:
        """A context in which errors show the program's lines."""
        ...


@dataclass(frozen=True)
class Drawing:
    """A picture that can be shown and saved."""

    picture: Picture
    theme: Theme = Theme.AUTO
    width: int | None = None

    def __repr__(self) -> str:
        return f"<drawing of {self.picture.name}>"

    def svg(self) -> str:
        """The SVG document.  Raises UplError (UPL1804) without the extra `draw`, which lays it out."""
        return svg_of(self.picture, theme=self.theme, at_most=self.width)

    def png(self, zoom: float = 2.0) -> bytes:
        """The PNG file.  Raises UplError (UPL1804) without the extra `draw`, or without a font."""
        return png_of(self._svg_in_one_theme(), zoom=zoom)

    def pdf(self) -> bytes:
        """The PDF file, of one page.  Raises UplError (UPL1804) without the extras `draw` and `pdf`."""
        return pdf_of(self._svg_in_one_theme())

    def _svg_in_one_theme(self) -> str:
        """The document for files that do not follow the reader's system."""
        theme = Theme.LIGHT if self.theme is Theme.AUTO else self.theme
        return svg_of(self.picture, theme=theme, at_most=self.width)

    def dot(self) -> str:
        """The graph for Graphviz, which needs no extra."""
        return dot_of(self.picture)

    def encoded(self, suffix: str) -> bytes:
        """The contents of a file of that kind.  Raises UplError (UPL1804, UPL1805)."""
        match suffix:
            case ".svg":
                return self.svg().encode("utf-8")
            case ".png":
                return self.png()
            case ".pdf":
                return self.pdf()
            case ".dot":
                return self.dot().encode("utf-8")
            case _:
                message = f"a picture has no form `{suffix}`" if suffix else "the kind of picture is not known"
                raise error("UPL1805", message, help=f"end the name of the file in one of {', '.join(SUFFIXES)}")

    def save(self, path: str | Path) -> None:
        """Write it as the ending of the name says: .svg, .png, .pdf or .dot."""
        Path(path).write_bytes(self.encoded(Path(path).suffix))

    def _repr_svg_(self) -> str:
        """For notebooks."""
        return self.svg()


def draw(p: Drawable, *, theme: str | Theme = Theme.AUTO, width: int | None = None) -> Drawing:
    """The picture of a program, `adjoint of` expanded; `theme` is "light", "dark" or "auto" (as the reader's system).

    With `width` it is drawn in rows, as many as make it at most so many pixels wide.  A node with its arrows is never cut,
    so a picture can be wider than asked for.
    Domains that cannot be inferred are left out: a wrong program can be drawn too.  Raises UplError (UPL1802).
    """
    if isinstance(theme, str):
        if theme not in {t.value for t in Theme}:
            raise error("UPL1802", f"theme={theme!r}: expected one of {', '.join(t.value for t in Theme)}")
        theme = Theme(theme)
    if width is not None and width < NARROWEST:
        raise error("UPL1802", f"width={width}: expected {NARROWEST} pixels or more")
    shown = p.expanded().clone()
    try:
        shown.infer_domains()
    except UplError:
        shown = p.expanded()
    with p.errors():
        return Drawing(picture_of(shown.op), theme, width)


def shown(p: Drawable) -> str | None:
    """The SVG document of a program, or None where there can be none."""
    try:
        return draw(p).svg()
    except UplError:
        return None
