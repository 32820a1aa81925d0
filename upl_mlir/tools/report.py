"""`upl check`: the report of the proofs as text and as JSON.

The JSON's schema is `docs/check.schema.json`; `upl check --schema` prints it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from upl_mlir.diagnostics import Sources, UplError
from upl_mlir.passes.analysis.obligations import Status
from upl_mlir.passes.check import Count, Report
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.tools.boundary import STDIN, UsageError, describe_exception
from upl_mlir.tools.terminal.colour import complain
from upl_mlir.tools.terminal.progress import waiting

if TYPE_CHECKING:
    from upl_mlir.api.programs import Program

Number = int | str | None
"""A number, a polynomial in the parameters or sums of entries as text, or null where data decide or none was found."""


class ObligationJson(msgspec.Struct):
    """One thing to be shown."""

    kind: Annotated[
        Literal["coverage", "exists", "unique", "multiplicity", "gather", "domain", "acyclic", "affine"],
        msgspec.Meta(description="what is to be shown, as in docs/language.md section 4"),
    ]
    status: Literal["proved", "refuted", "unproved"]
    where: Annotated[str, msgspec.Meta(description="FILE:LINE:COLUMN, else as `what`")]
    what: Annotated[str, msgspec.Meta(description="the node, input or arrow that it is about")]
    arrow: str | None
    witness: Annotated[
        dict[str, int] | None, msgspec.Meta(description="a concrete index with values of parameters that refutes it")
    ]
    message: str
    help: Annotated[str | None, msgspec.Meta(description="a suggestion of what to write instead")]


class ReportJson(msgspec.Struct):
    """What `upl check --json` prints."""

    ok: Annotated[bool, msgspec.Meta(description="nothing is refuted")]
    obligations: list[ObligationJson]
    firings: Annotated[dict[str, Number], msgspec.Meta(description="instances of each node")]
    tokens: Annotated[
        dict[str, Number], msgspec.Meta(description="tokens sent to each node and host output, a multicast once")
    ]
    total_firings: Number
    total_tokens: Number
    field_bits: Annotated[
        dict[str, dict[str, int | None]],
        msgspec.Meta(description="bits of each index field, from its lower bound on; null where a parameter leaves it open"),
    ]
    waiting_bound: Annotated[Number, msgspec.Meta(description="no more tokens than this wait for partners at any time")]
    critical_path: Annotated[
        Number, msgspec.Meta(description="the longest chain of firings each of which needs the one before: ideal time")
    ]
    average_parallelism: Annotated[
        float | str | None, msgspec.Meta(description="total_firings / critical_path, as text where parameters are open")
    ]
    notes: Annotated[list[str], msgspec.Meta(description="what passes noted on the program: what is kept, fired again")]


def _number(n: Count) -> Number:
    return n if n is None or isinstance(n, int) else str(n)


def average_parallelism(report: Report) -> float | str | None:
    """Firings per step of the critical path."""
    work, steps = report.firings.total, report.critical_path
    if work is None or steps is None or steps == 0:
        return None
    if isinstance(work, int) and isinstance(steps, int):
        return round(work / steps, 3)
    if isinstance(work, IndexExpr) and isinstance(steps, int) and all(c % steps == 0 for _, c in work.terms):
        return str(IndexExpr(tuple((m, c // steps) for m, c in work.terms)))
    return "/".join(text if text.isalnum() else f"({text})" for text in (str(work), str(steps)))


def to_json(report: Report) -> ReportJson:
    """The report as `upl check --json` prints it."""
    return ReportJson(
        ok=report.ok,
        obligations=[
            ObligationJson(
                kind=o.kind.name.lower(), status=o.status.value, where=str(o.span) if o.span else o.where,  # pyright: ignore[reportArgumentType]
                what=o.where, arrow=o.arrow, witness=o.witness, message=o.message, help=o.help,
            )
            for o in report.obligations
        ],
        firings={n: _number(e) for n, e in report.firings.items()},
        tokens={n: _number(e) for n, e in report.tokens.items()},
        total_firings=_number(report.firings.total),
        total_tokens=_number(report.tokens.total),
        field_bits=report.field_bits,
        waiting_bound=_number(report.waiting_bound),
        critical_path=_number(report.critical_path),
        average_parallelism=average_parallelism(report),
        notes=list(report.notes),
    )  # fmt: skip


def schema() -> dict[str, Any]:
    """The JSON Schema of `ReportJson`."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(ReportJson)}


def print_json(report: Report) -> None:
    """The report as JSON on the standard output."""
    print(json.dumps(msgspec.to_builtins(to_json(report)), indent=2, ensure_ascii=False))


def check(
    files: Sequence[str], load: Callable[[str], Program], *, json: bool, quiet: bool, verbose: bool,
    further: Callable[[Program], str] | None = None,
) -> int:
    """Check some programs and print the reports; an error in one does not keep the others from being checked.  Of a program
    that is right, `further` may prove more, and says so in a line.

    Returns 1 if something is wrong with one of them, else 0.
    """
    if json and len(files) > 1:
        raise UsageError("--json: expected one FILE, as it prints one report")
    if json and further is not None:
        raise UsageError("--json: the report says nothing of ranks; expected it without --ranks")
    status = 0
    for file in files:
        try:
            program = load(file)
            with waiting(f"{file}: proving", quiet=quiet):
                report = program.check()
                more = None if further is None or not report.ok else further(program)
        except (UplError, OSError) as e:
            if len(files) == 1:
                raise
            complain(describe_exception(e))
            status = 1
            continue
        if json:
            print_json(report)
        else:
            print_text(STDIN if file == "-" else file, report, program.sources, quiet=quiet, verbose=verbose)
            if more is not None and not quiet:
                print(f"{file}: {more}")
        status = status if report.ok else 1
    return status


def print_text(
    file: str, report: Report, sources: Sources | None = None, *, quiet: bool = False, verbose: bool = False
) -> None:
    """The report for people; what is refuted goes to the standard error.  `quiet`: nothing else; `verbose`: what is proved,
    too."""
    for d in report.diagnostics():
        complain(d.render(sources))
    if quiet:
        return
    for o in report.obligations:
        if o.status is Status.UNPROVED or (verbose and o.status is Status.PROVED):
            where = f"{o.span}: " if o.span else ""
            message = "" if o.status is Status.PROVED else f": {o.message}"
            print(f"{where}{o.status.value}: {o.kind.value}, {o.where}{message}")
    width = max((len(n) for n in report.firings), default=0)
    for name, n in report.firings.items():
        print(f"  {name:<{width}}  {n if n is not None else '?'}")
    if report.firings and report.firings.total is not None:
        tokens, waiting = (("?" if n is None else n) for n in (report.tokens.total, report.waiting_bound))
        print(f"firings: {report.firings.total}   tokens: {tokens}   waiting at most: {waiting}")
    elif report.firings:
        print("  ?: decided by data, or no formula found")
    if report.critical_path is not None:
        print(f"critical path: {report.critical_path}   average parallelism: {average_parallelism(report) or '?'}")
    for note in report.notes:
        print(f"note: {note}")
    counts = ", ".join(f"{n} {s.value}" for s, n in report.counts().items() if n or s is Status.PROVED)
    print(f"{file}: {counts}")
