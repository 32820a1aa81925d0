"""The sweep file: a program, a machine or a circuit, what is varied, and how points are chosen."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from upl_mlir.diagnostics import Span, UplError, decode, did_you_mean, error, read_bytes
from upl_mlir.explore.design import SECTION, Design, design_of
from upl_mlir.hw import machine as machines
from upl_mlir.hw.machine import Machine, machine_keys, machine_of, require_built
from upl_mlir.hw.toml_file import Places, check_keys, parse

WHAT = "sweep file"
Value = bool | int | float | str
Point = dict[str, Any]
"""One value for every key of `[sweep]`."""

OF_MACHINES = ("energy", "spills", "peak_waiting")
OF_CIRCUITS = ("interval",)
MINIMISED = ("cycles", "lut", "ff", "dsp", "block_ram", "time_us", "difference", *OF_MACHINES, *OF_CIRCUITS)
MAXIMISED = ("fmax_mhz",)
SYNTHESISED = ("lut", "ff", "dsp", "block_ram")
"""Of machines these are known by synthesis only; of circuits they are estimated without."""
CLOCKED = ("fmax_mhz", "time_us")
DEFINE = "define."
"""Begins the keys of `[sweep]` that vary the program and not the machine."""


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How points are chosen, and what is wanted of them."""

    sampler: Literal["grid", "optuna"] = "grid"
    trials: int = 100
    """Points that `optuna` tries."""
    seed: int = 0
    """Of the sampler, and of inputs that are "random"."""
    objectives: tuple[str, ...] = ("cycles",)
    synthesis: bool = False
    place_and_route: bool = False


_TABLES = ("define", "inputs", "sweep", "search", SECTION)
_KEYS = ("program", "machine", *_TABLES)


@dataclass(frozen=True)
class Sweep:
    """A sweep file that was read and checked."""

    file: Path
    program: Path
    base: Mapping[str, Any]
    """The machine description that points change, as its file has it."""
    define: Mapping[str, Any]
    inputs: Mapping[str, Any]
    axes: Mapping[str, tuple[Value, ...]]
    search: Search = field(default_factory=Search)
    places: Places = field(default_factory=lambda: Places("<sweep>"), repr=False)
    machine_places: Places = field(default_factory=lambda: Places("<machine>"), repr=False)
    circuit: Mapping[str, Any] | None = None
    """The design that points change; None if they are machines."""

    def grid(self) -> Iterator[Point]:
        """All points, the last axis fastest."""
        for values in itertools.product(*self.axes.values()):
            yield dict(zip(self.axes, values, strict=True))

    @property
    def size(self) -> int:
        """The number of points of the grid."""
        out = 1
        for values in self.axes.values():
            out *= len(values)
        return out

    def subject(self, point: Point) -> Machine | Design:
        """What a point runs on.  `UplError` as `machine` and `design` have it."""
        return self.machine(point) if self.circuit is None else self.design(point)

    def design(self, point: Point) -> Design:
        """The circuit of a point.  `UplError` UPL1741, UPL1742 at the line of the sweep file that is at fault."""
        varied = {k: v for k, v in point.items() if not k.startswith(DEFINE)}
        data = dict(self.circuit or {}) | {k.removeprefix(f"{SECTION}."): v for k, v in varied.items()}
        return design_of(data, _PointPlaces(self.places, self.places, set(varied)), WHAT)

    def machine(self, point: Point) -> Machine:
        """The machine of a point.  `UplError` UPL1721, UPL1722, UPL1723 at the line of the sweep file that is at fault."""
        data = deepcopy(dict(self.base))
        changed: set[str] = set()
        for key, value in point.items():
            if not key.startswith(DEFINE):
                section, _, name = key.rpartition(".")
                (data.setdefault(section, {}) if section else data)[name] = value
                changed.add(key)
        machine = machine_of(data, _PointPlaces(self.places, self.machine_places, changed))
        require_built(machine)
        return machine

    def definitions(self, point: Point) -> dict[str, Any]:
        """What parameters and constants of the program are at a point."""
        varied = {k.removeprefix(DEFINE): v for k, v in point.items() if k.startswith(DEFINE)}
        return {**self.define, **varied}


