"""What must hold of every program: one function per property over a `Case`, raising `Broken` where it fails.

`ENGINES` is the one place where an engine is added: every right program runs on each of them, and the results are compared
with `upl_mlir.engines.reference`, bit by bit.  A `Case` is a text with what is known of it, so that a saved one can be
replayed alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from xdsl.parser import Parser

import upl_mlir as upl
from agreement.data import element
from agreement.naive import Point
from agreement.values import Number
from upl_mlir.api.programs import reverse
from upl_mlir.passes.analysis.obligations import Obligation, Status
from upl_mlir.pipeline import new_context

Arrays = dict[str, Any]


class Broken(AssertionError):
    """A property does not hold; the message says how."""


@dataclass(frozen=True)
class Case:
    """A program text and what is known of it without the compiler.

    `right`: whether it obeys every rule; `params` a size to run at; `expected` the outputs by index there; `smooth` that a
    function such as `tanh` has its own last bits; `any_order` that gathers are exact in every order of their summands;
    `exact_single` that they are also where `real` is f32; `never` an obligation that was refuted although it holds there;
    `noise` that the data are not dyadic; `apart` how far from `expected` other orders of summands may be.
    """

    text: str
    right: bool
    params: Mapping[str, int] = field(default_factory=dict[str, int])
    seed: int = 0
    expected: Mapping[str, Mapping[Point, Number]] | None = None
    smooth: bool = False
    any_order: bool = False
    exact_single: bool = False
    never: Mapping[str, Any] | None = None
    noise: bool = False
    apart: Mapping[str, Mapping[Point, float]] | None = None


# -- engines ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Way:
    """A way to run a program: an engine with its options.  `exact`: results equal the reference's bit for bit, always."""

    engine: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    exact: bool = True


REFERENCE = Way("reference", {"gather": "ordered"})
ENGINES: tuple[Way, ...] = (
    Way("interp", {"gather": "ordered"}),
    *(Way("interp", {"gather": "ordered", "order": "random", "seed": s}) for s in range(3)),
    *(Way("interp", {"gather": "relaxed", "order": "random", "seed": s}, exact=False) for s in (3, 4)),
)
"""Native, token and rtl engines are added here: one line each."""


def run_on(p: upl.Program, way: Way, arrays: Arrays, params: Mapping[str, int]) -> Arrays:
    """The outputs of one run.  Raises UplError."""
    return upl.compile(p, engine=way.engine, **way.options)(**arrays, **params)


def host_arrays(p: upl.Program, params: Mapping[str, int], seed: int, *, noise: bool = False) -> Arrays:
    """Dense arrays for every host input: at each index the value that `data.element` gives, also outside the domain."""
    out: Arrays = {}
    for n, port in p.inputs.items():
        shape, origin = port.shape(**params), port.origin(**params)
        a = np.zeros(shape, port.dtype)
        kind = {"b": "bool", "i": "int"}.get(port.dtype.kind, "f32" if port.dtype == np.float32 else "real")
        for at in np.ndindex(*shape):
            a[at] = element(seed, n, tuple(i + o for i, o in zip(at, origin, strict=True)), kind, noise=noise)
        out[n] = a
    return out


def difference(a: Arrays, b: Arrays, *, exact: bool) -> str | None:
    """Where two results differ, None if nowhere."""
    if a.keys() != b.keys():
        return f"outputs {sorted(a)} and {sorted(b)}"
    for n, x in a.items():
        y = np.asarray(b[n])
        x = np.asarray(x)
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"{n}: {x.dtype}{x.shape} and {y.dtype}{y.shape}"
        if exact or x.dtype.kind != "f":
            good = np.array_equal(x, y, equal_nan=x.dtype.kind == "f")
        else:
            wide = 1e-4 if x.dtype == np.float32 else 1e-9
            good = np.allclose(x, y, rtol=wide, atol=wide, equal_nan=True)
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
    def code(self) -> str:
        """The code of the error."""
        return self.error.diagnostics[0].code if self.error else ""

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
            return [self.code]
        return sorted({o.kind.name for o in self.report.obligations if o.status is Status.UNPROVED})

    @property
    def outcome(self) -> str:
        """In one word: "proved", "refuted", "unproved", or the code of an error."""
        return "refuted" if self.refuted else "proved" if self.proved else "unproved" if self.report else self.code


