"""The process that proves: texts come in, a line each, and what is wrong with them and known of their nodes goes out.

A proof may take seconds and cannot be interrupted from inside.  So each text gets a process of its own, forked from this
one, which has everything loaded; a newer text of the same document ends it.  What is known first is told first: errors of
text, names and types, then what is refuted, then the figures.

    python -m upl_mlir.tools.lsp.prover
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.synchronize import Lock

import msgspec

from upl_mlir.diagnostics import Diagnostic, Severity, Span, UplError
from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.dialects.upl.query import domain_of, endpoints, program_of
from upl_mlir.frontend.upl_text.load import load_text
from upl_mlir.passes.analysis.obligations import Status
from upl_mlir.passes.check import Report, add_figures, proofs
from upl_mlir.tools.lsp.proofs import Answer, Fact, Task

_GARBAGE = 200_000
"""New objects between two collections of garbage. Chosen: a proof of 100 nodes has fewer; collecting took a third of it."""
_WARM_UP = """
param M >= 1
input X<i> in 0<=i<M { #M -> A.x<i,*> }
input W<i,j> in 0<=i<M, 0<=j<M { -> A.w }
output Y<i>
node A<i,j> { in x, w; x*w -> S.s<j> }
node S<i> { in @(+) s[M+1]; if i>0: -> B.s; if i==0: -> B.s }
node B<i> { in s; b: bool = s > 0; y = b*s + 1; y -> Y }
"""
"""A text with a mistake: its proof and refutation load the modules that most texts need."""


def load(file: str, text: str) -> tuple[ProgramOp | None, list[Diagnostic]]:
    """The program of a text, or its errors of text, names and types, each with a position."""
    try:
        return program_of(load_text(text, file)), []
    except UplError as e:
        return None, [d if d.span else replace(d, span=Span(file, 1, 1)) for d in e.diagnostics]
    except RecursionError:
        return None, [Diagnostic("UPL1009", "the input is nested too deeply", Span(file, 1, 1))]


def answers(number: int, document: str, file: str, text: str) -> Iterator[Answer]:
    """Prove, and tell what is known as soon as it is.  Raises nothing that a text could cause."""
    program, wrong = load(file, text)
    yield Answer(number, document, wrong, last=program is None)
    if program is None:
        return
    found: list[Diagnostic] = []
    facts: dict[str, Fact] = {}
    try:
        report, sets = proofs(program)
        found = _found(report)
        yield Answer(number, document, [], found)
        if sets is not None:
            add_figures(report, sets)
        facts = _facts(program, report)
    except UplError as e:
        found = list(e.diagnostics)
    except RecursionError:
        pass
    yield Answer(number, document, [], found, facts, last=True)


def _found(report: Report) -> list[Diagnostic]:
    found = report.diagnostics()
    for o in report.obligations:
        if o.status is Status.UNPROVED:
            message = f"unproved: {o.kind.value}, {o.where}: {o.message}"
            found.append(Diagnostic("UPL1300", message, o.span, severity=Severity.REMARK))
    return [replace(d, notes=d.notes[:4]) for d in found]


def _facts(program: ProgramOp, report: Report) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    for name, op in endpoints(program).items():
        formula = domain_of(op)
        domain = None if formula is None else formula.text(domain=True)
        firings, tokens = report.firings.get(name), report.tokens.get(name)
        facts[name] = Fact(domain, None if firings is None else str(firings), None if tokens is None else str(tokens))
    return facts


def main() -> None:
    """Answer until the input ends."""
    for _ in answers(0, "", "", _WARM_UP):
        pass
    gc.collect()
    gc.freeze()
    writing = multiprocessing.Lock()
    running: dict[str, int] = {}
    for line in sys.stdin.buffer:
        task = msgspec.json.decode(line, type=Task)
        if (old := running.pop(task.document, None)) is not None:
            _end(old)
        if task.text is None:
            continue
        child = os.fork()
        if child == 0:
            try:
                gc.set_threshold(_GARBAGE)
                for answer in answers(task.number, task.document, task.file, task.text):
                    _write(msgspec.json.encode(answer) + b"\n", writing)
            finally:
                os._exit(0)
        running[task.document] = child
    for child in running.values():
        _end(child)


def _write(line: bytes, turn: Lock) -> None:
    """Write a whole line, in turn with the other processes: a signal that ends this one waits for it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with turn:
        while line:
            line = line[os.write(1, line) :]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _end(child: int) -> None:
    """End a process, which may have ended by itself: until it is waited for, its number is nobody else's."""
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
