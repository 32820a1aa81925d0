"""Diagnostics: the one way in which this package fails on user input.

Every error that a user can cause is a `Diagnostic` (code, message, position, notes, suggestion) carried by a
`UplError`.  Tools render it as ``file:line:col: error[UPL1234]: message`` with the source line and a caret, and exit
with status 1.  A Python exception of any other class that reaches the user is a defect of this package.

Codes are grouped by stage:

| codes   | stage                                              |
|---------|----------------------------------------------------|
| UPL10xx | reading files and text: encoding, syntax           |
| UPL11xx | names, types and structure of a program            |
| UPL12xx | domains: inference and representation              |
| UPL13xx | proof obligations refuted by `check`               |
| UPL14xx | differentiation                                    |
| UPL15xx | data handed in by the caller: arrays, parameters   |
| UPL16xx | running: stranded, duplicate or missing tokens     |
| UPL17xx | hardware: what does not fit, machine errors        |
| UPL18xx | the command line and pipelines                     |
| UPL19xx | front ends other than the text form                |
| UPL20xx | circuits: what has none yet, texts that contradict |
"""

from __future__ import annotations

import difflib
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path


class Severity(Enum):
    """How bad a diagnostic is; only `ERROR` makes a tool exit with status 1."""

    ERROR = "error"
    WARNING = "warning"
    REMARK = "remark"


@dataclass(frozen=True)
class Span:
    """A range of source text; lines and columns count from 1, the end column is exclusive.

    `line == 0` means that only the file is known.
    """

    file: str
    line: int
    col: int
    end_line: int = 0
    end_col: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}" if self.line else self.file


@dataclass(frozen=True)
class Note:
    """An additional remark attached to a diagnostic, with its own position if it has one."""

    message: str
    span: Span | None = None


@dataclass(frozen=True)
class Diagnostic:
    """One message to the user.

    `code` is ``UPL`` and four digits; `help` is a suggestion of what to write instead.
    """

    code: str
    message: str
    span: Span | None = None
    notes: tuple[Note, ...] = ()
    help: str | None = None
    severity: Severity = Severity.ERROR

    def head(self) -> str:
        """The first line: ``file:line:col: error[UPL1234]: message``."""
        where = f"{self.span}: " if self.span else ""
        return f"{where}{self.severity.value}[{self.code}]: {self.message}"

    def render(self, sources: Sources | None = None) -> str:
        """The whole text: head, source line with caret, notes, suggestion."""
        lines = [self.head()]
        lines += _excerpt(self.span, sources)
        for note in self.notes:
            where = f"{note.span}: " if note.span else "  "
            lines.append(f"{where}note: {note.message}")
            lines += _excerpt(note.span, sources)
        if self.help:
            lines.append(f"  help: {self.help}")
        return "\n".join(lines)


@dataclass
class Sources:
    """The texts that positions refer to, by file name, so that a diagnostic can show its line."""

    texts: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, file: str, text: str) -> None:
        """Remember `text` as the contents of `file`."""
        self.texts[file] = text

    def line(self, file: str, line: int) -> str | None:
        """The given line of the file without its newline, or None if it is not known."""
        text = self.texts.get(file)
        if text is None:
            return None
        lines = text.split("\n")
        return lines[line - 1].rstrip("\r") if 1 <= line <= len(lines) else None


