"""`upl run --break PLACE`: stops of a run on the interpreter, shown on the standard error.

At a terminal each stop asks how to go on; elsewhere they are shown, and the run goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from upl_mlir.engines.names import EngineName
from upl_mlir.tools.boundary import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from upl_mlir.api.programs import Program
    from upl_mlir.observe.breakpoints import Stop

_QUESTION = "Enter: next stop   r: run on without stops   q: end the run > "


class _Dialogue:
    """Shows stops, and asks a user who is there how to go on."""

    def __init__(self, asks: bool):
        self.asks = asks
        self.shows = True

    def stop(self, s: Stop) -> bool:
        """Whether to go on."""
        if not self.shows:
            return True
        print("\n".join(s.lines()), file=sys.stderr, flush=True)
        if not self.asks:
            return True
        print(_QUESTION, end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        self.shows = not answer.strip().lower().startswith("r")
        return bool(answer) and not answer.strip().lower().startswith("q")


def run(
    p: Program, args: argparse.Namespace, arrays: Mapping[str, Any]
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
    """Run with the breakpoints of the command line: outputs and statistics, None if the user ended the run."""
    from upl_mlir.observe.breakpoints import run_with_breaks

    if args.engine != EngineName.INTERP:
        raise UsageError(f"--break stops the interpreter, not --engine {args.engine}")
    if args.trace is not None:
        raise UsageError("give --break or --trace, not both")
    params = {name: value for name, value in arrays.items() if name in p.params}
    result = run_with_breaks(
        p, args.breaks, {n: a for n, a in arrays.items() if n not in params}, stop=_Dialogue(sys.stdin.isatty()).stop,
        real=args.real or "f64", gather=args.gather, order=args.order, seed=args.seed, **params,
    )  # fmt: skip
    return None if result is None else (result.outputs, result.stats.to_dict())
