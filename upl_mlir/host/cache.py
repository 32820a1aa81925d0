"""A cache of generated files by content hash, shared by all processes of a user.

Place: ``$UPL_CACHE_DIR``, else ``$XDG_CACHE_HOME/upl_mlir``, else ``~/.cache/upl_mlir``.  Files are written beside their
place and renamed, so readers see whole files or none; each ends with the hash of its contents, so damaged and foreign
files are taken for missing.  What is read here is run: a folder that others may write to is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import random
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MAGIC = b"upl_mlir cache 1\n"
LIMIT_BYTES = 512 << 20
"""When the files together exceed this, the oldest half goes."""


def digest(*parts: str | bytes) -> str:
    """A name for content that follows from the parts."""
    h = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()[:40]


PACKAGE = Path(__file__).resolve().parents[1]


@cache
def package_key() -> str:
    """What tells this version of the package, and of what it is built on, from others: files by size and time of change."""
    found = [f"{path.removeprefix(str(PACKAGE))} {size} {time}" for path, size, time in _sources(str(PACKAGE))]
    for name in ("xdsl", "islpy"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            s = Path(spec.origin).stat()
            found.append(f"{name} {spec.origin} {s.st_size} {s.st_mtime_ns}")
    return digest(*sorted(found))


def _sources(folder: str) -> Iterator[tuple[str, int, int]]:
    """Path, size and time of change of each Python file below a folder."""
    with os.scandir(folder) as entries:  # a millisecond for all, where `rglob` takes 25
        for entry in entries:
            if entry.name.endswith(".py"):
                s = entry.stat()
                yield entry.path, s.st_size, s.st_mtime_ns
            elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
                yield from _sources(entry.path)


def _seal(body: bytes) -> bytes:
    """What stands at the end of every file: tells that it is whole, and ours."""
    return MAGIC + hashlib.sha256(body).digest()


SEAL_BYTES = len(_seal(b""))


@dataclass(frozen=True)
class Cache:
    """The cache in one folder; None if there is no folder that can be used: then nothing is kept."""

    folder: Path | None

    def read(self, name: str) -> bytes | None:
        """The contents stored under a name, None if missing or damaged."""
        if self.folder is None:
            return None
        try:
            data = (self.folder / name).read_bytes()
        except OSError:
            return None
        body, seal = data[:-SEAL_BYTES], data[-SEAL_BYTES:]
        return body if seal == _seal(body) else None

    def file(self, name: str) -> Path | None:
        """The place of a file for the loader of shared libraries (the seal behind its end does not disturb them), None if
        missing or damaged."""
        return None if self.folder is None or self.read(name) is None else self.folder / name

    def write(self, name: str, body: bytes) -> Path | None:
        """Store contents; returns the place, None if that failed (a full disk or a lost folder is no error)."""
        if self.folder is None:
            return None
        data = body + _seal(body)
        place: Path | None = None
        try:
            handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=".new-")
            place = Path(temporary)
            with os.fdopen(handle, "wb") as f:
                f.write(data)
            target = self.folder / name
            place.replace(target)
        except OSError:
            if place is not None:
                place.unlink(missing_ok=True)
            return None
        if random.random() * (LIMIT_BYTES >> 6) < len(data):  # once for some 8 MiB: all files are looked at
            self._shrink()
        return target

    def _shrink(self) -> None:
        """Remove the oldest files when there is too much."""
        assert self.folder is not None
        found: list[tuple[float, int, str]] = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:  # `iterdir` takes ten times as long
            for entry in entries:
                with contextlib.suppress(OSError):  # another process may be removing it
                    s = entry.stat()
                    found.append((s.st_mtime, s.st_size, entry.name))
        total = sum(size for _, size, _ in found)
        if total <= LIMIT_BYTES:
            return
        for _, size, name in sorted(found):
            with contextlib.suppress(OSError):
                (self.folder / name).unlink()
            total -= size
            if total <= LIMIT_BYTES // 2:
                return


def open_cache() -> Cache:
    """The user's cache; its folder is made if need be."""
    given = os.environ.get("UPL_CACHE_DIR")
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(given) if given else (Path(base) if base else Path.home() / ".cache") / "upl_mlir"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (OSError, RuntimeError):  # RuntimeError: no home
        return Cache(None)
    mine = status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return Cache(folder if mine and os.access(folder, os.W_OK | os.X_OK) else None)
