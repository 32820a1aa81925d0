"""The `ppn` dialect: a program as a process network in hardware, with a static schedule (after polyhedral process
networks)."""

from upl_mlir.dialects.ppn.attributes import RangesAttr, RunsAttr
from upl_mlir.dialects.ppn.ops import PPN, BindOp, ChannelOp, CircuitOp, PortOp, ProcessOp, UnitOp
from upl_mlir.dialects.ppn.verify import verify_circuit

CircuitOp.RULES.append(verify_circuit)

__all__ = [
    "PPN", "BindOp", "ChannelOp", "CircuitOp", "PortOp", "ProcessOp", "RangesAttr", "RunsAttr", "UnitOp",
]  # fmt: skip
