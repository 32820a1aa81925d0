"""Machine descriptions: defaults, what is refused and how."""

from __future__ import annotations

from pathlib import Path

import pytest

from upl_mlir.diagnostics import UplError
from upl_mlir.hw.machine import Machine, Organisation, Topology, load_machine, parse_machine, require_built

WHOLE = """
name = "small"
cores = 4
clock_mhz = 50.0
[token]
tag_bits = 40
max_fields = 6
max_inputs = 4
node_bits = 6
multiplicity_bits = 16
[matching]
organisation = "hashed"
capacity = 1024
ways = 4
wildcard_entries = 16
stages = 4
spill_capacity = 4096
backing_latency_cycles = 20
parity = false
[execution]
units = 1
add_cycles = 4
[network]
topology = "mesh"
queue_depth = 4
link_cycles = 1
[host]
ports = 1
[energy]
ram_bit = 1.5
[placement]
policy = "hash"
Link = "d mod 4"
"""


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


def test_every_key_of_the_format(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text(WHOLE)
    machine = load_machine(path)
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
        ('[matching]\norganisation = "tree"', "error[UPL1722]"),
        ("matching = 3", "error[UPL1722]"),
        ("cores =", "error[UPL1720]: the machine description is not TOML"),
        ("cores = 1\nname =", "m.toml:2:1: error[UPL1720]"),
        ("cores = 1\n\n[token]\ntag_bits = 0", "m.toml:4:1: error[UPL1722]"),
        ('name = "x"\ncores = "two"', "m.toml:2:1: error[UPL1722]"),
        ("matching.ways = 0", "m.toml:1:1: error[UPL1722]"),
        ('[matching]\norganisation = "hashed"\ncapacity = 96', "m.toml:3:1: error[UPL1722]: machine description: matching"),
        ('[matching]\norganisation = "hashed"\ncapacity = 96', "help: for instance 64"),
    ],
)
def test_mistakes(text: str, expected: str) -> None:
    assert expected in message(text)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UplError, match="UPL1720"):
        load_machine(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('cores = 3\n[matching]\norganisation = "direct"', 'cores = 3 of organisation "direct"'),
        ("cores = 4096", "cores = 4096"),
        ("[execution]\nunits = 2", "execution.units = 2"),
        ('[matching]\nparity = true\norganisation = "cam"', "matching.parity = true"),
    ],
)
def test_what_is_not_built_loads_and_is_refused_later(text: str, key: str) -> None:
    machine = parse_machine(text)
    with pytest.raises(UplError) as caught:
        require_built(machine)
    assert f"error[UPL1723]: machine `default`: {key} is not built yet" in str(caught.value)
