"""The package with marks: a function that has the place of a change says so when it comes there.

A mark is a call before the statement that holds the place.  What is executed while a module is loaded tells nothing about
tests; for such a place each function of the file has a mark at its start.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from mutation.operators import node_of
from mutation.overlay import PACKAGE, ROOT

MARK = "_upl_mark"
"""The name of the function that is called, among the builtins."""


def marked(source: str, numbers: Mapping[int, int]) -> ast.Module:
    """A file with marks.  `numbers`: the number of a place in the file, and what its mark says."""
    tree = ast.parse(source)
    before: dict[int, list[int]] = {}
    everywhere: list[int] = []
    for place, says in numbers.items():
        statement = _statement_of(tree, node_of(tree, place))
        if statement is None:
            everywhere.append(says)
        else:
            before.setdefault(id(statement), []).append(says)
    for node in list(ast.walk(tree)):
        for name, block in ast.iter_fields(node):
            if not isinstance(block, list) or not any(isinstance(s, ast.stmt) for s in block):
                continue
            new = [s for old in block for s in (*map(_mark, before.get(id(old), ())), old)]
            if name == "body" and isinstance(node, ast.FunctionDef):
                text = ast.get_docstring(node, clean=False) is not None
                new[text:text] = map(_mark, everywhere)
            setattr(node, name, new)
    return ast.fix_missing_locations(tree)


def _mark(says: int) -> ast.Expr:
    return ast.Expr(ast.Call(ast.Name(MARK, ast.Load()), [ast.Constant(says)], []))


def _statement_of(tree: ast.Module, node: ast.AST) -> ast.stmt | None:
    """The innermost statement round a node; None if it is executed when the file is loaded."""
    found: list[ast.stmt | None] = []

    def look(at: ast.AST, statement: ast.stmt | None, inside: bool) -> None:
        if at is node:
            found.append(statement)
            return
        for name, value in ast.iter_fields(at):
            within = inside or (isinstance(at, ast.FunctionDef) and name == "body")
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    look(child, (child if within else None) if isinstance(child, ast.stmt) else statement, within)

    look(tree, None, False)
    return found[0]


class _Loader(SourceFileLoader):
    """Loads a module with its marks, and writes no bytecode of it."""

    def __init__(self, name: str, path: str, numbers: Mapping[int, int]):
        super().__init__(name, path)
        self.numbers = numbers

    def get_code(self, fullname: str) -> CodeType:
        """Compile the file with its marks."""
        source = self.get_source(fullname)
        assert source is not None
        return compile(marked(source, self.numbers), self.path, "exec", dont_inherit=True)


class Marks(MetaPathFinder):
    """While it is among `sys.meta_path`, modules of the package are loaded with marks, and `seen` gets what they say."""

    def __init__(self, places: Sequence[tuple[str, int]], seen: Callable[[int], object]):
        self.numbers: dict[str, dict[int, int]] = {}
        for says, (file, place) in enumerate(places):
            self.numbers.setdefault(str(ROOT / PACKAGE / file), {})[place] = says
        setattr(builtins, MARK, seen)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's file, if it has a place; None leaves it to others."""
        if not fullname.startswith(f"{PACKAGE}."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        numbers: Any = self.numbers.get(str(Path(spec.origin).resolve()) if spec and spec.origin else "")
        if spec is None or numbers is None:
            return None
        assert spec.origin is not None
        return importlib.util.spec_from_file_location(
            fullname, spec.origin, loader=_Loader(fullname, spec.origin, numbers),
            submodule_search_locations=spec.submodule_search_locations,
        )  # fmt: skip


def install(places: Sequence[tuple[str, int]], seen: Callable[[int], object]) -> None:
    """Load modules with marks from now on.  Raises RuntimeError if one of them is loaded already."""
    marks = Marks(places, seen)
    loaded = [m for m in sys.modules.values() if str(getattr(m, "__file__", "")) in marks.numbers]
    if loaded:
        raise RuntimeError(f"loaded before the marks were there: {loaded[0].__name__}")
    sys.meta_path.insert(0, marks)
