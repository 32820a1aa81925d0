"""Malformed inputs by seed, the tool each is given to, and the judgement of its answer.

    sane answer: exit status 0, 1 or 2; with 1 a message that begins with `error[…]`; never a traceback or an internal error;
    at most 2 seconds of CPU time to refuse, and 512 MiB of memory

An input that turns out to be a right program may take longer: it is worked on.  `examine` is the campaign of the soak; saved
cases (``saved/*.json``) are tests for ever.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import json
import os
import random
import re
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from malformed.mutations import by_bytes, cut, from_grammar, mutated, one_word

ROOT = Path(__file__).resolve().parents[2]
SAVED = Path(__file__).resolve().with_name("saved")
MAX_SECONDS = 2.0
MAX_BYTES = 512 << 20
GIVE_UP_SECONDS = 20  # of CPU time
_POSITION = re.compile(r"(?m)^[^\n]*?:\d+:\d+: error\[|^error\[UPL1[58]|^[^\n]+: error\[")
PROGRAM = """program scale
param D >= 1
input X<i> in 1<=i<=D { -> M.x }
input n: int { ## -> M.n<*> }
output R<i>
output S
node M<i> { in x, n: int; v = n*x + 0.5; v -> R; v #D -> Sum.s<> }
node Sum { in @(+) s[#]; s -> S<> }
"""


class GaveUp(BaseException):
    """The answer took too long."""


@dataclass(frozen=True)
class Input:
    """A file's contents, and the command line: `upl` or `upl-opt` with FILE where the file stands."""

    kind: str
    suffix: str
    data: bytes
    command: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What a tool did: `status` None if it did not come to an end, `crash` an exception that came out."""

    status: int | None
    out: str
    err: str
    seconds: float
    grown: int
    crash: str | None = None

    def fault(self) -> str | None:
        """What is wrong with it, None if nothing."""
        if self.crash is not None:
            return f"an exception: {self.crash}"
        if self.status is None:
            return f"no answer within {GIVE_UP_SECONDS} s"
        if self.status not in (0, 1, 2):
            return f"exit status {self.status}"
        if "Traceback" in self.err or "UPL1000" in self.err:
            return f"an internal error: {self.err[:500]}"
        if self.status and "error[UPL" not in self.err + self.out and "usage:" not in self.err:
            return f"no message: {self.err[:300]!r} {self.out[:300]!r}"
        if self.status and self.seconds > MAX_SECONDS and "UPL1205" not in self.err + self.out:
            return f"{self.seconds:.1f} s to refuse it"
        if self.grown > MAX_BYTES:
            return f"{self.grown >> 20} MiB of memory"
        return None

    @property
    def outcome(self) -> str:
        """In a few words."""
        if self.status == 0:
            return "accepted"
        text = self.err + self.out
        if "UPL1205" in text:
            return "refused: too complex"
        return "refused with a position" if _POSITION.search(text) else "refused"


# -- texts ------------------------------------------------------------------------------------------------------------
@functools.cache
def texts(kind: str) -> tuple[bytes, ...]:
    """Right texts of a kind, to be mutated."""
    match kind:
        case "upl":
            return tuple(p.read_bytes() for p in sorted(ROOT.glob("examples/*.upl")) if p.stat().st_size < 3000)
        case "mlir":
            written = (p.read_bytes() for p in sorted(ROOT.glob("test/filecheck/dialects/*.mlir")))
            return (*written, *map(_mlir, texts("upl")[:6]))
        case "loops":
            written = tuple((ROOT / "test" / "Inputs" / f"{name}.mlir").read_bytes() for name in ("scan", "product"))
            return (*written, *(_opt(n, way) for n in _SMALL for way in ("--raise-to-loops", "--schedule")))
        case "machine program":
            rows = (ROOT / "test" / "Inputs" / "rows.mlir").read_bytes()
            bound = {n: [w for p in sizes for w in ("-D", f"{p}=3")] for n, sizes in _SMALL.items()}
            return (rows, *(_opt(n, *sizes, "--lower-hw") for n, sizes in bound.items()))
        case "json":
            return tuple(p.read_bytes() for p in sorted(ROOT.glob("examples/einsum/*.json")))
        case "machine":
            return ((ROOT / "test" / "Inputs" / "machine.toml").read_bytes(),)
        case "sweep":
            return (_SWEEP,)
        case "trace":
            return (_trace(),)
        case _:
            out = list[bytes]()
            some = (
                np.arange(6.0),
                np.arange(6, dtype=np.int32).reshape(2, 3),
                np.array(True),
                np.zeros((0, 3), np.float32),
            )
            for a in some:
                stream = io.BytesIO()
                if kind == "npy":
                    np.save(stream, a)
                else:
                    np.savez(stream, X=a, n=np.int64(2))
                out.append(stream.getvalue())
            return tuple(out)


def _mlir(text: bytes) -> bytes:
    import upl_mlir as upl

    return upl.load(text.decode()).to_mlir().encode()


_SMALL = {"matmul": "mnr", "jacobi1d": "Tn", "cholesky": "n", "perceptron": "D"}
"""Examples that are lowered, with their parameters."""


def _opt(name: str, *options: str) -> bytes:
    from upl_mlir.tools.upl_opt import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([str(ROOT / "examples" / f"{name}.upl"), *options]) == 0
    return out.getvalue().encode()


def _trace() -> bytes:
    from upl_mlir.tools.upl import main

    with tempfile.TemporaryDirectory() as folder:
        source, place = Path(folder) / "p.upl", Path(folder) / "t.json"
        source.write_text(PROGRAM)
        with contextlib.redirect_stdout(io.StringIO()):
            main(["run", str(source), "--input", "X=[1,2,3]", "--input", "n=2", "--trace", str(place)])
        return place.read_bytes()


_SWEEP = b"""program = "p.upl"
[define]
D = 2
[inputs]
X = "random"
[sweep]
"matching.organisation" = ["cam", "hashed"]
"matching.ways" = [1, 2, 4]
[search]
sampler = "grid"
trials = 10
objectives = ["cycles"]
"""


# -- inputs by seed ---------------------------------------------------------------------------------------------------
def _upl(rng: random.Random) -> Input:
    commands = (
        ("upl-opt", "FILE", "-t", "upl"),
        ("upl", "check", "FILE"),
        ("upl-opt", "FILE", "--check"),
        ("upl", "fmt", "--stdout", "FILE"),
        ("upl-opt", "FILE", "--infer-domains", "--simplify"),
        ("upl", "draw", "FILE", "-o", "OUT.dot"),
        ("upl", "grad", "FILE", "--of", "R", "--wrt", "X"),
        ("upl-opt", "FILE"),
        ("upl-opt", "FILE", "--lower-loops", "-t", "c"),
    )
    data = from_grammar(rng) if rng.random() < 0.4 else mutated(texts("upl"), rng)
    return Input("upl", ".upl", data, rng.choice((commands[0], rng.choice(commands))))


def _run(rng: random.Random) -> Input:
    data = mutated((PROGRAM.encode(),), rng)
    return Input("upl, run", ".upl", data, ("upl", "run", "FILE", "--input", "X=[1,2,3]", "--input", "n=2"))


def _random(rng: random.Random) -> Input:
    from agreement.generator import generate

    data = mutated((generate(rng.randrange(10**6), 3).text().encode(),), rng)
    return Input(
        "upl, random program", ".upl", data, rng.choice((("upl-opt", "FILE", "-t", "upl"), ("upl", "check", "FILE")))
    )


def _mlir_input(rng: random.Random) -> Input:
    commands = (("upl-opt", "FILE"), ("upl-opt", "FILE", "--check", "-t", "upl"), ("upl", "check", "FILE"))
    return Input("mlir", ".mlir", mutated(texts("mlir"), rng), rng.choice(commands))


def _lowered(kind: str, rng: random.Random) -> bytes:
    """Half of them get past the parser."""
    return one_word(rng.choice(texts(kind)), rng) if rng.random() < 0.6 else mutated(texts(kind), rng)


def _loops(rng: random.Random) -> Input:
    commands = (("upl-opt", "FILE"), ("upl-opt", "FILE", "--lower-loops", "-t", "c"), ("upl-opt", "FILE", "--order-loops"))
    return Input("mlir, loops", ".mlir", _lowered("loops", rng), rng.choice(commands))


def _machine_program(rng: random.Random) -> Input:
    """One input is not given: the file is read, verified and assembled, and nothing is simulated."""
    commands = (("upl-opt", "FILE"), ("upl", "run", "FILE", "--engine", "rtl", "--input", "V=[3,-1,2,1,-2]"))
    return Input("mlir, machine", ".mlir", _lowered("machine program", rng), rng.choice(commands))


def _json(rng: random.Random) -> Input:
    options = rng.choice(((), ("--grad",), ("-t", "mlir"), ("-t", "c")))
    return Input("einsum JSON", ".json", mutated(texts("json"), rng), ("upl", "einsum", "FILE", *options))


def _machine(rng: random.Random) -> Input:
    data = mutated(texts("machine"), rng)
    return Input("machine TOML", ".toml", data, ("upl-opt", "PROGRAM", "-D", "D=2", "--lower-hw=machine=FILE"))


def _sweep(rng: random.Random) -> Input:
    return Input("sweep TOML", ".toml", mutated(texts("sweep"), rng), ("upl", "explore", "FILE", "--list", "-o", "OUT"))


def _trace_input(rng: random.Random) -> Input:
    return Input("trace JSON", ".json", mutated(texts("trace"), rng), ("upl", "plot", "FILE", "-o", "OUT.svg"))


def _arrays(rng: random.Random) -> Input:
    kind = rng.choice(("npy", "npz"))
    data = rng.choice((by_bytes, cut))(rng.choice(texts(kind)), rng)
    given = ("--input", "X=FILE", "--input", "n=2") if kind == "npy" else ("--input", "FILE")
    return Input(kind, f".{kind}", data, ("upl", "run", "PROGRAM", *given))


def _line(rng: random.Random) -> Input:
    """The text stands on the command line."""
    words = (b"D=3", b"X=[1,2,3]", b"N=[1,2]", b"M.x<1>", b"M<1>", b"builtin.module(check)", b"n=2")
    text = by_bytes(rng.choice(words), rng)
    word = text.replace(b"\x00", b"").decode("utf-8", "replace")
    command = rng.choice(
        (
            ("upl", "run", "PROGRAM", "--input", "X=[1,2,3]", "--input", word),
            ("upl", "check", "PROGRAM", "-D", word),
            ("upl", "run", "PROGRAM", "--input", "X=[1,2,3]", "--input", "n=2", "--why", word),
            ("upl-opt", "PROGRAM", "-p", word),
            ("upl", "grad", "PROGRAM", "--of", word, "--wrt", "X"),
            ("upl-opt", "PROGRAM", "-t", word),
        )
    )
    return Input("command line", ".txt", b"", command)


KINDS: tuple[tuple[Callable[[random.Random], Input], int], ...] = (
    (_upl, 7),
    (_random, 3),
    (_run, 2),
    (_mlir_input, 5),
    (_json, 3),
    (_machine, 2),
    (_sweep, 1),
    (_trace_input, 2),
    (_arrays, 2),
    (_line, 2),
    (_loops, 4),
    (_machine_program, 3),
)
"""With their weights."""


def input_of(seed: int) -> Input:
    """The input of a seed."""
    rng = random.Random(f"malformed {seed}")
    ways = [way for way, n in KINDS for _ in range(n)]
    return rng.choice(ways)(rng)


# -- answers ----------------------------------------------------------------------------------------------------------
def answer(given: Input, folder: Path) -> Answer:
    """What the tool says in this process; files are made in `folder`."""
    from upl_mlir.tools.upl import main as upl_main
    from upl_mlir.tools.upl_opt import main as upl_opt_main

    tool, *args = arguments(given, folder)
    out, err = io.StringIO(), io.StringIO()
    status, crash = None, None
    before = _peak(reset=True)
    start = time.process_time()
    old = signal.signal(signal.SIGPROF, _give_up)
    signal.setitimer(signal.ITIMER_PROF, GIVE_UP_SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = (upl_main if tool == "upl" else upl_opt_main)(args)
    except GaveUp:
        pass
    except Exception as e:
        crash = f"{type(e).__name__}: {e}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)
    seconds = time.process_time() - start
    return Answer(status, out.getvalue(), err.getvalue(), seconds, max(0, _peak() - before), crash)


def arguments(given: Input, folder: Path) -> list[str]:
    """The command line, with its files written."""
    place, program = folder / f"f{given.suffix}", folder / "p.upl"
    place.write_bytes(given.data)
    program.write_text(PROGRAM)
    words = {"FILE": str(place), "PROGRAM": str(program)}
    return [
        words.get(a) or a.replace("=FILE", f"={place}")
        if "FILE" in a or a in words
        else str(folder / a.lower())
        if a.startswith("OUT")
        else a
        for a in given.command
    ]


def _give_up(*_: object) -> None:
    raise GaveUp


def _peak(*, reset: bool = False) -> int:
    """The greatest resident size so far, in bytes; where the system cannot reset it, that of the whole process."""
    with contextlib.suppress(OSError):
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return int(found[1]) << 10 if found else 0
    return 0


# -- the campaign -----------------------------------------------------------------------------------------------------
def examine(seed: int, tally: Any, save: Path | None = SAVED) -> None:
    """Judge the answer to the input of a seed; `tally` is a `campaign.Tally`."""
    given = input_of(seed)
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        os.environ["TMPDIR"] = name  # a crash writes there what reproduces it
        tempfile.tempdir = None
        try:
            got = answer(given, Path(name))
        finally:
            os.environ.pop("TMPDIR")
            tempfile.tempdir = None
    tally.reached["inputs"] += 1
    tally.reached[f"{given.kind}: {got.outcome if got.status is not None else 'no end'}"] += 1
    if (fault := got.fault()) is not None:
        tally.reached["FAILED"] += 1
        tally.failures.append(_Failure(fault, given, seed, write(given, seed, fault, save) if save else None))


@dataclass(frozen=True)
class _Failure:
    """As `campaign.Failure`."""

    message: str
    given: Input
    seed: int
    file: str | None

    def __str__(self) -> str:
        return f"{self.given.kind}: {' '.join(self.given.command)}: {self.message}"


def write(given: Input, seed: int, found: str, folder: Path) -> str:
    """Save an input; returns the name of the file."""
    folder.mkdir(exist_ok=True, parents=True)
    head: dict[str, Any] = {"kind": given.kind, "suffix": given.suffix, "command": given.command, "found": found[:300]}
    try:
        head["text"] = given.data.decode("utf-8")
    except UnicodeDecodeError:
        head["base64"] = base64.b64encode(given.data).decode()
    path = folder / f"{re.sub(r'[^a-z]+', '_', given.kind.lower())}_{seed}.json"
    path.write_text(json.dumps(head, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path.name


def read(path: Path) -> Input:
    """A saved input."""
    head = json.loads(path.read_text(encoding="utf-8"))
    data = head["text"].encode() if "text" in head else base64.b64decode(head["base64"])
    return Input(head["kind"], head["suffix"], data, tuple(head["command"]))


def saved() -> Sequence[Path]:
    """The saved inputs."""
    return sorted(SAVED.glob("*.json"))
