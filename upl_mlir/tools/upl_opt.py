"""`upl-opt`: the compiler driver, in the manner of `mlir-opt` and `xdsl-opt`.

    upl-opt FILE [passes] [-t upl|mlir|c|verilog] [-o OUT] [-D NAME=VALUE]...

FILE is `.upl`, `.mlir` or `-` (which of both is seen from the text, or said with `-f`).  Passes are flags run in the
order given, or one `-p` pipeline.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipeline
from xdsl.printer import Printer
from xdsl.utils.arg_spec import parse_pipeline, parse_spec
from xdsl.utils.exceptions import ArgSpecParseError, DiagnosticException, ParseError
from xdsl.xdsl_opt_main import xDSLOptMain

from upl_mlir import __version__
from upl_mlir.api.mlir_text import read_module
from upl_mlir.diagnostics import Diagnostic, Sources, UplError, decode, did_you_mean, error, read_bytes
from upl_mlir.dialects.upl.query import program_of
from upl_mlir.dialects.verifying import verify
from upl_mlir.tools.boundary import UsageError, definitions, describe_exception, guarded, write_whole
from upl_mlir.tools.expected import expectations, mismatches
from upl_mlir.tools.nesting import Step, reproducer, steps, without_resources
from upl_mlir.tools.terminal.colour import complain
from upl_mlir.tools.terminal.parser import Parser
from upl_mlir.universe import PASSES, UPL_UNIVERSE

if TYPE_CHECKING:
    from upl_mlir.dialects.loops.ops import LoopProgramOp

_UPL_TEXT = re.compile(rb"\s*(//[^\n]*\n\s*)*program\b")
"""How `.upl` text begins; no text of MLIR begins so."""


class _AddPass(argparse.Action):
    """A pass given as a flag: appended to the pipeline in the order of the command line."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        name = (option_string or "").removeprefix("--")
        spec = name + (f"{{{pass_options(str(values))}}}" if values else "")
        namespace.flag_passes = [*getattr(namespace, "flag_passes", []), spec]


def pass_options(text: str) -> str:
    """``of=R,wrt=X,wrt=W`` (or ``wrt=X,W``) as xDSL spells options: ``of="R" wrt="X","W"``."""
    options: dict[str, list[str]] = {}
    key = ""
    for part in text.split(","):
        name, sep, value = part.partition("=")
        if sep:
            key = name.strip()
            options.setdefault(key, []).append(value.strip())
        elif key:
            options[key].append(part.strip())
        else:
            raise UsageError(f"pass option `{part}`: expected NAME=VALUE")
    return " ".join(f"{k}={','.join(_quoted(v) for v in vs)}" for k, vs in options.items())


def _quoted(value: str) -> str:
    return value if value.lstrip("-").isdigit() or value in ("true", "false") else f'"{value}"'


