"""`autodiff`: the pass that adds derivatives in reverse mode; `differentiate.py` does the work."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.upl import InputOp, OutputOp, ProgramOp, UplType
from upl_mlir.dialects.upl.query import directives, program_of, span_of
from upl_mlir.passes.autodiff.adjoint_ends import Request
from upl_mlir.passes.autodiff.differentiate import differentiate
from upl_mlir.passes.autodiff.directives import expand_directives
from upl_mlir.passes.expand import expand
from upl_mlir.passes.infer_domains import infer_missing


@dataclass(frozen=True)
class AutodiffPass(ModulePass):
    """Add the derivatives of `of` by each of `wrt`; without options, expand the `adjoint of` directives.

    Requires: all domains known; with options, no `adjoint of` directives.
    Establishes: adjoint nodes, a seed input ``d_R``, an output ``d_W`` for each `wrt`.  An `of` without index fields has no
    seed input, but starts with 1, unless `unit` is false.  A `wrt` port is held fixed while another's derivative is taken,
    unless they are `total`.
    Source: Klimov, MES 2021, section IV, rules 1–7; AUTODIFF rules 1–9.

        upl.node @Sum <"d,k,i"> <"@(+) s[#]"> { upl.send %s -> @AF_ReLU::@s <"d,k,i"> }
        ->
        upl.node @DSum <"d,k,i"> <"d_s"> in <"..."> { upl.send %d_s -> @DLink::@d_s <"d,k,*,i"> count <"N[k-1]"> }
    """

    name = "autodiff"
    of: str | None = None
    wrt: tuple[str, ...] = ()
    unit: bool = True
    total: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = program_of(op)
        if self.of is not None:
            expand(program)
            differentiate(program, Request(self.of, self.wrt, unit=self.unit, total=self.total), program)
            return
        if self.wrt:
            help_ = "give both, or neither to expand `adjoint of`"
            raise error("UPL1401", "autodiff: `wrt` is given without `of`", help=help_)
        if not directives(program):
            raise _nothing_asked(program)
        infer_missing(program)
        expand_directives(program)


def _nothing_asked(program: ProgramOp) -> UplError:
    """The error where neither options nor the program say what to differentiate; its help names ports that there are."""
    ports = [op for op in program.body.block.ops if isinstance(op, InputOp | OutputOp)]
    real = [op for op in ports if op.type not in (UplType.INT, UplType.BOOL)]
    of = next((op.symbol for op in real if isinstance(op, OutputOp)), "OUTPUT")
    wrt = next((op.symbol for op in real if isinstance(op, InputOp)), "INPUT")
    return error(
        "UPL1401", "autodiff: it has no options, and no `adjoint of` is left in the program", span_of(program),
        help=f"write --autodiff=of={of},wrt={wrt}, or `adjoint of {of} wrt {wrt}` in the program",
    )  # fmt: skip