class UplError(Exception):
    """Base of every error raised on user input; `.diagnostics` has at least one element.

    `str()` gives the full rendering, with source lines where `sources` knows them.
    """

    def __init__(self, *diagnostics: Diagnostic, sources: Sources | None = None):
        super().__init__(*diagnostics)
        self.diagnostics: tuple[Diagnostic, ...] = diagnostics
        self.sources: Sources = sources or Sources()

    def __str__(self) -> str:
        return "\n".join(d.render(self.sources) for d in self.diagnostics)

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback, which says nothing to who wrote the program."""
        return str(self).split("\n")


def error(
    code: str, message: str, span: Span | None = None, *, notes: Iterable[Note | str] = (), help: str | None = None
) -> UplError:
    """Build the `UplError` for one diagnostic; the caller raises it."""
    fixed = tuple(n if isinstance(n, Note) else Note(n) for n in notes)
    return UplError(Diagnostic(code, message, span, fixed, help))


def not_installed(what: str, package: str, extra: str, instead: str = "") -> UplError:
    """The error UPL1804: what needs a Python package that is not installed; the caller raises it."""
    help_ = f"pip install 'upl-mlir[{extra}]'{f', or {instead}' if instead else ''}"
    return error("UPL1804", f"{what} the Python package `{package}`, which is not installed", help=help_)


@contextmanager
def placed(span: Span | None) -> Generator[None]:
    """Errors from inside the block that have no position get this one."""
    try:
        yield
    except UplError as e:
        if span is None or all(d.span for d in e.diagnostics):
            raise
        raise UplError(*(d if d.span else replace(d, span=span) for d in e.diagnostics), sources=e.sources) from None


def did_you_mean(found: str, candidates: Iterable[str]) -> str | None:
    """A suggestion `did you mean "…"?` if one of the candidates is close to what was found, else None."""
    close: Sequence[str] = difflib.get_close_matches(found, list(candidates), n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else None


def nearest_or_all(found: str, candidates: Iterable[str]) -> str | None:
    """The suggestion of `did_you_mean`; where no candidate is close, which there are: "one of `A`, `B`"."""
    names = [*candidates]
    listed = ", ".join(f"`{n}`" for n in names[:_LISTED]) + (", …" if len(names) > _LISTED else "")
    return did_you_mean(found, names) or (f"{'one of' if len(names) > 1 else 'there is only'} {listed}" if names else None)


_LISTED = 12
"""Names in a list, so that it fits about one line; chosen, not measured."""


# -- files -------------------------------------------------------------------------------------------------------------
def read_bytes(path: str | Path, code: str = "UPL1001") -> bytes:
    """The contents of a file that a user has named.  Raises UplError if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as e:
        raise unreadable(path, e, code) from None


def unreadable(path: str | Path, why: OSError | ValueError, code: str = "UPL1001") -> UplError:
    """The error for a file that cannot be read, from what the operating system said; the caller raises it."""
    match why:
        case FileNotFoundError():
            message = "there is no such file"
        case IsADirectoryError():
            message = "this is a directory, not a file"
        case OSError():
            message = f"cannot read this file: {why.strerror or why}"
        case ValueError():
            message = "no file can have this name"
    return error(code, message, Span(str(path), 0, 0))


def decode(data: bytes, file: str, code: str = "UPL1001") -> str:
    """The text of a file.  Raises UplError, with the place of the first byte that is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        before = data[: e.start].decode("utf-8").rpartition("\n")
        line, column = before[0].count("\n") + (2 if before[1] else 1), len(before[2]) + 1
        message = f"this is not UTF-8 text: the byte 0x{data[e.start]:02X} cannot stand here"
        span = Span(file, line, column, line, column + 1)
        raise error(code, message, span, help="save it with the encoding UTF-8") from None


def _excerpt(span: Span | None, sources: Sources | None) -> list[str]:
    """The source line of a span and a line with carets under it; empty if the text is not known."""
    if span is None or sources is None or not span.line:
        return []
    line = sources.line(span.file, span.line)
    if line is None or len(line) > 400:
        return []
    shown = line.replace("\t", " ")
    last = span.end_col if span.end_line in (0, span.line) and span.end_col > span.col else span.col + 1
    if span.end_line > span.line:
        last = len(shown) + 1
    width = max(1, min(last, len(shown) + 1) - span.col)
    number = str(span.line)
    return [f" {number} | {shown}", f" {' ' * len(number)} | {' ' * (span.col - 1)}{'^' * width}"]
