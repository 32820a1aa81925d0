"""What the page of `upl view` shows: the program after every pass, as picture and as text, with what is known of each
node and arrow; and a recorded run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from upl_mlir.api.programs import Program
from upl_mlir.diagnostics import error
from upl_mlir.observe.explain import explain
from upl_mlir.observe.replay import WINDOW, Trace, lanes, overview, packed, windows
from upl_mlir.passes.check import Report
from upl_mlir.passes.pipelines import GRADIENT, TANGENT
from upl_mlir.picture.model import Picture, picture_of
from upl_mlir.picture.page import page
from upl_mlir.picture.svg import svg_of
from upl_mlir.pipeline import passes_of, run

NOTES = {
    "program": "the program as it was written",
    "infer-domains": "which instances of each node fire",
    "autodiff": "the nodes and arrows of the derivative",
    "tangent": "the tangents beside the values",
    "eliminate-dead-derivatives": "without what nobody asked for",
    "simplify": "expressions and conditions made shorter",
}


@dataclass
class _Steps:
    """The program after every pass; equal pictures are kept once."""

    steps: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    pictures: dict[Picture, int] = field(default_factory=dict[Picture, int])

    def add(self, name: str, p: Program) -> None:
        """One step."""
        at = self.pictures.setdefault(picture_of(p.op), len(self.pictures))
        note = NOTES.get(name, name)
        self.steps.append({"name": name, "note": note, "picture": at, "text": str(p), "ir": p.to_mlir()})


def view(
    p: Program, *, of: str | None = None, wrt: Sequence[str] = (), mode: str = "reverse", total: bool = False,
    trace: Trace | None = None,
) -> str:  # fmt: skip
    """The page, as the text of one HTML file; with `of` and `wrt` also the derivative.  A trace may be of the program
    that is shown or, where a derivative is shown, of the program without it.

    Raises UplError: UPL14xx for a derivative that there is not, UPL1804 without the extra `draw`, UPL1806 for a trace of
    another program.
    """
    steps, shown = _Steps(), p.clone()
    passes = passes_of(GRADIENT, {}) if p.facts.adjoint else []
    if of is not None:
        pipeline, objective = (TANGENT, (of,)) if mode == "forward" else (GRADIENT, of)
        passes += passes_of(pipeline, {pipeline.passes[1]: {"of": objective, "wrt": tuple(wrt), "total": total}})
    derives = bool(passes)
    with p.errors():
        steps.add("program", shown)
        run(shown.module, passes or passes_of(GRADIENT, {})[:1], after=lambda done, _: steps.add(done.name, shown))
        report = shown.check()
    replay = None if trace is None else _replay(trace, shown, p)  # before the layout, which takes seconds
    data: dict[str, Any] = {
        "steps": steps.steps, "pictures": [svg_of(picture, theme=None) for picture in steps.pictures],
        "boxes": _facts(report, shown),
        "sources": {file: text.split("\n") for file, text in p.sources.texts.items()},
        "rules": [], "kept": {}, "trace": replay,
    }  # fmt: skip
    if derives:
        found = explain(shown)
        for r in found.arrows:
            text = " ".join(t for t in (f"{r.source}:", r.value, r.count, f"-> {r.target}") if t)
            data["rules"].append([text, r.primal or r.where, r.rule])
        data["kept"] = {f"{k.node}>{k.target.partition('<')[0]}": k.why for k in found.kept}
    return page(f"UPL program {p.name}", data)


def _facts(report: Report, p: Program) -> dict[str, Any]:
    """Counts and obligations of every box, by name."""
    names = [*p.inputs, *report.firings, *p.outputs]
    facts: dict[str, Any] = {n: {"obligations": []} for n in names}
    for what, counts in (("firings", report.firings), ("tokens", report.tokens)):
        for name, n in counts.items():
            facts.setdefault(name, {"obligations": []})[what] = None if n is None else str(n)
    for o in report.obligations:
        name = o.where.partition(".")[0].partition("<")[0]
        if name in facts:
            facts[name]["obligations"].append([o.kind.value, o.status.value, o.message])
    return facts


def _names(p: Program) -> set[str]:
    return {*p.inputs, *p.outputs, *p.check().firings}


def _replay(trace: Trace, shown: Program, primal: Program) -> dict[str, Any]:
    """What the page needs of a trace.  Raises UplError (UPL1806) if it is of neither program."""
    known, ran = _names(shown), set(trace.nodes)
    # A machine may have nodes that the program has not: those that divide nodes with many inputs.
    if not any(ran == names or (trace.places and ran > names) for names in (known, _names(primal))):
        missing = sorted(ran ^ known)[0]
        raise error(
            "UPL1806", f"the trace is of another program: only one of them has `{missing}`",
            help="record it from the program that is shown: `upl run FILE --trace T.json`",
        )  # fmt: skip
    return {
        "nodes": trace.nodes, "targets": trace.targets, "inputs": len(trace.targets) - len(trace.outputs),
        "count": len(trace.events), "window": WINDOW, "levels": trace.levels, "overview": overview(trace),
        "failed": trace.failed, "lanes": lanes(trace),
        "cycles": max((cycle for _, cycle in trace.places), default=0) + 1, "chunks": [packed(w) for w in windows(trace)],
    }  # fmt: skip
