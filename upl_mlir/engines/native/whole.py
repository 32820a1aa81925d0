"""Whole programs compiled: from a checked program to its machine code with what its caller must know, each made once.

Made programs are kept in memory and, as text, on disk (`host/cache.py`), under a name that follows from the program, the
options, the processor and this package's files.  A program that is found is not proved, scheduled and lowered again.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.dialects.upl.facts import Facts
from upl_mlir.engines.native import call, target
from upl_mlir.engines.native.backend import Ahead, Kernel, compile_emitted
from upl_mlir.engines.native.llvm.values import Argument, EmittedModule
from upl_mlir.engines.native.products.tiles import TileFormat
from upl_mlir.host.cache import digest, open_cache, package_key
from upl_mlir.passes.layouts import Layout, Scratch, Term
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.parse import parse_index

if TYPE_CHECKING:
    from upl_mlir.passes.loops.program import LoopProgram


class Source(Protocol):
    """A program to be compiled, which need not be made for it if that has been done before.

    `key` is a key that says its content, None if it has none; `by_content`: equal content has equal keys.  `keep` tells
    later processes of it.
    """

    @property
    def key(self) -> str | None: ...
    @property
    def by_content(self) -> bool: ...
    @property
    def facts(self) -> Facts: ...

    def read(self) -> ProgramOp:
        """The program with its `adjoint of` expanded, its domains and the values of its arrays known.  Raises UplError."""
        ...

    def keep(self) -> None: ...


@dataclass(frozen=True, eq=False)
class Whole:
    """A compiled program: its code, the layouts of host ports that the code assumes, the arrays between.

    `open` are the inputs, (node, input), of which the tokens are to be counted for given sizes: no proof covers all.
    `reach` says how far indices may reach.  `key` is of the program's content and the options.  `again`: neither the
    program nor its code was worked out, both were found.
    """

    key: str
    kernel: Kernel
    layouts: dict[str, Layout]
    scratch: tuple[Scratch, ...]
    open: tuple[tuple[str, str], ...]
    reach: tuple[Term, ...]
    again: bool


@dataclass(frozen=True, eq=False)
class Made:
    """What a compilation needs no program for: the fields are those of `Whole`."""

    emitted: EmittedModule
    layouts: dict[str, Layout]
    scratch: tuple[Scratch, ...]
    open: tuple[tuple[str, str], ...]
    reach: tuple[Term, ...]


_in_memory: weakref.WeakValueDictionary[str, Whole] = weakref.WeakValueDictionary()


def compile_program(
    source: Source, *, real: str, gather: str, threads: int, fixed: Mapping[str, int], narrow: Set[str] = frozenset()
) -> Whole:  # fmt: skip
    """Compile a program; options as for `lower_to_loops`.  The code takes all parameters but the `fixed` ones.

    Raises UplError: UPL13xx if it is wrong, UPL18xx if it is not of the class; RuntimeError if LLVM refuses it.
    """
    call.prepare()
    machine = target.host()
    threads = threads if threads == 1 or call.extension().module is not None else 1
    key, keep = key_of(source, f"{real} {gather} {threads} {sorted(fixed.items())} {sorted(narrow)}", machine)
    found = _find(key, machine, threads)
    if found is None:
        program = source.read()
        ahead: list[Ahead] = []
        names: set[str] = set()
        try:
            from upl_mlir.engines.native.llvm.entry import (
                emit_module,  # a process that finds its code needs none of this
            )
            from upl_mlir.passes.analysis.proved import require_proved
            from upl_mlir.passes.lower_to_loops import lower_to_loops

            try:
                lowered = lower_to_loops(
                    program, real=real, gather=gather, threads=threads, fixed=fixed, narrow=narrow,
                    scheduled=lambda p: ahead.extend(_ahead(p, machine, real, gather)),
                )  # fmt: skip
                emitted = emit_module(lowered.module, machine, threads)
                names = {name for name, _ in emitted.shared}
            except Exception:
                require_proved(program)  # what is wrong with a program says more than where its lowering ended
                raise
        finally:
            for library in ahead:
                library.only(names)
        with ThreadPoolExecutor(1) as pool:  # LLVM needs no lock of Python's: it works while the program is proved
            kernel = pool.submit(compile_emitted, emitted, machine, threads)
            open_ = require_proved(program)
        made = Made(emitted, lowered.layouts, lowered.scratch, open_, lowered.reach)
        open_cache().write(f"{key}.json", json.dumps(data_of(made)).encode())
        found = _whole(key, made, kernel.result(), found=False)
    keep()
    return found


def key_of(source: Source, options: str, machine: target.Machine) -> tuple[str, Callable[[], None]]:
    """The key of what is made of a program's content with some options, and a function that tells later processes of it.

    These then find the key without making the program."""
    store = open_cache()
    mine = None if source.key is None else digest(source.key, options, machine.key, package_key())
    alias = None if mine is None or source.by_content else f"{mine}.native"
    given = store.read(alias) if alias is not None else None  # the key of the program's content, found before
    if mine is not None and source.by_content:
        key = mine
    else:
        key = given.decode() if given is not None else digest(str(source.read()), options, machine.key, package_key())

    def keep() -> None:
        if alias is not None and given is None:
            store.write(alias, key.encode())
        source.keep()

    return key, keep


def _ahead(p: LoopProgram, machine: target.Machine, real: str, gather: str) -> Iterator[Ahead]:
    """The library's functions on their way, if there are products of matrices among the loops."""
    from upl_mlir.passes.loops.tree import Box, subtrees

    if real in ("f32", "f64") and any(isinstance(t, Box) for t in subtrees(p.scheduled)):
        number, size = ("float", 4) if real == "f32" else ("double", 8)
        yield Ahead(TileFormat(number, machine.vector_bytes // size, machine.registers, gather == "relaxed"), machine)


def _find(key: str, machine: target.Machine, threads: int) -> Whole | None:
    """A program that was compiled before."""
    whole = _in_memory.get(key)
    if whole is not None:
        return whole if whole.again else replace(whole, again=True)
    data = open_cache().read(f"{key}.json")  # the cache has made sure that it is whole
    if data is None:
        return None
    made = made_of(json.loads(data))
    return _whole(key, made, compile_emitted(made.emitted, machine, threads), found=True)


def _whole(key: str, made: Made, kernel: Kernel, *, found: bool) -> Whole:
    whole = Whole(key, kernel, made.layouts, made.scratch, made.open, made.reach, again=found and kernel.cached)
    _in_memory[key] = whole
    return whole


def data_of(made: Made) -> dict[str, Any]:
    """For JSON: index expressions as their texts."""
    e = made.emitted
    return {
        "name": e.name, "ir": e.ir, "arguments": [asdict(a) for a in e.arguments],
        "shared": [[name, asdict(f)] for name, f in e.shared], "short": e.short,
        "layouts": {n: [[str(x) for x in a.lower], [str(x) for x in a.shape]] for n, a in made.layouts.items()},
        "scratch": [[s.name, s.element_bytes, [str(x) for x in s.shape]] for s in made.scratch],
        "open": made.open, "reach": [asdict(t) for t in made.reach],
    }  # fmt: skip


def made_of(d: Mapping[str, Any]) -> Made:
    """What `data_of` made data of."""
    arguments = tuple(
        Argument(a["name"], a["dtype"], a["rank"], tuple(a["shape"]), a["written"]) for a in d["arguments"]
    )
    shared = tuple((str(name), TileFormat(**f)) for name, f in d["shared"])
    layouts = {n: Layout(expressions(lower), expressions(shape)) for n, (lower, shape) in d["layouts"].items()}
    scratch = tuple(Scratch(name, size, expressions(shape)) for name, size, shape in d["scratch"])
    open_ = tuple((str(name), str(port)) for name, port in d["open"])
    reach = tuple(Term(t["factor"], tuple(t["names"])) for t in d["reach"])
    return Made(EmittedModule(d["name"], d["ir"], arguments, shared, d["short"]), layouts, scratch, open_, reach)


def expressions(texts: Iterable[str]) -> tuple[IndexExpr, ...]:
    """Index expressions of their texts."""
    return tuple(map(parse_index, texts))
