"""Random bugs: places in a Python file where one operator, constant or statement can be another."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

COMPARE = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.FloorDiv: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitXor: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """The `number`-th place of a file, as `ast.walk` meets them, and what is done there."""

    file: str
    number: int
    line: int
    what: str


def _variants(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What a node could be changed into."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARE:
            new = copy.deepcopy(node)
            new.ops = [COMPARE[type(op)]()]
            yield f"{type(op).__name__} to {COMPARE[type(op)].__name__}", new
        case ast.BinOp(op=op) if type(op) in ARITHMETIC:
            new = copy.deepcopy(node)
            new.op = ARITHMETIC[type(op)]()
            yield f"{type(op).__name__} to {ARITHMETIC[type(op)].__name__}", new
        case ast.BoolOp(op=op):
            new = copy.deepcopy(node)
            new.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield f"{type(op).__name__} to {type(new.op).__name__}", new
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield "not left out", inner
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            yield "minus left out", inner
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            new = copy.deepcopy(node)
            new.test = ast.UnaryOp(ast.Not(), test)
            yield "condition turned round", new
        case ast.Constant(value=bool(value)):
            yield f"{value} to {not value}", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield f"{value} to {value + 1}", ast.Constant(value + 1)
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "statement left out", ast.Pass()
        case ast.Continue():
            yield "continue to break", ast.Break()
        case ast.Break():
            yield "break to continue", ast.Continue()
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "returns None", ast.Return(ast.Constant(None))
        case _:
            pass


def _skipped(tree: ast.Module) -> set[int]:
    """Nodes that are not behaviour: annotations, messages of errors, assertions, decorators, f-strings."""
    out: set[int] = set()

    def skip(n: ast.AST | None) -> None:
        if n is not None:
            out.update(id(x) for x in ast.walk(n))

    for n in ast.walk(tree):
        match n:
            case ast.AnnAssign(annotation=a) | ast.arg(annotation=a):
                skip(a)
            case ast.FunctionDef(returns=a, decorator_list=ds):
                skip(a)
                for d in ds:
                    skip(d)
            case ast.ClassDef(decorator_list=ds):  # as `frozen` of a class whose fields nobody sets
                for d in ds:
                    skip(d)
            case ast.Assert() | ast.Raise() | ast.JoinedStr() | ast.Subscript(value=ast.Name(id="Literal")):
                skip(n)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                skip(n)
            case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper():
                skip(n)  # limits: another number is another limit, not a mistake
            case _:
                pass
    return out


def places(file: str, source: str) -> list[Place]:
    """All places of a file."""
    tree = ast.parse(source)
    skipped = _skipped(tree)
    out: list[Place] = []
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        for what, _ in _variants(node):
            out.append(Place(file, len(out), getattr(node, "lineno", 0), what))
    return out


def changed_text(place: Place, source: str) -> str:
    """The file with the change, as `ast` writes it."""
    return ast.unparse(changed_tree(place, source))


def changed_tree(place: Place, source: str) -> ast.Module:
    """The file with the change; everything else is where it was."""
    tree = ast.parse(source)
    old, new = _change(tree, place.number)
    return ast.fix_missing_locations(_Replace(old, new).visit(tree))


def node_of(tree: ast.Module, number: int) -> ast.AST:
    """The node of a file that a change alters, by the number of its place.  Raises ValueError if there is none."""
    return _change(tree, number)[0]


def _change(tree: ast.Module, number: int) -> tuple[ast.AST, ast.AST]:
    """A node, and what it is changed into."""
    skipped = _skipped(tree)
    found = ((node, new) for node in ast.walk(tree) if id(node) not in skipped for _, new in _variants(node))
    at = next(islice(found, number, None), None)
    if at is None:
        raise ValueError(f"the file has no place {number}")
    return at


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST):
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        """The new node for the old one, all others as they are."""
        return self.new if node is self.old else self.generic_visit(node)
