"""Operations of the `ttm` dialect: a program for the tagged-token machine.

    ttm.program @perceptron {
      ttm.table @N from 0 = array<i64: 4, 5, 3> : i32
      ttm.node @Link <"d:1:2, k:1:1, i:1:3, j:1:3"> <"r:f32, w:f32"> {
      ^bb0(%d: i32, %k: i32, %i: i32, %j: i32, %r: f32, %w: f32):
        %0 = arith.mulf %r, %w : f32
        %n = ttm.load @N[%k] : i32
        ttm.send %0 -> @Sum::@s tag %d, %k, %j as "xxx" times %n : f32
      }
    }

Every index field has a bias and a width in bits, every value is i32, f32 or i1, every index expression, count and
condition is code.  What may only be computed when a condition holds stands inside `ttm.when`; a `for` arrow is `ttm.for`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import (
    DenseArrayBase,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    UnitAttr,
    i1,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Dialect, Operation, Region, SSAValue
from xdsl.irdl import (
    AnyAttr,
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import NoTerminator, Pure, SymbolTable


@dataclass(frozen=True)
class Field:
    """An index field: value v travels as ``v - bias`` in `bits` bits."""

    name: str
    bias: int
    bits: int

    def __str__(self) -> str:
        return f"{self.name}:{self.bias}:{self.bits}"


@dataclass(frozen=True)
class Input:
    """An input: `type` is f32, i32 or i1; `gather` its operator, empty for an ordinary input."""

    name: str
    type: str
    gather: str = ""

    def __str__(self) -> str:
        return f"{self.name}:{self.type}" + (f":{self.gather}" if self.gather else "")


def fields_of(text: str) -> tuple[Field, ...]:
    """The fields that a node's text lists."""
    parts = [p.strip().split(":") for p in text.split(",") if p.strip()]
    return tuple(Field(name, int(bias), int(bits)) for name, bias, bits in parts)


def inputs_of(text: str) -> tuple[Input, ...]:
    """The inputs that a node's text lists."""
    return tuple(Input(*p.strip().split(":")) for p in text.split(",") if p.strip())


@irdl_op_definition
class ProgramOp(IRDLOperation):
    """A whole program; `machine` is the path of the machine description that it is meant for."""

    name = "ttm.program"
    sym_name = prop_def(SymbolNameConstraint())
    machine = opt_prop_def(StringAttr)
    body = region_def("single_block")
    traits = traits_def(SymbolTable(), NoTerminator())
    assembly_format = "$sym_name (`for` $machine^)? $body attr-dict"

    def __init__(self, name: str, ops: Sequence[Operation], machine: str | None = None):
        props: dict[str, Attribute] = {"sym_name": StringAttr(name)}
        if machine is not None:
            props["machine"] = StringAttr(machine)
        super().__init__(properties=props, regions=[Region(Block(ops))])


@irdl_op_definition
class TableOp(IRDLOperation):
    """A constant array of i32 or f32 entries, the first at index `lower`."""

    name = "ttm.table"
    sym_name = prop_def(SymbolNameConstraint())
    lower = prop_def(IntegerAttr)
    values = prop_def(AnyAttr())  # a DenseArrayBase of i64 or f64
    element = prop_def(AnyAttr())
    assembly_format = "$sym_name `from` $lower `=` $values `:` $element attr-dict"

    def __init__(self, name: str, lower: int, values: DenseArrayBase, element: Attribute):
        super().__init__(
            properties={
                "sym_name": StringAttr(name), "lower": IntegerAttr(lower, i64), "values": values, "element": element,
            }
        )  # fmt: skip


@irdl_op_definition
class OutputOp(IRDLOperation):
    """A place where tokens leave the machine; fields as a node has them."""

    name = "ttm.output"
    sym_name = prop_def(SymbolNameConstraint())
    fields = prop_def(StringAttr)
    element = prop_def(StringAttr)
    assembly_format = "$sym_name $fields $element attr-dict"

    def __init__(self, name: str, fields: Sequence[Field], element: str):
        text = ", ".join(map(str, fields))
        super().__init__(
            properties={"sym_name": StringAttr(name), "fields": StringAttr(text), "element": StringAttr(element)}
        )


