"""`lower-circuit`: a program with its sizes as a circuit of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.ppn import CircuitOp
from upl_mlir.dialects.upl import ParamOp, ProgramOp
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.dialects.upl.query import program_of, span_of
from upl_mlir.passes.analysis.proved import require_proved
from upl_mlir.passes.bind_parameters import bind_parameters
from upl_mlir.passes.circuit.body import INTEGER
from upl_mlir.passes.circuit.choose import Wish
from upl_mlir.passes.circuit.ir import write
from upl_mlir.passes.circuit.plan import Plan, plan
from upl_mlir.passes.circuit.process import network_of
from upl_mlir.passes.circuit.share import layout
from upl_mlir.passes.circuit.statements.gathers import gathers
from upl_mlir.passes.circuit.statements.short import short_gathers
from upl_mlir.passes.circuit.statements.split import forwarded, split
from upl_mlir.passes.circuit.statements.strips import strips
from upl_mlir.passes.expand import expand
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.transform.reuse import COSTLY, Reuse
from upl_mlir.passes.predicate.convert import decided_by_data, if_convert
from upl_mlir.passes.predicate.indices import OTHER_ENGINES
from upl_mlir.passes.schedule import prepared, raised


def wish(
    lanes: int, along: str | None = None, order: tuple[str, ...] | None = None, share: bool = False, real: str = "f32"
) -> Wish:
    """What the user asks for.  Raises UplError: UPL2004 for a number of lanes below 1, and for f64, UPL1802 for another type
    of reals that there is not."""
    if lanes < 1:
        raise error("UPL2004", f"lanes={lanes}: expected 1 or more")
    kind = Kind.of_real(real)
    if kind is Kind.F64:
        raise error("UPL2004", "real=f64: circuits compute in f32 or in a small type", help="f16, bf16, or such as q4.14")
    return Wish(lanes, along, order, share, kind.value)


def statements(p: LoopProgram, apart: bool = False) -> LoopProgram:
    """The equations of a program as a circuit has them: each array a box, each statement with one gather of many summands,
    and nothing else beside it if gathers are to be `apart`; no function computed twice.

    Raises UplError UPL2001, UPL2003, UPL2005 where there is no such form."""
    found = forwarded(split(p))
    Reuse(found.system, COSTLY).replace()
    return forwarded(gathers(short_gathers(found), apart))


def planned_circuit(module: ModuleOp, params: Mapping[str, int], wish: Wish) -> tuple[LoopProgram, Plan]:
    """The equations of a program with these sizes, and its plan; the module is changed.  Raises UplError: UPL13xx if the
    program is wrong, UPL20xx if it has no circuit."""
    program = _decided(module, params, wish) or prepared(module, wish.real, "ordered")
    for op in program.body.block.ops:
        if isinstance(op, ParamOp) and op.symbol not in params:
            raise error("UPL2001", f"a circuit has one size: `{op.symbol}` is open", span_of(op), help=f"-D {op.symbol}=...")
    loops = statements(raised(program, real=wish.real, gather="ordered", fixed=params, split=False, again=False), wish.share)
    if not wish.share:
        return loops, plan(network_of(loops), wish)
    found = layout(network_of(loops), wish.lanes)
    loops = strips(loops, found.strips)
    return loops, plan(network_of(loops), replace(wish, lanes_of=found.lanes))


def _decided(module: ModuleOp, params: Mapping[str, int], wish: Wish) -> ProgramOp | None:
    """The program of a module, with bits for what data decide, and prepared; None if data decide nothing."""
    program = program_of(module)
    expand(program)
    if not decided_by_data(program):
        return None
    require_proved(program)
    bind_parameters(program, params)
    if_convert(program, INTEGER)
    try:
        return prepared(module, wish.real, "ordered")
    except UplError as e:
        d = e.diagnostics[0]
        what = f"where data decide what is sent, what may be sent is not proved to be right: {d.message}"
        raise error("UPL1821", what, d.span, notes=list(d.notes), help=OTHER_ENGINES) from None


@dataclass(frozen=True)
class LowerCircuitPass(ModulePass):
    """Replace a program by the circuit that computes it: processes with their units, channels and ports (`ppn`).

    Requires: all sizes known (`-D`); values of one type of reals (`real`: f32 or a small type), truth values, and
    integers that fit 32 bits. The pass itself first makes all domains known, expands `adjoint of`, proves, and removes
    arrows that data decide (by `if-convert`).
    Establishes: one `ppn.circuit` with a schedule. Every value is there when it is read, and only dependences cause
    idle slots. Sums keep their order. At most `lanes` lanes compute at a time, along the field `along` (default: the
    best one), with loops in the given `order` (default: the best one). With `share`, running sums use the units of one
    array of lanes in turn.
    Source: systolic arrays (Quinton 1984), polyhedral process networks (Verdoolaege 2010).

        upl.program @matmul { ... }
        ->
        ppn.circuit @matmul { ... ppn.process @C over <...> lanes 16 along "i" order <"k_1,i,j"> ... }
    """

    name = "lower-circuit"
    lanes: int = 1
    along: str | None = None
    order: tuple[str, ...] | None = None
    share: bool = False
    real: str = "f32"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        old = program_of(op)
        location = old.location
        loops, found = planned_circuit(op, {}, wish(self.lanes, self.along, self.order, self.share, self.real))
        old = program_of(op)
        new: CircuitOp = write(loops, found)
        new.location = location
        op.body.block.insert_op_before(new, old)
        old.detach()
        old.erase()
