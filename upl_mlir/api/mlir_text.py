"""Reading MLIR text behind a guard: what xDSL's parser would choke on is refused with its position.

Its parser takes integers and types of any size at their word, recurses with the nesting of the text, searches for the
ends of open strings in exponential time, and lets Python's own exceptions out.  Here everything that is wrong with a text
is a UplError, and nothing is built that does not fit.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from functools import cached_property

from xdsl.context import Context
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, ModuleOp, StringAttr, UnknownLoc
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.utils.exceptions import DiagnosticException, ParseError

from upl_mlir.diagnostics import Diagnostic, Sources, Span, UplError
from upl_mlir.pipeline import parse_error

MAX_DIGITS = 40
"""Of a number: 128 bits have 39."""
MAX_WIDTH = 2**24 - 1
"""Bits of an integer type: MLIR's own limit."""
MAX_ELEMENTS = 1 << 22
"""Of a shaped type in a text that has dense literals: a splat is spread over all of them."""

_TOKEN = re.compile(
    r'"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*"|(?P<quote>")|//[^\n]*|(?P<open>[({\[])|(?P<close>[)}\]])'
    r"|(?<![\w.%^@!#$])(?:s|u)?i(?P<width>\d{8,})\b|(?<![\w.%^@!#$x])(?P<shape>\d+x(?:\d+x)*)|(?<![\w%^@!#$])(?P<digits>\d{41,})"
)


class LocatingParser(Parser):
    """xDSL's parser, which leaves the location of parsed operations open: here each gets its file, line and column."""

    failed_at: int | None = None
    """Where the innermost operation begins that could not be made."""

    @cached_property
    def _newlines(self) -> list[int]:
        return [m.start() for m in re.finditer("\n", self.lexer.input.content)]

    def parse_operation(self) -> Operation:
        """Parse one operation and note where it began."""
        start = self.pos
        try:
            op = super().parse_operation()
        except Exception:
            self.failed_at = start if self.failed_at is None else self.failed_at
            raise
        for value in (*op.results, *(a for r in op.regions for b in r.blocks for a in b.args)):
            if value.name_hint == "":  # xDSL's parser makes it of `%_7`, and no copy of it can be made
                value.name_hint = None
        if isinstance(op.location, UnknownLoc):
            before = bisect_left(self._newlines, start)
            column = start - (self._newlines[before - 1] if before else -1)
            file = StringAttr(self.lexer.input.name)
            op.location = FileLineColLoc(file, IntAttr(before + 1), IntAttr(column))
        return op


def read_module(text: str, name: str, ctx: Context, *, implicit_module: bool = True) -> ModuleOp:
    """The module of an MLIR text.  `name` is the file, for positions.  Raises UplError (UPL1002, UPL1009, UPL1100)."""
    deepest = _scan(text, name)
    reader: LocatingParser | None = None
    try:
        reader = LocatingParser(ctx, text, name)  # reads the first token already
        return reader.parse_module(implicit_module)
    except ParseError as e:
        raise parse_error(e) from None
    except RecursionError:
        raise _at(text, name, deepest, "UPL1009", "the input is nested too deeply; this is its deepest place") from None
    except (UplError, MemoryError):
        raise
    except Exception as e:
        what = (str(e).strip().splitlines() or [""])[0]
        if reader is not None and reader.failed_at is not None and isinstance(e, DiagnosticException):
            raise _at(text, name, reader.failed_at, "UPL1100", what) from None  # what an operation says while it is made
        at = min(reader.pos, len(text)) if reader is not None else 0
        message = f"xDSL's parser fails here: {type(e).__name__}: {what[:200]}"
        raise _at(text, name, at, "UPL1002", message) from e


def _scan(text: str, name: str) -> int:
    """Refuse what is too large; returns where the text is nested deepest."""
    dense = "dense<" in text
    depth = most = where = 0
    for m in _TOKEN.finditer(text):
        match m.lastgroup:
            case "open":
                depth += 1
                if depth > most:
                    most, where = depth, m.start()
            case "close":
                depth -= 1
            case "quote":  # the parser's pattern for strings takes time that doubles with each character of such a one
                message = "a string that is not closed on its line, or has an escape that there is not"
                raise _at(text, name, m.start(), "UPL1002", message)
            case "width" if len(m["width"]) > 20 or int(m["width"]) > MAX_WIDTH:
                message = f"an integer type is at most {MAX_WIDTH} bits wide"
                raise _at(text, name, m.start(), "UPL1002", message)
            case "digits":
                message = f"a number of {len(m['digits'])} digits; there are at most {MAX_DIGITS}"
                raise _at(text, name, m.start(), "UPL1002", message)
            case "shape" if dense:
                sizes = [int(d) if len(d) <= 20 else MAX_ELEMENTS + 1 for d in m["shape"].split("x")[:-1]]
                if math.prod(sizes) > MAX_ELEMENTS:
                    message = f"a shape of more than {MAX_ELEMENTS} elements beside dense literals"
                    raise _at(text, name, m.start(), "UPL1002", message)
            case _:
                pass
    return where


def _at(text: str, name: str, at: int, code: str, message: str) -> UplError:
    """An error at an offset."""
    line, col = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    sources = Sources()
    sources.add(name, text)
    return UplError(Diagnostic(code, message, Span(name, line, col, line, col + 1)), sources=sources)
