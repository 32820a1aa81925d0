"""A file that is edited as a picture: its text, the versions before and after, its picture, and what is wrong with it.

Every act is written to the file at once.  What another program writes there is a version like any other, so that nothing
is lost: it is shown, and `undo` goes back behind it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from upl_mlir.api.programs import Program, of_text
from upl_mlir.diagnostics import Diagnostic, Severity, Span, UplError, error
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.parser import read_file
from upl_mlir.picture.model import picture_of
from upl_mlir.picture.svg import svg_of
from upl_mlir.tools.boundary import write_whole
from upl_mlir.tools.editor.acts import Draft, become
from upl_mlir.tools.editor.places import Places, places_of
from upl_mlir.tools.lsp.fixes import Fix
from upl_mlir.tools.lsp.proofs import Answer, Proofs

LATE, NO_FILE = "UPL1813", "UPL1812"
NOTHING = '<svg xmlns="http://www.w3.org/2000/svg" class="upl-picture" width="300" height="80" viewBox="0 0 300 80"></svg>'
"""The picture of a text that nobody has been able to read so far."""
LOOK = 0.5
"""Seconds between two looks at the file on the disk. Chosen."""


class Session:
    """One file; safe for threads.  Raises UplError (UPL1812, UPL1001) for a file that cannot be edited."""

    def __init__(self, path: Path):
        self.path = path
        require_editable(path)
        self._changed = threading.Condition(threading.RLock())
        self.number = 0  # of the state, which proofs change, too
        self.version = 0  # of the text
        self.draft = Draft(path.name, read_file(path))
        self._seen = _stamp(path)
        self._past: list[str] = []
        self._future: list[str] = []
        self._picture, self._places, self._shown_version = NOTHING, Places(), -1
        self._ir = ""
        self._wrong: list[Diagnostic] = []
        self._answer: Answer | None = None
        self._prover, self._closed = _Prover(self._proved), False
        with self._changed:
            self._look()

    def close(self) -> None:
        """Answer who waits, and end the process that proves."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._prover.close()

    # -- what the page asks --------------------------------------------------------------------------------------------
    def wait(self, seen: int, seconds: float) -> dict[str, Any]:
        """The state as soon as it is another one than that of a number, at the latest after so many seconds."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                self._notice()
                left = end - time.monotonic()
                if self.number != seen or left <= 0 or self._closed:
                    return self.state()
                self._changed.wait(min(LOOK, left))

    def state(self) -> dict[str, Any]:
        """All that the page shows; offsets are a browser's: units of UTF-16, lines that end in one character."""
        with self._changed:
            at = _Offsets(self.draft.content)
            shapes = self.draft.document.names.shapes
            places = self._places
            return {
                "number": self.number, "version": self.version, "text": self.draft.content.replace("\r\n", "\n"),
                "ir": self._ir, "picture": self._picture, "current": self._shown_version == self.version,
                "proving": not self._wrong and not (self._answer and self._answer.last),
                "undo": bool(self._past), "redo": bool(self._future),
                "errors": [self._error(d, at) for d in self.errors],
                "boxes": self._facts(), "places": {
                    "boxes": {name: [at.range(p) for p in ps] for name, ps in places.boxes.items()},
                    "arrows": {name: at.range(p) for name, p in places.arrows.items()},
                },
                "names": {
                    name: {"kind": s.role.value, "fields": s.fields, "inputs": list(s.inputs),
                           "variables": [d.key[1] for d in self.draft.document.names.members(name).values()]}
                    for name, s in shapes.items()
                },
            }  # fmt: skip

    def fixes(self, version: int, error: int) -> list[Fix]:
        """The edits that mend an error of the state, by its number there.  Raises UplError (UPL1813)."""
        with self._changed:
            self._require(version)
            found = self.errors
            return self.draft.document.fixes(found[error]) if 0 <= error < len(found) else []

    @property
    def errors(self) -> list[Diagnostic]:
        """What the page lists: all but what is only unproved."""
        return [d for d in self.diagnostics if d.severity is not Severity.REMARK]

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """What is known to be wrong with the text."""
        return [*self._wrong, *((self._answer.proved or self._answer.meant) if self._answer else ())]

    def arrow(self, name: str) -> int:
        """The offset at which an arrow of the picture begins in the text.  Raises UplError (UPL1813)."""
        if name not in self._places.arrows:
            raise error(LATE, "the picture has another arrow there by now")
        return self._places.arrows[name][0]

    # -- what changes it -----------------------------------------------------------------------------------------------
    def change(self, version: int, act: Callable[[Draft], object], *, typed: bool = False) -> dict[str, Any]:
        """Do what an act does to the text of a version, and write the file; the state afterwards.

        Only a text that is `typed` may be one that cannot be read.  Raises UplError: UPL1813 for a text that has changed
        meanwhile or has to be mended first, and what the act itself raises, or is wrong with its text; nothing is changed
        then.
        """
        with self._changed:
            self._require(version)
            if self.draft.document.read.errors and not typed:
                raise error(LATE, "the text cannot be read as it stands", help="mend the text, or undo its last change")
            draft = Draft(self.draft.file, self.draft.content)
            made = act(draft)
            wrong = draft.document.read.errors
            if wrong and not typed:
                raise UplError(*wrong)
            if draft.content != self.draft.content:
                self._write(draft.content)
                self._past.append(self.draft.content)
                self._future.clear()
                self._adopt(draft)
            state = self.state()
            if isinstance(made, int):  # where an arrow begins that has been drawn
                state["made"] = _Offsets(self.draft.content).range((made, made))[0]
            return state

    def undo(self, version: int, *, again: bool = False) -> dict[str, Any]:
        """Go back to the text before the last change; `again`: forward to the one after.  Raises UplError (UPL1813)."""
        with self._changed:
            self._require(version)
            source, target = (self._future, self._past) if again else (self._past, self._future)
            if not source:
                raise error(LATE, f"there is nothing to {'redo' if again else 'undo'}")
            draft = Draft(self.draft.file, self.draft.content)
            become(draft, source[-1])
            self._write(draft.content)
            target.append(self.draft.content)
            source.pop()
            self._adopt(draft)
            return self.state()

    def _require(self, version: int) -> None:
        if self._notice():
            raise error(LATE, f"another program has changed {self.path.name}: its text is shown now, nothing was written")
        if version != self.version:
            raise error(LATE, "the text has changed meanwhile", help="look at it, and do it again")

    def _write(self, content: str) -> None:
        require_editable(self.path, missing=True)
        write_whole(str(self.path), content)
        self._seen = _stamp(self.path)

    def _notice(self) -> bool:
        """Take over what another program has written; whether there was something."""
        stamp = _stamp(self.path)
        if stamp == self._seen or stamp is None or self._closed:
            return False
        try:
            content = read_file(self.path)
        except UplError:  # no text at the moment; it is not overwritten either, as `_seen` stays what it is
            return True
        self._seen = stamp
        if content == self.draft.content:
            return False
        draft = Draft(self.draft.file, self.draft.content)
        become(draft, content)
        self._past.append(self.draft.content)
        self._future.clear()
        self._adopt(draft)
        return True

    def _adopt(self, draft: Draft) -> None:
        self._places = self._places.moved(draft.changes)
        self.draft, self.version = Draft(draft.file, draft.content), self.version + 1
        self._look()

    def _look(self) -> None:
        """Find out what is wrong with the text, and draw it if it is a program."""
        self._wrong, self._answer = list(self.draft.document.read.errors), None
        if not self._wrong:
            try:
                self._draw(of_text(self.draft.content, self.draft.file, {}))
            except UplError as e:
                if e.diagnostics[0].code == "UPL1804":  # no fault of the text: nothing can be drawn here
                    raise
                self._wrong = [d if d.span else replace(d, span=Span(self.draft.file, 1, 1)) for d in e.diagnostics]
            except RecursionError:
                self._wrong = [Diagnostic("UPL1009", "the input is nested too deeply", Span(self.draft.file, 1, 1))]
        if not self._wrong:
            self._prover.prove(self.version, self.draft)
        self._tell()

    def _draw(self, p: Program) -> None:
        shown = p.clone()
        try:
            shown.infer_domains()
        except UplError:  # the proofs say so, too; the picture then has the domains that are written
            shown = p
        picture = picture_of(shown.op)
        self._picture, self._ir = svg_of(picture, theme=None), p.to_mlir()
        self._places, self._shown_version = places_of(self.draft, picture), self.version

    def _proved(self, version: int, answer: Answer) -> None:
        with self._changed:
            if version == self.version and (answer.proved is not None or answer.meant):
                self._answer = answer
                self._tell()

    def _tell(self) -> None:
        self.number += 1
        self._changed.notify_all()

    # -- parts of the state ----------------------------------------------------------------------------------------------
    def _error(self, d: Diagnostic, at: _Offsets) -> dict[str, Any]:
        assert d.span is not None
        text = self.draft.document.text
        start, end = (text.offset(p) for p in self.draft.document.placed(d.span))
        return {
            "code": d.code, "message": d.message, "help": d.help, "notes": [n.message for n in d.notes],
            "line": d.span.line, "column": d.span.col, "range": at.range((start, end)), "on": self._places.at(start),
            "severity": d.severity.value,
        }  # fmt: skip

    def _facts(self) -> dict[str, dict[str, Any]]:
        """Counts and what is unproved of each box, for the page."""
        facts: dict[str, dict[str, Any]] = {name: {"obligations": []} for name in self._places.boxes}
        for name, fact in (self._answer.facts if self._answer else {}).items():
            facts.setdefault(name, {"obligations": []}).update(firings=fact.firings, tokens=fact.tokens)
        for d in self.diagnostics:
            on = self._places.at(self.draft.document.text.offset((d.span.line, d.span.col))) if d.span else None
            if on is not None and "box" in on and on["box"] in facts:
                status = "unproved" if d.severity is Severity.REMARK else "refuted"
                facts[on["box"]]["obligations"].append([d.code, status, d.message])
        return facts


