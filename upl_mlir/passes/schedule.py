"""`schedule`: equations, the order of their statements, and where their elements live."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import UplError, did_you_mean, error
from upl_mlir.dialects.upl import ArrayOp, ParamOp, ProgramOp
from upl_mlir.dialects.upl.query import endpoints, first_index, program_of, span_of
from upl_mlir.passes.at_sizes import only_a_hull, require_at
from upl_mlir.passes.effort import bounded
from upl_mlir.passes.expand import expand
from upl_mlir.passes.loops.checkpoints import remade
from upl_mlir.passes.loops.coordinates import Coordinates
from upl_mlir.passes.loops.equations import System, equations
from upl_mlir.passes.loops.forward import Forwarder
from upl_mlir.passes.loops.order import NoOrder, Scheduler
from upl_mlir.passes.loops.products import Splitter
from upl_mlir.passes.loops.reuse import Reuse
from upl_mlir.passes.loops.running import RunningSums
from upl_mlir.passes.loops.statements import Edge, edges, statements
from upl_mlir.passes.loops.terms import Kind
from upl_mlir.passes.loops.tree import Tree
from upl_mlir.passes.loops.unroll import unrolled
from upl_mlir.passes.loops.wavefront import wavefront
from upl_mlir.passes.proved import note_assumed, require_proved
from upl_mlir.passes.relations import forgotten
from upl_mlir.passes.storage import Array, Storage

SCHEDULE = "upl.schedule"
"""The attribute of a program that holds its schedule, a list of lines."""
REALS, GATHERS = ("f64", "f32"), ("relaxed", "ordered")


@dataclass(frozen=True, eq=False)
class Plan:
    """A scheduled program: its equations, the tree of loops, and the arrays between."""

    system: System
    tree: list[Tree]
    arrays: dict[str, Array]
    ordered: bool


@bounded("the schedule")
def schedule(
    program: ProgramOp, *, real: str = "f64", gather: str = "relaxed", threads: int = 1,
    fixed: Mapping[str, int] | None = None,
) -> Plan:  # fmt: skip
    """Schedule a checked affine program (with `adjoint of` expanded); sizes stay symbolic.

    `real` is what `real` means ("f64" or "f32"), `gather` whether folds keep their order ("ordered") or not ("relaxed").
    With several `threads` sums along columns stay loops over parallel ones, which the threads share.
    `fixed` are parameters that are numbers; the others stay symbols.
    Raises UplError (UPL19xx) for what is not such a program.
    """
    expand(program)
    ordered = gather == "ordered"
    system, tree, deps = _tree(program, Kind(real), ordered=ordered, sums=not ordered and threads == 1, fixed=fixed)
    storage, tree, arrays = _stored(system, tree, deps)
    tree = unrolled(system.lin, tree, arrays, {n for n, eq in system.equations.items() if eq.planar})
    forwarder = Forwarder(system.lin, tree, system.hosts)
    tree = forwarder.forwarded()
    storage.without(arrays, forwarder.gone)
    return Plan(system, tree, arrays, ordered)


def _tree(
    program: ProgramOp, real: Kind, *, ordered: bool, sums: bool, fixed: Mapping[str, int] | None, reuse: bool = True
) -> tuple[System, list[Tree], list[Edge]]:
    """The equations, as they are best computed, with their loops and dependences; `sums`: whether sums may run along.

    Raises UplError.
    """
    system = equations(program, real, ordered=ordered, fixed=fixed)
    Splitter(system).split()
    reused = reuse and Reuse(system).replace()
    if sums:
        RunningSums(system).replace()
    try:
        return system, *_ordered(program, system, ordered=ordered)
    except UplError:
        if not reused:
            raise
    return _tree(program, real, ordered=ordered, sums=sums, fixed=fixed, reuse=False)  # the reads asked for another order


def _ordered(program: ProgramOp, system: System, *, ordered: bool) -> tuple[list[Tree], list[Edge]]:
    """The tree of loops and the dependences, in other coordinates where none is found in those of the program.

    Raises UplError (UPL1824).
    """
    coordinates = Coordinates(system)
    first: NoOrder | None = None
    while True:
        stmts = statements(system)
        deps = edges(system.lin, stmts)
        try:
            return Scheduler(system.lin, stmts, deps, ordered=ordered).tree(), deps
        except NoOrder as e:
            first = first or e
            if not coordinates.change(e.deps):
                names = first.arrays
                at = span_of(endpoints(program)[re.split("[.:]", names[0])[0]])
                what = f"the elements of {', '.join(f'`{n}`' for n in names)}, which depend on each other"
                help_ = 'use engine="interp" or "token", which need none'
                raise error("UPL1824", f"no order of loops found for {what}", at, help=help_) from None


def _stored(system: System, tree: list[Tree], deps: list[Edge]) -> tuple[Storage, list[Tree], dict[str, Array]]:
    """Where elements live, and loops over time tiled; with states made again where that can be."""
    found = remade(system, tree, deps)
    if found is not None:
        storage = Storage(system, found.tree, found.deps)
        arrays = storage.arrays()
        if all(x.modulus is not None for n, at in found.states.items() for x in arrays[n].axes if x.at == at):
            arrays |= found.arrays
            tiled = wavefront(system.lin, found.tree, arrays, found.deps, found.blocks)
            if tiled is not None:
                system.equations |= found.equations
                return storage, tiled, arrays
    storage = Storage(system, tree, deps)
    arrays = storage.arrays()
    return storage, wavefront(system.lin, tree, arrays, deps) or tree, arrays


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
    """Note on a program how it will run as loops: the attribute `upl.schedule` holds the text, line by line.

    Requires: all domains known, `adjoint of` expanded, nothing refuted (each is seen to); no arrow decided by data.
    Establishes: nothing that other passes need: `lower-loops` makes the same schedule again.
    Source: Feautrier 1991 (recurrences to loops), Allen and Kennedy 1987 (order), Bondhugula et al. 2008 (fusion).

        upl.program @scan { ... }
        ->
        upl.program @scan { ... } {upl.schedule = ["for L1 in 1..n", "  S<L1> = ..."]}
    """

    name = "schedule"
    real: str = "f64"
    gather: str = "relaxed"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from upl_mlir.passes.loops.show import schedule_lines

        program = prepared(op, self.real, self.gather)
        plan = schedule(program, real=self.real, gather=self.gather)
        program.attributes[SCHEDULE] = ArrayAttr(StringAttr(line) for line in schedule_lines(plan.tree, plan.arrays))
