"""MLIR's own tools on what `--lower-loops` and `--lower-linalg` write: they verify it, lower it to LLVM, and its functions
are called."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

import upl_mlir as upl
from upl_mlir.host.arrays import bind_arrays, bind_parameters, host_ports

VERSIONS = ("", "-22", "-21", "-20", "-19", "-18")
"""What Debian calls the tools of each version behind their names."""
TENSORS = (
    (
        "--one-shot-bufferize=bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map "
        "allow-return-allocs-from-loops"
    ),
    "--fold-memref-alias-ops",
)
"""Tensors become memrefs."""
LOWERING = (
    "--llvm-request-c-wrappers", "--convert-linalg-to-loops", "--convert-scf-to-cf", "--expand-strided-metadata",
    "--lower-affine", "--arith-expand", "--convert-math-to-llvm", "--convert-math-to-libm", "--convert-arith-to-llvm",
    "--convert-index-to-llvm", "--finalize-memref-to-llvm", "--convert-func-to-llvm", "--convert-cf-to-llvm",
    "--reconcile-unrealized-casts",
)  # fmt: skip


COPY = r"""
#include <stdint.h>
#include <string.h>
typedef struct { int64_t rank; void *memref; } Unranked;
typedef struct { char *allocated, *aligned; int64_t offset, sizes_and_strides[]; } Memref;
void memrefCopy(int64_t bytes, Unranked *from, Unranked *to) {
  int64_t rank = from->rank, elements = 1;
  Memref *a = from->memref, *b = to->memref;
  for (int64_t i = 0; i < rank; i++) elements *= a->sizes_and_strides[i];
  for (int64_t n = 0; n < elements; n++) {
    int64_t rest = n, x = a->offset, y = b->offset;
    for (int64_t i = rank - 1; i >= 0; i--) {
      int64_t at = rest % a->sizes_and_strides[i];
      rest /= a->sizes_and_strides[i];
      x += at * a->sizes_and_strides[rank + i];
      y += at * b->sizes_and_strides[rank + i];
    }
    memcpy(b->aligned + y * bytes, a->aligned + x * bytes, bytes);
  }
}
"""
"""The function of MLIR's runner that copies a memref, whose library Debian packs apart."""


def tool(name: str) -> str | None:
    """The newest `mlir-opt` or `mlir-translate` that is installed."""
    return next((found for v in VERSIONS if (found := shutil.which(name + v))), None)


def call(command: list[str], text: str) -> str:
    """What a tool makes of a text.  Raises AssertionError with its words."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[:2000]
    return done.stdout


def verified(text: str) -> None:
    """MLIR takes the text."""
    name = tool("mlir-opt")
    assert name is not None
    call([name, "-o", "/dev/null"], text)


def on_tensors(text: str) -> bool:
    """Whether the function of a text takes tensors, not memrefs."""
    return "memref<" not in next(line for line in text.splitlines() if "func.func" in line)


def library(text: str, folder: Path) -> ctypes.CDLL:
    """The functions of a text, lowered and compiled by other people's tools: products are not joined with sums."""
    opt, translate = tool("mlir-opt"), tool("mlir-translate")
    assert opt is not None and translate is not None
    tensors = TENSORS if on_tensors(text) else ()
    llvm = call([translate, "--mlir-to-llvmir"], call([opt, *tensors, *LOWERING], text))
    return ctypes.CDLL(str(_compiled(llvm, folder)))


def _compiled(llvm: str, folder: Path) -> Path:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(opt=2, reloc="pic")
    module = binding.parse_assembly(llvm)
    (folder / "f.o").write_bytes(machine.emit_object(module))
    (folder / "copy.c").write_text(COPY, encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", "f.so", "f.o", "copy.c", "-lm"], cwd=folder, check=True)
    return folder / "f.so"


def descriptor(a: Any) -> Any:
    """An array as MLIR passes it: allocated and aligned pointer, offset, sizes, strides."""
    rank = a.ndim

    class Memref(ctypes.Structure):
        _fields_ = (
            ("allocated", ctypes.c_void_p), ("aligned", ctypes.c_void_p), ("offset", ctypes.c_int64),
            *((("sizes", ctypes.c_int64 * rank), ("strides", ctypes.c_int64 * rank)) if rank else ()),
        )  # fmt: skip

    fields = [a.ctypes.data, a.ctypes.data, 0]
    if rank:
        fields += [(ctypes.c_int64 * rank)(*a.shape), (ctypes.c_int64 * rank)(*(s // a.itemsize for s in a.strides))]
    return Memref(*fields)


def run(p: upl.Program, text: str, arrays: dict[str, Any], folder: Path, **params: int) -> dict[str, Any]:
    """A lowered program on arrays, by MLIR's own way to machine code."""
    names, inputs, results = (_listed(text, f"upl.{what}") for what in ("parameters", "inputs", "outputs"))
    op = p.expanded().infer_domains().op
    bound = bind_parameters(op, arrays, params)
    ports = host_ports(op, bound, np.dtype(np.float64))
    given = bind_arrays(op, ports, arrays)
    outputs = {name: ports[name].zeros() for name in results}
    held = [np.ascontiguousarray(given[n]) for n in inputs]
    (name,) = re.findall(r"func\.func @(\w+)", text)
    f = getattr(library(text, folder), f"_mlir_ciface_{name}")
    numbers = [ctypes.c_int64(bound[n]) for n in names]
    status = np.zeros((), np.int64)
    if on_tensors(text):
        signature = re.search(r"-> (.*?) attributes", text)
        returned = signature[1].count("tensor<") if signature else 0
        wanted = [*outputs.values(), status][:returned]
        got = _results(wanted)
        f(*([ctypes.byref(got)] if got else []), *numbers, *(ctypes.byref(descriptor(a)) for a in held))
        for a, d in zip(wanted, _fields(got, returned), strict=True):
            _taken(a, d)
    else:
        f(*numbers, *(ctypes.byref(descriptor(a)) for a in (*held, *outputs.values(), status)))
    assert status == 0
    return outputs


def _results(wanted: list[Any]) -> Any:
    """Room for the descriptors that a function returns: one, or a structure of them; None for none."""
    found = [descriptor(a) for a in wanted]
    if len(found) < 2:
        return found[0] if found else None
    fields = tuple((f"result{i}", type(d)) for i, d in enumerate(found))
    return type("Results", (ctypes.Structure,), {"_fields_": fields})()


def _fields(got: Any, number: int) -> list[Any]:
    return [got][:number] if number < 2 else [getattr(got, f"result{i}") for i in range(number)]


def _taken(a: Any, d: Any) -> None:
    """Copy what a function returned."""
    if not a.size:
        return
    assert a.ndim == 0 or tuple(d.sizes) == a.shape
    data = (ctypes.c_char * a.nbytes).from_address(d.aligned + d.offset * a.itemsize)
    a[...] = np.frombuffer(data, a.dtype).reshape(a.shape)


def _listed(text: str, attribute: str) -> list[str]:
    """The names in an attribute of the function."""
    found = re.search(rf"{re.escape(attribute)} = \[([^\]]*)\]", text)
    assert found is not None
    return re.findall(r'"(\w+)"', found[1])
