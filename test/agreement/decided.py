"""Programs that data decide, natively against the interpreter: results on right data, errors on wrong ones.

    decided(seed)            # a Counter of what was reached; raises Broken

A seed is a program of one of three generators, by turns: pieces with data that may be wrong (`by_data`), chains of stages
and their gradients (`ways`), programs of the wider class in which data decide arrows (`wide`).  It is compiled once and
called with several data.  Where loops find that something is wrong, and where there are none, native code moves tokens in
C++.  In most programs here the interpreter moves them, as C++ for each would take three times as long; in one of `REAL`
the C++ does.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

import upl_mlir as upl
from agreement import by_data, naive
from agreement.engines import hulls, unproved
from agreement.properties import Arrays, Broken, difference, host_arrays
from agreement.ways import ways
from agreement.wide import WideGenerator
from upl_mlir.engines.interp.engine import Engine
from upl_mlir.engines.token import all_sizes
from upl_mlir.engines.token.all_sizes import LoopsOrTokens, TokensInCode

REAL = 7
"""In one of so many programs the tokens are those that users have."""
COMPILER = {"CXX": "g++ -O0"}
"""Compiles in a third of the time, to the same results."""
TRIED, KEPT = 16, 3
"""Of so many data of `by_data` at most so many right and so many wrong ones are used."""
RIGHT, PROVED = ("stages", "wide"), 8
"""Programs that are right by construction are proved to be so only in one of so many, where no domain is a hull."""
FAR = 77
"""What no index of these programs reaches."""


@dataclass(frozen=True)
class Case:
    """A program, sizes, and data for it, of which nothing is known."""

    program: upl.Program
    params: Mapping[str, int]
    data: list[Arrays]


class _Interpreted(Engine):
    """The interpreter in the place of the token engine."""

    compile_seconds = 0.0


class DecidedGenerator(WideGenerator):
    """Programs of the wider class with one to three arrows that data decide."""

    def results(self) -> None:
        """Host outputs, and arrows beside their complements."""
        super().results()
        for _ in range(self.rng.randrange(1, 4)):
            self._split([s for s in self.sources.values() if s.end.kind == "node"])


def _pieces(seed: int) -> Iterator[Case]:
    p = upl.load(by_data.program(seed))
    params = {n: by_data.SIZES[n] for n in p.params}
    shapes = {n: (port.shape(**params), port.dtype) for n, port in p.inputs.items()}
    yield Case(p, params, [by_data.data(seed, n, shapes) for n in range(TRIED)])


def _stages(seed: int) -> Iterator[Case]:
    """A chain of stages on its data, and on some in which one index is wrong; every other seed its gradient."""
    w, rng = ways(seed), np.random.default_rng(seed)
    p, arrays = upl.load(w.text), dict(w.arrays)
    if seed // 3 % 2:
        p = upl.vjp(p, of="Y", wrt=list(w.wrt))
        arrays["d_Y"] = rng.normal(size=p.inputs["d_Y"].shape())
    data = [arrays]
    whole = [n for n, a in arrays.items() if a.dtype.kind == "i" and a.size]
    for wrong in (-1, 1, FAR) if whole else ():
        name = whole[rng.integers(len(whole))]
        other = arrays[name].copy()
        other.flat[rng.integers(other.size)] += wrong
        data.append(arrays | {name: other})
    yield Case(p, {}, data)


def _wide(seed: int) -> Iterator[Case]:
    program = DecidedGenerator(seed, 2 + seed // 3 % 2).program()
    sizes = naive.small_params(program)
    p = upl.load(program.text()).infer_domains()
    params = sizes[seed % len(sizes)]
    more = {n: v + 1 for n, v in params.items()}
    for chosen in (params, more) if params else (params,):
        yield Case(p, chosen, [host_arrays(p, chosen, s) for s in (seed, seed + 1)])


KINDS = {"pieces": _pieces, "stages": _stages, "wide": _wide}


def decided(seed: int) -> Counter[str]:
    """What was reached with the program of a seed.  Raises Broken where native code and the interpreter differ."""
    kind = list(KINDS)[seed % len(KINDS)]
    gather = "ordered" if seed // len(KINDS) % 4 == 3 else "relaxed"
    found = Counter[str]()
    real = seed % REAL == 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(all_sizes, "TokenEngine", all_sizes.TokenEngine if real else _Interpreted))
        stack.enter_context(mock.patch.dict(os.environ, COMPILER))
        try:
            cases = list(KINDS[kind](seed))
        except upl.UplError as e:
            if e.diagnostics[0].code != "UPL1205":  # too complex for our sets
                raise
            return Counter({f"{kind}: refused UPL1205": 1})
        if kind in RIGHT and seed % PROVED and not hulls(cases[0].program):
            unproved(stack)
        code: Any = None
        for case in cases:
            try:
                one = upl.compile(case.program, engine="interp", gather=gather)  # type: ignore[arg-type]
                code = code or upl.compile(case.program, engine="native", gather=gather)  # type: ignore[arg-type]
            except upl.UplError as e:
                return Counter({f"{kind}: refused {e.diagnostics[0].code}": 1})
            found += _compared(case, one, code, real=real, exact=gather == "ordered")
    return Counter({f"{kind}: {what}": n for what, n in found.items()} | {f"{kind}: programs": 1})


def _compared(case: Case, one: Any, code: Any, *, real: bool, exact: bool) -> Counter[str]:
    found, used = Counter[str](), Counter[bool]()
    for arrays in case.data:
        try:
            expected = one(**arrays, **case.params)
            error = None
        except upl.UplError as e:
            expected, error = None, e
        if used[error is None] >= KEPT:
            continue
        used[error is None] += 1
        try:
            got = code(**arrays, **case.params)
        except upl.UplError as e:
            if error is None or _said(e) != _said(error):
                raise Broken(f"native: {e}\ninterpreter: {error or 'no error'}\n{shown(case, arrays)}") from None
            found["wrong data, the same error" + (" by C++" if real else "")] += 1
            continue
        if error is not None:
            raise Broken(f"native: no error\ninterpreter: {error}\n{shown(case, arrays)}")
        where = difference(expected, got, exact=exact)
        if where is not None:
            raise Broken(f"{where}\n{shown(case, arrays)}")
        found[f"right data, equal: {_way(code, real=real)}"] += 1
    return found


def _way(f: Any, *, real: bool) -> str:
    """How the last results of a program were found."""
    runner = f._native
    if isinstance(runner, LoopsOrTokens):
        return "loops" if not runner._by_tokens else "loops, then tokens"
    if isinstance(runner, TokensInCode):
        return "tokens" if real else "tokens, interpreted"
    return "loops, nothing to decide"


def _said(e: upl.UplError) -> list[Any]:
    """Code and place, and the words but for the order in which tokens are listed: of more than ten, which ones are."""
    found: list[Any] = []
    for d in e.diagnostics:
        words = d.message.partition(": ")[0] if re.search(r"and \d+ more$", d.message) else d.message
        found.append((d.code, str(d.span), sorted(re.findall(r"[^\s,]+", words))))
    return sorted(found)


def shown(case: Case, arrays: Arrays) -> str:
    """Sizes, data and text of a case."""
    data = {n: np.asarray(a).tolist() for n, a in arrays.items()}
    return f"at {dict(case.params)}: {data}\n{case.program}"
