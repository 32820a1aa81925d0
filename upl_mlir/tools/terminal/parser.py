"""Command lines: options in full only, and for what is not known the nearest name that there is."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn, cast

from upl_mlir.diagnostics import did_you_mean
from upl_mlir.tools.terminal.colour import complain

_CHOICE = re.compile(r"invalid choice: '?([^' ]*)'? \(choose from (.*)\)")


class WithExamples(argparse.HelpFormatter):
    """Help whose last part keeps its lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """argparse's parser.  Options are not abbreviated: a new one would change what an old command means."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, allow_abbrev=False, **kwargs)

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The options; what is left over is refused by the parser of the command, which knows its own."""
        found, left = self.parse_known_args(args, namespace)
        if left:
            self._of(getattr(found, "command", None)).refuse(left)
        return found

    def refuse(self, left: Sequence[str]) -> NoReturn:
        """End with what is not known, and what may be meant."""
        first = left[0].partition("=")[0]
        known = (s for a in self._actions for s in a.option_strings if s.startswith("--"))
        near = did_you_mean(first, known) if first.startswith("--") else None
        self._end(f"unrecognized arguments: {' '.join(left)}", near)

    def error(self, message: str) -> NoReturn:
        """End with status 2 and, for a choice that is none, the name nearest to it."""
        wrong = _CHOICE.search(message)
        self._end(message, None if wrong is None else did_you_mean(wrong[1], re.findall(r"[\w-]+", wrong[2])))

    def _end(self, message: str, near: str | None) -> NoReturn:
        complain(f"{self.prog}: error: {message}\n  help: {near or f'`{self.prog} --help` lists what there is'}")
        self.exit(2)

    def _of(self, command: str | None) -> Parser:
        """The parser of a command."""
        for action in self._actions:
            if command is not None and isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
                return cast("dict[str, Parser]", action.choices)[command]
        return self
