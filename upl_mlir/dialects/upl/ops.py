"""Operations of the `upl` dialect: a program as ports, nodes and arrows.

    upl.program @name {
      upl.param @D where <"D>=1">
      upl.const @K as <"7"> = 7 : i64
      upl.input @X <"d,i"> real in <"1<=d<=D && ..."> { ^bb0(%d: i64, %i: i64, %X: f64): upl.send ... }
      upl.node @Link <"d,k,i,j"> <"r, w"> { ^bb0(%d: i64, ..., %r: f64, %w: f64): ... }
      upl.output @R <"d,i"> real
    }

A body is straight-line SSA in `arith`, `math` and a few operations of this file.  Its block arguments are the index
fields (i64), then the inputs.  Index expressions, static conditions and counts are attributes in the text normal form
of `poly.expr`, because they are polyhedral; conditions on data are SSA operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i1,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, BlockArgument, Dialect, Operation, Region, SSAValue
from xdsl.irdl import (
    AnyAttr,
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
)
from xdsl.traits import HasParent, NoTerminator
from xdsl.utils.exceptions import VerifyException

from upl_mlir.dialects.bases import Named, Program
from upl_mlir.dialects.upl.attributes import (
    CountAttr,
    ExprAttr,
    FormulaAttr,
    Index,
    IndexAttr,
    Iterator,
    IteratorsAttr,
    NamesAttr,
    Port,
    PortsAttr,
    RankAttr,
    Special,
    UplType,
)
from upl_mlir.dialects.upl.values import AlongOp, LetOp, LookupOp, ModOp, RefOp, SigmoidOp, StopGradientOp, hint
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr

TYPES = {t.value for t in UplType}


def port_ref(node: str, port: str | None = None) -> SymbolRefAttr:
    """A reference ``@Node::@input``, or ``@Output`` alone."""
    return SymbolRefAttr(node, [port] if port is not None else [])


class SymbolScope(Program):
    """A program of any level: its one block declares parameters, constants and arrays, among other things."""

    name = "upl.program"  # as messages call what a declaration must stand in


@irdl_op_definition
class ProgramOp(SymbolScope):
    """A whole UPL program; its one block holds declarations, host ports, nodes and adjoint directives in text order."""

    name = "upl.program"
    assembly_format = "$sym_name $body attr-dict"

    def __init__(self, name: str, ops: Sequence[Operation] = ()):
        super().__init__(properties={"sym_name": StringAttr(name)}, regions=[Region(Block(ops))])
    RULES: ClassVar[list[Callable[[ProgramOp], None]]] = []


@irdl_op_definition
class ParamOp(Named):
    """A symbolic integer parameter with a condition on it."""

    name = "upl.param"
    condition = opt_prop_def(FormulaAttr)
    traits = traits_def(HasParent(SymbolScope))
    assembly_format = "$sym_name (`where` $condition^)? attr-dict"

    def __init__(self, name: str, condition: Formula = TRUE):
        super().__init__(properties={"sym_name": StringAttr(name), "condition": FormulaAttr.unless_true(condition)})


@irdl_op_definition
class ConstOp(Named):
    """A scalar constant.  `expr` keeps how an integer constant was written."""

    name = "upl.const"
    expr = opt_prop_def(ExprAttr)
    value = prop_def(IntegerAttr | FloatAttr)
    traits = traits_def(HasParent(SymbolScope))
    assembly_format = "$sym_name (`as` $expr^)? `=` $value attr-dict"

    def __init__(self, name: str, value: IntegerAttr | FloatAttr, expr: IndexExpr | None = None):
        written = None if expr is None else ExprAttr(expr)
        super().__init__(properties={"sym_name": StringAttr(name), "value": value, "expr": written})


@irdl_op_definition
class ArrayOp(Named):
    """A constant array ``N[lo:hi]``; entries are i64 or f64.

    Without values it is a parameter: a symbolic array of integers.  `condition` is what holds of each entry, with the
    array's name standing for it.
    """

    name = "upl.array"
    lower = prop_def(ExprAttr)
    upper = prop_def(ExprAttr)
    base = opt_prop_def(IntegerAttr)
    values = opt_prop_def(AnyAttr())  # a DenseArrayBase: the format prints it in full only if the constraint is open
    condition = opt_prop_def(FormulaAttr)
    traits = traits_def(HasParent(SymbolScope))
    assembly_format = (
        "$sym_name $lower `to` $upper (`from` $base^)? (`=` $values^)? (`where` $condition^)? attr-dict"
    )

    def __init__(
        self,
        name: str,
        lower: IndexExpr,
        upper: IndexExpr,
        base: int | None = None,
        values: DenseArrayBase | None = None,
        condition: Formula = TRUE,
    ):
        props: dict[str, Attribute] = {"sym_name": StringAttr(name), "lower": ExprAttr(lower), "upper": ExprAttr(upper)}
        if base is not None and values is not None:
            props |= {"base": IntegerAttr(base, i64), "values": values}
        super().__init__(properties={**props, "condition": FormulaAttr.unless_true(condition)})

    @property
    def symbolic(self) -> bool:
        """Whether the entries are not known."""
        return self.values is None

    def verify_(self) -> None:
        if (self.values is None) != (self.base is None):
            raise VerifyException(f"array `{self.symbol}` has values and their first index, or neither")


class _Indexed(Named):
    """What has index fields, and a domain over them."""

    index = prop_def(NamesAttr)
    declared = opt_prop_def(FormulaAttr)
    domain = opt_prop_def(FormulaAttr)
    traits = traits_def(HasParent(ProgramOp))

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the index fields."""
        return self.index.data


