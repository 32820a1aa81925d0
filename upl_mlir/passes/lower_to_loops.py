"""`lower-loops`: a checked affine program as one function of loops over arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import Diagnostic, UplError, error
from upl_mlir.dialects.loops.ops import LoopProgramOp, StatementOp
from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.passes.effort import bounded
from upl_mlir.passes.layouts import Layout, Scratch
from upl_mlir.passes.loops.contractions import Finder
from upl_mlir.passes.loops.function import FunctionWriter
from upl_mlir.passes.loops.ir import contraction_text, read
from upl_mlir.passes.loops.legal import faults
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.tree import Box, Guard, Leaf, Loop, Tree, leaves
from upl_mlir.passes.schedule import prepared, schedule
from upl_mlir.poly.linear import Cons

MOST = 3
"""So many faults of a schedule are told."""


@dataclass(frozen=True, eq=False)
class Lowered:
    """The module, the layouts of the host ports that its function assumes, and the arrays between."""

    module: ModuleOp
    layouts: dict[str, Layout]
    scratch: tuple[Scratch, ...]


@bounded("the lowering to loops")
def lower_to_loops(
    program: ProgramOp, *, real: str = "f64", gather: str = "relaxed", threads: int = 1,
    fixed: Mapping[str, int] | None = None,
) -> Lowered:  # fmt: skip
    """Lower a program to one function of loops; see `schedule` for what is asked of it and what the options mean.

    Raises UplError (UPL19xx).
    """
    return written(schedule(program, real=real, gather=gather, threads=threads, fixed=fixed))


def written(p: LoopProgram) -> Lowered:
    """The function of a scheduled program."""
    writer = FunctionWriter(p)
    module = writer.write()
    layouts: dict[str, Layout] = {}
    for h in p.hosts:
        axes = writer.arrays[h.name].axes
        layouts[h.name] = Layout(tuple(a.lower for a in axes), tuple(a.extent for a in axes))
    scratch = tuple(Scratch(a.name, a.kind.bytes, tuple(x.size for x in a.axes)) for a in (p.arrays or {}).values())
    return Lowered(module, layouts, scratch)


def legal(op: LoopProgramOp) -> LoopProgram:
    """The program of loops that a text says, once it is scheduled and proved to compute what its statements say.

    Raises UplError: UPL1831 for one without a schedule, UPL1830 for what is wrong with it, or not proved.
    """
    p = read(op)
    local = {name for name, eq in p.system.equations.items() if not eq.output and eq.name not in (p.arrays or {})}
    if p.tree is None or local & {leaf.stmt.array for leaf, _ in leaves(p.tree)}:
        what = "schedule" if p.tree is None else f"place for `{min(local)}`"
        raise error("UPL1831", f"the program of loops has no {what}", span_of(op), help="write it with `--schedule`")
    places = {o.symbol: span_of(o) for o in op.body.block.ops if isinstance(o, StatementOp)}
    p.tree = _derived(p, p.tree, (), Finder(p.system.lin, ordered=p.ordered))
    told: dict[str, Diagnostic] = {}
    for f in (*faults(p), *faults(replace(p, tree=_plain(p.tree)))):  # a contraction may be written as its plain loops
        told.setdefault(f.message, Diagnostic("UPL1830", str(f), places.get(str(f.statement), span_of(op))))
        if len(told) == MOST:
            break
    if told:
        raise UplError(*told.values())
    return p


def _derived(p: LoopProgram, trees: Sequence[Tree], context: Cons, finder: Finder) -> list[Tree]:
    """The tree with those contractions only that follow from their statements; of others the plain loops.

    A text may call anything the contraction of a statement.
    """
    out: list[Tree] = []
    for t in trees:
        match t:
            case Loop():
                out.append(replace(t, body=_derived(p, t.body, (*context, *t.context), finder)))
            case Guard(cons, body, other):
                out.append(Guard(cons, *(_derived(p, b, context, finder) for b in (body, other))))
            case Box(leaf, said, plain):
                left = tuple(f for f in leaf.stmt.free if f not in leaf.env)
                found = finder.find(leaf.stmt, leaf.env, left, context)
                same = found is not None and contraction_text(leaf, found) == contraction_text(leaf, said)
                out += [t] if same else _derived(p, plain, context, finder)
            case Leaf():
                out.append(t)
    return out


def _plain(trees: Sequence[Tree]) -> list[Tree]:
    """The tree with the plain loops of each contraction."""
    out: list[Tree] = []
    for t in trees:
        match t:
            case Loop():
                out.append(replace(t, body=_plain(t.body)))
            case Guard(cons, body, other):
                out.append(Guard(cons, _plain(body), _plain(other)))
            case Box(_, _, plain):
                out += _plain(plain)
            case Leaf():
                out.append(t)
    return out


@dataclass(frozen=True)
class LowerLoopsPass(ModulePass):
    """Replace a program, or the loops that `schedule` made of one, by a function of loops (docs/native.md).

    Requires: all domains known, `adjoint of` expanded, nothing refuted (each is seen to); no arrow decided by data.  Loops
    that stand in the module already are lowered as they are, once they are proved to compute what their statements say.
    Establishes: one `func.func` in `func`, `scf`, `arith`, `math`, `memref` with a memref for each host port.
    Source: docs/native.md; ARCHITECTURE, "the way of the data".

        upl.node @Sum <"d,k,i"> <"@(+) s[#]"> ...
        ->
        func.func @perceptron(%D: index, %X: memref<?x?xf64>, ...) { scf.parallel ... }
    """

    name = "lower-loops"
    real: str = "f64"
    gather: str = "relaxed"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program: Operation | None = next((o for o in op.body.block.ops if isinstance(o, LoopProgramOp)), None)
        if isinstance(program, LoopProgramOp):
            lowered = written(legal(program))
        else:
            program = prepared(op, self.real, self.gather)
            lowered = lower_to_loops(program, real=self.real, gather=self.gather)
        program.detach()
        for new in list(lowered.module.body.block.ops):
            new.detach()
            op.body.block.add_op(new)
        program.erase()
