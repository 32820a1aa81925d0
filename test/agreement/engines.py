"""A right program on every engine that is there, on data where bits can be compared: the property "engines"; "native" and
"machine" are the same for one engine each, cheaper, so that a soak gets through many programs.

An engine may refuse a program that is not in its class (its codes are named); the refusals are counted, never compared.
What an engine computes on dyadic data is compared bit by bit with the reference at the same width of `real`, and what
`ordered` native code computes, on all data; relaxed sums are held to the bound of LANGUAGE 3.10, carried through the program
(`rounding`); the machine, where some order of summands rounds in f32, to a tolerance.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import upl_mlir as upl
from agreement.properties import Arrays, Broken, Case, difference, host_arrays
from upl_mlir.dialects.upl.query import endpoints
from upl_mlir.host.cache import Cache
from upl_mlir.passes.analysis.relations import forgotten

Run = Callable[[upl.Program, "Arrays", Mapping[str, int]], "Arrays"]

NOT_NATIVE = ("UPL1205", *(f"UPL{n}" for n in range(1820, 1830) if n != 1821))
"""What data decide (UPL1821) has no loops, but runs."""
NOT_ON_THE_MACHINE = ("UPL1702", "UPL1706", "UPL1710", "UPL1711", "UPL1712", "UPL1722", "UPL1735")
"""Too wide, too deep, too many, or an operation that is not built.  UPL1706 only where 32 bits do not hold an integer."""
MACHINES = {
    "hashed": '[matching]\norganisation = "hashed"\n',  # the default machine, so that other tests have it built already
    "cam": '[matching]\norganisation = "cam"\n',
    "direct": '[matching]\norganisation = "direct"\nbeside = 64\n',  # few random programs need what is beside
    "throttled": '[matching]\norganisation = "hashed"\n[host]\nwindow = 2\n',
}


@dataclass(frozen=True)
class Engine:
    """An engine with its options.  `single`: its `real` is f32; `ordered`: its sums are bit-equal on all data;
    `refuses`: the codes with which it may refuse; `every`: it is tried on one program in so many."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    single: bool = False
    ordered: bool = False
    refuses: tuple[str, ...] = ()
    every: int = 1
    machine: str = ""
    simulator: str = ""

    def run(self, p: upl.Program, arrays: Arrays, params: Mapping[str, int]) -> Arrays:
        """The outputs of one run.  Raises UplError."""
        if self.simulator == "amaranth":
            return _in_amaranth(p, self.machine, arrays, params)
        if self.machine:
            return upl.compile(p, engine="rtl", machine=machine_file(self.machine))(**arrays, **params)
        return upl.compile(p, **self.options)(**arrays, **params)


ENGINES: tuple[Engine, ...] = (
    Engine("interpreter", {"engine": "interp", "gather": "ordered"}, ordered=True),
    Engine("interpreter, random order", {"engine": "interp", "gather": "ordered", "order": "random"}, ordered=True),
    Engine("native", {"engine": "native", "gather": "ordered"}, ordered=True, refuses=NOT_NATIVE),
    Engine("native, relaxed", {"engine": "native"}, refuses=NOT_NATIVE, every=8),
    Engine("native, f32", {"engine": "native", "gather": "ordered", "real": "f32"}, single=True, ordered=True,
           refuses=NOT_NATIVE, every=16),
    Engine("RTL hashed", single=True, refuses=NOT_ON_THE_MACHINE, every=6, machine="hashed"),
    Engine("RTL cam", single=True, refuses=NOT_ON_THE_MACHINE, every=12, machine="cam"),
    Engine("RTL hashed, Amaranth's simulator", single=True, refuses=NOT_ON_THE_MACHINE, every=700, machine="hashed",
           simulator="amaranth"),
    Engine("token", {"engine": "token", "gather": "ordered"}, ordered=True, every=60),
)  # fmt: skip
"""One line for each engine."""
DIRECT = Engine("RTL direct", single=True, refuses=NOT_ON_THE_MACHINE, machine="direct")
"""Tried by the campaign "machine" alone: no other test has it built."""
RELAXED = "native, relaxed"
BY_NAME = {e.name: e for e in (*ENGINES, DIRECT)}
NOTHING = "no result to compare"


