"""Facts about the machine and the software that a table of times must name."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGES = ("numpy", "jax", "jaxlib", "torch", "llvmlite", "scikit-learn")
FEATURES = ("avx2", "fma", "avx512f", "avx512vl", "avx512_fp16", "amx_tile")


def facts() -> dict[str, str]:
    """Processor, caches, memory, versions, and the load when it was asked."""
    cpu = _fields(Path("/proc/cpuinfo"))
    flags = set(cpu.get("flags", "").split())
    found = {
        "processor": cpu.get("model name", platform.processor() or platform.machine()),
        "vectors": " ".join(f for f in FEATURES if f in flags) or "unknown",
        "cores": str(os.cpu_count()),
        "caches": ", ".join(_caches()) or "unknown",
        "memory": _fields(Path("/proc/meminfo")).get("MemTotal", "unknown"),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "gcc": _first_line("gcc", "--version"),
    }
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def load() -> float:
    """Processes that wanted a core in the last minute, on average: more than one of ours means a disturbed measurement."""
    return os.getloadavg()[0]


def pin(count: int) -> None:
    """Keep this process, and what it starts, on the first `count` cores, and the libraries' pools to that many threads."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:count]))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(count)


def resident(peak: bool = False) -> int:
    """Bytes of memory that this process holds now, or has held at most since `forget_peak`."""
    kib = _fields(Path("/proc/self/status"))["VmHWM" if peak else "VmRSS"].split()[0]
    return int(kib) * 1024


def forget_peak() -> None:
    """Start the count of `resident(peak=True)` again."""
    Path("/proc/self/clear_refs").write_text("5")


def _fields(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _caches() -> list[str]:
    out: list[str] = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / n).read_text().strip() for n in ("level", "type", "size"))
        if kind != "Instruction":
            out.append(f"L{level} {size}")
    return out


def _first_line(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return "not installed"
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