@irdl_op_definition
class NodeOp(IRDLOperation):
    """A node: tag layout, inputs, microcode.  With `host`, a host input: its code runs outside, once per element."""

    name = "ttm.node"
    sym_name = prop_def(SymbolNameConstraint())
    layout = prop_def(StringAttr)
    inputs = prop_def(StringAttr)
    host = opt_prop_def(UnitAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$sym_name $layout $inputs $body attr-dict"

    def __init__(self, name: str, fields: Sequence[Field], inputs: Sequence[Input], body: Region, *, host: bool = False):
        props: dict[str, Attribute] = {
            "sym_name": StringAttr(name),
            "layout": StringAttr(", ".join(map(str, fields))),
            "inputs": StringAttr(", ".join(map(str, inputs))),
        }
        if host:
            props["host"] = UnitAttr()
        super().__init__(properties=props, regions=[body])


@irdl_op_definition
class BootOp(IRDLOperation):
    """A gather that is complete before the start (no summands): its instance and the operator's identity."""

    name = "ttm.boot"
    target = prop_def(SymbolRefAttr)
    index = prop_def(AnyAttr())  # a DenseArrayBase of i64
    assembly_format = "$target `at` $index attr-dict"

    def __init__(self, target: SymbolRefAttr, index: Sequence[int]):
        super().__init__(properties={"target": target, "index": DenseArrayBase.from_list(i64, list(index))})


@irdl_op_definition
class LoadOp(IRDLOperation):
    """An entry of a constant table."""

    name = "ttm.load"
    table = prop_def(SymbolRefAttr)
    at = operand_def(i32)
    result = result_def(AnyAttr())
    traits = traits_def(Pure())
    assembly_format = "$table `[` $at `]` attr-dict `:` type($result)"

    def __init__(self, table: str, at: SSAValue, type_: Attribute):
        super().__init__(operands=[at], properties={"table": SymbolRefAttr(table)}, result_types=[type_])


@irdl_op_definition
class ModOp(IRDLOperation):
    """The remainder that `floordiv` leaves."""

    name = "ttm.mod"
    lhs = operand_def(i32)
    rhs = operand_def(i32)
    result = result_def(i32)
    traits = traits_def(Pure())
    assembly_format = "$lhs `,` $rhs attr-dict"

    def __init__(self, lhs: SSAValue, rhs: SSAValue):
        super().__init__(operands=[lhs, rhs], result_types=[i32])


@irdl_op_definition
class SigmoidOp(IRDLOperation):
    """The logistic function."""

    name = "ttm.sigmoid"
    T: ClassVar = VarConstraint("T", AnyAttr())
    value = operand_def(T)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `:` type($value)"

    def __init__(self, value: SSAValue):
        super().__init__(operands=[value], result_types=[value.type])


@irdl_op_definition
class WhenOp(IRDLOperation):
    """What is computed and sent only if the condition holds."""

    name = "ttm.when"
    condition = operand_def(i1)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())
    assembly_format = "$condition $body attr-dict"

    def __init__(self, condition: SSAValue, body: Region):
        super().__init__(operands=[condition], regions=[body])


@irdl_op_definition
class ForOp(IRDLOperation):
    """A hardware counter from `lo` to `hi`, both included; the block argument is the iterator."""

    name = "ttm.for"
    lo = operand_def(i32)
    hi = operand_def(i32)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())
    assembly_format = "$lo `to` $hi $body attr-dict"

    def __init__(self, lo: SSAValue, hi: SSAValue, body: Region):
        super().__init__(operands=[lo, hi], regions=[body])


@irdl_op_definition
class SendOp(IRDLOperation):
    """A send descriptor.  `pattern` has an ``x`` for each field that comes from `tag`, a ``*`` for each open one; a
    missing multiplicity is 1, `unbounded` is ``##``."""

    name = "ttm.send"
    value = operand_def(AnyAttr())
    tag = var_operand_def(i32)
    multiplicity = opt_operand_def(i32)
    target = prop_def(SymbolRefAttr)
    pattern = prop_def(StringAttr)
    unbounded = opt_prop_def(UnitAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    assembly_format = "$value `->` $target (`tag` $tag^)? `as` $pattern (`times` $multiplicity^)? attr-dict `:` type($value)"

    def __init__(
        self,
        value: SSAValue,
        target: SymbolRefAttr,
        tag: Sequence[SSAValue | None],
        multiplicity: SSAValue | None,
        *,
        unbounded: bool = False,
    ):
        props: dict[str, Attribute] = {
            "target": target, "pattern": StringAttr("".join("*" if t is None else "x" for t in tag)),
        }  # fmt: skip
        if unbounded:
            props["unbounded"] = UnitAttr()
        super().__init__(operands=[value, [t for t in tag if t is not None], multiplicity], properties=props)


TTM = Dialect(
    "ttm",
    [ProgramOp, TableOp, OutputOp, NodeOp, BootOp, LoadOp, ModOp, SigmoidOp, WhenOp, ForOp, SendOp],
)
"""The dialect, as xDSL's universe registers it."""
