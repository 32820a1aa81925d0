"""`check`: proves, before anything runs, that no token strands and nothing deadlocks (LANGUAGE section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import Diagnostic, Span, UplError, error
from upl_mlir.dialects.upl import InputOp, NodeOp, ProgramOp
from upl_mlir.dialects.upl.query import directives, program_of, span_of, target_port
from upl_mlir.passes.analysis.bodies import of_bodies
from upl_mlir.passes.analysis.critical_path import critical_path
from upl_mlir.passes.analysis.cycles import of_cycles
from upl_mlir.passes.analysis.defined import of_values
from upl_mlir.passes.analysis.effort import bounded
from upl_mlir.passes.analysis.obligations import Kind, Obligation, Status, of_arrow, of_domain, of_gather, of_ordinary
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.analysis.small_sizes import small_programs
from upl_mlir.passes.analysis.strata import of_strata
from upl_mlir.passes.expand import expand
from upl_mlir.passes.infer_domains import infer_missing
from upl_mlir.passes.notes import notes_of
from upl_mlir.poly.counts.entry_sums import EntrySums, count_by_sums
from upl_mlir.poly.counts.quota import TooComplex, limited
from upl_mlir.poly.expr import IndexExpr


@dataclass(frozen=True)
class CheckPass(ModulePass):
    """Prove every obligation; a refuted one is an error (UPL13xx).

    Requires: all domains known.  What `adjoint of` stands for is proved on a copy.
    Establishes: nothing refuted.  The IR does not change.
    Source: LANGUAGE section 4.
    """

    name = "check"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        report = check(program_of(op))
        if not report.ok:
            raise UplError(*report.diagnostics())


Count = int | IndexExpr | EntrySums | None
"""A number, a polynomial in the parameters, sums over entries of symbolic arrays, or None where none of these is known."""


def number(n: IndexExpr | EntrySums | None) -> Count:
    """A polynomial without parameters as a plain integer."""
    return n if not isinstance(n, IndexExpr) or n.constant is None else n.constant


class Counts(dict[str, Count]):
    """Counts by name of a node or host output."""

    @property
    def total(self) -> Count:
        """Their sum; None if one of them is not known."""
        out = EntrySums(IndexExpr())
        for n in self.values():
            if n is None:
                return None
            out = out + n
        return out if out.sums else number(out.plain)

    def at(self, /, **params: int | Sequence[int] | Mapping[int, int]) -> dict[str, int | None]:
        """The counts for given parameters; of a symbolic array the entries, as a list from index 0 on or by index.

        Raises UplError (UPL1513) where a count needs an entry that is not given.
        """
        numbers = {name: n for name, n in params.items() if isinstance(n, int)}

        def entry(array: str, i: int) -> int:
            values = params.get(array, {})
            known = values if isinstance(values, Mapping) else {} if isinstance(values, int) else dict(enumerate(values))
            if i not in known:
                help_ = f"give them: -D {array}=[...]"
                raise error("UPL1513", f"the count needs {array}[{i}], and `{array}` has no such value here", help=help_)
            return known[i]

        return {k: n if n is None or isinstance(n, int) else n.evaluate(numbers, entry) for k, n in self.items()}


@dataclass
class Report:
    """The outcome: obligations; firings of each node; tokens that each node and host output receives, a multicast once
    (so that `tokens.total` is the number of tokens sent); a bound on the tokens that wait for partners at any time; the
    longest chain of firings that need one another; what passes noted on the program, such as what a checkpointed gradient
    keeps and fires again."""

    obligations: list[Obligation] = field(default_factory=list[Obligation])
    firings: Counts = field(default_factory=Counts)
    tokens: Counts = field(default_factory=Counts)
    waiting_bound: Count = None
    critical_path: Count = None
    field_bits: dict[str, dict[str, int | None]] = field(default_factory=dict[str, dict[str, "int | None"]])
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Nothing is refuted."""
        return all(o.status is not Status.REFUTED for o in self.obligations)

    def diagnostics(self) -> list[Diagnostic]:
        """The refuted obligations as errors."""
        return [
            Diagnostic(_code(o), o.message, o.span, notes=o.notes, help=o.help or _HELP.get(o.kind.name))
            for o in self.obligations
            if o.status is Status.REFUTED
        ]

    def _repr_html_(self) -> str:
        """For notebooks: a table of what is not proved, and the rest folded."""
        from upl_mlir.passes.analysis.tables import of_report

        names = [*self.firings, *(n for n in self.tokens if n not in self.firings)]
        lines = [*([] if self.critical_path is None else [f"critical path: {self.critical_path}"]), *self.notes]
        return of_report(self.obligations, {n: (self.firings.get(n, ""), self.tokens.get(n)) for n in names}, lines)

    def counts(self) -> dict[Status, int]:
        """How many obligations there are of each status."""
        return {s: sum(o.status is s for o in self.obligations) for s in Status}


