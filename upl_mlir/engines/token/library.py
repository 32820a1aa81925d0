"""Generated C++ as functions of this process: compiled once by g++, kept in the cache, called through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upl_mlir.diagnostics import Span, error
from upl_mlir.engines.native.compiler import CompilerError, find_compiler, load_library

HEADERS = ("runtime.h", "store.h", "entry.h")
FLAGS = (
    "-O2", "-std=c++17", "-shared", "-fPIC", "-w",
    "-fno-builtin",  # results of exp, sin, ... are those of the C library, constants too
    "-ffp-contract=off",  # no fused multiply-add
    "-fno-math-errno", "-fno-plt",
)  # fmt: skip

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int64
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "upl_new": (_POINTER, [_INT, _POINTER]),
    "upl_delete": (None, [_POINTER]),
    "upl_input": (_INT, [_POINTER, _INT, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER]),
    "upl_output": (None, [_POINTER, _INT, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER]),
    "upl_empty": (_INT, [_POINTER, _INT, _INT, _POINTER, _POINTER]),
    "upl_fifo": (_INT, [_POINTER, _INT, _INT, _INT, _POINTER]),
    "upl_seed": (None, [_POINTER, _POINTER]),
    "upl_random": (_INT, [_POINTER, _INT, _INT, _INT, _POINTER]),
    "upl_counts": (None, [_POINTER, _POINTER, _POINTER, _POINTER, _POINTER]),
    "upl_left": (_INT, [_POINTER, _INT, _POINTER]),
    "upl_outside": (_INT, [_POINTER, _INT, _POINTER]),
}


@dataclass(frozen=True)
class Library:
    """The functions of `entry.h` for one program, by their names."""

    functions: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.functions, name)


def require_compiler(span: Span | None) -> Sequence[str]:
    """The command of the C++ compiler.  Raises UplError (UPL1609) if there is none."""
    compiler = find_compiler("CXX", ("g++", "c++", "clang++"))
    if compiler is None:
        raise error(
            "UPL1609", "the token engine needs a C++ compiler, and there is none (g++, c++ or clang++)", span,
            help="install g++, or name another in the environment variable CXX, or use engine interp",
        )  # fmt: skip
    return compiler


def build(text: str, span: Span | None) -> Library:
    """The library of a generated source.  Raises UplError (UPL1609) if there is no C++ compiler, or it fails."""
    compiler = require_compiler(span)
    folder = Path(__file__).parent
    headers = [(folder / name).read_bytes() for name in HEADERS]
    try:
        return load_library(
            "token", ".so", [compiler[0], *FLAGS, *compiler[1:], f"-I{folder}"], text.encode(), ".cpp", _load, headers
        )  # fmt: skip (words of CXX after ours: its -O0 wins)
    except CompilerError as e:
        raise error("UPL1609", f"the token engine's program cannot be compiled: {e}", span,
                    help="use engine interp") from None  # fmt: skip


def _load(path: Path) -> Library | None:
    try:
        functions = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            f = getattr(functions, name)
            f.restype, f.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return Library(functions)
