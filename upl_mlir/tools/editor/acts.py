"""What can be done on a picture, each as the smallest edit of the text: layout and comments of the author stay.

An act changes a `Draft`.  It asks the tree of the text as it stands then, so that acts of several edits (a node goes with
the arrows that lead to it) need no arithmetic of positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from upl_mlir.diagnostics import Span, error
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.scope import Role
from upl_mlir.tools.lsp.document import Document
from upl_mlir.tools.lsp.names import Key
from upl_mlir.tools.lsp.rename import CODE, a_name, rename, require_free
from upl_mlir.tools.lsp.text import Edit, Text, extent

Range = tuple[int, int]
"""Offsets in a text: the first character, and the one behind the last."""
Endpoint = ast.HostInput | ast.HostOutput | ast.NodeBlock
_ROLES = {"node": Role.NODE, "input": Role.HOST_INPUT, "output": Role.HOST_OUTPUT}


@dataclass(frozen=True)
class Change:
    """A piece of a text, by offsets, and how many characters have come in its place."""

    start: int
    end: int
    length: int

    def moved(self, place: Range) -> Range:
        """Where a piece of the text is after the change; what was put in front of a piece or in its place belongs to it.

        Of a piece of what was replaced nothing is left: it is empty.
        """
        (start, end), by = place, self.length - (self.end - self.start)
        if self.start <= start < end <= self.end and place != (self.start, self.end):
            return self.start, self.start
        first = start if start <= self.start else start + by if start >= self.end else self.start
        if end > self.start or (start, end) == (self.start, self.end):
            end = end + by if end >= self.end else self.start + self.length
        return first, max(first, end)


@dataclass
class Draft:
    """A text that is being changed, and the changes so far, in order."""

    file: str
    content: str
    changes: list[Change] = field(default_factory=list[Change])

    @cached_property
    def document(self) -> Document:
        """What can be read of the text as it stands."""
        return Document("", self.file, Text(self.content, "utf-32"))

    def replace(self, start: int, end: int, text: str) -> None:
        """Put a text in place of a piece, which is given by offsets."""
        self.changes.append(Change(start, end, len(text)))
        self.content = self.content[:start] + text + self.content[end:]
        self.__dict__.pop("document", None)

    def edit(self, edits: Sequence[Edit]) -> None:
        """Apply edits that do not overlap."""
        text = self.document.text
        for e in sorted(edits, key=lambda e: (e.start, e.end), reverse=True):  # offsets before an edit stay what they are
            self.replace(text.offset(e.start), text.offset(e.end), e.text)

    def range(self, span: Span) -> Range:
        """The offsets of a span."""
        start, end = extent(span)
        return self.document.text.offset(start), self.document.text.offset(end)

    def blocks(self, name: str) -> list[Endpoint]:
        """The blocks of a node, or the declaration of a host port.  Raises UplError (UPL1811) where there is none."""
        shape = self.document.names.shapes.get(name)
        if shape is None:
            raise error(CODE, f"there is no node or host port `{name}`")
        return list(shape.items)

    def arrow(self, start: int) -> tuple[str, ast.Arrow]:
        """The arrow that begins at an offset, with the name of its source.  Raises UplError (UPL1811)."""
        for source, arrow in self.document.names.arrows():
            if self.range(arrow.span)[0] == start:
                return source, arrow
        raise error(CODE, "this arrow is not in the text any more")

    def arrows(self, source: str) -> list[ast.Arrow]:
        """The arrows of a node or host input, in text order."""
        return [arrow for name, arrow in self.document.names.arrows() if name == source]

    def line_end(self, at: int) -> int:
        """The end of the first line, from an offset on, that is in no comment of several lines."""
        ranges = [self.range(c.span) for c in self.document.read.program.comments]
        while True:
            end = self.content.find("\n", at)
            end = len(self.content) if end < 0 else end
            over = next((stop for start, stop in ranges if start < end < stop), None)
            if over is None:
                return end - 1 if self.content[end - 1 : end] == "\r" and end < len(self.content) else end
            at = over

    @property
    def newline(self) -> str:
        """How the lines of the text end."""
        return "\r\n" if "\r\n" in self.content else "\n"

    def indentation(self, at: int) -> str:
        """The blanks at the beginning of the line of an offset."""
        line = self.content[self.content.rfind("\n", 0, at) + 1 : at]
        return line[: len(line) - len(line.lstrip())]


# --------------------------------------------------------------------------------------------------------------- adding


def add(
    draft: Draft, kind: str, name: str, *, fields: str = "", inputs: str = "", domain: str = "", after: str | None = None
) -> None:
    """Declare a node, host input or host output (`kind`) on a line of its own, behind the one named `after`.

    `fields`, `inputs` and `domain` are as in the text: `i,j`, `a, @(+) s[n]`, `0<=i<n`.  Raises UplError (UPL1811) for a
    name that is none or is taken.
    """
    name = a_name(name)
    require_free(draft.document.names, "", name, _ROLES[kind])
    head = f"{kind} {name}" + (f"<{fields.strip()}>" if fields.strip() else "")
    head += f" in {domain.strip()}" if domain.strip() else ""
    listed = f"in {inputs.strip()} " if inputs.strip() else ""
    body = {"node": f" {{ {listed}}}", "input": " { }", "output": ""}[kind]
    at = draft.line_end(_behind(draft, kind, after))
    newline = draft.newline
    begins = draft.content[:at].endswith("\n") or not draft.content  # at the end of a text that ends with a newline
    draft.replace(at, at, f"{head}{body}{newline}" if begins else f"{newline}{head}{body}")


def _behind(draft: Draft, kind: str, after: str | None) -> int:
    """Where the item ends behind which a new one of a kind goes: one by name, else the last of its kind, else the last."""
    if after is not None:
        item = draft.blocks(after)[-1]
        if type(item) is {"node": ast.NodeBlock, "input": ast.HostInput, "output": ast.HostOutput}[kind]:
            return draft.range(item.span)[1]
    items = draft.document.read.program.items
    kinds = (ast.NodeBlock,) if kind == "node" else (ast.HostInput, ast.HostOutput)
    found = [i for i in items if isinstance(i, kinds)] or [i for i in items if not isinstance(i, ast.Adjoint)]
    if kind != "node" and not any(isinstance(i, kinds) for i in items):  # host ports stand above nodes
        found = [i for i in found if not isinstance(i, ast.NodeBlock)]
    if found:
        return draft.range(found[-1].span)[1]
    title = draft.document.read.program.name
    return draft.range(title.span)[1] if title is not None else len(draft.content)


def draw(draft: Draft, source: str, target: str, port: str | None) -> int:
    """Add an arrow to the last block of its source, as short as its meaning allows; returns the offset where it begins.

    Index and value are left out where names give them (docs/language.md 3.5).  Raises UplError (UPL1811) where no arrow can
    go from or to.
    """
    block, goal = draft.blocks(source)[-1], draft.blocks(target)[-1]
    if isinstance(block, ast.HostOutput):
        raise error(CODE, f"no arrow leaves `{source}`: it is a host output")
    if isinstance(goal, ast.HostInput):
        raise error(CODE, f"no arrow leads to `{target}`: it is a host input")
    name = target if port is None or isinstance(goal, ast.HostOutput) else f"{target}.{port}"
    at = _insert(draft, block, f"-> {name}")
    _, arrow = draft.arrow(at)
    left, names = draft.document.omitted(source, arrow), draft.document.names
    own = set(names.shapes[source].fields)
    if left.index and not own.issuperset(left.index):  # a reader should see which fields are `*`
        end = draft.range(arrow.target.span)[1]
        draft.replace(end, end, f"<{','.join(left.index)}>")
    if left.value is None and isinstance(block, ast.NodeBlock) and names.shapes[source].inputs:
        draft.replace(at, at, f"{next(iter(names.shapes[source].inputs))} ")
    return at


def _insert(draft: Draft, block: ast.HostInput | ast.NodeBlock, arrow: str) -> int:
    """Write an arrow at the end of a block; returns the offset where it begins."""
    _, end = draft.range(block.span)
    statements = block.body if isinstance(block, ast.NodeBlock) else block.arrows
    content = draft.content
    if not statements:
        if content[end - 1] != "}":
            draft.replace(end, end, f" {{ {arrow} }}")  # a host input without arrows
            return end + 3
        gap = "" if content[end - 2].isspace() else " "
        draft.replace(end - 1, end - 1, f"{gap}{arrow} ")
        return end - 1 + len(gap)
    last = statements[-1]
    begin, at = draft.range(last.span)
    line = draft.line_end(at)
    if line >= end:  # the brace is on the line of the last statement
        separator = " " if isinstance(last, ast.Bare) else "; "
        draft.replace(at, at, f"{separator}{arrow}")
        return at + len(separator)
    before = draft.newline + (draft.indentation(begin) or "  ")
    draft.replace(line, line, before + arrow)
    return line + len(before)


# ----------------------------------------------------------------------------------------------- changing and deleting


def rewrite(draft: Draft, span: Span, text: str) -> None:
    """Put a text in place of an arrow or a block."""
    draft.replace(*draft.range(span), text.strip().replace("\r\n", "\n").replace("\n", draft.newline))


def rename_to(draft: Draft, key: Key, new: str) -> None:
    """Give a name another one everywhere.  Raises UplError (UPL1811)."""
    d = draft.document
    if key not in d.names.declared:
        raise error(CODE, f"there is no name `{key[1]}`" + (f" in `{key[0]}`" if key[0] else ""))
    draft.edit(rename(d.text, d.file, d.names, key, new))


def delete(draft: Draft, name: str) -> None:
    """Delete a node or host port, with the arrows that lead to it.  Comments around it stay."""
    draft.blocks(name)
    while True:
        found = next(((s, a) for s, a in draft.document.names.sources_of(name) if s != name), None)
        if found is None:
            break
        delete_arrow(draft, draft.range(found[1].span)[0])
    for item in reversed(draft.blocks(name)):
        _cut(draft, *draft.range(item.span))


def delete_arrow(draft: Draft, start: int) -> None:
    """Delete the arrow that begins at an offset, and the semicolon that it does not need any more."""
    source, arrow = draft.arrow(start)
    start, end = draft.range(arrow.span)
    content = draft.content
    behind = _over_blanks(content, end)
    if content[behind : behind + 1] == ";":
        _cut(draft, start, behind + 1)
        return
    before = start
    while before and content[before - 1] in " \t":
        before -= 1
    bare = any(
        isinstance(s, ast.Bare) and draft.range(s.span)[1] == before
        for b in draft.blocks(source) if isinstance(b, ast.NodeBlock) for s in b.body
    )  # fmt: skip
    if content[before - 1 : before] == ";" and not bare:
        draft.replace(before - 1, end, "")
    else:
        _cut(draft, start, end)


def _cut(draft: Draft, start: int, end: int) -> None:
    """Delete a piece of text: with its line if nothing else is on it, else with the blanks on one side."""
    content = draft.content
    first, behind = content.rfind("\n", 0, start) + 1, _over_blanks(content, end)
    rest = content[behind : behind + 2]
    if not content[first:start].strip() and (not rest or rest[0] == "\n" or rest == "\r\n"):
        draft.replace(first, min(len(content), behind + (2 if rest == "\r\n" else 1)), "")
        return
    while (not rest or rest[0] in "\r\n") and start > first and content[start - 1] in " \t":  # no blanks at a line's end
        start -= 1
    draft.replace(start, behind, "")


def _over_blanks(content: str, at: int) -> int:
    while content[at : at + 1] in (" ", "\t"):
        at += 1
    return at


def type_text(draft: Draft, new: str) -> None:
    """The text as a browser gives it, whose lines all end in `\\n`: lines that are the same keep their ends."""
    old = draft.content.split("\n")
    plain = [line.removesuffix("\r") for line in old]
    lines = new.replace("\r\n", "\n").split("\n")
    same = 0
    while same < min(len(plain), len(lines)) and plain[same] == lines[same]:
        same += 1
    tail = 0
    while tail < min(len(plain), len(lines)) - same and plain[-1 - tail] == lines[-1 - tail]:
        tail += 1
    ending = "\r" if draft.newline == "\r\n" else ""
    middle = [line + ending for line in lines[same : len(lines) - tail]]
    if middle and not tail:
        middle[-1] = middle[-1].removesuffix("\r")  # the last line of the text has no end
    become(draft, "\n".join([*old[:same], *middle, *old[len(old) - tail :]]))


def become(draft: Draft, content: str) -> None:
    """Another text, as one change of what lies between what both begin and end with."""
    old = draft.content
    most, start = min(len(old), len(content)), 0
    while start < most and old[start] == content[start]:
        start += 1
    tail = 0
    while tail < most - start and old[-1 - tail] == content[-1 - tail]:
        tail += 1
    if old != content:
        draft.replace(start, len(old) - tail, content[start : len(content) - tail])
