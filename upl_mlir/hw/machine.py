"""The machine description: what hardware there is, read from a TOML file; every key has a default.

The description fixes the RTL; a program image (`image.py`) makes that RTL run one program.  Unknown keys are errors.
A description may name hardware that is not built yet: it loads, and only a simulation of it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, cast, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from upl_mlir.diagnostics import Span, UplError, decode, error, nearest_or_all, read_bytes
from upl_mlir.hw.toml_file import Places, check_keys, parse

WHAT = "machine description"


class Organisation(Enum):
    """How a matching unit finds the partners of a token."""

    CAM = "cam"
    HASHED = "hashed"
    DIRECT = "direct"


class Topology(Enum):
    """How the cores are connected."""

    CROSSBAR = "crossbar"
    RING = "ring"
    MESH = "mesh"


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table of the TOML file."""


class Token(_Section, frozen=True):
    """Widths of a token's parts, in bits unless said otherwise."""

    tag_bits: int = 40
    max_fields: int = 6
    """Index fields a node may have."""
    max_inputs: int = 4
    """Inputs a node may have."""
    node_bits: int = 6
    """Bits of a node's number: at most 2**node_bits nodes."""
    multiplicity_bits: int = 16
    """All ones stand for unbounded, so the largest multiplicity is 2**multiplicity_bits - 2."""


class Matching(_Section, frozen=True):
    """The matching unit of each core."""

    organisation: Organisation = Organisation.HASHED
    capacity: int | UnsetType = UNSET
    """Entries per core; if it is not said, the organisation's own: 256 for `cam`, 1024 for the others."""
    ways: int = 4
    wildcard_entries: int = 16
    stages: int = 4
    beside: int = 0
    """Records of a hashed store beside that of `direct`, per core, for nodes without places of their own; 0: none."""
    spill_capacity: int = 4096
    """Entries of backing memory per core."""
    queue_capacity: int = 4096
    """Tokens of backing memory behind the token queue, per core."""
    backing_latency_cycles: int = 20
    parity: bool = False
    open_gathers: bool | UnsetType = UNSET
    """Whether a gather may end when no summand can come any more; if it is not said, where the program has such gathers."""

    @property
    def entries(self) -> int:
        """The capacity in entries per core, with the default put in."""
        own = 256 if self.organisation is Organisation.CAM else 1024
        return own if self.capacity is UNSET else self.capacity

    @property
    def store_beside(self) -> tuple[int, int]:
        """Records of the store beside a direct one, and in how many ways: 0 and 1 if there is none."""
        there = self.organisation is Organisation.DIRECT and self.beside > 0
        return (self.beside, min(self.ways, self.beside)) if there else (0, 1)


class Execution(_Section, frozen=True):
    """The execution units of each core; latencies in cycles."""

    units: int = 1
    add_cycles: int = 4
    mul_cycles: int = 4
    div_cycles: int = 16
    sqrt_cycles: int = 16


class Network(_Section, frozen=True):
    """What carries tokens between cores."""

    topology: Topology = Topology.RING
    queue_depth: int = 4
    link_cycles: int = 1


class Host(_Section, frozen=True):
    """Where tokens come in."""

    ports: int = 1
    window: int = 0
    """Values of the field along which the program streams that the host sends before the oldest one is over; 0: all."""
    along: str = ""
    """The field; if it is not said, the one along which the host's tokens are spread best."""
    fit: bool = False
    """The window is the greatest for which all records are proved to find room (`hw/records.py`), and the next one begins
    when nothing is under way."""


class Energy(_Section, frozen=True):
    """Weights of the energy proxy, in picojoules an event; where they come from: docs/explore.md."""

    ram_bit: float = 0.16
    """A bit of on-chip RAM, read or written."""
    cam_bit: float = 0.003
    """A stored bit compared in a search of a CAM."""
    add_f32: float = 0.9
    """A binary32 addition, subtraction, comparison or conversion."""
    mul_f32: float = 3.7
    div_f32: float = 26.3
    """A division or square root."""
    add_i32: float = 0.1
    """An integer operation other than those below, a move, a logical operation."""
    mul_i32: float = 3.1
    div_i32: float = 22.0
    hop_bit: float = 0.1
    """A bit of a token over one link of the network."""
    backing_bit: float = 20.0
    """A bit of backing memory, read or written."""
    leakage: float = 0.003
    """A LUT site for a cycle."""


