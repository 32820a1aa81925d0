"""The pass `distribute`: what is cut, what is exchanged, what is proved and refuted; without MPI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.engines.mpi.kept import plan_of_text, text_of
from upl_mlir.engines.mpi.plan import make_plan
from upl_mlir.engines.native import target
from upl_mlir.passes.distribute.narrow import block_facts
from upl_mlir.passes.distribute.report import report
from upl_mlir.passes.distribute.schedule import Distributed, distribute
from upl_mlir.passes.loops.ir import read, write
from upl_mlir.passes.loops.legal import faults
from upl_mlir.passes.loops.program import Block
from upl_mlir.passes.loops.tree import Exchange, subtrees
from upl_mlir.passes.schedule import prepared
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.tools.upl import main as upl_tool
from upl_mlir.tools.upl_opt import main as upl_opt

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
DEEP = "i in 0, first1-4..n-1, last1+4"
HALO = "i in 0, first1-1..last1+1, n-1"


def distributed(name: str, *of: str, gather: str = "ordered") -> Distributed:
    """The distribution of an example, or of its gradient."""
    p = upl.load(EXAMPLES / f"{name}.upl")
    if of:
        p = upl.vjp(p, of=of[0], wrt=list(of[1:]))
    return distribute(prepared(p.module, "f64", gather), gather=gather)


def text(name: str, folder: Path, steps: int = 1) -> str:
    """The loops of one rank of an example, as a file's text."""
    path = folder / "ranks.mlir"
    options = f"--distribute=gather=ordered,steps={steps}"
    assert not upl_opt([str(EXAMPLES / f"{name}.upl"), options, "-o", str(path)])
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "of", "kinds"),
    [
        ("wave", (), {"U.u": {"shift"}}),
        ("floyd_warshall", (), {"Dist.d": {"broadcast"}}),
        ("matmul", ("C", "A", "B"), {}),
        ("softmax", (), None),
    ],
)
def test_what_is_exchanged(name: str, of: tuple[str, ...], kinds: dict[str, set[str]] | None) -> None:
    d = distributed(name, *of)
    found: dict[str, set[str]] = {}
    for x in d.exchanges:
        found.setdefault(x.exchange.array, set()).update(n.kind for n in x.needs)
    if kinds is not None:
        assert found == kinds
    assert next(faults(d.program), None) is None


def test_a_text_is_what_was_written() -> None:
    p = distributed("floyd_warshall").program
    again = read(write(p))
    assert str(write(again)) == str(write(p))
    assert [x for x in subtrees(again.scheduled) if isinstance(x, Exchange)]
    assert {n: (c.field, c.block) for n, c in again.cuts.items()} == {n: (c.field, c.block) for n, c in p.cuts.items()}


@pytest.mark.parametrize(
    ("steps", "old", "new", "message"),
    [
        (1, HALO, "i in 0, first1..last1+1, n-1", "neither owns nor has received"),  # a halo at one side only
        (1, HALO, "i in 0, first1-1..last1, n-1", "neither owns nor has received"),
        (4, DEEP, "i in 0, first1-3..n-1, last1+4", "neither owns nor has received"),
        (4, DEEP, "i in 0, first1-4..n-1, last1+3", "neither owns nor has received"),
        (1, "t in L3-1..L3-1", "t in L3..L3", "a rank sends an element of `U.u` that the rank neither owns nor"),
    ],
)
def test_a_wrong_halo_is_refuted_with_a_point(
    steps: int, old: str, new: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = text("wave", tmp_path, steps)
    assert old in whole
    path = tmp_path / "wrong.mlir"
    path.write_text(whole.replace(old, new), encoding="utf-8")
    assert upl_opt([str(path), "--lower-loops"])
    err = capsys.readouterr().err
    assert "error[UPL1830]" in err and message in err and "(at " in err and "first1=" in err


def test_an_exchange_that_not_all_ranks_run_is_refuted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = text("floyd_warshall", tmp_path)
    path = tmp_path / "wrong.mlir"
    path.write_text(whole.replace('"L3" from <"1"> to <"n"> {', '"L3" from <"1"> to <"n, n+last1"> {'))
    assert upl_opt([str(path), "--lower-loops"])
    assert "is not run by all ranks alike" in capsys.readouterr().err


UNBOUNDED = """program unbounded
const K = 3
param n >= 4
input X<t> in 0<=t<=K-1 { X -> A.x<t> for it in 0..abs(t-1)-1 }
input Z<i> in 0<=i<n { 2*Z -> S }
output R
output S<i>
node A<t> in 0<=t<=K-1 { in @(+) x[abs(t-1)]; if t!=2: x -> C<t mod 3,t floordiv 3> }
node C<q,e> { in x; #2 -> D<> }
node D { in @(+) x[#]; -> R<> }
"""
"""A program of whose ordered sums one has no bounds that loops could have (`t` of the sender is no field of the reader)."""


def test_a_sum_without_bounds_is_refused_as_native_code_does() -> None:
    p = upl.load(UNBOUNDED)
    with pytest.raises(UplError, match="UPL1825"):
        upl.compile(p, engine="native", gather="ordered")
    with pytest.raises(UplError, match="UPL1825"):
        make_plan(prepared(p.module, "f64", "ordered"), target.host(), real="f64", gather="ordered", threads=1)


def test_what_stands_behind_distribute_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ranks.mlir"
    path.write_text(text("wave", tmp_path), encoding="utf-8")
    assert upl_opt([str(path), "--tile-time"])
    assert "error[UPL1831]" in (err := capsys.readouterr().err) and "before `distribute`" in err


def regression(folder: Path) -> tuple[Path, str]:
    """Where a text of loops may be written, and that of data-parallel training."""
    path = folder / "ranks.mlir"
    assert not upl_opt([str(ROOT / "bench" / "ranks" / "regression.upl"), "--distribute", "-o", str(path)])
    return path, path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("op", "type_", "parts"), [
    ("+", "real", True), ("*", "real", True), ("+", "int", False), ("*", "int", False), ("max", "int", True),
])  # fmt: skip
def test_sums_of_integers_are_not_of_parts(op: str, type_: str, parts: bool) -> None:
    """MPI does not say that the sum of all parts overflows."""
    p = upl.load(f"""program total
param n >= 1
param T >= 1
input X<i>: {type_} in 0<=i<n {{ -> F.x<1,i> }}
output Y: {type_}
output Z<i>
node F<t,i> in 1<=t<=T, 0<=i<n {{
  in x: {type_}
  if t<T: x + 1 -> F.x<t+1,i>
  if t==T: x #n -> S.s<>
  if t==T: exp(sin(x*0.1)*cos(x*0.2)) -> Z
}}
node S {{ in @({op}) s[#]: {type_}; -> Y }}
""")
    d = distribute(prepared(p.module.clone(), "f64", "relaxed"), gather="relaxed")
    assert bool(d.program.partial) == parts


