"""Sets against enumeration: every operation, on random formulas with parameters, constants and array entries."""

from __future__ import annotations

import islpy as isl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upl_mlir.poly.counts.dense import guarded
from upl_mlir.poly.counts.quota import limited
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr, Lookup, Select, divide, extremum
from upl_mlir.poly.knowledge import Table
from upl_mlir.poly.operators import CmpOp, DivKind, Extremum
from upl_mlir.poly.parse import parse_formula, parse_index
from upl_mlir.poly.sets import PolyContext, union

# -- random quasi-affine formulas ----------------------------------------------------------------------------------
SYMBOLS = st.sampled_from(["i", "j", "n", "K"]).map(IndexExpr.of)
LINEAR = st.lists(st.tuples(st.integers(-2, 2), SYMBOLS), min_size=1, max_size=3).map(
    lambda terms: sum((e * c for c, e in terms), IndexExpr())
)
SHIFTED = st.tuples(LINEAR, st.integers(-3, 3)).map(lambda t: t[0] + t[1])
READS = ["N[i]", "N[j]", "N[i+1]", "N[j-1]", "N[i+j]", "N[2*i-j]", "N[K]", "N[n]", "N[i+n]"]
ENTRIES = st.sampled_from(READS).map(parse_index)
SPECIAL = st.one_of(
    st.tuples(st.sampled_from(list(DivKind)), SHIFTED, st.integers(2, 3)).map(
        lambda t: divide(t[0], t[1], IndexExpr.of(t[2]))
    ),
    st.tuples(st.sampled_from(list(Extremum)), SHIFTED, SHIFTED).map(lambda t: extremum(t[0], t[1:])),
    st.tuples(SHIFTED, st.sampled_from(list(CmpOp)), SHIFTED, SHIFTED).map(
        lambda t: IndexExpr.of(Select(Formula.compare(t[0], t[1], 0), t[2], t[3]))
    ),
)
SIDES = st.one_of(SHIFTED, SHIFTED, SPECIAL, ENTRIES, st.tuples(ENTRIES, SHIFTED).map(lambda t: t[0] + t[1]))
OPS = st.sampled_from(list(CmpOp))
ATOMS = st.tuples(SIDES, OPS, SHIFTED).map(lambda t: Formula.compare(*t))
FORMULAS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(Formula.all),
        st.lists(inner, min_size=1, max_size=2).map(Formula.any),
        inner.map(Formula.negate),
    ),
    max_leaves=4,
)


@settings(max_examples=60)
@given(FORMULAS)
def test_points_and_facts_of_a_formula(naive, f):
    s = naive.set(f)
    every = naive.all(f)
    assert s.is_empty() == (not every)
    for n in naive.sizes:
        assert naive.points_of(s, n) == naive.points(f, n)
    found = s.sample()
    if every:
        assert (found.get("n", 0), (found["i"], found["j"])) in every or "n" not in found
        assert any(p == (found["i"], found["j"]) for _, p in every)
        for axis, dim in enumerate("ij"):
            values = [p[axis] for _, p in every]
            low, high = s.extent(dim)
            assert low <= min(values) and max(values) <= high
            assert "N" in str(f) or (low, high) == (min(values), max(values))
    else:
        assert found is None
    assert s.coalesce().equals(s) and s.numeric().equals(s)
    assert union(list(s.slices()) or [s]).equals(s)


@settings(max_examples=60)
@given(FORMULAS, FORMULAS)
def test_two_sets(naive, f, g):
    s, t = naive.set(f), naive.set(g)
    for n in naive.sizes:
        a, b = naive.points(f, n), naive.points(g, n)
        assert naive.points_of(s & t, n) == a & b
        assert naive.points_of(s | t, n) == a | b
        assert naive.points_of(s - t, n) == a - b
    assert (s <= t) == (naive.all(f) <= naive.all(g))
    assert (t <= s) == (naive.all(g) <= naive.all(f))
    assert s.equals(t) == (naive.all(f) == naive.all(g))
    assert (s & t) <= s <= (s | t)
    assert naive.set(f & g).equals(s & t) and naive.set(f | g).equals(s | t)
    assert (s - t).equals(naive.set(f & g.negate()))


@settings(max_examples=50)
@given(FORMULAS, st.sampled_from([("i",), ("j",), ("j", "i"), ()]))
def test_projection_reordering_and_names(naive, f, keep):
    s = naive.set(f)
    p = s.project(keep)
    assert p.dims == keep
    for n in naive.sizes:
        found = {tuple(dict(zip("ij", q, strict=True))[d] for d in keep) for q in naive.points(f, n)}
        assert naive.points_of(p, n) == found
        assert naive.points_of(s.reorder(("j", "i")), n) == {(j, i) for i, j in naive.points(f, n)}
    names = {"i": "j", "j": "k"}
    assert s.rename(names).dims == ("j", "k")
    assert s.rename(names).equals(naive.set(f.substitute(names), ("j", "k")))
    assert s.extend(("k",)).constrain(Formula.compare("k", "==", 0)).project(("i", "j")).equals(s)


