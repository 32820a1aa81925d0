"""What says whether a run of an if-converted program was one without an error: outputs besides the program's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import StringAttr

from upl_mlir.diagnostics import Diagnostic, Span, UplError
from upl_mlir.dialects.upl import OutputOp, ProgramOp
from upl_mlir.dialects.upl.query import outputs, span_of

CHECK = "upl.check"
"""The attribute of an output by which a run is judged: "tokens", how many came to an element of other outputs (1 is
right), or "fault", whether something went wrong (0 is right)."""
ABOUT = "upl.about"
"""What such an output is about: the names of the other outputs, or what went wrong."""


@dataclass(frozen=True)
class Check:
    """An output by which a run is judged."""

    kind: str
    about: str
    span: Span | None

    @property
    def right(self) -> int:
        """What its elements are in a run without an error."""
        return 0 if self.kind == "fault" else 1


def mark(op: OutputOp, kind: str, about: str) -> None:
    """Note at an output that a run is judged by it."""
    op.attributes |= {CHECK: StringAttr(kind), ABOUT: StringAttr(about)}


def checks(program: ProgramOp) -> dict[str, Check]:
    """The outputs by which a run of a program is judged, by name."""
    out: dict[str, Check] = {}
    for op in outputs(program):
        kind, about = op.attributes.get(CHECK), op.attributes.get(ABOUT)
        if isinstance(kind, StringAttr) and isinstance(about, StringAttr):
            out[op.symbol] = Check(kind.data, about.data, span_of(op))
    return out


def judge(found: Mapping[str, Check], arrays: Mapping[str, NDArray[Any]], lower: Mapping[str, tuple[int, ...]]) -> None:
    """Raise UplError if a run was not one without an error: UPL1601 for tokens that are left over, UPL1602 for an element of
    an output that gets two, UPL1603 for one that gets none.  `lower` is the first index of each array; places without an
    element have what is right."""
    out: list[Diagnostic] = []
    for name, c in found.items():
        array = np.asarray(arrays[name]).astype(np.int64)
        if c.kind == "fault":
            if (array != c.right).any():
                out.append(Diagnostic("UPL1601", c.about, c.span, help=HELP))
            continue
        for at in np.argwhere(array != c.right)[:1]:
            n, index = int(array[tuple(at)]), ",".join(str(int(k) + lo) for k, lo in zip(at, lower[name], strict=True))
            what = "no token comes" if not n else f"{n} tokens come"
            code = "UPL1602" if n else "UPL1603"
            out.append(Diagnostic(code, f"{what} to element <{index}> of {c.about}", c.span, help=HELP))
    if out:
        raise UplError(*out)


HELP = 'engine="interp" says which tokens they are'
