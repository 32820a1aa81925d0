"""Builds models: netlists by Amaranth's yosys, C++ by `netsim`, a shared library by the C++ compiler, kept in the cache.

A machine's library has one model of a core, whatever the number of cores, and one of the fabric. The core's is compiled
once for all machines that have it; where there are several cores it may be of several at once (*lanes*). What is built
follows from the netlists, the sources here and the compiler alone; one library serves every program.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from upl_mlir.diagnostics import error
from upl_mlir.host.cache import digest, open_cache
from upl_mlir.host.processes import run
from upl_mlir.hw.core.core import Event, configuration_ports, core_ports
from upl_mlir.hw.core.layouts import token_layout, watch_layout
from upl_mlir.hw.sources import hardware_digest
from upl_mlir.hw.system.layouts import System
from upl_mlir.hw.verilog import core_netlist, fabric_netlist
from upl_mlir.netsim.classes import Model
from upl_mlir.netsim.emit import emit
from upl_mlir.netsim.lanes import emit_lanes
from upl_mlir.netsim.lower import lower
from upl_mlir.netsim.read import read
from upl_mlir.netsim.units import UnitKind

FLAGS = ("-O2", "-fno-tree-slp-vectorize", "-fPIC", "-std=c++17")
QUICK = ("-O0", "-fPIC", "-std=c++17")
"""For models that run few clocks.  A circuit of 30 units is compiled in 2 s in place of 13, and takes 6.5 us a clock in
place of 3.4, so that it is done sooner up to some three million clocks."""
VECTORS = ("-mavx512f", "-mavx512vl", "-mavx512dq", "-mavx512bw")
MATRICES = ("-mgfni",)
"""An instruction for linear maps, which not all processors with these vectors have."""
MOST_LANES = 8
"""Cores in the lanes of a vector: AVX-512 has eight of 64 bits."""
STEADY = frozenset(("number", *configuration_ports(), "look_set", "look_way", "look_spilled"))
"""Inputs of a core that do not change in a run."""
PROBES = frozenset(("watch",))
"""Outputs of a core that are seldom looked at."""
HEADERS = ("netsim/model.h", "netsim/lanes.h", "hw/matching_unit/upl_cam.h")
"""Below the package: what the sources of models include."""
UNITS = {
    "upl_cam": UnitKind(
        "UplCam", "upl_cam.h",
        ("BANKS", "BANK", "BANK_BITS", "EXACT_BITS", "TAG_BITS", "LEVELS"),
        {
            "picked": (("found", "partner"), ("pick", "level")),
            "sought": (("vacant", "vacancy"), ("seek", "last_entry")),
            "looked": (("looked",), ("look",)),
        },
        ("key_exact", "key_tag", "key_wild", "level", "search", "pick", "drop", "write", "free", "entry"),
        ("search", "drop", "write", "free"),
    ),
}  # fmt: skip
"""The units of our machines, by the names of their modules."""


def compiler() -> str | None:
    """The C++ compiler for models: `$CXX`, or the first that there is, or None. clang++ takes a third of the time, but its
    models are slower (by 15 % on Zen 5), and clang 14 has a product wrong where it unrolls a loop over lanes."""
    names = (os.environ.get("CXX"), "g++", "clang++", "c++")
    return next((c for c in names if c and shutil.which(c)), None)


def available() -> bool:
    """Whether machines can be compiled here: a C++ compiler is there."""
    return compiler() is not None


def machine_library(s: System, lanes: int) -> Path:
    """The library of a machine, with that many cores in a model, built if the cache does not have it. If there is no cache
    it stays in a temporary folder."""
    cache = open_cache()
    # Sources that have not changed since a machine was elaborated make the same netlists: they need not be made again.
    known = f"machine-{digest(hardware_digest(), repr(s), str(lanes), *tools())}.name"
    found = cache.read(known)
    path = cache.file(found.decode()) if found is not None else None
    if path is not None:
        return path
    harness = source("hw/sim/harness.cpp")
    core, fabric, joined = core_netlist(s.core), fabric_netlist(s), wires(s)
    name = f"machine-{digest(core, fabric, joined, harness, str(lanes), *tools())}.so"
    cache.write(known, name.encode())
    path = cache.file(name)
    if path is not None:
        return path
    folder = Path(tempfile.mkdtemp(prefix="upl-machine-"))
    try:
        objects = [_kept_model(folder, core, "core", lanes), model(folder, fabric, "fabric")]
        (folder / "wires.h").write_text(joined, encoding="utf-8")
        (folder / "harness.cpp").write_text(harness, encoding="utf-8")
        host = compile_source(folder / "harness.cpp", lanes)
        built = link([*objects, host], folder / "machine.so")
        path = cache.write(name, built.read_bytes())
        return path or built
    finally:
        if path is not None:
            shutil.rmtree(folder, ignore_errors=True)


def harnessed(kind: str, netlist: str, top: str, files: Mapping[str, str]) -> Path:
    """The library of a model with a harness: of `files`, by name, `harness.cpp` is compiled beside the others and the
    model's header.  From the cache if it is there; if there is no cache it stays in a temporary folder."""
    cache = open_cache()
    name = f"{kind}-{digest(netlist, *files.values(), *tools())}.so"
    path = cache.file(name)
    if path is not None:
        return path
    folder = Path(tempfile.mkdtemp(prefix=f"upl-{kind}-"))
    try:
        made = model(folder, netlist, top, flags=QUICK)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        built = link([made, compile_source(folder / "harness.cpp", flags=QUICK)], folder / f"{kind}.so")
        path = cache.write(name, built.read_bytes())
        return path or built
    finally:
        if path is not None:
            shutil.rmtree(folder, ignore_errors=True)


