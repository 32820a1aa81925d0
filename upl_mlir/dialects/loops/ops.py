"""Operations of the `upl_loops` dialect: what is computed, when, and where it is kept.

    upl_loops.program @scan "relaxed" {
      upl.param @n where <"n>=1">
      upl_loops.array @A <"i"> f64 input <"0<=i<n"> [<"i >= 0 && n >= i+1">]
      upl_loops.array @S <"i"> f64 local [...] kept <"0 from 0 size 2 mod 2">
      upl_loops.statement @S1 writes @S where <"i >= 1 && n >= i+1"> {
        %0 = upl_loops.read @S <"i-1"> : f64
        %1 = upl_loops.read @A <"i"> : f64
        %2 = arith.addf %0, %1 : f64
        upl_loops.yield %2 : f64
      }
      upl_loops.schedule {
        upl_loops.for "L1" from <"1"> to <"n-1"> {
          upl_loops.run @S1 at <"L1">
        }
      }
    }

*What*: statements define the elements of arrays. For each element, the constraints of exactly one statement hold at its
index. *When*: the schedule runs statements at indices given by loop variables. Without a schedule the program is a
system of equations. *Where*: `kept` says which fields of an array are axes in memory. Without it the array has no
memory yet.

Source: equations after Feautrier 1991 (array dataflow analysis), the tree after Grosser, Verdoolaege, Cohen 2015 (schedule
trees).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, StringAttr, SymbolRefAttr, UnitAttr, i64
from xdsl.ir import Attribute, Block, Dialect, Operation, Region, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    opt_region_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
)
from xdsl.traits import HasParent, IsTerminator, NoTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from upl_mlir.dialects.bases import Named
from upl_mlir.dialects.loops.attributes import AxesAttr, ConsAttr, RangesAttr
from upl_mlir.dialects.upl.attributes import ExprAttr, FormulaAttr, IndexAttr, NamesAttr
from upl_mlir.dialects.upl.gathers import Gather
from upl_mlir.dialects.upl.ops import SymbolScope

ROLES = ("input", "output", "local")
GATHERS = {g.value for g in Gather}


@irdl_op_definition
class LoopProgramOp(SymbolScope):
    """A program as arrays, statements and, once it is ordered, a schedule.

    `gather` is "ordered" where folds keep the order of their summands, else "relaxed".  `real` names the small type
    (docs/numbers.md) that f64 stands for: each operation then rounds to it.
    """

    name = "upl_loops.program"
    gather = prop_def(StringAttr)
    real = opt_prop_def(StringAttr)
    assembly_format = "$sym_name $gather (`real` $real^)? $body attr-dict"

    def __init__(self, name: str, gather: str, real: str | None = None, ops: Sequence[Operation] = ()):
        props: dict[str, Attribute] = {"sym_name": StringAttr(name), "gather": StringAttr(gather)}
        if real is not None:
            props["real"] = StringAttr(real)
        super().__init__(properties=props, regions=[Region(Block(ops))])
    RULES: ClassVar[list[Callable[[LoopProgramOp], None]]] = []


@irdl_op_definition
class ArrayOp(Named):
    """An array: of the host (`role` "input" or "output") or of the run ("local").

    `declared` is the domain by which the host lays the array out. `domain` is the set of its elements, as disjoint
    cases. `kept` are its axes; the array is `private` to each iteration of the loop with that variable. In a `planar`
    array fields of few values come first. `in_turn`: elements share memory in turn, in the order of several loops; the
    order of these loops must not change. An array that is `cut` is distributed: a rank owns the elements whose field is
    in its block. Of a `partial` array each rank computes a part of every element; an exchange combines the parts by the
    operator.
    """

    name = "upl_loops.array"
    index = prop_def(NamesAttr)
    element = prop_def(AnyAttr())
    role = prop_def(StringAttr)
    declared = opt_prop_def(FormulaAttr)
    domain = prop_def(ArrayAttr[ConsAttr])
    kept = opt_prop_def(AxesAttr)
    private = opt_prop_def(StringAttr)
    planar = opt_prop_def(UnitAttr)
    in_turn = opt_prop_def(UnitAttr)
    cut = opt_prop_def(RangesAttr)
    partial = opt_prop_def(StringAttr)
    traits = traits_def(HasParent(LoopProgramOp))
    assembly_format = (
        "$sym_name $index $element $role (`in` $declared^)? $domain (`kept` $kept^)? (`private` $private^)? "
        "(`planar` $planar^)? (`in_turn` $in_turn^)? (`cut` $cut^)? (`partial` $partial^)? attr-dict"
    )

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the index fields."""
        return self.index.data


