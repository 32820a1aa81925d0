"""Set-up of the tests of native code: a cache folder of their own, and modules from MLIR text."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects import get_all_dialects
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from upl_mlir.dialects.upl import UPL
from upl_mlir.engines.native import target
from upl_mlir.engines.native.backend import Kernel, compile_module

RELAXED = " fastmath<reassoc,contract,nsz>"


@pytest.fixture(autouse=True, scope="session")
def _own_cache(own_cache: Path) -> None:
    """No code of another version is found."""


@cache
def _context() -> Context:
    context = Context()
    for name, factory in get_all_dialects().items():
        context.register_dialect(name, factory)
    context.load_dialect(UPL)
    return context


class Modules:
    """Ways to write modules as MLIR text."""

    def parse(self, text: str) -> ModuleOp:
        """A module from its text, verified."""
        module = Parser(_context(), text).parse_module()
        module.verify()
        return module

    def kernel(self, text: str, **options: Any) -> Kernel:
        """A compiled module from its text."""
        return compile_module(self.parse(text), **options)

    def status(self) -> NDArray[np.int64]:
        """A status cell."""
        return np.zeros((), np.int64)

    def elementwise(self, operation: str, type_: str = "f64", arity: int = 1, result: str | None = None) -> ModuleOp:
        """A module that applies an operation ``%r = … %a [, %b [, %c]]`` to all elements of arrays."""
        result = result or type_
        names = "abc"[:arity]
        arrays = ", ".join(f"%in_{n}: memref<?x{type_}>" for n in names)
        loads = "\n    ".join(f"%{n} = memref.load %in_{n}[%i] : memref<?x{type_}>" for n in names)
        return self.parse(f"""
func.func @f({arrays}, %out: memref<?x{result}>, %status: memref<i64>) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.dim %out, %c0 : memref<?x{result}>
  scf.for %i = %c0 to %n step %c1 {{
    {loads}
    {operation}
    memref.store %r, %out[%i] : memref<?x{result}>
  }}
  func.return
}}""")

    def rows(self, first: str, second: str) -> str:
        """The text of a function, but for its end: y is `second` of `first` of x, rows at once, with scratch for each.
        Both operations read %a."""
        return f"""
func.func @f(%x: memref<?x?xf64>, %y: memref<?x?xf64>, %status: memref<i64>) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.dim %x, %c0 : memref<?x?xf64>
  %m = memref.dim %x, %c1 : memref<?x?xf64>
  "scf.parallel"(%c0, %n, %c1) <{{operandSegmentSizes = array<i32: 1, 1, 1, 0>}}> ({{
  ^bb0(%i: index):
    %t = memref.alloc(%m) : memref<?xf64>
    scf.for %j = %c0 to %m step %c1 {{
      %a = memref.load %x[%i, %j] : memref<?x?xf64>
      %b = {first}
      memref.store %b, %t[%j] : memref<?xf64>
    }}
    scf.for %j = %c0 to %m step %c1 {{
      %a = memref.load %t[%j] : memref<?xf64>
      %b = {second}
      memref.store %b, %y[%i, %j] : memref<?x?xf64>
    }}
    "scf.reduce"() : () -> ()
  }}) : (index, index, index) -> ()
"""

    def product(self, maps: list[str], kinds: str, type_: str = "f64", flags: str = RELAXED) -> ModuleOp:
        """A module C += A·B: a map for each array, as ``(i,j,k)->(i,k)``, and `p` or `r` for each dimension."""
        results = [m.split("->")[1].strip("() ") for m in maps]
        arrays = [f"memref<{'?x' * (r.count(',') + 1 if r else 0)}{type_}>" for r in results]
        iterators = ", ".join('"parallel"' if k == "p" else '"reduction"' for k in kinds)
        return self.parse(f"""
func.func @f(%a: {arrays[0]}, %b: {arrays[1]}, %c: {arrays[2]}, %status: memref<i64>) {{
  linalg.generic {{indexing_maps = [{", ".join(f"affine_map<{m}>" for m in maps)}], iterator_types = [{iterators}]}}
      ins(%a, %b : {arrays[0]}, {arrays[1]}) outs(%c : {arrays[2]}) {{
  ^bb0(%x: {type_}, %y: {type_}, %z: {type_}):
    %p = arith.mulf %x, %y{flags} : {type_}
    %s = arith.addf %z, %p{flags} : {type_}
    linalg.yield %s : {type_}
  }}
  func.return
}}""")


@pytest.fixture(scope="session")
def modules() -> Modules:
    """Ways to write modules."""
    return Modules()


@pytest.fixture
def at_once() -> Callable[[Callable[[int], None]], None]:
    """Calls a function with 0, 1, 2 and 3 in threads that begin together; what it raises in one of them is raised."""

    def call(work: Callable[[int], None]) -> None:
        begin = threading.Barrier(4)

        def one(k: int) -> None:
            begin.wait(60)
            work(k)

        with ThreadPoolExecutor(begin.parties) as pool:
            list(pool.map(one, range(begin.parties)))

    return call


def _less(machine: target.Machine, off: tuple[str, ...], **changes: Any) -> target.Machine:
    features = ",".join(f"-{f[1:]}" if f[1:].startswith(off) else f for f in machine.features.split(","))
    return replace(machine, features=features, **changes)


def machines() -> dict[str, Callable[[], target.Machine]]:
    """This processor, and what is left of it without its wider vectors."""
    avx512 = ("avx512", "avx10", "amx", "evex512")
    return {
        "host": target.host,
        "avx2": lambda: _less(target.host(), avx512, cpu="haswell", vector_bytes=32, registers=16),
        "sse2": lambda: _less(
            target.host(), (*avx512, "avx", "fma", "f16c", "vaes", "vpcl", "gfni", "sha512", "sm3", "sm4", "xop"),
            cpu="x86-64", vector_bytes=16, registers=16,
        ),
    }  # fmt: skip


@pytest.fixture(params=["host", "avx2", "sse2"])
def machine(request: pytest.FixtureRequest) -> target.Machine:
    """The processors that code is made for in these tests."""
    if request.param != "host" and not target.host().triple.startswith("x86_64"):
        pytest.skip("the narrower machines are parts of an x86-64 processor")
    return machines()[request.param]()
