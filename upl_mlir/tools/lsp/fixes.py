"""Edits that do what the `help:` of an error says.

A help is a sentence with pieces of text in backquotes.  Candidates of edits follow from the pieces: in place of what is
wrong, before it, behind it.  An edit is offered if the reader then finds less that is wrong.  What `check` suggests is put
where the sentence means it, and must leave a text that can be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from upl_mlir.diagnostics import Diagnostic, Span
from upl_mlir.frontend.upl_text import ast
from upl_mlir.tools.lsp.names import Names
from upl_mlir.tools.lsp.text import Edit, Text, extent

_PIECE = re.compile(r"`([^`]+)`")
_TEMPLATE = re.compile(r"…|\.\.\.|\b(?:NODE|NAME|VALUE|FILE)\b")
_OUTPUT = re.compile(r"declare it: `output (\w+)`")
_GATHER = re.compile(r"`(?:in )?(@\(\S+\) (\w+)\[[^`]*\])`")
_SUMMANDS = re.compile(r"each summand carries how many there are: #(.+)")


@dataclass(frozen=True)
class Fix:
    """Edits that mend an error, and what they do, in words."""

    title: str
    edits: tuple[Edit, ...]


def fixes(text: Text, names: Names, wrong: Diagnostic, errors: Callable[[str], Sequence[Diagnostic]]) -> list[Fix]:
    """Edits that do what the help of an error says; several where it leaves a choice.

    `errors` says what the reader finds wrong with a text.
    """
    if wrong.help is None or wrong.span is None or not wrong.span.line:
        return []
    proof = wrong.code.startswith(("UPL12", "UPL13"))
    before = [] if proof else list(errors(text.content))
    tried: set[str] = set()
    found: dict[str, Fix] = {}
    for fix in _of_check(text, names, wrong) if proof else _of_reader(text, names, wrong):
        new = text.edited(fix.edits)
        if fix.title in found or new in tried or new == text.content:
            continue
        tried.add(new)
        after = errors(new)
        if not after if proof else _better(before, after, wrong):
            found[fix.title] = fix
    return list(found.values())


def _better(before: Sequence[Diagnostic], after: Sequence[Diagnostic], wrong: Diagnostic) -> bool:
    """Whether an error has gone and none has come before it."""
    if not after or (len(after) < len(before) and len(_unreadable(after)) <= len(_unreadable(before))):
        return not any((d.code, d.message) == (wrong.code, wrong.message) and d.span == wrong.span for d in after)
    read, reads = _unreadable(before), _unreadable(after)
    if not read or len(reads) > len(read) or before[0].span != wrong.span:
        return False  # a text that can be read stays one; else reading has to come further
    first, old = after[0].span, before[0].span
    return not reads or (first is not None and old is not None and first.line > old.line)


def _unreadable(errors: Sequence[Diagnostic]) -> list[Diagnostic]:
    return [e for e in errors if e.code.startswith("UPL10")]


def _pieces(help: str) -> list[str]:
    return [piece for piece in _PIECE.findall(help) if not _TEMPLATE.search(piece)]


def _written(piece: str, edit: Edit) -> Fix:
    return Fix(f"write `{piece}`", (edit,))


def _of_reader(text: Text, names: Names, wrong: Diagnostic) -> Iterator[Fix]:
    """Candidates for an error of text, names or types."""
    assert wrong.help is not None and wrong.span is not None
    start, end = extent(wrong.span)
    if "comma before" in wrong.help:
        comma = text.content.rfind(",", 0, text.offset(start))
        if comma >= 0:
            yield Fix("leave out the comma", (Edit(text.place(comma), text.place(comma + 1), ""),))
    if "remove it" in wrong.help:
        yield Fix("remove it", (Edit(start, end, ""),))
    if m := _OUTPUT.search(wrong.help):
        yield from _declared(text, names, wrong.span, m[1])
    if wrong.code == "UPL1102" and "leave them out" in wrong.help:
        yield from _without_fields(text, names, wrong.span)
    for piece in _pieces(wrong.help):
        for edit in (
            Edit(start, end, piece), Edit(start, (end[0], end[1] + 1), piece), Edit(start, start, piece),
            Edit(start, start, f"{piece} "), Edit(end, end, piece), Edit(text.end, text.end, piece),
        ):  # fmt: skip
            yield _written(piece, edit)


def _declared(text: Text, names: Names, span: Span, output: str) -> Iterator[Fix]:
    """The declaration of an output, with the fields of the arrow that leads to it, behind the last input or output."""
    for source, arrow in names.sources_of(output):
        if arrow.target.port.span == span:
            own = names.shapes[source].fields
            given = own if arrow.index is None else tuple(e.name for e in arrow.index if isinstance(e, ast.Name))
            if arrow.index is not None and len(given) != len(arrow.index):
                given = own[: len(arrow.index)]
            ports = [i for i in names.program.items if not isinstance(i, ast.NodeBlock | ast.Adjoint)]
            place = (extent(ports[-1].span)[1][0] + 1, 1) if ports else (span.line, 1)
            if place[0] > len(text.lines):
                place = text.end
            line = f"output {output}{_bracketed(given)}"
            yield _written(line, Edit(place, place, f"\n{line}" if place == text.end else f"{line}\n"))


def _bracketed(fields: Sequence[str]) -> str:
    return f"<{','.join(fields)}>" if fields else ""


def _without_fields(text: Text, names: Names, span: Span) -> Iterator[Fix]:
    """A later block of a node without its fields."""
    line = text.line(span.line)
    close = line.find(">", span.end_col - 1)
    if close >= 0 and line[span.end_col - 1 : span.end_col] == "<":
        yield Fix("leave out the fields", (Edit((span.line, span.end_col), (span.line, close + 2), ""),))


def _of_check(text: Text, names: Names, wrong: Diagnostic) -> Iterator[Fix]:
    """Candidates for what `check` refutes."""
    assert wrong.help is not None and wrong.span is not None
    start, _ = extent(wrong.span)
    found = next(((s, a) for s, a in names.arrows() if (a.span.line, a.span.col) == start), None)
    if m := _GATHER.search(wrong.help):
        owner = found[1].target.port.name if found else ""
        for name, shape in names.shapes.items():
            decl = shape.inputs.get(m[2])
            if decl is not None and (name == owner or (not found and any(i.span.line == start[0] for i in shape.items))):
                yield _written(m[1], Edit(*extent(decl.span), m[1] + (f": {decl.type.type.value}" if decl.type else "")))
    if found is None:
        return
    _, arrow = found
    if m := _SUMMANDS.search(wrong.help):
        if arrow.multiplicity is not None:
            yield _written(f"#{m[1]}", Edit(*extent(arrow.multiplicity.span), m[1]))
        elif (at := text.content.find("->", text.offset(extent((arrow.value or arrow).span)[0]))) >= 0:
            place = text.place(at)
            yield _written(f"#{m[1]}", Edit(place, place, f"#{m[1]} "))
    for piece in _pieces(wrong.help):
        if piece.startswith("if ") and piece.endswith(":"):
            if arrow.condition is None:
                yield _written(piece, Edit(start, start, f"{piece} "))
            else:
                old = text.slice(arrow.condition.span)
                yield _written(piece, Edit(*extent(arrow.condition.span), f"({old}) && ({piece[3:-1]})"))
