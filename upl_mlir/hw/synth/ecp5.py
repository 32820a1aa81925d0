"""Synthesis for Lattice ECP5 by yosys, place and route by nextpnr: what a piece of hardware costs, and its clock.

Results are kept in the user's cache by content: the netlist that went in, the tools' versions and their options.
"""

from __future__ import annotations

import enum
import gzip
import json
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from upl_mlir.diagnostics import error
from upl_mlir.host.cache import digest, open_cache
from upl_mlir.hw.matching_unit.cam import cam_verilog
from upl_mlir.hw.synth.floorplan import VERSION, LaneOf, floorplan
from upl_mlir.hw.synth.tools import NEXTPNR, YOSYS, Say

DEVICE = "LFE5U-85F"
PLAIN = "read_rtlil in.il; synth_ecp5 -top {top} -json net.json"
"""A script of yosys."""
BEST_OF_THREE = "read_rtlil in.il; scratchpad -copy abc9.script.flow3 abc9.script; synth_ecp5 -top {top} -json net.json"
"""ABC9 maps to LUTs three times, each time after another restructuring, and keeps the best; it takes twice as long."""
RESTRUCTURED = "read_rtlil in.il; scratchpad -copy abc9.script.flow abc9.script; synth_ecp5 -top {top} -json net.json"
"""ABC9 maps to LUTs once, after another restructuring."""
NO_RESETS = (
    "read_rtlil in.il; setattr -set keep 1 a:keep=1 %ci t:$dff %i; synth_ecp5 -top {top} -run begin:map_ffs; "
    "dffunmap -srst-only t:$_SDFFCE_*; opt_clean; synth_ecp5 -top {top} -run map_ffs: -json net.json"
)
"""For what has an enable that goes far.  yosys makes a reset of a constant that a register selects.  In an ECP5 a reset goes
before the enable, so both come by a LUT to the reset's pin, far from the LUTs of the data.  Here the constant is selected
with the data: 5 % more LUT sites, and a shorter longest path (a circuit with 32 units went from 94 to 123 MHz).

Registers whose wires have the attribute `keep` stay what they are: without it on the cell too, yosys merges equal ones."""
_INSTANCES = "read_verilog in.v; "
_NEXTPNR = ("--85k", "--package", "CABGA756", "--speed", "6", "--out-of-context", "--timing-allow-fail")
"""Out of context: a core has more ports than the package has pins, and in a machine none of them leaves the chip."""

_PASS = re.compile(r"^\d+(?:\.\d+){0,2}\. Executing (.*?)\.?$")
_INFO = re.compile(r"^Info: +((?:Packing|Placed|Running|Routing|Routed|Creating|at iteration|Promoting|Annotating).*)$")
_CLOCK = re.compile(r"^\w+: Max frequency for clock +'(.*)': +([0-9.]+) MHz")


class Area(msgspec.Struct, frozen=True, kw_only=True):
    """What a netlist needs: LUT4 cells; carry cells (CCU2C, two LUT sites each); RAM in LUTs (DPR16X4, six sites each);
    flip-flops; block RAMs of 18 kbit (DP16KD); multipliers (MULT18X18D). `units` has flip-flops, block RAMs and
    multipliers by unit; LUTs cannot be told apart, as synthesis works across units."""

    lut4: int
    carry: int
    lut_ram: int
    ff: int
    block_ram: int
    dsp: int
    units: dict[str, dict[str, int]]

    @property
    def luts(self) -> int:
        """LUT sites that are taken in all."""
        return self.lut4 + 2 * self.carry + 6 * self.lut_ram


class Clock(enum.Enum):
    """How far a design is taken to know its clock."""

    PLACED = "placed"
    """Cells have their sites; the delay of a wire is estimated from its length. Minutes."""
    ROUTED = "routed"
    """Wires have their ways, too. For a core, an hour or more."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The clock that was achieved, in MHz, how far the design was taken, and the sites that were used, by kind of cell."""

    fmax_mhz: float
    used: dict[str, int]
    clock: Clock


_KINDS = {
    "LUT4": "lut4", "CCU2C": "carry", "TRELLIS_DPR16X4": "lut_ram", "TRELLIS_FF": "ff", "DP16KD": "block_ram",
    "MULT18X18D": "dsp",
}  # fmt: skip
_BY_UNIT = ("ff", "block_ram", "dsp")


def area(rtlil: str, top: str, say: Say, script: str = PLAIN) -> Area:
    """The area of a design in yosys' own language.  Raises `UplError` UPL1738 (not installed), UPL1739 (failed)."""
    name = _name("area", rtlil, top, script)
    found = open_cache().read(name)
    if found is None:
        _synthesise(rtlil, top, say, script)
        found = open_cache().read(name)
        if found is None:  # there is no cache
            found = msgspec.json.encode(_area(json.loads(_synthesise(rtlil, top, say, script)), top))
    return msgspec.json.decode(found, type=Area)


