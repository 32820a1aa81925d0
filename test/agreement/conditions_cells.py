"""One program of the condition sweep, every way: what became of each cell of the table.

A cell is a way with a program, at all its sizes.  Its outcome is `EQUAL`, ``refused CODE``, `WRONG`, or the name of an
exception that is no diagnostic.  The truth is `Program.expected`, plain Python: the interpreter is a cell like the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import upl_mlir as upl
from agreement.conditions_engines import ENGINES, Engine, Run, Size
from agreement.conditions_sites import Point, Program, Values
from agreement.data import element
from agreement.properties import declared
from upl_mlir.poly.expr import Formula, IndexExpr, MinMax, Select, Var
from upl_mlir.poly.operators import Connective
from upl_mlir.poly.parse import PolySyntaxError, parse_formula, parse_index

EQUAL, WRONG, UNNAMED = "equal", "WRONG", ", not named"


@dataclass(frozen=True)
class Cell:
    """What became of a program; `size` is the one at which it failed, `detail` how."""

    program: Program
    way: str
    outcome: str
    size: Size | None = None
    detail: str = ""

    @property
    def bad(self) -> bool:
        """Whether this must not be: only equal results, and refusals, may."""
        return self.outcome != EQUAL and not self.outcome.startswith("refused")


class Wrong(Exception):
    """A result that is not the right one."""


class Work:
    """A program with data and results at each size, and what is made of it once."""

    def __init__(self, program: Program, seed: int):
        self.program, self.seed = program, seed
        self.of = "T" if "output T" in program.text else "Y"
        self.made: dict[str, Any] = {}

    def at(self, size: Size, name: str, make: Callable[[upl.Program], Any]) -> Any:
        """What is made of the program; once for all sizes, or for all values of its symbolic array."""
        arrays = self.program.arrays(size)
        key, text = f"{name} {arrays}", f" {arrays}"
        if text not in self.made:
            self.made[text] = upl.load(self.program.text, **arrays)
        if key not in self.made:
            self.made[key] = make(self.made[text])
        return self.made[key]

    @cached_property
    def data(self) -> list[tuple[Size, Values, Mapping[str, Values]]]:
        """For each size: size, input by index, outputs by index."""
        out: list[tuple[Size, Values, Mapping[str, Values]]] = []
        for size in self.program.sizes:
            x = {at: float(element(self.seed, "X", at, "real")) for at in self.program.starts(size)}
            out.append((size, x, self.program.expected(size, x)))
        return out

    def weights(self, name: str, at: Any) -> Values:
        """Random numbers, by index."""
        return {x: float(element(self.seed, name, x, "real")) for x in at}

    def slope(self, size: Size, x: Values, at: Point) -> Values:
        """The derivative of the output by one element: a central difference, exact for degree two on dyadic numbers."""
        up, down = (self.program.expected(size, {**x, at: x[at] + h})[self.of] for h in (0.5, -0.5))
        return {o: up[o] - down[o] for o in up}


def given(p: upl.Program, size: Size, values: Mapping[str, Values]) -> dict[str, Any]:
    """The host arrays from values by index; those of other inputs are a half everywhere."""
    out: dict[str, Any] = {}
    for name, port in p.inputs.items():
        shape, origin = port.shape(**size), port.origin(**size)
        out[name] = dense(values[name], shape, origin, port.dtype) if name in values else np.full(shape, 0.5, port.dtype)
    return out


def dense(values: Values, shape: Any, origin: Any, dtype: Any) -> Any:
    """An array from values by index.  Raises IndexError."""
    a = np.zeros(shape, dtype)
    for at, v in values.items():
        place = tuple(i - o for i, o in zip(at, origin, strict=True))
        if any(i < 0 for i in place):
            raise IndexError
        a[place] = v
    return a


def compare(p: upl.Program, name: str, size: Size, wanted: Values, got: Any) -> None:
    """Raise Wrong where a result has not the values by index, or is not 0 elsewhere."""
    port = p.outputs[name]
    shape, origin = tuple(port.shape(**size)), port.origin(**size)
    got = np.asarray(got)
    try:
        want = dense(wanted, shape, origin, np.float64)
    except IndexError:
        raise Wrong(f"{name} has the shape {shape} from {origin}: no place for all of {sorted(wanted)}") from None
    if got.shape != shape:
        raise Wrong(f"{name} has the shape {got.shape}, expected {shape}")
    if not np.array_equal(got.astype(np.float64), want):
        raise Wrong(f"{name}: got {got.tolist()}, expected {want.tolist()}")


# -- ways -------------------------------------------------------------------------------------------------------------
Way = Callable[[Work], None]


@contextmanager
def _noted(size: Size) -> Iterator[None]:
    """An exception knows the size at which it was raised."""
    try:
        yield
    except Exception as e:
        e.size = size  # type: ignore[attr-defined]
        raise


def _same(engine: Engine, changed: Callable[[upl.Program], upl.Program] = lambda p: p) -> Way:
    """The program itself, or another that does the same."""

    def way(work: Work) -> None:
        for size, x, wanted in work.data:
            with _noted(size):
                p = work.at(size, "program", changed)
                run: Run = work.at(size, "run", lambda _, p=p: engine(p))
                got = run(size, given(p, size, {"X": x}))
                for name, values in wanted.items():
                    compare(p, name, size, values, got[name])

    return way


def _gradient(engine: Engine, changed: Callable[[upl.Program], upl.Program] = lambda p: p) -> Way:
    """Reverse mode against central differences of what is expected; the primal output stays."""

    def way(work: Work) -> None:
        for size, x, wanted in work.data:
            with _noted(size):
                p = work.at(size, "gradient", lambda p: changed(upl.vjp(p, of=work.of, wrt="X")))
                run: Run = work.at(size, "run", lambda _, p=p: engine(p))
                seed = f"d_{work.of}"
                weights = work.weights("w", wanted[work.of])
                got = run(size, given(p, size, {"X": x, seed: weights}))
                if seed not in p.inputs:
                    weights = dict.fromkeys(weights, 1.0)
                slopes: dict[Point, float] = {}
                for at in x:
                    slopes[at] = sum(weights[o] * v for o, v in work.slope(size, x, at).items())
                compare(p, "d_X", size, slopes, got["d_X"])
                compare(p, work.of, size, wanted[work.of], got[work.of])

    return way


def _tangent(engine: Engine) -> Way:
    """Forward mode, along a random direction."""

    def way(work: Work) -> None:
        for size, x, wanted in work.data:
            with _noted(size):
                p = work.at(size, "tangent", lambda p: upl.jvp(p, of=work.of, wrt="X"))
                run: Run = work.at(size, "run", lambda _, p=p: engine(p))
                moves = work.weights("t", x)
                got = run(size, given(p, size, {"X": x, "t_X": moves}))
                slopes = dict.fromkeys(wanted[work.of], 0.0)
                for at, move in moves.items():
                    for o, v in work.slope(size, x, at).items():
                        slopes[o] += move * v
                compare(p, f"t_{work.of}", size, slopes, got[f"t_{work.of}"])

    return way


def _batched(engine: Engine) -> Way:
    """Three inputs at once."""

    def way(work: Work) -> None:
        for size, x, _ in work.data:
            with _noted(size):
                p = work.at(size, "batch", lambda p: upl.batch(p, "X", "m", 3))
                run: Run = work.at(size, "run", lambda _, p=p: engine(p))
                xs = [{at: v + m for at, v in x.items()} for m in range(3)]
                got = run(size, given(p, size, {"X": {(m, *at): v for m in range(3) for at, v in xs[m].items()}}))
                wanted = [work.program.expected(size, xs[m])[work.of] for m in range(3)]
                every = {(m, *at): v for m in range(3) for at, v in wanted[m].items()}
                compare(p, work.of, size, every, got[work.of])

    return way


def _check(work: Work) -> None:
    """Nothing is refuted."""
    for size, _, _ in work.data:
        with _noted(size):
            report = work.at(size, "check", lambda p: p.check())
            if not report.ok:
                raise Wrong(f"right, but refuted: {'; '.join(d.message for d in report.diagnostics())}")


def _counts(work: Work) -> None:
    """The counts of `check`, where there are some, are those of a run; no more tokens wait than its bound says."""
    for size, x, _ in work.data:
        with _noted(size):
            report = work.at(size, "check", lambda p: p.check())
            p = work.at(size, "program", lambda p: p)
            code = work.at(size, "run", upl.compile)
            code(**given(p, size, {"X": x}), **{n: v for n, v in size.items() if n in p.params})
            for what, counts in (("firings", report.firings), ("tokens", report.tokens)):
                for name, n in counts.at(**size).items():
                    if n is not None and n != code.stats[what].get(name, 0):
                        raise Wrong(f"{what} of {name}: {n}, a run has {code.stats[what].get(name, 0)}")
            bound = report.waiting_bound
            if bound is not None:
                bound = bound if isinstance(bound, int) else bound.evaluate(size, lambda a, i: 0)
                if code.stats["peak_waiting"] > bound:
                    raise Wrong(f"{code.stats['peak_waiting']} tokens wait, {bound} at most by the report")


WAYS: Mapping[str, Way] = {
    **{name: _same(engine) for name, engine in ENGINES.items()},
    "with domains": _same(ENGINES["interpreter"], lambda p: upl.load(declared(p.infer_domains()))),
    "check": _check,
    "counts": _counts,
    "batch": _batched(ENGINES["interpreter"]),
    "batch, native": _batched(ENGINES["native"]),
    "gradient": _gradient(ENGINES["interpreter"]),
    "gradient, native": _gradient(ENGINES["native"]),
    "gradient, C": _gradient(ENGINES["C"]),
    "gradient, token": _gradient(ENGINES["token"]),
    "gradient, checkpoint": _gradient(ENGINES["interpreter"], lambda g: upl.checkpoint(g, along="i", every=2)),
    "tangent": _tangent(ENGINES["interpreter"]),
    "tangent, native": _tangent(ENGINES["native"]),
}
DEAR = {
    "token": 4, "gradient, token": 4, "machine": 4, "machine, direct": 8, "machine, throttled": 16,
}  # fmt: skip
"""Ways that take a C++ compiler, or a machine of their own: one program in so many is taken."""


def applies(program: Program, way: str) -> bool:
    """Whether a way is one for this program."""
    if way.startswith(("gradient", "tangent")) and not program.site.smooth:
        return False
    return way != "gradient, checkpoint" or program.site.name == "time loop"


def examine(program: Program, ways: Iterable[str], seed: int = 1) -> Iterator[Cell]:
    """The cells of a program."""
    for way in ways:
        if applies(program, way):
            yield _cell(program, way, seed)


def _cell(program: Program, way: str, seed: int) -> Cell:
    try:
        WAYS[way](Work(program, seed))
    except Wrong as e:
        return Cell(program, way, WRONG, getattr(e, "size", None), str(e))
    except upl.UplError as e:
        code = e.diagnostics[0].code
        outcome = code if code == "UPL1000" else f"refused {code}{'' if named(program, e) else UNNAMED}"
        return Cell(program, way, outcome, getattr(e, "size", None), str(e))
    except Exception as e:
        return Cell(program, way, type(e).__name__, getattr(e, "size", None), f"{type(e).__name__}: {e}")
    return Cell(program, way, EQUAL)


_PARTS = re.compile(
    r"[\w\[\]()+*-]+ (?:mod|floordiv|ceildiv) [\w\[\]()+*-]+|\w+(?:\[[^]]*\])?\*+[\w(]+|\w\[.*?\]+"
)


def named(program: Program, e: upl.UplError) -> bool:
    """Whether a message has the term, or a part of it that is not affine; True where all of it is affine, or where the
    loop is at fault, whatever the condition (UPL1430: nothing waits along it), or an open gather of a derivative."""
    if e.diagnostics[0].code == "UPL1430" or "[##]" in e.diagnostics[0].message:
        return True
    parts = [*_PARTS.findall(program.words), *_as_printed(program.words)]
    said = _tight(" ".join(
        " ".join([d.message, d.help or "", *(n.message for n in d.notes)]) for d in e.diagnostics
    ))  # fmt: skip
    if not parts or any(_tight(part).strip("()") in said for part in [*parts, program.words]):
        return True
    shapes = {_shape(text) for d in e.diagnostics for text in re.findall(r"`([^`]*)`", d.message)}
    return any(_shape(part) in shapes for part in parts)  # of the target, whose fields have other names


def _shape(text: str) -> str:
    """An expression without its names: ``i*j`` is ``$0*$1``."""
    names: dict[str, str] = {}
    words = ("mod", "floordiv", "ceildiv", "min", "max", "abs")

    def anonymous(m: re.Match[str]) -> str:
        return m[0] if m[0] in words else names.setdefault(m[0], f"${len(names)}")

    return _tight(re.sub(r"[A-Za-z]\w*", anonymous, text))


def _as_printed(words: str) -> Iterator[str]:
    """The parts that are not affine as the compiler writes them: ``i*i`` for ``i**2``."""
    words = re.sub(r"(\w+)\*\*(\d)", lambda m: "*".join([m[1]] * int(m[2])), words)
    for text in words.split(";"):
        try:
            e = parse_index(text)
        except PolySyntaxError:
            try:
                f = parse_formula(text)
            except PolySyntaxError:
                continue
            sides = [s for c in _comparisons(f) for s in (c.lhs, c.rhs)]
        else:
            sides = [e]
        for side in sides:
            yield from _hard(side)


def _hard(e: IndexExpr) -> Iterator[str]:
    """What is not affine; a choice between affine expressions is, and so are the least and the greatest of them."""
    for m, _ in e.terms:
        match m:
            case (Select(),) | (Var(),) | ():
                pass
            case (MinMax(_, args),):
                for a in args:
                    yield from _hard(a)
            case _:
                yield str(IndexExpr(((m, 1),)))


def _comparisons(f: Formula) -> Iterator[Formula]:
    if f.kind is Connective.CMP:
        yield f
    for part in f.args:
        yield from _comparisons(part)


def _tight(text: str) -> str:
    return text.replace(" ", "")
