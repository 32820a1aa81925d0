"""Plans: what is refused, options, and that latencies are those of the units."""

from __future__ import annotations

import gc

import pytest
from circuit.circuits import EXAMPLES

import upl_mlir as upl
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.engines.circuit.engine import CircuitEngine
from upl_mlir.hw.circuit.fixed_units import units_of
from upl_mlir.passes.circuit.choose import Wish
from upl_mlir.passes.circuit.numbers import Numbers
from upl_mlir.passes.lower_to_circuit import planned_circuit


@pytest.mark.parametrize("real", ["f32", "f16", "bf16", "q8.8", "q1.17", "q12.20"])
def test_latencies_are_those_of_the_units(real: str) -> None:
    numbers = Numbers(Kind.of(real))
    latency, units = numbers.latency, units_of(numbers, numbers.latency, "generic")
    wires = {"select", "not", "real", "int"} | ({"neg", "abs"} if numbers.fixed is None else set())
    integers = ("int_add 32", "int_sub 64", "int_mul 32", "int_min 32", "int_max 32", "int_compare < 64")
    more = ("by 3", "up 1", "down 1", "compare olt", *integers)
    kinds = (*(latency.keys() - wires - {k.split()[0] for k in more}), *more)
    for kind in kinds:
        name = kind.split()[0]
        made = units.unit(kind)
        assert made.latency == latency[name], kind
        made._MustUse__used = True
        if hasattr(made, "steps"):
            steps = made.steps(made.format) if callable(made.steps) else made.steps
            assert steps == latency[name], f"{kind}: the highest clock takes {steps} registers"


REFUSED = [
    ("jacobi1d", {"T": 2}, "UPL2001"),
]


@pytest.mark.parametrize(("name", "params", "code"), REFUSED, ids=str)
def test_what_has_no_circuit_is_refused(name: str, params: dict[str, int], code: str) -> None:
    p = upl.load(EXAMPLES / f"{name}.upl").infer_domains()
    with pytest.raises(upl.UplError) as caught:
        planned_circuit(p.module.clone(), params, Wish(1))
    (d,) = caught.value.diagnostics
    assert d.code == code and d.span is not None and d.help


def test_options() -> None:
    p = upl.load(EXAMPLES / "fir.upl").infer_domains()
    for wish, message in ((Wish(2, "x"), "along=x: expected one of i, k_1"), (Wish(2, None, ("i",)), "order=i: expected")):
        with pytest.raises(upl.UplError, match="UPL2004") as caught:
            CircuitEngine(p.module, {"K": 2, "n": 4}, wish)
        assert message in str(caught.value)


STRIPES = """program stripes
param n >= 2
input A<i> in 0<=i<n { -> U.u<0,i> }
output B<i>
node U<t,i> in 0<=t<n, 0<=i<n {
  in u
  if t<n-1 && (t+i) mod 3==0: u+u -> U.u<t+1,i>
  if t<n-1 && (t+i) mod 3>0: u*u -> U.u<t+1,i>
  if t==n-1: u -> B<i>
}
"""


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_a_condition_that_is_neither_boxes_nor_half_planes_is_refused() -> None:
    p = upl.load(STRIPES)
    a = {"A": [1.5, 2.0, -3.0]}
    assert (upl.compile(p, engine="circuit")(**a)["B"] == upl.compile(p, real="f32")(**a)["B"]).all()
    with pytest.raises(upl.UplError, match="UPL2003") as caught:
        upl.compile(p, engine="circuit")(A=[1.0] * 40)
    (d,) = caught.value.diagnostics
    assert "is neither few boxes of its loops nor within few half-planes" in d.message and d.span is not None
    del caught
    gc.collect()  # Amaranth complains now of what was begun, where it is expected