class Machine(_Section, frozen=True):
    """A whole machine description; `Machine()` is the default one."""

    name: str = "default"
    cores: int = 1
    clock_mhz: float = 50.0
    """For estimates of time only."""
    token: Token = Token()
    matching: Matching = Matching()
    execution: Execution = Execution()
    network: Network = Network()
    host: Host = Host()
    energy: Energy = Energy()
    placement: dict[str, str] = msgspec.field(default_factory=lambda: {"policy": "hash"})
    """`policy`, or an expression per node."""

    def place(self, key: str) -> Span | None:
        """The line of a key (`matching.ways`) of the description; None if it is not written there."""
        return self.name.places.line(key) if isinstance(self.name, Name) else None

    @property
    def stages(self) -> int:
        """Stages that the throttle of the host tells apart, a power of two; 0 if it is not asked for."""
        return 1 << self.matching.stages.bit_length() - 1 if self.host.window or self.host.fit else 0


MAX_CORES = 16
"""Cores, and ports of the host, that can be simulated."""

_SECTIONS: dict[str, type[_Section]] = {
    "token": Token,
    "matching": Matching,
    "execution": Execution,
    "network": Network,
    "host": Host,
    "energy": Energy,
}

_RANGES: dict[str, tuple[int, int]] = {
    # key: least and greatest value the RTL can be built with
    "token.tag_bits": (1, 256),
    "token.max_fields": (1, 32),
    "token.max_inputs": (1, 8),
    "token.node_bits": (1, 12),
    "token.multiplicity_bits": (2, 31),
    "matching.ways": (1, 64),
    "matching.wildcard_entries": (0, 4096),
    "matching.stages": (1, 64),
    "matching.beside": (0, 1 << 16),
    "matching.spill_capacity": (0, 1 << 24),
    "matching.queue_capacity": (1, 1 << 24),
    "matching.backing_latency_cycles": (1, 100_000),
    "execution.units": (1, 64),
    "execution.add_cycles": (1, 1000),
    "execution.mul_cycles": (1, 1000),
    "execution.div_cycles": (1, 1000),
    "execution.sqrt_cycles": (1, 1000),
    "network.queue_depth": (1, 4096),
    "network.link_cycles": (1, 1000),
    "host.ports": (1, 64),
    "host.window": (0, 64),
}


def load_machine(path: str | Path) -> Machine:
    """Read a machine description from a TOML file.

    Raises `UplError`: UPL1720 file cannot be read or is not TOML, UPL1721 unknown key, UPL1722 value of a wrong type
    or out of range.
    """
    return parse_machine(text_of(path), str(path))


def text_of(path: str | Path) -> str:
    """The text of a machine description.  Raises UplError (UPL1720) if it cannot be read."""
    return decode(read_bytes(path, "UPL1720"), str(path), "UPL1720")


def parse_machine(text: str, file: str = "<machine>") -> Machine:
    """The machine that a TOML text describes; errors as for `load_machine`."""
    return machine_of(*parse(text, file, WHAT, "UPL1720"))


def machine_of(data: Mapping[str, Any], places: Places) -> Machine:
    """The machine that the contents of a description mean; `places` says where its keys are written."""
    _check_keys(data, places)
    try:
        machine = msgspec.convert(data, Machine, strict=True)
    except msgspec.ValidationError as cause:
        key = re.search(r"`\$\.?(.*?)`", str(cause))
        help_ = _choices(data, key[1]) if key else None
        raise error("UPL1722", f"{WHAT}: {cause}", places.of(key[1] if key else ""), help=help_) from None
    _check_ranges(machine, places)
    return msgspec.structs.replace(machine, name=Name(machine.name, places))


class Name(str):
    """The name of a machine, which knows the lines of its description, for what is found out about it later."""

    __slots__ = ("places",)
    places: Places

    def __new__(cls, text: str, places: Places) -> Name:
        out = super().__new__(cls, text)
        out.places = places
        return out

    def __getnewargs__(self) -> tuple[str, Places]:  # type: ignore[override]
        """For copies in other processes."""
        return str(self), self.places


def machine_keys() -> tuple[str, ...]:
    """All keys that hold one value, with their sections: `cores`, `matching.ways`, …"""
    top = [name for name in Machine.__struct_fields__ if name not in (*_SECTIONS, "energy", "placement")]
    return (*top, *(f"{name}.{key}" for name, section in _SECTIONS.items() for key in section.__struct_fields__),
            "placement.policy")  # fmt: skip


