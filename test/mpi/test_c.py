"""Divided programs as C (`upl-opt --distribute -t c`): compiled by `mpicc`, run by `mpiexec`, native code's bits on every rank."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import upl_mlir as upl
from mpi.programs import case
from upl_mlir.engines.mpi.c_source import emit_ranks
from upl_mlir.engines.native.signature import arguments_of, function_of
from upl_mlir.host.arrays import bind_parameters
from upl_mlir.passes.distribute.schedule import distribute
from upl_mlir.passes.lower_to_loops import written
from upl_mlir.passes.schedule import prepared

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
MAIN = """/* Reads arrays from files, calls the function, and writes what each rank has then. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "program.h"

static void *read_all(const char *name, size_t bytes)
{{
    void *p = malloc(bytes + 1);
    FILE *f = fopen(name, "rb");
    if (!p || !f || fread(p, 1, bytes, f) != bytes) MPI_Abort(MPI_COMM_WORLD, 9);
    fclose(f);
    return p;
}}

static void write_all(const char *name, const void *p, size_t bytes)
{{
    FILE *f = fopen(name, "wb");
    if (!f || fwrite(p, 1, bytes, f) != bytes) MPI_Abort(MPI_COMM_WORLD, 9);
    fclose(f);
}}

int main(int argc, char **argv)
{{
    int rank;
    char name[99];
    int64_t status = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
{read}
    {call}
    if (status) MPI_Abort(MPI_COMM_WORLD, 8);
{write}
    MPI_Finalize();
    return 0;
}}
"""


class Built:
    """A program as an executable, with the shapes of its results by native code."""

    def __init__(self, text: str, folder: Path, whole: bool = True):
        self.folder, self.gather = folder, "relaxed" if text.startswith("~") else "ordered"
        p, self.inputs, params = case(text)
        self.wanted = upl.compile(p, engine="native", gather="ordered")(**self.inputs, **params)
        divided = distribute(prepared(p.module, "f64", self.gather), gather=self.gather).program
        (folder / "program.c").write_text(emit_ranks(divided), encoding="utf-8")
        (folder / "program.h").write_text(emit_ranks(divided, only_header=True), encoding="utf-8")
        known = {**params, **bind_parameters(prepared(p.module, "f64", self.gather), self.inputs, params)}
        (folder / "main.c").write_text(self._main(written(divided).module, known, whole), encoding="utf-8")
        assert MPICC is not None
        command = [MPICC, *STRICT, "main.c", "-include", "program.h", "program.c", "-o", "program", "-lm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
        assert not done.returncode, done.stderr

    def _main(self, module: ModuleOp, params: dict[str, int], whole: bool) -> str:
        function = function_of(module)
        read: list[str] = []
        write: list[str] = []
        given = ["MPI_COMM_WORLD", "true" if whole else "false"]
        for a in arguments_of(function)[:-1]:
            if a.rank is None:
                given += [str(params[a.name])] if a.name in params else []
                continue
            array = self.wanted[a.name] if a.name in self.wanted else np.asarray(self.inputs[a.name], a.dtype)
            start = np.full(array.shape, 7, array.dtype) if a.name in self.wanted else array
            name = f"a{len(read)}"
            (self.folder / f"{name}.bin").write_bytes(np.ascontiguousarray(start).tobytes())
            read.append(f'    void *{name} = read_all("{name}.bin", {array.nbytes});')
            given += [name, *(str(n) for n, known in zip(array.shape, a.shape, strict=True) if known < 0)]
            if a.name in self.wanted:
                write.append(f'    snprintf(name, sizeof name, "{a.name}.%d", rank);')
                write.append(f"    write_all(name, {name}, {array.nbytes});")
        call = f"{function.sym_name.data}({', '.join([*given, '&status'])});"
        return MAIN.format(read="\n".join(read), call=call, write="\n".join(write))

    def run(self, ranks: int) -> list[dict[str, np.ndarray]]:
        """What each rank has in the arrays of results."""
        assert MPIEXEC is not None
        command = [MPIEXEC, "-n", str(ranks), "./program"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=300)
        assert not done.returncode, done.stderr
        return [
            {n: np.fromfile(self.folder / f"{n}.{r}", v.dtype).reshape(v.shape) for n, v in self.wanted.items()}
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
