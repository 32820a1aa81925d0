"""Random programs of the wider class are right by construction, and mean the same everywhere; so do adjoints inside them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import upl_mlir as upl
from agreement import directives, naive
from agreement.campaign import Tally, case_of, examine
from agreement.directives import inside
from agreement.generator import WIDE, Generator, generate, mix
from agreement.ledger import STARTS
from agreement.properties import Broken, Case, run_on
from agreement.static import Call, Choice, Cond, Lin, Look, OutOfRange, Pow, cmp, num, var
from agreement.wide import features


def failures(seeds: range, *props: str) -> str:
    tally = Tally()
    for seed in seeds:
        examine(seed, props, tally, save=False, size=3)
    return "\n\n".join(map(str, tally.failures))


def test_the_programs_are_right() -> None:
    """Every rule holds at small sizes, found by enumeration; all features occur; programs of before have none of them."""
    programs = [generate(WIDE + n, 3) for n in range(300)]
    for p in programs:
        for params in naive.small_params(p)[:3]:
            result = naive.run(p, params)
            assert result.ok, f"{result.violations[0]} at {params}\n{p.text()}"
    found = mix(programs)
    for feature in (
        "condition: by a parameter", "condition: by a sum", "condition: by a table entry", "condition: product",
        "condition: product with a parameter", "condition: power", "condition: abs", "condition: choice",
        "condition: table entry", "condition: mixed", "one of two nodes", "two nodes into a gather",
        "output that depends on no input", "arrow that data decide",
    ):  # fmt: skip
        assert found[feature] >= 4, feature
    assert sum(n for f, n in found.items() if f.startswith("count: ")) >= 20
    assert not any(features(generate(seed).features) for seed in range(40))
    assert type(Generator(5)) is Generator and STARTS["wide"] >= WIDE + 1000


@pytest.mark.parametrize("part", range(4))
def test_results_and_native_code(part: int) -> None:
    assert not failures(range(WIDE + 8 * part, WIDE + 8 * part + 8), "results", "native")


@pytest.mark.parametrize("part", range(2))
def test_gradients(part: int) -> None:
    assert not failures(range(WIDE + 100 + 5 * part, WIDE + 105 + 5 * part), "gradients")


@pytest.mark.parametrize("part", range(2))
def test_adjoints_inside(part: int) -> None:
    assert not failures(range(WIDE + 200 + 3 * part, WIDE + 203 + 3 * part), "inside")


@pytest.mark.parametrize("part", range(4))
def test_more_programs(part: int) -> None:
    """All properties of more programs."""
    seeds = range(WIDE + 300 + 10 * part, WIDE + 310 + 10 * part)
    assert not failures(seeds, "proof", "results", "native", "gradients", "inside")


TWO_STEPS = """program two_steps
input x { -> F.x<>; -> Upd.x<> }
input a { -> F.a<> }
output Y
node F { in x, a; a*x*x*x -> G.l<> }
node G { in l; 2*l -> Upd.y<> }
node Upd { in x, y; x*y -> Y }
"""


def test_a_directive_inside_is_looked_at_in_both_orders() -> None:
    """The derivative of F.a's cube by F.x, natively and on the interpreter; and that array's own derivative."""
    found = Counter[str]()
    for seed in range(4):
        found += inside(Case(TWO_STEPS, True, {}, seed))
    assert found["directives"] >= 4 and found["directives natively"] >= 4 and found["not zero"] >= 2
    assert found["second order"] == found["not zero"] and found["second order, not zero"] >= 2


def test_a_derivative_that_forgets_the_directive_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing came back through `adjoint of`: reverse mode of the program that has it gives 0."""

    def forgetful(p: upl.Program, *how: Any) -> dict[str, Any]:
        out = run_on(p, *how)
        return {n: 0 * a if n.startswith("d_") and directives.OUT in out else a for n, a in out.items()}

    monkeypatch.setattr(directives, "run_on", forgetful)
    with pytest.raises(Broken, match="derivative of adjoint of"):
        for seed in range(4):
            inside(Case(TWO_STEPS, True, {}, seed))


@pytest.mark.parametrize(
    ("e", "text", "value"),
    [
        (var("i").mod(var("q") + 1), "i mod (q+1)", 1),
        (var("i").floordiv(var("q")), "i floordiv q", 1),
        (Lin(0, ((1, Pow(var("i"), 2)),)) - var("q"), "i**2-q", 22),
        (Lin(0, ((1, Call("min", (var("i"), var("q") + 1))),)), "min(i, q+1)", 4),
        (Lin(0, ((2, Call("abs", (var("q") - var("i"),))),)), "2*abs(q-i)", 4),
        (Lin(0, ((1, Choice(cmp(var("i"), "<", num(3)), var("i"), var("q") + 1)),)), "(i<3 ? i : q+1)", 4),
        (Lin(0, ((1, Look("P", Lin(0, ((1, Look("P", var("q") - 2)),)))),)), "P[P[q-2]]", 7),
    ],
)  # fmt: skip
def test_expressions(e: Lin, text: str, value: int) -> None:
    """Text, value, names, and that they are not affine; a name replaced inside."""
    env, tables = {"i": 5, "q": 3}, {"P": {1: 2, 2: 7}}
    assert str(e) == text and e.eval(env, tables) == value
    assert e.names() <= {"i", "q"} and not e.affine
    moved = e.subst({"i": var("i") - 1, "q": var("q") - 1})
    assert moved.eval({"i": 6, "q": 4}, tables) == value
    assert not Cond("or", (cmp(e, "<", num(3)),)).affine and cmp(var("i").mod(2), "==", num(0)).affine


def test_an_entry_that_is_not_there() -> None:
    with pytest.raises(OutOfRange):
        Lin(0, ((1, Look("P", var("i"))),)).eval({"i": 5}, {"P": {0: 1}})


def test_data_that_decide_change_no_result() -> None:
    """An arrow with a `split` is printed as two, of which one sends; the naive evaluator knows one."""
    seed = next(s for s in range(WIDE, WIDE + 400) if "arrow that data decide" in generate(s, 3).features)
    p = generate(seed, 3)
    plain = [a for _, _, a in p.arrows()]
    assert sum(a.split is not None for a in plain) == 1
    assert sum(str(a).count("->") for a in plain) == len(plain) + 1
    assert case_of(p, seed).expected is not None
