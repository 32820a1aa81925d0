"""Operations of the `ttm` dialect: a program for the tagged-token machine.

    ttm.program @perceptron streams <"d"> {
      ttm.table @N from 0 : i64 = array<i64: 4, 5, 3> : i32
      ttm.node @Link <"d from 1 bits 2, k from 1 bits 1, i from 1 bits 3, j from 1 bits 3"> <"r: f32, w: f32">
          in <"1<=d<=3 && 1<=k<=2 && 1<=i<=N[k-1] && 1<=j<=N[k]"> {
      ^bb0(%d: i32, %k: i32, %i: i32, %j: i32, %r: f32, %w: f32):
        %0 = arith.mulf %r, %w : f32
        %n = ttm.load @N[%k] : i32
        ttm.send %0 -> @Sum::@s tag %d, %k, %j as "xxx" times %n : f32
      }
    }

Every index field has a bias and a width in bits. Every value is i32, f32 or i1. Every index expression, count and
condition is code. Code that may only run when a condition holds stands inside `ttm.when`; a `for` arrow is `ttm.for`. A
program is complete: besides it, a run needs only arrays for its host inputs and a machine description.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr, SymbolRefAttr, UnitAttr, i1, i32, i64
from xdsl.ir import Attribute, Block, Dialect, Operation, Region, SSAValue
from xdsl.irdl import (
    AnyAttr,
    AttrSizedOperandSegments,
    IRDLOperation,
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
from xdsl.traits import HasAncestor, HasParent, NoTerminator

from upl_mlir.dialects.bases import Entry, Named, Program, Remainder, Unary
from upl_mlir.dialects.ttm.attributes import Field, FieldsAttr, Input, InputsAttr
from upl_mlir.dialects.upl.attributes import FormulaAttr, NamesAttr
from upl_mlir.poly.expr import Formula


@irdl_op_definition
class ProgramOp(Program):
    """A whole program.

    `machine` is the path of the machine description that the program is meant for. `streams` are fields along which it
    streams: in the nodes that have such a field, no token goes from a later value of it to an earlier one.
    """

    name = "ttm.program"
    RULES: ClassVar[list[Callable[[ProgramOp], None]]] = []
    machine = opt_prop_def(StringAttr)
    streams = opt_prop_def(NamesAttr)
    assembly_format = "$sym_name (`for` $machine^)? (`streams` $streams^)? $body attr-dict"

    def __init__(self, name: str, ops: Sequence[Operation], machine: str | None = None, streams: Sequence[str] = ()):
        props = {
            "sym_name": StringAttr(name), "machine": None if machine is None else StringAttr(machine),
            "streams": NamesAttr(tuple(streams)) if streams else None,
        }  # fmt: skip
        super().__init__(properties=props, regions=[Region(Block(ops))])


@irdl_op_definition
class TableOp(Named):
    """A constant array of i32 or f32 entries, the first at index `lower`.  Domains may read one of i32."""

    name = "ttm.table"
    lower = prop_def(IntegerAttr)
    values = prop_def(AnyAttr())  # a DenseArrayBase of i64 or f64
    element = prop_def(AnyAttr())
    traits = traits_def(HasParent(ProgramOp))
    assembly_format = "$sym_name `from` $lower `=` $values `:` $element attr-dict"

    def __init__(self, name: str, lower: int, values: DenseArrayBase, element: Attribute):
        super().__init__(
            properties={
                "sym_name": StringAttr(name), "lower": IntegerAttr(lower, i64), "values": values, "element": element,
            }
        )  # fmt: skip


class _Indexed(Named):
    """What has index fields, and a domain over them."""

    layout = prop_def(FieldsAttr)
    domain = opt_prop_def(FormulaAttr)
    traits = traits_def(HasParent(ProgramOp))

    @property
    def fields(self) -> tuple[Field, ...]:
        """The index fields."""
        return self.layout.data


@irdl_op_definition
class OutputOp(_Indexed):
    """A place where tokens leave the machine.

    `domain` is the set of the output's elements, over the fields. The default is all values that the fields can hold.
    """

    name = "ttm.output"
    element = prop_def(AnyAttr())
    assembly_format = "$sym_name $layout $element (`in` $domain^)? attr-dict"

    def __init__(self, name: str, fields: Sequence[Field], element: Attribute, domain: Formula | None = None):
        where = None if domain is None else FormulaAttr(domain)
        props = {
            "sym_name": StringAttr(name), "layout": FieldsAttr(tuple(fields)), "element": element, "domain": where,
        }  # fmt: skip
        super().__init__(properties=props)


@irdl_op_definition
class NodeOp(_Indexed):
    """A node: tag layout, inputs, microcode.  Fields and inputs are the arguments of its block.

    `domain` is the set of its instances, over the fields. The default is all values that the fields can hold. With
    `host` the node is a host input: the domain is that of the array, and the code runs outside of the machine, once for
    each element.
    """

    name = "ttm.node"
    inputs = prop_def(InputsAttr)
    host = opt_prop_def(UnitAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())
    assembly_format = "$sym_name (`host` $host^)? $layout $inputs (`in` $domain^)? $body attr-dict"

    def __init__(
        self,
        name: str,
        fields: Sequence[Field],
        inputs: Sequence[Input],
        body: Region,
        *,
        domain: Formula | None = None,
        host: bool = False,
    ):
        props = {
            "sym_name": StringAttr(name), "layout": FieldsAttr(tuple(fields)), "inputs": InputsAttr(tuple(inputs)),
            "domain": None if domain is None else FormulaAttr(domain), "host": UnitAttr() if host else None,
        }  # fmt: skip
        super().__init__(properties=props, regions=[body])

    @property
    def ports(self) -> tuple[Input, ...]:
        """The inputs."""
        return self.inputs.data


@irdl_op_definition
class BootOp(IRDLOperation):
    """A gather that is complete before the start (no summands): its instance and the operator's identity.

    An open gather is not complete then: the operation states only that it exists, and its `rank`.
    """

    name = "ttm.boot"
    target = prop_def(SymbolRefAttr)
    index = prop_def(AnyAttr())  # a DenseArrayBase of i64
    rank = opt_prop_def(IntegerAttr)
    traits = traits_def(HasParent(ProgramOp))
    assembly_format = "$target `at` $index (`rank` $rank^)? attr-dict"

    def __init__(self, target: SymbolRefAttr, index: Sequence[int], rank: int | None = None):
        props = {
            "target": target, "index": DenseArrayBase.from_list(i64, list(index)),
            "rank": None if rank is None else IntegerAttr(rank, i64),
        }  # fmt: skip
        super().__init__(properties=props)


@irdl_op_definition
class LoadOp(Entry):
    """An entry of a constant table."""

    name = "ttm.load"
    at = operand_def(i32)


@irdl_op_definition
class ModOp(Remainder):
    """The remainder that `floordiv` leaves."""

    name = "ttm.mod"
    lhs = operand_def(i32)
    rhs = operand_def(i32)
    result = result_def(i32)


@irdl_op_definition
class SigmoidOp(Unary):
    """The logistic function."""

    name = "ttm.sigmoid"


@irdl_op_definition
class WhenOp(IRDLOperation):
    """Code that runs, and arrows that send, only if the condition holds. It is the guard of arrows, or, in a `ttm.for`,
    of its points."""

    name = "ttm.when"
    condition = operand_def(i1)
    body = region_def("single_block")
    traits = traits_def(HasAncestor(NodeOp), NoTerminator())
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
    traits = traits_def(HasAncestor(NodeOp), NoTerminator())
    assembly_format = "$lo `to` $hi $body attr-dict"

    def __init__(self, lo: SSAValue, hi: SSAValue, body: Region):
        super().__init__(operands=[lo, hi], regions=[body])


@irdl_op_definition
class SendOp(IRDLOperation):
    """A send descriptor: a token for an input of a node, or for a host output.

    `pattern` has an ``x`` for each field that comes from `tag`, and a ``*`` for each open one. A missing multiplicity
    is 1; `unbounded` is ``##``. For an open gather the multiplicity is 1 more than the rank of its instance. With
    `present` the token is not a summand: it says that the gather exists, and its value is that of the gather without
    summands.
    """

    name = "ttm.send"
    value = operand_def(AnyAttr())
    tag = var_operand_def(i32)
    multiplicity = opt_operand_def(i32)
    target = prop_def(SymbolRefAttr)
    pattern = prop_def(StringAttr)
    unbounded = opt_prop_def(UnitAttr)
    present = opt_prop_def(UnitAttr)
    traits = traits_def(HasAncestor(NodeOp))
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$value `->` $target (`tag` $tag^)? `as` $pattern (`times` $multiplicity^)? (`unbounded` $unbounded^)? "
        "(`present` $present^)? attr-dict `:` type($value)"
    )

    def __init__(
        self,
        value: SSAValue,
        target: SymbolRefAttr,
        tag: Sequence[SSAValue | None],
        multiplicity: SSAValue | None,
        *,
        unbounded: bool = False,
        present: bool = False,
    ):
        props = {
            "target": target, "pattern": StringAttr("".join("*" if t is None else "x" for t in tag)),
            "unbounded": UnitAttr() if unbounded else None, "present": UnitAttr() if present else None,
        }  # fmt: skip
        super().__init__(operands=[value, [t for t in tag if t is not None], multiplicity], properties=props)


TTM = Dialect(
    "ttm",
    [ProgramOp, TableOp, OutputOp, NodeOp, BootOp, LoadOp, ModOp, SigmoidOp, WhenOp, ForOp, SendOp],
    [FieldsAttr, InputsAttr],
)
"""The dialect, as xDSL's universe registers it."""
