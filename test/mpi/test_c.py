"""Divided programs as C (`upl-opt --distribute -t c`): compiled by `mpicc`, run by `mpiexec`, with native code's bits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from mpi.programs import case
from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl.query import poly_context
from upl_mlir.engines.mpi.c_source import emit_ranks
from upl_mlir.engines.native.llvm.values import Argument
from upl_mlir.engines.native.signature import arguments_of, function_of
from upl_mlir.host.arrays import bind_parameters, host_ports
from upl_mlir.passes.distribute.schedule import distribute
from upl_mlir.passes.lower_to_loops import written
from upl_mlir.passes.schedule import prepared
from upl_mlir.tools.upl_opt import main as upl_opt

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
MPICC, MPIEXEC = (shutil.which(name, path=PATH) for name in ("mpicc", "mpiexec"))
needs_mpicc = pytest.mark.skipif(
    MPICC is None or MPIEXEC is None, reason="mpicc is not installed: pip install 'upl-mlir[mpi]'"
)
STRICT = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"]
QUICK = ("jacobi2d@3", "jacobi2d@3:B:A", "floyd_warshall@3", "gmm")
SLOW = (
    "jacobi1d@6", "wave@3", "wave@2:Y:U0,C", "conv2d@2:Y:X,G", "softmax", "matmul@2:C:A,B", "lstm", "mds:Stress:X",
    "iris_batch:R:X", "upsample", "mlp:Loss:W,B",
    *(f"bench:{name}" for name in ("heat3d", "nbody", "regression", "mlp-gradient", "heat3d-gradient", "nbody-gradient")),
)  # fmt: skip
RELAXED = ("~bench:regression", "~gmm:L:X", "~softmax", "~iris_batch:R:X")
MAIN = """/* Reads arrays from files, calls the function, and writes what the rank has then. */
#include <stdio.h>
#include <stdlib.h>
#include "program.h"

static void *of_file(const char *array, int rank, size_t bytes, bool out, void *p)
{{
    char name[99];
    snprintf(name, sizeof name, "%s.%d", array, rank);
    FILE *f = fopen(name, out ? "wb" : "rb");
    if (!out) p = malloc(bytes + 1);
    if (!f || !p || (out ? fwrite(p, 1, bytes, f) : fread(p, 1, bytes, f)) != bytes) MPI_Abort(MPI_COMM_WORLD, 9);
    fclose(f);
    return p;
}}

int main(int argc, char **argv)
{{
    int rank;
    int64_t status = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
{body}
    MPI_Finalize();
    return 0;
}}
"""


class Built:
    """A program as an executable, its inputs, and its results by native code.

    The C function takes arrays of the boxes that its comment tells: `boxes` are their shapes, `parts` where in them the
    ports' own elements lie.
    """

    def __init__(self, text: str, folder: Path, *, whole: bool = True):
        """With `whole` ranks get whole results."""
        self.folder, self.gather = folder, "relaxed" if text.startswith("~") else "ordered"
        p, given, params = case(text)
        self.wanted = upl.compile(p, engine="native", gather="ordered")(**given, **params)
        program = prepared(p.module, "f64", self.gather)
        divided = distribute(program, gather=self.gather).program
        lowered = written(divided)
        self.arguments = arguments_of(function_of(lowered.module))[:-1]
        self.params = bind_parameters(program, given, params)
        read, ports = poly_context(program).read, host_ports(program, self.params, np.dtype(np.float64))
        self.boxes: dict[str, tuple[int, ...]] = {}
        self.parts: dict[str, tuple[slice, ...]] = {}
        for n, layout in lowered.layouts.items():
            low, shape = (tuple(e.evaluate(self.params, read) for e in x) for x in (layout.lower, layout.shape))
            ends = [(o - x, o - x + size) for o, x, size in zip(ports[n].origin, low, ports[n].shape, strict=True)]
            self.parts[n] = tuple(slice(*(e if size else (0, 0))) for e, size in zip(ends, ports[n].shape, strict=True))
            self.boxes[n] = tuple(max(0, size) for size in shape)
        self.inputs = {a.name: self._placed(a, given[a.name]) for a in self.arguments if a.name in given}
        (folder / "program.c").write_text(emit_ranks(divided), encoding="utf-8")
        (folder / "program.h").write_text(emit_ranks(divided, only_header=True), encoding="utf-8")
        (folder / "main.c").write_text(self._main(whole), encoding="utf-8")
        assert MPICC is not None
        command = [MPICC, *STRICT, "main.c", "program.c", "-o", "program", "-lm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
        assert not done.returncode, done.stderr

    def _placed(self, a: Argument, values: Any) -> Any:
        """An input in the array of the C function."""
        out = np.zeros(self.boxes[a.name], a.dtype)
        out[self.parts[a.name]] = values
        return out

    def _main(self, whole: bool) -> str:
        lines: list[str] = []
        given = ["MPI_COMM_WORLD", "true" if whole else "false"]
        arrays = [a for a in self.arguments if a.rank is not None]
        given += [str(self.params[a.name]) for a in self.arguments if a.rank is None and a.name in self.params]
        sizes = {a.name: np.dtype(a.dtype).itemsize * int(np.prod(self.boxes[a.name])) for a in arrays}
        for number, a in enumerate(arrays):
            lines.append(f'void *array{number} = of_file("{a.name}", rank, {sizes[a.name]}, false, NULL);')
            given += [f"array{number}", *(str(n) for n, known in zip(self.boxes[a.name], a.shape, strict=True) if known < 0)]
        name = self.folder.joinpath("program.h").read_text(encoding="utf-8").split(":", 1)[0].removeprefix("/* ")
        lines += [f"{name}({', '.join([*given, '&status'])});", "if (status) MPI_Abort(MPI_COMM_WORLD, 8);"]
        for number, a in enumerate(arrays):
            if a.name in self.wanted:
                lines.append(f'of_file("{a.name}", rank, {sizes[a.name]}, true, array{number});')
        return MAIN.format(body="\n".join(f"    {line}" for line in lines))

    def run(self, ranks: int, inputs: Callable[[int], Mapping[str, Any]] = lambda _: {}) -> list[dict[str, Any]]:
        """What each rank has in the arrays of results, full of sevens before; `inputs` are other inputs of a rank."""
        assert MPIEXEC is not None
        sevens = {n: np.full(self.boxes[n], 7, v.dtype) for n, v in self.wanted.items()}
        for rank in range(ranks):
            for n, v in {**self.inputs, **inputs(rank), **sevens}.items():
                (self.folder / f"{n}.{rank}").write_bytes(np.ascontiguousarray(v).tobytes())
        command = [MPIEXEC, "-n", str(ranks), "./program"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=300)
        assert not done.returncode, done.stderr
        return [
            {n: np.fromfile(self.folder / f"{n}.{r}", v.dtype).reshape(v.shape)[self.parts[n]] for n, v in sevens.items()}
            for r in range(ranks)
        ]


def agrees(text: str, folder: Path, counts: tuple[int, ...]) -> None:
    """Every rank has native code's results, of any number of ranks."""
    built = Built(text, folder)
    for ranks in counts:
        for found in built.run(ranks):
            for n, v in built.wanted.items():
                if built.gather == "ordered":
                    assert found[n].tobytes() == v.tobytes(), (text, ranks, n)
                else:
                    np.testing.assert_allclose(found[n], v, rtol=1e-11, atol=1e-11, err_msg=f"{text} on {ranks}: {n}")