def lanes_for(cores: int) -> int:
    """How many cores a model has: 1 if there is only one, or if the processor's vectors do not do for more."""
    return min(MOST_LANES, 1 << (cores - 1).bit_length()) if cores > 1 and vectors() else 1


def model(
    folder: Path, netlist: str, top: str, lanes: int = 1, steady: Collection[str] = (), probes: Collection[str] = (),
    flags: Sequence[str] = FLAGS,
) -> Path:  # fmt: skip
    """The object of a model, of module `top` of a netlist, or of so many of them, whose ports are arrays then; its header,
    `TOP.h`, and those that it includes stay there. It has the functions `settle`, `edge`, `ports` and `probe` (`emit.py`).
    `steady`, `probes`: see `Model`; `flags`: the compiler's, `FLAGS` or `QUICK`."""
    _headers(folder)
    made = Model(lower(read(netlist, top, UNITS)), steady, probes)
    header, source = (emit_lanes if lanes > 1 else emit)(made, top.capitalize())
    (folder / f"{top}.h").write_text(header, encoding="utf-8")
    text = folder / f"{top}.cpp"
    text.write_text(source, encoding="utf-8")
    return compile_source(text, lanes, flags)


def link(objects: Sequence[Path], library: Path) -> Path:
    """A library of objects."""
    call([cxx(), "-shared", "-o", str(library), *map(str, objects), "-lpthread"])
    return library


@cache
def tools() -> tuple[str, ...]:
    """What, beside a netlist, a model follows from: the sources that make C++, the compiler, its flags."""
    folder = resources.files("upl_mlir.netsim")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".py"))
    texts = (folder.joinpath(name).read_text(encoding="utf-8") for name in names)
    own = Path(__file__).read_text(encoding="utf-8")
    return digest(*texts, *map(source, HEADERS), own), compiler() or "", *vectors()


def _kept_model(folder: Path, netlist: str, top: str, lanes: int) -> Path:
    """The same as `model`, from the cache if it is there."""
    cache = open_cache()
    name = digest(netlist, str(lanes), *tools())
    files = {folder / f"{top}{end}": f"{top}-{name}{end}" for end in (".o", ".h")}
    kept = {path: cache.read(name) for path, name in files.items()}
    made, _ = files
    if all(data is not None for data in kept.values()):
        _headers(folder)
        for path, data in kept.items():
            path.write_bytes(data or b"")
        return made
    made = model(folder, netlist, top, lanes, STEADY, PROBES)
    for path, name in files.items():
        cache.write(name, path.read_bytes())
    return made


@cache
def vectors() -> tuple[str, ...]:
    """The compiler's flags for the instructions of `lanes.h`; none if the processor does not have them."""
    known = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not known.exists():
        return ()
    flags = re.search(r"(?m)^flags\s*:(.*)$", known.read_text(encoding="utf-8"))
    here = set(flags[1].split()) if flags else set[str]()
    has = [f for f in (*VECTORS, *MATRICES) if f.removeprefix("-m") in here]
    return tuple(has) if set(VECTORS) <= set(has) else ()


def source(path: str) -> str:
    """The text of a file below the package."""
    return resources.files("upl_mlir").joinpath(path).read_text(encoding="utf-8")


def _headers(folder: Path) -> None:
    for path in HEADERS:
        (folder / Path(path).name).write_text(source(path), encoding="utf-8")


def compile_source(source: Path, lanes: int = 1, flags: Sequence[str] = FLAGS) -> Path:
    """C++ to an object beside it."""
    made = source.with_suffix(".o")
    tool = cxx()
    more = [*vectors(), f"-DLANES={lanes}"] if lanes > 1 else []
    if lanes > 1 and "clang" in tool:
        more.append("-fno-unroll-loops")  # see `compiler`
    call([tool, *flags, *more, "-c", str(source), "-o", str(made)])
    return made


