"""The machine that code is made for, LLVM's optimiser, and the linker of finished code into this process."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import itertools
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite import __version__ as llvmlite_version


@dataclass(frozen=True)
class Machine:
    """The processor: LLVM's name for how to schedule, what it can do, and the widest vector worth using, in bytes."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    registers: int

    @property
    def fuses(self) -> bool:
        """Whether there is an instruction for a product and a sum, rounded once."""
        return "+fma" in self.features.split(",") or self.triple.startswith("aarch64")

    @property
    def gathers(self) -> bool:
        """Whether one instruction gathers the elements of a vector in no more time than as many loads."""
        features = self.features.split(",")
        return "+avx512f" in features and NO_GATHERS not in features

    @property
    def key(self) -> str:
        """All that code depends on besides the program."""
        version = ".".join(map(str, llvm.llvm_version_info))
        return f"{self.triple}/{self.cpu}/{self.features}/{llvmlite_version}/{version}/{SHORT_VECTORS}/{NO_STRENGTH}"


SHORT_VECTORS = "-epilogue-vectorization-minimum-VF=4"
"""What is left of a loop behind its vectors LLVM makes shorter vectors of, also where the vectors have no more than four
numbers: rows of 30 or 62 leave six over. (LLVM ignores options that it does not know.)"""
NO_STRENGTH = "-disable-lsr"
"""LLVM's option to leave out `LoopStrengthReduce`."""


# Which processor to schedule for, by what it can do: the first line of which all features are there. The name that LLVM
# finds can be that of another processor on a virtual machine, and a wrong one halves the speed of vector code.
_SCHEDULES = (
    ("sapphirerapids", ("avx512f", "avx512fp16", "amx-tile")),
    ("sapphirerapids", ("avx512f", "avx512fp16")),
    ("icelake-server", ("avx512f", "avx512vl", "avx512vbmi2", "avx512vnni")),
    ("skylake-avx512", ("avx512f", "avx512vl", "avx512dq")),
    ("haswell", ("avx2", "fma")),
)
NO_GATHERS = "+prefer-no-gather"
"""LLVM's feature of a processor for which it writes the loads instead."""
_SLOW_GATHERS = ("znver", "bdver")
"""Names of processors (AMD's) on which an instruction that gathers takes longer than the loads that it stands for."""


@cache
def host() -> Machine:
    """This processor, from its CPUID flags."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.set_option("upl", SHORT_VECTORS)
    flags: Any = llvm.get_host_cpu_features()
    features: str = flags.flatten()
    triple: str = llvm.get_process_triple()
    cpu: str = llvm.get_host_cpu_name()
    if triple.startswith("x86_64"):
        if cpu.startswith(_SLOW_GATHERS):
            features += f",{NO_GATHERS}"
        cpu = next((name for name, needed in _SCHEDULES if all(flags.get(f) for f in needed)), "x86-64")
    wide = bool(flags.get("avx512f"))
    vector_bytes = 64 if wide else 32 if flags.get("avx2") else 16
    return Machine(triple, cpu, features, vector_bytes, 32 if wide or triple.startswith("aarch64") else 16)


@cache
def _target_machine(machine: Machine) -> Any:
    target: Any = llvm.Target.from_triple(machine.triple)
    return target.create_target_machine(cpu=machine.cpu, features=machine.features, opt=3, reloc="default",
                                        codemodel="jitdefault", jit=True)  # fmt: skip


_lock = threading.Lock()
"""LLVM's global context and the JIT are used by one thread at a time."""


class Effort(Enum):
    """How hard LLVM works on a module: what has vectors and blocks in it wants little, the library's tiles nothing.

    At its highest level it writes out nests of short loops. What gains by that are programs of small arrays; where there are
    products of any size, it is their loops for sizes that no kernel of ours takes, at half of all the time.
    """

    NONE = 0
    LIGHT = 1
    USUAL = 2
    FULL = 3


def _optimise(ir: str, machine: Machine, effort: Effort) -> tuple[Any, Any]:
    """The module of an IR text, verified and optimised, and the target machine.

    Without LLVM's vectoriser of straight-line code (SLP): that of LLVM 22.1 puts vectors before what they are made of, and
    ends the process on other modules (`must be scheduled at this point`).  No program of the suite is slower without it.
    """
    target_machine = _target_machine(machine)
    module: Any = llvm.parse_assembly(ir)
    module.triple = machine.triple
    module.data_layout = str(target_machine.target_data)
    module.verify()
    if effort is not Effort.NONE:
        full = effort.value >= Effort.USUAL.value
        options: Any = llvm.create_pipeline_tuning_options(speed_level=effort.value)
        options.loop_vectorization, options.slp_vectorization = full, False
        options.loop_interleaving = options.loop_unrolling = full
        builder: Any = llvm.create_pass_builder(target_machine, options)
        builder.getModulePassManager().run(module, builder)
        if full:  # vector versions of functions, which only the vectoriser calls
            after: Any = llvm.create_new_module_pass_manager()
            after.add_always_inliner_pass()
            after.add_instruction_combine_pass()
            after.add_simplify_cfg_pass()
            after.run(module, builder)
        module.verify()
    return module, target_machine


def compile_object(ir: str, machine: Machine, effort: Effort = Effort.FULL, *, strength: bool = True) -> bytes:
    """The object file of an IR text; `strength`: see `_strength`."""
    with _lock:
        module, target_machine = _optimise(ir, machine, effort)
        with _strength(strength):
            return target_machine.emit_object(module)


def assembly(ir: str, machine: Machine, effort: Effort = Effort.FULL, *, strength: bool = True) -> str:
    """The machine code of an IR text, as assembly."""
    with _lock:
        module, target_machine = _optimise(ir, machine, effort)
        with _strength(strength):
            return target_machine.emit_assembly(module)


@contextmanager
def _strength(wanted: bool) -> Generator[None]:
    """Whether LLVM looks for the fewest registers that count addresses in a loop.

    The library's tiles are a seventh faster by it, and sparse products a tenth, whose indices are data.  The loops of other
    programs are as fast without; and where a loop has many arrays, it takes up to half of LLVM's time.  The option is
    LLVM's, and so that of all who use it in this process.
    """
    llvm.set_option("upl", f"{NO_STRENGTH}={'false' if wanted else 'true'}")
    try:
        yield
    finally:
        llvm.set_option("upl", f"{NO_STRENGTH}=false")


_numbers = itertools.count()


@cache
def _jit() -> Any:
    return llvm.create_lljit_compiler(_target_machine(host()))


@dataclass(frozen=True)
class Loaded:
    """Code in memory: the addresses of its public functions.  It goes when this object goes."""

    addresses: Mapping[str, int]
    tracker: Any
    needs: tuple[Loaded, ...]


def load_objects(objects: Iterable[bytes], symbols: Iterable[str], needs: Sequence[Loaded] = ()) -> Loaded:
    """Link object files into this process, with what they call of other ones.

    Raises RuntimeError if something is no object file or a symbol is missing.
    """
    with _lock:
        builder: Any = llvm.JITLibraryBuilder().add_current_process()
        for data in objects:
            builder.add_object_img(data)
        for symbol in symbols:
            builder.export_symbol(symbol)
        for other in needs:
            for name, address in other.addresses.items():
                builder.import_symbol(name, address)
        tracker: Any = builder.link(_jit(), f"upl{next(_numbers)}")
        return Loaded({symbol: tracker[symbol] for symbol in symbols}, tracker, tuple(needs))
