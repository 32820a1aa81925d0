"""MLIR's own tools on what `--lower-loops` writes: they verify it, lower it to LLVM, and its functions are called."""

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
LOWERING = (
    "--llvm-request-c-wrappers", "--convert-linalg-to-loops", "--convert-scf-to-cf", "--expand-strided-metadata",
    "--lower-affine", "--arith-expand", "--convert-math-to-libm", "--convert-math-to-llvm", "--convert-arith-to-llvm",
    "--convert-index-to-llvm", "--finalize-memref-to-llvm", "--convert-func-to-llvm", "--convert-cf-to-llvm",
    "--reconcile-unrealized-casts",
)  # fmt: skip


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


def library(text: str, folder: Path) -> ctypes.CDLL:
    """The functions of a text, lowered and compiled by other people's tools: products are not joined with sums."""
    opt, translate = tool("mlir-opt"), tool("mlir-translate")
    assert opt is not None and translate is not None
    llvm = call([translate, "--mlir-to-llvmir"], call([opt, *LOWERING], text))
    return ctypes.CDLL(str(_compiled(llvm, folder)))


def _compiled(llvm: str, folder: Path) -> Path:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(opt=2, reloc="pic")
    module = binding.parse_assembly(llvm)
    (folder / "f.o").write_bytes(machine.emit_object(module))
    subprocess.run(["g++", "-shared", "-o", "f.so", "f.o", "-lm"], cwd=folder, check=True)
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
    status = np.zeros((), np.int64)
    held = [np.ascontiguousarray(given[n]) for n in inputs]
    passed = [*held, *outputs.values(), status]
    (name,) = re.findall(r"func\.func @(\w+)", text)
    f = getattr(library(text, folder), f"_mlir_ciface_{name}")
    f(*(ctypes.c_int64(bound[n]) for n in names), *(ctypes.byref(descriptor(a)) for a in passed))
    assert status == 0
    return outputs



def _listed(text: str, attribute: str) -> list[str]:
    """The names in an attribute of the function."""
    found = re.search(rf"{re.escape(attribute)} = \[([^\]]*)\]", text)
    assert found is not None
    return re.findall(r'"(\w+)"', found[1])
