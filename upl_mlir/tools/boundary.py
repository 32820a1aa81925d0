"""The boundary between the package and its users: every failure becomes a message and an exit status.

0: success; 1: the input is at fault; 2: the command line is; 130: interrupted; 143: told to end.  A Python traceback is
shown only with `--debug`, and is then a defect of this package to report; what reproduces it is written to a folder.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, cast

from upl_mlir.diagnostics import Diagnostic, Span, UplError, decode
from upl_mlir.tools.terminal.colour import complain


class UsageError(Exception):
    """A command line that cannot be understood."""


class Terminated(KeyboardInterrupt):
    """The signal SIGTERM came: what Ctrl-C ends ends then, too, programs that we have started among it."""


@contextmanager
def _terminable() -> Generator[None]:
    """SIGTERM is an exception, if nobody else has said what it is to be."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise Terminated

    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def guarded(main: Callable[[Sequence[str]], int], argv: Sequence[str] | None) -> int:
    """Run a tool's main function behind the boundary; returns the exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        with _terminable():
            status = main(args)
            sys.stdout.flush()  # here, where a reader that has gone away is no surprise
            return status
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 2
    except UsageError as e:
        complain(f"error[UPL1801]: {e}")
        return 2
    except BrokenPipeError:
        _forget_output()
        return 1
    except KeyboardInterrupt as e:
        print("interrupted", file=sys.stderr)
        return 143 if isinstance(e, Terminated) else 130
    except Exception as e:
        if "--debug" in args:
            raise
        complain(describe_exception(e))
        if is_defect(e) and (folder := write_reproducer(args, e)):
            complain(f"  note: {folder} has what reproduces it: command, files, traceback; please report it")
        return 1


def is_defect(e: BaseException) -> bool:
    """Whether an exception is nobody's input's fault, but an error in this package."""
    return describe_exception(e).startswith("error[UPL1000]")


MAX_COPIED_BYTES = 16 << 20
"""The largest file that a reproducer copies. Chosen: it is to be sent in a report."""


def write_reproducer(args: Sequence[str], e: BaseException) -> Path | None:
    """A new folder with what reproduces a crash: the command, copies of the files it names, and the traceback.

    None if it cannot be written.
    """
    tool = Path(sys.argv[0]).name
    try:
        folder = Path(tempfile.mkdtemp(prefix="upl-crash-"))
        command = [tool if tool in ("upl", "upl-opt") else "upl"]
        for number, arg in enumerate(args):
            head, sep, tail = arg.rpartition("=")
            path = Path(tail)
            if path.is_file() and path.stat().st_size <= MAX_COPIED_BYTES:
                copy = f"{number}-{path.name}"
                shutil.copyfile(path, folder / copy)
                arg = f"{head}{sep}{copy}"
            command.append(arg)
        from upl_mlir import __version__

        about = f"# upl-mlir {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        script = f"#!/bin/sh\n{about}cd \"$(dirname \"$0\")\" && {shlex.join([*command, '--debug'])}\n"
        (folder / "run.sh").write_text(script, encoding="utf-8")
        (folder / "traceback.txt").write_text("".join(traceback.format_exception(e)), encoding="utf-8")
    except (OSError, ValueError):
        return None
    return folder


def _forget_output() -> None:
    """Nobody reads the standard output any more: keep Python from complaining about that when it exits."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def describe_exception(e: BaseException) -> str:
    """The message for any exception that reaches the boundary."""
    xdsl: Any = sys.modules.get("xdsl.utils.exceptions")  # not loaded for `--help`: that would take most of the time
    if xdsl is not None and isinstance(e, xdsl.ParseError):
        from upl_mlir.pipeline import parse_error

        return str(parse_error(cast(Any, e)))
    if xdsl is not None and isinstance(e, xdsl.DiagnosticException):
        return str(UplError(Diagnostic("UPL1100", str(e).strip().splitlines()[0])))
    match e:
        case UplError():
            return str(e)
        case OSError():
            where = Span(str(e.filename), 0, 0) if e.filename else None
            return str(UplError(Diagnostic("UPL1001", e.strerror or str(e), where)))
        case RecursionError():
            return str(UplError(Diagnostic("UPL1009", "the input is nested too deeply")))
        case MemoryError():
            return str(UplError(Diagnostic("UPL1020", "out of memory")))
        case _:
            note = "this is a defect of upl-mlir; --debug shows the traceback"
            what = (str(e).strip().splitlines() or [""])[0]
            return f"error[UPL1000]: internal error: {type(e).__name__}: {what}\n  note: {note}"


STDIN = "<stdin>"
"""What messages call the standard input."""


def standard_input() -> str:
    """The text on the standard input.  Raises UplError (UPL1001) if it is not UTF-8."""
    return decode(sys.stdin.buffer.read(), STDIN)


@contextmanager
def whole_file(path: str | Path) -> Generator[IO[bytes]]:
    """A file to write into that becomes `path` when the block ends well; else there is no trace of it.

    What is not a regular file (a device, a pipe) is written as it is; through a symbolic link goes to what it means.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(21, "this is a directory, not a file", str(path))
    if target.exists() and not target.is_file():
        with target.open("wb") as stream:
            yield stream
        return
    target = target.resolve()
    part = target.with_name(f".{target.name[:200]}.{os.getpid()}.part")
    try:
        try:
            stream = part.open("xb")
        except OSError as e:
            raise OSError(e.errno, e.strerror, str(path)) from None
        with stream:
            if target.exists():
                part.chmod(target.stat().st_mode)
            yield stream
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_whole(path: str | None, text: str) -> None:
    """Write a file as UTF-8, whole or not at all; None and `-` are the standard output."""
    if path is None or path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    with whole_file(path) as stream:
        stream.write(text.encode("utf-8"))


def definitions(pairs: Sequence[str]) -> dict[str, int | float | list[int | float]]:
    """The values of `-D NAME=VALUE` options: integers, reals, or lists such as ``[4,5,3]``."""
    out: dict[str, int | float | list[int | float]] = {}
    for pair in pairs:
        name, sep, value = pair.partition("=")
        if not sep or not name:
            raise UsageError(f"-D {pair}: expected NAME=VALUE")
        out[name.strip()] = _definition(pair, value.strip())
    return out


def _definition(pair: str, text: str) -> int | float | list[int | float]:
    if text.startswith("[") and text.endswith("]"):
        return [_number(pair, part.strip()) for part in text[1:-1].split(",") if part.strip()]
    return _number(pair, text)


def _number(pair: str, text: str) -> int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise UsageError(f"-D {pair}: `{text}` is not a number or a list of numbers")