def checked(text: str) -> Checked:
    """Load and check a text; errors are an outcome."""
    p = None
    try:
        p = upl.load(text)
        return Checked(p, p.check())
    except upl.UplError as e:
        if any(d.code == "UPL1000" for d in e.diagnostics):
            raise Broken(f"an internal error: {e}") from None
        return Checked(p, None, e)


def proof(case: Case, found: Checked | None = None) -> Checked:
    """Nothing wrong is proved, nothing right is refuted; `found` spares checking again."""
    found = found or checked(case.text)
    if case.right and found.refuted:
        o = found.refuted[0]
        raise Broken(f"right, but refuted: {o.kind.name} {o.message}")
    if not case.right and found.proved:
        raise Broken(f"proved, but wrong at {dict(case.params)}")
    if case.never is not None:
        for o in found.refuted:
            if (o.kind.name, o.where, o.witness) == tuple(case.never[k] for k in ("kind", "where", "witness")):
                raise Broken(f"refuted, but nothing is wrong there: {o.message}")
    return found


# -- runs -------------------------------------------------------------------------------------------------------------
def results(case: Case) -> Arrays:
    """All ways to run a right program give the expected results, and leave no token."""
    p = upl.load(case.text)
    arrays = host_arrays(p, case.params, case.seed)
    reference = _run(p, REFERENCE, arrays, case.params)
    for way in ENGINES:
        where = difference(reference, _run(p, way, arrays, case.params), exact=way.exact or case.any_order)
        if where is not None:
            raise Broken(f"{way.engine} {dict(way.options)}: {where}")
    for name, values in (case.expected or {}).items():
        got = reference[name]
        want = np.zeros_like(got)
        origin = p.outputs[name].origin(**case.params)
        for x, v in values.items():
            want[tuple(i - o for i, o in zip(x, origin, strict=True))] = v
        if difference({name: want}, {name: got}, exact=not case.smooth):
            raise Broken(f"{name}: expected {want.tolist()}, got {got.tolist()}")
    return reference


def _run(p: upl.Program, way: Way, arrays: Arrays, params: Mapping[str, int]) -> Arrays:
    try:
        return run_on(p, way, arrays, params)
    except upl.UplError as e:
        raise Broken(f"{way.engine} {dict(way.options)} at {dict(params)}: {e}") from None


def fails_in_some_order(p: upl.Program, params: Mapping[str, int], seed: int, tries: int = 6) -> bool:
    """Whether some arrival order ends with an error."""
    arrays = host_arrays(p, params, seed)
    for k in range(tries):
        try:
            upl.compile(p, order="random" if k else "fifo", seed=k)(**arrays, **params)
        except upl.UplError:
            return True
    return False


# -- texts ------------------------------------------------------------------------------------------------------------
def printing(case: Case) -> None:
    """Printing and reading back is the identity, as `.upl` and as MLIR; so is a second printing, byte for byte."""
    p = upl.load(case.text)
    text = str(p)
    again = upl.load(text)
    if not p.module.is_structurally_equivalent(again.module):
        raise Broken(f"the text reads back to another program:\n{text}")
    if str(again) != text:
        raise Broken(f"a second printing differs:\n{text}\n{again}")
    mlir = p.to_mlir()
    module = Parser(new_context(), mlir).parse_module()
    module.verify()
    if not p.module.is_structurally_equivalent(module):
        raise Broken(f"the MLIR reads back to another program:\n{mlir}")
    if str(module) != mlir:
        raise Broken(f"a second printing of the MLIR differs:\n{mlir}\n{module}")