_HELP = {
    "ACYCLIC": "a ring needs an entry: some instance must get its tokens from outside the cycle",
}


def _code(o: Obligation) -> str:
    return f"UPL13{list(Kind).index(o.kind) + 1:02d}"


NEEDS_VALUES = "UPL1206"  # a figure or a proof that depends on more of a symbolic array than an entry or two
OPEN = "; give them with -D to know"


def check(program: ProgramOp) -> Report:
    """Prove or refute every obligation of a program; infers domains first if they are not known.

    A program that holds `adjoint of` is right if it is as it was written and with the derivatives that are asked for.
    Where a domain cannot be inferred without the values of a symbolic array, a mistake is looked for at small sizes; if none
    shows there, the error (UPL1206) is raised.
    """
    report, sets = proofs(program)
    if sets is not None:
        add_figures(report, sets)
    return report


def proofs(program: ProgramOp) -> tuple[Report, ProgramSets | None]:
    """What `check` proves, without figures; and the sets from which `add_figures` makes them, None where there are none."""
    report, sets = _prove_or_refute(program)
    if sets is not None and directives(program) and report.ok:
        whole = program.clone()
        expand(whole)
        report, sets = _prove_or_refute(whole)
    return report, sets


def add_figures(report: Report, sets: ProgramSets) -> None:
    """Fill in the bits of fields, how often nodes fire, how many tokens there are, and the critical path.

    What is too complex to be found stays empty, or None."""
    for fill in (_widths, _count, _measure):
        try:
            with limited():
                fill(report, sets)
        except TooComplex:
            pass  # it is no proof that is missing, only figures: None says so
        except UplError as e:
            if not _needs_values(e):
                raise


def require_not_refuted(program: ProgramOp, hint: str) -> None:
    """Raise UplError (UPL13xx, with a last suggestion) if an obligation of the program as it is written is refuted.

    Whatever keeps the proof from being made is left to who runs the program.
    """
    try:
        report, _ = _prove_or_refute(program)
    except UplError:
        return
    if not report.ok:
        *others, last = report.diagnostics()
        raise UplError(*others, replace(last, help=f"{last.help}; {hint}" if last.help else hint))


def _prove_or_refute(program: ProgramOp) -> tuple[Report, ProgramSets | None]:
    """The proofs, without figures; no sets where only small sizes could be looked at."""
    try:
        report, sets = _prove(program)
    except UplError as e:
        if not _needs_values(e) or not (found := _refuted_at_small_sizes(program)):
            raise
        return Report(found), None
    if any(o.status is Status.UNPROVED and o.message.endswith(OPEN) for o in report.obligations) and report.ok:
        report.obligations += _refuted_at_small_sizes(program)
    return report, sets


def _needs_values(e: UplError) -> bool:
    return all(d.code == NEEDS_VALUES for d in e.diagnostics)


def _refuted_at_small_sizes(program: ProgramOp) -> list[Obligation]:
    """What is refuted at the first small size that shows a mistake; witnesses and messages say which."""
    for small, values, text in small_programs(program):
        try:
            report, _ = _prove(small)
        except UplError:
            continue
        found = [o for o in report.obligations if o.status is Status.REFUTED]
        if found:
            return [
                replace(o, message=f"{o.message} (with {text})", witness={**values, **(o.witness or {})}) for o in found
            ]  # fmt: skip
    return []


