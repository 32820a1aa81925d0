"""A text as the server knows it: what can be read at once, and what is found out later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from upl_mlir.diagnostics import Diagnostic, Span
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.scope import Role
from upl_mlir.tools.lsp.fixes import Fix, fixes
from upl_mlir.tools.lsp.names import Declared, Names
from upl_mlir.tools.lsp.omitted import Omitted, omitted
from upl_mlir.tools.lsp.proofs import Fact
from upl_mlir.tools.lsp.text import Place, Text, extent
from upl_mlir.tools.lsp.tolerant import Read, read


@dataclass
class Document:
    """One version of a text.  `meant` are errors of names and types, `proved` what `check` says; None until it is known."""

    uri: str
    file: str
    text: Text
    meant: list[Diagnostic] | None = None
    proved: list[Diagnostic] | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict[str, Fact])

    @cached_property
    def read(self) -> Read:
        """What can be read of the text."""
        return read(self.text.content, self.file)

    @cached_property
    def names(self) -> Names:
        """The names in what can be read."""
        return Names(self.read.program)

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """What is known to be wrong."""
        return [*self.read.errors, *(self.meant or ()), *(self.proved or ())]

    def placed(self, span: Span) -> tuple[Place, Place]:
        """The extent of a position: that of the arrow or of the item's name which begins there, if only a beginning is
        known."""
        if span.end_line:
            return extent(span)
        start = max(1, span.line), max(1, span.col)
        for item in self.read.program.items:
            if (item.span.line, item.span.col) == start:
                return extent(item.span if isinstance(item, ast.Adjoint) else item.name.span)
        for _, arrow in self.names.arrows():
            if (arrow.span.line, arrow.span.col) == start:
                return extent(arrow.span)
        found = self.names.at(start)
        if found is not None:
            return extent(found.span)
        return start, (start[0], max(start[1] + 1, len(self.text.line(start[0])) + 1))

    def fixes(self, wrong: Diagnostic) -> list[Fix]:
        """Edits that do what the help of an error says."""

        def errors(content: str) -> Sequence[Diagnostic]:
            return Document(self.uri, self.file, Text(content)).read.errors or meaning(self.file, content)

        return fixes(self.text, self.names, wrong, errors)

    # -- hover -----------------------------------------------------------------------------------------------------
    def about(self, place: Place) -> tuple[Span, str] | None:
        """What is to be said of the name at a place, as Markdown, and where the name is."""
        found = self.names.at(place)
        declared = self.names.declared.get(found.key) if found else None
        if found is None or declared is None:
            return None
        lines = [f"```upl\n{self._declaration(declared)}\n```"]
        if declared.role in (Role.NODE, Role.HOST_INPUT, Role.HOST_OUTPUT):
            lines += self._endpoint(declared.key[1])
        else:
            owner = declared.key[0].partition("@")[0]
            lines.append(declared.role.value + (f" of `{owner}`" if owner else ""))
            if declared.role is Role.INPUT:
                lines += self._senders(owner, declared.key[1])
        return found.span, "\n\n".join(lines)

    def _declaration(self, d: Declared) -> str:
        """The text that declares a name, on one line."""
        match d.node:
            case ast.NodeBlock() | ast.HostInput() | ast.HostOutput() as item:
                head = self.text.slice(item.span).partition("{")[0]
            case node:
                head = self.text.slice(node.span)
        return " ".join(head.split())

    def _endpoint(self, name: str) -> list[str]:
        shape, fact = self.names.shapes[name], self.facts.get(name)
        out: list[str] = []
        if fact is not None:
            rows = [("domain", fact.domain), ("firings", fact.firings), ("tokens", fact.tokens)]
            out.append("  \n".join(f"{what}: `{value}`" for what, value in rows if value))
        for member in shape.inputs:
            out += self._senders(name, member)
        if shape.role is Role.HOST_OUTPUT:
            out += self._senders(name, None)
        return [line for line in out if line]

    def _senders(self, owner: str, member: str | None) -> list[str]:
        """The arrows that lead to an input or output."""
        lines: list[str] = []
        for source, arrow in self.names.sources_of(owner):
            left = self.omitted(source, arrow)
            to = arrow.target.member.name if arrow.target.member else left.member
            if member is None or to == member:
                text = " ".join(self.text.slice(arrow.span).split())
                lines.append(f"- `{source}`, line {arrow.span.line}: `{text}`")
        name = f"{owner}.{member}" if member else owner
        return [f"`{name}` gets tokens from" + "".join(f"\n{line}" for line in lines)] if lines else [
            f"nothing is sent to `{name}`"
        ]

    # -- hints -----------------------------------------------------------------------------------------------------
    def omitted(self, source: str, arrow: ast.Arrow) -> Omitted:
        """What an arrow leaves out."""
        return omitted(self.names, self.text, source, arrow)

    def hints(self) -> list[tuple[Place, str]]:
        """What arrows leave out, and where it would stand."""
        out: list[tuple[Place, str]] = []
        for source, arrow in self.names.arrows():
            left = self.omitted(source, arrow)
            if left.target:
                out.append((extent(arrow.target.span)[1], left.target))
            if left.value:
                out.append((self._before_arrow(arrow), f"{left.value} "))
        return out

    def _before_arrow(self, arrow: ast.Arrow) -> Place:
        """Where the value of an arrow would stand: before `#`, `##` or `->`."""
        begin = extent(arrow.condition.span)[1] if arrow.condition else extent(arrow.span)[0]
        end = extent(arrow.multiplicity.span)[0] if arrow.multiplicity else extent(arrow.target.span)[0]
        piece = self.text.content[self.text.offset(begin) : self.text.offset(end)]
        marks = [n for n in (piece.find("#"), piece.find("->")) if n >= 0]
        before = piece[: min(marks)] if marks else ""
        line = begin[0] + before.count("\n")
        return line, len(before) - (before.rfind("\n") + 1) + 1 + (0 if "\n" in before else begin[1] - 1)


def meaning(file: str, text: str) -> list[Diagnostic]:
    """The errors of text, names and types; empty for a program."""
    from upl_mlir.tools.lsp.prover import load

    return load(file, text)[1]
