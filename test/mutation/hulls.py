"""A hull for a set, consumer by consumer: what each part of the compiler is told is made too large, and a test must see it.

A set with a condition that isl cannot hold is exact as long as the condition stands in it as a symbol.  Whoever forgets it
has a hull, which for some questions is safe and for others gives wrong numbers.  Here every set that a module asks for
loses those conditions, and says that it is exact all the same; then programs of the condition sweep (`agreement.conditions`)
run, until one of them is wrong.  Only operations that the module calls itself are changed, not what helpers do for it.

    PYTHONPATH=test python -m mutation.hulls [WORD...]        some or all consumers; the result goes to ``hulls.json``
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any
from unittest import mock

from agreement.conditions_cells import EQUAL, Cell, examine
from agreement.conditions_sites import Program, programs

from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.poly.sets import PolyContext, PSet

PLACE = Path(__file__).resolve().with_name("hulls.json")
SECONDS = 100.0
_LOOPS = ("native", "gradient, native")
_DERIVED = ("gradient", "gradient, native", "tangent")
_FIGURES = ("check", "counts")
_MACHINE = ("machine", "machine, direct", "machine, throttled")
CONSUMERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "domains": ("passes/infer_domains.py", ("native", "check", "counts")),
    "relations": ("passes/analysis/relations.py", ("native", "check", "gradient")),
    "obligations": ("passes/analysis/obligations.py", ("check", "native")),
    "what is proved before native code": ("passes/analysis/proved.py", ("native",)),
    "equations": ("passes/loops/equations.py", _LOOPS),
    "schedule": ("passes/schedule.py", _LOOPS),
    "storage": ("passes/storage.py", (*_LOOPS, "C")),
    "what data decide": ("passes/autodiff/dynamic.py", _DERIVED),
    "which instances reach": ("passes/analysis/backward.py", _DERIVED),
    "dead derivatives": ("passes/autodiff/eliminate_dead_derivatives.py", _DERIVED),
    "activity": ("passes/autodiff/activity.py", _DERIVED),
    "reversed arrows": ("passes/autodiff/reverse.py", _DERIVED),
    "differentiation": ("passes/autodiff/differentiate.py", _DERIVED),
    "differentiable": ("passes/autodiff/differentiable.py", _DERIVED),
    "adjoint gathers": ("passes/autodiff/adjoint_gather.py", _DERIVED),
    "tangents": ("passes/autodiff/tangent.py", ("tangent", "tangent, native")),
    "split": ("passes/checkpoint/split.py", ("batch, native", "native")),
    "batch": ("passes/batch.py", ("batch", "batch, native")),
    "checkpoint": ("passes/checkpoint/checkpoint.py", ("gradient, checkpoint",)),
    "firing again": ("passes/checkpoint/refire.py", ("gradient, checkpoint",)),
    "counts": ("poly/counts/counting.py", (*_FIGURES, "gradient")),
    "figures of check": ("passes/check.py", _FIGURES),
    "critical path": ("passes/analysis/critical_path.py", _FIGURES),
    "conditions written": ("poly/describe.py", ("with domains", "gradient", "native")),
    "ranks": ("poly/ranking.py", (*_FIGURES, "native")),
    "ranks of the direct store": ("hw/direct/", ("machine, direct",)),
    "streams": ("passes/analysis/streams.py", _MACHINE),
    "throttle": ("hw/stages.py", ("machine, throttled",)),
    "lower-hw": ("passes/hardware/lower_hw.py", _MACHINE),
}
"""The parts of the compiler that ask for sets, each with its file or folder, and the ways of the sweep that lead there."""
TERMS = (
    "i mod q==0", "i*j<=4", "i**2<q", "i floordiv q==j floordiv q", "i mod (2*P[k])<P[k]", "i mod (j+1)==0", "n mod q==0",
    "min(i*j,q)<2", "i*i", "i mod q", "min(i*j,q)",
)  # fmt: skip
"""What the programs have, one at each site."""

def tried() -> list[Program]:
    """The programs, the sites in turn: an early one of each."""
    chosen = [p for p in programs() if not hasattr(p.term, "to") and p.term.text in TERMS]
    by: dict[str, list[Program]] = {}
    for p in chosen:
        by.setdefault(p.site.name, []).append(p)
    deepest = max(map(len, by.values()))
    return [ps[n] for n in range(deepest) for ps in by.values() if n < len(ps)]


def hull(s: PSet) -> PSet:
    """All points of a set and more: without what is not affine, and as if nothing were missing."""
    for a in s.opaque_parts():
        s = s.without(a)
    return replace(s, lost=frozenset())


class Seen:
    """How many sets of a consumer had something to forget."""

    def __init__(self) -> None:
        self.count = 0


@contextmanager
def hulls_in(file: str) -> Iterator[Seen]:
    """Every set that code of a file (or folder) gets from an operation it calls is a hull."""
    seen = Seen()

    def told(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def wrapper(*args: Any, **options: Any) -> Any:
            out = method(*args, **options)
            if isinstance(out, PSet) and f"upl_mlir/{file}" in sys._getframe(1).f_code.co_filename and out.opaque_parts():
                seen.count += 1
                return hull(out)
            return out

        return wrapper

    with ExitStack() as stack:
        for kind in (PSet, PolyContext, ProgramSets):
            stack.enter_context(mock.patch.multiple(kind, **_patches(kind, told)))
        yield seen


def _patches(kind: type, told: Callable[..., Any]) -> dict[str, Any]:
    methods = {n: f for layer in reversed(kind.__mro__) for n, f in vars(layer).items() if callable(f)}
    shown = {n: f for n, f in methods.items() if not n.startswith("_") or n in _OPERATORS}
    return {n: told(f) for n, f in shown.items() if str(f.__annotations__.get("return", "")).startswith(("PSet", "Self"))}


_OPERATORS = ("__and__", "__or__", "__sub__")


def try_consumer(name: str, seconds: float = SECONDS) -> dict[str, Any]:
    """What comes of hulls in a consumer: "caught" with the cell, else how many sets were changed, how many cells looked at,
    and how many of them were refused though they are equal without the change."""
    start = time.monotonic()
    file, ways = CONSUMERS[name]
    sets = cells = refused = 0
    for p in tried():
        with hulls_in(file) as seen:
            found = list(examine(p, ways))
        sets += seen.count
        cells += len(found)
        for c in found if seen.count else ():
            if c.outcome != EQUAL and _good(p, c):
                if c.bad:
                    by = f"{p.name}: {c.way}: {c.outcome}"
                    return {"file": file, "caught": True, "by": by, "sets": sets, "seconds": round(time.monotonic() - start)}
                refused += 1
        if time.monotonic() - start > seconds:
            break
    took = round(time.monotonic() - start)
    return {"file": file, "caught": False, "sets": sets, "cells": cells, "refused": refused, "seconds": took}


def _good(p: Program, c: Cell) -> bool:
    """Whether the cell is right without the change."""
    return [a.outcome for a in examine(p, [c.way])] == [EQUAL]


def main(argv: list[str]) -> int:
    """Try consumers, each in a process of its own; the exit status is 1 where a wrong set is not seen and may be told."""
    from agreement.ledger import commit
    from agreement.soak import keep_no_programs

    options = argparse.ArgumentParser(prog="hulls", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("words", nargs="*", help="only consumers whose names have one of these words")
    options.add_argument("--one", help=argparse.SUPPRESS)
    options.add_argument("--place", type=Path, default=PLACE)
    given = options.parse_args(argv)
    if given.one:
        keep_no_programs()
        print(json.dumps(try_consumer(given.one)))
        return 0
    known: dict[str, Any] = json.loads(given.place.read_text()) if given.place.exists() else {}
    known = {n: known[n] for n in CONSUMERS if n in known}
    for name in [n for n in CONSUMERS if not given.words or any(w in n for w in given.words)]:
        command = [sys.executable, "-m", "mutation.hulls", "--one", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{name}: {done.stderr[-500:]}")
            continue
        found = json.loads(done.stdout.splitlines()[-1]) | {"commit": commit()}
        known[name] = found
        ending = found.get("by", f"{found['sets']} sets, {found.get('refused')} cells refused")
        print(f"{'caught' if found['caught'] else 'not seen'}  {name}: {ending} ({found['seconds']} s)", flush=True)
        ordered = {n: known[n] for n in CONSUMERS if n in known}
        given.place.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(any(escaped(n, f) for n, f in known.items()))


def escaped(name: str, found: dict[str, Any]) -> bool:
    """Whether wrong sets reached a consumer, nothing was wrong for it, and nobody has said why."""
    return not found["caught"] and bool(found["sets"]) and name not in {**HARMLESS, **OPEN}


HARMLESS: dict[str, str] = dict.fromkeys(
    ("equations", "reversed arrows"), "more programs are refused than without the change, and none is wrong"
)
"""Consumers for which a hull is safe: they refuse."""
OPEN: dict[str, str] = dict.fromkeys(
    ("what data decide", "which instances reach", "dead derivatives", "activity", "differentiation", "batch", "ranks"),
    "no result changed; why is not known, so a program that shows it may be missing",
)
"""Consumers that got hulls, while all cells that were looked at stayed right."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
