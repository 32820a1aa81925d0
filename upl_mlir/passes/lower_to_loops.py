"""`lower-loops`: a checked affine program as one function of loops over arrays."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.dialects.upl.query import program_of
from upl_mlir.passes.effort import bounded
from upl_mlir.passes.infer_domains import domains_known, infer_domains
from upl_mlir.passes.loops.equations import equations
from upl_mlir.passes.loops.function import FunctionWriter
from upl_mlir.passes.loops.statements import edges, statements
from upl_mlir.passes.loops.terms import Kind
from upl_mlir.passes.schedule import Scheduler
from upl_mlir.passes.storage import Storage
from upl_mlir.poly.expr import IndexExpr


@dataclass(frozen=True)
class Layout:
    """How the function lays out a host port: the index of element 0 and the extents, by parameters."""

    lower: tuple[IndexExpr, ...]
    shape: tuple[IndexExpr, ...]


@dataclass(frozen=True)
class Scratch:
    """An intermediate array: the size of an element, and the extents by parameters."""

    name: str
    element_bytes: int
    shape: tuple[IndexExpr, ...]


@dataclass(frozen=True, eq=False)
class Lowered:
    """The module, the layouts of the host ports that its function assumes, and the arrays between."""

    module: ModuleOp
    layouts: dict[str, Layout]
    scratch: tuple[Scratch, ...]


@bounded("the lowering to loops")
def lower_to_loops(program: ProgramOp, *, real: str = "f64", gather: str = "relaxed") -> Lowered:
    """Lower a program (with `adjoint of` expanded) to loops; sizes stay symbolic.

    `real` is what `real` means ("f64" or "f32"), `gather` whether folds keep their order ("ordered") or not ("relaxed").
    Raises UplError (UPL19xx) for what is not a checked affine program.
    """
    if not domains_known(program):
        infer_domains(program)
    ordered = gather == "ordered"
    system = equations(program, Kind(real), ordered=ordered)
    stmts = statements(system)
    deps = edges(system.lin, stmts)
    tree = Scheduler(system.lin, stmts, deps).tree()
    arrays = Storage(system, tree, deps).arrays()
    writer = FunctionWriter(program, system, arrays, ordered=ordered)
    module = writer.write(tree)
    layouts = {
        op.symbol: Layout(
            tuple(a.lower for a in writer.arrays[op.symbol].axes), tuple(a.extent for a in writer.arrays[op.symbol].axes)
        )
        for op in writer.hosts
    }
    scratch = tuple(
        Scratch(a.name, a.kind.bytes, tuple(x.extent for x in a.axes)) for a in arrays.values()
    )
    return Lowered(module, layouts, scratch)


@dataclass(frozen=True)
class LowerLoopsPass(ModulePass):
    """Replace a program by a function of loops (docs/native.md).

    Requires: all domains known; nothing refuted; no arrow decided by data.
    Establishes: one `func.func` in `func`, `scf`, `arith`, `math`, `memref` with a memref for each host port.
    Source: Feautrier 1991 (recurrences to loops), Allen and Kennedy 1987 (order), Bondhugula et al. 2008 (fusion).

        upl.node @Sum <"d,k,i"> <"@(+) s[#]"> ...
        ->
        func.func @perceptron(%D: index, %X: memref<?x?xf64>, ...) { scf.parallel ... }
    """

    name = "lower-loops"
    real: str = "f64"
    gather: str = "relaxed"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = program_of(op)
        lowered = lower_to_loops(program, real=self.real, gather=self.gather)
        program.detach()
        for new in list(lowered.module.body.block.ops):
            new.detach()
            op.body.block.add_op(new)
        program.erase()
