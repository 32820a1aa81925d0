"""Machine descriptions: defaults, what is refused and how."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.hw.machine import Machine, Organisation, Token, Topology, load_machine, parse_machine, require_built

INPUTS = Path(__file__).resolve().parents[1] / "Inputs"


def message(text: str) -> str:
    with pytest.raises(UplError) as caught:
        parse_machine(text, "m.toml")
    return str(caught.value)


def test_defaults() -> None:
    machine = parse_machine("")
    assert machine == Machine()
    assert machine.matching.organisation is Organisation.HASHED
    assert machine.matching.entries == 1024
    assert parse_machine('[matching]\norganisation = "cam"').matching.entries == 256
    require_built(machine)


def test_every_key_of_the_format() -> None:
    machine = load_machine(INPUTS / "machine.toml")
    assert (machine.name, machine.cores, machine.matching.capacity) == ("small", 4, 1024)
    assert machine.network.topology is Topology.MESH
    assert machine.energy.ram_bit == 1.5
    assert machine.placement["Link"] == "d mod 4"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[matching]\ncapacty = 3", "m.toml:2:1: error[UPL1721]: machine description: unknown key `capacty` in [matching]"),
        ("[matching]\ncapacty = 3", "did you mean `capacity`?"),
        ("core = 3", "did you mean `cores`?"),
        ("[nett]", "error[UPL1721]: machine description: unknown key `nett`"),
        ("cores = true", "error[UPL1722]"),
        ("cores = 0", "error[UPL1722]: machine description: cores = 0 is not in 1..4096"),
        ("[token]\ntag_bits = 0", "token.tag_bits = 0 is not in 1..256"),
        ("[matching]\ncapacity = -1", "matching.capacity = -1 is not in"),
        ("[matching]\ncapacity = 0", "m.toml:2:1: error[UPL1722]: machine description: matching.capacity = 0 is not in"),
        ('[matching]\ncapacity = "1"', "Expected `int`, got `str`"),
        ('[matching]\norganisation = "tree"', "error[UPL1722]"),
        ("matching = 3", "error[UPL1722]"),
        ("cores =", "error[UPL1720]: the machine description is not TOML"),
        ("cores = 1\nname =", "m.toml:2:1: error[UPL1720]"),
        ("cores = 1\n\n[token]\ntag_bits = 0", "m.toml:4:1: error[UPL1722]"),
        ('name = "x"\ncores = "two"', "m.toml:2:1: error[UPL1722]"),
        ("matching.ways = 0", "m.toml:1:1: error[UPL1722]"),
        ('[matching]\norganisation = "hashed"\ncapacity = 96', "m.toml:3:1: error[UPL1722]: machine description: matching"),
        ('[matching]\norganisation = "hashed"\ncapacity = 96', "help: for instance 64"),
        ("[matching\n", "m.toml:1:10: error[UPL1720]"),
        ('[matching]\norganisation = "hash"', "help: did you mean `hashed`?"),
        ('[network]\ntopology = "torus"', "help: one of `crossbar`, `ring`, `mesh`"),
    ],
)
def test_mistakes(text: str, expected: str) -> None:
    assert expected in message(text)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UplError, match="UPL1720"):
        load_machine(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ('cores = 3\n[matching]\norganisation = "direct"', 1, 'cores = 3 of organisation "direct"'),
        ("cores = 4096", 1, "cores = 4096"),
        ("[execution]\nunits = 2", 2, "execution.units = 2"),
        ('[matching]\nparity = true\norganisation = "cam"', 2, "matching.parity = true"),
    ],
)
def test_what_is_not_built_loads_and_is_refused_later(text: str, line: int, key: str) -> None:
    machine = deepcopy(parse_machine(text, "m.toml"))  # as another process gets it
    with pytest.raises(UplError) as caught:
        require_built(machine)
    assert f"m.toml:{line}:1: error[UPL1723]: machine `default`: {key} is not built yet" in str(caught.value)


PAIRS = """program pairs
const n = 3
input A<i> in 0<=i<n { -> B.a<i,0> }
output R<i>
node B<i,j> in 0<=i<n, j==0 { in a; 2.0*a -> R<i> }
"""


@pytest.mark.parametrize(
    ("text", "first", "then"),
    [
        ("cores = 1\n[token]\nmax_fields = 1", "m.toml:3:1: error[UPL1710]", "<string>:5:1: note: it is here"),
        ("[token]\ntag_bits = 1", "m.toml:2:1: error[UPL1710]", "help: set token.tag_bits = 2 or more"),
        ("[token]\nnode_bits = 1\nmax_fields = 1", "m.toml:3:1: error[UPL1710]", "needs 2 index fields, the machine has 1"),
        (None, "<string>:5:1: error[UPL1710]", "needs 2 index fields, the machine has 1"),
    ],
)
def test_what_does_not_fit_is_told_where_it_is_written(text: str | None, first: str, then: str) -> None:
    """In the description, and what needs more in the program; there alone, if no description was read."""
    machine = parse_machine(text, "m.toml") if text else Machine(token=Token(max_fields=1))
    with pytest.raises(UplError) as caught:
        upl.compile(upl.load(PAIRS), "rtl", machine=machine)(A=np.ones(3))
    assert str(caught.value).startswith(first)
    assert then in str(caught.value)
