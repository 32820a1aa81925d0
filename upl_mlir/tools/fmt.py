"""`upl fmt`: `.upl` files in the one layout."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from upl_mlir.diagnostics import UplError
from upl_mlir.tools.boundary import STDIN, describe_exception, standard_input, write_whole
from upl_mlir.tools.terminal.colour import complain


def add_arguments(p: argparse.ArgumentParser) -> None:
    """What `upl fmt` takes on the command line."""
    p.add_argument("files", nargs="+", metavar="FILE", help="a program, .upl; `-`: from standard input to output")
    how = p.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="write nothing; list the files that would change, and fail")
    how.add_argument("--stdout", action="store_true", help="print the formatted text; leave the files as they are")
    p.add_argument("--debug", action="store_true", help="show the Python traceback of an error")


def run(files: Sequence[str], *, check: bool = False, stdout: bool = False) -> int:
    """Format files in place; a file with an error is left as it is and does not keep the others from being formatted.

    Returns 1 if a file has an error or, with `check`, would change; else 0.
    """
    from upl_mlir.frontend.upl_text.printing.format import format_file

    status = 0
    for file in files:
        try:
            old, new = _standard_input() if file == "-" else format_file(file)
            if not check and (stdout or file == "-"):
                write_whole(None, new)
            elif old != new:
                if check:
                    status = 1
                else:
                    write_whole(file, new)
                print(file)
        except BrokenPipeError:
            raise
        except (UplError, OSError) as e:
            complain(describe_exception(e))
            status = 1
    return status


def _standard_input() -> tuple[str, str]:
    """The text on the standard input, as it is and formatted."""
    from upl_mlir.frontend.upl_text.printing.format import format_text

    old = standard_input()
    return old, format_text(old, STDIN)
