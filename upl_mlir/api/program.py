"""A UPL program as Python sees it: its operations, its ports, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from upl_mlir.api.origin import Origin, key_of_content, key_of_derived, known
from upl_mlir.api.ports import PortView
from upl_mlir.diagnostics import Sources, UplError, error
from upl_mlir.dialects.ttm.query import facts_of as facts_of_machine
from upl_mlir.dialects.ttm.query import machine_program
from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.dialects.upl.facts import Facts, facts_of
from upl_mlir.dialects.upl.query import program_of, span_of
from upl_mlir.dialects.verifying import verify, verify_made
from upl_mlir.passes.check import Report
from upl_mlir.passes.pipelines import GRADIENT
from upl_mlir.pipeline import passes_of, run


class Program:
    """A UPL program.  Passes never change it: derivatives are new programs."""

    def __init__(self, module: ModuleOp | None, sources: Sources | None = None, origin: Origin | None = None):
        """`module` may be missing where `origin` can make it; it is made when it is asked for."""
        self._module = module
        self._origin = origin
        self._infer = False
        self.sources = sources or Sources()

    @property
    def module(self) -> ModuleOp:
        """The module.  Who has it may change it; therefore the program's content is not taken for known any more."""
        module = self._read_module()
        self._origin = None
        return module

    @property
    def op(self) -> ProgramOp:
        """The `upl.program` operation; see `module`."""
        return self._upl(self.module)

    def read(self) -> ProgramOp:
        """The `upl.program` operation, for those who do not change it.  Raises UplError (UPL1101) if it is lowered."""
        return self._upl(self._read_module())

    def _upl(self, module: ModuleOp) -> ProgramOp:
        if (machine := machine_program(module)) is not None:
            message = f"`{machine.sym_name.data}` is a program of the machine (`ttm`), expected one of UPL"
            with self.errors():
                raise error("UPL1101", message, span_of(machine), help="it runs with --engine rtl")
        return program_of(module)

    @property
    def lowered(self) -> bool:
        """Whether this is a program of the machine alone (`ttm`), which only the engine "rtl" runs."""
        return self._origin is None and machine_program(self._read_module()) is not None

    def _read_module(self) -> ModuleOp:
        if self._module is None:
            assert self._origin is not None
            with self.errors():
                self._module = self._origin.make()
            if self._infer:
                self.infer_domains()
        return self._module

    @property
    def origin(self) -> Origin | None:
        """Where the program comes from, as long as nobody can have changed it."""
        return self._origin

    @property
    def facts(self) -> Facts:
        """Names and fields."""
        if self._origin is None and (machine := machine_program(self._read_module())) is not None:
            return facts_of_machine(machine)
        return facts_of(self.read()) if self._origin is None else self._origin.facts

    @property
    def name(self) -> str:
        """The program's name."""
        return self.facts.name

    @property
    def params(self) -> tuple[str, ...]:
        """Names of the open parameters."""
        return self.facts.params

    @property
    def inputs(self) -> dict[str, PortView]:
        """The host inputs, in text order."""
        return {n: PortView(self, n) for n in self.facts.inputs}

    @property
    def outputs(self) -> dict[str, PortView]:
        """The host outputs, in text order."""
        return {n: PortView(self, n) for n in self.facts.outputs}

    @property
    def notes(self) -> tuple[str, ...]:
        """What transformations had to choose, in words, in order."""
        from upl_mlir.passes.notes import notes_of

        return notes_of(self.read())

    def infer_domains(self) -> Program:
        """Infer the domains in place, if they are not known yet; returns the program."""
        from upl_mlir.passes.infer_domains import infer_missing

        if self._module is None:
            self._infer = True
        elif not self.lowered:
            with self.errors():
                infer_missing(self.read())
        return self

    def check(self) -> Report:
        """Prove that no token strands and nothing deadlocks: LANGUAGE section 4."""
        from upl_mlir.passes.check import check

        with self.errors():
            return check(self.read())

    def require_not_refuted(self, hint: str) -> None:
        """Raise UplError (UPL13xx) if something of the program is refuted; `hint` is the suggestion.

        Of a program of the machine nothing is proved or refuted: what goes wrong shows when it runs.
        """
        if self.lowered:
            return
        from upl_mlir.passes.check import require_not_refuted

        with self.errors():
            require_not_refuted(self.read(), hint)

    def clone(self) -> Program:
        """An independent copy."""
        return Program(self._read_module().clone(), self.sources)

    def derived(self, how: Sequence[str], passes: Callable[[], Iterable[ModulePass]]) -> Program:
        """The program that passes make of a copy; `how` says in words what they do, with all their options.

        The copy is verified where somebody may have changed it.
        """
        parent = self._origin

        def finished(module: ModuleOp) -> ModuleOp:
            with self.errors():
                if parent is None:
                    verify(module)
                run(module, passes(), verify_each=False)
                verify_made(module)
            return module

        if parent is None:
            return Program(finished(self._read_module().clone()), self.sources)
        return made_or_known(
            key_of_derived(parent, how), parent, self.sources,
            now=lambda: finished(self._read_module().clone()), again=lambda: finished(parent.make()),
        )  # fmt: skip

    def expanded(self) -> Program:
        """The program with its `adjoint of` directives expanded; itself if it has none."""
        if not self.facts.adjoint:
            return self
        return differentiated(self, None, (), unit=True)

    def __repr__(self) -> str:
        if self.lowered:  # types of ports are asked of UPL programs
            return f"<program of the machine {self.name}({', '.join(self.inputs)}) -> ({', '.join(self.outputs)})>"
        given, made = (", ".join(map(repr, ports.values())) for ports in (self.inputs, self.outputs))
        return f"<program {self.name}({given}) -> ({made})>"

    def to_mlir(self) -> str:
        """The program as MLIR text."""
        return str(self._read_module())

    def __str__(self) -> str:
        from upl_mlir.frontend.upl_text.printing.printer import print_program

        if self.lowered:
            return self.to_mlir()
        return print_program(self.read())

    def _repr_svg_(self) -> str | None:
        """The picture, for notebooks; None without the extra `draw`, so that the text is shown."""
        from upl_mlir.api.drawing import shown

        return shown(self)

    def _repr_html_(self) -> str:
        """For notebooks that show HTML: the picture, and the text."""
        from upl_mlir.api.displays import of_program

        return of_program(self)

    def errors(self) -> WithSources:
        """A context in which errors learn the program's text, so that they can show the line."""
        return WithSources(self.sources)


