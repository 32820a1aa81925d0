"""Einsum cases with what they mean in numpy, and a way to call the C++ that is made of them."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from upl_mlir.frontend import einsum

Arrays = dict[str, Any]
FLAGS = ("-std=c++11", "-O1", "-Wall", "-Wextra", "-pedantic", "-Wshadow", "-Werror", "-shared", "-fPIC")


@dataclass(frozen=True)
class Kernel:
    """A case and its meaning: `numpy` takes the inputs by name and gives the outs, for real and complex numbers."""

    name: str
    kernel: str
    ins: dict[str, tuple[int, ...]]
    outs: tuple[str, ...]
    numpy: Callable[..., tuple[Any, ...]]
    grad_to: tuple[str, ...] = ()
    data_type: str = "float"
    nonzero: frozenset[str] = field(default=frozenset())  # inputs that are divided by

    def json(self) -> str:
        """The case as its JSON text."""
        return json.dumps(
            {
                "name": self.name, "ins": list(self.ins), "outs": list(self.outs), "data_type": self.data_type,
                "kernel": self.kernel, "grad_to": list(self.grad_to),
            }
        )  # fmt: skip

    def inputs(self, seed: int = 0) -> Arrays:
        """Small integers, as floats: sums and products of them are exact."""
        rng = np.random.default_rng(seed)
        out = {n: rng.integers(-3, 4, s).astype(np.float64) for n, s in self.ins.items()}
        for n in self.nonzero:
            out[n] = rng.choice([-4.0, -2.0, -1.0, 1.0, 2.0, 4.0], self.ins[n])
        return out

    def results(self, inputs: Mapping[str, Any]) -> Arrays:
        """The outs by numpy."""
        return {n: np.asarray(v) for n, v in zip(self.outs, self.numpy(**inputs), strict=True)}

    def seeds(self, inputs: Mapping[str, Any], seed: int = 1) -> Arrays:
        """Weights for the outs."""
        rng = np.random.default_rng(seed)
        return {n: rng.integers(-3, 4, v.shape).astype(np.float64) for n, v in self.results(inputs).items()}

    def gradients(self, inputs: Mapping[str, Any], seeds: Mapping[str, Any]) -> Arrays:
        """The derivatives of the weighted outs by `grad_to`, by complex step on the numpy function."""
        out: Arrays = {}
        for n in self.grad_to:
            d = np.zeros(self.ins[n])
            for at in np.ndindex(*self.ins[n]):
                z = {m: np.array(v, dtype=complex) for m, v in inputs.items()}
                z[n][at] += 1e-30j
                d[at] = sum((seeds[o] * v).sum().imag for o, v in self.results(z).items()) / 1e-30
            out[n] = d
        return out


def _conv(B: Any, C: Any) -> Any:
    n, _, h, w = B.shape
    k, _, r, s = C.shape
    A = np.zeros((n, k, h - r + 1, w - s + 1), np.result_type(B, C))
    for p, q, i, j in np.ndindex(h - r + 1, w - s + 1, r, s):
        A[:, :, p, q] += B[:, :, p + i, q + j] @ C[:, :, i, j].T
    return A


def _window(B: Any, C: Any, at: int) -> Any:
    return sum(B[at + r + s] * C[r, s] for r, s in np.ndindex(3, 3))


def _strided(B: Any, C: Any) -> Any:
    return np.array([sum(B[2 * i + r] * C[r] for r in range(3)) for i in range(4)])


KERNELS = [
    Kernel(
        "elementwise", "C<4, 6>[i, j] = A<4, 6>[i, j] * B<4, 6>[i, j] + 1.0;", {"A": (4, 6), "B": (4, 6)}, ("C",),
        lambda A, B: (A * B + 1,), ("A",),
    ),
    Kernel(
        "rounded_down", "A<5>[i] = B<3>[(i - 3)//2 + 2] * C<3>[(i - 4)%3];", {"B": (3,), "C": (3,)}, ("A",),
        lambda B, C: (np.array([B[(i - 3) // 2 + 2] * C[(i - 4) % 3] for i in range(5)]),), ("B", "C"),
    ),
    Kernel(
        "kept_copy", "T<4>[i] = A<4>[i] * 3; A<4>[i] = B<4>[i]; C<4>[i] = T<4>[i] + A<4>[i];", {"A": (4,), "B": (4,)},
        ("A", "C"), lambda A, B: (B, 3 * A + B), ("A", "B"),
    ),
    Kernel("square", "C<4, 3>[i, j] = A<4, 3>[i, j] * A<4, 3>[i, j];", {"A": (4, 3)}, ("C",), lambda A: (A * A,), ("A",)),
    Kernel(
        "contraction", "C<4, 5>[i, j] = A<4, 6>[i, k] * B<6, 5>[k, j];", {"A": (4, 6), "B": (6, 5)}, ("C",),
        lambda A, B: (A @ B,), ("A", "B"),
    ),
    Kernel(
        "three_factors", "A<3, 4>[i, j] = B<3, 5, 2>[i, k, l] * C<5, 4>[k, j] * D<2, 4>[l, j];",
        {"B": (3, 5, 2), "C": (5, 4), "D": (2, 4)}, ("A",), lambda B, C, D: (np.einsum("ikl,kj,lj->ij", B, C, D),),
        ("B", "C"),
    ),
    Kernel(
        "convolution", "A<1, 2, 3, 3>[n, k, p, q] = B<1, 3, 5, 5>[n, c, p + r, q + s] * C<2, 3, 3, 3>[k, c, r, s];",
        {"B": (1, 3, 5, 5), "C": (2, 3, 3, 3)}, ("A",), lambda B, C: (_conv(B, C),), ("B", "C"),
    ),
    Kernel("transposed", "B<5, 3>[i, j] = A<3, 5>[j, i];", {"A": (3, 5)}, ("B",), lambda A: (A.T,), ("A",)),
    Kernel(
        "broadcast", "A<4, 3>[i, j] = B<4>[i] * C<3>[j] + s<1>;", {"B": (4,), "C": (3,), "s": ()}, ("A",),
        lambda B, C, s: (np.multiply.outer(B, C) + s,), ("B", "C", "s"),
    ),
    Kernel("spread", "A<4, 3>[i, j] = B<4>[i];", {"B": (4,)}, ("A",), lambda B: (np.stack([B] * 3, 1),), ("B",)),
    Kernel("flatten", "B<32>[i] = A<2, 16>[i//16, i%16];", {"A": (2, 16)}, ("B",), lambda A: (A.reshape(32),), ("A",)),
    Kernel(
        "unflatten", "B<3, 8>[(4*i + j)//8, (4*i + j)%8] = A<6, 4>[i, j] / 2;", {"A": (6, 4)}, ("B",),
        lambda A: (A.reshape(3, 8) / 2,), ("A",),
    ),
    Kernel(
        "stencil", "A<4, 3>[i, j] = (B<6, 3>[i, j] + B<6, 3>[i + 1, j] + B<6, 3>[i + 2, j]) / 4.0;", {"B": (6, 3)}, ("A",),
        lambda B: ((B[:-2] + B[1:-1] + B[2:]) / 4,), ("B",),
    ),
    Kernel(
        "repeated", "A<4>[i] = B<4>[i] * B<4>[i] * B<4>[3 - i] + B<4>[0];", {"B": (4,)}, ("A",),
        lambda B: (B * B * B[::-1] + B[0],), ("B",),
    ),
    Kernel(
        "diagonal", "d<4>[i] = A<4, 4>[i, i] * B<4>[i];", {"A": (4, 4), "B": (4,)}, ("d",),
        lambda A, B: (np.diagonal(A) * B,), ("A", "B"),
    ),
    Kernel("trace", "t<1> = A<4, 4>[i, i];", {"A": (4, 4)}, ("t",), lambda A: (np.trace(A),), ("A",)),
    Kernel(
        "onto_diagonal", "A<3, 3>[i, i] = B<3>[i];", {"B": (3,)}, ("A",), lambda B: (np.diag(B),), ("B",),
    ),
    Kernel(
        "strided", "A<4>[i] = B<9>[2*i + r] * C<3>[r];", {"B": (9,), "C": (3,)}, ("A",), lambda B, C: (_strided(B, C),),
        ("B", "C"),
    ),
    Kernel(
        "dilated", "A<4>[i] = B<10>[i + 3*r] * C<3>[r];", {"B": (10,), "C": (3,)}, ("A",),
        lambda B, C: (sum(B[3 * r : 3 * r + 4] * C[r] for r in range(3)),), ("B", "C"),
    ),
    Kernel(
        "two_strides", "A<4>[i] = B<13>[2*i + 3*r] * C<3>[r];", {"B": (13,), "C": (3,)}, ("A",),
        lambda B, C: (np.array([sum(B[2 * i + 3 * r] * C[r] for r in range(3)) for i in range(4)]),), ("B", "C"),
    ),
    Kernel(
        "window_of_many", "A<3, 3>[i, j] = B<9>[i + j + r + s] * C<3, 3>[r, s];", {"B": (9,), "C": (3, 3)}, ("A",),
        lambda B, C: (np.array([[_window(B, C, i + j) for j in range(3)] for i in range(3)]),), ("B", "C"),
    ),
    Kernel(
        "circulant", "A<4>[i] = B<4>[(i + r) % 4] * C<4>[r];", {"B": (4,), "C": (4,)}, ("A",),
        lambda B, C: (np.array([np.roll(B, -i) @ C for i in range(4)]),), ("B", "C"),
    ),
    Kernel(
        "periodic", "A<7, 2>[i, j] = B<3, 2>[i % 3, j] * C<4>[i // 2];", {"B": (3, 2), "C": (4,)}, ("A",),
        lambda B, C: (np.array([B[i % 3] * C[i // 2] for i in range(7)]),), ("B", "C"),
    ),
    Kernel(
        "pooling", "A<3>[i] = (B<6>[2*i] + B<6>[2*i + 1]) / 2;", {"B": (6,)}, ("A",), lambda B: ((B[::2] + B[1::2]) / 2,),
        ("B",),
    ),
    Kernel(
        "interleaved", "A<8>[2*i] = B<4>[i]; A<8>[2*i + 1] = B<4>[i] * C<4>[i];", {"B": (4,), "C": (4,)}, ("A",),
        lambda B, C: (np.stack([B, B * C], 1).reshape(8),), ("B", "C"),
    ),
    Kernel(
        "shifted", "A<4>[i] = B<4>[i + 1];", {"B": (4,)}, ("A",), lambda B: (np.concatenate([B[1:], [0]]),), ("B",),
    ),
    Kernel(
        "gemm", "C<3, 4>[i, j] = a<1> * (A<3, 5>[i, k] * B<5, 4>[k, j]) + b<1> * C<3, 4>[i, j];",
        {"a": (), "b": (), "A": (3, 5), "B": (5, 4), "C": (3, 4)}, ("C",), lambda a, b, A, B, C: (a * (A @ B) + b * C,),
        ("A", "b", "C"),
    ),
    Kernel(
        "in_place", "A<4>[i] = A<4>[3 - i] * A<4>[i] + A<4>[i];", {"A": (4,)}, ("A",), lambda A: (A[::-1] * A + A,), ("A",),
    ),
    Kernel(
        "part_in_place", "A<4>[i] = A<4>[i] + A<4>[i + 1];", {"A": (4,)}, ("A",),
        lambda A: (np.concatenate([A[:-1] + A[1:], A[3:]]),), ("A",),
    ),
    Kernel(
        "statements",
        "T<3, 4>[i, j] = A<3, 2>[i, k] * B<2, 4>[k, j];\nR<3>[i] = T<3, 4>[i, j] * T<3, 4>[i, j];\n"
        "T<3, 4>[i, j] = T<3, 4>[i, j] - R<3>[i];\nL<1> = T<3, 4>[i, j] * R<3>[i];",
        {"A": (3, 2), "B": (2, 4)}, ("T", "L"),
        lambda A, B: ((T := A @ B) - (R := (T * T).sum(1))[:, None], ((T - R[:, None]) * R[:, None]).sum()), ("A", "B"),
    ),
    Kernel(
        "quotient", "A<4>[i] = B<4>[i] / (C<4>[i] * C<4>[i] + 1) - -B<4>[i];", {"B": (4,), "C": (4,)}, ("A",),
        lambda B, C: (B / (C * C + 1) + B,), ("B", "C"),
    ),
    Kernel(
        "by_part", "y<1> = a<4>[i] / b<4>[i];", {"a": (4,), "b": (4,)}, ("y",), lambda a, b: ((a / b).sum(),), ("a", "b"),
        nonzero=frozenset("b"),
    ),
    Kernel(
        "read_in_four_ways", "y<1> = a<5>[i] * a<5>[i] * a<5>[4 - i] * a<5>[i//2];", {"a": (5,)}, ("y",),
        lambda a: ((a * a * a[::-1] * a[np.arange(5) // 2]).sum(),), ("a",),
    ),
    Kernel(
        "upsampled", "A<6, 4>[i, j] = B<3, 2>[i//2, j//2] * C<2>[i%2];", {"B": (3, 2), "C": (2,)}, ("A",),
        lambda B, C: (B.repeat(2, 0).repeat(2, 1) * np.tile(C, 3)[:, None],), ("B", "C"),
    ),
    Kernel(
        "written_and_read", "A<6>[i + 1] = B<4>[i] * A<6>[i + 2];", {"A": (6,), "B": (4,)}, ("A",),
        lambda A, B: (np.concatenate([A[:1], B * A[2:6], A[5:]]),), ("B", "A"),
    ),
    Kernel(
        "rounded", "A<4>[i] = B<4>[i] // 2 * B<4>[i] + B<4>[i] % 2;", {"B": (4,)}, ("A",),
        lambda B: (np.floor(B.real / 2) * B + B - 2 * np.floor(B.real / 2),), ("B",),
    ),
    Kernel("constant", "A<3, 2>[i, j] = 2 /* of the type */;  # in float", {}, ("A",), lambda: (np.full((3, 2), 2.0),)),
    # where sums stand in nested terms
    Kernel(
        "inner_term", "A<4>[i] = x<1> * (B<4, 3>[i, k] * C<3>[k] + D<4>[i]);",
        {"x": (), "B": (4, 3), "C": (3,), "D": (4,)}, ("A",), lambda x, B, C, D: (x * (B @ C + D),), ("x", "B", "D"),
    ),
    Kernel(
        "each_inner_term", "A<4>[i] = (B<4, 3>[i, k] + C<4, 3>[i, k] + D<4>[i]) * D<4>[i];",
        {"B": (4, 3), "C": (4, 3), "D": (4,)}, ("A",), lambda B, C, D: ((B.sum(1) + C.sum(1) + D) * D,), ("C", "D"),
    ),
    Kernel(
        "shared_index", "A<4>[i] = (B<4, 3>[i, k] + C<4>[i]) * D<3>[k];", {"B": (4, 3), "C": (4,), "D": (3,)}, ("A",),
        lambda B, C, D: ((B + C[:, None]) @ D,), ("B", "C", "D"),
    ),
    Kernel(
        "sum_in_divisor", "A<4>[i] = E<4>[i] / (B<4, 3>[i, k] * B<4, 3>[i, k] + 1);", {"E": (4,), "B": (4, 3)}, ("A",),
        lambda E, B: (E / ((B * B).sum(1) + 1),), ("E", "B"),
    ),
    Kernel(
        "terms_apart", "A<4>[i] = B<4, 3>[i, k] - C<4>[i] + D<5>[k2];", {"B": (4, 3), "C": (4,), "D": (5,)}, ("A",),
        lambda B, C, D: (B.sum(1) - C + D.sum(),), ("B", "C", "D"),
    ),
]  # fmt: skip

INT_KERNELS = [
    Kernel(
        "int_dot", "A<4>[i] = B<4, 3>[i, k] * C<3>[k] * 2 - 1;", {"B": (4, 3), "C": (3,)}, ("A",),
        lambda B, C: (2 * (B @ C) - 1,), ("B", "C"), "int",
    ),
    Kernel(
        "int_division", "Q<6>[i] = B<6>[i] / C<6>[i]; F<6>[i] = B<6>[i] // C<6>[i]; M<6>[i] = B<6>[i] % C<6>[i];",
        {"B": (6,), "C": (6,)}, ("Q", "F", "M"), lambda B, C: (np.trunc(B / C), B // C, B % C), (), "int", frozenset("C"),
    ),
]  # fmt: skip


@pytest.fixture(params=KERNELS, ids=lambda k: k.name)
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """Each case on floats."""
    return request.param


@pytest.fixture
def kernels() -> dict[str, Kernel]:
    """The cases on floats by name."""
    return {k.name: k for k in KERNELS}


@pytest.fixture(params=INT_KERNELS, ids=lambda k: k.name)
def int_kernel(request: pytest.FixtureRequest) -> Kernel:
    """Each case on integers."""
    return request.param


@dataclass(frozen=True)
class Cpp:
    """A compiled function: its parameters by name, in order, and how to call it."""

    text: str
    parameters: tuple[str, ...]
    function: Any
    dtype: Any

    def __call__(self, **arrays: Any) -> Arrays:
        """Call it; every parameter that is not given starts as NaN (or a large number), and all come back."""
        shapes = dict(re.findall(r"(?:float|int) \(?&(\w+)\)?((?:\[\d+\])*)", self.text))
        junk = np.nan if self.dtype == np.float32 else 12345
        data = {
            n: np.full(tuple(map(int, re.findall(r"\d+", shapes[n]))), junk, self.dtype) for n in self.parameters
        }  # fmt: skip
        for n in self.parameters:
            if n in arrays:
                data[n][...] = arrays[n]
        self.function(*(data[n].ctypes.data_as(ctypes.c_void_p) for n in self.parameters))
        return data


CppCompiler = Callable[[str], Cpp]


def compile_all(texts: Sequence[str], folder: Path) -> list[Cpp]:
    """Compile the texts of functions, each in a namespace of its own, without a warning, and load them."""
    compiler = shutil.which("g++") or shutil.which("c++")
    assert compiler is not None, "the tests need a C++ compiler"
    includes: dict[str, None] = {}
    parts: list[str] = []
    found: list[tuple[str, tuple[str, ...], Any]] = []
    for n, text in enumerate(texts):
        function = re.search(r"^void (\w+)\((.*)\) \{$", text, re.MULTILINE)
        assert function is not None, text
        declared = function.group(2).split(", ")
        parameters = tuple(re.search(r"&(\w+)", p).group(1) for p in declared)  # pyright: ignore
        types = [re.sub(f"&{p}", "*", t) for p, t in zip(parameters, declared, strict=True)]
        args = ", ".join(f"*reinterpret_cast<{t}>({p})" for p, t in zip(parameters, types, strict=True))
        includes |= dict.fromkeys(re.findall(r"^#include.*$", text, re.MULTILINE))
        body = re.sub(r"^#include.*$", "", text, flags=re.MULTILINE)
        pointers = ", ".join(f"void *{p}" for p in parameters)
        call = f'extern "C" void call{n}({pointers}) {{ unit{n}::{function.group(1)}({args}); }}'
        parts.append(f"namespace unit{n} {{\n{body}}}\n{call}\n")
        found.append((text, parameters, np.int32 if declared[0].startswith("int") else np.float32))
    source, library = folder / "functions.cpp", folder / f"functions_{abs(hash(tuple(texts)))}.so"
    source.write_text("\n".join([*includes, *parts]), encoding="utf-8")
    command = [compiler, *FLAGS, str(source), "-o", str(library)]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    assert run.returncode == 0 and not run.stderr, f"{run.stderr}\n{texts}"
    loaded = ctypes.CDLL(str(library))
    return [Cpp(text, names, getattr(loaded, f"call{n}"), dtype) for n, (text, names, dtype) in enumerate(found)]


@pytest.fixture
def compile_cpp(tmp_path: Path) -> CppCompiler:
    """Compile the text of a function, without a warning, and load it."""
    return lambda text: compile_all([text], tmp_path)[0]


@pytest.fixture
def compile_many(tmp_path: Path) -> Callable[[Sequence[str]], list[Cpp]]:
    """The same for many functions, by one call of the compiler."""
    return lambda texts: compile_all(texts, tmp_path)


@pytest.fixture(scope="session")
def compile_texts() -> Callable[[Sequence[str], Path], list[Cpp]]:
    """`compile_all`, for fixtures that keep what they compile."""
    return compile_all


@pytest.fixture(scope="session")
def cpp_of_kernels(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Kernel, bool], Cpp]:
    """The function, or the gradient, of one of the kernels above: all are compiled together, when the first is asked for."""
    folder = tmp_path_factory.mktemp("kernels")
    made: dict[tuple[str, bool], Cpp | Exception] = {}

    def make() -> None:
        texts: dict[tuple[str, bool], str] = {}
        for k in (*KERNELS, *INT_KERNELS):
            for grad in (False, True) if k.grad_to else (False,):
                try:
                    texts[k.name, grad] = einsum.cpp_of(einsum.read(k.json()), grad=grad)
                except Exception as e:  # the test of this kernel shall fail, not those of all others
                    made[k.name, grad] = e
        made.update(zip(texts, compile_all(list(texts.values()), folder), strict=True))

    def get(kernel: Kernel, grad: bool) -> Cpp:
        if not made:
            make()
        out = made[kernel.name, grad]
        if isinstance(out, Exception):
            raise out
        return out

    return get
