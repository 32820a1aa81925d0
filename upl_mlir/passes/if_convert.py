"""`if-convert`: a program in which data decide no arrow."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from upl_mlir.dialects.upl.query import program_of
from upl_mlir.passes.expand import expand
from upl_mlir.passes.predicate.convert import decided_by_data, if_convert


@dataclass(frozen=True)
class IfConvertPass(ModulePass):
    """Make every arrow whose condition or index data decide send always, with a bit that says whether its token exists.

    Requires: all domains known, `adjoint of` expanded (the pass does both first); bounds of the fields that data
    choose.
    Establishes: conditions, indices and numbers of summands follow from indices. Every possible instance fires. New
    outputs (attribute `upl.check`) say whether a run had an error. Integers have `integers` bits. `compared` is for
    loops over arrays. A node then loses the fields that data choose, if its other fields say who sent its tokens. An
    index from data is compared with each possible index. One output says whether anything went wrong. With `ordered` as
    well, no order of summands that round changes.
    Source: Allen, Kennedy, Porterfield and Warren 1983 (control dependence to data dependence).

        upl.send %x -> @J::@x <"i"> if %more : f64
        ->
        upl.send %x -> @J::@x <"i"> : f64          // always
        upl.send %more -> @S_gate::@c <"i"> : i1   // the gate of the source tells that of the target
    """

    name = "if-convert"
    integers: int = 64
    compared: bool = False
    ordered: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = program_of(op)
        expand(program)
        if decided_by_data(program):
            if_convert(program, self.integers, compared=self.compared, ordered=self.ordered)
