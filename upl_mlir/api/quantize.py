"""Which small type a program needs: ranges by intervals, then by data; the error of each type against f64.

Intervals hold for all inputs within their ranges at the sizes that are given, and so prove that nothing saturates.  They
widen where values depend on each other; then the data say what is needed, with a bit more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from upl_mlir.api.program import Program
from upl_mlir.api.programs import compile
from upl_mlir.diagnostics import UplError, error, nearest_or_all
from upl_mlir.dialects.upl import UplType
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.dialects.upl.precision import require_one_real
from upl_mlir.engines.interp.engine import Engine
from upl_mlir.host.arrays import bind_arrays, bind_parameters, host_ports
from upl_mlir.numbers.formats import MAX_BITS
from upl_mlir.numbers.watching import ON_INTERVALS, Interval, Undecided, Watch
from upl_mlir.ops import FUNCTIONS

Array = NDArray[Any]
WIDTHS = (8, 12, 16, 18, 24, 32)
"""The widths that are tried: of bytes and halves of them, and of a multiplier block."""
DEARER = 2
"""So many more bits before the point than the data need are taken, if intervals prove them.  Chosen, not measured."""
MARGIN = 1
"""Bits before the point beyond those that the data need, where intervals prove nothing."""
MOST_RESULTS = 3_000_000
"""Programs with more results than that are not run on intervals, which are some ten times slower than numbers."""


class Loss(NamedTuple):
    """How far an output is from that of f64, at most."""

    output: str
    absolute: float
    relative: float
    """As a part of the greatest number of the output."""


@dataclass(frozen=True)
class Tried:
    """A type on the data; `losses` by output."""

    real: str
    bits: int
    losses: tuple[Loss, ...]

    @property
    def worst(self) -> float:
        """The greatest relative loss."""
        return max((x.relative for x in self.losses), default=0.0)


@dataclass(frozen=True)
class Quantization:
    """`seen`: the range of all results on the data; `proved`: that for all inputs in their ranges, or why there is none.

    `integer` are the bits before the point that fixed point gets, `chosen` the narrowest type within the error.
    """

    seen: tuple[float, float]
    proved: tuple[float, float] | str
    integer: int
    by_proof: bool
    tried: tuple[Tried, ...]
    error: float
    chosen: str | None


def quantize(
    p: Program, arrays: Mapping[str, Any], /, *, widths: Sequence[int] = WIDTHS, error: float = 0.01,
    ranges: Mapping[str, tuple[float, float]] | None = None, **params: int,
) -> Quantization:  # fmt: skip
    """The small types for a program on these arrays: `widths` of fixed point, f16 and bf16.

    `error` is the part of an output's greatest number that it may be off by, `ranges` what inputs lie in (else the range of
    their arrays).  Raises UplError: UPL1509 for a program without reals, a range or a width that is none, UPL1808, and as a
    run does.
    """
    wrong = [w for w in widths if not 2 <= w <= MAX_BITS]
    if wrong:
        raise _refused(f"width {wrong[0]}: expected 2 to {MAX_BITS} bits")
    program = p.expanded().infer_domains()
    with program.errors():
        op = program.read()
        require_one_real(op, Kind.of("bf16"))
        bound = bind_parameters(op, arrays, params)
        ports = host_ports(op, bound)
        dense = bind_arrays(op, ports, dict(arrays))
        unknown = [n for n in ranges or {} if n not in dense or ports[n].type is not UplType.REAL]
        if unknown:
            reals = [n for n in dense if ports[n].type is UplType.REAL]
            raise _refused(f"`{unknown[0]}` is no input of reals", nearest_or_all(unknown[0], reals))
        watch = Watch()
        exact = Engine(op, bound, real=Kind.watched(watch)).run(dense).outputs
        seen = (watch.low, watch.high)
        if not all(map(math.isfinite, seen)):
            raise _refused(f"results are not finite on these data: {seen[0]:g} to {seen[1]:g}")
        least = _bits(*seen)

        def on_intervals(off: float) -> tuple[float, float] | str:
            if watch.results > MOST_RESULTS:
                return f"more than {MOST_RESULTS:,} results"
            noted = Watch(error=off, names={**_UNKNOWN, **ON_INTERVALS})
            given = {n: _as_intervals(a, ports[n].type, (ranges or {}).get(n)) for n, a in dense.items()}
            try:
                Engine(op, bound, real=Kind.watched(noted)).run(given)
            except Undecided:
                return "a comparison of data, or an integer made of them, decides what is computed"
            return (noted.low, noted.high)

        # The rounding of a type moves results by half a step each; that of the narrowest one with so many bits counts.
        proved, by_proof, integer = "", False, least + MARGIN
        for bits in range(least, least + DEARER + 1):
            narrowest = min((w for w in widths if w >= max(2, bits)), default=MAX_BITS)
            proved = on_intervals(2.0 ** -(max(0, narrowest - bits) + 1))
            by_proof = not isinstance(proved, str) and _bits(*proved) <= bits
            if by_proof:
                integer = bits
            if by_proof or isinstance(proved, str):
                break
        names = [f"q{integer}.{w - integer}" for w in sorted(widths) if w >= max(2, integer)]
        kinds = sorted(map(Kind.of, ("bf16", "f16", *names)), key=_width)
        reals = [n for n in exact if ports[n].type is UplType.REAL]
        tried = tuple(_tried(p, k, exact, arrays, params, reals) for k in kinds)
    good = [t for t in tried if t.worst <= error]
    fixed = [t for t in good if t.real.startswith("q")]
    chosen = min(fixed or good, key=lambda t: t.bits, default=None)
    return Quantization(seen, proved, integer, by_proof, tried, error, None if chosen is None else chosen.real)


def _refused(why: str, help: str | None = None) -> UplError:
    return error("UPL1509", f"quantize: {why}", help=help)


def _width(kind: Kind) -> int:
    assert kind.format is not None
    return kind.format.bits


def _bits(low: float, high: float) -> int:
    """The bits before the point, sign included, of a range; more than there are for an endless one."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return MAX_BITS + 1
    n = 1
    while low < -(2.0 ** (n - 1)) or high >= 2.0 ** (n - 1):
        n += 1
    return n


