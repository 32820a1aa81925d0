"""Index expressions and formulas: normal form, text read back, values; the reader fails on bad text in one way only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upl_mlir.poly.expr import FALSE, TRUE, Formula, IndexExpr, Lookup, Select, divide, extremum
from upl_mlir.poly.operators import CmpOp, DivKind, Extremum
from upl_mlir.poly.parse import PolySyntaxError, parse_formula, parse_index

TABLE = (3, 1, 4, 1, 5, 9, 2, 6)  # N[-4] to N[3]
NAMES = ("i", "j", "k", "D")


def read(array: str, i: int) -> int:
    """An entry of the table, for indices of any size."""
    assert array == "N"
    return TABLE[(i + 4) % len(TABLE)]


# -- random expressions, each with its meaning as a Python function ------------------------------------------------
Meaning = tuple[IndexExpr, object]


def _leaf(name: str):
    return (IndexExpr.of(name), lambda env: env[name])


def _number(n: int):
    return (IndexExpr.of(n), lambda env: n)


def _grow(inner):
    pair = st.tuples(inner, inner)

    def binary(make, value):
        return lambda p: (make(p[0][0], p[1][0]), lambda env: value(p[0][1](env), p[1][1](env)))

    def division(kind):
        value = {"floordiv": lambda a, b: a // b, "ceildiv": lambda a, b: -(-a // b), "mod": lambda a, b: a % b}[kind]
        return st.tuples(inner, st.integers(1, 5)).map(
            lambda p: (divide(DivKind(kind), p[0][0], IndexExpr.of(p[1])), lambda env: value(p[0][1](env), p[1]))
        )

    def extreme(kind, value):
        return st.lists(inner, min_size=1, max_size=3).map(
            lambda xs: (extremum(kind, [x[0] for x in xs]), lambda env: value(x[1](env) for x in xs))
        )

    return st.one_of(
        pair.map(binary(lambda a, b: a + b, lambda a, b: a + b)),
        pair.map(binary(lambda a, b: a - b, lambda a, b: a - b)),
        pair.map(binary(lambda a, b: a * b, lambda a, b: a * b)),
        inner.map(lambda x: (-x[0], lambda env: -x[1](env))),
        division("floordiv"),
        division("ceildiv"),
        division("mod"),
        extreme(Extremum.MIN, min),
        extreme(Extremum.MAX, max),
        inner.map(lambda x: (IndexExpr.of(Lookup("N", x[0])), lambda env: read("N", x[1](env)))),
        st.tuples(_comparison(inner), inner, inner).map(
            lambda t: (
                IndexExpr.of(Select(t[0][0], t[1][0], t[2][0])),
                lambda env: t[1][1](env) if t[0][1](env) else t[2][1](env),
            )
        ),
    )


def _comparison(inner):
    return st.tuples(inner, st.sampled_from(list(CmpOp)), inner).map(
        lambda t: (Formula.compare(t[0][0], t[1], t[2][0]), lambda env: t[1].holds(t[0][1](env), t[2][1](env)))
    )


EXPRESSIONS = st.recursive(
    st.one_of(st.sampled_from(NAMES).map(_leaf), st.integers(-9, 9).map(_number)), _grow, max_leaves=7
)


def _junction(make, value):
    return lambda parts: (make([p[0] for p in parts]), lambda env: value([p[1](env) for p in parts]))


FORMULAS = st.recursive(
    st.one_of(_comparison(EXPRESSIONS), st.sampled_from([(TRUE, lambda env: True), (FALSE, lambda env: False)])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(_junction(Formula.all, all)),
        st.lists(inner, max_size=3).map(_junction(Formula.any, any)),
        inner.map(lambda f: (f[0].negate(), lambda env: not f[1](env))),
    ),
    max_leaves=5,
)
ENVIRONMENTS = st.fixed_dictionaries({n: st.integers(-7, 7) for n in NAMES})


@given(EXPRESSIONS, ENVIRONMENTS)
def test_an_expression_means_what_python_says(expression, env):
    e, value = expression
    assert e.evaluate(env, read) == value(env)


@given(EXPRESSIONS)
def test_an_expression_is_read_back_as_itself(expression):
    e, _ = expression
    assert parse_index(str(e)) == e, str(e)


@given(FORMULAS, ENVIRONMENTS)
def test_a_formula_means_what_python_says(formula, env):
    f, value = formula
    assert f.evaluate(env, read) == value(env)
    assert f.negate().evaluate(env, read) != value(env)


@given(FORMULAS)
def test_a_formula_is_read_back_as_itself(formula):
    f, _ = formula
    assert parse_formula(str(f)) == f, str(f)
    assert parse_formula(f.text(domain=True)) == f, f.text(domain=True)


@given(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS)
def test_equal_polynomials_are_equal_objects(a, b, c):
    x, y, z = a[0], b[0], c[0]
    assert x + y == y + x and x * y == y * x
    assert (x + y) * z == x * z + y * z
    assert x - x == IndexExpr.of(0) and IndexExpr.of(-1) * (-x) == x
    assert (x + y) + z == x + (y + z) and (x * y) * z == x * (y * z)
    assert hash((x + y) * z) == hash(z * y + z * x)


@given(EXPRESSIONS, ENVIRONMENTS, EXPRESSIONS)
def test_substitution_is_evaluation_of_the_inner_first(expression, env, inner):
    e, _ = expression
    replaced = e.substitute({"i": inner[0]})
    assert replaced.evaluate(env, read) == e.evaluate({**env, "i": inner[0].evaluate(env, read)}, read)
    assert e.names <= set(NAMES) and ("i" in e.names or replaced == e)


@pytest.mark.parametrize(
    ("expression", "value", "wanted"),
    [
        ("(3*n-e-2) floordiv 3", "3*n-3*e-2", "e"), ("(e-1) floordiv 2", "2*e+1", "e"), ("min(e, n)", "n", "n"),
        ("min(e, f-1)", "f-1", "f-1"), ("max(e+1, f)", "f-1", "f"), ("(4*e) floordiv 2", "e+1", "2*e+2"),
        ("N[(2*e) floordiv 2]", "e+1", "N[e+1]"), ("((e-1) floordiv 2) floordiv 3", "6*e+1", "e"),
    ],
)  # fmt: skip
def test_a_name_is_replaced_once(expression: str, value: str, wanted: str) -> None:
    """Also where a quotient or minimum becomes simple by it: what is left of it may be the same name, meant already."""
    assert str(parse_index(expression).substitute({"e": parse_index(value)})) == wanted
    where = parse_formula(f"{expression} >= 0").substitute({"e": parse_index(value)})
    assert where == parse_formula(f"{wanted} >= 0")


@given(FORMULAS, ENVIRONMENTS, EXPRESSIONS)
def test_substitution_in_a_formula(formula, env, inner):
    f, _ = formula
    replaced = f.substitute({"j": inner[0]})
    assert replaced.evaluate(env, read) == f.evaluate({**env, "j": inner[0].evaluate(env, read)}, read)


@pytest.mark.parametrize(
    ("text", "env", "value"),
    [
        ("-i floordiv 2", {"i": 3}, -2),  # a unary minus binds tighter than a division: (-3) floordiv 2
        ("-(i floordiv 2)", {"i": 3}, -1),
        ("0 - i floordiv 2", {"i": 3}, -1),
        ("-i mod 4", {"i": 1}, 3),
        ("-7 ceildiv 2", {}, -3),
        ("2*i mod 3*2", {"i": 4}, 4),  # from the left
        ("12 floordiv i", {"i": 5}, 2),
        ("i floordiv (j*2)", {"i": 9, "j": 2}, 2),
        ("i floordiv j floordiv 2", {"i": 17, "j": 3}, 2),
        ("i - (j - 1)", {"i": 5, "j": 3}, 3),
        ("min(i,j,2) - max(i,-j)", {"i": 5, "j": 3}, -3),
        ("i<j<5 ? 10 : 20", {"i": 1, "j": 5}, 20),
        ("i<j ? j<3 ? 1 : 2 : 3", {"i": 1, "j": 5}, 2),
        ("N[i-1]*N[N[j]-1]", {"i": 1, "j": -3}, 5 * 5),
        ("--i", {"i": 4}, 4),
    ],
)
def test_precedence(text, env, value):
    e = parse_index(text)
    assert e.evaluate(env, read) == value
    assert parse_index(str(e)) == e


@pytest.mark.parametrize(
    ("text", "true", "false"),
    [
        ("1<=i<j<=5", [(1, 2), (4, 5)], [(0, 2), (2, 2), (5, 6)]),
        ("i==j==3", [(3, 3)], [(2, 2), (3, 4)]),
        ("i!=j!=3", [(3, 4), (1, 2)], [(1, 1), (4, 3)]),
        ("!(i<j) || i==0 && j>2", [(3, 2), (0, 3)], [(0, 1), (1, 3)]),
        ("!i<j", [(3, 2)], [(1, 2)]),
        ("i>0, j>0", [(1, 1)], [(1, 0), (0, 1)]),
        ("i>0 || j>0, i<5", [(1, 0), (0, 1)], [(5, 1), (0, 0)]),
        ("", [(0, 0)], []),
        ("i mod 2 == 0 && true", [(2, 0), (-2, 0)], [(-1, 0)]),
    ],
)
def test_conditions(text, true, false):
    f = parse_formula(text)
    for i, j in true:
        assert f.evaluate({"i": i, "j": j}, read), (i, j)
    for i, j in false:
        assert not f.evaluate({"i": i, "j": j}, read), (i, j)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("i+i", "2*i"),
        ("(i+1)*(i-1)", "i*i-1"),
        ("N[(k+1)-1]", "N[k]"),
        ("(4*i+8) floordiv 4", "i+2"),
        ("(4*i+8) mod 4", "0"),
        ("7 floordiv 2", "3"),
        ("-7 mod 4", "1"),
        ("min(j,i,j)", "min(i,j)"),
        ("max(3,i,5)", "max(5,i)"),
        ("i floordiv 1", "i"),
    ],
)
def test_the_normal_form_knows_that_these_are_equal(a, b):
    assert parse_index(a) == parse_index(b)
    assert str(parse_index(a)) == str(parse_index(b))


def test_text_is_what_a_person_writes():
    assert str(parse_formula("1<=i && i<=N[k-1] && k<K")) == "1<=i<=N[k-1] && k<K"
    assert str(parse_index("(-1)*i + n - 1")) == "n-i-1"
    assert parse_formula("a<b && c<d").text(domain=True) == "a<b, c<d"


def test_parts_of_formulas():
    f = parse_formula("i<N[k-1] && (j<3 || N[N[k]]>D)")
    assert f.names == {"i", "k", "j", "D"}
    assert [str(a) for a in f.lookups()] == ["N[k-1]", "N[k]", "N[N[k]]"]
    assert len(f.conjuncts) == 2 and TRUE.conjuncts == ()
    assert (TRUE & f) == f and (FALSE | f) == f and (f & FALSE).is_false and (f | TRUE).is_true


@pytest.mark.parametrize("op", list(CmpOp))
def test_operators_flip_and_negate(op):
    for a in range(-2, 3):
        for b in range(-2, 3):
            assert op.holds(a, b) == op.flipped.holds(b, a) == (not op.negated.holds(a, b))


@pytest.mark.parametrize(
    ("text", "col"),
    [("i+", 2), ("i j", 2), ("(i", 2), ("i<", 2), ("N[i", 3), ("i ? 1 : 2", 0), ("i $ 2", 1), ("min()", 4), ("i<j", 0),
     (")", 0), ("1 < i < j", 0), ("i<j ? 1", 7), ("a && b", 0)],
)  # fmt: skip
def test_bad_expressions_are_refused_at_their_column(text, col):
    with pytest.raises(PolySyntaxError) as e:
        parse_index(text)
    assert e.value.col == col


@pytest.mark.parametrize("text", ["i", "i<j && k", "i<", "i<j,", "!i", "(i<j)+1 < 2", "i = j", "i<j ? k<1 : true"])
def test_bad_formulas_are_refused(text):
    with pytest.raises(PolySyntaxError):
        parse_formula(text)


PIECES = ["i", "N[", "]", "(", ")", "+", "-", "*", "floordiv", "mod", "<", "<=", "!", "!=", "&&", "||", "?", ":", ",",
          "min(", "7", "0", " ", "é", "@", "true"]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join))
def test_any_text_is_read_or_refused(text):
    for parse in (parse_index, parse_formula):
        try:
            found = parse(text)
        except PolySyntaxError as e:
            assert 0 <= e.col <= len(text)
        else:
            assert parse(str(found)) == found


@pytest.mark.parametrize("piece", ["(", "-", "!", "N[", "min(", "1<2 ? ", "!(", "-("])
def test_deep_nesting_is_refused_and_not_a_crash(piece):
    for parse in (parse_index, parse_formula):
        with pytest.raises(PolySyntaxError):
            parse(piece * 20_000 + "i")


def test_long_texts_are_read():
    assert parse_index("+".join(["i"] * 3000)) == IndexExpr.of("i") * 3000
    assert parse_formula(" && ".join(f"i<{n}" for n in range(500))).evaluate({"i": -1}, read)
