"""The engines by name, one row each: what `compile` must know of one before it runs, and how it is built.

A new engine is a row, and a line in `test/agreement/engines.py`.  Each is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from upl_mlir.api.ports import require_arrays
from upl_mlir.api.program import Program
from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.dialects.upl.facts import Facts
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.engines.names import EngineName
from upl_mlir.engines.protocol import Runner, Setting

if TYPE_CHECKING:
    from upl_mlir.engines.mpi.engine import MpiEngine
    from upl_mlir.engines.native.engine import NativeEngine
    from upl_mlir.engines.token.all_sizes import LoopsOrTokens, TokensInCode

    AllSizes = NativeEngine | LoopsOrTokens | TokensInCode | MpiEngine
    """What runs a program at all sizes."""


DECIDED_BY_DATA = "UPL1821"
"""The code with which loops over arrays are refused because data decide where tokens go."""


@dataclass(frozen=True)
class EngineRow:
    """An engine.

    `build` makes a runner for a program with its sizes; `all_sizes`, where an engine has it, one callable for all,
    which also proves what it needs.  `real`: what the type `real` means by default.  `refuses`: values of options
    that the engine has not, with message and suggestion.  `takes`: options of its own, which no other engine has.
    `machine_programs`: takes programs of the machine (`ttm`) as they are.  `small`: runs f16, bf16 and fixed point.
    """

    build: Callable[[Program, Mapping[str, int], Setting], Runner] | None = None
    all_sizes: Callable[[Program, Mapping[str, int], Setting], AllSizes] | None = None
    real: str = "f64"
    refuses: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict[tuple[str, str], tuple[str, str]])
    takes: tuple[str, ...] = ()
    machine_programs: bool = False
    small: bool = False

    def check(self, name: EngineName, program: Program, given: Sequence[str], **options: str | None) -> None:
        """Raise UplError (UPL1733) for a value of an option that the engine refuses, or one `given` that is another's."""
        for option in given:
            if option not in self.takes:
                owner = next(n for n, row in ENGINES.items() if option in row.takes)
                raise error("UPL1733", f"the engine `{name}` has no option `{option}`", help=f"`{owner}` has it")
        kind = Kind.of(options["real"] or self.real)
        if kind.format is not None and not self.small:
            with_it = ", ".join(f"`{n}`" for n, row in ENGINES.items() if row.small)
            at = None if program.lowered else span_of(program.read())
            raise error("UPL1733", f"the engine `{name}` has no arithmetic of type {kind.value}", at, help=f"use {with_it}")
        for option in options.items():
            if option in self.refuses:
                message, help_ = self.refuses[cast("tuple[str, str]", option)]
                raise error("UPL1733", message, help=help_)


def _interp(program: Program, bound: Mapping[str, int], s: Setting) -> Runner:
    from upl_mlir.engines.interp.engine import Engine

    return Engine(program.read(), bound, **_options(s))


def _token(program: Program, bound: Mapping[str, int], s: Setting) -> Runner:
    from upl_mlir.engines.token.engine import TokenEngine

    return TokenEngine(program.read(), bound, **_options(s))


def _reference(program: Program, bound: Mapping[str, int], s: Setting) -> Runner:
    from upl_mlir.engines.reference import Evaluator

    return Evaluator(program.read(), bound, **_options(s))


def _options(s: Setting) -> dict[str, Any]:
    return {"real": s.real, "gather": s.gather, "order": s.order, "seed": s.seed}


def _rtl(program: Program, bound: Mapping[str, int], s: Setting) -> Runner:
    from upl_mlir.engines.rtl.engine import RtlEngine

    return RtlEngine(
        program.module, bound, machine=s.machine, simulator=s.simulator, ordered=s.gather == "ordered"
    )


def _circuit(program: Program, bound: Mapping[str, int], s: Setting) -> Runner:
    from upl_mlir.engines.circuit.engine import CircuitEngine
    from upl_mlir.passes.lower_to_circuit import wish

    return CircuitEngine(program.module, bound, wish(s.lanes, s.along, share=s.share, real=s.real), s.bench)


