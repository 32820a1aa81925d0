"""The seeded bugs can be seeded, and are caught: some here, all by `make mutants`, whose result is recorded."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from mutation import covered, score
from mutation.bugs import BUGS, Bug
from mutation.covered import Recorded
from mutation.marked import MARK, marked
from mutation.operators import Place, changed_text, changed_tree, places
from mutation.overlay import ROOT, changed, run_tests
from mutation.seeded import PLACE, seeded_text, try_bug
from mutation.survivors import SURVIVORS, Survivor
from mutation.warm import functions

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


SOURCE = """LIMIT = 3

def f(a):
    if a:
        return (
            1 + a)
    return g(a)

def g(a):
    return a - 1
"""


A, B = f"test/{covered.PROGRAMS}::a", f"test/{covered.PROGRAMS}::b"


def test_a_change_is_shown_to_the_tests_that_come_to_it() -> None:
    """The quickest first, up to a time."""
    known = Recorded(
        {"slow": 9.0, "quick": 1.0, "slower": 20.0, "none": 0.1, A: 2.0, B: 1.0},
        {("f.py", 4): {"slow", "quick", A, B}, ("f.py", 7): {"slower"}, ("f.py", 8): {"slower", "slow", "quick"}},
    )

    def shown(number: int, least: float = 0.0, most: float = 60.0, file: str = "f.py") -> list[str]:
        return score.tests_of(Place(file, number, 1, ""), known, least, most)

    assert shown(4) == ["quick", "slow"] and shown(5) == [] and shown(4, file="g.py") == []
    assert shown(8, 0.0, 5.0) == ["quick"], "in the first round"
    assert shown(8, 5.0, 40.0) == ["slow", "slower"], "those that are left in the second"
    assert shown(7, 0.0, 10.0) == ["slower"] and shown(7, 10.0, 40.0) == [], "one in any case"
    assert shown(4, 60.0, 160.0) == [B, A] and shown(4, 60.0, 62.0) == [B], "random programs in the last round"


MARKED = """'''About.'''
SIZE = 3 - 1


def f(a, b=5 - 1):
    '''About.'''
    if a == 1:
        return 1
    elif a == 2:
        out = [x + 7 for x in range(a)]
        return sum(out) + 9
    return g(lambda: a * 2)


def g(h):
    return h()
"""


def test_marks_say_where_a_run_comes() -> None:
    """A mark says that its statement is reached; one of what runs while a file is loaded, that a function of it does."""
    found = [p for p in places("f.py", MARKED) if p.what not in ("condition turned round", "returns None")]
    at = {n: (p.line, p.what) for n, p in enumerate(found)}

    def seen(a: int) -> set[tuple[int, str]]:
        marks = set[int]()
        scope: dict[str, Any] = {MARK: marks.add}
        exec(compile(marked(MARKED, {p.number: n for n, p in enumerate(found)}), "f.py", "exec"), scope)  # noqa: S102 - the text above
        assert not marks and scope["f"].__doc__ == "About."
        assert scope["f"](a) == {1: 1, 2: 24, 3: 6}[a]
        return {at[n] for n in marks}

    loaded = {(5, "Sub to Add"), (5, "5 to 6"), (5, "1 to 2")}
    first = {(7, "Eq to NotEq"), (7, "1 to 2"), *loaded}
    assert seen(1) == first | {(8, "1 to 2")}
    second = first | {(9, "Eq to NotEq"), (9, "2 to 3")}
    assert seen(2) == second | {(10, "Add to Sub"), (10, "7 to 8"), (11, "Add to Sub"), (11, "9 to 10")}
    assert seen(3) == second | {(12, "Mult to Add"), (12, "2 to 3")}


def test_which_tests_come_to_a_place_is_recorded(tmp_path: Path) -> None:
    """By a run of the tests with the package as it is but for its marks."""
    file = "poly/expr.py"
    source = (ROOT / "upl_mlir" / file).read_text(encoding="utf-8")
    wanted = places(file, source)
    assert covered.record(wanted, ["test/poly/test_expr.py"], tmp_path, jobs=0)
    known = covered.load(tmp_path)
    assert all(t.startswith("test/poly/test_expr.py::") for t in known.seconds) and len(known.seconds) > 50
    by_place = [set(known.tests_at(p)) for p in wanted]
    assert sum(map(bool, by_place)) > 100
    assert any(0 < len(tests) < 10 for tests in by_place), "not every test comes to every place"


def _code(text: str) -> CodeType:
    return compile(text, "f.py", "exec", dont_inherit=True)


def test_the_functions_that_a_change_alters() -> None:
    """The outermost ones; a change outside of functions has none, and is seen when the file is loaded."""
    source = SOURCE + "\nclass C:\n    x = 1\n    def h(self):\n        return [a + 1 for a in self.b if (lambda: 2)()]\n"
    found = {}
    for p in places("f.py", source):
        changed_code = compile(changed_tree(p, source), "f.py", "exec", dont_inherit=True)
        pairs = functions(_code(source), changed_code)
        found[p.line, p.what] = pairs and [old.co_qualname for old, _ in pairs]
    assert found[6, "Add to Sub"] == ["f"] and found[10, "1 to 2"] == ["g"]
    assert {(15, "Add to Sub"), (15, "2 to 3")} <= found.keys() and found[15, "Add to Sub"] == ["C.h"]
    assert found[13, "1 to 2"] is None
    assert functions(_code(source), _code(source)) == []


WARM = """
import json, sys
from pathlib import Path
import pytest
from mutation.operators import places
from mutation.overlay import PACKAGE, ROOT
from mutation.warm import Warm

