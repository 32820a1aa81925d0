"""Where the boxes and arrows of a picture stand in the text, also of a picture that is older than the text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from upl_mlir.picture.model import Picture
from upl_mlir.tools.editor.acts import Change, Draft, Range


@dataclass(frozen=True)
class Places:
    """Pieces of the text: of boxes by name (a node has one for each of its blocks), of arrows by their id in the picture."""

    boxes: dict[str, list[Range]] = field(default_factory=dict[str, list[Range]])
    arrows: dict[str, Range] = field(default_factory=dict[str, Range])

    def moved(self, changes: Iterable[Change]) -> Places:
        """The places after changes of the text."""
        boxes, arrows = self.boxes, self.arrows
        for change in changes:
            boxes = {name: [change.moved(p) for p in places] for name, places in boxes.items()}
            arrows = {name: change.moved(p) for name, p in arrows.items()}
        return Places(boxes, arrows)

    def at(self, offset: int) -> dict[str, str] | None:
        """What stands at an offset, as the page finds it in the picture: the arrow, else the box, else None."""
        for name, (start, end) in self.arrows.items():
            if start <= offset < end:
                return {"arrow": name}
        for name, pieces in self.boxes.items():
            if any(start <= offset < end for start, end in pieces):
                return {"box": name}
        return None


def places_of(draft: Draft, picture: Picture) -> Places:
    """The places of a picture that was made of this text."""
    names = draft.document.names
    starts = {f"{a.span.line}:{a.span.col}": draft.range(a.span) for _, a in names.arrows()}
    arrows = {a.id: starts[at] for a in picture.arrows if (at := ":".join(a.where.rsplit(":", 2)[1:])) in starts}
    boxes = {name: [draft.range(item.span) for item in shape.items] for name, shape in names.shapes.items()}
    return Places(boxes, arrows)
