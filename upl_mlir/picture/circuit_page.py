"""The page of a circuit: its picture, and the replay of a run, slot by slot, by the plan's times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from upl_mlir.passes.circuit.channels.inputs import Input
from upl_mlir.passes.circuit.channels.orders import extents
from upl_mlir.passes.circuit.channels.outputs import Output
from upl_mlir.passes.circuit.ir import stream_name
from upl_mlir.passes.circuit.plan import Part, Plan, due, lanes_of, leaves
from upl_mlir.picture.circuit import svg_of_circuit
from upl_mlir.picture.page import player

MOST_SHOWN = 200_000
"""Instances whose domain the page knows one by one; of more it shows those of the whole box."""
NOTE = (
    "Times are the plan's, which are exact for ports that never wait. A slot is a clock in which the {goes} on. Of an "
    "input: words that must have come by then; of an output{inner}: words that have left their lane."
)


def circuit_page(plan: Plan, name: str, values: Mapping[str, Sequence[str]] | None = None) -> str:
    """The HTML document; `values`: of the words of ports, by port, where a run was recorded."""
    inner = " or a stream between processes" if plan.streams else ""
    note = NOTE.format(goes="process goes" if len(plan.parts) == 1 else "processes go", inner=inner)
    picture = svg_of_circuit(plan, None)
    return player(f"Circuit {name}", "circuit", picture, replay(plan, values or {}), unit="slot", note=note)


def replay(plan: Plan, values: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """What the page computes the replay from."""
    ports = [_port(plan, i, i.name, "in") for i in plan.inputs]
    ports += [_port(plan, s.sent, stream_name(plan, s), "inner") for s in plan.streams]
    ports += [_port(plan, o, o.name, "out") for o in plan.outputs]
    for q in ports:
        q["values"] = list(values[q["name"]]) if q["name"] in values else None
    begins = [int(p.nest.begins.max()) for p in plan.parts]
    return {
        "processes": [_process(p) for p in plan.parts], "ports": ports,
        "last": max([*begins, *(q["times"][-1] for q in ports if q["times"])]),
    }  # fmt: skip


def _process(part: Part) -> dict[str, Any]:
    nest, p = part.nest, part.process
    mask = part.mask(p.domain)
    return {
        "name": p.name, "fields": [d.name for d in p.dims], "low": {d.name: d.low for d in p.dims}, "lanes": nest.lanes,
        "along": nest.along, "order": nest.order, "every": nest.every, "extents": nest.extents, "skew": nest.skew,
        "start": nest.start, "down": nest.down, "busy": nest.busy,
        "mask": "".join("01"[int(b)] for b in mask.ravel()) if mask.size <= MOST_SHOWN else None,
    }  # fmt: skip


def _port(plan: Plan, port: Input | Output, name: str, role: str) -> dict[str, Any]:
    lanes = lanes_of(port)
    sizes = extents(port.dims, port.order, lanes)
    return {
        "name": name, "role": role, "fields": [d.name for d in port.dims], "low": {d.name: d.low for d in port.dims},
        "lanes": lanes, "order": [[a.field, a.part, n] for a, n in zip(port.order, sizes, strict=True)],
        "times": (due(plan, port) if isinstance(port, Input) else leaves(plan, port)).tolist(),
    }  # fmt: skip