@dataclass(frozen=True)
class WithSources:
    """A context in which errors learn texts, so that they can show the line."""

    sources: Sources

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, found: BaseException | None, _traceback: object) -> None:
        if isinstance(found, UplError):
            for file, text in self.sources.texts.items():
                found.sources.texts.setdefault(file, text)


def made_or_known(
    key: str, parent: Origin | None, sources: Sources, *, now: Callable[[], ModuleOp], again: Callable[[], ModuleOp]
) -> Program:
    """A program with a key: made `now`, or known and only made `again` when it is asked for."""
    facts = known(key)
    if facts is not None:
        return Program(None, sources, Origin(key, again, facts, parent, True, parent is not None and parent.by_content))
    return _keyed(key, parent, sources, now(), again, parent is not None and parent.by_content)


def known_by_content(module: ModuleOp, sources: Sources, again: Callable[[], ModuleOp]) -> Program:
    """A program that no text says, with the key of its content; `again` makes another one."""
    return _keyed(key_of_content(module), None, sources, module, again, True)


def _keyed(
    key: str, parent: Origin | None, sources: Sources, module: ModuleOp, again: Callable[[], ModuleOp], by_content: bool
) -> Program:
    return Program(module, sources, Origin(key, again, facts_of(program_of(module)), parent, False, by_content))


def differentiated(
    p: Program, of: str | None, wrt: Sequence[str], *, unit: bool, total: bool = False
) -> Program:
    """The program with derivatives added; without `of`, with its `adjoint of` directives expanded.  With `unit`, an `of`
    without index fields starts with 1 and not with a host input; `total` says whether a port of `wrt` may depend on another.
    Raises UplError."""
    return p.derived(
        ("gradient", repr((of, unit, total)), *wrt),
        lambda: passes_of(GRADIENT, {"autodiff": {"of": of, "wrt": tuple(wrt), "unit": unit, "total": total}}),
    )
