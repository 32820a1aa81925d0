"""A fixed part of the condition sweep: whatever decides an arrow, every engine is right, or refuses and names it."""

from __future__ import annotations

from collections import Counter

import pytest

from agreement import conditions
from agreement.conditions import everything, table, text
from agreement.conditions_cells import EQUAL, UNNAMED, WAYS, WRONG, Cell, Wrong, compare, examine
from agreement.conditions_grammar import CONDITIONS, Term, python
from agreement.conditions_sites import CONDITION_SITES, Program, programs

CHEAP = [w for w in WAYS if "token" not in w and "machine" not in w]
"""Ways that need no C++ compiler."""
QUICK = ["reference", "interpreter", "native", "C", "check", "gradient", "gradient, native", "tangent"]
"""Of these, the ones of `make test`."""
CHOSEN = (
    "i<q", "i mod q==0", "i*j<=4", "i**2<q", "i floordiv q==j floordiv q", "i mod P[k]==0", "i mod (2*P[k])<P[k]",
    "n mod q==0", "i mod (j+1)==0", "i<N[k]", "P[Q[k]]<=i", "!(i mod q==0 || j mod q==0)",
)  # fmt: skip
SITES = ("inner arrow", "guarded gather", "output", "time loop", "two nodes into a gather", "greatest")


def failed(cells: list[Cell]) -> str:
    """What must not be: wrong results, exceptions, and refusals that do not name the expression."""
    return "\n".join(text(conditions.asdict(c)) for c in cells if c.bad or c.outcome.endswith(UNNAMED))


@pytest.mark.parametrize("site", SITES)
def test_conditions(site: str) -> None:
    """A condition at every site, by turns; `make soak` has all of them at each."""
    wanted = CHOSEN[2 * SITES.index(site) % len(CHOSEN)]
    found = [c for p in programs() if p.site.name == site and p.term.text == wanted for c in examine(p, QUICK)]
    assert len({c.program.term for c in found}) == 1
    assert not failed(found)


@pytest.mark.parametrize(
    "name",
    [
        "two nodes into a gather: i floordiv 2==j floordiv 2", "select in an index: (i+j) mod 3==1",
        "select in an index: i*j mod 3==0", "time loop: min(i*j,q)<2", "time loop: 2**k<=i",
    ],
)  # fmt: skip
def test_refusals_name_the_expression(name: str) -> None:
    """Those that once did not, in what the compiler makes of a program as well."""
    (program,) = [p for p in everything() if p.name == name]
    found = list(examine(program, ["native", "gradient, native", "gradient, checkpoint"]))
    assert not failed(found)
    assert any(c.outcome.startswith("refused") for c in found)


@pytest.mark.parametrize("part", range(2))
def test_a_sample(part: int) -> None:
    """Some of all programs, mixed."""
    found = [c for n in range(2) for c in examine(everything()[4 * n + part], QUICK)]
    assert not failed(found)
    assert Counter(c.outcome for c in found)[EQUAL]


@pytest.mark.parametrize("part", range(8))
def test_more_programs(part: int) -> None:
    """An eightieth of all programs, every way but for the dear ones; `make soak` has the rest."""
    found = [c for p in everything()[part::640] for c in examine(p, CHEAP)]
    assert not failed(found)


@pytest.mark.parametrize("part", range(6))
def test_engines_that_a_compiler_builds(part: int) -> None:
    """The token engine and the machine on a few."""
    ways = ["token", "gradient, token", "machine", "machine, direct", "machine, throttled"]
    assert not failed(list(examine(everything()[17 * part], ways)))


def test_the_sweep_has_all_classes() -> None:
    assert len(CONDITIONS) >= 60 and len({c.text for c in CONDITIONS}) == len(CONDITIONS)
    assert len({p.site.name for p in programs()}) >= 18
    assert len({p.text for p in programs()}) > 1400
    assert {t.kind for t in CONDITIONS} >= {
        "affine", "by number", "by parameter", "by table", "by sum", "product", "by parameter product", "power", "table",
        "nested table", "symbolic array", "mixed", "select", "min max abs",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("term", "env", "value"),
    [
        ("i ceildiv 2==2 && !(j>0)", {"i": 3, "j": 0}, True),
        ("2*i ceildiv q", {"i": 2, "q": 3}, 2),
        ("(i mod q==0 ? i : j)==j", {"i": 3, "q": 3, "j": 1}, False),
        ("i floordiv P[k] mod 2==0", {"i": 5, "k": 1}, True),
        ("!(i**2<q) || i!=2", {"i": 2, "q": 9}, False),
        ("0<i<q", {"i": 0, "q": 9}, False),
        ("true", {}, True),
    ],
)  # fmt: skip
def test_a_term_in_python(term: str, env: dict[str, int], value: object) -> None:
    """The truth of the sweep is what the language says, spelt in Python."""
    assert Term("", term).value(**env) == value, python(term)


def test_a_wrong_result_is_seen() -> None:
    """The harness is no yes-man: an engine that drops the condition is WRONG, one that raises is what it raised."""
    site = next(s for s in CONDITION_SITES if s.name == "inner arrow")
    right = Program(Term("affine", "i<q"), site)
    lying = Program(Term("affine", "i<q"), type(site)("inner arrow", site.text.replace("x*x", "3*x"), site.expected))
    assert [c.outcome for c in examine(right, CHEAP)] == [EQUAL] * (len(CHEAP) - 1)
    found = {c.way: c for c in examine(lying, CHEAP)}
    assert found["native"].outcome == WRONG and found["native"].size == {"n": 1, "q": 1} and found["native"].bad
    assert found["gradient, native"].bad and not found["check"].bad
    broken = Program(Term("affine", "i<q"), type(site)("inner arrow", site.text + "}", site.expected))
    assert {c.outcome for c in examine(broken, ["native"])} == {"refused UPL1008"}
    with pytest.raises(Wrong, match="no place"):
        import upl_mlir as upl

        p = upl.load(right.text).infer_domains()
        compare(p, "Y", {"n": 1, "q": 1}, {(1,): 1.0}, [0.0])


def test_the_table() -> None:
    """Class by way."""
    counts = Counter({
        "conditions: native | product: equal": 3, "conditions: native | product: WRONG": 1,
        "conditions: C | product: refused UPL1823, not named": 2, "programs": 4,
    })  # fmt: skip
    assert table(counts) == [
        "| class | native | C |", "|---|---|---|", "| product | 3 =, **1 WRONG** | 2 refused |",
        "| **all** | 3 =, **1 WRONG** | 2 refused |",
    ]  # fmt: skip
    assert conditions.refusals(counts)[2:] == ["| UPL1823 | C | 2 | 2 |"]
