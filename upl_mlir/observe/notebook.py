"""Notebooks: the page of `upl view` in a frame, and the magic `%%upl`.

    %load_ext upl_mlir

    %%upl fit n=10
    program fit
    ...
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from upl_mlir.api.program import Program
from upl_mlir.api.programs import of_text
from upl_mlir.diagnostics import UplError, error
from upl_mlir.observe.replay import Trace, record
from upl_mlir.observe.viewing import view as page_of

HEIGHT = 640
"""Pixels of a page in a notebook. Chosen."""


@dataclass(frozen=True)
class Page:
    """The page of `upl view`; a notebook shows it in a frame."""

    title: str
    html: str

    def save(self, path: str | Path) -> None:
        """Write it as one HTML file."""
        Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        """For notebooks: a frame, in which its scripts and styles are its own."""
        source = escape(self.html, quote=True)
        return f'<iframe srcdoc="{source}" style="width:100%;height:{HEIGHT}px;border:1px solid #c5cad6"></iframe>'

    def __repr__(self) -> str:
        return f"<page of {self.title}>"


def view(
    p: Program, /, of: str | None = None, wrt: str | Sequence[str] = (), *, mode: str = "reverse", total: bool = False,
    inputs: Mapping[str, Any] | None = None, trace: Trace | None = None,
) -> Page:  # fmt: skip
    """The page with picture, passes and proofs of a program and, with `of` and `wrt`, of its derivative.

    With `inputs` (arrays and parameters by name) the program runs on the interpreter, and the page replays it; `trace`
    is a run that was recorded before.  Raises UplError: as `upl.vjp`, as a run, and UPL1804 without the extra `draw`.
    """
    if inputs is not None:
        params = {n: v for n, v in inputs.items() if n in p.params}
        trace, _ = record(p, {n: v for n, v in inputs.items() if n not in params}, **params)
    names = (wrt,) if isinstance(wrt, str) else tuple(wrt)
    return Page(p.name, page_of(p, of=of, wrt=names, mode=mode, total=total, trace=trace))


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext upl_mlir` calls: the magic `%%upl`."""

    def upl(line: str, cell: str) -> Program | None:
        """%%upl [NAME] [PARAMETER=VALUE ...]: the program in the cell, checked, as NAME (else by its own name)."""
        words = line.split()
        name = words.pop(0) if words and "=" not in words[0] else None
        try:
            program = of_text(cell, "<cell>", _values(words))
            report = program.check()
            if not report.ok:
                raise UplError(*report.diagnostics(), sources=program.sources)
        except UplError as e:
            print(e)
            return None
        shell.user_ns[name or program.name] = program
        return program

    shell.register_magic_function(upl, "cell", "upl")


def _values(words: Sequence[str]) -> dict[str, Any]:
    """The values of parameters and constants.  Raises UplError (UPL1802)."""
    found: dict[str, Any] = {}
    for word in words:
        name, sep, value = word.partition("=")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            sep = ""
        if not sep or not name.isidentifier():
            raise error("UPL1802", f"`{word}` is no PARAMETER=VALUE", help="for instance `%%upl fit n=10 N=[4,5]`")
    return found


