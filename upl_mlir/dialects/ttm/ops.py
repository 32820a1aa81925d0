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

Every index field has a bias and a width in bits, every value is i32, f32 or i1, every index expression, count and
condition is code.  What may only be computed when a condition holds stands inside `ttm.when`; a `for` arrow is `ttm.for`.
A program is whole: arrays for its host inputs and a machine's description are all that a run needs besides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from xdsl.traits import HasAncestor, HasParent, NoTerminator, Pure, SymbolTable

from upl_mlir.dialects.ttm.attributes import Field, FieldsAttr, Input, InputsAttr
from upl_mlir.dialects.upl.attributes import FormulaAttr, NamesAttr
from upl_mlir.poly.expr import Formula


@irdl_op_definition
class ProgramOp(IRDLOperation):
    """A whole program.

    `machine` is the path of the machine description that it is meant for.  `streams` are fields along which it streams: no
    token goes from a later value of the field to an earlier one, in the nodes that have it.
    """

    name = "ttm.program"
    RULES: ClassVar[list[Callable[[ProgramOp], None]]] = []  # of whole programs; the package adds them
    sym_name = prop_def(SymbolNameConstraint())
    machine = opt_prop_def(StringAttr)
    streams = opt_prop_def(NamesAttr)
    body = region_def("single_block")
    traits = traits_def(SymbolTable(), NoTerminator())
    assembly_format = "$sym_name (`for` $machine^)? (`streams` $streams^)? $body attr-dict"

    def __init__(self, name: str, ops: Sequence[Operation], machine: str | None = None, streams: Sequence[str] = ()):
        props: dict[str, Attribute] = {"sym_name": StringAttr(name)}
        if machine is not None:
            props["machine"] = StringAttr(machine)
        if streams:
            props["streams"] = NamesAttr(tuple(streams))
        super().__init__(properties=props, regions=[Region(Block(ops))])

    def verify_(self) -> None:
        for rule in self.RULES:
            rule(self)


@irdl_op_definition
class TableOp(IRDLOperation):
    """A constant array of i32 or f32 entries, the first at index `lower`.  Domains may read one of i32."""

    name = "ttm.table"
    sym_name = prop_def(SymbolNameConstraint())
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


@irdl_op_definition
class OutputOp(IRDLOperation):
    """A place where tokens leave the machine.

    `domain` are the elements of the output, over the fields; without it, all that the fields can hold.
    """

    name = "ttm.output"
    sym_name = prop_def(SymbolNameConstraint())
    layout = prop_def(FieldsAttr)
    element = prop_def(AnyAttr())
    domain = opt_prop_def(FormulaAttr)
    traits = traits_def(HasParent(ProgramOp))
    assembly_format = "$sym_name $layout $element (`in` $domain^)? attr-dict"

    def __init__(self, name: str, fields: Sequence[Field], element: Attribute, domain: Formula | None = None):
        props: dict[str, Attribute] = {
            "sym_name": StringAttr(name), "layout": FieldsAttr(tuple(fields)), "element": element,
        }  # fmt: skip
        if domain is not None:
            props["domain"] = FormulaAttr(domain)
        super().__init__(properties=props)

    @property
    def symbol(self) -> str:
        """The output's name."""
        return self.sym_name.data

    @property
    def fields(self) -> tuple[Field, ...]:
        """The index fields."""
        return self.layout.data


@irdl_op_definition
class NodeOp(IRDLOperation):
    """A node: tag layout, inputs, microcode.  Fields and inputs are the arguments of its block.

    `domain` are its instances, over the fields; without it, all that the fields can hold.  With `host` it is a host input:
    the domain is that of the array, and the code runs outside of the machine, once for each of them.
    """

    name = "ttm.node"
    sym_name = prop_def(SymbolNameConstraint())
    layout = prop_def(FieldsAttr)
    inputs = prop_def(InputsAttr)
    domain = opt_prop_def(FormulaAttr)
    host = opt_prop_def(UnitAttr)
    body = region_def("single_block")
    traits = traits_def(HasParent(ProgramOp), NoTerminator())
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
        props: dict[str, Attribute] = {
            "sym_name": StringAttr(name), "layout": FieldsAttr(tuple(fields)), "inputs": InputsAttr(tuple(inputs)),
        }  # fmt: skip
        if domain is not None:
            props["domain"] = FormulaAttr(domain)
        if host:
            props["host"] = UnitAttr()
        super().__init__(properties=props, regions=[body])

    @property
    def symbol(self) -> str:
        """The node's name."""
        return self.sym_name.data

    @property
    def fields(self) -> tuple[Field, ...]:
        """The index fields."""
        return self.layout.data

    @property
    def ports(self) -> tuple[Input, ...]:
        """The inputs."""
        return self.inputs.data


@irdl_op_definition
class BootOp(IRDLOperation):
    """A gather that is complete before the start (no summands): its instance and the operator's identity."""

    name = "ttm.boot"
    target = prop_def(SymbolRefAttr)
    index = prop_def(AnyAttr())  # a DenseArrayBase of i64
    traits = traits_def(HasParent(ProgramOp))
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
    """What is computed and sent only if the condition holds: the guard of arrows, or, in a `ttm.for`, of its points."""

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

    `pattern` has an ``x`` for each field that comes from `tag`, a ``*`` for each open one; a missing multiplicity is 1,
    `unbounded` is ``##``.
    """

    name = "ttm.send"
    value = operand_def(AnyAttr())
    tag = var_operand_def(i32)
    multiplicity = opt_operand_def(i32)
    target = prop_def(SymbolRefAttr)
    pattern = prop_def(StringAttr)
    unbounded = opt_prop_def(UnitAttr)
    traits = traits_def(HasAncestor(NodeOp))
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$value `->` $target (`tag` $tag^)? `as` $pattern (`times` $multiplicity^)? (`unbounded` $unbounded^)? attr-dict "
        "`:` type($value)"
    )

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
    [FieldsAttr, InputsAttr],
)
"""The dialect, as xDSL's universe registers it."""
