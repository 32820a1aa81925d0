"""Operations of the `ppn` dialect: what runs where and when in a circuit, and by which ways values go.

    ppn.circuit @matmul {
      upl_loops.program @matmul "ordered" {
        upl.const @m = 16 : i64
        upl_loops.array @A <"i,k"> f32 "input" in <"0<=i<m && 0<=k<m">
            [#upl_loops.all<"i >= 0 && 15 >= i && k >= 0 && 15 >= k">]
        upl_loops.array @B <"k,j"> f32 "input" in <"0<=k<m && 0<=j<m">
            [#upl_loops.all<"k >= 0 && 15 >= k && j >= 0 && 15 >= j">]
        upl_loops.array @C <"i,j"> f32 "output" in <"0<=i<m && 0<=j<m">
            [#upl_loops.all<"i >= 0 && 15 >= i && j >= 0 && 15 >= j">]
        upl_loops.statement @S0 writes @C where <"i >= 0 && 15 >= i && j >= 0 && 15 >= j"> {
          %0 = upl_loops.fold "+" {
            upl_loops.part <"k_1"> where <"k_1 >= 0 && 15 >= k_1"> [] {
              %1 = upl_loops.read @A <"i,k_1"> : f32
              %2 = upl_loops.read @B <"k_1,j"> : f32
              %3 = arith.mulf %1, %2 : f32
              upl_loops.yield %3 : f32
            }
          } : f32
          upl_loops.yield %0 : f32
        }
      }
      ppn.process @C.process computes @C over <"i in 0..15, j in 0..15, k_1 in 0..15"> lanes 16 along "i"
          order <"i,k_1,j"> every <"256, 16, 1"> skew 0 slots 256 result 26 cycles 570
      ppn.unit @select_0 "select" latency 1 interval 1
      ppn.unit @mul_0 "mul" latency 14 interval 1
      ppn.unit @add_0 "add" latency 12 interval 1
      ppn.bind @select_0 to @C.process at 13
      ppn.bind @mul_0 to @C.process at 0
      ppn.bind @add_0 to @C.process at 14
      ppn.channel @C_0 from @C.process to @C.process at 13 "delay" depth 3 reads 3840
      ppn.channel @A_0 from @A to @C.process of <"i,k_1"> at 0 "held" depth 3 reads 4096
      ppn.channel @B_0 from @B to @C.process of <"k_1,j"> at 0 "window" depth 32 reads 4096
      ppn.port @A "in" order <"k, i"> words 256 need <"loop 2: 16 x 16"> free <"loop 2: 16 x 16">
      ppn.port @B "in" order <"k, j"> words 256 need <"loop 3: 256 x 1"> free <"loop 3: 256 x 1">
      ppn.port @C "out" order <"j, i"> words 256 wait 241 depth 16
    }

The equations of the program inside say *what* is computed. A *process* computes the instances of a statement, one in a
slot in each lane; it says when. A *unit* begins an operation in each slot (`interval`); `bind` gives it one of the
process. A *channel* is the way of a value from where it is written to where it is read. A *port* is a stream from or to
outside.

Source: polyhedral process networks (Verdoolaege 2010; Turjan, Kienhuis, Deprettere 2007), schedules in space and time
of systolic arrays (Quinton 1984).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, StringAttr, SymbolRefAttr, i64
from xdsl.ir import Attribute, Block, Dialect, Operation, Region
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    traits_def,
)
from xdsl.traits import HasParent, NoTerminator, SymbolTable

from upl_mlir.dialects.bases import Named, Program
from upl_mlir.dialects.ppn.attributes import NumbersAttr, OrderAttr, RangesAttr, RunsAttr
from upl_mlir.dialects.upl.attributes import IndexAttr, NamesAttr

Number = IntegerAttr.constr(i64)


@irdl_op_definition
class CircuitOp(Program):
    """A circuit: the equations of a program, its processes, units, channels, streams and ports."""

    name = "ppn.circuit"
    RULES: ClassVar[list[Callable[[CircuitOp], None]]] = []
    traits = traits_def(SymbolTable(), NoTerminator())
    assembly_format = "$sym_name $body attr-dict"

    def __init__(self, name: str, ops: Sequence[Operation] = ()):
        props: dict[str, Attribute] = {"sym_name": StringAttr(name)}
        super().__init__(properties=props, regions=[Region(Block(ops))])


@irdl_op_definition
class ProcessOp(Named):
    """The instances of the statement that computes `array`, over the ranges of its fields and of the iterators of
    its running sum.

    Lane n has the values of the field `along` with remainder n by `lanes`, counted from the least value. Every lane
    runs the loops of `order`, outermost first; the loop of `along` runs over blocks. An iteration of loop k takes
    `every[k]` slots, and lane n begins `skew` slots after lane n-1. The loops of fields `down` run from the greatest
    value on. The first iteration begins `start` slots after the circuit's first slot (default 0). A run of the circuit
    takes `slots`, the same for all its processes. The value of an instance is ready `result` slots after its operands
    are taken. `cycles` is the time of a run of the circuit, from the first word of an input to the last word of an
    output.
    """

    name = "ppn.process"
    array = prop_def(SymbolRefAttr)
    over = prop_def(RangesAttr)
    lanes = prop_def(Number)
    along = prop_def(StringAttr)
    order = prop_def(NamesAttr)
    every = prop_def(NumbersAttr)
    skew = prop_def(Number)
    slots = prop_def(Number)
    stages = prop_def(Number)
    cycles = prop_def(Number)
    down = opt_prop_def(NamesAttr)
    start = opt_prop_def(Number)
    traits = traits_def(HasParent(CircuitOp))
    assembly_format = (
        "$sym_name `computes` $array `over` $over `lanes` $lanes `along` $along `order` $order `every` $every `skew` $skew "
        "(`down` $down^)? (`start` $start^)? `slots` $slots `result` $stages `cycles` $cycles attr-dict"
    )


@irdl_op_definition
class UnitOp(Named):
    """A pipelined unit, in every lane: an operation can begin every `interval` slots, and its result is ready `latency`
    later."""

    name = "ppn.unit"
    operation = prop_def(StringAttr)
    latency = prop_def(Number)
    interval = prop_def(Number)
    traits = traits_def(HasParent(CircuitOp))
    assembly_format = "$sym_name $operation `latency` $latency `interval` $interval attr-dict"


@irdl_op_definition
class BindOp(IRDLOperation):
    """Assigns an operation of a process to a unit. The operation begins at a stage: that many slots after an instance's
    operands are taken."""

    name = "ppn.bind"
    unit = prop_def(SymbolRefAttr)
    process = prop_def(SymbolRefAttr)
    stage = prop_def(Number)
    traits = traits_def(HasParent(CircuitOp))
    assembly_format = "$unit `to` $process `at` $stage attr-dict"


@irdl_op_definition
class ChannelOp(Named):
    """A channel takes values from `source`, a port or a process, to a process that reads them at `index` at a stage.
    Without an index the value is the running sum of the instance before.

    `kind` is one of these. "delay": a constant number of slots in each lane. "varying": a number of slots for each
    block of lanes.

    From instances of the same lane: "fifo" (each value is read once, in the order in which values were written),
    "sticky" (several times one after the other), "buffer" (in another order).

    From a port or a stream: "window" keeps the last words, at a computed address, one window for all lanes, which pass
    each word on. With "windows" each lane has its own. With "dealt" each lane has its own, with its turn of the words.
    "held" is the same in registers, for words that are read one after the other.

    At most `depth` values are in flight in one lane. `reads` is the number of reads that were checked; each found its
    value.
    """

    name = "ppn.channel"
    source = prop_def(SymbolRefAttr)
    target = prop_def(SymbolRefAttr)
    index = opt_prop_def(IndexAttr)
    stage = prop_def(Number)
    kind = prop_def(StringAttr)
    depth = prop_def(Number)
    reads = prop_def(Number)
    traits = traits_def(HasParent(CircuitOp))
    assembly_format = (
        "$sym_name `from` $source `to` $target (`of` $index^)? `at` $stage $kind `depth` $depth `reads` $reads attr-dict"
    )


@irdl_op_definition
class PortOp(Named):
    """A stream of the elements of a host port ("in", "out"), or of a process's array for another process ("inner").

    Each element comes once in a run, in the order of nested loops over its fields. A part ``f block`` or ``f lane`` of
    `order` is the quotient or the remainder of field f by the number of lanes. For an input, `need` counts the words
    that must have come before each group of iterations, by the loops of the process `by` (default: the only one).
    `free` counts the words that are not read any more after the group, by the loops of `until` (default: `by`). If
    the words of a stream come from several lanes, the lanes take turns from slot `wait` on, and up to `depth` words
    wait in a lane. A turn of all lanes begins `pace` slots after the one before (default: the number of lanes).
    """

    name = "ppn.port"
    role = prop_def(StringAttr)
    order = prop_def(OrderAttr)
    words = prop_def(Number)
    by = opt_prop_def(SymbolRefAttr)
    need = opt_prop_def(RunsAttr)
    free = opt_prop_def(RunsAttr)
    until = opt_prop_def(SymbolRefAttr)
    wait = opt_prop_def(Number)
    depth = opt_prop_def(Number)
    pace = opt_prop_def(Number)
    traits = traits_def(HasParent(CircuitOp))
    assembly_format = (
        "$sym_name $role `order` $order `words` $words (`by` $by^)? (`need` $need^)? (`free` $free^)? "
        "(`until` $until^)? (`wait` $wait^)? (`depth` $depth^)? (`pace` $pace^)? attr-dict"
    )


PPN = Dialect(
    "ppn", [CircuitOp, ProcessOp, UnitOp, BindOp, ChannelOp, PortOp], [NumbersAttr, OrderAttr, RangesAttr, RunsAttr]
)
"""The dialect, as xDSL's universe registers it."""
