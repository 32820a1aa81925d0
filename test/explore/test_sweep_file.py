"""Sweep files: what they mean, and that what is wrong with one is said with line, expectation and suggestion."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from upl_mlir.diagnostics import UplError
from upl_mlir.explore.job import Job, Outcome, Task
from upl_mlir.explore.records import Records
from upl_mlir.explore.sweep import Sweep, load_sweep
from upl_mlir.hw.machine import Organisation

HEAD = """program = "p.upl"
machine = "m.toml"
"""


def sweep(tmp_path: Path, text: str, machine: str = "") -> Sweep:
    (tmp_path / "p.upl").write_text("program p\n", encoding="utf-8")
    (tmp_path / "m.toml").write_text(machine, encoding="utf-8")
    (tmp_path / "s.toml").write_text(text, encoding="utf-8")
    return load_sweep(tmp_path / "s.toml")


def test_a_grid(tmp_path: Path) -> None:
    found = sweep(
        tmp_path,
        HEAD + '[define]\nN = 3\n[sweep]\n"matching.organisation" = ["cam", "hashed"]\ncores = [1, 2]\n'
        '"define.D" = [1, 8]\n',
        "[matching]\nstages = 2\n",
    )
    points = list(found.grid())
    assert len(points) == found.size == 8
    assert points[1] == {"matching.organisation": "cam", "cores": 1, "define.D": 8}
    machine = found.machine(points[-1])
    assert (machine.matching.organisation, machine.cores, machine.matching.stages) == (Organisation.HASHED, 2, 2)
    assert found.definitions(points[-1]) == {"N": 3, "D": 8}


def test_a_machine_goes_to_other_processes_and_is_written_down(tmp_path: Path) -> None:
    """Texts of a description know where they stand, which is of no concern there."""
    text = HEAD + '[sweep]\n"host.window" = [1]\n'
    found = sweep(tmp_path, text, '[host]\nalong = "d"\n[placement]\nN = "d mod 2"\n')
    machine = found.machine(next(found.grid()))
    assert pickle.loads(pickle.dumps(machine)) == machine  # noqa: S301 -- made here
    task, job = Task({}, machine), Job("p", "program p\n", {})
    records = Records(tmp_path / "runs")
    records.save(records.key(job, task), {}, task, Outcome(stats={"cycles": 1}))
    (written,) = (tmp_path / "runs").rglob("config.json")
    described = json.loads(written.read_text(encoding="utf-8"))["machine"]
    assert described["host"] == {"ports": 1, "window": 1, "along": "d", "fit": False}
    assert described["placement"] == {"N": "d mod 2"}


def test_tables_and_dotted_keys_are_the_same(tmp_path: Path) -> None:
    a = sweep(tmp_path, HEAD + '[sweep]\n"matching.ways" = [1, 2]\n')
    b = sweep(tmp_path, HEAD + "[sweep.matching]\nways = [1, 2]\n")
    c = sweep(tmp_path, HEAD + "[sweep]\nmatching.ways = [1, 2]\n")
    assert list(a.grid()) == list(b.grid()) == list(c.grid())


def test_the_default_machine(tmp_path: Path) -> None:
    found = sweep(tmp_path, 'program = "p.upl"\n[sweep]\ncores = [2]\n')
    assert found.machine({"cores": 2}).token.tag_bits == 40


@pytest.mark.parametrize(
    ("text", "code", "line", "parts"),
    [
        ("program = \n", "UPL1740", 1, ["not TOML"]),
        (HEAD + "[sweeps]\n", "UPL1741", 3, ["unknown key `sweeps`", "did you mean `sweep`?"]),
        ("machine = 'm.toml'\n", "UPL1742", 1, ["`program` is missing"]),
        ("program = 'q.upl'\n", "UPL1742", 1, ["there is no file", "q.upl"]),
        ("program = 'p.upl'\nmachine = 'n.toml'\n", "UPL1742", 2, ["there is no file", "n.toml"]),
        ("program = 3\n", "UPL1742", 1, ["program is 3", "the name of a file"]),
        (HEAD + "sweep = 3\n", "UPL1742", 3, ["sweep is 3", "a table"]),
        (HEAD + '[sweep]\n"matching.way" = [1]\n', "UPL1741", 4, ["matching.way", "did you mean `matching.ways`?"]),
        (HEAD + "[sweep]\nD = [1, 8]\n", "UPL1741", 4, ['"define.NAME"']),
        (HEAD + "[sweep]\ncores = 4\n", "UPL1742", 4, ["expected a list", '"cores" = [4]']),
        (HEAD + "[sweep]\ncores = []\n", "UPL1742", 4, ["expected a list"]),
        (HEAD + "[sweep]\ncores = [1, 2, 1]\n", "UPL1742", 4, ["has 1 twice"]),
        (HEAD + "[sweep]\ncores = [1, 64]\n", "UPL1723", 4, ["cores = 64 is not built yet", "use at most 16"]),
        (HEAD + '[sweep]\n"matching.ways" = [1, "two"]\n', "UPL1722", 4, ["Expected `int`, got `str`"]),
        (HEAD + '[sweep]\n"matching.organisation" = ["cam", "hash"]\n', "UPL1722", 4, ["Invalid enum value 'hash'"]),
        (HEAD + '[sweep]\n"execution.add_cycles" = [4, 0]\n', "UPL1722", 4, ["execution.add_cycles = 0", "1..1000"]),
        (HEAD + "[search]\nsampler = 'optna'\n", "UPL1742", 4, ["sampler", "did you mean `optuna`?"]),
        (HEAD + "[search]\ntrial = 5\n", "UPL1741", 4, ["unknown key `trial`", "did you mean `trials`?"]),
        (HEAD + "[search]\ntrials = 0\n", "UPL1742", 4, ["search.trials is 0", "1 or more"]),
        (HEAD + "[search]\ntrials = 'many'\n", "UPL1742", 4, ["Expected `int`, got `str`"]),
        (HEAD + "[search]\nobjectives = ['cycle']\n", "UPL1742", 4, ["`cycle`", "did you mean `cycles`?"]),
        (HEAD + "[search]\nobjectives = []\n", "UPL1742", 4, ["no objectives"]),
        (HEAD + "[search]\nobjectives = ['cycles', 'lut']\n", "UPL1742", 4, ["comes of synthesis", "synthesis = true"]),
        (HEAD + "[search]\nobjectives = ['fmax_mhz']\n", "UPL1742", 4, ["place and route", "place_and_route = true"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(tmp_path: Path, text: str, code: str, line: int, parts: list[str]) -> None:
    with pytest.raises(UplError) as found:
        sweep(tmp_path, text)
    (diagnostic,) = found.value.diagnostics
    assert diagnostic.code == code
    assert diagnostic.span is not None
    assert (Path(diagnostic.span.file).name, diagnostic.span.line) == ("s.toml", line)
    for part in parts:
        assert part in str(found.value)


def test_a_fault_of_the_machine_description_is_told_there(tmp_path: Path) -> None:
    with pytest.raises(UplError) as found:
        sweep(tmp_path, HEAD + "[sweep]\ncores = [1]\n", "\n[matching]\nway = 3\n")
    assert "m.toml:3:1: error[UPL1721]" in str(found.value)


def test_values_may_fit_in_some_points_only(tmp_path: Path) -> None:
    """6 entries are no power of two of sets of 4 ways, but they are one of 3."""
    machine = '[matching]\norganisation = "hashed"\n'
    text = HEAD + '[sweep]\n"matching.ways" = [3, 4]\n"matching.capacity" = [6, 8]\n'
    found = sweep(tmp_path, text, machine)
    assert found.machine({"matching.ways": 3, "matching.capacity": 6}).matching.entries == 6
    with pytest.raises(UplError) as fault:
        found.machine({"matching.ways": 4, "matching.capacity": 6})
    assert "s.toml:5:1: error[UPL1722]" in str(fault.value)
    with pytest.raises(UplError, match=r"s.toml:5:1: error\[UPL1722\]: .*matching.capacity = 7"):
        sweep(tmp_path, text.replace("[6, 8]", "[6, 7, 8]"), machine)
