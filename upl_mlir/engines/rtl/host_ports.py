"""The host's arrays of a machine program: where the elements of each port lie, from the program's text alone."""

from __future__ import annotations

from xdsl.dialects.builtin import f32, i1, i32
from xdsl.ir import Attribute

from upl_mlir.dialects.ttm import NodeOp, OutputOp, ProgramOp
from upl_mlir.dialects.ttm.query import domain_of, host_inputs, outputs, poly_context
from upl_mlir.dialects.upl import UplType
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.host.arrays import HostPort, port_layout

_TYPES: dict[Attribute, UplType] = {f32: UplType.F32, i32: UplType.INT, i1: UplType.BOOL}


def machine_ports(program: ProgramOp) -> dict[str, HostPort]:
    """The layouts of all host ports by name, inputs first, in text order: reals are float32, integers int64.

    Raises UplError (UPL1506, UPL1507).
    """
    ctx = poly_context(program)

    def layout(op: NodeOp | OutputOp, element: Attribute) -> HostPort:
        fields = tuple(f.name for f in op.fields)
        return port_layout(op.symbol, fields, _TYPES[element], domain_of(op), ctx, span_of(op))

    given = {op.symbol: layout(op, op.ports[0].type) for op in host_inputs(program)}
    return given | {op.symbol: layout(op, op.element) for op in outputs(program)}
