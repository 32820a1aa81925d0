"""C and C++ at run time: the compiler that is there, and source texts as shared libraries, kept in the cache."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from upl_mlir.host.cache import digest, open_cache
from upl_mlir.host.processes import run

TIMEOUT_S = 300
"""Seconds for a compiler. Chosen: far beyond what a program of the examples takes."""
T = TypeVar("T")


class CompilerError(Exception):
    """A compiler that failed, in words."""


def find_compiler(variable: str, names: Sequence[str]) -> list[str] | None:
    """The command of a compiler: of an environment variable (CC or CXX), the one that Python was built with, or one of the
    usual names; None if there is none."""
    for text in (os.environ.get(variable), sysconfig.get_config_var(variable), *names):
        words = shlex.split(text) if text else []
        if words and shutil.which(words[0]):
            return words
    return None


def load_library(
    name: str, suffix: str, command: Sequence[str], source: bytes, extension: str, load: Callable[[Path], T | None],
    depends: Sequence[str | bytes] = (),
) -> T:  # fmt: skip
    """What `load` makes of the shared library that `command` (all but source and output) makes of a text.

    `load` returns None for a file that is no such library: one from the cache is then made anew.  `depends` is what the
    result depends on besides text and command.  Raises CompilerError.
    """
    store = open_cache()
    kept = f"{name}-{digest(source, ' '.join(command), *depends)}{suffix}"
    place = store.file(kept)
    found = load(place) if place is not None else None
    if found is not None:
        return found
    with tempfile.TemporaryDirectory() as temporary:
        text, built = f"{name}{extension}", Path(temporary) / f"{name}{suffix}"
        (Path(temporary) / text).write_bytes(source)
        try:  # relative names, so that the result does not depend on the place
            done = run([*command, text, "-o", built.name], timeout=TIMEOUT_S, cwd=temporary)
        except (OSError, subprocess.TimeoutExpired) as e:
            raise CompilerError(f"{command[0]} failed: {e}") from None
        if done.returncode or not built.exists():
            lines = done.stderr.strip().splitlines()
            first = next(
                (line for line in lines if "error" in line), lines[0] if lines else f"status {done.returncode}"
            )
            raise CompilerError(f"{command[0]} failed: {first}")
        found = load(store.write(kept, built.read_bytes()) or built)
    if found is None:
        raise CompilerError("what was built cannot be loaded")
    return found
