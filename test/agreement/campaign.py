"""Examining programs seed by seed: what was reached is counted, what failed is made smaller and saved.

Used by the tests on a few hundred seeds, and by `soak` for as long as one likes.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import upl_mlir as upl
from agreement import data, naive, witness
from agreement import properties as P
from agreement.circuits import circuit
from agreement.directives import inside
from agreement.engines import engines, machine, native, rare
from agreement.generator import generate
from agreement.gradients import gradients
from agreement.model import Program
from agreement.mutants import Mutant, Truth, mutants, truth
from agreement.ranks import ranks
from agreement.shrink import shrink

PROPERTIES: Mapping[str, Callable[[P.Case], Any]] = {
    **P.PROPERTIES, "engines": engines, "native": native, "machine": machine, "gradients": gradients, "inside": inside,
    "circuit": circuit, "rare": rare, "ranks": ranks,
}  # fmt: skip
"""By name, as saved cases say it."""
NOISY = ("native", "ranks")
"""Properties that are looked at on general floats, too, for odd seeds."""
SAVED = Path(__file__).resolve().parent / "saved"
sys.setrecursionlimit(max(sys.getrecursionlimit(), 20_000))  # naive evaluation follows chains of tokens


@dataclass
class Failure:
    """A property that does not hold of a program; `case` is the smallest one found."""

    prop: str
    seed: int
    message: str
    case: P.Case
    mutation: str = ""
    file: str | None = None  # where it was saved

    def __str__(self) -> str:
        what = f" ({self.mutation})" if self.mutation else ""
        return f"{self.prop}, seed {self.seed}{what}: {self.message}\n{self.case.text}"


@dataclass
class Tally:
    """What was reached: `reached` counts outcomes, `features` programs that have a feature."""

    reached: Counter[str] = field(default_factory=Counter[str])
    features: Counter[str] = field(default_factory=Counter[str])
    failures: list[Failure] = field(default_factory=list[Failure])

    def share(self, part: str, whole: str) -> float:
        """A share in percent."""
        return 100.0 * self.reached[part] / max(1, self.reached[whole])

    def add(self, other: Tally) -> None:
        """Add up."""
        self.reached += other.reached
        self.features += other.features
        self.failures += other.failures

    def lines(self) -> list[str]:
        """The counts as text."""
        out = [f"{n:7} {name}" for name, n in sorted(self.reached.items())]
        return [*out, "", *(f"{n:7} with {name}" for name, n in sorted(self.features.items()))]


def case_of(program: Program, seed: int, *, noise: bool = False) -> P.Case:
    """A right program as a case: a size to run at, and the results there, computed naively; `noise`: on general floats."""
    sizes = naive.small_params(program)
    params = sizes[seed % len(sizes)]
    result = naive.run(program, params)
    if not result.ok:
        raise P.Broken(f"the generator made a wrong program: {result.violations[0]} at {params}")
    found = data.compute(program, result, data.arrays(program, params, seed, noise=noise), params)
    return P.Case(
        program.text(), True, params, seed, found.outputs, found.smooth, found.any_order, found.exact_single, None, noise,
        found.apart,
    )  # fmt: skip


def tangents_of(program: Program, case: P.Case) -> Callable[[str, list[str], P.Arrays, P.Arrays], Any]:
    """Forward mode computed naively, as `properties.derivatives` asks for it."""
    loaded = cache(lambda: upl.load(case.text).infer_domains())

    def tangents(of: str, wrt: list[str], arrays: P.Arrays, moves: P.Arrays) -> Any:
        del arrays  # the same elements come from the seed
        p = loaded()
        given = data.arrays(program, case.params, case.seed, noise=case.seed % 2 == 1)
        along: dict[str, dict[naive.Point, float]] = {}
        for w in wrt:
            origin = p.inputs[w].origin(**case.params)
            along[w] = {x: float(moves[f"t_{w}"][_place(x, origin)]) for x in given[w]}
        result = naive.run(program, case.params)
        found = data.compute(program, result, given, case.params, along)
        out = np.zeros(p.outputs[of].shape(**case.params))
        origin = p.outputs[of].origin(**case.params)
        for x, v in found.tangents[of].items():
            out[_place(x, origin)] = v
        return out

    return tangents


def _place(x: naive.Point, origin: naive.Point) -> tuple[int, ...]:
    return tuple(i - o for i, o in zip(x, origin, strict=True))


# -- valid programs ---------------------------------------------------------------------------------------------------
def examine(seed: int, props: Sequence[str], tally: Tally, *, save: bool = True, size: int = 5) -> None:
    """Hold a random right program, of at most `size` nodes and some, to some properties."""
    program = generate(seed, size)
    tally.features.update(set(program.features))
    tally.reached["programs"] += 1
    for name in props:
        try:
            _count(name, _apply(name, program, seed), tally)
        except OverflowError:  # such as of the least of no integers: every engine may say so
            tally.reached[f"{name}: an integer overflows"] += 1
        except P.Broken as e:
            tally.failures.append(_reduce(name, program, seed, str(e), save=save))
            tally.reached[f"{name}: FAILED"] += 1


def _apply(name: str, program: Program, seed: int) -> Any:
    """One property of a right program.  Raises Broken."""
    case = case_of(program, seed, noise=name in NOISY and seed % 2 == 1)
    try:
        if name == "derivatives":
            return P.derivatives(case, tangents_of(program, case))
        if name == "gradients":
            return gradients(case, tangents_of(program, case))
        return PROPERTIES[name](case)
    except upl.UplError as e:
        if name == "proof" or e.diagnostics[0].code.startswith("UPL12"):
            return P.Checked(None, None, e)  # refused: counted as not proved
        raise P.Broken(f"{e}") from None
    except P.Broken:
        raise
    except Exception as e:
        raise P.Broken(_crash(e)) from e


def _crash(e: Exception) -> str:
    """An exception that is no diagnostic, with the place it came from."""
    last = traceback.extract_tb(e.__traceback__)[-1]
    return f"crash: {type(e).__name__} {e} in {Path(last.filename).name}:{last.lineno} {last.name}"


def _count(name: str, outcome: Any, tally: Tally) -> None:
    reached = tally.reached
    match outcome:
        case P.Checked():
            reached[f"{name}: {outcome.outcome}"] += 1
            for kind in outcome.unproved:
                reached[f"{name}: not proved: {kind}"] += 1
        case Counter():
            reached.update({f"{name}: {what}": n for what, n in outcome.items()})
        case P.Derived():
            reached["derivatives: outputs"] += outcome.pairs
            reached["derivatives: programs checked"] += 2 * (outcome.pairs - len(outcome.refused))
            reached["derivatives: programs fully proved"] += outcome.proved
            for code in outcome.refused:
                reached[f"derivatives: refused {code}"] += 1
            for kind in outcome.unproved:
                reached[f"derivatives: not proved: {kind}"] += 1
        case _:
            reached[f"{name}: fine"] += 1


def _reduce(name: str, program: Program, seed: int, message: str, *, save: bool) -> Failure:
    def fails(p: Program) -> bool:
        try:
            if truth(p).wrong:
                return False
            upl.load(p.text())
            _apply(name, p, seed)
        except P.Broken:
            return True
        except Exception:  # too small to be a program at all
            return False
        return False

    small = shrink(program, fails) if save else program
    try:
        case = case_of(small, seed, noise=name in NOISY and seed % 2 == 1)
    except P.Broken:
        case = P.Case(small.text(), True, {}, seed)
    failure = Failure(name, seed, message, case)
    if save:
        write(failure)
    return failure


# -- mutants ----------------------------------------------------------------------------------------------------------
def examine_mutants(seed: int, count: int, tally: Tally, *, save: bool = True) -> None:
    """Mistakes in a random program: the truth, found by enumeration, against what `check` says."""
    for m in mutants(generate(seed), seed, count):
        known = truth(m.program)
        if known.open:
            tally.reached["mutants: too large to know"] += 1
            continue
        try:
            known, found = judge(m.program, known, tally)
        except P.Broken as e:
            tally.reached["mutants: FAILED"] += 1
            tally.failures.append(_reduce_mutant(m, seed, str(e), save=save))
            continue
        kind = "wrong" if known.wrong else "right after all"
        tally.reached[f"mutants: {kind}"] += 1
        tally.reached[f"mutants: {kind}: {found.outcome}"] += 1
        if known.wrong:
            tally.features[f"mistake: {m.kind}"] += 1
            if found.report is None or found.refuted:
                tally.reached["mutants: wrong and refuted"] += 1
            else:
                tally.reached.update(f"mutants: wrong, unproved: {k}" for k in found.unproved)


def judge(program: Program, known: Truth, tally: Tally) -> tuple[Truth, P.Checked]:
    """What `check` says of a mutant, and the truth again: a witness may show it at sizes that `truth` did not look at.

    Raises Broken where they do not agree.
    """
    try:
        found = P.checked(program.text())
    except P.Broken:
        raise
    except Exception as e:
        raise P.Broken(_crash(e)) from e
    for o in found.refuted:
        tally.reached["witnesses"] += 1
        tally.reached["witnesses: confirmed"] += witness.genuine(program, o)
    if not known.wrong and found.refuted:
        known = truth(program, [witness.sizes(program, o) for o in found.refuted])
    if not known.open:
        P.proof(P.Case(program.text(), not known.wrong, known.params or {}), found)
        if found.proved:
            P.results(case_of(program, 0))
    return known, found


def _reduce_mutant(m: Mutant, seed: int, message: str, *, save: bool) -> Failure:
    start = message.partition(":")[0].partition(" at ")[0]

    def fails(p: Program) -> bool:
        try:
            upl.load(p.text())
            judge(p, truth(p), Tally())
        except P.Broken as e:
            return str(e).startswith(start)
        except Exception:
            return False
        return False

    small = shrink(m.program, fails) if save else m.program
    known = truth(small)
    never = None
    for o in P.checked(small.text()).refuted:
        try:
            witness.genuine(small, o)
        except P.Broken:
            known = Truth(True)  # whatever else it is, this obligation must not be refuted like this
            never = {"kind": o.kind.name, "where": o.where, "witness": o.witness}
    case = P.Case(small.text(), not known.wrong, known.params or {}, seed, never=never)
    failure = Failure("proof", seed, message, case, m.kind)
    if save:
        write(failure)
    return failure


# -- saved cases ------------------------------------------------------------------------------------------------------
def write(f: Failure, folder: Path = SAVED) -> Path:
    """Save a failure as a `.upl` file whose header says what it is."""
    c = f.case
    head: dict[str, Any] = {
        "property": f.prop, "seed": f.seed, "right": c.right, "params": dict(c.params), "mutation": f.mutation,
        "smooth": c.smooth, "any_order": c.any_order, "exact_single": c.exact_single, "noise": c.noise,
        "found": f.message.splitlines()[0][:100],
    }  # fmt: skip
    if c.never is not None:
        head["never"] = c.never
    for what, known in (("expected", c.expected), ("apart", c.apart)):
        if known is not None and sum(map(len, known.values())) <= 64:
            head[what] = {n: [[list(x), v] for x, v in vs.items()] for n, vs in known.items()}
    lines = [f"// {k}: {json.dumps(v, ensure_ascii=False)}\n" for k, v in head.items()]
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"{f.prop}_{f.seed}{'_' + re.sub(r'[^a-z]+', '_', f.mutation) if f.mutation else ''}.upl"
    path.write_text("".join(lines) + c.text, encoding="utf-8")
    f.file = path.name
    return path


def read(path: Path) -> tuple[str, P.Case]:
    """A saved case: the name of its property, and the case."""
    text = path.read_text(encoding="utf-8")
    head: dict[str, Any] = {}
    for line in text.splitlines():
        if not line.startswith("// "):
            break
        key, _, value = line[3:].partition(": ")
        head[key] = json.loads(value)
    known: dict[str, Any] = {
        what: {n: {tuple(x): v for x, v in vs} for n, vs in head[what].items()} if what in head else None
        for what in ("expected", "apart")
    }
    case = P.Case(
        text, head["right"], head["params"], head["seed"], known["expected"], head["smooth"], head["any_order"],
        head.get("exact_single", False), head.get("never"), head.get("noise", False), known["apart"],
    )  # fmt: skip
    return head["property"], case