class _PointPlaces(Places):
    """Keys that a point changes stand in the sweep file, all others in the machine description."""

    def __init__(self, sweep: Places, machine: Places, changed: set[str]):
        super().__init__(machine.file)
        self.lines = machine.lines
        self.sweep, self.changed = sweep, changed

    def of(self, key: str) -> Span:
        """The line of a key."""
        if key in self.changed or (key not in self.lines and any(c.startswith(f"{key}.") for c in self.changed)):
            return self.sweep.of(f"sweep.{key}")
        # An error that concerns several keys is told of one of them: of one that varies, if there is one.
        section = key.partition(".")[0]
        near = sorted(c for c in self.changed if c.partition(".")[0] == section)
        return self.sweep.of(f"sweep.{near[0]}") if near and key not in self.lines else super().of(key)

    def line(self, key: str) -> Span | None:
        """The line of a key, if it is written."""
        return self.of(key) if key in self.changed else super().line(key)


def load_sweep(path: str | Path) -> Sweep:
    """Read a sweep file; names of files in it are relative to it.

    Raises `UplError`: UPL1740 it cannot be read or is not TOML, UPL1741 unknown key, UPL1742 a value of a wrong type, or
    one with which no point can be built; and those of the machine description.
    """
    path = Path(path)
    data, places = parse(decode(read_bytes(path, "UPL1740"), str(path), "UPL1740"), str(path), WHAT, "UPL1740")
    check_keys(data, "", _KEYS, places, WHAT, "UPL1741")
    for name in _TABLES:
        if not isinstance(data.get(name, {}), dict):
            raise _wrong(name, data[name], f"a table, [{name}]", places)
    circuit = _circuit(data, places)
    base, machine_places = _machine(path, data, places)
    sweep = Sweep(
        path, path.parent / _string(data, "program", places), base, data.get("define", {}), data.get("inputs", {}),
        _axes(data.get("sweep", {}), circuit is not None, places), _search(data.get("search", {}), places), places,
        machine_places, circuit,
    )  # fmt: skip
    if not sweep.program.exists():
        raise error("UPL1742", f"{WHAT}: program: there is no file {sweep.program}", places.of("program"))
    _check_objectives(sweep)
    _check_points(sweep)
    return sweep


def _string(data: Mapping[str, Any], key: str, places: Places) -> str:
    value = data.get(key)
    if value is None:
        raise error("UPL1742", f"{WHAT}: `{key}` is missing", Span(places.file, 1, 1), help=f'{key} = "FILE"')
    if not isinstance(value, str):
        raise _wrong(key, value, "the name of a file", places)
    return value


def _wrong(key: str, found: object, expected: str, places: Places) -> UplError:
    return error("UPL1742", f"{WHAT}: {key} is {found!r}; expected {expected}", places.of(key))


def _machine(path: Path, data: Mapping[str, Any], places: Places) -> tuple[dict[str, Any], Places]:
    """The contents of the machine description that points change; the default machine if none is named."""
    if "machine" not in data:
        return {}, Places("<default machine>")
    place = path.parent / _string(data, "machine", places)
    if not place.exists():
        raise error("UPL1742", f"{WHAT}: machine: there is no file {place}", places.of("machine"))
    base, machine_places = parse(machines.text_of(place), str(place), machines.WHAT, "UPL1720")
    machine_of(base, machine_places)
    return base, machine_places


def _circuit(data: Mapping[str, Any], places: Places) -> dict[str, Any] | None:
    """The contents of `[circuit]` if points are circuits: there is such a table, or a key of it varies."""
    if SECTION not in data and not any(key.startswith(f"{SECTION}.") for key, _ in _flat(data.get("sweep", {}))):
        return None
    if "machine" in data:
        message = f"{WHAT}: there are a machine and circuits; expected one or the other"
        raise error("UPL1742", message, places.of("machine"), help="leave out `machine`: a circuit has none")
    design_of(data.get(SECTION, {}), places, WHAT)
    return data.get(SECTION, {})