@irdl_op_definition
class BlockOp(IRDLOperation):
    """The indices `low` to `high` are divided among ranks: those of one rank are from the parameter `first` to `last`."""

    name = "upl_loops.block"
    first = prop_def(StringAttr)
    last = prop_def(StringAttr)
    low = prop_def(ExprAttr)
    high = prop_def(ExprAttr)
    traits = traits_def(HasParent(LoopProgramOp))
    assembly_format = "$first `to` $last `of` $low `to` $high attr-dict"


@irdl_op_definition
class StatementOp(Named):
    """The elements of `array` at which `where` holds, over its fields: what the body yields."""

    name = "upl_loops.statement"
    array = prop_def(SymbolRefAttr)
    where = prop_def(ConsAttr)
    body = region_def("single_block")
    traits = traits_def(HasParent(LoopProgramOp))
    assembly_format = "$sym_name `writes` $array `where` $where $body attr-dict"


@irdl_op_definition
class YieldOp(IRDLOperation):
    """The value of a body."""

    name = "upl_loops.yield"
    value = operand_def(AnyAttr())
    traits = traits_def(IsTerminator())
    assembly_format = "$value attr-dict `:` type($value)"

    def __init__(self, value: SSAValue):
        super().__init__(operands=[value])


# -- values -----------------------------------------------------------------------------------------------------------
@irdl_op_definition
class ReadOp(IRDLOperation):
    """An element of an array."""

    name = "upl_loops.read"
    array = prop_def(SymbolRefAttr)
    index = prop_def(IndexAttr)
    result = result_def(AnyAttr())
    traits = traits_def(Pure())
    assembly_format = "$array $index attr-dict `:` type($result)"


@irdl_op_definition
class IndexOp(IRDLOperation):
    """An index expression as an integer value."""

    name = "upl_loops.index"
    value = prop_def(ExprAttr)
    result = result_def(i64)
    traits = traits_def(Pure())
    assembly_format = "$value attr-dict"


@irdl_op_definition
class FoldOp(IRDLOperation):
    """A gather: the summands of its parts, folded in order.  `count` is their number where that may be none."""

    name = "upl_loops.fold"
    gather = prop_def(StringAttr)
    count = opt_prop_def(ExprAttr)
    parts = region_def("single_block")
    result = result_def(AnyAttr())
    traits = traits_def(NoTerminator(), Pure())
    assembly_format = "$gather (`count` $count^)? $parts attr-dict `:` type($result)"

    def verify_(self) -> None:
        if self.gather.data not in GATHERS:
            raise VerifyException(f"expected a gather operator, found `{self.gather.data}`")


@irdl_op_definition
class PartOp(IRDLOperation):
    """Summands of a fold. The body yields one for every point of `over`, in this order, where `where` and one of
    `guards` (if there are any) hold."""

    name = "upl_loops.part"
    over = prop_def(NamesAttr)
    where = prop_def(ConsAttr)
    guards = prop_def(ArrayAttr[ConsAttr])
    body = region_def("single_block")
    traits = traits_def(HasParent(FoldOp))
    assembly_format = "$over `where` $where $guards $body attr-dict"


@irdl_op_definition
class ChooseOp(IRDLOperation):
    """The value of the first case whose constraints hold. The last case is taken without a test."""

    name = "upl_loops.choose"
    cases = region_def("single_block")
    result = result_def(AnyAttr())
    traits = traits_def(NoTerminator(), Pure())
    assembly_format = "$cases attr-dict `:` type($result)"


@irdl_op_definition
class CaseOp(IRDLOperation):
    """A case of a choice."""

    name = "upl_loops.case"
    where = prop_def(ConsAttr)
    body = region_def("single_block")
    traits = traits_def(HasParent(ChooseOp))
    assembly_format = "$where $body attr-dict"


# -- schedules --------------------------------------------------------------------------------------------------------
@irdl_op_definition
class ScheduleOp(IRDLOperation):
    """When statements run, in the order of the text."""

    name = "upl_loops.schedule"
    body = region_def("single_block")
    traits = traits_def(HasParent(LoopProgramOp), NoTerminator())
    assembly_format = "$body attr-dict"


