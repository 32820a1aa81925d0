"""The list of slow tests: what a measurement changes in it, and that it names tests of files that exist."""

from __future__ import annotations

from pathlib import Path

import slow

ROOT = Path(__file__).resolve().parent.parent


def test_a_measurement_renews_the_list() -> None:
    known = {"a::slow": 3.0, "a::faster_now": 2.0, "a::not_run": slow.MOST}
    measured = {"a::slow": 4.0, "a::faster_now": 0.1, "a::new": slow.MOST + 1, "a::quick": 0.0}
    measured[f"{slow.NEVER[0]}test_imports"] = slow.MOST + 1
    assert slow.renewed(known, measured) == {"a::new": slow.MOST + 1, "a::not_run": slow.MOST, "a::slow": 4.0}


def test_a_name_may_have_blanks(tmp_path: Path) -> None:
    path = tmp_path / "seconds.txt"
    path.write_text("1.50 test/a.py::test_b[two words]\n2.00 test/a.py::test_b[two words]\n", encoding="utf-8")
    assert slow.read(path) == {"test/a.py::test_b[two words]": 2.0}


def test_the_list_names_files_that_exist() -> None:
    names = slow.read(slow.LIST)
    assert names
    assert not [name for name in names if name.startswith(slow.NEVER)]
    assert not {f for f in (name.partition("::")[0] for name in names) if not (ROOT / f).is_file()}
