"""From `.upl` text or a file to IR: parse and translate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.verifying import verify_made
from upl_mlir.frontend.upl_text.declarations import Override
from upl_mlir.frontend.upl_text.parser import parse_file, parse_text
from upl_mlir.frontend.upl_text.to_ir import to_ir


def load_text(text: str, file: str = "<string>", overrides: Mapping[str, Override] | None = None) -> ModuleOp:
    """The module of a program given as text; `overrides` as for `to_ir`.  Raises UplError, which knows the text."""
    try:
        module = to_ir(parse_text(text, file), text, file, overrides)
    except UplError as e:
        e.sources.add(file, text)
        raise
    verify_made(module)
    return module


def load_file(path: str | Path, overrides: Mapping[str, Override] | None = None) -> ModuleOp:
    """The module of a program in a file.  Raises UplError, also where the file cannot be read."""
    program, text = parse_file(path)
    file = str(path)
    try:
        module = to_ir(program, text, file, overrides)
    except UplError as e:
        e.sources.add(file, text)
        raise
    verify_made(module)
    return module
