"""The page of a circuit: its picture, and the replay of a run, slot by slot, by the plan's times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from upl_mlir.passes.circuit.plan import Plan
from upl_mlir.passes.circuit.ports import Input, Output, elements, extents
from upl_mlir.passes.circuit.times import begins, due, leave
from upl_mlir.picture.circuit import svg_of_circuit
from upl_mlir.picture.style import DARK, LIGHT, SHARED, rules
from upl_mlir.picture.text import escape

MOST_SHOWN = 200_000
"""Instances whose domain the page knows one by one; of more it shows those of the whole box."""
NOTE = (
    "Times are the plan's, which are exact for ports that never wait. A slot is a clock in which the process goes on. Of an "
    "input: words that must have come by then; of an output: words that have left their lane."
)


def circuit_page(plan: Plan, name: str, values: Mapping[str, Sequence[str]] | None = None) -> str:
    """The HTML document; `values`: of the words of ports, by port, where a run was recorded."""
    parts = {
        "TITLE": escape(f"Circuit {name}"),
        "STYLE": SHARED + rules(LIGHT) + rules(DARK, '[data-theme="dark"] '),
        "PICTURE": svg_of_circuit(plan, None),
        "NOTE": escape(NOTE),
        "DATA": json.dumps(replay(plan, values or {})).replace("<", "\\u003c").replace("&", "\\u0026"),
    }
    text = resources.files("upl_mlir.picture.page").joinpath("circuit.html").read_text(encoding="utf-8")
    pieces = text.split("{{")
    return pieces[0] + "".join(parts[key] + rest for key, rest in (p.split("}}", 1) for p in pieces[1:]))


def replay(plan: Plan, values: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """What the page computes the replay from."""
    nest, p = plan.nest, plan.process
    mask = nest.mask(p.domain, p.sizes)
    ports = [*(_port(plan, i, "in") for i in plan.inputs), *(_port(plan, o, "out") for o in plan.outputs)]
    for q in ports:
        q["values"] = list(values[q["name"]]) if q["name"] in values else None
    return {
        "name": p.name, "fields": [d.name for d in p.dims], "low": {d.name: d.low for d in p.dims}, "lanes": nest.lanes,
        "along": nest.along, "order": nest.order, "every": nest.every, "extents": nest.extents, "skew": nest.skew,
        "busy": nest.busy, "ports": ports,
        "mask": "".join("01"[int(b)] for b in mask.ravel()) if mask.size <= MOST_SHOWN else None,
        "last": max([int(begins(plan).max()), *(q["times"][-1] for q in ports if q["times"])]),
    }  # fmt: skip


def _port(plan: Plan, port: Input | Output, role: str) -> dict[str, Any]:
    dims = elements(plan.process, port.host)
    sizes = extents(dims, port.order, plan.nest.lanes)
    return {
        "name": port.host.name, "role": role, "fields": [d.name for d in dims], "low": {d.name: d.low for d in dims},
        "order": [[a.field, a.part, n] for a, n in zip(port.order, sizes, strict=True)],
        "times": (due(plan, port) if isinstance(port, Input) else leave(plan, port)).tolist(),
    }  # fmt: skip
