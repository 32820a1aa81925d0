"""What may be written at a place: nodes and their inputs behind `->`, names and functions in expressions, words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.fold import ARITY
from upl_mlir.frontend.upl_text.lexer import ITEM_WORDS, TYPE_WORDS, WORD_OPERATORS, Kind, Token, tokenize
from upl_mlir.frontend.upl_text.scope import VALUES, Role
from upl_mlir.tools.lsp.names import Names, Shape
from upl_mlir.tools.lsp.text import Place, Text


@dataclass(frozen=True)
class Proposal:
    """Something to write: `text` is inserted; `detail` says what it is."""

    label: str
    role: Role | str
    detail: str
    text: str


def proposals(text: Text, names: Names, place: Place) -> list[Proposal]:
    """What may stand at a place, by what stands before it on its line."""
    line = text.line(place[0])[: place[1] - 1]
    if "//" in line:
        return []
    tokens = [t for t in tokenize(line, "")[0] if t.kind is not Kind.END]
    if tokens and tokens[-1].kind in (Kind.NAME, Kind.WORD) and tokens[-1].span.end_col == len(line) + 1:
        tokens.pop()  # what is being typed
    before = [t.text for t in tokens[-2:]]
    last = before[-1] if before else ""
    owner = _owner(names, place[0])
    if last == "." and len(tokens) >= 2:
        return list(_members(names, tokens[-2].text, _asks(tokens[:-2])))
    asks = _asks(tokens)
    if asks in ("->", "of", "wrt", "seed") and last in ("->", "of", "wrt", "seed", "total", ","):
        return list(_endpoints(names, asks))
    if last == ":" and not any(t.text == "if" for t in tokens):
        return [Proposal(w, "type", "type", w) for w in sorted(TYPE_WORDS)]
    if not tokens and owner is None:
        return [Proposal(w, "keyword", "declaration", f"{w} ") for w in ITEM_WORDS if w != "program"]
    words = ("in", "if") if not tokens or last in ("{", ";") else ("for", "if", "in", *sorted(WORD_OPERATORS))
    return [*_values(names, owner), *(Proposal(w, "keyword", "word", f"{w} ") for w in words)]


def _asks(tokens: list[Token]) -> str:
    """The last word or arrow before names of ports; empty if something else came since."""
    for t in reversed(tokens):
        if t.text in ("->", "of", "wrt", "seed"):
            return t.text
        if t.kind is not Kind.NAME and t.text not in (".", ",", "total"):
            return ""
    return ""


def _owner(names: Names, line: int) -> str | None:
    """The node or input whose item a line is in, finished or not."""
    found: ast.Item | None = None
    for item in names.program.items:
        if item.span.line <= line and (found is None or item.span.line >= found.span.line):
            found = item
    if not isinstance(found, ast.NodeBlock | ast.HostInput):
        return None
    closed = isinstance(found, ast.HostInput) or found.span.end_line > found.span.line or bool(found.body)
    return found.name.name if not closed or line <= found.span.end_line else None


def _endpoints(names: Names, asks: str) -> Iterator[Proposal]:
    for shape in names.shapes.values():
        if asks == "->" and shape.role is Role.HOST_INPUT:
            continue
        if shape.role is Role.NODE and (len(shape.inputs) != 1 or asks != "->"):
            yield from (_input(shape, name, qualified=True) for name in shape.inputs)
        else:
            index = shape.bracketed if asks == "->" else ""
            yield Proposal(shape.name, shape.role, f"{shape.role.value} {shape.name}{shape.bracketed}", shape.name + index)


def _input(shape: Shape, name: str, *, qualified: bool, index: bool = True) -> Proposal:
    text = f"{shape.name}.{name}" if qualified else name
    return Proposal(text, Role.INPUT, f"input of {shape.name}{shape.bracketed}", text + (shape.bracketed if index else ""))


def _members(names: Names, owner: str, asks: str) -> Iterator[Proposal]:
    shape = names.shapes.get(owner)
    if shape is None:
        return
    yield from (_input(shape, name, qualified=False, index=asks == "->") for name in shape.inputs)
    if asks == "seed":
        for name, d in names.members(owner).items():
            if d.role is Role.VARIABLE:
                yield Proposal(name, d.role, f"variable of {owner}", name)


def _values(names: Names, owner: str | None) -> Iterator[Proposal]:
    known = [*(names.members(owner).values() if owner else ()), *(d for (o, _), d in names.declared.items() if o == "")]
    for d in known:
        if d.role in VALUES:
            where = f" of {owner}" if d.key[0] else ""
            yield Proposal(d.key[1], d.role, f"{d.role.value}{where}", d.key[1])
    if owner in names.shapes and names.shapes[owner].role is Role.HOST_INPUT:
        yield Proposal(owner, Role.ELEMENT, "the element", owner)
    for name in sorted(ARITY):
        yield Proposal(name, "function", "function", f"{name}(")
