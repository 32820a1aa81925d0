"""The process that proves: texts come in, a line each, and what is refuted and known of nodes goes out.

A proof may take seconds and cannot be interrupted from inside, so the server runs it here, and ends this process where
a newer text makes its answer worthless.

    python -m upl_mlir.tools.lsp.prover
"""

from __future__ import annotations

import sys
from dataclasses import replace

import msgspec

from upl_mlir.diagnostics import Diagnostic, Severity, UplError


class Task(msgspec.Struct):
    """A text to be looked at."""

    number: int
    file: str
    text: str


class Fact(msgspec.Struct):
    """What is known of a host port or node: its domain, how often it fires, how many tokens it gets."""

    domain: str | None = None
    firings: str | None = None
    tokens: str | None = None


class Answer(msgspec.Struct):
    """What is wrong with the text of a task, what is unproved (as remarks), and the facts by name."""

    number: int
    diagnostics: list[Diagnostic]
    facts: dict[str, Fact]


def answer(task: Task) -> Answer:
    """Prove.  Raises nothing that a text could cause."""
    from upl_mlir.dialects.upl.query import domain_of, endpoints, program_of
    from upl_mlir.frontend.upl_text.load import load_text
    from upl_mlir.passes.analysis.obligations import Status
    from upl_mlir.passes.check import check

    try:
        program = program_of(load_text(task.text, task.file))
        report = check(program)
    except UplError as e:
        return Answer(task.number, list(e.diagnostics), {})
    found = report.diagnostics()
    for o in report.obligations:
        if o.status is Status.UNPROVED:
            message = f"unproved: {o.kind.value}, {o.where}: {o.message}"
            found.append(Diagnostic("UPL1300", message, o.span, severity=Severity.REMARK))
    facts: dict[str, Fact] = {}
    for name, op in endpoints(program).items():
        formula = domain_of(op)
        domain = None if formula is None else formula.text(domain=True)
        firings, tokens = report.firings.get(name), report.tokens.get(name)
        facts[name] = Fact(domain, None if firings is None else str(firings), None if tokens is None else str(tokens))
    return Answer(task.number, [replace(d, notes=d.notes[:4]) for d in found], facts)


def main() -> None:
    """Answer until the input ends."""
    for line in sys.stdin.buffer:
        task = msgspec.json.decode(line, type=Task)
        try:
            found = answer(task)
        except RecursionError:
            found = Answer(task.number, [], {})
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
