"""`--verify-diagnostics` as in MLIR: comments say which diagnostics a chunk of a file must give, and on which lines.

    // expected-error @+1 {{belongs to no instance}}        the text is a part of the message; also @-1, @above, @below
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from upl_mlir.diagnostics import Diagnostic

_COMMENT = re.compile(r"//\s*expected-(error|warning|remark)\s*(@(?:[+-]\d+|above|below))?\s*\{\{(.*?)\}\}")


def expectations(chunk: str, offset: int) -> list[tuple[int, str, str]]:
    """(line, severity, part of the message) of each such comment; `offset` lines stand before the chunk."""
    out: list[tuple[int, str, str]] = []
    for n, line in enumerate(chunk.splitlines(), offset + 1):
        for severity, where, text in _COMMENT.findall(line):
            by = {"": 0, "@above": -1, "@below": 1}.get(where)
            out.append((n + (int(where[1:]) if by is None else by), severity, text))
    return out


def mismatches(expected: Sequence[tuple[int, str, str]], found: Sequence[Diagnostic]) -> list[str]:
    """What was expected and did not come, and what came and was not expected."""
    left = list(found)
    out: list[str] = []
    for line, severity, text in expected:
        here = [d for d in left if d.span and d.span.line == line and d.severity.value == severity]
        hit = next((d for d in here if text in d.message), None)
        if hit is None:
            out.append(f"line {line}: expected {severity} was not given: {text}")
        else:
            left.remove(hit)
    return out + [f"unexpected: {d.head()}" for d in left]
