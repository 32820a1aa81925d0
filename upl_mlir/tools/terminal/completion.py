"""`upl completion`: the shell's completion of commands, options and files, as a script for bash, zsh or fish."""

from __future__ import annotations

import argparse
import sys
from typing import Any, cast

from upl_mlir.diagnostics import not_installed

SHELLS = ("bash", "zsh", "fish")
_FILES = frozenset(
    {"file", "files", "output", "trace", "machine", "data", "stats", "vcd", "plot", "input", "bench", "case"}
)
"""Arguments that are files or folders."""


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The options of the command."""
    p.add_argument("shell", choices=SHELLS, help="the shell that the script is for")
    p.add_argument("--debug", action="store_true", help="show the Python traceback of an error")


def run(shell: str, parser: argparse.ArgumentParser) -> int:
    """Print the script for a parser; returns the exit status.  Raises UplError (UPL1804)."""
    try:
        import shtab
    except ImportError:
        raise not_installed("completion needs", "shtab", "completion") from None
    _mark(parser, shtab.FILE)
    sys.stdout.write(shtab.complete(parser, shell))
    return 0


def _mark(parser: argparse.ArgumentParser, files: object) -> None:
    """Say of all arguments that are files that they are."""
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
            for command in cast("dict[str, argparse.ArgumentParser]", action.choices).values():
                _mark(command, files)
        elif action.dest in _FILES and action.nargs != 0:
            cast(Any, action).complete = files