def timing(
    rtlil: str, top: str, clock_mhz: float, clock: Clock, say: Say, seed: int = 1, script: str = PLAIN,
    lane_of: LaneOf | None = None,
) -> Timing:  # fmt: skip
    """The clock of a design that is placed, and as `clock` says routed, for `clock_mhz`; errors as for `area`.  `seed` is
    that of the placement, which is random; of a design with lanes `lane_of` tells those of cells (`floorplan`)."""
    known = known_timing(rtlil, top, clock_mhz, clock, seed, script, lane_of is not None)
    if known is not None:
        return known
    options = _options(clock_mhz, clock, seed)
    kept = open_cache().read(_name("net", rtlil, top, script))
    netlist = _synthesise(rtlil, top, say, script) if kept is None else gzip.decompress(kept)
    if lane_of is not None:
        netlist = _with_places(netlist, top, lane_of)
    with tempfile.TemporaryDirectory(prefix="upl-synth-") as folder:
        (Path(folder) / "net.json").write_bytes(netlist)
        estimates: dict[str, float] = {}  # by clock; the report has the clocks of routed designs only

        def step(line: str) -> str | None:
            if m := _CLOCK.match(line):
                estimates[m[1]] = float(m[2])
            return m[1] if (m := _INFO.match(line)) else None

        report = NEXTPNR.run(
            [*options, "--json", "net.json", "--report", "report.json"],
            Path(folder), "report.json", say, step,
        )  # fmt: skip
        out = parse_report(report.read_text(encoding="utf-8"), clock, estimates)
    open_cache().write(_timing_name(rtlil, top, options, script, lane_of is not None), msgspec.json.encode(out))
    return out


def known_timing(
    rtlil: str, top: str, clock_mhz: float, clock: Clock, seed: int = 1, script: str = PLAIN, lanes: bool = False
) -> Timing | None:  # fmt: skip
    """What `timing` found before, of a design whose `lanes` it knew; None if that is not in the cache.  Raises `UplError`
    UPL1738."""
    found = open_cache().read(_timing_name(rtlil, top, _options(clock_mhz, clock, seed), script, lanes))
    return None if found is None else msgspec.json.decode(found, type=Timing)


def _options(clock_mhz: float, clock: Clock, seed: int) -> list[str]:
    unrouted = ["--no-route"] if clock is Clock.PLACED else []
    return [*_NEXTPNR, "--seed", str(seed), *unrouted, "--freq", f"{clock_mhz:g}"]


def _timing_name(rtlil: str, top: str, options: Sequence[str], script: str, lanes: bool) -> str:
    plan = [f"floorplan {VERSION}"] if lanes else []
    return f"clock-{digest(*_source(rtlil, top, script), NEXTPNR.version(), *options, *plan)}.json"


def _with_places(netlist: bytes, top: str, lane_of: LaneOf) -> bytes:
    """A netlist in which blocks of lanes have the sites that `floorplan` gives them."""
    whole: dict[str, Any] = json.loads(netlist)
    cells = whole["modules"][top]["cells"]
    places = floorplan({name: cell["type"] for name, cell in cells.items()}, lane_of)
    for name, site in places.items():
        cells[name].setdefault("attributes", {})["BEL"] = site
    return json.dumps(whole).encode() if places else netlist


def parse_report(text: str, clock: Clock, estimates: dict[str, float]) -> Timing:
    """What nextpnr says: the slowest clock in MHz, and how much of the device is used.

    `text` is its report, in which a routed design has its clocks; `estimates`, from its log, are those of one that is only
    placed.  Raises `UplError` UPL1739 if there is no clock.
    """
    report: dict[str, Any] = json.loads(text)
    clocks = [float(c["achieved"]) for c in report.get("fmax", {}).values()] or [*estimates.values()]
    if not clocks:
        raise error("UPL1739", f"`{NEXTPNR.program() or NEXTPNR.package}` found no clock in the design")
    used = {kind: int(u["used"]) for kind, u in report.get("utilization", {}).items() if u["used"]}
    return Timing(fmax_mhz=min(clocks), used=used, clock=clock)


def _name(what: str, rtlil: str, top: str, script: str) -> str:
    suffix = "json.gz" if what == "net" else "json"
    return f"{what}-{digest(*_source(rtlil, top, script))}.{suffix}"


def _source(rtlil: str, top: str, script: str) -> list[str]:
    """What a netlist follows from: the design, the Verilog modules in it, and the tool."""
    return [rtlil, *([_INSTANCES, cam_verilog()] if _has_cam(rtlil) else []), top, script, YOSYS.version()]


def _has_cam(rtlil: str) -> bool:
    return "cell \\upl_cam " in rtlil


def _synthesise(rtlil: str, top: str, say: Say, script: str) -> bytes:
    """The netlist as JSON; it and its area go into the cache."""
    with tempfile.TemporaryDirectory(prefix="upl-synth-") as folder:
        (Path(folder) / "in.il").write_text(rtlil, encoding="utf-8")
        (Path(folder) / "in.v").write_text(cam_verilog(), encoding="utf-8")
        commands = (_INSTANCES if _has_cam(rtlil) else "") + script.format(top=top)
        made = YOSYS.run(
            ["-p", commands], Path(folder), "net.json", say,
            lambda line: m[1] if (m := _PASS.match(line)) else None,
        )  # fmt: skip
        netlist = made.read_bytes()
    cache = open_cache()
    cache.write(_name("area", rtlil, top, script), msgspec.json.encode(_area(json.loads(netlist), top)))
    cache.write(_name("net", rtlil, top, script), gzip.compress(netlist, 3, mtime=0))
    return netlist


def _area(netlist: dict[str, Any], top: str) -> Area:
    """Count the cells of a flat netlist; a cell's name begins with the path of its unit."""
    total: Counter[str] = Counter()
    units: dict[str, Counter[str]] = {}
    for name, cell in netlist["modules"][top]["cells"].items():
        kind = _KINDS.get(cell["type"])
        if kind is None:
            continue
        total[kind] += 1
        if kind in _BY_UNIT:
            path = name.split(".")
            unit = ".".join(path[:2]) if len(path) > 2 else path[0] if len(path) > 1 else top
            units.setdefault(unit, Counter())[kind] += 1
    counts = {field: total[field] for field in _KINDS.values()}
    return Area(**counts, units={u: dict(c) for u, c in sorted(units.items())})
