"""What every rank needs to run a distributed program: one rank makes it, and all have the same.

(Two ranks that make it each for itself could come to different, equally right exchanges.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from upl_mlir.diagnostics import error
from upl_mlir.dialects.loops.attributes import Axis, Range
from upl_mlir.dialects.upl import Gather, ProgramOp
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.engines.native import target
from upl_mlir.engines.native.llvm.entry import emit_module
from upl_mlir.engines.native.llvm.values import EmittedModule
from upl_mlir.passes.distribute.inputs import blocks_of, inputs_in_blocks, outputs_in_blocks
from upl_mlir.passes.distribute.restart import Saved, restartable
from upl_mlir.passes.distribute.schedule import Distributed, distribute
from upl_mlir.passes.layouts import Layout, Scratch, Term
from upl_mlir.passes.loops.emit.function import exchange_variables
from upl_mlir.passes.loops.program import Block, LoopProgram
from upl_mlir.passes.loops.tree import Exchange, subtrees
from upl_mlir.passes.lower_to_loops import Lowered, written

DTYPES = {"f64": "float64", "f32": "float32", "int": "int64", "bool": "bool"}
"""The types of elements in memory, as numpy names them."""


@dataclass(frozen=True)
class Moved:
    """An exchange: the array with its axes in memory, the number of the field by which it is cut, the box that a rank needs,
    and the loops' variables that say which.  Of a partial array `combined` is the operator, and there is no block."""

    array: str
    dtype: str
    axes: tuple[Axis, ...]
    at: int
    block: Block | None
    ranges: tuple[Range, ...]
    variables: tuple[str, ...]
    combined: Gather | None = None


@dataclass(frozen=True)
class Kept:
    """An array that is saved: its axes in memory, and the axis along which it is cut, with its block."""

    name: str
    dtype: str
    axes: tuple[Axis, ...]
    cut: tuple[int, Block] | None


@dataclass(frozen=True)
class State:
    """What is saved at the iterations of a loop."""

    loop: Saved
    arrays: tuple[Kept, ...]


@dataclass(frozen=True)
class Plan:
    """A distributed program, compiled to LLVM IR.  `cut` are the outputs of which each rank has a part: the number of the
    axis, and of what it is a block."""

    emitted: EmittedModule
    layouts: Mapping[str, Layout]
    scratch: tuple[Scratch, ...]
    params: tuple[str, ...]
    blocks: tuple[Block, ...]
    moved: tuple[Moved, ...]
    cut: Mapping[str, tuple[int, Block]]
    states: tuple[State, ...] = ()
    inputs: Mapping[str, tuple[int, Block]] = field(default_factory=dict[str, tuple[int, Block]])
    """The inputs of which a rank reads its own block only, as `cut` has outputs."""
    reach: tuple[Term, ...] = ()
    """How far indices may reach."""


def make_plan(
    program: ProgramOp, machine: target.Machine, *, real: str, gather: str, threads: int, saved: bool = False,
    sizes: Mapping[str, int] | None = None,
) -> Plan:
    """The plan of a checked program, which can be `saved` and taken up again, good at some `sizes`.

    Raises UplError (UPL18xx, UPL210x)."""
    d = distribute(program, real=real, gather=gather, sizes=sizes)
    loops = restartable(d) if saved else []
    if saved and not loops:
        message = "no loop over steps was found at which a run could be saved"
        raise error("UPL2108", message, span_of(program), help="leave out the checkpoint")
    return plan_of(d, machine, threads, loops)


def plan_of(d: Distributed, machine: target.Machine, threads: int, loops: Sequence[Saved] = ()) -> Plan:
    """The plan of a distributed program."""
    p = d.program
    lowered = written(p)
    emitted = emit_module(lowered.module, machine, threads)
    return Plan(
        emitted, lowered.layouts, lowered.scratch, tuple(p.system.lin.ctx.params), blocks_of(p.cuts), moved_of(p, lowered),
        outputs_in_blocks(p), tuple(State(loop, tuple(_kept(p, lowered, a) for a in loop.arrays)) for loop in loops),
        inputs_in_blocks(p), lowered.reach,
    )  # fmt: skip


def exchanges_of(p: LoopProgram) -> list[Exchange]:
    """The exchanges of a schedule, by their numbers."""
    found = {t.number: t for t in subtrees(p.scheduled) if isinstance(t, Exchange)}
    return [found[n] for n in sorted(found)]


def moved_of(p: LoopProgram, lowered: Lowered) -> tuple[Moved, ...]:
    """What the exchanges of a program move."""
    known = p.system.lin.ctx
    moved: list[Moved] = []
    for x in exchanges_of(p):
        axes, cut = _axes(p, lowered, x.array), p.cuts.get(x.array)
        eq = p.system.equations[x.array]
        moved.append(
            Moved(
                x.array, DTYPES[eq.kind.value], axes, 0 if cut is None else eq.fields.index(cut.field),
                None if cut is None else cut.block, x.ranges, tuple(exchange_variables(x, known)), p.partial.get(x.array),
            )
        )  # fmt: skip
    return tuple(moved)


def whole_results(p: LoopProgram, lowered: Lowered) -> tuple[Moved, ...]:
    """For each result in blocks, what brings every rank all of them."""
    out: list[Moved] = []
    for name, (at, block) in outputs_in_blocks(p).items():
        axes, eq = _axes(p, lowered, name), p.system.equations[name]
        ranges = tuple(Range(f, (a.lower,), (a.lower + a.extent - 1,)) for f, a in zip(eq.fields, axes, strict=True))
        out.append(Moved(name, DTYPES[eq.kind.value], axes, at, block, ranges, ()))
    return tuple(out)


def _axes(p: LoopProgram, lowered: Lowered, name: str) -> tuple[Axis, ...]:
    """The axes in memory of an array, of an output as the host lays it out."""
    array = p.kept.get(name) if p.arrays else None
    if array is not None:
        return array.axes
    layout = lowered.layouts[name]
    return tuple(Axis(i, *ends) for i, ends in enumerate(zip(layout.lower, layout.shape, strict=True)))


def _kept(p: LoopProgram, lowered: Lowered, name: str) -> Kept:
    """An array as it is saved.  One without an axis for the field that is cut has elements for a moment only."""
    axes, cut, eq = _axes(p, lowered, name), p.cuts.get(name), p.system.equations[name]
    along = None
    if cut is not None:
        at = eq.fields.index(cut.field)
        along = next(((k, cut.block) for k, a in enumerate(axes) if a.at == at and a.modulus is None), None)
    return Kept(name, DTYPES[eq.kind.value], axes, along)
