"""`schedule`: equations, the order of their statements, and where their elements live."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute, Operation
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import UplError, did_you_mean, error
from upl_mlir.dialects.upl import ArrayOp, ConstOp, InputOp, ParamOp, ProgramOp
from upl_mlir.dialects.upl.query import endpoints, first_index, inputs, outputs, program_of, span_of
from upl_mlir.passes.at_sizes import only_a_hull, require_at
from upl_mlir.passes.effort import bounded
from upl_mlir.passes.expand import expand
from upl_mlir.passes.loops.checkpoints import remade
from upl_mlir.passes.loops.coordinates import Coordinates
from upl_mlir.passes.loops.equations import equations
from upl_mlir.passes.loops.forward import Forwarder
from upl_mlir.passes.loops.ir import write
from upl_mlir.passes.loops.order import NoOrder, Scheduler
from upl_mlir.passes.loops.products import Splitter
from upl_mlir.passes.loops.program import Host, LoopProgram
from upl_mlir.passes.loops.reuse import Reuse
from upl_mlir.passes.loops.running import RunningSums
from upl_mlir.passes.loops.statements import edges, statements
from upl_mlir.passes.loops.terms import Kind
from upl_mlir.passes.loops.unroll import unrolled
from upl_mlir.passes.loops.wavefront import wavefront
from upl_mlir.passes.proved import ASSUMED, note_assumed, require_proved
from upl_mlir.passes.relations import forgotten
from upl_mlir.passes.storage import Storage

REALS, GATHERS = ("f64", "f32"), ("relaxed", "ordered")


@bounded("the schedule")
def schedule(
    program: ProgramOp, *, real: str = "f64", gather: str = "relaxed", threads: int = 1,
    fixed: Mapping[str, int] | None = None,
) -> LoopProgram:  # fmt: skip
    """Schedule a checked affine program (with `adjoint of` expanded); sizes stay symbolic.

    `real` is what `real` means ("f64" or "f32"), `gather` whether folds keep their order ("ordered") or not ("relaxed").
    With several `threads` sums along columns stay loops over parallel ones, which the threads share.
    `fixed` are parameters that are numbers; the others stay symbols.
    Raises UplError (UPL19xx) for what is not such a program.
    """
    expand(program)
    sums = gather != "ordered" and threads == 1
    p = _ordered(program, real, gather, fixed or {}, sums=sums, reuse=True)
    for step in (keep_arrays, recompute_states, tile_time, unroll_loops, forward_copies):
        step(p)
    return p


def _ordered(
    program: ProgramOp, real: str, gather: str, fixed: Mapping[str, int], *, sums: bool, reuse: bool
) -> LoopProgram:
    """The equations, as they are best computed, with their loops and dependences; `sums`: whether sums may run along.

    Raises UplError.
    """
    p = raised(program, real=real, gather=gather, fixed=fixed)
    Splitter(p.system).split()
    reused = reuse and Reuse(p.system).replace()
    if sums:
        RunningSums(p.system).replace()
    try:
        order_loops(p)
    except (NoOrder, UplError) as e:
        if reused:  # the reads asked for another order
            return _ordered(program, real, gather, fixed, sums=sums, reuse=False)
        if isinstance(e, UplError):
            raise
        at = span_of(endpoints(program)[re.split("[.:]", e.arrays[0])[0]])
        what = f"the elements of {', '.join(f'`{n}`' for n in e.arrays)}, which depend on each other"
        help_ = 'use engine="interp" or "token", which need none'
        raise error("UPL1824", f"no order of loops found for {what}", at, help=help_) from None
    return p


# -- the steps --------------------------------------------------------------------------------------------------------
def raised(program: ProgramOp, *, real: str, gather: str, fixed: Mapping[str, int]) -> LoopProgram:
    """A program as equations.  Raises UplError (UPL18xx)."""
    ordered = gather == "ordered"
    system = equations(program, Kind(real), ordered=ordered, fixed=fixed)
    hosts: list[Host] = []
    for op in (*inputs(program), *outputs(program)):
        output = not isinstance(op, InputOp)
        eq = system.equations.get(op.symbol)
        kind, _, cases = system.hosts[op.symbol] if eq is None else (eq.kind, eq.fields, eq.domain)
        attr = op.declared or op.domain
        hosts.append(Host(op.symbol, kind, op.fields, attr.data if attr else None, cases, output))
    ops = [op for op in program.body.block.ops if isinstance(op, ParamOp | ConstOp | ArrayOp)]
    assumed = program.attributes.get(ASSUMED)
    return LoopProgram(
        program.sym_name.data, [_bound(op, fixed) for op in ops], hosts, system, ordered,
        cast("ArrayAttr[Attribute] | None", assumed),
    )  # fmt: skip


def _bound(op: ParamOp | ConstOp | ArrayOp, fixed: Mapping[str, int]) -> Operation:
    """A declaration, a parameter that is a number as a constant."""
    if isinstance(op, ParamOp) and op.symbol in fixed:
        return ConstOp(op.symbol, IntegerAttr(fixed[op.symbol], i64))
    return op


def order_loops(p: LoopProgram) -> None:
    """The tree of loops and the dependences, in other coordinates where none is found in those of the program.

    Raises NoOrder: what was found in the program's own coordinates.
    """
    coordinates = Coordinates(p.system)
    first: NoOrder | None = None
    while True:
        stmts = statements(p.system)
        p.deps = edges(p.system.lin, stmts)
        try:
            p.tree = Scheduler(p.system.lin, stmts, p.deps, ordered=p.ordered).tree()
        except NoOrder as e:
            first = first or e
            if not coordinates.change(e.deps):
                raise first from None
        else:
            return


def keep_arrays(p: LoopProgram) -> None:
    """Where elements live."""
    p.arrays = Storage(p.system, p.scheduled, p.dependences()).arrays()


def recompute_states(p: LoopProgram) -> None:
    """States made again rather than kept, in tiles of their own, where that can be."""
    found = remade(p.system, p.scheduled, p.dependences())
    if found is None:
        return
    arrays = Storage(p.system, found.tree, found.deps).arrays()
    if not all(x.modulus is not None for n, at in found.states.items() for x in arrays[n].axes if x.at == at):
        return
    arrays |= found.arrays
    tiled = wavefront(p.system.lin, found.tree, arrays, found.deps, found.blocks)
    if tiled is not None:
        p.system.equations |= found.equations
        p.tree, p.deps, p.arrays = tiled, found.deps, arrays


def tile_time(p: LoopProgram) -> None:
    """Loops over time round sweeps as wavefronts."""
    assert p.arrays is not None
    p.tree = wavefront(p.system.lin, p.scheduled, p.arrays, p.dependences()) or p.tree


def unroll_loops(p: LoopProgram) -> None:
    """Loops of few iterations written out."""
    assert p.arrays is not None
    planar = {n for n, eq in p.system.equations.items() if eq.planar}
    p.tree = unrolled(p.system.lin, p.scheduled, p.arrays, planar)


def forward_copies(p: LoopProgram) -> None:
    """Copies of inputs that only products read left out."""
    assert p.arrays is not None
    storage = Storage(p.system, p.scheduled, ())
    forwarder = Forwarder(p.system.lin, p.scheduled, p.system.hosts)
    p.tree = forwarder.forwarded()
    storage.without(p.arrays, forwarder.gone)


def prepared(module: ModuleOp, real: str, gather: str) -> ProgramOp:
    """The program of a module, ready for `schedule`: domains inferred, `adjoint of` expanded, every count proved.

    Changes the module in place.  Raises UplError: UPL1802 for another `real` or `gather`, UPL1513 for an array without
    values, UPL13xx if the program is wrong, UPL1829 for a domain that is a hull and no proof that its instances get tokens.
    """
    for what, value, allowed in (("real", real, REALS), ("gather", gather, GATHERS)):
        if value not in allowed:
            hint = did_you_mean(value, allowed)
            raise error("UPL1802", f"{what}={value!r}: expected one of {', '.join(allowed)}", help=hint)
    program = program_of(module)
    for op in program.body.block.ops:
        if isinstance(op, ArrayOp):
            first_index(op)
    expand(program)
    open_ = require_proved(program)
    if open_ and not any(isinstance(op, ParamOp) for op in program.body.block.ops):
        require_at(program, {}, open_)  # there is one size
        open_ = ()
    ends = endpoints(program)
    for op in dict.fromkeys(ends[name] for name, _ in open_):
        if lost := forgotten(op):
            hint = 'declare its domain, or use engine="native", which counts the tokens at given sizes'
            raise only_a_hull(op, lost, "", hint)
    note_assumed(program, open_)
    return program


@dataclass(frozen=True)
class SchedulePass(ModulePass):
    """Replace a program by its loops over arrays: what is computed, when, and where it is kept (`upl_loops`).

    Requires: all domains known, `adjoint of` expanded, nothing refuted (each is seen to); no arrow decided by data.
    Establishes: one `upl_loops.program` with a schedule and with a place for every array, which `lower-loops` takes.
    Source: Feautrier 1991 (recurrences to loops), Allen and Kennedy 1987 (order), Bondhugula et al. 2008 (fusion).

        upl.program @scan { ... }
        ->
        upl_loops.program @scan "relaxed" { ... upl_loops.schedule { upl_loops.for "L1" from <"1"> to <"n"> { ... } } }
    """

    name = "schedule"
    real: str = "f64"
    gather: str = "relaxed"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = prepared(op, self.real, self.gather)
        new = write(schedule(program, real=self.real, gather=self.gather))
        new.location = program.location
        op.body.block.insert_op_before(new, program)
        program.detach()
        program.erase()
