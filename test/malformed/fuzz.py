"""Coverage-guided fuzzing of one reader by Atheris (the extra `fuzz`), as libFuzzer does it.

    PYTHONPATH=test python -m malformed.fuzz upl|mlir|json|toml [libFuzzer's options, for instance -runs=10000 -seed=1]

Anything but a UplError that comes out of a reader is a crash.  `make soak` runs some thousand inputs at a time.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

KINDS = ("upl", "mlir", "json", "toml")
RUNS = 20_000
SECONDS = 25
TIMEOUT = 20
INSTRUMENTED = ("upl_mlir.frontend", "upl_mlir.poly.parse", "upl_mlir.api.mlir_text", "upl_mlir.hw.toml_file", "xdsl.parser")


def readers() -> dict[str, Callable[[bytes], object]]:
    """What reads each kind.  To be imported where Atheris listens."""
    from upl_mlir.api.mlir_text import decode, read_module
    from upl_mlir.frontend.einsum.case import parse_case
    from upl_mlir.frontend.einsum.kernel import parse_kernel
    from upl_mlir.frontend.upl_text.load import load_text
    from upl_mlir.hw.toml_file import parse
    from upl_mlir.pipeline import new_context

    return {
        "upl": lambda data: load_text(decode(data, "f.upl"), "f.upl"),
        "mlir": lambda data: read_module(decode(data, "f.mlir"), "f.mlir", new_context()),
        "json": lambda data: parse_kernel(parse_case(data, "f.json")[0].kernel),
        "toml": lambda data: parse(decode(data, "f.toml"), "f.toml", "file", "UPL1720"),
    }


def installed() -> bool:
    """Whether Atheris is there."""
    return importlib.util.find_spec("atheris") is not None


def campaign(seed: int, tally: Any) -> None:
    """One run of the fuzzer, on the kind whose turn it is; `tally` is a `campaign.Tally`."""
    kind = KINDS[seed % len(KINDS)]
    if not installed():
        tally.reached["Atheris is not installed"] += 1
        return
    with tempfile.TemporaryDirectory() as name:
        corpus = Path(name) / "corpus"
        corpus.mkdir()
        from malformed.inputs import texts

        for n, text in enumerate(texts({"toml": "machine"}.get(kind, kind))):
            (corpus / f"{n}").write_bytes(text)
        limits = [f"-runs={RUNS}", f"-seed={seed}", f"-max_total_time={SECONDS}", f"-timeout={TIMEOUT}", "-max_len=4096"]
        command = [sys.executable, "-m", "malformed.fuzz", kind, *limits, f"-artifact_prefix={name}/", str(corpus)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        runs = re.findall(r"(?m)^Done (\d+) runs", done.stderr) or re.findall(r"(?m)^#(\d+)\s", done.stderr)
        count = int(runs[-1]) if runs else 0
        tally.reached["inputs"] += count
        tally.reached[f"{kind}: inputs"] += count
        if done.returncode:
            tally.reached["crashes"] += 1
            found = next((p.read_bytes() for p in Path(name).iterdir() if p.is_file()), b"")
            tally.failures.append(_Failure(f"{kind}: {_cause(done.stderr)} for {found[:200]!r}"))


class _Failure:
    """As `campaign.Failure`."""

    file = None

    def __init__(self, text: str):
        self.text = text

    def __str__(self) -> str:
        return self.text


def _cause(log: str) -> str:
    """The exception in the fuzzer's log."""
    found = re.search(r"(?m)^ === Uncaught Python exception: ===\n(.*)$|^(.*(?:ERROR|Error).*)$", log)
    return (found[1] or found[2]) if found else log[-300:]


def main(argv: list[str]) -> None:
    """Fuzz the reader of a kind."""
    import atheris

    kind, *options = argv
    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        read = readers()[kind]
    from xdsl.utils.exceptions import DiagnosticException

    from upl_mlir.diagnostics import UplError

    def one(data: bytes) -> None:
        with contextlib.suppress(UplError, DiagnosticException, RecursionError):  # the boundary has words for these
            read(data)

    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
