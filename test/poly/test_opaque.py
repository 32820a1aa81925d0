"""Sets with conditions that are not affine: what isl cannot hold stays a symbol, what a projection forgets is named."""

from itertools import product

import pytest

from upl_mlir.diagnostics import UplError
from upl_mlir.poly.counts.counting import count
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.knowledge import Table
from upl_mlir.poly.parse import parse_formula, parse_index
from upl_mlir.poly.sets import PolyContext, PSet

CTX = PolyContext(
    ("n", "q"), parse_formula("n>=0 && q>=1"), {"K": 2}, {"P": Table(0, (1, 2, 4)), "Q": Table(0, (2, 0, 1))}
)
BOX = "0<=i<n && 0<=j<n"
CONDITIONS = [
    "i mod q==0", "i*j<=4", "i*i<q", "i floordiv q==j floordiv q", "(i+j) mod q<2", "i mod (j+1)==0",
    "i*j mod 3==1", "min(i,j)*q>=3", "(i+1) ceildiv q>j", "q*i>=j*j || i==j", "!(i*j<n && i mod q!=1)",
]  # fmt: skip


def some(text: str, dims: tuple[str, ...] = ("i", "j")) -> PSet:
    return CTX.set(dims, parse_formula(text))


def holds(f: Formula, **env: int) -> bool:
    return f.evaluate({**CTX.constants, **env}, CTX.read)


@pytest.mark.parametrize("text", CONDITIONS)
def test_a_condition_and_its_opposite_cut_a_set_in_two(text: str) -> None:
    whole, inside = some(BOX), some(f"({BOX}) && ({text})")
    outside = whole - inside
    assert inside.exact and outside.exact
    assert (inside & outside).is_empty()
    assert whole <= (inside | outside)
    assert not inside.is_empty() and not outside.is_empty()
    assert not whole <= inside


@pytest.mark.parametrize("text", CONDITIONS)
def test_a_sample_is_a_point_and_a_description_says_the_same(text: str) -> None:
    f = parse_formula(f"{BOX} && ({text})")
    s = some(str(f))
    point = s.sample()
    assert point is not None and holds(f, **point)
    said = describe(s)
    for n, q in product((0, 1, 4), (1, 2, 3)):
        for i, j in product(range(-1, 5), repeat=2):
            assert holds(said, n=n, q=q, i=i, j=j) == holds(f, n=n, q=q, i=i, j=j)


def test_facts_of_remainders_and_products_decide() -> None:
    assert some(f"{BOX} && i mod q>=q").is_empty()
    assert some(f"{BOX} && i mod q<0").is_empty()
    assert some(f"{BOX} && i<q && i mod q!=i").is_empty()
    assert some(f"{BOX} && i*j<0").is_empty()
    assert some(f"{BOX} && i>=1 && i*j<j").is_empty()
    assert some(f"{BOX} && i==j && i mod q!=j mod q").is_empty()
    assert some("i*i<0").is_empty()


def test_a_projection_names_what_it_forgets() -> None:
    s = some(f"{BOX} && i mod q==0").project(("j",))
    assert s.lost == {"i mod q"} and not s.exact
    whole = some("0<=j<n", ("j",))
    assert s <= whole  # a hull may be included
    assert not whole <= s  # but nothing is surely in it
    assert (whole - s).lost == s.lost and not (whole - s).is_empty()
    assert s.as_meant().equals(whole)
    assert s.sample() is None
    for ask in (lambda: describe(s), lambda: s.exactly("this"), lambda: list(s.points())):
        with pytest.raises(UplError, match=r"UPL1209.*`i mod q`"):
            ask()


def test_a_projection_says_what_it_can_in_other_terms() -> None:
    s = some(f"{BOX} && i mod q==0 && i==j+1").project(("j",))
    assert s.exact and str(describe(s)) == "0<=j<=n-2 && (j+1) mod q==0"
    both = some(f"{BOX} && i mod q==0") | some(f"{BOX} && i mod q!=0")
    assert both.coalesce().project(("j",)).exact


def test_entries_of_constant_arrays_make_it_affine() -> None:
    s = some("0<=k<=K && 0<=i<8 && i mod (2*P[k])<P[k]", ("k", "i"))
    want = {(k, i) for k in range(3) for i in range(8) if i % (2 * (1, 2, 4)[k]) < (1, 2, 4)[k]}
    assert set(s.points()) == want and count(s) == IndexExpr.of(len(want))
    other = some("0<=k<=K && 0<=i<8 && (i+P[k]) mod (2*P[k])>=P[k]", ("k", "i"))
    assert s.equals(other)
    assert s.project(("k",)).exact and s.project(("i",)).exact


def test_points_of_what_stays_open_are_looked_at_one_by_one() -> None:
    s = CTX.set(("i", "j"), parse_formula("0<=i<200 && 0<=j<200 && i*i+j*j==25"))
    assert sorted(s.points()) == [(0, 5), (3, 4), (4, 3), (5, 0)]


def test_no_polynomial_counts_what_is_not_affine() -> None:
    assert count(some("0<=i<n && i mod q==0", ("i",))) is None
    assert count(some(f"{BOX} && i*j<=4")) is None


def test_entries_inside_indices_go_with_what_they_are_inside_of() -> None:
    s = some("0<=i<=K && j==Q[Q[i]]").project(("j",))
    assert s.exact and set(s.points()) == {(0,), (1,), (2,)}


@pytest.mark.parametrize("text", ["i*j==2*i", "i*j==i+j", "i mod q==i", "i*i==2*j"])
def test_an_equation_does_not_hide_what_a_name_is_equal_to(text: str) -> None:
    """isl may say `i` by the product, which reads `i` itself: an image keeps the condition, in the other names."""
    box = parse_formula(f"{BOX} && {text} && a==i && b==j")
    s = CTX.set(("i", "j", "a", "b"), box).project(("a", "b"))
    assert s.exact and s.equals(some(f"{BOX} && {text}").rename({"i": "a", "j": "b"}))


def test_an_expression_in_other_terms() -> None:
    s = some("i==j+2 && 0<=j<n")
    assert s.express(parse_index("i mod q"), ("j",)) == parse_index("(j+2) mod q")
    assert s.express(parse_index("2*(i mod q)+i*i"), ("j",)) == parse_index("2*((j+2) mod q)+(j+2)*(j+2)")
    assert some(BOX).express(parse_index("i mod q"), ("j",)) is None