class _HostPort(_Indexed):
    """An array of the host."""

    dtype = prop_def(StringAttr)

    @property
    def type(self) -> UplType:
        """Type of an element."""
        return UplType(self.dtype.data)


def _port_properties(
    name: str, fields: Sequence[str], dtype: UplType, declared: Formula | None
) -> dict[str, Attribute | None]:
    return {
        "sym_name": StringAttr(name), "index": NamesAttr(tuple(fields)), "dtype": StringAttr(dtype.value),
        "declared": FormulaAttr.unless_true(declared),
    }  # fmt: skip


class _Body(_Indexed):
    """What host inputs and nodes share: index fields, a body, domains."""

    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    @property
    def block(self) -> Block:
        """The body."""
        return self.body.block

    @property
    def sends(self) -> list[SendOp]:
        """The arrows, in text order."""
        return [op for op in self.block.ops if isinstance(op, SendOp)]


def _body_region(fields: Sequence[str], values: Sequence[tuple[str, Attribute]]) -> Region:
    block = Block(arg_types=[*[i64] * len(fields), *[t for _, t in values]])
    for arg, name in zip(block.args, [*fields, *[n for n, _ in values]], strict=True):
        arg.name_hint = hint(name)
    return Region(block)


@irdl_op_definition
class InputOp(_HostPort, _Body):
    """A host input; its body sends each element, the last block argument, to where it is used.

    `declared` is the domain in the text, `domain` the one that `infer-domains` found."""

    name = "upl.input"
    assembly_format = "$sym_name $index $dtype (`in` $declared^)? (`domain` $domain^)? $body attr-dict"

    def __init__(self, name: str, fields: Sequence[str], dtype: UplType, declared: Formula | None):
        region = _body_region(fields, [(name, dtype.mlir())])
        super().__init__(properties=_port_properties(name, fields, dtype, declared), regions=[region])

    @property
    def value(self) -> BlockArgument:
        """The element inside the body."""
        return self.body.block.args[-1]


@irdl_op_definition
class OutputOp(_HostPort):
    """A host output: exactly one token for each element of its domain."""

    name = "upl.output"
    assembly_format = "$sym_name $index $dtype (`in` $declared^)? (`domain` $domain^)? attr-dict"

    def __init__(self, name: str, fields: Sequence[str], dtype: UplType, declared: Formula | None):
        super().__init__(properties=_port_properties(name, fields, dtype, declared))


@irdl_op_definition
class NodeOp(_Body):
    """A node: one virtual node for each point of its domain fires once all its inputs have arrived.

    `rank` is that of its open gathers ``[##]``, which `infer-domains` finds."""

    name = "upl.node"
    inputs = prop_def(PortsAttr)
    rank = opt_prop_def(RankAttr)
    assembly_format = "$sym_name $index $inputs (`in` $declared^)? (`domain` $domain^)? (`rank` $rank^)? $body attr-dict"

    def __init__(self, name: str, fields: Sequence[str], ports: Sequence[Port], declared: Formula | None = None):
        props = {
            "sym_name": StringAttr(name), "index": NamesAttr(tuple(fields)), "inputs": PortsAttr(tuple(ports)),
            "declared": FormulaAttr.unless_true(declared),
        }  # fmt: skip
        super().__init__(properties=props, regions=[_body_region(fields, [(p.name, p.type.mlir()) for p in ports])])

    @property
    def ports(self) -> tuple[Port, ...]:
        """The inputs, in order."""
        return self.inputs.data

    def port(self, name: str) -> Port | None:
        """The input of that name."""
        return next((p for p in self.ports if p.name == name), None)

    def arg(self, port: str) -> BlockArgument:
        """The block argument of an input."""
        at = [p.name for p in self.ports].index(port)
        return self.block.args[len(self.fields) + at]


