"""Where in the user's Python text something happens: positions of statements and errors of the front end."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from pathlib import Path
from types import FrameType

import numpy as np

from upl_mlir.diagnostics import Diagnostic, Note, Sources, Span, UplError
from upl_mlir.frontend.upl_text.fold import ARITY
from upl_mlir.frontend.upl_text.lexer import RESERVED

# what stands between the user's text and an operation: this front end, the library of layers on it, numpy
_OWN = (str(Path(__file__).parent), str(Path(__file__).parents[2] / "nn"), str(Path(np.__file__).parent))
_ASSIGNS = re.compile(r"\s*([^\W\d]\w*)\s*(?::[^=]*)?[-+*/@]{0,2}=(?!=)")
_WHILE = re.compile(r"\s*while\b")
# names that an expression of UPL gives a meaning of its own
_CALLS = frozenset({*ARITY, "one"})


_placed: ContextVar[Span | None] = ContextVar("placed", default=None)


@contextmanager
def placed(span: Span | None) -> Generator[None]:
    """What is computed in this context comes from a place that is known otherwise: from a line that was traced before."""
    token = _placed.set(span or _placed.get())
    try:
        yield
    finally:
        _placed.reset(token)


def here() -> Span | None:
    """The place in the user's text that is being executed: the innermost frame outside `_OWN`."""
    if (span := _placed.get()) is not None:
        return span
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith((*_OWN, "<__array_function__")):
        frame = frame.f_back
    return None if frame is None else _span(frame)


def _span(frame: FrameType) -> Span:
    code = frame.f_code
    found = next(islice(code.co_positions(), frame.f_lasti // 2, None), (None, None, None, None))
    line, last, start, end = found
    if line is None or start is None:
        return Span(code.co_filename, frame.f_lineno, 1)
    return Span(code.co_filename, line, start + 1, last or line, (end or start) + 1)


def assigned_name(span: Span | None) -> str | None:
    """The variable that the statement at a position assigns, where that can serve as a name in UPL."""
    found = _ASSIGNS.match(linecache.getline(span.file, span.line)) if span else None
    name = found[1] if found else None
    return name if name and name not in RESERVED and name not in _CALLS else None


def asks_for_rounds(span: Span | None) -> bool:
    """Whether the statement at a position is a `while` loop."""
    return bool(span and _WHILE.match(linecache.getline(span.file, span.line)))


def usable(name: str) -> str:
    """A name of letters, digits and `_` that UPL has no meaning for."""
    stem = re.sub(r"\W+", "_", name).strip("_") or "x"
    stem = f"x{stem}" if stem[0].isdigit() else stem
    return f"{stem}_" if stem in RESERVED or stem in _CALLS else stem


def sources_of(*files: str) -> Sources:
    """The texts of Python files, so that errors can show their lines."""
    return Sources({f: "".join(linecache.getlines(f)) for f in files if linecache.getlines(f)})


def fail(code: str, message: str, span: Span | None = None, *, notes: tuple[Note, ...] = (), help: str) -> UplError:
    """The error at a position, by default the one that is being executed; the caller raises it."""
    span = span or here()
    files = {s.file for s in (span, *(n.span for n in notes)) if s is not None}
    return UplError(Diagnostic(code, message, span, notes, help), sources=sources_of(*files))
