"""Proofs about blocks of the hardware: an Amaranth module with assumptions and assertions, given to SymbiYosys.

A proof is either bounded (`bmc`: nothing is violated in the first so many cycles, whatever the inputs) or by
k-induction (`prove`: nothing is ever violated). The blocks are as they are built into machines, only small.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Assume, ClockDomain, Elaboratable, Module, Shape, Signal, Value
from amaranth.hdl._ast import AnyConst, AnySeq
from amaranth.lib import memory

BIN = Path(sys.executable).parent
SOLVER = "yices"


@dataclass(frozen=True)
class Outcome:
    """Whether a proof went through, and what the tool said."""

    proved: bool
    log: str


class _Top(Elaboratable):
    """The harness in a module with a clock of its own, without reset: registers begin with their initial values."""

    def __init__(self, build: Callable[[Module], None]):
        self.build = build
        self.domain = ClockDomain("sync", reset_less=True)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains += self.domain
        self.build(m)
        return m


def run(
    folder: Path, build: Callable[[Module], None], depth: int, mode: str = "bmc", verilog: str = "", registers: bool = False
) -> Outcome:
    """Prove what `build` asserts in the module that it is given; `mode` is "bmc" or "prove". Modules in `verilog` may be
    instances in it. `registers`: memories are made of registers, which is faster if they are small."""
    top = _Top(build)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "design.il").write_text(rtlil.convert(top, ports=[top.domain.clk]), encoding="utf-8")
    (folder / "instances.v").write_text(verilog, encoding="utf-8")
    (folder / "proof.sby").write_text(
        f"[options]\nmode {mode}\ndepth {depth}\n[engines]\nsmtbmc {SOLVER}\n"
        f"[script]\nread_rtlil design.il\nread_verilog instances.v\nprep -top top\n{'memory_map' if registers else ''}\n"
        "[files]\ndesign.il\ninstances.v\n",
        encoding="utf-8",
    )
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    assert shutil.which("yices-smt2", path=path), "the solver is missing: install the extra `dev`"
    names = {"yosys": "yosys", "smtbmc": "yosys-smtbmc", "witness": "yosys-witness"}
    tools = [f"--{option}={BIN / f'yowasp-{name}'}" for option, name in names.items()]
    done = subprocess.run(
        [str(BIN / "yowasp-sby"), "-f", *tools, "proof.sby"], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": path}, timeout=300,
    )  # fmt: skip
    status = re.search(r"DONE \((\w+), rc=", done.stdout)
    text = done.stdout + done.stderr
    assert status is not None and status[1] in ("PASS", "FAIL", "UNKNOWN"), text
    # Induction that finds no counterexample in reach, and no proof either, is UNKNOWN: no proof.
    return Outcome(status[1] == "PASS", text)


def holds(
    folder: Path, build: Callable[[Module], None], depth: int, mode: str = "bmc", verilog: str = "", registers: bool = False
) -> None:
    """The proof goes through."""
    outcome = run(folder, build, depth, mode, verilog, registers)
    assert outcome.proved, outcome.log


def fails(
    folder: Path, build: Callable[[Module], None], depth: int, mode: str = "bmc", verilog: str = "", registers: bool = False
) -> None:
    """With a defect built in there is a run from reset that violates an assertion."""
    outcome = run(folder, build, depth, mode, verilog, registers)
    assert not outcome.proved, "the defect is not noticed"
    assert re.search(r"Assert failed in|BMC failed!", outcome.log), outcome.log


# ------------------------------------------------------------------------------------------------------ parts of proofs


def free(shape: object) -> Value:
    """Any value, another one in each cycle."""
    return AnySeq(shape)


def fixed(m: Module, shape: object, name: str) -> Signal:
    """Any value, the same one in each cycle."""
    out = Signal(shape, name=name)
    m.d.comb += out.as_value().eq(AnyConst(Shape.cast(shape).width)) if hasattr(out, "as_value") else out.eq(AnyConst(shape))
    return out


def drive(m: Module, *inputs: object) -> None:
    """Give inputs any value in each cycle."""
    for one in inputs:
        value = Value.cast(one)
        m.d.comb += value.eq(AnySeq(len(value)))


def assume(m: Module, condition: object) -> None:
    """Only runs in which this holds in each cycle are looked at."""
    m.d.comb += Assume(condition)


class OpenMemory(memory.Memory):
    """A memory whose rows a harness can see."""

    made: list[OpenMemory] = []  # noqa: RUF012 -- in the order of making, for `inside`

    def __init__(self, *args: object, **kwargs: object):
        super().__init__(*args, **kwargs)
        self.ports = [self.read_port(domain="comb") for _ in range(self.depth)]
        OpenMemory.made.append(self)


def inside(m: Module, unit: Elaboratable) -> list[list[Value]]:
    """Build a unit whose module has `OpenMemory` for `Memory` into `m`: the rows of its memories, in the order of making."""
    OpenMemory.made.clear()
    unit._MustUse__used = True  # it is: as the module that it makes
    m.submodules.unit = unit.elaborate(None)
    for one in OpenMemory.made:
        for n, port in enumerate(one.ports):
            m.d.comb += port.addr.eq(n)
    return [[port.data for port in one.ports] for one in OpenMemory.made]


# --------------------------------------------------------------------------------------------------------------- defects


class _Loader(importlib.abc.SourceLoader):
    def __init__(self, path: str, source: str):
        self.path, self.source = path, source

    def get_filename(self, fullname: str) -> str:
        return self.path

    def get_data(self, path: str) -> bytes:
        if path != self.path:
            raise OSError(path)  # no cached byte code
        return self.source.encode()


def with_defect(module: ModuleType, old: str, new: str) -> ModuleType:
    """A copy of a module of the hardware in which one piece of text is another one."""
    assert module.__file__ is not None
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1, f"`{old}` is {source.count(old)} times in {module.__file__}: write the defect anew"
    loader = _Loader(module.__file__, source.replace(old, new))
    spec = importlib.util.spec_from_loader(f"{module.__name__}_with_defect", loader)
    assert spec is not None and spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, copy.__name__, copy)  # dataclasses look their module up
        spec.loader.exec_module(copy)
    return copy
