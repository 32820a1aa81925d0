"""The tools as a server for lit: one process imports them, and forks once for each command of a test.

Most of what a command of test/filecheck costs is Python's start and the imports, hundreds of times.  test/lit.cfg.py
starts this server and puts its folder of commands first on PATH.  Each command there is test/support/tool_client.py,
which sends its arguments, folder, environment and standard streams; a fork of the server runs the tool's entry point, as
the installed script does, and answers with the exit status.

The server ends with its parent, however lit ends, or by SIGTERM, and takes the running tools with it.  A client that
gets no answer dies by a signal, which lit counts as a failure, also behind `not`.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pkgutil
import select
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import upl_mlir

TOOLS = ("upl", "upl-opt", "filecheck")
CLIENT = Path(__file__).with_name("tool_client.py")
OPTIONAL = ("upl_mlir.interop", "upl_mlir.frontend.jaxpr", "upl_mlir.nn", "upl_mlir.explore", "upl_mlir.picture")
"""What needs packages that may be missing, or that start threads: imported by the tool that uses it."""


def import_tools() -> dict[str, Callable[[], object]]:
    """The entry points by their commands' names; what they import late is imported, too.

    A fork takes no threads along, but the locks that they hold: a server with threads would hang now and then.
    """
    tools = {name: next(iter(entry_points(group="console_scripts", name=name))).load() for name in TOOLS}
    for module in pkgutil.walk_packages(upl_mlir.__path__, "upl_mlir."):
        if not module.name.startswith(OPTIONAL):
            importlib.import_module(module.name)
    threads = len(list(Path("/proc/self/task").iterdir())) if Path("/proc/self/task").is_dir() else 1
    if threads != 1:
        sys.exit(f"the tools cannot be forked: importing them has started {threads - 1} threads")
    gc.collect()
    gc.freeze()  # a collection in a fork would copy all of these pages
    return tools


def write_commands(folder: Path, address: Path) -> None:
    """A command for each tool, as a script: `#!` takes neither blanks in a path nor two options."""
    for name in TOOLS:
        client = shlex.join([sys.executable, "-I", "-S", str(CLIENT), str(address), name])
        command = folder / name
        command.write_text(f'#!/bin/sh\nexec {client} "$@"\n')
        command.chmod(0o755)


def run(tools: dict[str, Callable[[], object]], connection: socket.socket) -> None:
    """Run what a client asks for, with its standard streams, and send the exit status.  In a fork."""
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace")  # noqa: SIM115
    with connection.makefile("rb") as request:
        folder, name, count, *words = (os.fsdecode(word) for word in request.read().split(b"\0"))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(word.split("=", 1) for word in words[int(count) :])
    sys.argv = [name, *words[: int(count)]]
    try:
        sys.exit(tools[name]())
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    connection.send(bytes([status]))


def serve(tools: dict[str, Callable[[], object]], listener: socket.socket) -> None:
    """Fork for each client, as long as the parent lives."""
    parent = os.getppid()
    while os.getppid() == parent:
        if not select.select([listener], [], [], 1)[0]:  # seconds
            continue
        connection, _ = listener.accept()
        if os.fork() == 0:
            try:
                run(tools, connection)
            finally:
                os._exit(0)  # never into the server's own end
        connection.close()


if __name__ == "__main__":
    os.setpgid(0, 0)  # Ctrl-C is lit's; the tools, which are in the server's group, end with it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    tools = import_tools()
    folder = Path(tempfile.mkdtemp(prefix="upl-lit-"))  # the first fork to end would remove a TemporaryDirectory
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "socket"))
            listener.listen(64)
            write_commands(folder, folder / "socket")
            print(folder, flush=True)  # lit.cfg.py waits for it
            serve(tools, listener)
    finally:
        shutil.rmtree(folder)
        os.killpg(0, signal.SIGKILL)
