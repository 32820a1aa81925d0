"""What is left in the matching store at the end, in the words of the program: which token, and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from upl_mlir.diagnostics import UplError, error
from upl_mlir.hw.image import Node, ProgramImage
from upl_mlir.hw.matching_unit.gold import unify

_SHOWN = 20
"""Tokens named in a report; of more, the number is given."""


@dataclass(frozen=True)
class Leftover:
    """One occupied entry: node and input by number, index (None = `*`), and what is left of it.

    For an ordinary token `left` is its multiplicity, None if unbounded; for the record of a gather (`count` is not 0)
    `left` of `count` summands have not come.
    """

    node: int
    input: int
    index: tuple[int | None, ...]
    left: int | None
    count: int = 0


def stranded_error(image: ProgramImage, leftovers: Sequence[Leftover]) -> UplError | None:
    """The UPL1701 that lists what waits in vain, or None if only unbounded tokens are left."""
    waiting = [t for t in leftovers if t.left is not None]
    if not waiting:
        return None
    notes = [f"{place(image.nodes[t.node], t.input, t.index)} {_reason(image, t, leftovers)}" for t in waiting[:_SHOWN]]
    if len(waiting) > _SHOWN:
        notes.append(f"and {len(waiting) - _SHOWN} more")
    tokens = "1 token is" if len(waiting) == 1 else f"{len(waiting)} tokens are"
    return error("UPL1701", f"the machine has come to rest and {tokens} stranded", notes=notes)


def place(node: Node, input: int, index: Sequence[int | None]) -> str:
    """An input of a node at an index, as UPL writes it: `Link.w<1,2,*>`."""
    inner = ",".join("*" if i is None else str(i) for i in index)
    name = node.inputs[input].name if input < len(node.inputs) else f"input {input}"
    return f"{node.name}.{name}<{inner}>"


def _reason(image: ProgramImage, token: Leftover, leftovers: Sequence[Leftover]) -> str:
    node = image.nodes[token.node]
    if token.count:
        assert token.left is not None
        return f"has {token.count - token.left} of {token.count} summands"
    absent: list[str] = []
    for number, port in enumerate(node.inputs):
        if number == token.input:
            continue
        others = [t for t in leftovers if (t.node, t.input) == (token.node, number)]
        if not any(not t.count and unify(t.index, token.index) is not None for t in others):
            incomplete = any(t.count and unify(t.index, token.index) is not None for t in others)
            absent.append(f"input `{port.name}`, whose sum is incomplete" if incomplete else f"input `{port.name}`")
    times = "" if token.left == 1 else f" (for {token.left} activations)"
    if absent:
        return f"waits{times} for {' and '.join(absent)}: {'it' if len(absent) == 1 else 'they'} never came"
    return f"is left over{times}: its multiplicity is larger than the number of activations it took part in"
