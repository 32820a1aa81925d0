"""Loops over elements that data choose: which are summed in chains, and which advance in parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects import scf

import upl_mlir as upl
from bench.sparse.programs import COO, MESSAGES, ROWS
from upl_mlir.engines.native import target
from upl_mlir.engines.native.llvm import tails
from upl_mlir.engines.native.llvm.chosen import streams
from upl_mlir.passes.if_convert import IfConvertPass
from upl_mlir.passes.lower_to_loops import lower_to_loops
from upl_mlir.passes.schedule import raised

SPMV = Path(__file__).resolve().parents[2] / "examples" / "spmv.upl"
MAY_BE_EMPTY = COO.replace("param z >= 1", "param z >= 0")


def loops(p: upl.Program, gather: str = "relaxed") -> list[scf.ForOp]:
    """The sequential loops of a program that data decide."""
    converted = p.derived(("test",), lambda: [IfConvertPass(compared=True)]).infer_domains()
    return [op for op in lower_to_loops(converted.op, gather=gather).module.walk() if isinstance(op, scf.ForOp)]


def test_an_index_that_moves_is_chosen_in_the_loop() -> None:
    """The columns of a row change with the loop; a message's two ends are the same for all its numbers."""
    assert any(map(tails.chooses, loops(upl.load(SPMV))))
    p = upl.vjp(upl.load(MESSAGES), of="Y", wrt=["H", "G"])
    assert not any(map(tails.chooses, loops(p)))


def test_which_loops_advance_in_parts() -> None:
    """Those that do nothing but add to elements that data choose, in any order."""
    assert sum(map(streams.fits, loops(upl.load(MAY_BE_EMPTY)))) == 1
    assert not any(map(streams.fits, loops(upl.load(MAY_BE_EMPTY), "ordered")))
    greatest = upl.load(MAY_BE_EMPTY.replace("@(+)", "@(max)"))
    assert not any(map(streams.fits, loops(greatest)))


def test_one_element_that_all_iterations_read_keeps_their_order() -> None:
    """The sum is read in the loop that adds to it: a later iteration may need an earlier one."""
    (loop,) = [op for op in loops(upl.load(MAY_BE_EMPTY)) if streams.fits(op)]
    from xdsl.dialects import memref

    store = next(op for op in loop.body.walk() if isinstance(op, memref.StoreOp))
    block = store.parent
    assert block is not None
    block.insert_op_before(memref.LoadOp.get(store.memref, [loop.body.block.args[0]]), store)
    assert not streams.fits(loop)