@bounded("the proof")
def _prove(program: ProgramOp) -> tuple[Report, ProgramSets]:
    infer_missing(program)
    sets = ProgramSets(program, directives=True)
    report = Report(list(obligations(sets)), notes=notes_of(program))
    return report, sets


def _widths(report: Report, sets: ProgramSets) -> None:
    """The bits of each index field."""
    report.field_bits = {name: field_bits(sets, name) for name in sets.ends}


def _count(report: Report, sets: ProgramSets) -> None:
    """Firings, tokens, and how many can wait; what is not filled in stays None."""
    report.firings = Counts({n: None for n, op in sets.ends.items() if isinstance(op, NodeOp)})
    report.tokens = Counts({n: None for n, op in sets.ends.items() if not isinstance(op, InputOp)})
    for name in report.firings:
        if name not in sets.dynamic_nodes:
            report.firings[name] = number(count_by_sums(sets.domain(name)))
    waiting = Counts()
    for name in report.tokens:
        op = sets.ends[name]
        sent = Counts({
            str(k): None if sets.dynamic(a) else number(count_by_sums(sets.tokens(a)))
            for k, a in enumerate(sets.into(name))
        })  # fmt: skip
        report.tokens[name] = sent.total
        if isinstance(op, NodeOp) and any(p.gather is not None or len(op.ports) > 1 for p in op.ports):
            waiting[name] = sent.total
    report.waiting_bound = waiting.total


def _measure(report: Report, sets: ProgramSets) -> None:
    """The critical path of a program that is right."""
    if report.ok:
        tokens = report.tokens.total
        report.critical_path = number(critical_path(sets, None if isinstance(tokens, EntrySums) else tokens))


def obligations(sets: ProgramSets) -> Iterator[Obligation]:
    """All obligations, in the order of the program."""
    for op in sets.ends.values():
        if isinstance(op, InputOp):
            continue
        yield from _open(of_domain(sets, op), Kind.DOMAIN, op.symbol, span_of(op))
        for port in op.ports if isinstance(op, NodeOp) else (target_port(op, None),):
            if isinstance(op, NodeOp) and port.gather is not None:
                yield from _open(of_gather(sets, op, port), Kind.GATHER, f"{op.symbol}.{port.name}", span_of(op))
            else:
                where = f"{op.symbol}.{port.name}" if isinstance(op, NodeOp) else op.symbol
                yield from _open(of_ordinary(sets, op, port), Kind.COVERAGE, where, span_of(op))
    for a in sets.arrows:
        yield from _open(of_arrow(sets, a), Kind.EXISTS, a.text, span_of(a.send))
    yield from _open(of_cycles(sets), Kind.ACYCLIC, "all cycles", None)
    yield from _open(of_strata(sets), Kind.STRATA, "all open gathers", None)
    yield from _open(of_values(sets), Kind.DEFINED, "all indices", None)
    yield from _open(of_bodies(sets), Kind.DEFINED, "all bodies", None)


def _open(found: Iterable[Obligation], kind: Kind, where: str, span: Span | None) -> Iterator[Obligation]:
    """The obligations; one more, unproved, in place of those that need the values of a symbolic array."""
    try:
        yield from found
    except UplError as e:
        if not _needs_values(e):
            raise
        yield Obligation(kind, Status.UNPROVED, where, f"{e.diagnostics[0].message}{OPEN}", span)


def field_bits(sets: ProgramSets, name: str) -> dict[str, int | None]:
    """Bits that each index field needs, biased by its lower bound; None where a parameter leaves it open."""
    domain = sets.domain(name)
    out: dict[str, int | None] = {}
    for f in domain.dims:
        lo, hi = domain.extent(f)
        out[f] = None if lo is None or hi is None else max(1, (hi - lo).bit_length())
    return out