@irdl_op_definition
class ForOp(IRDLOperation):
    """``for var in max(lows)..min(highs)``, both included; `parallel`: no iteration needs another; `tiled`: it runs over
    blocks of steps."""

    name = "upl_loops.for"
    var = prop_def(StringAttr)
    lows = prop_def(IndexAttr)
    highs = prop_def(IndexAttr)
    parallel = opt_prop_def(UnitAttr)
    tiled = opt_prop_def(UnitAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())
    assembly_format = "$var `from` $lows `to` $highs (`parallel` $parallel^)? (`tiled` $tiled^)? $body attr-dict"


@irdl_op_definition
class IfOp(IRDLOperation):
    """What runs where the constraints hold, and what elsewhere."""

    name = "upl_loops.if"
    where = prop_def(ConsAttr)
    then = region_def("single_block")
    other = opt_region_def("single_block")
    traits = traits_def(NoTerminator())
    assembly_format = "$where $then (`else` $other^)? attr-dict"


@irdl_op_definition
class RunOp(IRDLOperation):
    """A statement at one index, by the variables of the loops around."""

    name = "upl_loops.run"
    statement = prop_def(SymbolRefAttr)
    at = prop_def(IndexAttr)
    assembly_format = "$statement `at` $at attr-dict"


@irdl_op_definition
class ExchangeOp(IRDLOperation):
    """Each rank receives the elements of an array in a box that it does not own, from the ranks that own them.

    Of a partial array, the ranks' parts of the elements in the box are combined, and each rank has the results in place.
    `box` has a range for each field, by the variables of the loops around and by the rank's own blocks. Operations that are
    copies of each other have one `number`.
    """

    name = "upl_loops.exchange"
    number = prop_def(ExprAttr)
    array = prop_def(SymbolRefAttr)
    box = prop_def(RangesAttr)
    assembly_format = "$number `of` $array `in` $box attr-dict"


@irdl_op_definition
class ContractOp(IRDLOperation):
    """A statement for all values of the fields that `at` leaves open (`*`), as sums of products over boxes of indices.

    `around` are loops for some of the open fields, `over` are the ranges of the others, and `index` is the element that
    is written. `plain` computes the same by loops.
    """

    name = "upl_loops.contract"
    statement = prop_def(SymbolRefAttr)
    at = prop_def(IndexAttr)
    around = prop_def(RangesAttr)
    over = prop_def(RangesAttr)
    index = prop_def(IndexAttr)
    products = region_def("single_block")
    plain = region_def("single_block")
    traits = traits_def(NoTerminator())
    assembly_format = "$statement `at` $at `around` $around `over` $over `index` $index $products `plain` $plain attr-dict"


@irdl_op_definition
class ProductOp(IRDLOperation):
    """One sum of products where `where` holds: loops `around`, in them the box of `over` and `summed`.

    `indices` are the indices of the two factors `of` and of the result, over all these names. `reads` are the indices
    at which the statement reads the factors. A `padded` product is another form of the whole sum: factor number
    `padded` is 0 outside of `limits` (by the number of its index), and the other factor is finite.
    """

    name = "upl_loops.product"
    where = prop_def(ConsAttr)
    around = prop_def(RangesAttr)
    over = prop_def(RangesAttr)
    summed = prop_def(RangesAttr)
    of = prop_def(ArrayAttr[SymbolRefAttr])
    reads = prop_def(ArrayAttr[IndexAttr])
    indices = prop_def(ArrayAttr[IndexAttr])
    padded = opt_prop_def(ExprAttr)
    limits = opt_prop_def(RangesAttr)
    traits = traits_def(HasParent(ContractOp))
    assembly_format = (
        "$of $indices `reads` $reads `where` $where `around` $around `over` $over `summed` $summed "
        "(`padded` $padded^)? (`limits` $limits^)? attr-dict"
    )


UPL_LOOPS = Dialect(
    "upl_loops",
    [
        LoopProgramOp, ArrayOp, BlockOp, StatementOp, YieldOp, ReadOp, IndexOp, FoldOp, PartOp, ChooseOp, CaseOp, ScheduleOp,
        ForOp, IfOp, RunOp, ExchangeOp, ContractOp, ProductOp,
    ],
    [ConsAttr, AxesAttr, RangesAttr],
)  # fmt: skip
"""The dialect, as xDSL's universe registers it."""
