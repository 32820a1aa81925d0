"""A limit on the depth of expressions, so that no text makes the recursive parts of the front end run out of stack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import cast, get_args

from upl_mlir.diagnostics import Diagnostic
from upl_mlir.frontend.upl_text import ast

MAX_DEPTH = 250
"""Operators inside one another; a sum of n terms has depth n."""

_EXPRESSIONS = get_args(ast.Expr)


def too_deep(program: ast.Program) -> list[Diagnostic]:
    """An error (UPL1114) for each expression that is deeper than the limit.  Not recursive itself."""
    out: list[Diagnostic] = []
    todo: list[tuple[ast.Node, int, ast.Node]] = [(program, 0, program)]
    while todo:
        node, depth, root = todo.pop()
        if isinstance(node, _EXPRESSIONS):
            depth, root = depth + 1, root if depth else node
            if depth > MAX_DEPTH:
                message = f"this expression is too deep: more than {MAX_DEPTH} operators inside one another"
                error = Diagnostic("UPL1114", message, root.span, (), "give parts of it names: `t = …`")
                if error not in out:
                    out.append(error)
                continue
        else:
            depth = 0
        todo += [(child, depth, root) for child in _children(node)]
    return out


def _children(node: ast.Node) -> Iterator[ast.Node]:
    """The nodes directly inside a node, also those in (nested) tuples; identifiers and comments do not matter."""
    for f in fields(node):
        values: list[object] = [getattr(node, f.name)]
        while values:
            value = values.pop()
            if isinstance(value, ast.Node):
                yield value
            elif isinstance(value, tuple):
                values += cast("tuple[object, ...]", value)
