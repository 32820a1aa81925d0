"""Circuits of programs that data decide: every output bit is the interpreter's, ports may wait, and a run that goes wrong
is told.  `make test` runs two of them; the others are slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from circuit.decided import PROGRAMS, reals

import upl_mlir as upl
from upl_mlir.engines.circuit.engine import CircuitEngine, run
from upl_mlir.host.arrays import bind_arrays, host_ports
from upl_mlir.passes.circuit.plan import cycles
from upl_mlir.passes.circuit.prove import proofs
from upl_mlir.passes.lower_to_circuit import wish

FEW = [("halves", 3, 2), ("truths", 3, 1)]
CASES = [
    *((name, n, lanes) for name in ("newton", "spmv") for n in (1, 3, 4) for lanes in (1, 2) if lanes <= n),
    *((name, 3, lanes) for name in PROGRAMS if name not in ("newton", "spmv") for lanes in (1, 2)),
]


@pytest.mark.parametrize(("name", "n", "lanes"), [c for c in CASES if c not in FEW])
def test_more_programs(name: str, n: int, lanes: int) -> None:
    same_as_the_interpreter(name, n, lanes)


@pytest.mark.parametrize(("name", "n", "lanes"), FEW)
def test_a_circuit_computes_as_the_interpreter(name: str, n: int, lanes: int) -> None:
    same_as_the_interpreter(name, n, lanes)


def same_as_the_interpreter(name: str, n: int, lanes: int, real: str = "f32") -> None:
    """Three runs without a reset, then the same with ports that wait at random."""
    case = PROGRAMS[name]
    compared(upl.load(case.text), case.sizes(n), case.data, n, lanes, real)


Data = Callable[[Any, dict[str, int]], dict[str, Any]]


def compared(p: upl.Program, sizes: dict[str, int], data: Data, n: int, lanes: int, real: str) -> None:
    """The same of a program with sizes and data."""
    engine = CircuitEngine(p.infer_domains().module, sizes, wish(lanes, real=real))
    assert [str(x) for x in proofs(engine.plan) if not x.holds] == []
    rng = np.random.default_rng(n)
    given = [data(rng, sizes) for _ in range(3)]
    interpreter = upl.compile(p, engine="interp", real=real, gather="ordered")
    wanted = [dict(interpreter(**arrays, **sizes)) for arrays in given]
    dense = [engine.given(bind_arrays(p.op, host_ports(p.op, sizes, np.dtype(np.float32)), arrays)) for arrays in given]
    for hold_in, hold_out in ((0, 0), (120, 0), (0, 120), (60, 60)):
        found, streamed = run(engine.simulation, dense, hold_in=hold_in, hold_out=hold_out, seed=n)
        for one, right in zip(found, wanted, strict=True):
            made = engine.results(one)
            assert made.keys() == right.keys()
            for output, array in made.items():
                assert array.tobytes() == np.asarray(right[output], array.dtype).tobytes(), output
        if not hold_in and not hold_out:
            assert streamed.cycles == cycles(engine.plan, 3)


def test_the_gradients_of_a_sparse_product() -> None:
    """How many products an element of X is in is data: what comes back for it ends when nothing more can come."""
    p, case = upl.load(PROGRAMS["spmv"].text), PROGRAMS["spmv"]

    def data(rng: np.random.Generator, sizes: dict[str, int]) -> dict[str, Any]:
        return {**case.data(rng, sizes), "d_Y": reals(rng, sizes["m"])}

    compared(upl.vjp(p, of="Y", wrt=["V", "X"]), case.sizes(2), data, 2, 1, "f32")


@pytest.mark.parametrize("name", ["halves", "largest"])
def test_a_type_of_fixed_point(name: str) -> None:
    """Words of 32 bits have room for integers."""
    same_as_the_interpreter(name, 2, 1, "q8.24")


SOME_PLACES = {
    "triangle": "0<=i<n && 0<=k<=i",
    "piecewise": "0<=i<n && ((i==0 && 0<=k<2) || (i>0 && i<=k<=n))",
}


@pytest.mark.parametrize("places", SOME_PLACES.values(), ids=SOME_PLACES)
def test_places_without_an_element_miss_no_token(places: str) -> None:
    """The array of an output is a box, of which its domain is a part: data decide which arrow serves an element."""
    p = upl.load(f"""program parts
    param n >= 2
    input A<i,k> in {places} {{ -> S.a }}
    output O<i,k>
    node S<i,k> {{ in a; if a > 0: a -> O; if !(a > 0): a*2 -> O }}
    """)
    a = np.where(np.arange(12).reshape(3, 4) % 2, 1.0, -1.5).astype(np.float32)
    given = {"A": a[:, :3] if "<=k<=i" in places else a}
    right = upl.compile(p, engine="interp", real="f32")(**given, n=3)
    found = upl.compile(p, engine="circuit")(**given, n=3)
    assert np.asarray(found["O"]).tobytes() == np.asarray(right["O"], np.float32).tobytes()


def test_a_number_of_summands_below_0_is_0() -> None:
    """Data announce how many summands come."""
    p = upl.load("""program announced
    param n >= 1
    input A<i> in 0<=i<2 { -> S.a }
    input K<i>: int in 0<=i<2 { -> S.k }
    input N<j>: int in 0<=j<n { -> T.c }
    output O<j> in 0<=j<n
    node S<i> { in a, k: int; if k >= 0: a -> T.x<k> }
    node T<j> in 0<=j<n { in c: int, @(max) x[c]; x -> O<j> }
    """)
    given = {"A": [1.5, -2.5], "K": [0, -1], "N": [1, -2]}
    found = upl.compile(p, engine="circuit")(**given)
    assert np.asarray(found["O"]).tolist() == [1.5, -np.inf]


def test_the_greatest_of_no_integers_has_no_word() -> None:
    """It is the least integer of 64 bits: where data may announce no summand, there is no circuit."""
    text = """program announced
    input A<i>: int in 0<=i<2 { -> S.a }
    input K<i>: int in 0<=i<2 { -> S.k }
    input N<j>: int in 0<=j<2 { -> T.c }
    output O<j>: int in 0<=j<2
    node S<i> { in a: int, k: int; a -> T.x<k> }
    node T<j> in 0<=j<2 { in c: int, @(max) x[c]: int; x -> O<j> }
    """
    with pytest.raises(upl.UplError, match="integers that may have no summands"):
        upl.compile(upl.load(text), engine="circuit")(A=[1, -2], K=[0, 0], N=[2, 0])


WRONG: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "an index": ("routing", {"A": [1.0, 2.0], "K": [0, 2]}, "UPL1601", "a token of S -> T.x goes to an index"),
    "a token twice": ("routing", {"A": [1.0, 2.0], "K": [1, 1]}, "UPL1601", "tokens are left over in `T`"),
    "an open one": ("scattered", {"A": [1.0, 2.0], "K": [0, 3]}, "UPL1601", "a token of S -> H.s goes to an index"),
    "a large integer": ("routing", {"A": [1.0, 2.0], "K": [0, 1 << 31]}, "UPL1504", "`K<1>` is 2147483648"),
}


def test_a_run_that_goes_wrong_is_told() -> None:
    made = {name: upl.compile(upl.load(PROGRAMS[name].text), engine="circuit") for name in ("routing", "scattered")}
    for name, given, code, message in WRONG.values():
        with pytest.raises(upl.UplError, match=code) as caught:
            made[name](**given)
        assert message in str(caught.value)
    f = made["routing"]
    assert np.asarray(f(A=[1.0, 2.0], K=[1, 0])["O"]).tolist() == [3.0, 5.0]


REFUSED = {
    "a*0.5 -> S.a<i,k+1>": ("a*0.5 -> S.a<i,k+1>", "f16", "is int: this circuit computes in f16"),
    "k -> Steps<i>": ("k*k*k -> Steps<i>", "f32", "which is not affine, as a value"),
}


@pytest.mark.parametrize("old", REFUSED)
def test_integers_that_a_circuit_does_not_have(old: str) -> None:
    new, real, message = REFUSED[old]
    text = PROGRAMS["halves"].text.replace(old, new)
    with pytest.raises(upl.UplError, match="UPL2002") as caught:
        CircuitEngine(upl.load(text).infer_domains().module, {"n": 2}, wish(1, real=real))
    assert message in str(caught.value)


def test_integers_that_may_not_fit() -> None:
    """The program's have 64 bits, a circuit's 32: what could be different is refused; on the way to a comparison there are
    as many as it takes."""
    text = PROGRAMS["routing"].text.replace("output O<j>", "output L<i>: int in 0<=i<n\noutput O<j>")
    wide = text.replace("a*2 -> T.x<k>", "a*2 -> T.x<k>; k + k -> L<i>")
    with pytest.raises(upl.UplError, match="may be between -4294967296 and 4294967294, and does not fit 32 bits"):
        CircuitEngine(upl.load(wide).infer_domains().module, {"n": 2}, wish(1))
    fits = upl.load(text.replace("a*2 -> T.x<k>", "a*2 -> T.x<k>; k -> L<i>").replace("T.x<k>", "T.x<k+k>"))
    assert CircuitEngine(fits.infer_domains().module, {"n": 2}, wish(1)).plan.parts