def _axes(found: Mapping[str, Any], circuits: bool, places: Places) -> dict[str, tuple[Value, ...]]:
    """The axes by key; `[sweep.matching]` with `ways` is the same as `"matching.ways"` in `[sweep]`."""
    what = "circuit" if circuits else "machine description"
    known = [f"{SECTION}.{name}" for name in Design.__struct_fields__] if circuits else machine_keys()
    out: dict[str, tuple[Value, ...]] = {}
    for key, values in _flat(found):
        if not key.startswith(DEFINE) and key not in known:
            raise error(
                "UPL1741", f"{WHAT}: [sweep] has `{key}`, which is no key of a {what}",
                places.of(f"sweep.{key}"), help=did_you_mean(key, known) or f'parameters of the program: "{DEFINE}NAME"',
            )  # fmt: skip
        if not isinstance(values, list) or not values:
            raise error(
                "UPL1742", f"{WHAT}: {key} is {values!r}; expected a list of values to try", places.of(f"sweep.{key}"),
                help=f'"{key}" = [{_toml_text(cast(Any, values))}]',
            )  # fmt: skip
        listed = cast("list[Value]", values)
        doubled = next((v for n, v in enumerate(listed) if v in listed[:n]), None)
        if doubled is not None:
            raise error("UPL1742", f"{WHAT}: {key} has {doubled!r} twice", places.of(f"sweep.{key}"))
        out[key] = tuple(listed)
    return out


def _toml_text(value: object) -> str:
    """A value as TOML writes it, for suggestions."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else "…" if isinstance(value, list) else str(value)


def _flat(found: Mapping[str, Any], section: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in found.items():
        if isinstance(value, dict):
            yield from _flat(cast("dict[str, Any]", value), f"{section}{key}.")
        else:
            yield f"{section}{key}", value


def _search(found: Mapping[str, Any], places: Places) -> Search:
    check_keys(found, "search", Search.__struct_fields__, places, WHAT, "UPL1741")
    for key, value in found.items():
        try:
            msgspec.convert({key: value}, Search)
        except msgspec.ValidationError as cause:
            message = str(cause).partition(" - at ")[0]
            place = places.of(f"search.{key}")
            helping = did_you_mean(str(value), ("grid", "optuna")) if key == "sampler" else None
            raise error("UPL1742", f"{WHAT}: {key}: {message}", place, help=helping) from None
    search = msgspec.convert(found, Search)
    if search.trials < 1:
        raise _wrong("search.trials", search.trials, "1 or more", places)
    return search


def _check_objectives(sweep: Sweep) -> None:
    """Objectives are known, and what they need is asked for."""
    known = (*MINIMISED, *MAXIMISED)
    place = sweep.places.of("search.objectives")
    if not sweep.search.objectives:
        raise error("UPL1742", f"{WHAT}: no objectives", place, help='objectives = ["cycles"]')
    for name in sweep.search.objectives:
        if name not in known:
            helping = did_you_mean(name, known) or "objectives: " + ", ".join(known)
            raise error("UPL1742", f"{WHAT}: there is no objective `{name}`", place, help=helping)
        circuits = sweep.circuit is not None
        if name in (OF_MACHINES if circuits else OF_CIRCUITS):
            kinds = ("machines", "circuits") if circuits else ("circuits", "machines")
            message = f"{WHAT}: the objective `{name}` is one of {kinds[0]}; the points are {kinds[1]}"
            helping = ", ".join(n for n in known if n not in (OF_MACHINES if circuits else OF_CIRCUITS))
            raise error("UPL1742", message, place, help=f"objectives: {helping}")
        if circuits:
            continue
        if name in SYNTHESISED and not sweep.search.synthesis:
            raise error("UPL1742", f"{WHAT}: the objective `{name}` comes of synthesis", place, help="synthesis = true")
        if name in CLOCKED and not sweep.search.place_and_route:
            message = f"{WHAT}: the objective `{name}` comes of place and route"
            raise error("UPL1742", message, place, help="place_and_route = true")


_LOOKED_AT = 5000
"""Points that are built as a trial, to find values that are of no use."""


def _check_points(sweep: Sweep) -> None:
    """Every value of every axis is in a point that can be built; else the error of one that has it."""
    bad: dict[tuple[str, Value], UplError] = {}
    good: set[tuple[str, Value]] = set()
    for point in itertools.islice(sweep.grid(), _LOOKED_AT):
        try:
            sweep.subject(point)
        except UplError as e:
            for pair in point.items():
                bad.setdefault(pair, e)
        else:
            good |= set(point.items())
    for pair, found in bad.items():
        if pair not in good:
            raise found