@settings(max_examples=40)
@given(FORMULAS, SIDES, st.sampled_from([("i",), ("j",), ()]))
def test_an_expression_in_terms_of_other_dimensions(naive, f, e, dims):
    s = naive.set(f)
    found = s.express(e, dims)
    assert s.in_terms_of(dims).equals(s)
    if found is None:
        return
    assert not (found.names & ({"i", "j"} - set(dims)))
    for n in naive.sizes:
        for p in naive.points(f, n):
            assert naive.value(found, n, "ij", p) == naive.value(e, n, "ij", p)


@pytest.mark.parametrize(
    ("where", "e", "dims", "expected"),
    [
        ("j==i+1", "j", ("i",), "i+1"),
        ("i==2*j", "j", ("i",), "i floordiv 2"),
        ("i+j==n", "j", ("i",), "n-i"),
        ("j==i+1", "N[j-1]", ("i",), "N[i]"),
        ("j<=i", "j", ("i",), None),
        ("j==i || j==i+1", "j", ("i",), None),
        ("true", "i+1", ("i",), "i+1"),
        ("j==N[i]", "j", ("i",), "N[i]"),
        ("i==K", "i", (), "K"),
    ],
)
def test_express_finds_what_is_there(naive, where, e, dims, expected):
    found = naive.set(where).express(parse_index(e), dims)
    if expected is None:
        assert found is None
        return
    assert found is not None
    for n in naive.sizes:
        for p in naive.points(where, n):
            assert naive.value(found, n, "ij", p) == naive.value(expected, n, "ij", p)


@settings(max_examples=40)
@given(FORMULAS)
def test_entries_outside_the_table_never_hold(narrow, f):
    """A comparison that reads outside a table is false: `guarded` writes the bounds, sets and evaluation then agree."""
    g = guarded(f, narrow.ctx)

    def holds(n: int, p: tuple[int, int]) -> bool:
        def read(_: str, i: int) -> int:
            return (2, 3, 2)[i] if 0 <= i < 3 else 100

        return g.evaluate(narrow.env(n, ("i", "j"), p), read)

    s = narrow.set(g)
    for n in narrow.sizes:
        wanted = {p for p in narrow.points(TRUE, n) if holds(n, p)}
        assert narrow.points_of(s, n) == wanted


@settings(max_examples=40)
@given(FORMULAS, FORMULAS)
def test_nothing_is_proved_from_entries_that_do_not_exist(narrow, f, g):
    """Inclusion, where proved, holds at every point at which both formulas can be evaluated."""
    if not narrow.set(f) <= narrow.set(g):
        return
    for n in narrow.sizes:
        for p in narrow.points(TRUE, n):
            env = narrow.env(n, ("i", "j"), p)
            try:
                a, b = f.evaluate(env, narrow.ctx.read), g.evaluate(env, narrow.ctx.read)
            except IndexError:
                continue
            assert b or not a


def test_an_entry_at_an_index_outside_is_unknown(narrow):
    assert narrow.ctx.constant(Lookup("N", IndexExpr.of(7))) is None
    assert narrow.ctx.constant(Lookup("N", parse_index("K"))) == 2
    with pytest.raises(IndexError):
        narrow.ctx.read("N", 3)


def test_lifted_and_expanded_entries_mean_the_same():
    values = (4, 4, 5, 6, 4, 3, 3)
    ctx = PolyContext(("D",), parse_formula("D>=1"), {"K": 7}, {"N": Table(0, values)})
    dims = ("d", "k", "i")
    lifted = ctx.set(dims, parse_formula("1<=d<=D && 1<=k<K && 1<=i<=N[k]"))
    cases = [f"k=={k} && i<={values[k]}" for k in range(1, 7)]
    expanded = ctx.set(dims, parse_formula(f"1<=d<=D && 1<=i && ({' || '.join(cases)})"))
    assert lifted.equals(expanded) and lifted <= expanded <= lifted
    assert (lifted - expanded).is_empty() and (expanded - lifted).is_empty()
    smaller = ctx.set(dims, parse_formula("1<=d<=D && 1<=k<K && 1<=i<N[k]"))
    assert smaller <= expanded and not expanded <= smaller
    assert lifted.project(("k", "i")).equals(expanded.project(("k", "i")))
    assert lifted.project(("d", "i")).equals(ctx.set(("d", "i"), parse_formula("1<=d<=D && 1<=i<=6")))
    shifted = ctx.set(("k", "m", "i"), parse_formula("1<=k<K && m==k+1 && 1<=i<=N[m-1]"))
    assert shifted.project(("k", "i")).equals(ctx.set(("k", "i"), parse_formula("1<=k<K && 1<=i<=N[k]")))


