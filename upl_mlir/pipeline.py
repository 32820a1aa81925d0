"""Running passes: a list of them in order, with checks in between, and the errors of texts in MLIR.

The named pipelines are data in `passes/pipelines.py`; docs/passes.md has them as a table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import ParseError

from upl_mlir.diagnostics import Diagnostic, Sources, Span, UplError
from upl_mlir.dialects.verifying import verify
from upl_mlir.host.collector import rarely_collecting
from upl_mlir.passes.pipelines import Pipeline


def new_context() -> Context:
    """An xDSL context that knows the dialects a UPL module uses."""
    from xdsl.dialects import arith, builtin, math

    from upl_mlir.universe import UPL_UNIVERSE

    ctx = Context()
    ctx.load_dialect(builtin.Builtin)
    ctx.register_dialect("arith", lambda: arith.Arith)
    ctx.register_dialect("math", lambda: math.Math)
    for name, factory in UPL_UNIVERSE.all_dialects.items():
        ctx.register_dialect(name, factory)
    return ctx


def parse_error(e: ParseError) -> UplError:
    """A syntax error of the MLIR parser with its position."""
    span = e.span
    content = span.input.content
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    before = text[: span.start]
    line = before.count("\n") + 1
    col = span.start - (before.rfind("\n") + 1) + 1
    sources = Sources()
    sources.add(span.input.name, text)
    where = Span(span.input.name, line, col, line, col + max(1, span.end - span.start))
    return UplError(Diagnostic("UPL1002", e.msg.strip().splitlines()[0], where), sources=sources)


@rarely_collecting
def run(
    module: ModuleOp,
    passes: Iterable[ModulePass],
    *,
    ctx: Context | None = None,
    after: Callable[[ModulePass, ModuleOp], None] | None = None,
    verify_each: bool = True,
) -> dict[str, float]:
    """Run passes in order, in place, verifying before, between and after.

    `after` is called with each pass and the module.  Returns the seconds each pass took.  Raises UplError.
    """
    ctx = ctx or new_context()
    if verify_each:
        verify(module)
    seconds: dict[str, float] = {}
    for p in passes:
        start = time.perf_counter()
        p.apply(ctx, module)
        seconds[p.name] = seconds.get(p.name, 0.0) + time.perf_counter() - start
        if verify_each:
            verify(module)
        if after is not None:
            after(p, module)
    return seconds


def passes_of(pipeline: Pipeline, options: Mapping[str, Mapping[str, object]]) -> list[ModulePass]:
    """The passes of a named pipeline; `options` are the fields of a pass by its name."""
    from upl_mlir.universe import PASSES

    return [PASSES[name]()(**options.get(name, {})) for name in pipeline.passes]
