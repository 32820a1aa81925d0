"""The server's side of the process that proves (`prover.py`): the newest text of each document is the one that counts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
from collections.abc import AsyncIterator

import msgspec

from upl_mlir.diagnostics import Diagnostic

_MOST = 64 << 20
"""Bytes of the longest answer."""
_SECONDS_TO_END = 2.0
"""Seconds that the process has to end its own ones, before it is killed."""


class Task(msgspec.Struct):
    """A text of a document to be looked at in place of the one before; None: no text any more."""

    number: int
    document: str
    file: str
    text: str | None


class Fact(msgspec.Struct):
    """What is known of a host port or node: its domain, how often it fires, how many tokens it gets."""

    domain: str | None = None
    firings: str | None = None
    tokens: str | None = None


class Answer(msgspec.Struct):
    """What is known of the text of a task so far.

    `meant` are errors of text, names and types; `proved` is what is refuted and (as remarks) unproved, None before the
    proofs; `facts`, by name, are empty before the figures; `last`: nothing more follows.
    """

    number: int
    document: str
    meant: list[Diagnostic]
    proved: list[Diagnostic] | None = None
    facts: dict[str, Fact] = msgspec.field(default_factory=dict[str, Fact])
    last: bool = False


class Proofs:
    """The process, which is started when it is needed, and again when it has ended or has been ended."""

    def __init__(self) -> None:
        self._process: asyncio.Task[asyncio.subprocess.Process] | None = None
        self._readers: dict[int, asyncio.Task[None]] = {}
        self._closed = False
        self._numbers = itertools.count()
        self._asked: dict[str, tuple[int, asyncio.Queue[Answer | None]]] = {}

    async def start(self) -> asyncio.subprocess.Process:
        """The process; a new one where there is none."""
        if self._process is None:
            self._process = asyncio.create_task(self._spawn())
        return await asyncio.shield(self._process)  # who waits may be cancelled; the process is for the next one, too

    async def _spawn(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "upl_mlir.tools.lsp.prover", limit=_MOST,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        self._readers[process.pid] = asyncio.create_task(self._read(process))
        return process

    async def prove(self, document: str, file: str, text: str) -> AsyncIterator[Answer]:
        """What is known of a text, more with each answer; the last one says so.

        It ends early where the process ends, and where another text of the same document comes.
        """
        if self._closed:
            return
        process, number = await self.start(), next(self._numbers)
        queue: asyncio.Queue[Answer | None] = asyncio.Queue()
        if document in self._asked:
            self._asked[document][1].put_nowait(None)
        self._asked[document] = number, queue
        self._send(process, Task(number, document, file, text))
        answer = None
        try:
            while (answer := await queue.get()) is not None:
                yield answer
                if answer.last:
                    return
        finally:
            if self._asked.get(document, (None,))[0] == number:
                del self._asked[document]
                if answer is None or not answer.last:
                    self._send(process, Task(number, document, file, None))

    def _send(self, process: asyncio.subprocess.Process, task: Task) -> None:
        assert process.stdin is not None
        if process.returncode is None and not process.stdin.is_closing():
            process.stdin.write(msgspec.json.encode(task) + b"\n")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Hand on the answers until the process ends."""
        assert process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            while line := await process.stdout.readline():
                found = msgspec.json.decode(line, type=Answer)
                number, queue = self._asked.get(found.document, (None, None))
                if queue is not None and number == found.number:
                    queue.put_nowait(found)
        if self._process is not None and self._process.done() and self._process.result() is process:
            self._process = None
            await self._ended(process)
        for _, queue in self._asked.values():
            queue.put_nowait(None)

    async def close(self) -> None:
        """End the process, and with it those that it has started; nothing is proved from now on."""
        self._closed = True
        if self._process is None:
            return
        starting, self._process = self._process, None
        process = await starting
        await self._ended(process)
        await self._readers.pop(process.pid)

    async def _ended(self, process: asyncio.subprocess.Process) -> None:
        """Wait until a process ends that gets no more texts; kill it where that takes long."""
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _SECONDS_TO_END)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
