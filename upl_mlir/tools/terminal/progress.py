"""What a command is doing, and for how long, where that takes more than a moment and a person waits at a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

PATIENCE = 1.0
"""Seconds before anything is said. Chosen."""


@contextmanager
def waiting(what: str, *, quiet: bool = False) -> Generator[None]:
    """While the block runs, a line on the standard error says what is done and the seconds so far; it is gone at the end.
    Nothing is said off a terminal, nor within the first second.  The block must not write to the terminal."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    ended = threading.Event()
    start = time.monotonic()

    def tell() -> None:
        while not ended.wait(PATIENCE):
            print(f"\r\x1b[K{what}: {time.monotonic() - start:.0f} s", end="", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
        if time.monotonic() - start >= PATIENCE:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
