"""What must hold of every program and of every mutant: one function per property, each raising `Broken` where it fails.

`ENGINES` is the one place where an engine is added: every program that is proved right runs on each of them, and the
results are compared with the first one, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import upl_mlir as upl
from agreement import naive
from agreement.model import Program
from agreement.mutants import Truth
from agreement.static import OutOfRange
from upl_mlir.passes.obligations import Kind, Obligation, Status

Arrays = dict[str, Any]


class Broken(AssertionError):
    """A property does not hold; the message says which and how."""


# -- engines ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Way:
    """A way to run a program: an engine with its options.  `exact`: results equal the reference bit for bit, always."""

    engine: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    exact: bool = True


REFERENCE = Way("interp", {"gather": "ordered"})
ENGINES: tuple[Way, ...] = (
    *(Way("interp", {"gather": "ordered", "order": "random", "seed": s}) for s in range(3)),
    *(Way("interp", {"gather": "relaxed", "order": "random", "seed": s}, exact=False) for s in (3, 4)),
)
"""Native, token and rtl engines are added here."""


def run_on(p: upl.Program, way: Way, arrays: Arrays, params: Mapping[str, int]) -> Arrays:
    """The outputs of one run.  Raises UplError."""
    return upl.compile(p, engine=way.engine, **way.options)(**arrays, **params)


def same(a: Arrays, b: Arrays, *, exact: bool) -> str | None:
    """Where two results differ, None if nowhere."""
    if a.keys() != b.keys():
        return f"outputs {sorted(a)} and {sorted(b)}"
    for n, x in a.items():
        y = np.asarray(b[n])
        x = np.asarray(x)
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"{n}: {x.dtype}{x.shape} and {y.dtype}{y.shape}"
        if exact or x.dtype.kind not in "f":
            good = np.array_equal(x, y, equal_nan=x.dtype.kind == "f")
        else:
            tolerance = 1e-4 if x.dtype == np.float32 else 1e-9
            good = np.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True)
        if not good:
            return f"{n}: {x.tolist()} and {y.tolist()}"
    return None


# -- proofs -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Checked:
    """The outcome of `check`: its report, or the error that kept it from one."""

    program: upl.Program | None
    report: Any = None
    error: upl.UplError | None = None

    @property
    def code(self) -> str | None:
        """The code of the error."""
        return self.error.diagnostics[0].code if self.error else None

    @property
    def proved(self) -> bool:
        """Every obligation is proved."""
        return self.report is not None and all(o.status is Status.PROVED for o in self.report.obligations)

    @property
    def refuted(self) -> list[Obligation]:
        """The refuted obligations."""
        return [o for o in self.report.obligations if o.status is Status.REFUTED] if self.report else []

    @property
    def unproved(self) -> list[str]:
        """The kinds of the unproved obligations; the code of the error where there is no report."""
        if self.report is None:
            return [self.code or "?"]
        return [o.kind.name for o in self.report.obligations if o.status is Status.UNPROVED]


def check(text: str) -> Checked:
    """Load and check a text; errors are an outcome."""
    p = None
    try:
        p = upl.load(text)
        return Checked(p, p.check())
    except upl.UplError as e:
        return Checked(p, None, e)


def sound(program: Program, found: Checked, truth: Truth) -> None:
    """Nothing wrong is proved, nothing right is refuted, witnesses are genuine."""
    if truth.wrong and found.proved:
        raise Broken(f"proved, but wrong at {dict(truth.params or {})}: {truth.rule}")
    for o in found.refuted:
        genuine(program, o, truth)


MAX_WITNESS = 14


def genuine(program: Program, o: Obligation, truth: Truth) -> bool:
    """Whether a witness can be confirmed by enumeration; raises if it is refuted by it."""
    witness = o.witness or {}
    params = {p.name: witness.get(p.name, p.low) for p in program.params}
    if any(v > MAX_WITNESS for v in params.values()) or any(params[p.name] < p.low for p in program.params):
        if any(params[p.name] < p.low for p in program.params):
            raise Broken(f"a witness with a parameter below its bound: {o.message}")
        return False
    try:
        assumed = naive.run(program, params, declared=True)
    except (naive.TooLarge, OutOfRange):
        return False
    if o.kind is Kind.DOMAIN:
        end = program.end(o.where)
        at = tuple(witness[f] for f in end.fields)
        claimed = naive.Naive(program, params).declares(end, at)
        if claimed == naive.Naive(program, params).images(assumed, end, at):
            raise Broken(f"refuted, but declared is computed there at {params}: {o.message}")
        return True
    if o.kind is Kind.ACYCLIC:
        name = o.message.partition("<")[0]
        at = tuple(witness[f] for f in program.end(name).fields)
        if not naive.Naive(program, params).waits_for_itself(assumed, name, at):
            raise Broken(f"{o.message}: but it does not")
        return True
    if not _shows(program, o, assumed, witness):
        raise Broken(f"refuted, but nothing is wrong there at {params}: {o.kind.name} {o.message}")
    return True


def _shows(program: Program, o: Obligation, result: naive.Result, witness: Mapping[str, int]) -> bool:
    """Whether the enumeration has a violation where the witness says."""
    kind = "COVERAGE" if o.kind is Kind.COVERAGE else o.kind.name
    for v in result.violations:
        same_kind = v.kind == kind or {v.kind, kind} <= {"GATHER", "EXISTS", "COVERAGE"} or (
            {v.kind, kind} == {"MULTIPLICITY", "EXISTS"}
        )  # fmt: skip
        if not same_kind:
            continue
        end = program.end(v.where.partition(".")[0])
        if v.kind in ("EXISTS", "MULTIPLICITY"):
            assert v.arrow is not None
            source = program.end(v.arrow[0])
            if o.arrow is not None and f"{source.name} -> {v.where}" != o.arrow:
                continue
            names = (*source.fields, *(p.it for p in source.arrows[v.arrow[1]].loops))
        else:
            if o.arrow is None and v.where not in (o.where, o.where.partition(".")[0]):
                continue
            names = end.fields
        if kind == "GATHER" or all(witness.get(n, x) == x for n, x in zip(names, v.at, strict=True)):
            return True
    return False


# -- runs -------------------------------------------------------------------------------------------------------------
def agree(p: upl.Program, arrays: Arrays, params: Mapping[str, int], *, dyadic: bool) -> Arrays:
    """All ways to run a program give the same results, and leave no token; returns them."""
    expected = run_on(p, REFERENCE, arrays, params)
    for way in ENGINES:
        try:
            got = run_on(p, way, arrays, params)
        except upl.UplError as e:
            raise Broken(f"{way}: {e.diagnostics[0].message}") from None
        where = same(expected, got, exact=way.exact or dyadic)
        if where is not None:
            raise Broken(f"{way}: {where}")
    return expected


ATTEMPTS: tuple[Callable[[int], Mapping[str, Any]], ...] = (
    lambda s: {"order": "fifo"},
    *(lambda s, k=k: {"order": "random", "seed": 10 * s + k} for k in range(5)),
)


def some_order_fails(p: upl.Program, arrays: Arrays, params: Mapping[str, int], seed: int) -> bool:
    """Whether some arrival order ends with an error."""
    for options in ATTEMPTS:
        try:
            upl.compile(p, **options(seed))(**arrays, **params)
        except upl.UplError:
            return True
    return False
