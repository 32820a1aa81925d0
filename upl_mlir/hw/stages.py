"""The stages of a program: along which field the host is throttled, the order of its tokens, and the table of stages.

The stage of an instance is the value of a field along which the program streams (`passes/analysis/streams.py`). Nothing
of an earlier stage ever needs anything of a later one, so the host sends stage by stage, and need not be far ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import did_you_mean, error
from upl_mlir.hw.core.code.encode import Encoded
from upl_mlir.hw.core.layouts import Dimensions
from upl_mlir.hw.core.stages import STAGE_BITS
from upl_mlir.hw.image import BootToken, ProgramImage
from upl_mlir.hw.machine import Machine
from upl_mlir.hw.results import HostToken

Stream = Mapping[str, int]
"""A field, as its number in each node that has it; empty: none."""
NO_STREAM: Stream = MappingProxyType({})


def throttled_stream(image: ProgramImage, machine: Machine, tokens: Sequence[HostToken]) -> Stream:
    """The field along which the host is throttled: the one that the machine description names, or else the one with which
    fewest tokens have to be sent before the second value's; none if the machine has no throttle, or the program no such
    field.

    Raises `UplError` UPL1722: a field along which the program does not stream.
    """
    if not machine.host.window:
        return NO_STREAM
    return next(iter(candidates(image, machine, tokens)), NO_STREAM)


def candidates(image: ProgramImage, machine: Machine, tokens: Sequence[HostToken]) -> list[Stream]:
    """The fields along which the host can be throttled, the best one first: see `throttled_stream`."""
    named = {name_of(image, s): s for s in image.streams if _fits(image, s)}
    if machine.host.along:
        if machine.host.along not in named:
            found = f"the program `{image.name}` does not stream along `{machine.host.along}`"
            help_ = did_you_mean(machine.host.along, named) or f"it does along: {', '.join(named) or 'no field'}"
            raise error("UPL1722", f"machine description: host.along: {found}", machine.place("host.along"), help=help_)
        return [named[machine.host.along]]

    def first(stream: Stream) -> int:
        stages = Counter(stage for token in tokens if (stage := _value(image, stream, token)) is not None)
        return len(tokens) - stages.total() + max(stages.values(), default=0)

    return sorted((s for s in named.values() if first(s) < len(tokens)), key=first)


def name_of(image: ProgramImage, stream: Stream) -> str:
    """The name of the field."""
    return next(node.fields[stream[node.name]].name for node in image.nodes if node.name in stream)


def by_stage(image: ProgramImage, stream: Stream, tokens: Sequence[HostToken]) -> NDArray[np.intp]:
    """Places in the sequence of boot tokens and tokens, in the order of sending: what has no value of the field first."""
    values = [_value(image, stream, token) for token in (*image.boot, *tokens)]
    first = np.iinfo(np.int64).min
    return np.argsort(np.array([first if v is None else v for v in values], np.int64), kind="stable")


def stage_rows(
    image: ProgramImage, d: Dimensions, program: Encoded, stream: Stream, window: int
) -> list[dict[str, int]]:
    """The stage part of the placement table's row of each node; all 0 for one without stages."""
    least = min((node.fields[stream[node.name]].bias for node in image.nodes if node.name in stream), default=0)
    out: list[dict[str, int]] = []
    for number, node in enumerate(image.nodes):
        if node.name not in stream:
            out.append(dict.fromkeys(("has", "shift", "mask", "constant", "window"), 0))
            continue
        place = stream[node.name]
        field = node.fields[place]
        patterns = {port: program.patterns.get((number, port)) for port in range(len(node.inputs))}
        has = sum(1 << port for port, p in patterns.items() if p is None or place not in p.wild)
        row = {"shift": field.offset, "mask": (1 << field.bits) - 1, "constant": field.bias - least}
        out.append({"has": has | 1 << d.max_inputs, "window": window, **row})
    return out


def _value(image: ProgramImage, stream: Stream, token: HostToken | BootToken) -> int | None:
    place = stream.get(image.nodes[token.node].name)
    return None if place is None else token.index[place]


def _fits(image: ProgramImage, stream: Stream) -> bool:
    """Whether the hardware can count the stages."""
    fields = [node.fields[stream[node.name]] for node in image.nodes if node.name in stream]
    ends = [(f.bias, f.bias + (1 << f.bits)) for f in fields]
    return bool(ends) and max(e for _, e in ends) - min(b for b, _ in ends) <= 1 << STAGE_BITS
