"""The seeded bugs can be seeded, and are caught: some here, all by `make mutants`, whose result is recorded."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import CodeType

import pytest

from mutation import covered, score
from mutation.bugs import BUGS, Bug
from mutation.covered import Recorded
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


def test_a_change_is_shown_to_the_tests_that_execute_it() -> None:
    """The quickest first, up to a time; without code on the line, those of its function, and then of its file."""
    known = Recorded({"slow": 9.0, "quick": 1.0, "none": 0.1}, {"f.py": {4: {"slow", "quick"}, 7: {"slow"}}})

    def shown(line: int, file: str = "f.py") -> list[str]:
        return score.tests_of(Place(file, 0, line, ""), SOURCE, known)

    assert shown(4) == ["quick", "slow"]
    assert shown(7) == ["slow"]
    assert shown(6) == ["quick", "slow"], "nobody executes the line, so: its function"
    assert shown(1) == ["quick", "slow"], "executed while the file is loaded"
    assert shown(1, "g.py") == []
    place = Place("f.py", 0, 4, "")
    assert score.tests_of(place, SOURCE, known, 0.0, 5.0) == ["quick"], "in the first round"
    assert score.tests_of(place, SOURCE, known, 5.0, 40.0) == ["slow"], "those that are left in the second"
    assert score.tests_of(replace(place, line=7), SOURCE, known, 0.0, 10.0) == ["slow"], "one in any case"
    assert score.tests_of(replace(place, line=7), SOURCE, known, 10.0, 40.0) == []


def test_what_a_test_executes_is_recorded(tmp_path: Path) -> None:
    """The rules of derivatives are looked at by the tests of rules; lines that run while a file is loaded are nobody's."""
    assert covered.record(ROOT / "test" / "poly" / "test_expr.py", tmp_path)
    known = covered.load(tmp_path)
    assert all(t.startswith("test/poly/test_expr.py::") for t in known.seconds) and len(known.seconds) > 50
    source = (ROOT / "upl_mlir" / "poly" / "expr.py").read_text(encoding="utf-8").splitlines()
    by_line = known.lines["poly/expr.py"]
    first = next(n for n, line in enumerate(source, 1) if line.startswith("class "))
    assert not by_line.get(first)
    executed = [n for n, tests in by_line.items() if tests]
    assert len(executed) > 100 and all(source[n - 1].strip() for n in executed)
    assert any(len(by_line[n]) < 10 for n in executed), "not every test executes every line"


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
