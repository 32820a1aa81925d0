"""Names: whatever a program calls its things, it computes the same.

A compiler invents names: of loops, of derivatives, of variables in C.  Here each such name, as it stands in what is made
of a program, is given to something of the program itself: a parameter, a field, a node, an input, a value.

    PYTHONPATH=test python -m agreement.names [SAMPLE [SEED]]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from random import Random
from typing import Any

import numpy as np
from xdsl.context import Context

import upl_mlir as upl
from agreement.campaign import Failure, Tally
from agreement.conditions_engines import in_c
from agreement.ledger import STARTS
from agreement.properties import Case
from upl_mlir.engines.native.c.c_source import emit_one_file
from upl_mlir.frontend.upl_text.lexer import RESERVED
from upl_mlir.passes.if_convert import IfConvertPass
from upl_mlir.passes.lower_to_loops import LowerLoopsPass

PROGRAMS = {
    "grid": """program grid
param m >= 1
param T >= 1
const c = 0.25
const N[0:2] = [3, 2, 4]
const r[0:2] = [0.5, 0.25, 2.0]
input A<i,j> in 0<=i<m, 0<=j<m { -> U.u<0,i,j> }
input W<k> in 0<=k<3 { #T*m*m -> Mix.w<*,*,*,k> }
output B<i,j>
output E
node U<t,i,j> in 0<=t<=T, 0<=i<m, 0<=j<m {
  in u
  s = exp(-u*u) + c
  if t<T: s #3 -> Mix.u<t,i,j,*>
  if t==T: u -> B<i,j>
  if t==T: u -> Total.x<>
}
node Mix<t,i,j,k> in 0<=t<T, 0<=i<m, 0<=j<m, 0<=k<3 { in u, w; v = u*w*r[k] + (i<N[k] ? c : 0); v -> Sum.v<t+1,i,j> }
node Sum<t,i,j> in 1<=t<=T, 0<=i<m, 0<=j<m { in @(+) v[3]; v/(1+m) -> U.u }
node Total<> { in @(+) x[m*m]; sqrt(x*x+1) -> E }
""",
    "product": """program product
param n >= 1
param m >= 1
input A<i,k> in 0<=i<n, 0<=k<m { #n -> P.a<i,*,k> }
input B<k,j> in 0<=k<m, 0<=j<n { #n -> P.b<*,j,k> }
output C<i,j>
node P<i,j,k> in 0<=i<n, 0<=j<n, 0<=k<m { in a, b; a*b -> S.s<i,j> }
node S<i,j> in 0<=i<n, 0<=j<n { in @(+) s[m]; q = tanh(s); q*q -> C }
""",
    "solve": """program solve
param n >= 1
input L<i,k> in 0<=k<=i<n { if i!=k: -> D.l<i,k>; if i==k: -> X.d<i> }
input b<i> in 0<=i<n { -> X.b<i> }
output x<i>
node D<i,k> in 0<=k<i<n { in l, y; l*y -> X.s<i> }
node X<i> in 0<=i<n { in d, b, @(+) s[i]; y = (b - s)/(d*d + 2); y -> x<i>; if i<n-1: y #n-1-i -> D.y<*,i> }
""",
    "rows": """program rows
param b >= 1
param w >= 1
param m >= 2
input K<i>: int in 0<=i<b { -> Row.k<i> }
input X<j,c> in 0<=j<m, 0<=c<w { ## -> Get.x<j,*,c> }
output Y<i,c>
node Row<i> in 0<=i<b { in k: int; 1 -> Get.one<k,i,c> for c in 0..w-1 }
node Get<j,i,c> { in x, one: int; x*x*one -> Y<i,c> }
""",
}
SIZES: Mapping[str, Mapping[str, int]] = {
    "grid": {"m": 3, "T": 3}, "product": {"n": 4, "m": 3}, "solve": {"n": 4},
    "rows": {"b": 4, "w": 2, "m": 3},
}
FIRST = STARTS["names"]
WORD = re.compile(r"\b[^\W\d]\w*\b")
_WORDS = {"program", "exp", "tanh", "sqrt"} | RESERVED
FIXED = (
    "exp sqrt tanh fma pow main printf malloc calloc free memcpy memset abs fabs fmin int64_t size_t uint8_t double float "
    "restrict static status errno NAN INFINITY isnan signbit EOF NULL stdout stdin inline omp_get_thread_num "
    "L1 L2 L3 L1b L1w L1s L1r q1 t1 i0 self real x0 arg0 v0 table index memref func scf f64 i64 upl None True lambda "
    "out params engine kwargs arrays"
).split()


@cache
def invented(name: str) -> tuple[str, ...]:
    """The words in what is made of a program that are not its own."""
    text = PROGRAMS[name]
    p = upl.load(text)
    of, wrt = next(iter(p.outputs)), reals(p)
    made: list[upl.Program] = [p, upl.vjp(p, of=of, wrt=wrt), upl.jvp(p, of=of, wrt=wrt)]
    words: dict[str, None] = dict.fromkeys(FIXED)
    for q in made:
        words |= dict.fromkeys(WORD.findall(str(q)))
        module = q.infer_domains().module.clone()
        IfConvertPass(compared=True).apply(Context(), module)
        LowerLoopsPass().apply(Context(), module)
        words |= dict.fromkeys(WORD.findall(f"{module}\n{emit_one_file(module)}"))
    own = {*WORD.findall(text), *_WORDS}
    return tuple(w for w in words if w not in own and w != "_")


def renamed(name: str, old: str, new: str) -> upl.Program:
    """A program in which something has another name."""
    return upl.load(re.sub(rf"\b{old}\b", new, PROGRAMS[name]))


@cache
def _everything(seed: int) -> tuple[tuple[str, str, str], ...]:
    every = [
        (name, old, new)
        for name, text in PROGRAMS.items() for old in sorted({*WORD.findall(text)} - _WORDS) for new in invented(name)
    ]  # fmt: skip
    Random(seed).shuffle(every)
    return tuple(every)


def cases(sample: int, seed: int = 1) -> Iterator[tuple[str, str, str]]:
    """Programs, own names, invented names: a mixed part of all."""
    yield from _everything(seed)[:sample]


def reals(p: upl.Program) -> list[str]:
    """The inputs that have derivatives."""
    return [n for n, view in p.inputs.items() if view.dtype.kind == "f"]


def _data(p: upl.Program, sizes: Mapping[str, int]) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(7)
    shapes = [(view.shape(**sizes), view.dtype.kind) for view in p.inputs.values()]
    return [rng.normal(size=s) if kind == "f" else rng.integers(0, 2, s) for s, kind in shapes]


@cache
def right(name: str) -> tuple[list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]:
    """Results and the first output's gradients of a program with its own names, by the interpreter."""
    p = upl.load(PROGRAMS[name])
    return _results(p, SIZES[name], "interp")


def _results(p: upl.Program, sizes: Mapping[str, int], engine: str) -> Any:
    given = dict(zip(p.inputs, _data(p, sizes), strict=True))
    values = upl.compile(p, engine=engine)(**given, **sizes)
    of = next(iter(p.outputs))
    g = upl.vjp(p, of=of, wrt=reals(p))
    (seed,) = [n for n in g.inputs if n not in p.inputs]
    seeds = np.cos(np.arange(np.asarray(values[of]).size, dtype=float)).reshape(np.shape(values[of]))
    back = upl.compile(g, engine=engine)(**given, **{seed: seeds}, **sizes)
    return [values[n] for n in p.outputs], [v for n, v in back.items() if n not in p.outputs]


def difference(name: str, old: str, new: str) -> str | None:
    """What is not as it was under another name; None if nothing is.  A name that UPL refuses is no difference."""
    sizes = {new if k == old else k: v for k, v in SIZES[name].items()}
    try:
        p = renamed(name, old, new)
    except upl.UplError as e:
        return None if e.diagnostics[0].code.startswith("UPL10") else str(e)
    try:
        found = {
            "interp": lambda: _results(p, sizes, "interp"),
            "native": lambda: _results(p, sizes, "native"),
            "C": lambda: ([*in_c(p)(sizes, dict(zip(p.inputs, _data(p, sizes), strict=True))).values()], []),
        }
        if len(reals(p)) < len(p.inputs):  # data decide: C has an output more then
            del found["C"]
        for way, run in found.items():
            values, back = run()
            for what, got, wanted in (("values", values, right(name)[0]), ("gradients", back, right(name)[1])):
                if got and not all(np.allclose(a, b, rtol=1e-12, atol=1e-12) for a, b in zip(got, wanted, strict=True)):
                    return f"{way}: other {what}"
    except Exception as e:
        return f"{type(e).__name__}: {str(e)[:300]}"
    return None


def sweep(seed: int, tally: Tally) -> None:
    """The campaign: one case, by the number of the seed among all."""
    every = _everything(1)
    name, old, new = every[(seed - FIRST) % len(every)]
    found = difference(name, old, new)
    tally.reached["names"] += 1
    tally.reached[f"names: {name}: {'equal' if found is None else 'other'}"] += 1
    if found is not None:
        tally.reached["FAILED"] += 1
        case = Case(re.sub(rf"\b{old}\b", new, PROGRAMS[name]), True, {}, seed)
        tally.failures.append(Failure("names", seed, f"{old} as {new}: {found}", case))


def main(argv: list[str]) -> int:
    """Look at a sample; the exit status is 1 if something differs."""
    sample, seed = map(int, (*argv, *("200", "1")[len(argv) :]))
    bad = looked = 0
    for case in cases(sample, seed):
        looked += 1
        if (found := difference(*case)) is not None:
            bad += 1
            print(*case, found, flush=True)
    print(f"{looked} names, {bad} make a difference")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
