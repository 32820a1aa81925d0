"""Questions that engines ask of a machine program: what a module holds, its ports, and what polyhedral code may know."""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import DenseArrayBase, IntegerType, ModuleOp, i32

from upl_mlir.dialects.ttm.attributes import Field
from upl_mlir.dialects.ttm.ops import NodeOp, OutputOp, ProgramOp, TableOp
from upl_mlir.dialects.upl.facts import Facts
from upl_mlir.poly.expr import TRUE, Formula
from upl_mlir.poly.knowledge import Table
from upl_mlir.poly.operators import CmpOp
from upl_mlir.poly.sets import PolyContext


def machine_program(module: ModuleOp) -> ProgramOp | None:
    """The machine program of a module that holds one and nothing else; None for another."""
    ops = list(module.body.block.ops)
    return ops[0] if len(ops) == 1 and isinstance(ops[0], ProgramOp) else None


def host_inputs(program: ProgramOp) -> list[NodeOp]:
    """The host inputs, in text order."""
    return [op for op in program.body.block.ops if isinstance(op, NodeOp) and op.host is not None]


def nodes(program: ProgramOp) -> list[NodeOp]:
    """The nodes of the machine, in text order: their places are their numbers."""
    return [op for op in program.body.block.ops if isinstance(op, NodeOp) and op.host is None]


def outputs(program: ProgramOp) -> list[OutputOp]:
    """The host outputs, in text order."""
    return [op for op in program.body.block.ops if isinstance(op, OutputOp)]


def tables(program: ProgramOp) -> list[TableOp]:
    """The constant tables, in text order."""
    return [op for op in program.body.block.ops if isinstance(op, TableOp)]


def table_values(op: TableOp) -> tuple[int, ...]:
    """The entries of a table, which are numbers of either kind."""
    return tuple(cast("DenseArrayBase[IntegerType]", op.values).get_values())


def domain_of(op: NodeOp | OutputOp) -> Formula:
    """The domain that is written; without one, all that the fields can hold."""
    return all_of(op.fields) if op.domain is None else op.domain.data


def all_of(fields: tuple[Field, ...]) -> Formula:
    """All that fields can hold."""
    bounds = ((f.name, op, v) for f in fields for op, v in ((CmpOp.GE, f.bias), (CmpOp.LE, f.last)))
    return Formula.all(Formula.compare(name, op, value) for name, op, value in bounds) if fields else TRUE


def poly_context(program: ProgramOp) -> PolyContext:
    """The tables of integers, which are all that domains of a machine program read besides their fields."""
    known = {op.symbol: Table(op.lower.value.data, table_values(op)) for op in tables(program) if op.element == i32}
    return PolyContext((), TRUE, {}, known, {})


def facts_of(program: ProgramOp) -> Facts:
    """The facts of a machine program: names and fields of its ports."""
    return Facts(
        program.sym_name.data, (),
        {op.symbol: tuple(f.name for f in op.fields) for op in host_inputs(program)},
        {op.symbol: tuple(f.name for f in op.fields) for op in outputs(program)}, adjoint=False,
    )  # fmt: skip