def require_editable(path: Path, *, missing: bool = False) -> None:
    """Raise UplError (UPL1812) for what is no `.upl` file or must not be written; `missing`: it need not be there."""
    where = Span(str(path), 0, 0)
    if path.suffix != ".upl":
        raise error(NO_FILE, "only `.upl` text can be edited as a picture", where, help="`upl view FILE --open` shows it")
    if missing and not path.exists():
        return
    if path.exists() and not (path.stat().st_mode & 0o222 and os.access(path, os.W_OK)):
        raise error(NO_FILE, "this file is read-only", where, help="copy it, or allow writing: `chmod u+w`")
    if path.is_file() and not os.access(path.resolve().parent, os.W_OK):
        raise error(NO_FILE, "the folder of this file is read-only, and files are replaced whole", where)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written; None where there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class _Offsets:
    """Offsets of a text as a browser counts them."""

    def __init__(self, content: str):
        self._content = content
        self._plain = content.isascii() and "\r" not in content

    def range(self, place: tuple[int, int]) -> list[int]:
        """A piece of the text."""
        return [self._at(place[0]), self._at(place[1])]

    def _at(self, offset: int) -> int:
        if self._plain:
            return offset
        before = self._content[:offset].replace("\r\n", "\n")
        return len(before) + sum(ord(c) > 0xFFFF for c in before)


class _Prover:
    """The proofs of the language server, for callers in threads."""

    def __init__(self, tell: Callable[[int, Answer], None]):
        self._tell, self._proofs = tell, Proofs()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def prove(self, version: int, draft: Draft) -> None:
        """Begin a proof; what comes of it is told, unless another one begins before."""
        asyncio.run_coroutine_threadsafe(self._prove(version, draft.file, draft.content), self._loop)

    async def _prove(self, version: int, file: str, text: str) -> None:
        async for answer in self._proofs.prove(file, file, text):
            self._tell(version, answer)

    def close(self) -> None:
        """End the process and the thread."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        await self._proofs.close()
        while pending := asyncio.all_tasks() - {asyncio.current_task()}:  # a proof ends when its process does
            await asyncio.wait(pending)
        for _ in range(5):  # the loop closes the pipes of the process in its next rounds
            await asyncio.sleep(0)


def block(draft: Draft, name: str, number: int) -> ast.HostInput | ast.HostOutput | ast.NodeBlock:
    """A block of a node by its number.  Raises UplError (UPL1811, UPL1813)."""
    found = draft.blocks(name)
    if not 0 <= number < len(found):
        raise error(LATE, f"`{name}` has no block {number + 1} any more")
    return found[number]
