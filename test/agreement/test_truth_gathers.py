"""Gathers of truth values, `&&`, `||` and `!=`, with every form of count, on every engine, beside Python's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce

import numpy as np
import pytest

import upl_mlir as upl
from agreement.engines import machine_file
from upl_mlir.engines.names import EngineName
from upl_mlir.hw.sim.compiled import available

OPERATORS: dict[str, Callable[[Iterable[bool]], bool]] = {
    "&&": all, "||": any, "!=": lambda found: reduce(lambda a, b: a != b, found, False),
}  # fmt: skip
COUNTS = {
    "carried": """node G<i> { in @(OP) s[#]: bool; -> R<i> }
node T<i,j> in 0<=i<n, 1<=j<=i+1 { in x; x > 0 #i+1 -> G.s<i> }""",
    "expression, perhaps 0": """node G<i> in 0<=i<n { in @(OP) s[i]: bool; -> R<i> }
node T<i,j> in 0<=i<n, 1<=j<=i+1 { in x; if j<=i: x > 0 -> G.s<i> }""",
    "another input": """input C<i>: int in 0<=i<n { -> G.c<i> }
node G<i> { in @(OP) s[c]: bool, c: int; s -> R<i> }
node T<i,j> in 0<=i<n, 1<=j<=i+1 { in x; x > 0 -> G.s<i> }""",
    "beside an input": """input Y<i>: bool in 0<=i<n { -> G.y<i> }
node G<i> { in @(OP) s[i+1]: bool, y: bool; s != y -> R<i> }
node T<i,j> in 0<=i<n, 1<=j<=i+1 { in x; x > 0 -> G.s<i> }""",
}
N = 4
ENGINES = [
    ("interp", {}), ("interp", {"order": "random", "seed": 5}), ("interp", {"gather": "ordered"}),
    ("reference", {}), ("token", {}), ("token", {"order": "random", "seed": 7}),
    ("native", {}), ("native", {"gather": "ordered"}),
    ("rtl", {"machine": "hashed"}), ("rtl", {"machine": "cam"}), ("rtl", {"machine": "direct"}), ("circuit", {}),
]  # fmt: skip
REFUSED = {"cam": "UPL1711"}
"""Those that gather sums only, and the code with which they say so."""
DATA = {"cam": "UPL1732"}
"""The same where another input says how many summands there are."""


def text(operator: str, count: str) -> str:
    return f"""program truths
param n >= 1
input X<i,j> in 0<=i<n, 1<=j<=i+1 {{ -> T.x<i,j> }}
output R<i>: bool
{COUNTS[count].replace("OP", operator)}
"""


def test_every_engine_is_tried() -> None:
    alike = {"mpi"}  # native code with exchanges: test/mpi
    assert {name for name, _ in ENGINES} == set(map(str, EngineName)) - alike


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("engine", "options"), ENGINES, ids=str)
def test_it_is_what_python_says(operator: str, count: str, engine: str, options: dict[str, object]) -> None:
    if engine == "rtl" and not available():
        pytest.skip("no C++ compiler")
    given = dict(options)
    if "machine" in given:
        given["machine"] = machine_file(str(given["machine"]))
    rng = np.random.default_rng(3)
    p = upl.load(text(operator, count), n=N)
    code = (DATA if count == "another input" else REFUSED).get(str(options.get("machine", engine)))
    more = {"another input": {"C": np.arange(1, N + 1)}, "beside an input": {"Y": np.zeros(N)}}.get(count, {})
    if code:
        with pytest.raises(upl.UplError, match=code):
            upl.compile(p, engine=engine, **given)(X=np.ones((N, N)), **more)  # type: ignore[arg-type]
        return
    f = upl.compile(p, engine=engine, **given)  # type: ignore[arg-type]
    for share in (0.0, 0.3, 0.7, 1.0):
        x = np.where(rng.random((N, N)) < share, 1.0, -1.0)
        y = rng.random(N) < 0.5
        out = f(X=x, **({"Y": y} if "Y" in more else more))["R"]
        for i in range(N):
            last = i if count.startswith("expression") else i + 1
            expected = OPERATORS[operator](bool(v > 0) for v in x[i, :last])
            assert bool(out[i]) == (expected != bool(y[i]) if count == "beside an input" else expected), (i, x[i])
