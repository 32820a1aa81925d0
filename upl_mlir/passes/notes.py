"""Notes on a program: what a transformation chose or changed, in words, for those who use the result.

They are kept at the program operation, so that passes hand them on; `.upl` text does not show them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, StringAttr

from upl_mlir.dialects.upl import ProgramOp

NOTES = "upl.notes"


def notes_of(program: ProgramOp) -> tuple[str, ...]:
    """The notes, in order."""
    attr = program.attributes.get(NOTES)
    notes = cast("Sequence[StringAttr]", attr.data) if isinstance(attr, ArrayAttr) else ()
    return tuple(n.data for n in notes)


def add_note(program: ProgramOp, text: str) -> None:
    """Append a note."""
    program.attributes[NOTES] = ArrayAttr([StringAttr(n) for n in (*notes_of(program), text)])
