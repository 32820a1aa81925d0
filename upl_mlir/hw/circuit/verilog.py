"""A circuit as Verilog text, and as text of CIRCT's dialects."""

from __future__ import annotations

from typing import cast, get_args

from xdsl.dialects.builtin import ModuleOp

from upl_mlir.diagnostics import did_you_mean, error
from upl_mlir.dialects.ppn import CircuitOp
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.hw.circuit.ram import Target
from upl_mlir.hw.verilog import convert, netlist, waivers
from upl_mlir.netsim.circt import circt_text
from upl_mlir.netsim.read import read as read_netlist
from upl_mlir.passes.circuit.ir import read
from upl_mlir.passes.circuit.plan import Plan


def circuit_of(module: ModuleOp) -> Plan | None:
    """The plan of the circuit that a module holds, None if it holds none.  Raises UplError: UPL1101 if there are several,
    UPL2003, UPL2010."""
    ops = [op for op in module.body.block.ops if isinstance(op, CircuitOp)]
    if len(ops) > 1:
        raise error("UPL1101", f"expected one `ppn.circuit` in the module, found {len(ops)}", span_of(ops[1]))
    return read(ops[0])[1] if ops else None


def circuit_verilog(plan: Plan, device: str = "generic") -> str:
    """Module `circuit`, and what it consists of.  Raises UplError UPL2004 for a device that there is not."""
    return waivers() + convert(Circuit(plan, target_of(device)), "circuit")


def target_of(device: str) -> Target:
    """What the hardware is made of, by name.  Raises UplError UPL2004 for a device that there is not."""
    devices = get_args(Target)
    if device not in devices:
        names = ", ".join(devices)
        raise error("UPL2004", f"device={device}: expected one of {names}", help=did_you_mean(device, devices))
    return cast(Target, device)


def circuit_hw(plan: Plan) -> str:
    """The module `circuit` in CIRCT's dialects `hw`, `comb` and `seq`, without a reset: registers have initial values."""
    return circt_text(read_netlist(netlist(Circuit(plan), "circuit"), "circuit", {}), "circuit")
