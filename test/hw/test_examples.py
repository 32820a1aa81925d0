"""Every example, its gradient, and what hardware could refuse, on a core in RTL: what the interpreter gives."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.api.programs import reverse
from upl_mlir.engines.rtl.engine import RtlEngine
from upl_mlir.hw.core.code.functions import FUNCTIONS
from upl_mlir.hw.machine import Machine, Matching, Organisation
from upl_mlir.hw.microcode import Op

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(p.stem for p in EXAMPLES.glob("*.upl"))
MACHINE = Machine(matching=Matching(organisation=Organisation.HASHED, spill_capacity=1023))
NO_GRADIENT = {"spmv": "UPL1732", "digits": "UPL1205"}
"""Examples whose gradient does not run there: one has an open gather, one is too large to be differentiated."""
ROUNDING = {*FUNCTIONS, Op.DIV_F32, Op.SQRT_F32}
EXACT = {"conv_strided", "diagonal", "floyd_warshall", "matmul", "matrix_chain", "reshape", "scan", "spmv"}
"""Examples in which whole numbers stay such, so that no order of additions matters."""


def on_hardware(p: upl.Program, arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """The outputs, and the firings by node."""
    engine = RtlEngine(p.module, {}, machine=MACHINE)
    dense = {n: np.asarray(arrays[n], np.float32 if v.dtype.kind == "f" else None) for n, v in p.inputs.items()}
    result = engine.run(dense)
    return result.outputs, result.stats.firings


def compare(p: upl.Program, arrays: dict[str, Any], exact: bool) -> None:
    """Bit for bit, or within what sums in another order and the functions' bounds make of it."""
    p = p.expanded().infer_domains()
    arrays = {n: a for n, a in arrays.items() if n in p.inputs}
    soft = upl.compile(p, real="f32")
    wanted, (got, firings) = soft(**arrays), on_hardware(p, arrays)
    assert wanted.keys() == got.keys()
    for name, values in wanted.items():
        assert got[name].shape == values.shape
        if exact or values.dtype.kind != "f":
            assert np.array_equal(got[name], values), name
        else:
            size = float(np.abs(values).max(initial=0))
            np.testing.assert_allclose(got[name], values, rtol=3e-6, atol=3e-6 * size, err_msg=name)
    nodes = soft.stats["firings"]  # on the machine there may be more of them
    assert nodes == {n: firings[n] for n in nodes}
    assert any(np.abs(values).max(initial=0) > 0 for values in wanted.values())


def whole(name: str, p: upl.Program, data: Any) -> dict[str, Any]:
    """Small whole numbers in place of the real inputs of an example; integers as they are."""
    rng = np.random.default_rng(7)
    small = {n: rng.integers(0, 3, v.shape()).astype(np.float32) for n, v in p.inputs.items() if v.dtype.kind == "f"}
    return {**data.inputs, **small}


@pytest.mark.parametrize("name", NAMES)
def test_example(example_data: ModuleType, name: str) -> None:
    data = example_data.generate(name, 1)
    p = upl.load(EXAMPLES / f"{name}.upl", **data.params)
    compare(p, whole(name, p.expanded(), data) if name in EXACT else data.inputs, name in EXACT)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in NO_GRADIENT])
def test_gradient(example_data: ModuleType, name: str) -> None:
    """Of the first real output by all real inputs."""
    data = example_data.generate(name, 1)
    p = upl.load(EXAMPLES / f"{name}.upl", **data.params).expanded()
    of = next(n for n, v in p.outputs.items() if v.dtype.kind == "f")
    gradient = reverse(p, of=of, wrt=[n for n, v in p.inputs.items() if v.dtype.kind == "f"]).infer_domains()
    seeds = {n: np.random.default_rng(3).uniform(0.5, 1.5, v.shape()) for n, v in gradient.inputs.items()}
    if name in EXACT:
        compare(gradient, whole(name, gradient, data), True)
    else:
        compare(gradient, {**seeds, **data.inputs}, False)


def test_the_exact_ones_round_nowhere(example_data: ModuleType) -> None:
    """Their code on the machine has no operation that rounds whole numbers."""
    for name in EXACT:
        data = example_data.generate(name, 1)
        p = upl.load(EXAMPLES / f"{name}.upl", **data.params).infer_domains()
        image = RtlEngine(p.module, {}, machine=MACHINE).image
        used = {i.op for n in image.nodes for code in (n.body, *(s.code for s in n.sends)) for i in code}
        assert not used & ROUNDING, name


# ------------------------------------------------------------------------------------- what hardware could refuse


def small(p: upl.Program, **given: Any) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {n: given.get(n, rng.integers(1, 5, v.shape()).astype(v.dtype)) for n, v in p.inputs.items()}