def test_inclusion_needs_the_values_of_entries():
    ctx = PolyContext((), TRUE, {}, {"N": Table(1, (2, 3, 3, 5)), "M": Table(1, (3, 3, 4, 5))})
    a = ctx.set(("k", "i"), parse_formula("1<=k<=4 && 1<=i<=N[k]"))
    b = ctx.set(("k", "i"), parse_formula("1<=k<=4 && 1<=i<=M[k]"))
    assert a <= b and not b <= a
    assert sorted((b - a).points()) == [(1, 3), (3, 4)]
    assert (b - a).sample() in ({"k": 1, "i": 3}, {"k": 3, "i": 4})


def test_the_condition_on_parameters_is_used():
    ctx = PolyContext(("n", "m"), parse_formula("n>=1 && m>=n"))
    low = ctx.set(("i",), parse_formula("0<=i<n"))
    assert low <= ctx.set(("i",), parse_formula("0<=i<m"))
    assert not ctx.set(("i",), parse_formula("0<=i<m")) <= low
    assert ctx.set(("i",), parse_formula("i<0 && i>m-n")).is_empty()
    assert not low.is_empty() and low.extent("i") == (0, None)
    found = ctx.set(("i",), parse_formula("i==n+5 && m>n+2")).sample()
    assert found["i"] == found["n"] + 5 and found["m"] > found["n"] + 2 and found["n"] >= 1


def test_zero_dimensions():
    ctx = PolyContext(("n",), parse_formula("n>=0"))
    assert not ctx.set(()).is_empty() and list(ctx.set((), TRUE).points()) == [()]
    assert ctx.set((), parse_formula("n<0")).is_empty() and ctx.empty(()).is_empty()


@pytest.mark.parametrize("text", ["i*j<4", "i floordiv j<1", "i mod n==0", "N[i*j]<3", "i*n<4", "N[i]*j<2"])
def test_what_is_not_affine_is_named(naive, text):
    what = naive.ctx.not_affine(("i", "j"), parse_formula(text))
    assert what and set(what) <= set(text)


@pytest.mark.parametrize(
    "text", ["i*K<4", "i floordiv M<1", "i mod (K+1)==0", "N[K]*j<2", "K*M*i<9", "(i<j ? i : 2*j)<2"]
)
def test_known_constants_keep_a_product_affine(naive, text):
    f = parse_formula(text)
    for n in naive.sizes:
        assert naive.points_of(naive.set(f), n) == naive.points(f, n)


@pytest.mark.parametrize(("K", "below"), [(0, 6), (1, 4), (3, 2)])
def test_a_product_with_a_known_constant(K, below):
    """0 among them."""
    ctx = PolyContext((), constants={"K": K})
    assert [*ctx.set(("i",), parse_formula("0<=i<6 && 0<=K*i<=3")).points()] == [(i,) for i in range(below)]


def test_a_failure_of_isl_that_is_not_the_limit_is_none() -> None:
    """Not "too complex": a mistake of ours must show."""
    with pytest.raises(isl.Error), limited():
        isl.Set("no set")


@pytest.mark.parametrize("names", [{"a": "b", "b": "a"}, {"a": "c"}, {"a": "b", "b": "c"}])
def test_symbols_inside_may_change_places(names):
    """What is not affine and what is an entry follow the names of the dimensions; two that get one name are one."""
    ctx = PolyContext(("n",), parse_formula("n>=1"))
    text = "0<=a<=3 && 0<=b<=3 && a*n<=b && b*n>=2"
    s = ctx.set(("a", "b"), parse_formula(text))
    fresh = {"a": "left", "b": "right"}
    new = text.replace("a", "left").replace("b", "right")
    for old in ("a", "b"):
        new = new.replace(fresh[old], names.get(old, old))
    wanted = ctx.set(tuple(names.get(d, d) for d in "ab"), parse_formula(new))
    assert s.rename(names).equals(wanted)
    # an unused symbol that has the new name already, as after a union that was cut
    both = (s | s.rename({"a": "b", "b": "a"}).rename({"a": "b", "b": "a"})) & s
    assert both.rename(names).equals(wanted)


def test_two_symbols_that_get_one_name_are_one():
    ctx = PolyContext(("n",), parse_formula("n>=1"))
    s = ctx.set(("a", "b"), parse_formula("0<=a<=3 && b==a && a*n<=2 && c*n>=4"))
    assert s.rename({"a": "c"}).is_empty()