@irdl_op_definition
class SendOp(IRDLOperation):
    """An arrow: sends `value` to an input of a node, or to a host output.

        upl.send %v -> @Link::@r <"d,k,i,*"> count <"N[k]"> when <"k<K"> if %p for <"a in 0..2"> when_point <"..."> : f64

    `when` is the static condition on fields, `if` the one on data, `when_point` the condition on iterators.  A missing
    count is 1.  `rule` names the rule by which a pass made this arrow.
    """

    name = "upl.send"
    value = operand_def(AnyAttr())
    predicate = opt_operand_def(i1)
    target = prop_def(SymbolRefAttr)
    index = prop_def(IndexAttr)
    count = opt_prop_def(CountAttr)
    condition = opt_prop_def(FormulaAttr)
    iterators = opt_prop_def(IteratorsAttr)
    point_condition = opt_prop_def(FormulaAttr)
    rule = opt_prop_def(StringAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    assembly_format = (
        "$value `->` $target $index (`count` $count^)? (`when` $condition^)? (`if` $predicate^)? "
        "(`for` $iterators^)? (`when_point` $point_condition^)? (`rule` $rule^)? attr-dict `:` type($value)"
    )

    def __init__(
        self,
        value: SSAValue,
        target: SymbolRefAttr,
        index: Index,
        *,
        count: IndexExpr | Special | None = None,
        condition: Formula = TRUE,
        predicate: SSAValue | None = None,
        iterators: Sequence[Iterator] = (),
        point_condition: Formula = TRUE,
        rule: str | None = None,
    ):
        props = {
            "target": target, "index": IndexAttr(index),
            "count": None if count is None or count == IndexExpr.of(1) else CountAttr(count),
            "condition": FormulaAttr.unless_true(condition),
            "iterators": IteratorsAttr(tuple(iterators)) if iterators else None,
            "point_condition": FormulaAttr.unless_true(point_condition),
            "rule": None if rule is None else StringAttr(rule),
        }  # fmt: skip
        super().__init__(operands=[value, predicate], properties=props)

    @property
    def target_name(self) -> str:
        """The node or output that receives."""
        return self.target.root_reference.data

    @property
    def target_port(self) -> str | None:
        """The input that receives; None for a host output."""
        nested = self.target.nested_references.data
        return nested[0].data if nested else None

    @property
    def when(self) -> Formula:
        """The static condition on the source's fields."""
        return self.condition.data if self.condition else TRUE

    @property
    def loops(self) -> tuple[Iterator, ...]:
        """The `for` iterators."""
        return self.iterators.data if self.iterators else ()

    @property
    def when_point(self) -> Formula:
        """The condition on iterator points."""
        return self.point_condition.data if self.point_condition else TRUE

    @property
    def multiplicity(self) -> IndexExpr | Special:
        """The number of activations, or of summands for a carried count; 1 where the text says nothing."""
        return self.count.data if self.count else IndexExpr.of(1)

    def guard(self, predicate: SSAValue) -> None:
        """Make a condition on data that of the arrow."""
        self.operands = [self.value, predicate]
        self.properties["operandSegmentSizes"] = DenseArrayBase.from_list(i32, [1, 1])

    def verify_(self) -> None:
        if not isinstance(self.parent_op(), InputOp | NodeOp):
            raise VerifyException("an arrow stands only in the body of a node or of a host input")
        if self.count is not None and self.count.data is Special.CARRIED:
            raise VerifyException("`#` alone is not a multiplicity: write `#n` or `##`")


@irdl_op_definition
class AdjointOp(IRDLOperation):
    """The directive ``adjoint of PORT [seed NODE.var] wrt [total] PORT, ... [-> NODE.input, ...]`` (LANGUAGE section 2)."""

    name = "upl.adjoint"
    of = prop_def(SymbolRefAttr)
    seed = opt_prop_def(SymbolRefAttr)
    wrt = prop_def(ArrayAttr[SymbolRefAttr])
    total = opt_prop_def(UnitAttr)
    into = opt_prop_def(ArrayAttr[SymbolRefAttr])
    traits = traits_def(HasParent(ProgramOp))
    assembly_format = "`of` $of (`seed` $seed^)? `wrt` (`total` $total^)? $wrt (`into` $into^)? attr-dict"

    def __init__(
        self,
        of: SymbolRefAttr,
        wrt: Sequence[SymbolRefAttr],
        seed: SymbolRefAttr | None = None,
        into: Sequence[SymbolRefAttr] = (),
        *,
        total: bool = False,
    ):
        results = ArrayAttr(into) if into else None
        flag = UnitAttr() if total else None
        super().__init__(properties={"of": of, "wrt": ArrayAttr(wrt), "seed": seed, "total": flag, "into": results})


UPL = Dialect(
    "upl",
    [
        ProgramOp, ParamOp, ConstOp, ArrayOp, InputOp, OutputOp, NodeOp, LetOp, RefOp, LookupOp, ModOp, SigmoidOp,
        StopGradientOp, AlongOp, SendOp, AdjointOp,
    ],
    [ExprAttr, FormulaAttr, CountAttr, IndexAttr, NamesAttr, IteratorsAttr, PortsAttr, RankAttr],
)  # fmt: skip
"""The dialect, as xDSL's universe registers it."""