@pytest.mark.parametrize(
    "text",
    [
        # one token for a row, others for an element
        """program mixed
input A<i> in 0<=i<3 {
  if i==0: #4 -> F.a<i,*>
  if i>0:  -> F.a<i,j> for j in 0..3
}
input B<i,j> in 0<=i<3, 0<=j<4 { -> F.b }
output Y<i,j>
node F<i,j> { in a, b; a*b -> Y }
""",
        # the same with `##`, over a triangle
        """program triangle
input A<i> in 0<=i<3 {
  if i==2: ## -> F.a<i,*>
  if i<2:  -> F.a<i,j> for j in 0..i
}
input B<i,j> in 0<=i<3, 0<=j<=i { -> F.b }
output Y<i,j>
node F<i,j> in 0<=i<3, 0<=j<=i { in a, b; a*b -> Y }
""",
        # `*` fields that do not lie side by side: more runs of them than the machine counts through
        """program scattered
input A<j,l> in 0<=j<2, 0<=l<2 { #12 -> F.a<*,j,*,l,*> }
input B<i,j,k,l,m> in 0<=i<2, 0<=j<2, 0<=k<2, 0<=l<2, 0<=m<3 { -> F.b }
output Y<i,j,k,l,m>
node F<i,j,k,l,m> { in a, b; a*b -> Y }
""",
        # three side by side count as one
        """program cube
input A<i> in 0<=i<2 { #8 -> F.a<i,*,*,*> }
input B<i,j,k,l> in 0<=i<2, 0<=j<2, 0<=k<2, 0<=l<2 { -> F.b }
output Y<i,j,k,l>
node F<i,j,k,l> { in a, b; a*b -> Y }
""",
        # from the host to the host
        """program through
input X<i> in 0<=i<6 {
  if i>2:  -> Y<i>
  if i<=2: -> Y<2-i>
}
output Y<i> in 0<=i<6
""",
        # powers
        """program powers
input X<i> in 0<=i<6 { -> F.x }
input N<i>: int in 0<=i<6 { -> F.n }
output Y<i>
output M<i>: int
node F<i> {
  in x, n: int
  x**2 + x**3 -> Y
  n**5 -> M
}
""",
        # an entry of an array that a condition keeps from being read where there is none
        """program guarded
const P[0:2] = [1, 2, 4]
input X<i> in 0<=i<8 {
  if i<3 && P[i]>1:    -> Y<i>
  if i<3 && P[i]<=1:   -> F.x<P[i] - 1>
  if i>=3:             -> F.x<i>
}
output Y<i> in 0<=i<8
node F<i> in 0<=i<8 { in x; 2*x -> Y<i> }
""",
        # inputs that are only waited for, among more than a node may have
        """program waiting
input A<i> in 0<=i<3 { -> F.a; -> F.b; -> F.c; -> F.d; -> F.e; -> F.f }
output Y<i>
output Z<i>
node F<i> { in a, b, c, d, e, f; a + b*c -> Y; a*d -> Z }
""",
    ],
    ids=lambda text: text.split()[1],
)
def test_what_is_made_to_fit(text: str) -> None:
    p = upl.load(text)
    compare(p, small(p.infer_domains()), True)


GATHERS = [
    ("+", "", 0.0),
    ("*", "", 1.0),
    ("min", "", np.inf),
    ("max", "", -np.inf),
    ("+", ": int", 0),
    ("max", ": int", None),
]


@pytest.mark.parametrize(("operator", "kind", "empty"), GATHERS)
def test_counts_that_are_data(operator: str, kind: str, empty: float | None) -> None:
    """The number of summands arrives before, between or after them; also as one token for all; a sum of none."""
    text = f"""program counted
input X<i,j>{kind} in 0<=i<4, 0<=j<3 {{ -> G.x }}
input N<i>: int in 0<=i<4 {{ #3 -> G.n<i,*>; -> F.n }}
output Y<i>{kind}
node G<i,j> {{ in x{kind}, n: int; if j<n: x -> F.s<i> }}
node F<i> in 0<=i<4 {{ in n: int, @({operator}) s{kind or ""}[n]; s -> Y }}
""".replace("s: int[n]", "s[n]: int")
    p = upl.load(text)
    counts = np.array([3, 1, 2, 0 if empty is not None else 1])
    compare(p, small(p.infer_domains(), N=counts), True)
    if empty is not None:
        out, _ = on_hardware(p.infer_domains(), small(p.infer_domains(), N=counts))
        assert out["Y"][3] == empty and (empty < 0 or not np.signbit(out["Y"][3]))