@needs_mpicc
@pytest.mark.parametrize("text", QUICK)
def test_programs_on_one_to_three_ranks(text: str, tmp_path: Path) -> None:
    agrees(text, tmp_path, (1, 2, 3))


@needs_mpicc
@pytest.mark.slow
@pytest.mark.parametrize("text", [*SLOW, *RELAXED])
def test_more_programs(text: str, tmp_path: Path) -> None:
    agrees(text, tmp_path, (2, 3, 4))


@needs_mpicc
@pytest.mark.slow
def test_random_programs(tmp_path: Path) -> None:
    """They are equal, or nothing can be cut."""
    refused = 0
    for seed in (*range(120, 140), 184):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            agrees(f"random:{seed}", folder, (2, 3))
        except UplError as e:
            assert e.diagnostics[0].code in ("UPL2101", "UPL1825")
            refused += 1
    assert refused < 10


@needs_mpicc
def test_blocks_only(tmp_path: Path) -> None:
    """Without whole results a rank reads and writes its blocks of arrays: what it has of others may be anything."""
    built, ranks = Built("jacobi2d@3", tmp_path, whole=False), 3
    a, b = built.inputs["A"], built.wanted["B"]
    ends = [len(a) * r // ranks for r in range(ranks + 1)]

    def mine(rank: int) -> dict[str, Any]:
        own = np.full(a.shape, np.nan)
        own[ends[rank] : ends[rank + 1]] = a[ends[rank] : ends[rank + 1]]
        return {"A": own}

    for rank, found in enumerate(built.run(ranks, mine)):
        expected = np.full(b.shape, 7.0)
        expected[ends[rank] : ends[rank + 1]] = b[ends[rank] : ends[rank + 1]]
        assert found["B"].tobytes() == expected.tobytes()
        assert found["Change"] == built.wanted["Change"]


def divided(name: str, folder: Path, options: str) -> Path:
    """The loops of one rank, as a file."""
    path = folder / "ranks.mlir"
    assert not upl_opt([str(EXAMPLES / f"{name}.upl"), f"--distribute={options}", "-o", str(path)])
    return path


def test_an_edited_text_is_proved_before_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = divided("wave", tmp_path, "gather=ordered,steps=1"), tmp_path / "wave.c"
    text = path.read_text(encoding="utf-8")
    assert "first1-1.." in text
    assert not upl_opt([str(path), "-t", "c", "-o", str(out)]) and "MPI_Isend" in out.read_text(encoding="utf-8")
    path.write_text(text.replace("i in 0, first1-1..", "i in 0, first1.."), encoding="utf-8")
    assert upl_opt([str(path), "-t", "c", "-o", str(tmp_path / "wrong.c")]) == 1
    assert "UPL1830" in capsys.readouterr().err and not (tmp_path / "wrong.c").exists()


def test_lowered_loops_have_no_exchanges_to_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = divided("floyd_warshall", tmp_path, "gather=ordered")
    assert upl_opt([str(path), "--lower-loops", "-t", "c"]) == 1
    error = capsys.readouterr().err
    assert "error[UPL1820]" in error and "leave out `--lower-loops`" in error


def test_an_exchanged_array_with_a_step_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No pass makes one; an edited text may have it, and is right."""
    path = divided("floyd_warshall", tmp_path, "gather=ordered")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('2 from 0 size n"', '2 from 0 size n every 1"'), encoding="utf-8")
    assert not upl_opt([str(path), "--lower-loops"])
    assert capsys.readouterr().out
    assert upl_opt([str(path), "-t", "c"]) == 1
    assert "ranks.mlir:9:5: error[UPL1820]: C code does not exchange `Dist.d`" in capsys.readouterr().err
