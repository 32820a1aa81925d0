"""`lower-loops`: a checked affine program as one function of loops over arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import Diagnostic, UplError, error
from upl_mlir.dialects.loops.ops import LoopProgramOp, StatementOp
from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.passes.analysis.effort import bounded
from upl_mlir.passes.layouts import Layout, Scratch, Term
from upl_mlir.passes.loops.emit.function import FunctionWriter
from upl_mlir.passes.loops.emit.standard import to_standard
from upl_mlir.passes.loops.ir import contraction_text, read
from upl_mlir.passes.loops.legal import faults
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.transform.contractions import Finder
from upl_mlir.passes.loops.tree import Box, Exchange, Guard, Leaf, Loop, Tree, leaves, subtrees
from upl_mlir.passes.schedule import prepared, schedule
from upl_mlir.poly.linear import Cons

MOST = 3
"""So many faults of a schedule are told."""


@dataclass(frozen=True, eq=False)
class Lowered:
    """The module, the layouts of the host ports that its function assumes, the arrays between, and how far its indices may
    reach: see `require_reach`."""

    module: ModuleOp
    layouts: dict[str, Layout]
    scratch: tuple[Scratch, ...]
    reach: tuple[Term, ...]


@bounded("the lowering to loops")
def lower_to_loops(
    program: ProgramOp, *, real: str = "f64", gather: str = "relaxed", threads: int = 1,
    fixed: Mapping[str, int] | None = None, narrow: Set[str] = frozenset(),
    scheduled: Callable[[LoopProgram], None] | None = None,
) -> Lowered:  # fmt: skip
    """Lower a program to one function of loops; see `schedule` for what is asked of it and what the options mean.

    The arrays of the integer inputs `narrow` have elements of 32 bits; values have 64 all the same.  `scheduled` is told
    the loops before they are written.

    Raises UplError (UPL19xx).
    """
    p = schedule(program, real=real, gather=gather, threads=threads, fixed=fixed)
    if scheduled is not None:
        scheduled(p)
    return written(p, narrow)


def written(p: LoopProgram, narrow: Set[str] = frozenset()) -> Lowered:
    """The function of a scheduled program."""
    writer = FunctionWriter(p, narrow=narrow)
    module = writer.write()
    layouts: dict[str, Layout] = {}
    for h in p.hosts:
        axes = writer.arrays[h.name].axes
        layouts[h.name] = Layout(tuple(a.lower for a in axes), tuple(a.extent for a in axes))
    scratch = tuple(Scratch(a.name, a.kind.bytes, tuple(x.size for x in a.axes)) for a in (p.arrays or {}).values())
    return Lowered(module, layouts, scratch, tuple(writer.code.reach.terms.values()))


def legal(op: LoopProgramOp) -> LoopProgram:
    """The program of loops that a text says, once it is scheduled and proved to compute what its statements say.

    Raises UplError: UPL1831 for one without a schedule, UPL1830 for what is wrong with it, or not proved.
    """
    p = read(op)
    if p.tree is None:
        raise _not_scheduled(op, "schedule")
    finder = Finder(p.system.lin, ordered=p.ordered)
    p.tree = _with_boxes(p.tree, (), lambda box, context: _follows(box, context, finder))
    # a contraction may be written as its plain loops
    plain = replace(p, tree=_with_boxes(p.tree, (), lambda _box, _context: False))
    written = {leaf.stmt.array for leaf, _ in leaves(plain.scheduled)}
    for name in sorted(n for n in written if not p.system.equations[n].output and n not in (p.arrays or {})):
        raise _not_scheduled(op, f"place for `{name}`")
    places = {o.symbol: span_of(o) for o in op.body.block.ops if isinstance(o, StatementOp)}
    told: dict[str, Diagnostic] = {}
    for f in chain(faults(p), faults(plain) if any(isinstance(t, Box) for t in subtrees(p.tree)) else ()):
        told.setdefault(f.message, Diagnostic("UPL1830", str(f), places.get(str(f.statement), span_of(op))))
        if len(told) == MOST:
            break
    if told:
        raise UplError(*told.values())
    return p


def _not_scheduled(op: LoopProgramOp, what: str) -> UplError:
    return error("UPL1831", f"the program of loops has no {what}", span_of(op), help="write it with `--schedule`")


def _follows(box: Box, context: Cons, finder: Finder) -> bool:
    """Whether a contraction is that of its statement: a text may call anything so."""
    leaf = box.leaf
    left = tuple(f for f in leaf.stmt.free if f not in leaf.env)
    found = finder.find(leaf.stmt, leaf.env, left, context)
    return found is not None and contraction_text(leaf, found) == contraction_text(leaf, box.contraction)


def _with_boxes(trees: Sequence[Tree], context: Cons, keep: Callable[[Box, Cons], bool]) -> list[Tree]:
    """The tree with the plain loops of those contractions that are not kept."""
    out: list[Tree] = []
    for t in trees:
        match t:
            case Loop():
                out.append(replace(t, body=_with_boxes(t.body, (*context, *t.context), keep)))
            case Guard(cons, body, other):
                out.append(Guard(cons, *(_with_boxes(b, context, keep) for b in (body, other))))
            case Box(plain=plain):
                out += [t] if keep(t, context) else _with_boxes(plain, context, keep)
            case Leaf() | Exchange():
                out.append(t)
    return out


@dataclass(frozen=True)
class LowerLoopsPass(ModulePass):
    """Replace a program, or the loops that `schedule` made of one, by a function of loops (docs/native.md).

    Requires: all domains known, `adjoint of` expanded, nothing refuted (the pass sees to these); no arrow decided by
    data. If the module already has loops, the pass proves that they compute what their statements say, and lowers them
    as they are.
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
        to_standard(lowered.module)
        program.detach()
        for new in list(lowered.module.body.block.ops):
            new.detach()
            op.body.block.add_op(new)
        program.erase()
