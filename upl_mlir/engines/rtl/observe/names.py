"""What cores did, in the words of the program: names of nodes and inputs, indices, values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from upl_mlir.engines.rtl.observe.watch import Recorded
from upl_mlir.hw.core.layouts import TokenKind
from upl_mlir.hw.execute import Scalar, from_bits
from upl_mlir.hw.image import IndexField, unpack

UNITS = {"taken": "matching in", "fired": "activations", "added": "reducer", "sent": "send"}
"""What a unit's lane is called, by the kind of its events."""


@dataclass(frozen=True)
class Done:
    """An event of a core's unit: what it was, and further facts by name."""

    cycle: int
    core: int
    unit: str
    text: str
    facts: dict[str, str]


def named(run: Recorded) -> Iterator[Done]:
    """All that was recorded, unit by unit, each in the order of cycles."""
    nodes = run.image.nodes

    def place(node: int, input_: int, tag: int) -> str:
        pattern = run.program.patterns.get((node, input_))
        wild = sum(1 << f for f in pattern.wild) if pattern is not None else 0
        return f"{nodes[node].name}.{nodes[node].inputs[input_].name}{_index(nodes[node].fields, tag, wild)}"

    def token(kind: int, node: int, input_: int, tag: int, times: int, bits: int) -> tuple[str, dict[str, str]]:
        if kind == TokenKind.HOST:
            output = run.image.outputs[node]
            where = f"{output.name}{_index(run.program.outputs[node], tag)}"
            return where, {"value": shown(from_bits(bits, output.type))}
        value = shown(from_bits(bits, nodes[node].inputs[input_].type))
        return place(node, input_, tag), {"value": value, "multiplicity": _times(times, run.dimensions.unbounded)}

    for kind in ("taken", "sent"):
        for cycle, core, *row in run.seen[kind].rows("kind", "node", "input", "tag", "multiplicity", "value"):
            yield Done(cycle, core, kind, *token(*row))
    for cycle, core, node, tag in run.seen["fired"].rows("node", "tag"):
        yield Done(cycle, core, "fired", f"{nodes[node].name}{_index(nodes[node].fields, tag)}", {})
    for cycle, core, node, input_, tag, left, right in run.seen["added"].rows("node", "input", "tag", "left", "right"):
        type_ = nodes[node].inputs[input_].type
        facts = {"left": shown(from_bits(left, type_)), "right": shown(from_bits(right, type_))}
        yield Done(cycle, core, "added", place(node, input_, tag), facts)


def shown(value: Scalar | float) -> str:
    """A value as text."""
    return str(value) if isinstance(value, bool | int) else f"{value:.6g}"


def _index(fields: tuple[IndexField, ...], tag: int, wild: int = 0) -> str:
    return f"<{','.join('*' if i is None else str(i) for i in unpack(fields, tag, wild))}>"


def _times(times: int, unbounded: int) -> str:
    return "##" if times == unbounded else str(times)