def inferred(case: Case) -> Checked:
    """A program printed with its inferred domains is right too, if it was, and does the same."""
    p = upl.load(case.text).infer_domains()
    try:
        again = upl.load(declared(p))
    except upl.UplError as e:
        raise Broken(f"what is printed with domains does not read back: {e}") from None
    report = again.check()
    if case.right and not report.ok:
        o = next(o for o in report.obligations if o.status is Status.REFUTED)
        raise Broken(f"with the inferred domains declared: {o.kind.name} {o.message}\n{declared(p)}")
    if case.right:
        arrays = host_arrays(p, case.params, case.seed)
        where = difference(_run(p, REFERENCE, arrays, case.params), _run(again, REFERENCE, arrays, case.params), exact=True)
        if where is not None:
            raise Broken(f"with domains: {where}")
    return Checked(again, report)


def declared(p: upl.Program) -> str:
    """The text in which every node and output declares the domain that was inferred."""
    from upl_mlir.dialects.upl import NodeOp, OutputOp

    out = p.clone()
    for op in out.op.body.block.ops:
        if isinstance(op, NodeOp | OutputOp) and op.declared is None and op.fields:
            op.declared = op.domain
    return str(out)


# -- derivatives ------------------------------------------------------------------------------------------------------
@dataclass
class Derived:
    """What became of the derivatives of one program: `refused` has codes, `unproved` kinds of obligations."""

    pairs: int = 0
    proved: int = 0
    refused: list[str] = field(default_factory=list[str])
    unproved: list[str] = field(default_factory=list[str])


def real_ports(p: upl.Program) -> tuple[list[str], list[str]]:
    """Real outputs and real inputs."""
    outs = [n for n, v in p.outputs.items() if v.dtype.kind == "f"]
    return outs, [n for n, v in p.inputs.items() if v.dtype.kind == "f"]


def derivatives(case: Case, tangents: Callable[[str, list[str], Arrays, Arrays], Any] | None = None) -> Derived:
    """Reverse and forward mode agree, keep the primal outputs, pass `check`; forward mode agrees with `tangents`.

    Programs whose derivative is refused (UPL14xx) are counted.
    """
    p = upl.load(case.text)
    outs, ins = real_ports(p)
    found = Derived()
    for of, wrt in itertools.islice(((o, ins) for o in outs if ins), 2):
        found.pairs += 1
        try:
            reverse, forward = upl.vjp(p, of=of, wrt=wrt), upl.jvp(p, of=of, wrt=wrt)
        except upl.UplError as e:
            code = e.diagnostics[0].code
            if not code.startswith("UPL14"):
                raise Broken(f"derivative of {of} by {wrt}: {e}") from None
            found.refused.append(code)
            continue
        _one(case, p, of, wrt, reverse, forward, found, tangents)
    return found