def _native(program: Program, given: Mapping[str, int], s: Setting) -> AllSizes:
    """Loops over arrays; where data decide what loops cannot say, code in which the tokens move."""
    from upl_mlir.engines.native.engine import NativeEngine

    try:
        return NativeEngine(_Ready(program), real=s.real, gather=s.gather, threads=s.threads, given=given)
    except UplError as e:
        codes = {d.code for d in e.diagnostics}
        if codes != {DECIDED_BY_DATA} and not (codes <= NO_LOOPS and _by_data(program)):
            raise
    from upl_mlir.engines.token.all_sizes import LoopsOrTokens, TokensInCode
    from upl_mlir.passes.if_convert import IfConvertPass

    def tokens() -> TokensInCode:
        return TokensInCode(_Ready(program), real=s.real, gather=s.gather, threads=s.threads)

    ordered = s.gather == "ordered" or Kind.of_real(s.real).format is not None  # small types fold in order always
    try:
        bits = program.derived(("if-convert", str(ordered)), lambda: [IfConvertPass(compared=True, ordered=ordered)])
        loops = NativeEngine(_Ready(bits), real=s.real, gather=s.gather, threads=s.threads, given=given)
    except UplError:  # whatever stands in the way of loops, the tokens move
        return tokens()
    (fault,) = bits.facts.outputs.keys() - program.facts.outputs.keys()
    return LoopsOrTokens(_Ready(program), loops, fault, tokens)


NO_LOOPS = {"UPL1822", "UPL1823", "UPL1824", "UPL1825", "UPL1826"}
"""What else stands in the way of loops: of programs that data decide, these are found first now and then."""


def _by_data(program: Program) -> bool:
    """Whether data decide some arrow of a program."""
    from upl_mlir.passes.analysis.relations import ProgramSets

    sets = ProgramSets(program.infer_domains().read())
    return any(map(sets.dynamic, sets.arrows))


def _mpi(program: Program, given: Mapping[str, int], s: Setting) -> MpiEngine:
    """Native code for the blocks of each rank, MPI between them."""
    from upl_mlir.engines.mpi.engine import MpiEngine

    return MpiEngine(
        _Ready(program), real=s.real, gather=s.gather, threads=s.threads,
        checkpoint=s.checkpoint, every=s.every, local=s.local, sizes=given,
    )  # fmt: skip


@dataclass(frozen=True)
class _Ready:
    """A program as the native engine takes it: see `native.whole.Source`."""

    made: Program

    @property
    def key(self) -> str | None:
        return None if self.made.origin is None else self.made.origin.key

    @property
    def by_content(self) -> bool:
        return self.made.origin is not None and self.made.origin.by_content

    @property
    def facts(self) -> Facts:
        return self.made.facts

    def read(self) -> ProgramOp:
        op = self.made.infer_domains().read()
        require_arrays(op)
        return op

    def keep(self) -> None:
        if self.made.origin is not None:
            self.made.origin.keep()


ENGINES: Mapping[EngineName, EngineRow] = {
    EngineName.INTERP: EngineRow(_interp, small=True),
    EngineName.TOKEN: EngineRow(_token),
    EngineName.NATIVE: EngineRow(all_sizes=_native, small=True, takes=("threads",)),
    EngineName.RTL: EngineRow(
        _rtl, real="f32", machine_programs=True, takes=("machine", "simulator"),
        refuses={
            ("real", "f64"): ("the machine computes in f32", "compare with the interpreter under --real f32"),
        },
    ),
    EngineName.CIRCUIT: EngineRow(
        _circuit, real="f32", small=True, takes=("lanes", "along", "share", "bench"),
        refuses={
            ("real", "f64"): ("circuits compute in f32, or in a small type", "--real f32, f16, bf16, or such as q4.14"),
        },
    ),
    EngineName.MPI: EngineRow(all_sizes=_mpi, takes=("threads", "checkpoint", "every", "local")),
    EngineName.REFERENCE: EngineRow(_reference, small=True),
}  # fmt: skip
