"""`upl`: the workbench.  Check a program, differentiate it, run it on an engine, train with it, format it."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from upl_mlir import __version__
from upl_mlir.diagnostics import error, not_installed, unreadable
from upl_mlir.engines.names import SIMULATORS, EngineName
from upl_mlir.tools import (
    breaks,
    circuits,
    derivatives,
    draw,
    einsum,
    explain,
    explore,
    fmt,
    plot,
    quantize,
    synth,
    view,
    wrap,
)
from upl_mlir.tools.boundary import STDIN, UsageError, definitions, guarded, standard_input, whole_file, write_whole
from upl_mlir.tools.ranks import commands as ranks
from upl_mlir.tools.terminal import completion, examples
from upl_mlir.tools.terminal.parser import Parser, WithExamples
from upl_mlir.tools.terminal.progress import waiting

if TYPE_CHECKING:
    from upl_mlir.api.programs import Program


def _parser() -> Parser:
    top = Parser(prog="upl", description=__doc__)
    top.add_argument("--version", action="version", version=f"upl {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def plain(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name, help=text, description=text, epilog=examples.shown(name), formatter_class=WithExamples
        )

    def command(name: str, text: str, many: bool = False) -> argparse.ArgumentParser:
        p = plain(name, text)
        if many:
            p.add_argument("files", metavar="FILE", nargs="+", help="a program, .upl or .mlir; `-`: the standard input")
        else:
            p.add_argument("file", metavar="FILE", help="a program, .upl or .mlir; `-`: the standard input")
        p.add_argument("-D", dest="define", action="append", default=[], metavar="NAME=VALUE",
                       help="bind a parameter or override a constant; lists as [4,5,3]")  # fmt: skip
        p.add_argument("--debug", action="store_true", help="show the Python traceback of an error")
        return p

    p = command("check", "prove, before anything runs, that no token strands and nothing deadlocks", many=True)
    p.add_argument("--json", action="store_true", help="the report as JSON")
    p.add_argument("-q", "--quiet", action="store_true", help="print what is refuted and nothing else")
    p.add_argument("-v", "--verbose", action="store_true", help="list what is proved, too")
    p.add_argument("--schema", action=_PrintSchema, nargs=0, help="print the JSON Schema of that report, and leave")
    p.add_argument("--ranks", action="store_true",
                   help="prove also, for any number of ranks, that each has what it reads, at each step")  # fmt: skip
    circuits.add_arguments(p, "what is proved of the program's circuit: reads after writes, depths, no standstill")
    p = command("grad", "the program of the derivatives, as .upl text")
    derivatives.add_arguments(p, required=True)
    p.add_argument("--explain", action="store_true", help="say on the standard error which rule made what, and why")
    p.add_argument("-o", dest="output", metavar="FILE", help="where to write; default: the standard output")
    p = command("jacobian", "the program with all derivatives of outputs by inputs, J_R_X, as .upl text")
    derivatives.add_jacobian_arguments(p)
    explain.add_arguments(command("explain", "a derivative arrow by arrow: where each comes from, and by which rule"))
    p = command("draw", "the picture of a program in UPL's notation, as SVG, PNG or for Graphviz")
    draw.add_arguments(p)
    circuits.add_arguments(p, "the program's circuit: ports, lanes with their units, channels")
    p = command("view", "one page with the picture, the passes step by step, and the replay of a run")
    view.add_arguments(p)
    circuits.add_arguments(p, "the page of the program's circuit, with the replay of a run by its schedule")
    p = command("run", "run a program")
    _run_options(p)
    p = command("train", "train with a program that holds `adjoint of` and the update")
    p.add_argument("--data", required=True, metavar="D.npz", help="arrays by input name; the first axis is the example")
    p.add_argument("--carry", required=True, action="append", metavar="OUT=IN",
                   help="an output that becomes an input of the next call, for instance W_out=W")  # fmt: skip
    p.add_argument("--epochs", type=int, default=10, help="passes over the data (default 10)")
    p.add_argument("--batch", type=int, default=0, help="examples in one call; default: all")
    p.add_argument("--engine", choices=[*map(str, EngineName)], default="interp")
    p.add_argument("--real", metavar="TYPE", help="what the type `real` is: f64, f32, f16, bf16, or fixed point as q4.12")
    circuits.add_lanes(p, "of --engine circuit: ", lanes=1)
    _threads_option(p)
    p.add_argument("--seed", type=int, default=0, help="of the order of examples and of missing initial weights")
    p.add_argument("--outputs", default="R", metavar="NAME", help="the output that holds the predictions (default R)")
    p.add_argument("--targets", default="Y", metavar="NAME", help="the input that holds what is wanted (default Y)")
    p.add_argument("-o", dest="output", metavar="OUT.npz", help="where to write the trained arrays")
    p.add_argument("--plot", metavar="F.svg|png|pdf", help="plot loss and accuracy, epoch by epoch")
    p.add_argument("-q", "--quiet", action="store_true", help="print the last epoch only")
    einsum.add_arguments(plain("einsum", "an einsum case as a UPL program, as its gradient, or as C++; and back"))
    plot.add_arguments(plain("plot", "plot a recorded run: parallelism and waiting tokens"))
    quantize.add_arguments(plain("quantize", "which small type a program needs, by ranges, and what each loses against f64"))
    synth.add_arguments(plain("synth", "what a machine or a circuit costs: LUTs, flip-flops, block RAMs, its clock"))
    p = command("wrap", "a program's circuit on a bus: Verilog, a C header and a module for LiteX")
    wrap.add_arguments(p)
    explore.add_arguments(plain("explore", "run a program on many machines: which is the best for it?"))
    p = plain("lsp", "a language server, for editors: errors while typing, names, completion, fixes (docs/editors.md)")
    p.add_argument("--stdio", action="store_true", help="speak on standard input and output, as it does anyway")
    p.add_argument("--debug", action="store_true", help="show the Python traceback of an error")
    completion.add_arguments(plain("completion", "a script with which a shell completes commands, options and files"))
    fmt.add_arguments(plain("fmt", "format .upl files in place: one layout, nothing of the text lost"))
    return top


class _PrintSchema(argparse.Action):
    """The option ``--schema``, which needs no FILE."""

    def __call__(self, parser: argparse.ArgumentParser, *_args: object, **_kwargs: object) -> None:
        from upl_mlir.tools.report import schema

        print(json.dumps(schema(), indent=2))
        parser.exit()


def _run_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--engine", choices=[*map(str, EngineName)], default="interp",
                   help="interpreter, the same compiled, machine code, a simulated machine, a simulated circuit, "
                   "or the reference")  # fmt: skip
    p.add_argument("--force", action="store_true", help="run a program of which something is refuted, too: the interpreter, "
                   "the token engine and the machine check each token, and stop where it goes wrong")  # fmt: skip
    p.add_argument("--input", action="append", default=[], metavar="NAME=VALUE",
                   help="an array: a .npy or .npz file, a number or a JSON list; or all at once: DATA.npz")  # fmt: skip
    p.add_argument("--output", metavar="OUT.npz|DIR", help="where to write the outputs; default: print them")
    p.add_argument("--seed", type=int, default=0, help="of a random arrival order")
    p.add_argument("--order", choices=["fifo", "random"], default="fifo", help="arrival order of tokens")
    p.add_argument("--gather", choices=["relaxed", "ordered"], default="relaxed", help="how sums are folded")
    p.add_argument("--real", metavar="TYPE", help="what the type `real` is: f64, f32, f16, bf16, or fixed point as q8.8")
    p.add_argument("--stats", metavar="S.json", help="write statistics")
    p.add_argument(
        "--trace", metavar="T.json", help="record the run, for `upl view` (T.json.gz: compressed; T.pftrace: for Perfetto)"
    )
    p.add_argument("--machine", metavar="M.toml", help="machine description for --engine rtl")
    p.add_argument("--simulator", choices=SIMULATORS, help="of --engine rtl: what runs its RTL (default: compiled, or "
                   "amaranth where there is no C++ compiler)")  # fmt: skip
    circuits.add_lanes(p, "of --engine circuit: ", lanes=1)
    p.add_argument("--bench", metavar="DIR", help="of --engine circuit: write its Verilog, a bench and this run's words")
    p.add_argument("--vcd", metavar="W.vcd", help="with --engine rtl or circuit: waveforms of what it does, in words")
    p.add_argument("--vcd-window", metavar="A:B", help="the cycles that they show (default: all)")
    p.add_argument("--ranks", type=int, metavar="N", help="run on N ranks with MPI (engine mpi); starts `mpiexec`")
    p.add_argument("--checkpoint", metavar="DIR", help="of --engine mpi: save the state of a loop over steps there, and "
                   "take up a run that was ended before its time")  # fmt: skip
    p.add_argument("--every", type=int, default=1, metavar="N", help="of --checkpoint: save every N steps (default 1)")
    p.add_argument("--why", metavar="PLACE", help="say what `Link.w<1,2,3,4>` (an input, a node's instance, an output's "
                   "element) waits for and who should send it, in place of the outputs")  # fmt: skip
    p.add_argument("--break", dest="breaks", action="append", default=[], metavar="PLACE",
                   help="stop the interpreter where `Link<1,2,*,4>` fires, or where a token comes to `Link.w` or `R<1,*>`, "
                   "and show the tokens; may be repeated")  # fmt: skip
    _threads_option(p)


def _threads_option(p: argparse.ArgumentParser) -> None:
    p.add_argument("--threads", type=int, default=1, metavar="N", help="of --engine native (default 1)")


def _load(args: argparse.Namespace, file: str | None = None) -> Program:
    """The program of a command line: in a file, or `-` on the standard input."""
    from upl_mlir.api.programs import load, of_text

    name: str = args.file if file is None else file
    if name == "-":
        return of_text(standard_input(), STDIN, definitions(args.define))
    return load(Path(name), **definitions(args.define))


def _right(args: argparse.Namespace) -> Program:
    """The program to run.  Raises UplError (UPL13xx) where something is refuted, unless it is run by force."""
    p = _load(args)
    if not args.force and args.engine not in (EngineName.NATIVE, EngineName.MPI):  # which ask for more, by themselves
        p.require_not_refuted("`--force` runs it all the same, up to where it goes wrong")
    return p


def _check(args: argparse.Namespace) -> int:
    from upl_mlir.tools import report

    if circuits.wanted(args):
        args.file, *more = args.files
        if more:
            raise UsageError("--circuit: expected one FILE")
        return circuits.check(args)

    def distributed(program: Program) -> str:
        return ranks.check(program)

    return report.check(
        args.files, lambda file: _load(args, file), json=args.json, quiet=args.quiet, verbose=args.verbose,
        further=distributed if args.ranks else None,
    )  # fmt: skip


def _grad(args: argparse.Namespace) -> int:
    derived = derivatives.derived(_load(args), args)
    for note in derived.notes:
        print(f"note: {note}", file=sys.stderr)
    if args.explain:
        from upl_mlir.observe.explain import explain as explained

        print(explain.text(explained(derived)), file=sys.stderr)
    write_whole(args.output, str(derived))
    return 0


def _jacobian(args: argparse.Namespace) -> int:
    from upl_mlir.api.jacobians import jacobian

    of, wrt = derivatives.ports(args.of), derivatives.ports(args.wrt)
    derived = jacobian(_load(args), of, wrt, args.mode, total=args.total)
    for note in derived.notes:
        print(f"note: {note}", file=sys.stderr)
    write_whole(args.output, str(derived))
    return 0


def _explain(args: argparse.Namespace) -> int:
    p = _load(args)
    if args.distribute:
        return ranks.explain(derivatives.derived(p, args) if args.of else p, args)
    return explain.run(p, args)


def _draw(args: argparse.Namespace) -> int:
    if circuits.wanted(args):
        return circuits.draw(args)
    program = _load(args)
    with waiting("laying out"):
        return draw.run(program, args)


def _view(args: argparse.Namespace) -> int:
    if args.edit:
        return view.edit(args)
    if args.port is not None:
        raise UsageError("--port goes with --edit")
    view.require_output(args)
    status = circuits.view(args) if circuits.wanted(args) else view.run(_load(args), args)
    if args.open:
        view.show(args.output)
    return status


def _arrays(items: Sequence[str]) -> dict[str, Any]:
    """The arrays of `--input` options."""
    import numpy as np

    out: dict[str, Any] = {}
    for item in items:
        name, sep, value = item.partition("=")
        if not sep:
            out |= dict(_open(item))
        elif value.endswith((".npy", ".npz")):
            data = _open(value)
            if not isinstance(data, np.ndarray) and name not in data:
                raise error("UPL1501", f"{value} holds no array `{name}`: it has {', '.join(data)}")
            out[name] = data if isinstance(data, np.ndarray) else data[name]
        else:
            try:
                out[name] = json.loads(value)
            except ValueError:
                raise UsageError(f"--input {item}: expected a .npy or .npz file, a number or a JSON list") from None
    return out


def _open(path: str) -> Any:
    """The array of a .npy file, or the arrays of an .npz file by name."""
    import numpy as np

    try:
        with Path(path).open("rb") as stream:
            data = np.load(stream, allow_pickle=False)
            return cast(Any, data) if isinstance(data, np.ndarray) else {n: data[n] for n in data.files}
    except (FileNotFoundError, IsADirectoryError, PermissionError) as e:
        raise unreadable(path, e) from None
    except Exception as e:  # a damaged file makes numpy, zipfile, zlib, tokenize and ast raise what they like
        why = "it holds Python objects" if "allow_pickle" in str(e) else e
        raise error("UPL1504", f"{path} is not an array file of numpy: {why}") from None


_RUNS = {
    "rtl": "running (the first run compiles the machine, which takes about a minute)",
    "circuit": "running (the first run compiles the circuit)",
    "native": "compiling and running", "token": "compiling and running",
}  # fmt: skip
"""What takes time when an engine runs a program."""


def _run(args: argparse.Namespace) -> int:
    if args.ranks is not None:
        return ranks.start(args)
    if args.engine == EngineName.MPI:
        return ranks.alike(lambda: _run_here(args))
    return _run_here(args)


def _run_here(args: argparse.Namespace) -> int:
    """Run in this process."""
    from upl_mlir.api.programs import compile

    if args.why is not None:
        from upl_mlir.observe.why import why

        p = _load(args)
        arrays = _arrays(args.input)
        params = {name: arrays.pop(name) for name in p.params if name in arrays}
        print("\n".join(why(p, args.why, arrays, **params).lines()))
        return 0
    if args.breaks:  # like `--why`, for programs that go wrong
        ended = breaks.run(_load(args), args, _arrays(args.input))
        if ended is None:
            return 0
        out, stats = ended
    elif args.trace is not None or args.vcd is not None:
        with waiting(_RUNS.get(args.engine, "running")):
            out, stats = view.traced(_right(args), args, _arrays(args.input))
    else:
        f = compile(
            _right(args), args.engine, real=args.real, gather=args.gather, order=args.order, seed=args.seed,
            machine=args.machine, threads=args.threads, lanes=args.lanes, along=args.along, share=args.share,
            bench=args.bench, simulator=args.simulator, checkpoint=args.checkpoint, every=args.every,
        )  # fmt: skip
        arrays = _arrays(args.input)
        with waiting(_RUNS.get(args.engine, "running")):
            out, stats = f(**arrays), f.stats
    if args.engine == EngineName.MPI and stats["rank"]:
        return 0  # the first rank writes
    if stats.get("taken_up_at") is not None:
        print(f"note: taken up at iteration {stats['taken_up_at']} of {args.checkpoint}", file=sys.stderr)
    with ExitStack() as files:  # all of them, or none
        if args.stats:
            text = json.dumps(stats, indent=2, ensure_ascii=False) + "\n"
            files.enter_context(whole_file(args.stats)).write(text.encode("utf-8"))
        if args.output is not None:
            save_arrays(args.output, out)
    if args.output is None:
        for name, values in out.items():
            print(f"{name} =\n{values}" if values.ndim else f"{name} = {values}")
    return 0


def save_arrays(path: str, arrays: dict[str, Any]) -> None:
    """Write arrays to an .npz file, or one .npy file for each into a directory; all of them or none."""
    import numpy as np

    target = Path(path)
    if target.suffix == ".npz":
        with whole_file(target) as stream:
            np.savez(stream, **arrays)
        return
    if target.suffix and not target.is_dir():
        raise UsageError(f"{path}: expected a name that ends in .npz, or a folder, which gets a .npy file for each array")
    target.mkdir(parents=True, exist_ok=True)
    with ExitStack() as files:
        for name, values in arrays.items():
            np.save(files.enter_context(whole_file(target / f"{name}.npy")), values)


def _train(args: argparse.Namespace) -> int:
    from upl_mlir.api.training import Training

    carry: dict[str, str] = {}
    for item in args.carry:
        out, sep, into = item.partition("=")
        if not sep:
            raise UsageError(f"--carry {item}: expected OUTPUT=INPUT")
        carry[out] = into
    if args.epochs < 0:
        raise UsageError(f"--epochs {args.epochs}: expected a number of passes over the data")
    data = _open(args.data)
    if not isinstance(data, dict):
        raise error("UPL1504", f"{args.data} holds one array: expected an .npz file with one for each input")
    training = Training(
        _load(args), cast("dict[str, Any]", data), carry, engine=args.engine, batch=args.batch, seed=args.seed,
        outputs=args.outputs, targets=args.targets, threads=args.threads, real=args.real, lanes=args.lanes,
        along=args.along, share=args.share,
    )  # fmt: skip
    start = time.perf_counter()
    curves: list[tuple[float, float]] = []
    for epoch in training.epochs(args.epochs, progress=sys.stderr.isatty() and not args.quiet):
        curves.append((epoch.loss, epoch.accuracy))
        right = "" if math.isnan(epoch.accuracy) else f"   accuracy {100 * epoch.accuracy:5.1f} %"
        if args.quiet and epoch.number < args.epochs:
            continue
        print(f"epoch {epoch.number:3d}   loss {epoch.loss:.6f}{right}", flush=True)
    seconds = time.perf_counter() - start
    if args.epochs:  # apart from the results, which are the same in every run
        print(f"{args.epochs} epochs in {seconds:.3g} s: {args.epochs / seconds:.3g} epochs/s", file=sys.stderr)
    if args.output:
        save_arrays(args.output, training.state)
    if args.plot:
        from upl_mlir.observe.plots import save_training

        save_training([loss for loss, _ in curves], [accuracy for _, accuracy in curves], args.plot)
    return 0


def _quantize(args: argparse.Namespace) -> int:
    return quantize.run(args, _load(args), _arrays(args.input))


def _fmt(args: argparse.Namespace) -> int:
    return fmt.run(args.files, check=args.check, stdout=args.stdout)


def _lsp(_args: argparse.Namespace) -> int:
    try:
        from upl_mlir.tools.lsp.server import run
    except ImportError as e:
        if (e.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise not_installed("the language server needs", "pygls", "lsp") from None
    return run()


def _completion(args: argparse.Namespace) -> int:
    return completion.run(args.shell, _parser())


_COMMANDS = {
    "check": _check, "grad": _grad, "jacobian": _jacobian, "explain": _explain, "draw": _draw, "view": _view, "run": _run,
    "train": _train,
    "einsum": einsum.run, "plot": plot.run, "quantize": _quantize, "synth": synth.run, "wrap": wrap.run,
    "explore": explore.run, "fmt": _fmt, "lsp": _lsp, "completion": _completion,
}  # fmt: skip


def _main(argv: Sequence[str]) -> int:
    parser = _parser()
    if not argv:
        parser.print_help(sys.stderr)
        return 2
    args = parser.parse_args(argv)
    args.argv = list(argv)
    return _COMMANDS[args.command](args)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the script `upl`; returns the exit status."""
    return guarded(_main, argv)
