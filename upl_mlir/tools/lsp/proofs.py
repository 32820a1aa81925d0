"""Proofs in a process of their own (`prover.py`), one at a time: the newest text is the one that counts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys

import msgspec

from upl_mlir.tools.lsp.prover import Answer, Task

_MOST = 64 << 20
"""Bytes of the longest answer."""


class Proofs:
    """The process, which is started when it is needed, and again when it has ended or has been ended."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._numbers = itertools.count()
        self._busy = False
        self._turn = asyncio.Lock()

    async def start(self) -> asyncio.subprocess.Process:
        """The process; a new one where there is none."""
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "upl_mlir.tools.lsp.prover", limit=_MOST,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        return self._process

    async def prove(self, file: str, text: str) -> Answer | None:
        """What is known of a text; None where the process has been ended, by `stop` or because another text came."""
        if self._busy:
            await self.stop()
        async with self._turn:
            self._busy = True
            try:
                process = await self.start()
                assert process.stdin is not None and process.stdout is not None
                task = Task(next(self._numbers), file, text)
                process.stdin.write(msgspec.json.encode(task) + b"\n")
                await process.stdin.drain()
                while line := await process.stdout.readline():
                    found = msgspec.json.decode(line, type=Answer)
                    if found.number == task.number:
                        return found
            except (OSError, ValueError, asyncio.IncompleteReadError):
                await self.stop()
            finally:
                self._busy = False
        return None

    async def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
