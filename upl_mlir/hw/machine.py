"""The machine description: what hardware there is, read from a TOML file; every key has a default.

The description fixes the RTL; a program image (`image.py`) makes that RTL run one program.  Unknown keys are errors.
A description may name hardware that is not built yet: it loads, and only a simulation of it is refused.
"""

from __future__ import annotations

import re
import tomllib
from enum import Enum
from pathlib import Path
from typing import Any, cast

import msgspec

from upl_mlir.diagnostics import Span, UplError, did_you_mean, error


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

    organisation: Organisation = Organisation.CAM
    capacity: int = 0
    """Entries per core; 0 stands for the organisation's own: 256 for `cam`, 1024 for the others."""
    ways: int = 4
    wildcard_entries: int = 16
    stages: int = 4
    spill_capacity: int = 4096
    """Entries of backing memory per core."""
    backing_latency_cycles: int = 20
    parity: bool = False

    @property
    def entries(self) -> int:
        """The capacity in entries per core, with the default put in."""
        return self.capacity or (256 if self.organisation is Organisation.CAM else 1024)


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
    energy: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    """Weight per event; no event is weighted yet."""
    placement: dict[str, str] = msgspec.field(default_factory=lambda: {"policy": "hash"})
    """`policy`, or an expression per node."""


_SECTIONS: dict[str, type[_Section]] = {
    "token": Token,
    "matching": Matching,
    "execution": Execution,
    "network": Network,
    "host": Host,
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
    "matching.spill_capacity": (0, 1 << 24),
    "matching.backing_latency_cycles": (1, 100_000),
    "execution.units": (1, 64),
    "execution.add_cycles": (1, 1000),
    "execution.mul_cycles": (1, 1000),
    "execution.div_cycles": (1, 1000),
    "execution.sqrt_cycles": (1, 1000),
    "network.queue_depth": (1, 4096),
    "network.link_cycles": (1, 1000),
    "host.ports": (1, 64),
}


def load_machine(path: str | Path) -> Machine:
    """Read a machine description from a TOML file.

    Raises `UplError`: UPL1720 file cannot be read or is not TOML, UPL1721 unknown key, UPL1722 value of a wrong type
    or out of range.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise error("UPL1720", f"cannot read the machine description: {cause}", Span(str(path), 0, 0)) from None
    return parse_machine(text, str(path))


def parse_machine(text: str, file: str = "<machine>") -> Machine:
    """The machine that a TOML text describes; errors as for `load_machine`."""
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as cause:
        line = re.search(r"line (\d+)", str(cause))
        span = Span(file, int(line[1]) if line else max(1, len(text.splitlines())), 1)
        raise error("UPL1720", f"the machine description is not TOML: {cause}", span) from None
    places = _Places(file, text)
    _check_keys(data, places)
    try:
        machine = msgspec.convert(data, Machine, strict=True)
    except msgspec.ValidationError as cause:
        key = re.search(r"`\$\.?(.*?)`", str(cause))
        raise error("UPL1722", f"machine description: {cause}", places.of(key[1] if key else "")) from None
    _check_ranges(machine, places)
    return machine


_HEADER = re.compile(r"\s*\[\s*([\w.-]+)\s*\]")
_KEY = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([\w.-]+))\s*=""")


class _Places:
    """Where the keys of a TOML file are: the parser does not say."""

    def __init__(self, file: str, text: str):
        self.file = file
        self.lines: dict[str, int] = {}
        section = ""
        for number, line in enumerate(text.splitlines(), 1):
            if header := _HEADER.match(line):
                section = header[1]
                self.lines.setdefault(section, number)
            elif key := _KEY.match(line):
                name = key[1] or key[2] or key[3]
                self.lines.setdefault(f"{section}.{name}" if section else name, number)

    def of(self, key: str) -> Span:
        """The line of a key with its section (`matching.ways`), of its section if it is not written, else the file."""
        while key and key not in self.lines:
            key = key.rpartition(".")[0]
        return Span(self.file, self.lines.get(key, 0), 1)


def require_built(machine: Machine) -> None:
    """Refuse to simulate what has no RTL yet: `UplError` UPL1723 names the key and what to write instead."""

    def refuse(key: str, found: object, instead: object) -> UplError:
        return error("UPL1723", f"machine `{machine.name}`: {key} = {found} is not built yet", help=f"use {instead}")

    organisation = machine.matching.organisation
    if organisation is Organisation.DIRECT:
        raise refuse("matching.organisation", '"direct"', '"hashed" or "cam"')
    if machine.cores != 1:
        raise refuse("cores", machine.cores, 1)
    if machine.execution.units != 1:
        raise refuse("execution.units", machine.execution.units, 1)
    if machine.host.ports != 1:
        raise refuse("host.ports", machine.host.ports, 1)
    if machine.matching.parity:
        raise refuse("matching.parity", "true", "false")


def _check_keys(data: dict[str, Any], places: _Places) -> None:
    """Every key of the file is one of ours; else UPL1721 with the nearest one."""

    def check(found: dict[str, Any], section: str, known: tuple[str, ...]) -> None:
        for key in found:
            if key not in known:
                where, place = (f" in [{section}]", f"{section}.{key}") if section else ("", key)
                helping = did_you_mean(key, known) or "known keys: " + ", ".join(known)
                raise error("UPL1721", f"machine description: unknown key `{key}`{where}", places.of(place), help=helping)

    check(data, "", Machine.__struct_fields__)
    for name, section in _SECTIONS.items():
        if isinstance(data.get(name), dict):
            check(cast("dict[str, Any]", data[name]), name, section.__struct_fields__)


def _check_ranges(machine: Machine, places: _Places) -> None:
    """Numbers that no hardware can be built with are UPL1722."""

    def check(key: str, value: float, low: float, high: float) -> None:
        if not low <= value <= high:
            raise error("UPL1722", f"machine description: {key} = {value} is not in {low}..{high}", places.of(key))

    check("cores", machine.cores, 1, 4096)
    check("clock_mhz", machine.clock_mhz, 1e-6, 1e6)
    check("matching.capacity", machine.matching.entries, 1, 1 << 16)
    for key, (low, high) in _RANGES.items():
        section, _, name = key.partition(".")
        check(key, cast("int", getattr(getattr(machine, section), name)), low, high)
    matching = machine.matching
    if matching.organisation is not Organisation.CAM:
        sets, rest = divmod(matching.entries, matching.ways)
        if rest or sets & (sets - 1):
            message = f"matching.capacity = {matching.entries} is not a power of two of sets of {matching.ways} ways"
            near = matching.ways << max(0, sets.bit_length() - 1)
            raise error("UPL1722", f"machine description: {message}", places.of("matching.capacity"),
                        help=f"for instance {near}")  # fmt: skip