@pytest.mark.parametrize("real", ["f64", "f32"])
@pytest.mark.parametrize("z", [0, 1, 63, 64, 65, 200])
def test_sums_of_any_number(z: int, real: Any) -> None:
    """Numbers of few digits, whose sums are the same in any order."""
    rng = np.random.default_rng(z)
    given: dict[str, Any] = {"Row": np.sort(rng.integers(0, 4, z)), "Col": rng.integers(0, 5, z),
                             "V": rng.integers(-8, 8, z) / 8, "X": rng.integers(-8, 8, 5) / 8, "m": 4}  # fmt: skip
    f = upl.compile(upl.load(MAY_BE_EMPTY), engine="native", real=real)
    y = np.zeros(4)
    np.add.at(y, given["Row"], given["V"] * given["X"][given["Col"]])
    assert f(**given)["Y"].tolist() == y.tolist()
    for port, wrong in (("Row", 4), ("Col", -1)):
        for at in {0, z // 2, z - 1} if z else ():  # in each part, and in what is left over
            changed = given[port].copy()
            changed[at] = wrong
            with pytest.raises(upl.UplError) as expected:
                upl.compile(upl.load(MAY_BE_EMPTY), real=real)(**given | {port: changed})
            with pytest.raises(upl.UplError) as found:
                f(**given | {port: changed})
            assert [str(d) for d in found.value.diagnostics] == [str(d) for d in expected.value.diagnostics]


def test_gradients_of_messages() -> None:
    """Loops that ask before they begin; a wrong end of an edge is found all the same."""
    rng, n, e, k = np.random.default_rng(5), 6, 40, 19
    given: dict[str, Any] = {
        "From": rng.integers(0, n, e), "To": rng.integers(0, n, e), "G": rng.integers(-8, 8, e) / 8,
        "H": rng.integers(-8, 8, (n, k)) / 8, "d_Y": rng.integers(-8, 8, (n, k)) / 8,
    }  # fmt: skip
    f = upl.compile(upl.vjp(upl.load(MESSAGES), of="Y", wrt=["H", "G"]), engine="native")
    found = f(**given)
    assert (found["d_G"] == (given["d_Y"][given["To"]] * given["H"][given["From"]]).sum(1)).all()
    back = np.zeros((n, k))
    np.add.at(back, given["From"], given["G"][:, None] * given["d_Y"][given["To"]])
    assert (found["d_H"] == back).all()
    for port in ("From", "To"):
        wrong = given[port].copy()
        wrong[17] = n
        with pytest.raises(upl.UplError):
            f(**given | {port: wrong})


TABLES = """program tables
const M[0:3] = [2, 3, 5, 7]
const N[0:3] = [11, 13, 17, 19]
input D<i>: int in 0<=i<6 { if i<3: -> S.d<i>; if i>=3: -> T.d<i> }
output Y<i>: int in 0<=i<6
node S<i> in 0<=i<3 { in d: int; M[d] -> Y }
node T<i> in 3<=i<6 { in d: int; N[d] -> Y }
"""


@pytest.mark.parametrize("second", ["M", "N"])
def test_entries_of_two_tables_are_not_alike(second: str) -> None:
    """Neighbouring elements that are made alike are one piece of an array; those of two tables are two."""
    program = upl.load(TABLES.replace("N[d]", f"{second}[d]"))
    system = raised(program.op, real="f64", gather="ordered", fixed={}).system
    assert len(system.equations["Y"].pieces) == (second == "N") + 1
    d, m, n = np.array([0, 1, 2, 3, 2, 1]), np.array([2, 3, 5, 7]), np.array([11, 13, 17, 19])
    wanted = [*m[d[:3]], *(n if second == "N" else m)[d[3:]]]
    assert upl.compile(program, engine="native")(D=d)["Y"].tolist() == wanted


def test_rows_are_copied() -> None:
    rng = np.random.default_rng(3)
    ids, table = rng.integers(0, 7, 5), rng.random((7, 33))
    f = upl.compile(upl.load(ROWS), engine="native")
    assert (f(Id=ids, Table=table)["Y"] == table[ids]).all()
    with pytest.raises(upl.UplError):
        f(Id=np.where(ids == ids[2], 7, ids), Table=table)


@pytest.mark.parametrize("features", ["", f",{target.NO_GATHERS}"])
@pytest.mark.skipif(target.host().vector_bytes != 64, reason="only machines with AVX-512 gather")
def test_rows_with_and_without_gathers(features: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines on which gathers are slow load one element after the other: the sums of few digits are the same."""
    here = target.host()
    given = here.features.replace(f",{target.NO_GATHERS}", "") + features
    monkeypatch.setattr(target, "host", lambda: replace(here, features=given))
    assert target.host().gathers == (not features)
    rng, m, w = np.random.default_rng(1), 9, 11
    v, x = rng.integers(-8, 8, (m, w)) / 8, rng.integers(-8, 8, m) / 8
    col, count = rng.integers(0, m, (m, w)), rng.integers(0, w + 1, m)
    f = upl.compile(upl.load(SPMV), engine="native")
    expected = np.where(np.arange(w) < count[:, None], v * x[col], 0).sum(1)
    assert (f(V=v, Col=col, Count=count, X=x)["Y"] == expected).all()
    col[4, 0], count[4] = m, 1
    with pytest.raises(upl.UplError):
        f(V=v, Col=col, Count=count, X=x)


def test_a_recurrence_from_a_chosen_element() -> None:
    """Its adjoint counts summands that are fewer at the border, by a choice that its arrows write in different ways."""

    def step(a: Any, row: Any) -> Any:
        return np.sin(a) * np.concatenate([np.zeros(1), a[:-1]]) + row, 0.0

    @upl.function
    def f(x: Any, k: Any) -> Any:
        start = np.concatenate([np.stack([x[0, 0], x[0, k[1]]]), np.zeros(3)])
        a, _ = upl.scan(step, start, x[1:])
        return np.sum(a)

    def by_complex_step(at: tuple[int, int]) -> float:
        z = x.astype(complex)
        z[at] += 1e-30j
        a = np.array([z[0, 0], z[0, k[1]], 0, 0, 0])
        for row in z[1:]:
            a = step(a, row)[0]
        return float(a.sum().imag / 1e-30)

    x, k = np.random.default_rng(0).random((4, 5)), np.array([0, 2])
    p = f.program(x, k)
    assert loops(upl.grad(p, of=next(iter(p.outputs)), wrt=["x"]))
    wanted = [[by_complex_step((i, j)) for j in range(5)] for i in range(4)]
    np.testing.assert_allclose(upl.grad(f)(x, k), wanted, rtol=1e-12)
