"""A program on the fastest engine that takes it: native code, else the interpreter, and then the reason is told.

For front ends whose users name no engine: what they write is static, so nearly all of it is native code.
"""

from __future__ import annotations

import warnings
from typing import Any

from upl_mlir.api.programs import Compiled, Program, compile
from upl_mlir.diagnostics import UplError
from upl_mlir.engines.names import EngineName

_NOT_NATIVE = frozenset(("UPL1205", "UPL1609", *(f"UPL{n}" for n in range(1820, 1829))))
"""Codes of the errors that say that a program, though right, is not in the class of native code, or too complex for it,
or that there is no C++ compiler for code in which tokens move."""


def fastest(program: Program, engine: str | None = None) -> Compiled:
    """The program ready to run on `engine`; if that is None, as native code where that can be made of it, else on the
    interpreter, with a RuntimeWarning that says why.

    Raises UplError: UPL1802 for an engine that does not exist, and what a wrong program raises.
    """
    if engine is not None:
        return compile(program, engine=_any(engine))
    try:
        return compile(program, engine=EngineName.NATIVE.value)
    except UplError as e:
        if not {d.code for d in e.diagnostics} <= _NOT_NATIVE:
            raise
        reason = "; ".join(f"{d.code}: {d.message}" for d in e.diagnostics)
        message = f"`{program.name}` runs on the interpreter, because native code cannot be made of it: {reason}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return compile(program, engine=EngineName.INTERP.value)


def _any(engine: str) -> Any:
    """A name that `compile` checks."""
    return engine
