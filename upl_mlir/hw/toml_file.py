"""Files in TOML that users write: reading them, and errors that say the line, what was expected, and the nearest key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from upl_mlir.diagnostics import Span, UplError, did_you_mean, error

_HEADER = re.compile(r"\s*\[\s*([\w.-]+)\s*\]")
_KEY = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([\w.-]+))\s*=""")


class Places:
    """Where the keys of a TOML file are: the parser does not say."""

    def __init__(self, file: str, text: str = ""):
        self.file = file
        self.lines: dict[str, int] = {}
        section = ""
        for number, line in enumerate(text.splitlines(), 1):
            if header := _HEADER.match(line):
                section = header[1]
                self.lines.setdefault(section, number)
            elif key := _KEY.match(line):
                name = key[1] or key[2] or key[3]
                self.lines.setdefault(f"{section}.{name}" if section else name, number)

    def of(self, key: str) -> Span:
        """The line of a key with its section (`matching.ways`), of its section if it is not written, else the file."""
        while key and key not in self.lines:
            key = key.rpartition(".")[0]
        return Span(self.file, self.lines.get(key, 0), 1)

    def line(self, key: str) -> Span | None:
        """The line of a key; None if it is not written."""
        return self.of(key) if key in self.lines else None


def parse(text: str, file: str, what: str, code: str) -> tuple[dict[str, Any], Places]:
    """The contents of a TOML text, and where its keys are; `UplError` with `code` and the line if it is not TOML."""
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except ValueError as cause:  # of TOML, or of Python: a number of thousands of digits
        place = re.search(r"line (\d+), column (\d+)", str(cause))
        line, column = map(int, place.groups()) if place else (max(1, len(text.splitlines())), 1)
        span = Span(file, line, column)
        raise error(code, f"the {what} is not TOML: {cause}", span) from None
    return data, Places(file, text)


def unknown_key(key: str, section: str, known: Sequence[str], places: Places, what: str, code: str) -> UplError:
    """The error for a key that a section (empty: the top of the file) does not have, with the nearest one that it has."""
    where, place = (f" in [{section}]", f"{section}.{key}") if section else ("", key)
    helping = did_you_mean(key, known) or "known keys: " + ", ".join(known)
    return error(code, f"{what}: unknown key `{key}`{where}", places.of(place), help=helping)


def check_keys(
    found: Mapping[str, Any], section: str, known: Sequence[str], places: Places, what: str, code: str
) -> None:
    """Every key is a known one; else `unknown_key`."""
    for key in found:
        if key not in known:
            raise unknown_key(key, section, known, places, what, code)
