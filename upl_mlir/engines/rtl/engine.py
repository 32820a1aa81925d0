"""The engine "rtl": a program with its sizes fixed, on the simulated matching unit, arrays in and arrays out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from upl_mlir.diagnostics import error, nearest_or_all
from upl_mlir.dialects.ttm import ProgramOp
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.engines.names import Simulator
from upl_mlir.engines.rtl.host_order import field_order, inputs_in_order
from upl_mlir.engines.rtl.host_ports import machine_ports
from upl_mlir.engines.rtl.lowered import lowered, machine_of
from upl_mlir.engines.rtl.observe.watch import Recorded
from upl_mlir.engines.rtl.run import run_machine
from upl_mlir.host.arrays import HostPort, dense_arrays
from upl_mlir.hw.assemble import assemble
from upl_mlir.hw.direct.domains import domains_of
from upl_mlir.hw.execute import Scalar, run_activation
from upl_mlir.hw.image import Node, ProgramImage, with_open_gathers
from upl_mlir.hw.machine import Machine, Organisation, load_machine
from upl_mlir.hw.microcode import ToNode
from upl_mlir.hw.results import HostToken, OutputElement, Stats

Array = NDArray[Any]


@dataclass(frozen=True)
class RtlResult:
    """Outputs as dense arrays, and the figures of the run."""

    outputs: dict[str, Array]
    stats: Stats


class _Loaded:
    """A machine program, assembled: what engines on several machines share."""

    def __init__(self, program: ProgramOp):
        self.program = program
        self.ports = machine_ports(program)
        self.image, self.hosts = assemble(program)

    @cached_property
    def with_domains(self) -> ProgramImage:
        """The image with the instances of its nodes, point by point."""
        return replace(self.image, domains=domains_of(self.program))


class RtlEngine:
    """A machine program, or a UPL program lowered to one, on a machine.  Raises UplError (UPL17xx) if it does not fit."""

    def __init__(
        self,
        module: ModuleOp,
        params: Mapping[str, int],
        *,
        machine: Machine | str | Path | None = None,
        simulator: Simulator | None = None,
        ordered: bool = False,
    ):
        name = None if machine is None or isinstance(machine, Machine) else str(machine)
        if not isinstance(machine, Machine):
            machine = load_machine(name) if name else machine_of(module)
        self.machine = machine
        self.simulator: Simulator | None = simulator
        self._loaded = _Loaded(lowered(module, params, machine, name, ordered=ordered))
        self.ports, self.hosts = self._loaded.ports, self._loaded.hosts
        self.image = self._fitting()

    def on(self, machine: Machine) -> RtlEngine:
        """The same program on another machine; what lowering made is shared.  Raises UplError if it does not fit."""
        other = copy(self)
        other.machine = machine
        other.image = other._fitting()
        return other

    def _fitting(self) -> ProgramImage:
        """The image for this machine, which gets open gathers if the program has some."""
        loaded = self._loaded
        self.machine = with_open_gathers(self.machine, loaded.image)
        loaded.image.validate(self.machine)
        instances = self.machine.matching.organisation is Organisation.DIRECT or self.machine.host.fit
        return loaded.with_domains if instances else loaded.image

    def bind(self, arrays: Mapping[str, object]) -> dict[str, Array]:
        """What a caller passes for the host inputs as dense arrays.  Raises UplError (UPL1501–UPL1504)."""
        for name in arrays:
            if name not in self.hosts:
                help_ = nearest_or_all(name, self.hosts)
                raise error("UPL1502", f"`{name}` is not an input of the program", span_of(self._loaded.program), help=help_)
        return dense_arrays([self.ports[name] for name in self.hosts], arrays)

    def run(self, inputs: Mapping[str, Array]) -> RtlResult:
        """Run once; `inputs` are dense arrays as the host ports have them."""
        return self.run_tokens(self.inject(inputs))

    def run_tokens(
        self, tokens: Sequence[HostToken], watch: Callable[[Recorded], None] | None = None, *, audit: bool = False
    ) -> RtlResult:  # fmt: skip
        """Run once with tokens that `inject` made; a tuple of them is put into words once for all machines of one make.
        `watch` is given what the cores did; `audit`: the outputs are compared with those of the recorded additions."""
        given = tokens if isinstance(tokens, tuple) else tuple(map(HostToken._make, tokens))
        if audit:
            result = run_machine(self.image, self.machine, given, simulator=self.simulator, watch=watch, audit=True)
        else:  # whether runs are audited that do not ask for it is a default, which tests change
            result = run_machine(self.image, self.machine, given, simulator=self.simulator, watch=watch)
        return RtlResult(self.collect(result.outputs), result.stats)

    def inject(self, inputs: Mapping[str, Array]) -> list[HostToken]:
        """The tokens that the host sends for dense arrays, in its order."""
        hosts = inputs_in_order(self.hosts.items())
        return [t for name, node in hosts for t in self._inject(self.ports[name], node, inputs[name])]

    def _inject(self, port: HostPort, node: Node, values: Array) -> list[HostToken]:
        """The tokens that a host input sends: its code, run for every element of its domain."""
        out: list[HostToken] = []
        order = field_order(self.image, node)
        for point in sorted(port.points(), key=lambda point: [point[f] for f in order]):
            element = values[port.box.place(point)]
            value: Scalar = element if values.dtype == np.float32 else element.item()
            for sent in run_activation(self.image, node, point, (value,)):
                assert isinstance(sent.target, ToNode)  # `lower-hw` puts a node between
                goal = sent.target
                out.append(HostToken(goal.node, goal.input, sent.index, sent.value, sent.multiplicity, sent.present))
        return out

    def collect(self, elements: list[OutputElement]) -> dict[str, Array]:
        """Dense arrays of what came out.  Raises UplError: UPL1602 an element that is none, or came twice; UPL1603 one that
        did not come."""
        outputs = {o.name: self.ports[o.name].zeros() for o in self.image.outputs}
        seen = {name: np.zeros(a.shape, np.bool_) for name, a in outputs.items()}
        for name, index, value in elements:
            port = self.ports[name]
            if not port.box.contains(index) or not port.inside[port.box.place(index)]:
                raise error("UPL1602", f"{name}<{_text(index)}> is outside the domain of `{name}`", port.span)
            place = port.box.place(index)
            if seen[name][place]:
                raise error("UPL1602", f"{name}<{_text(index)}> was sent twice", port.span)
            seen[name][place] = True
            outputs[name][place] = value
        for name, there in seen.items():
            port = self.ports[name]
            missing = np.argwhere(port.inside & ~there)
            if len(missing):
                first = tuple(int(i + o) for i, o in zip(missing[0], port.origin, strict=True))
                more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
                raise error("UPL1603", f"the output `{name}` got no token at <{_text(first)}>{more}", port.span)
        return outputs


def _text(index: tuple[int, ...]) -> str:
    return ",".join(map(str, index))