class UplOptMain(xDSLOptMain):
    """The driver: xDSL's, with UPL text, our passes as flags, and errors with positions."""

    version_format = f"upl-opt {__version__}, built on xDSL {{xdsl_version}}"

    def __init__(self, args: Sequence[str]):
        self.sources = Sources()  # what positions in messages refer to
        # The options of a pass stand behind `=`: in `--check f.upl`, f.upl is the input.
        flags = {f"--{name}" for name in PASSES}
        try:
            super().__init__(description="UPL compiler driver", args=[f"{a}=" if a in flags else a for a in args])
        except ArgSpecParseError as e:  # a BaseException; the pipeline's is caught where it is read
            raise UsageError(f"-t: {_spec_fault(e)}") from e

    def register_all_frontends(self) -> None:
        """`.mlir` by the locating parser, `.upl` by ours."""
        self.available_frontends["mlir"] = self._parse_mlir
        self.available_frontends["upl"] = self._parse_upl

    def _parse_mlir(self, stream: IO[bytes]) -> ModuleOp:
        name = self.get_input_name()
        implicit = not self.args.no_implicit_module
        text, kept = without_resources(decode(stream.read(), name))
        if self.args.run_reproducer:
            if kept is None:
                raise UsageError(f"--run-reproducer: {name} keeps no pipeline")
            self._set_pipeline(kept)
        module = read_module(text, name, self.ctx, implicit_module=implicit)
        if self.args.define:
            from upl_mlir.passes.bind_parameters import bind_definitions

            verify(module)
            bind_definitions(program_of(module), definitions(self.args.define))
        return module

    def _parse_upl(self, stream: IO[bytes]) -> ModuleOp:
        from upl_mlir.frontend.upl_text.load import load_text

        if self.args.run_reproducer:
            raise UsageError(f"--run-reproducer: {self.get_input_name()} keeps no pipeline")
        text = decode(stream.read(), self.get_input_name())
        return load_text(text, self.get_input_name(), definitions(self.args.define))

    def register_all_dialects(self) -> None:
        """Ours and xDSL's own, without looking for plug-ins: that would cost a third of the start-up time."""
        from xdsl.dialects import get_all_dialects

        for name, factory in {**get_all_dialects(), **UPL_UNIVERSE.all_dialects}.items():
            self.ctx.register_dialect(name, factory)

    def register_all_passes(self) -> None:
        """Ours and xDSL's own."""
        from xdsl.transforms import get_all_passes

        for name, factory in {**get_all_passes(), **PASSES}.items():
            self.register_pass(name, factory)

    def register_all_targets(self) -> None:
        """Ours and xDSL's own."""
        from xdsl.targets import get_all_targets

        self.available_targets.update({**get_all_targets(), **UPL_UNIVERSE.all_targets})

    def register_all_arguments(self, arg_parser: argparse.ArgumentParser) -> None:
        """xDSL's arguments, ours, and the names that mlir-opt has for some of them."""
        super().register_all_arguments(arg_parser)
        arg_parser.__class__, arg_parser.allow_abbrev = Parser, False  # xDSL makes the parser itself
        arg_parser.prog = "upl-opt"
        arg_parser.add_argument("-D", dest="define", action="append", default=[], metavar="NAME=VALUE",
                                help="bind a parameter or override a constant; lists as [4,5,3]")  # fmt: skip
        arg_parser.add_argument("--debug", action="store_true", help="show the Python traceback of an error")
        arg_parser.add_argument("--pass-pipeline", metavar="PIPELINE",
                                help="as -p; may be nested: builtin.module(a,upl.program(b))")  # fmt: skip
        arg_parser.add_argument("--mlir-print-ir-after-all", action="store_true", help="print the IR after each pass")
        arg_parser.add_argument("--mlir-print-ir-before-all", action="store_true", help="print the IR before passes")
        arg_parser.add_argument("--mlir-pass-statistics", "--pass-statistics", action="store_true",
                                help="print how many operations there were before and after each pass")  # fmt: skip
        arg_parser.add_argument("--verify-each", choices=["true", "false"], const="true", default="true", nargs="?",
                                help="verify after each pass (the default), or at the end only")  # fmt: skip
        arg_parser.add_argument("--show-dialects", action="store_true", help="print the dialects that can be read")
        arg_parser.add_argument("--run-reproducer", action="store_true", help="run the pipeline that the input keeps")
        arg_parser.add_argument("--mlir-timing", action="store_true", help="print the time that each pass took")
        arg_parser.add_argument("--mlir-pass-pipeline-crash-reproducer", metavar="FILE",
                                help="when a pass fails, write its input and the rest of the pipeline to FILE")  # fmt: skip
        passes = arg_parser.add_argument_group("passes, run in the order given")
        for name in PASSES:
            passes.add_argument(f"--{name}", action=_AddPass, nargs="?", const="", metavar="OPTIONS")

    def setup_pipeline(self) -> None:
        """The passes of `-p`, `--pass-pipeline` or the flags, in that order of precedence."""
        flags: list[str] = getattr(self.args, "flag_passes", [])
        if bool(self.args.passes) + bool(self.args.pass_pipeline) + bool(flags) > 1:
            raise UsageError("give passes either as flags, or by -p, or by --pass-pipeline")
        self._set_pipeline((self.args.passes or self.args.pass_pipeline or ",".join(flags)).strip())

    def _set_pipeline(self, spec: str) -> None:
        """The passes of a text."""
        try:
            self.steps = steps(spec)
            for anchor in dict.fromkeys(s.anchor for s in self.steps if s.anchor):
                if self.ctx.get_optional_op(anchor) is None:
                    raise ValueError(f"there is no operation `{anchor}`")
            flat = ",".join(s.text for s in self.steps)
            for p in parse_pipeline(flat):
                if p.name not in self.available_passes:
                    hint = did_you_mean(p.name, self.available_passes)
                    raise ValueError(f"there is no pass `{p.name}`" + (f"; {hint}" if hint else ""))
            self.pipeline = PassPipeline.parse_spec(self.available_passes, flat)
        except (ArgSpecParseError, DiagnosticException, ParseError, ValueError, TypeError) as e:
            raise UsageError(f"pass pipeline `{spec}`: {_spec_fault(e)}") from e

    def get_input_stream(self) -> tuple[IO[bytes], str]:
        """The input and its kind; `-` and nothing mean the standard input."""
        if self.args.input_file in (None, "-"):
            data = sys.stdin.buffer.read()
            return io.BytesIO(data), self.args.frontend or ("upl" if _UPL_TEXT.match(data) else "mlir")
        path = Path(self.args.input_file)
        kind = path.suffix.removeprefix(".")
        if not self.args.frontend and kind not in self.available_frontends:
            raise UsageError(f"{path}: unknown kind of file `.{kind}`; expected .upl or .mlir, or say -f upl")
        return io.BytesIO(read_bytes(path)), kind

    def parse_chunk(self, chunk: IO[bytes], file_extension: str, start_offset: int = 0) -> ModuleOp | None:
        """Parse a part of a split file; empty lines in front of it give positions as in the whole file."""
        data = b"\n" * start_offset + chunk.read()
        name = self.get_input_name()
        self.sources.add(name, data.decode("utf-8", "replace"))
        return super().parse_chunk(io.BytesIO(data), file_extension)

    def output_resulting_program(self, prog: ModuleOp) -> str:
        """The text in the target's form; behind MLIR, the schedules that it holds, line by line, as comments.

        Faults of targets that are not ours are faults of the request.
        """
        name = parse_spec(self.args.target).name
        try:
            text = super().output_resulting_program(prog)
            return text + _schedules(prog) if name == "mlir" else text
        except UplError:
            raise
        except Exception as e:
            if name in UPL_UNIVERSE.all_targets:
                raise
            raise error("UPL1803", f"the target `{name}` of xDSL cannot write this: {_brief(e)}") from e

    def apply_passes(self, prog: ModuleOp) -> None:
        """Run the pipeline, verifying between passes."""
        self._verify(prog)
        each = self.args.verify_each == "true"
        for n, (p, step) in enumerate(zip(self.pipeline.passes, self.steps, strict=True)):
            if step.anchor and not any(op.name == step.anchor for op in prog.walk()):
                continue  # as mlir-opt: nested passes run on the operations that there are
            before = str(prog) if self.args.mlir_pass_pipeline_crash_reproducer else ""
            if self.args.mlir_print_ir_before_all:
                self._print("before", p, prog)
            count = sum(1 for _ in prog.walk()) if self.args.mlir_pass_statistics else 0
            start = time.perf_counter()
            try:
                self._apply(p, prog)
                if each or n + 1 == len(self.steps):
                    self._verify(prog)
            except Exception:
                if before:
                    self._write_reproducer(before, self.steps[n:], p, each=each)
                raise
            if self.args.mlir_pass_statistics:
                print(f"{p.name}: {count} operations before, {sum(1 for _ in prog.walk())} after", file=sys.stderr)
            if self.args.time_passes or self.args.mlir_timing:
                print(f"{p.name}: {time.perf_counter() - start:.3f} s", file=sys.stderr)
            if self.args.print_between_passes or self.args.mlir_print_ir_after_all:
                self._print("after", p, prog)

    def _print(self, when: str, p: ModulePass, prog: ModuleOp) -> None:
        """The IR before or after a pass, to the error stream."""
        print(f"// -----// IR {when} {p.name} //----- //", file=sys.stderr)
        Printer(stream=sys.stderr).print_op(prog)
        print(file=sys.stderr)

    def _apply(self, p: ModulePass, prog: ModuleOp) -> None:
        """Apply a pass.  A fault of one that is not ours is a fault of the request."""
        try:
            p.apply(self.ctx, prog)
        except (UplError, DiagnosticException):
            raise
        except Exception as e:
            if p.name in PASSES:
                raise
            raise error("UPL1803", f"the pass `{p.name}` of xDSL failed: {_brief(e)}") from e

    def _verify(self, prog: ModuleOp) -> None:
        if not self.args.disable_verify:
            verify(prog)

    def _write_reproducer(self, before: str, rest: Sequence[Step], failed: ModulePass, *, each: bool) -> None:
        path = self.args.mlir_pass_pipeline_crash_reproducer
        write_whole(path, reproducer(before, rest, verify_each=each))
        print(f"wrote {path}, which reproduces the failure of {failed.name}: upl-opt --run-reproducer", file=sys.stderr)

    def process(self) -> int:
        """Process every chunk; returns the exit status.  Output is written whole at the end, or not at all."""
        if self.args.show_dialects:
            print("\n".join(sorted(self.ctx.registered_dialect_names)))
            return 0
        chunks, kind = self.prepare_input()
        out: list[str] = []
        failed = 0
        for n, (chunk, offset) in enumerate(chunks):
            if n:
                out.append("// -----\n")
            wanted: list[tuple[int, str, str]] = []
            if self.args.verify_diagnostics:
                data = chunk.read()
                chunk = io.BytesIO(data)
                wanted = expectations(data.decode("utf-8", "replace"), offset)
            given: tuple[Diagnostic, ...] = ()
            try:
                module = self.parse_chunk(chunk, kind, offset)
                if module is not None:
                    self.apply_passes(module)
                    text = self.output_resulting_program(module)
                    out.append(text if text.endswith("\n") else text + "\n")
            except (UplError, ParseError, DiagnosticException) as e:
                if isinstance(e, UplError):
                    e.sources.texts = {**self.sources.texts, **e.sources.texts}
                if wanted and isinstance(e, UplError):
                    given = e.diagnostics
                elif self.args.verify_diagnostics:
                    out.append(describe_exception(e) + "\n")
                elif self.args.split_input_file and not self.args.debug:
                    complain(describe_exception(e))
                    failed = 1
                else:
                    raise
            for message in mismatches(wanted, given) if wanted else ():
                print(f"{self.get_input_name()}: {message}", file=sys.stderr)
                failed = 1
        if not failed:
            write_whole(self.args.output_file, "".join(out))
        return failed


def _schedules(module: ModuleOp) -> str:
    """The loops that `--schedule` made, for people, as comments."""
    lines: list[str] = []
    for op in module.body.block.ops:
        if op.name == "upl_loops.program":
            from upl_mlir.passes.loops.ir import read
            from upl_mlir.passes.loops.show import schedule_lines

            p = read(cast("LoopProgramOp", op))
            lines += [f"// {line}" for line in schedule_lines(p.tree or (), p.arrays or {})]
    return "\n".join(["", *lines, ""]) if lines else ""


def _brief(e: BaseException) -> str:
    lines = str(e).strip().splitlines()
    return f"{type(e).__name__}: {lines[0]}" if lines else type(e).__name__


def _spec_fault(e: BaseException) -> str:
    """What is wrong with a pipeline or a target: xDSL's message without the text, which the caller shows."""
    lines = (e.msg if isinstance(e, ParseError) else str(e)).strip().splitlines()
    return lines[-1].strip() if isinstance(e, ArgSpecParseError) else lines[0]


def _main(argv: Sequence[str]) -> int:
    return UplOptMain(argv).process()


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the script `upl-opt`; returns the exit status."""
    return guarded(_main, argv)