def machine_file(name: str) -> Path:
    """The description of a machine, written once for each process."""
    folder = Path(tempfile.gettempdir()) / f"upl-agreement-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{name}.toml"
    if not path.exists() or path.read_text() != MACHINES[name]:
        new = folder / f"{name}.{os.getpid()}.new"
        new.write_text(MACHINES[name])
        new.replace(path)
    return path


def _in_amaranth(p: upl.Program, machine: str, arrays: Arrays, params: Mapping[str, int]) -> Arrays:
    """As the engine "rtl", on Amaranth's simulator."""
    f = upl.compile(p, engine="rtl", machine=machine_file(machine), simulator="amaranth")
    out = f(**arrays, **params)
    if f.stats.get("simulator") != "amaranth":
        raise Broken("the run did not take Amaranth's simulator")
    return out


def engines(case: Case, chosen: tuple[Engine, ...] = ()) -> Counter[str]:
    """Every engine gives the results of the reference, or refuses the program for a reason that is known.

    Returns what happened, counted; a program without an output element is told from those that agree.
    `chosen`: these engines; by default those whose turn it is for the seed.
    """
    p = upl.load(case.text).infer_domains()
    arrays = host_arrays(p, case.params, case.seed, noise=case.noise)
    found = Counter[str]()
    expected = {False: _reference(p, arrays, case.params, "f64")}
    for e in chosen or tuple(e for e in ENGINES if case.seed % e.every == 0):
        if e.single and True not in expected:
            expected[True] = _reference(p, arrays, case.params, "f32")
        wanted = _narrow(expected[True]) if e.machine else expected[e.single]
        exact = e.ordered or (case.exact_single and _alike(expected) if e.single else case.any_order)
        try:
            got = e.run(p, arrays, case.params)
        except upl.UplError as error:
            code = error.diagnostics[0].code
            if code not in e.refuses or (code == "UPL1706" and "32-bit" not in str(error)):
                raise Broken(f"{e.name} at {dict(case.params)}: {error}") from None
            found[f"{e.name}: refused {code}"] += 1
            continue
        # On data that rounds, sums that happen to be exact in any order still differ where they are fused with products.
        if e.name == RELAXED and case.apart is not None and not (exact and not case.smooth and not case.noise):
            found[f"{e.name}: {_bounded(p, case, expected[False], got)}"] += 1
            continue
        where = difference(wanted, got, exact=exact and not case.smooth)
        if where is not None and not exact and _near_a_jump(p, e, arrays, case.params, got):
            found[f"{e.name}: data within rounding of a jump"] += 1
            continue
        if where is not None:
            raise Broken(f"{e.name}: {where}")
        found[f"{e.name}: equal {'bit for bit' if exact and not case.smooth else 'within rounding'}"] += 1
    if not any(a.size for a in expected[False].values()):  # they all ran, but that is no agreement
        return Counter({NOTHING: 1, **{what: n for what, n in found.items() if ": refused " in what}})
    return found


def native(case: Case) -> Counter[str]:
    """Native code, compiled once, at two sizes equals the reference; now and then also relaxed, or where `real` is f32.

    In seven of eight cases the proof that comes before compiling is left out: the program is right, as the reference finds
    too, and that `check` says so is another property; it takes a third of the time.  Not where a domain is a hull: there
    the code is right only at the sizes at which the proof has the tokens counted."""
    with contextlib.ExitStack() as stack:
        if case.seed % 8 and not hulls(upl.load(case.text)):
            unproved(stack)
        return _native(case)


def hulls(p: upl.Program) -> bool:
    """Whether some domain of a program is known only as a hull."""
    return any(map(forgotten, endpoints(p.infer_domains().read()).values()))


def unproved(stack: contextlib.ExitStack) -> None:
    """Programs are compiled without a proof until the stack is left; what is so made is kept for nobody else."""
    stack.enter_context(mock.patch("upl_mlir.passes.analysis.proved.require_proved", lambda _: ()))
    stack.enter_context(mock.patch("upl_mlir.engines.native.whole.open_cache", lambda: Cache(None)))