def _one(
    case: Case, p: upl.Program, of: str, wrt: list[str], reverse: upl.Program, forward: upl.Program, found: Derived,
    tangents: Callable[[str, list[str], Arrays, Arrays], Any] | None,
) -> None:  # fmt: skip
    for g, what in ((reverse, "vjp"), (forward, "jvp")):
        report = g.check()
        for o in report.obligations:
            if o.status is Status.REFUTED:
                raise Broken(f"{what} of {of} by {wrt}: {o.kind.name} {o.message}\n{g}")
            if o.status is Status.UNPROVED:
                found.unproved.append(o.kind.name)
        found.proved += all(o.status is Status.PROVED for o in report.obligations)
    arrays = host_arrays(p, case.params, case.seed, noise=case.seed % 2 == 1)
    reference = _run(p, REFERENCE, arrays, case.params)
    random = np.random.default_rng(case.seed)
    moves = {f"t_{n}": random.normal(size=arrays[n].shape).astype(arrays[n].dtype) for n in wrt}
    seeds = random.normal(size=reference[of].shape).astype(reference[of].dtype)
    pushed = _run(forward, REFERENCE, {**arrays, **moves}, case.params)
    given = {f"d_{of}": seeds} if f"d_{of}" in reverse.inputs else {}
    pulled = _run(reverse, Way("interp", {"gather": "ordered", "order": "random"}), {**arrays, **given}, case.params)
    for name, value in reference.items():
        for out, what in ((pushed, "jvp"), (pulled, "vjp")):
            if difference({name: value}, {name: out[name]}, exact=True):
                raise Broken(f"{what} of {of}: changes the primal {name}: {value.tolist()} to {out[name].tolist()}")
    single = any(v.dtype == np.float32 for v in (*p.inputs.values(), *p.outputs.values())) or "f32" in case.text
    wide = 2e-3 if single else 1e-8
    got = pushed[f"t_{of}"]
    left = float(np.sum(got * (seeds if given else 1.0), dtype=np.float64))
    terms = [pulled[f"d_{n}"].astype(np.float64) * moves[f"t_{n}"] for n in wrt]
    right = sum(float(np.sum(t)) for t in terms)
    size = 1.0 + sum(float(np.sum(np.abs(t))) for t in terms) + float(np.sum(np.abs(got * seeds if given else got)))
    if not abs(left - right) <= wide * size:
        raise Broken(f"derivative of {of} by {wrt}: forward {left}, reverse {right}")
    if tangents is not None:
        want = tangents(of, wrt, arrays, moves)
        if not np.allclose(got, want, rtol=wide, atol=wide * (1.0 + float(np.max(np.abs(want), initial=0.0)))):
            raise Broken(f"jvp of {of} by {wrt}: expected {want.tolist()}, got {got.tolist()}")


def directive(case: Case) -> None:
    """`adjoint of R wrt X` in the text expands to what `reverse` gives, and both print and read back."""
    p = upl.load(case.text)
    outs, ins = real_ports(p)
    if not outs or not ins:
        return
    try:
        g = reverse(p, of=outs[0], wrt=ins)
    except upl.UplError:
        return
    expanded = upl.load(f"{case.text}\nadjoint of {outs[0]} wrt {', '.join(ins)}\n").expanded()
    if str(g) != str(expanded):
        raise Broken(f"`adjoint of` expands to another program than reverse:\n{expanded}\n{g}")
    again = upl.load(str(g))  # what the passes share without a name has one in the text: the same from there on
    printing(replace(case, text=str(again)))
    arrays = host_arrays(again, case.params, case.seed)
    where = difference(_run(g, REFERENCE, arrays, case.params), _run(again, REFERENCE, arrays, case.params), exact=True)
    if where is not None:
        raise Broken(f"the derivative reads back to another program: {where}\n{g}")


def passes(case: Case) -> None:
    """Neither the elimination of dead derivatives nor `simplify` changes a result."""
    from upl_mlir.passes.pipelines import GRADIENT
    from upl_mlir.pipeline import passes_of, run

    p = upl.load(case.text)
    outs, ins = real_ports(p)
    if not outs or not ins:
        return
    steps: dict[str, upl.Program] = {}
    out = p.clone()

    def keep(step: Any, module: Any) -> None:
        steps[step.name] = upl.Program(module.clone())

    try:
        run(out.module, passes_of(GRADIENT, {"autodiff": {"of": outs[0], "wrt": tuple(ins)}}), after=keep)
    except upl.UplError:
        return
    arrays = host_arrays(p, case.params, case.seed)
    before: Arrays | None = None
    for name in ("autodiff", "eliminate-dead-derivatives", "simplify"):
        step = steps[name]
        seeds = {n: np.ones(v.shape(**case.params), v.dtype) for n, v in step.inputs.items() if n not in arrays}
        now = _run(step, REFERENCE, {**arrays, **seeds}, case.params)
        if before is not None and (where := difference(before, now, exact=name == "simplify")):
            raise Broken(f"after {name}: {where}")
        before = now


PROPERTIES: Mapping[str, Callable[[Case], Any]] = {
    "proof": proof,
    "results": results,
    "printing": printing,
    "inferred": inferred,
    "derivatives": derivatives,
    "directive": directive,
    "passes": passes,
}
"""By name, as saved cases say it; `proof` alone makes sense of a wrong program."""
