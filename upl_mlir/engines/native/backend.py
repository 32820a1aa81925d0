"""From a lowered module to a callable: `compile_module`."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from upl_mlir.engines.native import call, outside, target
from upl_mlir.engines.native.call_ctypes import Fail, Target
from upl_mlir.engines.native.llvm.values import LARGE, Argument, EmittedModule
from upl_mlir.engines.native.products.library import SHARED, modules, symbol
from upl_mlir.engines.native.products.tiles import TileFormat
from upl_mlir.host.cache import Cache, digest, open_cache

ENTRY = "upl_entry"
"""Name of the public function of the machine code."""


@dataclass
class Kernel:
    """A compiled function.  Call it with numbers and contiguous arrays, in the order of its arguments.

    `compile_seconds` is the time that `compile_module` took, `cached` whether it found the machine code ready made,
    `threads` how many threads loops are shared by.
    """

    emitted: EmittedModule
    loaded: target.Loaded
    machine: target.Machine
    compile_seconds: float
    cached: bool
    threads: int
    run: Callable[[Sequence[Any]], None] = field(init=False)
    """What `__call__` does, without the detour: takes the arguments as one list or tuple."""

    def __post_init__(self) -> None:
        self.run = call.array_call(self._target(), call.extension())

    def _target(self) -> Target:
        return Target(self.loaded.addresses[ENTRY], self.arguments, self.threads, self.loaded)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """What the function takes."""
        return self.emitted.arguments

    @property
    def ir(self) -> str:
        """The LLVM IR before optimisation."""
        return self.emitted.ir

    @property
    def asm(self) -> str:
        """The machine code as assembly text."""
        return target.assembly(self.emitted.ir, self.machine, _effort(self.emitted), strength=_strength(self.emitted))

    @property
    def call_path(self) -> str:
        """How calls reach the code: "extension", or "ctypes: …" with the reason."""
        found = call.extension()
        return "extension" if found.module is not None else f"ctypes: {found.why}"

    def __call__(self, args: Sequence[Any]) -> None:
        """Run once; writes the output arrays and the status among `args`.

        Arrays are used in place: contiguous, of the right type and rank; else TypeError.
        """
        self.run(args)

    def scalar(self, fail: Fail) -> Callable[..., tuple[Any, ...]]:
        """For functions whose arguments are numbers and cells: a callable that takes the inputs as numbers and returns
        the outputs as a tuple of numbers.

        Where there is no answer it returns what ``fail(code, arguments)`` does, which may raise: `code` is the status,
        or -1 for a wrong number or type of arguments.
        """
        assert all(not a.rank for a in self.arguments), "for functions of scalars"
        return call.scalar_call(self._target(), call.extension(), fail)


def _effort(emitted: EmittedModule) -> target.Effort:
    """How hard LLVM works on a program.  Large ones of short loops get little: a third less time, and code as fast."""
    large = len(emitted.ir) > LARGE
    if large and emitted.short and not emitted.shared:
        return target.Effort.LIGHT
    return target.Effort.USUAL if large or emitted.shared else target.Effort.FULL


def _strength(emitted: EmittedModule) -> bool:
    """Whether a program has arrays of integers, which choose elements."""
    return any(a.rank and np.dtype(a.dtype).kind in "iu" for a in emitted.arguments)


_in_memory: weakref.WeakValueDictionary[str, target.Loaded] = weakref.WeakValueDictionary()


def _load(
    parts: Sequence[tuple[str, target.Effort]],
    machine: target.Machine,
    symbol: str,
    needs: Sequence[target.Loaded],
    *,
    cache: bool,
    strength: bool = True,
) -> tuple[target.Loaded, bool]:
    """Machine code of LLVM modules, and whether it was found ready made."""
    keys = [digest(ir, machine.key, effort.name, str(strength)) for ir, effort in parts]
    loaded = _in_memory.get(keys[0]) if cache else None
    if loaded is not None:
        return loaded, True
    store = open_cache() if cache else Cache(None)
    objects, found = list[bytes](), True
    for key, (ir, effort) in zip(keys, parts, strict=True):
        data = store.read(f"{key}.o")
        if data is None:
            found = False
            data = target.compile_object(ir, machine, effort, strength=strength)
            store.write(f"{key}.o", data)
        objects.append(data)
    loaded = target.load_objects(objects, [symbol], needs)
    if cache:
        _in_memory[keys[0]] = loaded
    return loaded, found


_of_library: dict[tuple[str, TileFormat, target.Machine], target.Loaded] = {}
_compiling = threading.RLock()


def _shared(name: str, f: TileFormat, machine: target.Machine) -> target.Loaded:
    """A function of the library; it stays for the life of the process."""
    with _compiling:  # one at a time: the other thread then finds it
        key = (name, f, machine)
        if key not in _of_library:
            needs = [_shared(other, f, machine) for other in SHARED[name].needs]
            _of_library[key] = _load(modules(name, f), machine, symbol(name, f), needs, cache=True)[0]
        return _of_library[key]


class Ahead:
    """Compiles the library's functions while Python writes a program that may need them; LLVM needs no lock of Python's.

    A program that turns out not to need one waits for one of them at most.
    """

    def __init__(self, f: TileFormat, machine: target.Machine):
        self._wanted = set(SHARED)
        self._f, self._machine = f, machine
        threading.Thread(target=self._work, name="upl-library").start()  # no daemon: LLVM must not outlive exit

    def _work(self) -> None:
        for name in sorted(SHARED, key=lambda n: n != "gemm"):  # the largest first
            if name in self._wanted:
                try:
                    _shared(name, self._f, self._machine)
                except RuntimeError:  # it comes again where the function is needed
                    return

    def only(self, names: Iterable[str]) -> None:
        """Leave out the functions that are not among `names`."""
        self._wanted &= set(names)


def compile_module(
    module: ModuleOp, *, threads: int = 1, cache: bool = True, machine: target.Machine | None = None
) -> Kernel:
    """Machine code of a lowered module with one function.

    With `cache`, machine code is looked for in memory and on disk (`cache.py`) and kept there.  `threads` > 1 needs the
    extension (see `Kernel.call_path`).  `machine` is this processor, or one that can do less.

    Raises UplError (UPL1820) for what native code lacks.
    """
    from upl_mlir.engines.native.llvm.entry import (
        emit_module,  # loads the dialects, of which a process that finds its code has no need
    )

    start = time.perf_counter()
    threads = threads if call.extension().module is not None else 1
    machine = machine or target.host()
    emitted = emit_module(module, machine, threads)
    return compile_emitted(emitted, machine, threads, cache=cache, start=start)


def compile_emitted(
    emitted: EmittedModule, machine: target.Machine, threads: int, *, cache: bool = True, start: float | None = None
) -> Kernel:
    """Machine code of LLVM IR; `start` is when the work on it began, for `Kernel.compile_seconds`."""
    start = time.perf_counter() if start is None else start
    needs = [_shared(name, f, machine) for name, f in emitted.shared]
    if f"@{outside.EXCHANGE}(" in emitted.ir:
        needs.append(outside.exchange())
    strength = _strength(emitted)
    loaded, cached = _load([(emitted.ir, _effort(emitted))], machine, ENTRY, needs, cache=cache, strength=strength)
    return Kernel(emitted, loaded, machine, time.perf_counter() - start, cached, threads)