def _native(case: Case) -> Counter[str]:
    turn = {3: RELAXED, 6: "native, f32"}.get(case.seed % 16)
    found = engines(case, (BY_NAME[turn],)) if turn is not None else Counter[str]()
    del found[NOTHING]  # counted below
    p = upl.load(case.text).infer_domains()
    size = 0
    try:
        code = upl.compile(p, **BY_NAME["native"].options)
        for params in (case.params, {n: v + 1 for n, v in case.params.items()})[: 2 if case.params else 1]:
            arrays = host_arrays(p, params, case.seed, noise=case.noise)
            expected = _reference(p, arrays, params, "f64")
            size += sum(a.size for a in expected.values())
            where = difference(expected, code(**arrays, **params), exact=not case.smooth)
            if where is not None:
                raise Broken(f"native at {dict(params)}: {where}")
            found["native: runs"] += 1
    except upl.UplError as error:
        if error.diagnostics[0].code not in NOT_NATIVE:
            raise Broken(f"native at {dict(case.params)}: {error}") from None
        found[f"native: refused {error.diagnostics[0].code}"] += 1
        return found
    found[f"native: equal {'within rounding' if case.smooth else 'bit for bit'}" if size else NOTHING] += 1
    return found


def machine(case: Case) -> Counter[str]:
    """The machine equals the reference: with the default store, in every fourth case also with the associative one, and in
    every eighth with the direct one."""
    more = {0: "RTL cam", 4: "RTL cam", 6: DIRECT.name}.get(case.seed % 8)
    return engines(case, tuple(BY_NAME[n] for n in ("RTL hashed", more) if n is not None))


def rare(case: Case) -> Counter[str]:
    """The engines that the other campaigns try least: the token engine; for one seed in eight the associative store; for one
    in four hundred the default store on Amaranth's own simulator, which takes a minute or more."""
    turns = (("token", 1), ("RTL cam", 8), ("RTL hashed, Amaranth's simulator", 400))
    return engines(case, tuple(BY_NAME[name] for name, every in turns if case.seed % every == 0))


def _bounded(p: upl.Program, case: Case, expected: Arrays, got: Arrays) -> str:
    """What to count for relaxed sums.  Raises Broken where an element is farther from the ordered result than it may be."""
    assert case.apart is not None
    sure, same = True, True
    for name, bounds in case.apart.items():
        origin = p.outputs[name].origin(**case.params)
        for x, bound in bounds.items():
            at = tuple(i - o for i, o in zip(x, origin, strict=True))
            a, b = expected[name][at], got[name][at]
            if not bound < math.inf:
                sure = False
            elif not (np.array_equal(a, b, equal_nan=a.dtype.kind == "f") or abs(float(a) - float(b)) <= bound):
                raise Broken(f"{RELAXED}: {name}<{','.join(map(str, x))}> is {b}, not {a} ± {bound}")
            same &= bool(a == b)
    if not sure:
        return "no bound (data within rounding of a jump)"
    return "equal bit for bit" if same else "within the bound"


def _reference(p: upl.Program, arrays: Arrays, params: Mapping[str, int], real: str) -> Arrays:
    return upl.compile(p, engine="reference", real=real, gather="ordered")(**arrays, **params)  # type: ignore[arg-type]


_WIDE, _NARROW = np.iinfo(np.int64), np.iinfo(np.int32)


def _narrow(expected: Arrays) -> Arrays:
    """The same with the identities of `min` and `max` over integers as the machine has them, whose `int` has 32 bits."""
    ends = ((_WIDE.min, _NARROW.min), (_WIDE.max, _NARROW.max))
    out = dict(expected)
    for name, a in expected.items():
        if a.dtype == np.int64:
            for wide, narrow in ends:
                out[name] = np.where(a == wide, narrow, out[name])
    return out


def _alike(expected: Mapping[bool, Arrays]) -> bool:
    """Whether the results at both widths of `real` are the same numbers: then, as good as surely, none was rounded."""
    return all(np.array_equal(x, expected[True][n].astype(x.dtype), equal_nan=True) for n, x in expected[False].items())


def _near_a_jump(p: upl.Program, e: Engine, arrays: Arrays, params: Mapping[str, int], got: Arrays) -> bool:
    """Whether the reference itself, in some order of summands, gives these results: a comparison turns on rounding."""
    real = "f32" if e.single else "f64"
    for seed in range(8):
        other = upl.compile(p, engine="reference", real=real, order="random", seed=seed)(**arrays, **params)  # type: ignore[arg-type]
        if difference(other, got, exact=False) is None:
            return True
    return False
