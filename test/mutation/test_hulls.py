"""Hulls in place of sets are put where they should be, seen where they matter, and recorded."""

from __future__ import annotations

import json

import pytest
from agreement.conditions_cells import WAYS, examine

import upl_mlir as upl
from mutation import hulls
from mutation.hulls import CONSUMERS, HARMLESS, OPEN, PLACE, escaped, hulls_in, tried, try_consumer
from mutation.overlay import PACKAGE, ROOT
from upl_mlir.passes.analysis.relations import ProgramSets

TEXT = """program p
param n >= 1
param q >= 1
input X<i> in 0<=i<n { if i mod q==0: -> B.x<i> }
output T<i>
node B<i> { in x; x -> T<i> }
"""


def test_a_consumer_is_told_a_hull() -> None:
    """Only the one that is meant, only what has a condition to forget, and only while it is meant."""
    op = upl.load(TEXT).infer_domains().read()
    sets = ProgramSets(op)
    exact = sets.domain("B")
    assert exact.opaque_parts()
    assert not hulls.hull(exact).opaque_parts() and exact <= hulls.hull(exact) and not hulls.hull(exact) <= exact
    with hulls_in("passes/analysis/relations.py") as seen:
        assert not ProgramSets(op).domain("B").opaque_parts() and seen.count
    with hulls_in("passes/schedule.py") as seen:
        assert ProgramSets(op).domain("B").opaque_parts() and not seen.count
    assert ProgramSets(op).domain("B").opaque_parts()


def test_all_consumers_are_there() -> None:
    for file, ways in CONSUMERS.values():
        assert {*ways} <= {*WAYS}
        assert (ROOT / PACKAGE / file).exists(), file
    assert HARMLESS.keys() | OPEN.keys() <= CONSUMERS.keys() and not HARMLESS.keys() & OPEN.keys()
    assert {p.site.name for p in tried()} >= {"inner arrow", "guarded gather", "output", "time loop", "for bounds"}


@pytest.mark.parametrize("name", ["relations", "domains"])
def test_hulls_are_caught(name: str) -> None:
    """Those that everything rests on, by an early program."""
    found = try_consumer(name, 60)
    assert found["caught"] and found["sets"] and CONSUMERS[name][0] == found["file"]


def test_without_a_change_nothing_is_caught() -> None:
    """The same programs and ways, with hulls for a part that there is not."""
    with hulls_in("passes/no_such_file.py") as seen:
        found = [c for p in tried()[:6] for c in examine(p, ("native", "check", "gradient"))]
    assert not seen.count
    assert not [c for c in found if c.bad]


def test_what_is_recorded() -> None:
    """Every consumer was tried; a hull is seen in each, or it is said why it need not be, or that nobody knows."""
    known = json.loads(PLACE.read_text(encoding="utf-8"))
    assert list(known) == list(CONSUMERS)
    assert [n for n, found in known.items() if escaped(n, found)] == []
    assert escaped("counts", {"caught": False, "sets": 3}) and not escaped("equations", {"caught": False, "sets": 3})
    assert not escaped("counts", {"caught": True, "sets": 3}) and not escaped("x", {"caught": False, "sets": 0})
