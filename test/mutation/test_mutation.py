"""The seeded bugs can be seeded, and are caught: some here, all by `make mutants`, whose result is recorded."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from mutation import score
from mutation.bugs import BUGS, Bug
from mutation.operators import changed_text, places
from mutation.overlay import ROOT, changed, run_tests
from mutation.seeded import PLACE, seeded_text, try_bug

QUICK = ("a - b by b without its sign", "erf with another constant", "a domain is a union over inputs")


@pytest.mark.parametrize("bug", BUGS, ids=lambda b: b.name)
def test_every_bug_applies(bug: Bug) -> None:
    """Its line is there, once, and the changed file still is Python."""
    text = seeded_text(bug)
    if bug.file.endswith(".py"):
        ast.parse(text)
    assert all((ROOT / t.partition("::")[0]).exists() for t in bug.test.split())


@pytest.mark.parametrize("name", QUICK)
def test_a_bug_is_caught(name: str, tmp_path: Path) -> None:
    (bug,) = (b for b in BUGS if b.name == name)
    found = try_bug(bug, tmp_path)
    assert found["caught"], found
    assert found["by"].startswith(tuple(bug.test.split()))


def test_without_a_bug_nothing_is_caught(tmp_path: Path) -> None:
    """The same tests on the package as it is, by the same way."""
    bug = BUGS[0]
    changed(tmp_path, bug.file, (ROOT / "upl_mlir" / bug.file).read_text(encoding="utf-8"))
    assert run_tests(tmp_path, [bug.test], 300).caught is False
    assert run_tests(tmp_path, ["test/no_such_file.py"], 300).caught is None


def test_all_bugs_are_recorded_as_caught() -> None:
    """`make mutants` tried every one, and a test failed for it."""
    known = json.loads(PLACE.read_text(encoding="utf-8"))
    assert list(known) == [b.name for b in BUGS]
    assert [n for n, found in known.items() if not found["caught"]] == []
    assert len(BUGS) >= 30


def test_random_changes() -> None:
    """Every operator makes another program that still parses; annotations, messages and assertions stay."""
    source = '''
def f(a: int, b: "list[int]") -> int:
    """Text 1."""
    assert a == 1
    if not a < b and a in b:
        a += 1
        g(a)
        raise ValueError("1 == 2")
    for x in b:
        continue
    return -a if True else a + 2
'''
    found = places("f.py", source)
    texts = [changed_text(p, source) for p in found]
    assert len({*texts}) == len(texts) == len(found)
    assert all(ast.dump(ast.parse(t)) != ast.dump(ast.parse(source)) for t in texts)
    assert {p.what for p in found} == {
        "condition turned round", "And to Or", "not left out", "Lt to LtE", "In to NotIn", "statement left out", "1 to 2",
        "continue to break", "returns None", "minus left out", "True to False", "Add to Sub", "2 to 3",
    }  # fmt: skip
    assert all("assert a == 1" in t and "1 == 2" in t for t in texts)


def test_the_sample_is_always_the_same() -> None:
    first = score.sample(20)
    assert first == score.sample(20)
    for place in first:
        ast.parse(changed_text(place, (ROOT / "upl_mlir" / place.file).read_text(encoding="utf-8")))
        tests = score.tests_of(place.file)
        assert tests and all((ROOT / t.partition("::")[0]).exists() for t in tests)