def _as_intervals(a: Array, type_: UplType, given: tuple[float, float] | None) -> Array:
    """Each element as the range of all; what is no real stays."""
    if type_ is not UplType.REAL or not a.size:
        return a
    out = np.empty(a.shape, object)
    low, high = given or (float(a.min()), float(a.max()))
    if not low <= high:
        raise _refused(f"the range {low:g}..{high:g} is none")
    for at in np.ndindex(a.shape):
        out[at] = Interval(low, high)
    return out


def _anything(*_: Any) -> Interval:
    return Interval(-math.inf, math.inf)


_UNKNOWN: Mapping[str, Callable[..., Any]] = {
    **{f.name: _anything for f in FUNCTIONS},
    **dict.fromkeys(("copysign", "ceil", "trunc", "round_away", "round_even", "rsqrt"), _anything),
    **dict.fromkeys(("min_number", "max_number"), _anything),
}
"""Functions of which intervals know nothing."""


def _tried(
    p: Program, kind: Kind, exact: Mapping[str, Array], arrays: Mapping[str, Any], params: Mapping[str, int],
    reals: Sequence[str],
) -> Tried:  # fmt: skip
    found = _run(p, kind.value, arrays, params)
    losses: list[Loss] = []
    for n in reals:
        if exact[n].size:
            off = np.abs(np.asarray(found[n], float) - exact[n])
            absolute = float(np.where(np.isnan(off), np.inf, off).max())
            losses.append(Loss(n, absolute, absolute / (float(np.abs(exact[n]).max()) or 1.0)))
    return Tried(kind.value, _width(kind), tuple(losses))


def _run(p: Program, real: str, arrays: Mapping[str, Any], params: Mapping[str, int]) -> dict[str, Array]:
    """The outputs in a type: native code, or the interpreter where that has none."""
    try:
        return compile(p, "native", real=real)(**arrays, **params)
    except UplError as e:
        if not e.diagnostics[0].code.startswith("UPL18"):
            raise
        return compile(p, real=real)(**arrays, **params)

