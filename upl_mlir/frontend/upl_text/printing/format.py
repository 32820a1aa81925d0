"""The formatter of `.upl` text: one layout for every program, and nothing of the text lost.

What a person decides stays: the order, the comments, up to one empty line between things, what is left out, how numbers
are written, and whether a block stands on one line (as long as it fits).  All else follows from that:

- one item or statement on a line, statements of a block two columns in, a line that is too long goes on four columns in;
- spaces as `spacing.py` says;
- lines that belong together are aligned: ports and one-line nodes that follow one another, arrows with conditions, and
  comments at the ends of lines (unless a line became too long by that).

The result is read again and compared with the original before anybody gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from upl_mlir.diagnostics import Span, UplError, error
from upl_mlir.frontend.upl_text.ast import HostInput, Node, NodeBlock, Program
from upl_mlir.frontend.upl_text.lexer import tokenize
from upl_mlir.frontend.upl_text.parser import parse_file, parse_text
from upl_mlir.frontend.upl_text.printing.spacing import Piece, Position, begin, comment_text, end, pieces, same_tree

WIDTH = 120
"""The length of a line that code does not exceed if it can be helped."""

INDENT = 2
"""Spaces before what stands in a block."""
CONTINUED = 4
"""Spaces before the rest of a line that is too long."""

_WIDE_CONDITION = 16
"""Conditions whose lengths differ by more than this are not aligned."""


def format_text(text: str, file: str = "<string>") -> str:
    """The text of a program, formatted; `file` is the name its positions get in messages.

    Raises UplError: as `parse_text`; UPL1015 if the result would not be the same program with the same comments.
    """
    return _format(parse_text(text, file), text, file)


def format_file(path: str | Path) -> tuple[str, str]:
    """The text of a file, as it is and formatted.  Raises UplError, as `parse_file` and `format_text`."""
    program, text = parse_file(path)
    return text, _format(program, text, str(path))


def _format(program: Program, text: str, file: str) -> str:
    new = "".join(line.text() + "\n" for line in _aligned(_lines(_Reader(program, text, file).entries)))
    if not _same(program, new, file):
        message = "formatting would change this program; it is left as it is"
        help = "this is a defect of the formatter: please report it with this text"
        raise error("UPL1015", message, Span(file, 0, 0), help=help)
    return new


def _same(program: Program, text: str, file: str) -> bool:
    """Whether a text is the given program with the given comments."""
    try:
        again = parse_text(text, file)
    except UplError:
        return False
    comments = [[comment_text(c) for c in p.comments] for p in (program, again)]
    return comments[0] == comments[1] and same_tree(program, again)


# --- reading: what belongs together ----------------------------------------------------------------------------------


@dataclass
class _Entry:
    """Something with lines of its own: a comment, a statement, or an item with or without a block.

    `pieces` are the comment, the statement, or the item up to its `{`; `tail` are the comments at the end.
    """

    pieces: list[Piece]
    blank: bool
    comment: bool = False
    tail: list[Piece] = field(default_factory=list[Piece])
    open: Piece | None = None
    open_tail: list[Piece] = field(default_factory=list[Piece])
    block: list[_Entry] = field(default_factory=list["_Entry"])
    close: Piece | None = None

    @property
    def one_line(self) -> bool:
        """Whether the block was written on one line."""
        return self.open is not None and self.close is not None and self.open.start[0] == self.close.start[0]


class _Reader:
    """Gives every token and comment its place."""

    def __init__(self, program: Program, text: str, file: str) -> None:
        self.entries: list[_Entry] = []
        self._into = self.entries
        self._elements = _open_braces_early(pieces(program, tokenize(text, file)[0], text))
        self._next_token = _next_tokens(self._elements)
        self._ends = _units(program)
        self._program_end = end(program.name.span) if program.name else (0, 0)
        self._pending: list[int] = []  # comments that may stand before something on its line
        self._tail: list[Piece] | None = None  # takes comments that follow on the same line
        at = 0
        while at < len(self._elements):
            at = self._step(at)
        self._flush(len(self._pending))

    def _step(self, at: int) -> int:
        """Put the next element, or a whole unit, where it belongs; returns what comes after it."""
        piece = self._elements[at]
        if piece.token is None:
            if self._tail is not None and self._trails(at):
                self._tail.append(piece)
            else:
                self._tail = None
                self._pending.append(at)
        elif piece.is_("{"):
            entry = self._into[-1]
            entry.open = piece
            self._into, self._tail = entry.block, entry.open_tail
        elif piece.is_("}"):
            self._flush(len(self._pending))
            entry = self.entries[-1]
            entry.close = piece
            self._into, self._tail = self.entries, entry.tail
        elif not piece.is_(";"):
            return self._unit(at)
        return at + 1

    def _unit(self, at: int) -> int:
        """A statement, or an item up to its `{`, with comments that stand before it on its line."""
        first, stop = self._elements[at], at
        last = self._program_end if first.is_("program") else self._ends[first.start]
        while stop < len(self._elements) and self._elements[stop].start < last and not self._elements[stop].is_("{"):
            stop += 1
        keep = len(self._pending)
        while keep and self._elements[self._pending[keep - 1]].start[0] == first.start[0]:
            keep -= 1
        parts = [*(self._elements[i] for i in self._pending[keep:]), *self._elements[at:stop]]
        self._flush(keep)
        entry = _Entry(parts, parts[0].blank)
        self._into.append(entry)
        self._tail = entry.tail
        return stop

    def _trails(self, at: int) -> bool:
        """Whether a comment follows on the same line as code, and no code follows on that line."""
        piece = self._elements[at]
        before = at - 1
        while self._elements[before].is_(";"):
            before -= 1
        if self._elements[before].end[0] != piece.start[0]:
            return False
        after = self._next_token[at]
        if after is None or after.start[0] > piece.start[0] or after.is_(";"):
            return True
        return after.is_("}") and bool(self._into)

    def _flush(self, count: int) -> None:
        """Give lines of their own to the first `count` comments that wait, and forget the others."""
        comments, self._pending = self._pending[:count], []
        previous: Piece | None = None
        for at in comments:
            piece = self._elements[at]
            if previous is not None and piece.start[0] == previous.end[0]:
                self._into[-1].pieces.append(piece)
            else:
                self._into.append(_Entry([piece], piece.blank, comment=True))
            previous = piece


def _units(program: Program) -> dict[Position, Position]:
    """Where each statement and item begins and ends."""
    out: dict[Position, Position] = {}
    for item in program.items:
        inner: Sequence[Node] = ()
        if isinstance(item, NodeBlock):
            inner = item.body
        elif isinstance(item, HostInput):
            inner = item.arrows
        out |= {begin(part.span): end(part.span) for part in (item, *inner)}
    return out


def _next_tokens(elements: Sequence[Piece]) -> list[Piece | None]:
    """For each element the first token after it."""
    out: list[Piece | None] = [None] * len(elements)
    for i in range(len(elements) - 1, 0, -1):
        out[i - 1] = elements[i] if elements[i].token is not None else out[i]
    return out


def _open_braces_early(elements: Sequence[Piece]) -> list[Piece]:
    """The elements, with each `{` that stands on a line after a comment put before the comments there."""
    out: list[Piece] = []
    for piece in elements:
        at = len(out)
        if piece.is_("{") and out[-1].token is None and out[-1].start[0] < piece.start[0]:
            while out[at - 1].token is None:
                at -= 1
            where = out[at - 1].end
            piece = replace(piece, start=where, end=where, hard=False)
        out.insert(at, piece)
    return out


# --- writing: lines --------------------------------------------------------------------------------------------------


@dataclass
class _Line:
    """A line: code, or a comment of its own, and the comment at its end.

    Lines that follow one another and have cells of one kind are aligned; a cell may be missing, None.
    """

    indent: int
    code: str
    tail: str = ""
    blank: bool = False
    kind: str = ""
    cells: tuple[str | None, ...] = ()
    gap: int = 2

    @property
    def width(self) -> int:
        """The length without the comment at the end; that of the last line of several."""
        return self.indent + len(self.code) if "\n" not in self.code else len(self.code) - self.code.rindex("\n") - 1

    def text(self) -> str:
        """The line as it is written, after an empty one if there is one."""
        tail = " " * self.gap + self.tail if self.tail else ""
        return ("\n" if self.blank else "") + " " * self.indent + self.code + tail


def _join(parts: Iterable[Piece]) -> str:
    """Pieces on one line."""
    return "".join((" " if piece.space and i else "") + piece.text for i, piece in enumerate(parts))


def _breaks(parts: Sequence[Piece]) -> bool:
    """Whether a comment forces a line break between pieces."""
    return any(piece.hard for piece in parts[1:])


def _lines(entries: Sequence[_Entry], indent: int = 0) -> list[_Line]:
    """The lines of entries, not yet aligned."""
    out: list[_Line] = []
    for i, entry in enumerate(entries):
        lines = _entry_lines(entry, indent)
        lines[0].blank = entry.blank and i > 0
        out += lines
    return out


def _entry_lines(entry: _Entry, indent: int) -> list[_Line]:
    if entry.comment:
        return [_Line(indent, _join(entry.pieces))]
    if entry.open is None or entry.close is None:
        lines = _broken([*entry.pieces, *entry.tail], indent)
        if len(lines) == 1:
            lines[0].kind, lines[0].cells = _cells(entry.pieces, None)
        return lines
    block = _block_on_one_line(entry)
    if block is not None and indent + len(_join(entry.pieces)) + 1 + len(block) <= WIDTH:
        line = _Line(indent, f"{_join(entry.pieces)} {block}", _join(entry.tail))
        line.kind, line.cells = _cells(entry.pieces, block)
        return [line]
    head = _broken([*entry.pieces, entry.open, *entry.open_tail], indent)
    return [*head, *_lines(entry.block, indent + INDENT), _Line(indent, "}", _join(entry.tail))]


def _block_on_one_line(entry: _Entry) -> str | None:
    """The block of an item if it is to stand on one line, and can."""
    empty = not entry.block and not entry.open_tail
    if not (entry.one_line or empty) or entry.open_tail or _breaks(entry.pieces):
        return None
    if any(_breaks(e.pieces) or (e.comment and len(entry.block) > 1) for e in entry.block):
        return None
    texts = [_join([*e.pieces, *e.tail]) for e in entry.block]
    ended = [text if e.pieces[-1].is_(";") else f"{text};" for text, e in zip(texts, entry.block, strict=True)]
    inner = " ".join([*ended[:-1], *texts[-1:]])
    return f"{{ {inner} }}" if inner else "{ }"


def _cells(parts: Sequence[Piece], block: str | None) -> tuple[str, tuple[str | None, ...]]:
    """The kind and cells of an item or statement that stands on one line, by which it is aligned."""
    first = parts[0]
    if first.is_("if"):
        colon = next((i + 1 for i, p in enumerate(parts) if p.is_(":") and not p.space), len(parts))
        return ("if", (_join(parts[:colon]), _join(parts[colon:]))) if colon < len(parts) else ("", ())
    if first.is_("input", "output", "node"):
        domain = next((i for i, p in enumerate(parts) if p.is_("in")), len(parts))
        kind = "node" if first.is_("node") else "port"
        return kind, (first.text, _join(parts[1:domain]), _join(parts[domain:]) or None, block)
    return "", ()


def _broken(parts: Sequence[Piece], indent: int) -> list[_Line]:
    """The lines of a statement or of the head of an item: broken after comments, and where it is too long."""
    out: list[_Line] = []
    start = 0
    for stop in range(1, len(parts) + 1):
        if stop < len(parts) and not parts[stop].hard:
            continue
        code = stop
        while code > start and parts[code - 1].token is None:
            code -= 1
        code = code if code > start else stop  # only comments
        while start < code:
            here = indent + CONTINUED if out else indent
            cut = _cut(parts, start, code, here)
            out.append(_Line(here, _join(parts[start:cut])))
            start = cut
        out[-1].tail = _join(parts[code:stop])
        start = stop
    return out


def _cut(parts: Sequence[Piece], start: int, stop: int, indent: int) -> int:
    """Where the line that begins with piece `start` ends."""
    width = indent + len(parts[start].text)
    choices: list[tuple[bool, int, int]] = []
    for i in range(start + 1, stop):
        piece = parts[i]
        if piece.soft is not None:
            early = width < (indent + WIDTH) // 2
            choices.append((early, 0 if early and piece.soft < 90 else piece.soft, -i))
        width += piece.space + len(piece.text)
        if width > WIDTH and choices:
            return -min(choices)[2]
    return stop


# --- aligning --------------------------------------------------------------------------------------------------------


def _aligned(lines: list[_Line]) -> list[_Line]:
    """The lines, with cells and the comments at their ends aligned."""
    for run in _runs(lines, lambda line: (line.kind, line.indent) if line.kind else None):
        _align_cells(run)
    for run in _runs(lines, lambda line: "tail" if line.tail and "\n" not in line.code else None):
        _align_tails(run)
    return lines


def _runs(lines: Iterable[_Line], key: Callable[[_Line], object]) -> list[list[_Line]]:
    """Runs of lines, without empty ones in between, that have the same key; None joins nothing."""
    out: list[list[_Line]] = []
    last: object = None
    for line in lines:
        this = key(line)
        if this is not None and this == last and not line.blank:
            out[-1].append(line)
        elif this is not None:
            out.append([line])
        last = this
    return [run for run in out if len(run) > 1]


def _align_cells(run: Sequence[_Line]) -> None:
    firsts = [len(line.cells[0] or "") for line in run]
    if run[0].kind == "if" and max(firsts) - min(firsts) > _WIDE_CONDITION:
        return
    texts = [""] * len(run)
    for column in range(len(run[0].cells)):
        having = [i for i, line in enumerate(run) if line.cells[column] is not None]
        at = max((len(texts[i]) + 1 for i in having), default=0) if column else 0
        for i in having:
            texts[i] = texts[i].ljust(at) + (run[i].cells[column] or "")
    if run[0].indent + max(map(len, texts)) <= WIDTH:
        for line, text in zip(run, texts, strict=True):
            line.code = text


def _align_tails(run: Sequence[_Line]) -> None:
    at = max(line.width for line in run) + 2
    if all(at + len(line.tail) <= WIDTH or line.width + 2 + len(line.tail) > WIDTH for line in run):
        for line in run:
            line.gap = at - line.width