def test_a_sum_over_a_cut_field_is_one_of_parts(tmp_path: Path) -> None:
    """Each rank adds for its examples; ordered sums gather instead."""
    p = upl.load(ROOT / "bench" / "ranks" / "regression.upl")
    d = distribute(prepared(p.module.clone(), "f64", "relaxed"), gather="relaxed")
    assert [n.split(".")[-1] for n in d.program.partial] == ["part"] and len(d.exchanges) == 1
    assert next(faults(d.program), None) is None
    assert d.program.cuts["Out.s"].field == "d" and "Weight.w" not in d.program.cuts
    again = read(write(d.program))
    assert again.partial == d.program.partial and str(write(again)) == str(write(d.program))
    assert not distribute(prepared(p.module.clone(), "f64", "ordered"), gather="ordered").program.partial
    path, _ = regression(tmp_path)
    assert not upl_opt([str(path), "--lower-loops", "-o", str(tmp_path / "out.mlir")])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{exchange}", "", "before the parts of all ranks are combined"),
        ("i in 1..m", "i in 2..m", "before the parts of all ranks are combined"),
        ("{exchange}", "{exchange}{exchange}", "is combined twice"),
        ("t in L2-1..L2-1", "t in L2..L2", "a rank adds an element of"),
        ("i in 1..m", "i in 1, first1..m", "is not run by all ranks alike"),
    ],
)
def test_a_wrong_sum_of_parts_is_refuted(
    old: str, new: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, whole = regression(tmp_path)
    (exchange,) = [line + "\n" for line in whole.splitlines() if "upl_loops.exchange" in line]
    old, new = (x.replace("{exchange}", exchange) for x in (old, new))
    changed = exchange.replace(old, new)
    assert changed != exchange
    path.write_text(whole.replace(exchange, changed), encoding="utf-8")
    assert upl_opt([str(path), "--lower-loops"])
    err = capsys.readouterr().err
    assert "error[UPL1830]" in err and message in err


def test_what_is_received_and_where_it_lies() -> None:
    """A rank has room for its block and for what it needs of its neighbours, inside of the whole; the report says both."""
    d = distributed("wave")
    (row,) = report(d).rows
    assert (row.array, row.each) == ("U.u", "each L3b")
    assert row.box == "U.u<16*L3b..16*L3b+1, max(0,first1-16)..min(n-1,last1+16)>"
    _, place = d.program.kept["U.u"].axes
    for first, last, low, high in ((0, 24, 0, 40), (25, 49, 9, 65), (75, 99, 59, 99), (50, 49, 34, 65)):
        at = {"first1": first, "last1": last, "n": 100}
        assert [e.evaluate(at, lambda *_: 0) for e in (place.lower, place.extent)] == [low, high - low + 1]


def test_sizes_choose_the_cut() -> None:
    """A layer with few examples is divided by its neurons, with many by examples, where the gradient is a sum of parts."""
    p = upl.vjp(upl.load(EXAMPLES / "mlp.upl", K=3, N=[200, 100, 10]), of="Loss", wrt=["W"])
    found = [
        distribute(prepared(p.module.clone(), "f64", "relaxed"), gather="relaxed", proved=False, sizes={"D": n}).program
        for n in (2, 10_000)
    ]
    assert "d_W" in found[0].cuts and "d_W.part" not in found[0].partial
    assert "d_W.part" in found[1].partial


@pytest.mark.parametrize(("K", "m", "cut"), [(6, 0, False), (6, 1, True), (7, 0, True)])
def test_what_all_need_is_received_where_that_costs_less_than_to_compute_it(K: int, m: int, cut: bool) -> None:
    """Each rank of four receives three quarters of `B`, an element at the price of 8 operations, or computes these three
    quarters, too, an element with one operation and one for each summand: `m=0` is none."""
    p = upl.load("""program all_for_all
param n >= 1
param K >= 0
param m >= 0
input X<i,k> in 0<=i<n, 0<=k<K { -> B.s<i> }
input Z<i,k> in 0<=i<n, 0<=k<m { -> B.s<i> }
output Y<j>
node B<i> in 0<=i<n { in @(+) s[K+m]; s #n -> C.s<j> for j in 0..n-1 }
node C<j> in 0<=j<n { in @(+) s[n]; s*j -> Y }
""")
    program = prepared(p.module, "f64", "ordered")
    d = distribute(program, gather="ordered", proved=False, sizes={"K": K, "m": m})
    assert d.choice.fields == {"Y": "j"} | ({"B.s": "i"} if cut else {})
    assert [x.exchange.array for x in d.exchanges] == ["B.s"] * cut


def test_what_is_known_of_a_block() -> None:
    """It lies inside of the whole, and may be empty: then its last index is the one before its first."""
    known = block_facts(Block("first", "last", IndexExpr.of(1), IndexExpr.of("n")))
    holds = {
        (first, last)
        for first in range(6) for last in range(-1, 6)
        if known.evaluate({"first": first, "last": last, "n": 3}, lambda _a, _i: 0)
    }  # fmt: skip
    assert holds == {(first, last) for first in range(1, 5) for last in range(first - 1, 4)}


def test_gradients_of_shortest_paths_are_divided() -> None:
    """A sum over a row or a column is one of the ranks' parts; the rest stays with its owner."""
    d = distributed("floyd_warshall", "S", "W", gather="relaxed")
    assert {"Dist.d", "DDist.d_d", "d_W"} <= d.program.cuts.keys() and d.program.partial


def test_a_program_in_one_piece_is_refused() -> None:
    with pytest.raises(UplError) as e:
        distributed("cholesky")
    assert e.value.diagnostics[0].code == "UPL2101" and e.value.diagnostics[0].span is not None


def test_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(EXAMPLES / "floyd_warshall.upl")
    assert not upl_tool(["explain", path, "--distribute"])
    out = capsys.readouterr().out
    assert "{ rank -> Dist.d[k,i,j] : first1 <= i <= last1 }" in out
    assert "broadcast" in out and "8*first1*n+8*n*n-8*last1*n-8*n" in out
    assert not upl_tool(["explain", path, "--distribute", "--json"])
    assert '"kind"' not in capsys.readouterr().err
    assert not upl_tool(["check", path, "--ranks"])
    assert "ranks: proved for any number of ranks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "of", "gather", "saved"),
    [("jacobi2d", (), "ordered", True), ("floyd_warshall", (), "ordered", False), ("gmm", (), "relaxed", False),
     ("wave", ("Y", "U0", "C"), "ordered", False), ("softmax", (), "relaxed", False)],
)  # fmt: skip
def test_a_plan_is_read_back_as_it_was(name: str, of: tuple[str, ...], gather: str, saved: bool) -> None:
    """The plan that a later process finds on disk is the one that was made."""
    p = upl.load(EXAMPLES / f"{name}.upl")
    if of:
        p = upl.vjp(p, of=of[0], wrt=list(of[1:]))
    program = prepared(p.module, "f64", gather)
    plan = make_plan(program, target.host(), real="f64", gather=gather, threads=1, saved=saved)
    open_ = (("Node", "x"),)
    assert plan.moved and bool(plan.states) == saved
    assert plan_of_text(text_of(plan, open_)) == (plan, open_)


def test_the_choice_is_the_same_in_every_process(root: Path) -> None:
    """A plan that is found on disk is the one that would be made again, whatever order sets of texts have."""
    source = (
        "import upl_mlir as upl\n"
        "from upl_mlir.passes.distribute.schedule import distribute\n"
        "from upl_mlir.passes.schedule import prepared\n"
        "p = upl.vjp(upl.load('examples/lstm.upl'), of='Y', wrt=['X', 'W', 'V'])\n"
        "d = distribute(prepared(p.module.clone(), 'f64', 'ordered'), gather='ordered', proved=False)\n"
        "print(sorted(d.choice.fields.items()))\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", source], capture_output=True, text=True, cwd=root, check=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in range(3)
    }  # fmt: skip
    assert len(found) == 1
