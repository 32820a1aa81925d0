"""The text form of UPL, `.upl` files: lexer, parser, translation to the IR and back to text.

The parser's entry points are exported here; they are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from upl_mlir.frontend.upl_text.parser import parse_expression, parse_file, parse_text

__all__ = ["parse_expression", "parse_file", "parse_text"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from upl_mlir.frontend.upl_text import parser

        return getattr(parser, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
