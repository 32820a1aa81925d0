"""Our own contenders: a case's program on an engine of this project."""

from __future__ import annotations

import inspect
import timeit
from collections.abc import Mapping

import upl_mlir as upl
from bench.native.case import Absent, Case, Run, Task
from upl_mlir.api.programs import Compiled

NATIVE = "native"


def run(case: Case, engine: str, task: Task) -> Run:
    """Value and gradient, and the value alone, on an engine.  Raises Absent where there is no such engine."""
    bound = case.bound(task.sizes)
    gradient = compiled(case.gradient(task.sizes), engine, task, bound)
    value = compiled(case.load(task.sizes), engine, task, bound) if case.of else None
    if case.scalar:
        names = [n for n in task.arrays if n in case.wrt]
        arguments = ", ".join(str(float(task.arrays[n])) for n in names)
        scope = {"gradient": gradient.scalar, "value": value.scalar if value else None}
        return Run(
            timeit.Timer(f"gradient({arguments})", globals=scope), lambda: dict(gradient(**task.arrays)),
            timeit.Timer(f"value({arguments})", globals=scope),
        )  # fmt: skip
    given = {n: a for n, a in task.arrays.items() if value is None or n in value.program.inputs}
    return Run(
        timeit.Timer(lambda: gradient(**task.arrays)),
        lambda: dict(gradient(**task.arrays)),
        timeit.Timer(lambda: value(**given)) if value else None,
    )


def compiled(program: upl.Program, engine: str, task: Task, bound: Mapping[str, int]) -> Compiled:
    """A program on an engine, its parameters bound.  Raises Absent where there is no such engine."""
    options: dict[str, object] = dict(bound)
    if engine == NATIVE and "threads" in inspect.signature(upl.compile).parameters:
        options["threads"] = task.threads
    elif engine == NATIVE and task.threads > 1:
        raise Absent("no way to ask for threads")
    try:
        return upl.compile(program, engine, real=task.real, **options)  # pyright: ignore[reportArgumentType]
    except upl.UplError as e:
        if any(d.code == "UPL1802" for d in e.diagnostics):
            raise Absent("not available") from None
        raise