def require_built(machine: Machine) -> None:
    """Refuse to simulate what has no RTL yet: `UplError` UPL1723 names the key and what to write instead."""

    def refuse(key: str, found: object, instead: object) -> UplError:
        message = f"machine `{machine.name}`: {key} = {found} is not built yet"
        return error("UPL1723", message, machine.place(key), help=f"use {instead}")

    organisation = machine.matching.organisation
    if organisation is Organisation.DIRECT and machine.cores & (machine.cores - 1):
        raise refuse("cores", f'{machine.cores} of organisation "direct"', 'a power of two, or organisation "hashed"')
    if machine.cores > MAX_CORES:
        raise refuse("cores", machine.cores, f"at most {MAX_CORES}")
    most = 64 - (machine.token.max_fields if organisation is Organisation.CAM else 0)  # a bit for each field, if it is `*`
    if machine.token.tag_bits > most:
        raise refuse("token.tag_bits", machine.token.tag_bits, f"at most {most}")
    if machine.execution.units != 1:
        raise refuse("execution.units", machine.execution.units, 1)
    if machine.host.ports > MAX_CORES:
        raise refuse("host.ports", machine.host.ports, f"at most {MAX_CORES}")
    if machine.host.window and organisation is Organisation.DIRECT:
        raise refuse("host.window", machine.host.window, "0: the places of this organisation have windows of their own")
    if machine.host.fit and organisation is not Organisation.HASHED:
        raise refuse("host.fit", "true", 'false, or [matching] organisation = "hashed"')
    if machine.matching.parity and organisation is Organisation.CAM:
        raise refuse("matching.parity", "true", 'false, or another [matching] organisation')


def _choices(data: Mapping[str, Any], key: str) -> str | None:
    """What may be written for a key that is one of several words."""
    section, _, name = key.rpartition(".")
    kind = get_type_hints(_SECTIONS.get(section, Machine)).get(name)
    if not (isinstance(kind, type) and issubclass(kind, Enum)):
        return None
    words = [str(one.value) for one in kind]
    found = data[section][name] if section else data[name]
    return nearest_or_all(str(found), words)


def _check_keys(data: Mapping[str, Any], places: Places) -> None:
    """Every key of the file is one of ours; else UPL1721 with the nearest one."""
    check_keys(data, "", Machine.__struct_fields__, places, WHAT, "UPL1721")
    for name, section in _SECTIONS.items():
        if isinstance(data.get(name), dict):
            check_keys(cast("dict[str, Any]", data[name]), name, section.__struct_fields__, places, WHAT, "UPL1721")


def _check_ranges(machine: Machine, places: Places) -> None:
    """Numbers that no hardware can be built with are UPL1722."""

    def check(key: str, value: float, low: float, high: float) -> None:
        if not low <= value <= high:
            raise error("UPL1722", f"machine description: {key} = {value} is not in {low}..{high}", places.of(key))

    check("cores", machine.cores, 1, 4096)
    check("clock_mhz", machine.clock_mhz, 1e-6, 1e6)
    check("matching.capacity", machine.matching.entries, 1, 1 << 16)
    for name in Energy.__struct_fields__:
        check(f"energy.{name}", cast("float", getattr(machine.energy, name)), 0, 1e9)
    for key, (low, high) in _RANGES.items():
        section, _, name = key.partition(".")
        check(key, cast("int", getattr(getattr(machine, section), name)), low, high)
    if machine.cores > 1 and machine.network.topology is Topology.RING and machine.network.queue_depth < 2:
        message = "network.queue_depth = 1: a ring needs 2, or it could block itself"
        raise error("UPL1722", f"{WHAT}: {message}", places.of("network.queue_depth"))
    if machine.host.window and machine.host.fit:
        message = f"host.window = {machine.host.window}, but host.fit chooses the window"
        raise error("UPL1722", f"{WHAT}: {message}", places.of("host.window"), help="leave one of the two out")
    if machine.host.window > (machine.stages or machine.host.window):
        message = f"host.window = {machine.host.window}, but only {machine.stages} stages are told apart"
        help_ = "set matching.stages higher, to a power of two"
        raise error("UPL1722", f"{WHAT}: {message}", places.of("host.window"), help=help_)
    if machine.placement.get("policy", "hash") != "hash":
        message = f'placement.policy = "{machine.placement["policy"]}" is unknown'
        raise error("UPL1722", f"{WHAT}: {message}", places.of("placement.policy"), help='use "hash"')
    matching = machine.matching
    if matching.organisation is Organisation.HASHED:
        _check_sets("capacity", matching.entries, matching.ways, places)
    records, ways = matching.store_beside
    if records:
        _check_sets("beside", records, ways, places)


def _check_sets(key: str, records: int, ways: int, places: Places) -> None:
    """The sets of a hashed store are a power of two, or UPL1722."""
    sets, rest = divmod(records, ways)
    if rest or sets & (sets - 1):
        message = f"matching.{key} = {records} is not a power of two of sets of {ways} ways"
        near = ways << max(0, sets.bit_length() - 1)
        raise error("UPL1722", f"{WHAT}: {message}", places.of(f"matching.{key}"), help=f"for instance {near}")
