"""Programs that we start (compilers, simulators' builders): none of them outlives us, whatever ends our waiting."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def run(
    command: Sequence[str],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; its output and errors as text.

    A compiler is a driver that starts others.  On Ctrl-C, a timeout, or any other exception they all end: the program is the
    leader of a session of its own, which is killed as a whole.  Raises OSError, subprocess.TimeoutExpired (`timeout` in
    seconds).
    """
    child = subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    with child:
        try:
            out, err = child.communicate(timeout=timeout)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(child.args, child.returncode, out, err)
