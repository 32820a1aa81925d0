"""`upl view`: the page with the picture, the passes and the replay of a run, or the editor; and `upl run --trace`, which
records a run."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upl_mlir.diagnostics import UplError
from upl_mlir.engines.names import EngineName
from upl_mlir.tools import derivatives
from upl_mlir.tools.boundary import Terminated, UsageError, write_whole
from upl_mlir.tools.terminal.progress import waiting

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from upl_mlir.api.programs import Program


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The options of the command, besides those of every command on a program."""
    p.add_argument("-o", dest="output", metavar="F.html", help="where to write")
    p.add_argument("--open", action="store_true", help="show the page in the browser; without -o it is written to a "
                   "temporary folder")  # fmt: skip
    p.add_argument("--trace", metavar="T.json", help="a run to replay, as `upl run --trace` writes it")
    p.add_argument("--edit", action="store_true", help="serve an editor of FILE to the browser of this computer, until "
                   "Ctrl-C: each act on the picture is an edit of the text")  # fmt: skip
    p.add_argument("--port", type=int, metavar="N", help="of --edit: where to serve (default: a port that is free)")
    derivatives.add_arguments(p)


def require_output(args: argparse.Namespace) -> None:
    """Give the page a place if it is only to be shown.  Raises UsageError if it is neither to be written nor shown."""
    if args.output is None:
        if not args.open:
            raise UsageError("expected -o F.html, where to write the page, or --open, to show it")
        name = "stdin" if args.file == "-" else Path(args.file).stem
        args.output = str(Path(tempfile.mkdtemp(prefix="upl-view-")) / f"{name}.html")


def show(path: str) -> None:
    """Open a page in the browser, and say where it is."""
    print(path)
    show_address(Path(path).resolve().as_uri())


def show_address(address: str) -> None:
    """Open an address in the browser."""
    import webbrowser

    if not webbrowser.open(address):
        print("no browser was found: open the page yourself", file=sys.stderr)


def edit(args: argparse.Namespace) -> int:
    """Serve the editor until it is interrupted; returns the exit status."""
    others = {
        "-o": args.output, "--trace": args.trace, "--circuit": args.circuit, "--of": args.of, "--wrt": args.wrt,
        "-D": args.define, "--total": args.total,
    }  # fmt: skip
    if given := [name for name, value in others.items() if value]:
        raise UsageError(f"--edit shows the program as it is written: leave out {', '.join(given)}")
    if args.file == "-":
        raise UsageError("--edit writes to FILE: the standard input is none")
    from upl_mlir.tools.editor.server import Server

    server = Server(Path(args.file), args.port or 0)
    try:
        print(f"editing {args.file} at {server.address}\nCtrl-C ends it", flush=True)
        if args.open:
            show_address(server.address)
        server.serve_forever()
    except Terminated:
        raise
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
    return 0


def run(p: Program, args: argparse.Namespace) -> int:
    """Write the page; returns the exit status."""
    from upl_mlir.observe.replay import load_trace
    from upl_mlir.observe.viewing import view

    wrt = derivatives.wrt_of(args)
    trace = load_trace(args.trace) if args.trace else None
    with waiting("laying out"):
        page = view(p, of=args.of, wrt=wrt, mode=args.mode, total=args.total, trace=trace)
    write_whole(args.output, page)
    return 0


def traced(
    p: Program, args: argparse.Namespace, arrays: Mapping[str, Any]
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Run a program on the interpreter, a machine or as a circuit and write the trace, also of a run that fails: outputs
    and statistics.

    Raises that run's UplError.
    """
    from upl_mlir.observe.replay import record

    if args.engine not in (EngineName.INTERP, EngineName.RTL, EngineName.CIRCUIT):
        raise UsageError(f"--trace records the interpreter, machines and circuits, not --engine {args.engine}")
    if args.trace is not None and Path(args.trace).suffix not in (".json", ".gz", ".pftrace"):
        raise UsageError(f"--trace {args.trace}: expected a name that ends in .json, .json.gz or .pftrace")
    params = {name: value for name, value in arrays.items() if name in p.params}
    if args.engine == EngineName.CIRCUIT:
        from upl_mlir.observe.circuit_trace import record_circuit, save_circuit_trace, save_circuit_waves
        from upl_mlir.passes.lower_to_circuit import wish

        given = {n: v for n, v in arrays.items() if n not in params}
        asked = wish(args.lanes, args.along, share=args.share, real=args.real or "f32")
        seen, done = record_circuit(p, given, asked, **params)
        if args.trace is not None:
            save_circuit_trace(p, seen, args.trace)
        if args.vcd is not None:
            save_circuit_waves(seen, args.vcd, args.vcd_window)
        return done.outputs, done.stats.to_dict()
    if args.engine == EngineName.RTL:
        from upl_mlir.observe.machine_trace import record_machine, save_machine_trace, save_waves

        given = {n: v for n, v in arrays.items() if n not in params}
        run, ended = record_machine(p, given, args.machine, args.simulator, **params)
        if args.trace is not None:
            save_machine_trace(p.expanded(), run, ended, args.trace)
        if args.vcd is not None:
            save_waves(run, args.vcd, args.vcd_window)
        if isinstance(ended, UplError):
            raise ended
        return ended.outputs, ended.stats.to_dict()
    if args.vcd is not None:
        raise UsageError(f"--vcd shows machines and circuits (--engine rtl, circuit), not --engine {args.engine}")
    assert args.trace is not None
    trace, result = record(
        p, {n: v for n, v in arrays.items() if n not in params}, real=args.real or "f64", gather=args.gather,
        order=args.order, seed=args.seed, **params,
    )  # fmt: skip
    trace.save(args.trace)
    if isinstance(result, UplError):
        raise result
    return result.outputs, result.stats.to_dict()
