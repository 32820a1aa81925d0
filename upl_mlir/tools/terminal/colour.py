"""Messages in colour, where a person reads them.

A terminal gets colours; a pipe or a file does not.  The environment variable NO_COLOR (https://no-color.org) turns them off,
FORCE_COLOR on.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TextIO

_RED, _GREEN, _CYAN, _BOLD, _END = "\x1b[1;31m", "\x1b[32m", "\x1b[36m", "\x1b[1m", "\x1b[0m"
_HEAD = re.compile(r"^(\S.*?: )?(error|warning|note)(\[UPL\d{4}\])?: (.*)$")
_WORD = re.compile(r"^( +)(help|note):")
_CARETS = re.compile(r"^( +\| *)(\^+)$")


def complain(text: str) -> None:
    """Print a message to the standard error."""
    print(coloured(text) if wanted(sys.stderr) else text, file=sys.stderr)


def wanted(stream: TextIO) -> bool:
    """Whether what goes to a stream is to have colours."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def coloured(text: str) -> str:
    """A message with its position and kind, its carets and its help in colours."""
    return "\n".join(map(_line, text.split("\n")))


def _line(line: str) -> str:
    if m := _HEAD.match(line):
        where, kind, code, message = m.groups(default="")
        colour = _CYAN if kind == "note" else _RED
        place = f"{_BOLD}{where}{_END}" if where else ""
        return f"{place}{colour}{kind}{code}:{_END} {message}"
    if m := _WORD.match(line):
        colour = _GREEN if m[2] == "help" else _CYAN
        return f"{m[1]}{colour}{m[2]}:{_END}{line[m.end() :]}"
    if m := _CARETS.match(line):
        return f"{m[1]}{_RED}{m[2]}{_END}"
    return line