out, folder = {}, Path(sys.argv[1])
FILE = "poly/ranking.py"
TESTS = [f"test/poly/test_ranking.py::{t}" for t in ("test_proved[segments]", "test_not_proved[round]")]

def work(warm):
    source = (ROOT / PACKAGE / FILE).read_text()
    out["fine"] = [warm.passes(t) for t in TESTS]
    for place in places(FILE, source):
        new = warm.code_of(place, source)
        if place.what == "returns None" and new:
            found = warm.tried(new, dict.fromkeys(TESTS, 1.0))
            out.setdefault("tried", []).append([place.line, found.caught, found.by])
        if new is None:
            out.setdefault("loading", []).append(place.line)
    out["still"] = [warm.tried([], {t: 1.0}).caught for t in TESTS]

(folder / "cache").mkdir(mode=0o700)
options = ["-n", "0", "-q", "-s", "-m", "", "-p", "no:cacheprovider", f"--basetemp={folder / 'tmp'}"]
pytest.main([*options, "test/poly/test_ranking.py"], plugins=[Warm(folder, ["poly"], work)])
print("\\n" + json.dumps(out))
"""


def test_a_change_in_a_copy_of_a_process_that_has_loaded_all(tmp_path: Path) -> None:
    """The same outcome as by a process of its own; the process itself, and the next copy, know nothing of the change."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "test")])
    done = subprocess.run(
        [sys.executable, "-P", "-c", WARM, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path, "UPL_CACHE_DIR": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    out = json.loads(done.stdout.splitlines()[-1])
    tests = [f"test/poly/test_ranking.py::{t}" for t in ("test_proved[segments]", "test_not_proved[round]")]
    assert out["fine"] == [True, True] and out["still"] == [False, False]
    assert any(caught for _, caught, _ in out["tried"])
    source = (ROOT / "upl_mlir" / "poly" / "ranking.py").read_text(encoding="utf-8")
    for line, caught, by in (out["tried"][0], out["tried"][-1]):
        place = next(p for p in places("poly/ranking.py", source) if (p.line, p.what) == (line, "returns None"))
        changed(tmp_path, place.file, changed_text(place, source))
        found = run_tests(tmp_path, tests, 300)
        assert (found.caught, found.by) == (caught, by if caught else "")


def test_every_survivor_has_its_place() -> None:
    """A change that nobody has noticed is looked at again when its line changes."""
    for survivor in SURVIVORS:
        source = (ROOT / "upl_mlir" / survivor.file).read_text(encoding="utf-8")
        if survivor.removed:
            assert survivor.text not in source, survivor
        else:
            survivor.place(source)
            assert bool(survivor.test) != bool(survivor.reason), survivor


@pytest.mark.parametrize("survivor", [s for s in SURVIVORS if s.test], ids=lambda s: f"{s.file} {s.what}")
def test_what_came_of_a_survivor(survivor: Survivor, tmp_path: Path) -> None:
    """The test that was written for it fails for it."""
    source = (ROOT / "upl_mlir" / survivor.file).read_text(encoding="utf-8")
    changed(tmp_path, survivor.file, changed_text(survivor.place(source), source))
    assert run_tests(tmp_path, [survivor.test], 300).caught
