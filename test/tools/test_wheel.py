"""The wheel and the source distribution: built, installed into an empty environment, and used from a folder that is not
the checkout.  What they need at run time comes along: the page, the layout engine, the C++ sources."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ("picture/page/page.html", "picture/page/page.js", "picture/elk/elk-worker.min.js", "hw/sim/harness.cpp", "py.typed")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both distributions; the wheel is made of the source distribution, so that has all it needs."""
    pytest.importorskip("build", reason="no Python package `build` here")
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", folder, ROOT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def test_what_is_in_them(built: Path) -> None:
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    assert {f"upl_mlir/{name}" for name in DATA} <= names
    tracked = subprocess.run(["git", "ls-files", "upl_mlir"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(tracked.stdout.split()) <= names, "a file of the package is not in the wheel"
    assert not any(n.startswith(("test/", "docs/", "bench/")) for n in names)
    with tarfile.open(source) as file:
        inside = {n.partition("/")[2] for n in file.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "examples/perceptron.upl", "editors/upl_lexer.py"} <= inside


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that has the wheel and nothing that the checkout has."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    (wheel,) = built.glob("*.whl")
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[draw]"]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "bin"


def test_it_works_from_the_wheel_alone(installed: Path, tmp_path: Path) -> None:
    """Check, differentiate, run on the engines that compile, draw, view and explain."""
    program = tmp_path / "matmul.upl"
    program.write_text((ROOT / "examples" / "matmul.upl").read_text(encoding="utf-8"), encoding="utf-8")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment = {**kept, "UPL_CACHE_DIR": str(tmp_path / "cache")}
    (tmp_path / "cache").mkdir(mode=0o700)

    def upl(*args: str) -> str:
        done = subprocess.run(
            [installed / "upl", *args], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "18 proved" in upl("check", "matmul.upl")
    upl("grad", "matmul.upl", "--of", "C", "--wrt", "A,B", "-o", "gradient.upl")
    arrays = ("--input", "A=[[1,2],[3,4]]", "--input", "B=[[1,0],[0,2]]")
    given = (*arrays, "--input", "d_C=[[1,1],[1,1]]")
    shown = {upl("run", "gradient.upl", "--engine", engine, "--gather", "ordered", *given) for engine in
             ("interp", "native", "token")}  # fmt: skip
    assert len(shown) == 1 and "d_A =\n[[1. 2.]\n [1. 2.]]" in shown.pop()
    upl("draw", "matmul.upl", "-o", "matmul.svg")
    assert (tmp_path / "matmul.svg").read_text(encoding="utf-8").startswith("<svg")
    upl("run", "matmul.upl", *arrays, "--trace", "t.json")
    upl("view", "matmul.upl", "--trace", "t.json", "-o", "matmul.html")
    assert "</html>" in (tmp_path / "matmul.html").read_text(encoding="utf-8")
    assert "reversed arrow" in upl("explain", "matmul.upl", "--of", "C", "--wrt", "A")
    where = subprocess.run(
        [installed / "python", "-c", "import upl_mlir; print(upl_mlir.__file__)"], cwd=tmp_path, env=environment,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(where.stdout.strip()).is_relative_to(installed.parent)