def wires(s: System) -> str:
    """The header that joins the harness with the models of this machine."""
    d = s.core
    token = token_layout(d)
    lines = [
        f"constexpr int CORES = {s.cores}, PORTS = {s.ports};",
        f"constexpr unsigned NODES = {1 << d.node_bits}, TOKEN_WORDS = {-(-token.size // 32)};",
        f"constexpr unsigned WATCH_WORDS = {watch_words(s)};",
        f"constexpr uint64_t TAKEN = {1 << Event.TAKEN}, FIRED = {1 << Event.FIRED};",
        "struct Span { unsigned first, width; };",
    ]
    for name in ("kind", "node", "input", "tag", "multiplicity", "value"):
        lines.append(f"constexpr Span {name.upper()}{{{token[name].offset}, {token[name].width}}};")
    lines.append(f"constexpr unsigned WATCHED[] = {{{', '.join(map(str, watched(s)))}}};")

    lines += [
        "constexpr int WIDTH = sizeof(Core::idle) / sizeof(u64);  // cores of a model",
        "template <typename T> T& at(T& port, int) { return port; }",
        "template <typename T, std::size_t N> T& at(T (&port)[N], int lane) { return port[lane]; }",
        "struct Lane {  // the ports of a core",
        "    Core& model;",
        *(f"    std::remove_extent_t<decltype(Core::{name})>& {name};" for name in core_ports(d)),
        "    Lane(Core& m, int lane)",
        f"        : {', '.join(['model(m)', *(f'{name}(at(m.{name}, lane))' for name in core_ports(d))])} {{}}",
        "};",
        "inline void to_fabric(Fabric& f, Lane* const* core) {",
    ]
    inputs = ["sent_valid", "sent_data", "network_ready"] if s.cores > 1 else []
    inputs += ["live"] if d.stages else []
    inputs += ["least"] if d.closes else []
    for n in range(s.cores):
        lines += [
            f"    f.{i}_{n} = core[{n}]->{i};" for i in ("idle", "host_ready", "output_valid", "output_data", *inputs)
        ]
    lines.append("}")
    lines.append("inline bool from_fabric(const Fabric& f, Lane& core, int n) {\n    switch (n) {")
    outputs = ["network_valid", "network_data", "sent_ready"] if s.cores > 1 else []
    outputs += ["close", "close_rank", "run_over"] if d.closes else []
    wakes = [name for name in ("host_valid", "network_valid", "close", "run_over") if name in ("host_valid", *outputs)]
    for n in range(s.cores):
        moves = "".join(f" core.{i} = f.{i}_{n};" for i in ("host_valid", "host_data", "output_ready", *outputs))
        comes = " || ".join(f"f.{name}_{n}" for name in wakes)
        lines.append(f"    case {n}:{moves} return {comes};")
    lines.append("    default: return false;\n    }\n}")
    over = "f.host_over = over;" if d.closes else "(void)f, (void)over;"
    lines.append(f"inline void host_over(Fabric& f, bool over) {{ {over} }}")
    names = ("port_valid", "port_ready", "port_data", "result_valid", "result_ready", "result_data")
    lines.append("struct Ports {")
    for name in names:
        lines.append(f"    std::remove_reference_t<decltype(Fabric::{name}_0)>* {name}[PORTS];")
    lines.append("    explicit Ports(Fabric& f)")
    made = (f"{name}{{{', '.join(f'&f.{name}_{p}' for p in range(s.ports))}}}" for name in names)
    lines.append("        : " + ", ".join(made) + " {}\n};")
    return "\n".join(lines) + "\n"


def watch_words(s: System) -> int:
    """Words of 32 bits of the port `watch` of a core."""
    return -(-watch_layout(s.core).size // 32)


def watched(s: System) -> list[int]:
    """The bits of the port `watch` that tell that something happened."""
    layout = watch_layout(s.core)
    return [field.offset + field.shape["valid"].offset for _, field in layout]


def cxx() -> str:
    """The C++ compiler.  Raises UplError (UPL1737) where there is none."""
    tool = compiler()
    if tool is None:
        help_ = "install one, or take Amaranth's simulator: --simulator amaranth"
        raise error("UPL1737", "machines cannot be compiled here: a C++ compiler is missing", help=help_)
    return tool


def call(command: list[str]) -> None:
    """Run a tool.  `UplError` UPL1737 with its last words if it fails."""
    done = run(command)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-5:]
        help_ = "name another C++ compiler in the environment variable CXX, or take Amaranth's: --simulator amaranth"
        what = f"`{Path(command[0]).name}` failed while the machine was compiled"
        raise error("UPL1737", what, notes=last, help=help_)
