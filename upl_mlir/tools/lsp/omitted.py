"""What an arrow leaves out, and what it means then (docs/language.md 3.5): the target's input, its index, the value."""

from __future__ import annotations

from dataclasses import dataclass

from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.scope import Role
from upl_mlir.tools.lsp.names import Names
from upl_mlir.tools.lsp.text import Text


@dataclass(frozen=True)
class Omitted:
    """The parts that an arrow leaves out, as they would be written; None for what it says, or where nothing follows."""

    member: str | None
    index: tuple[str, ...] | None
    value: str | None

    @property
    def target(self) -> str:
        """What is left out behind the target's name."""
        member = f".{self.member}" if self.member else ""
        return member + (f"<{','.join(self.index)}>" if self.index else "")


def omitted(names: Names, text: Text, source: str, arrow: ast.Arrow) -> Omitted:
    """What an arrow of a node or host input leaves out."""
    target, name = names.shapes.get(arrow.target.port.name), arrow.target.member
    if target is None:
        return Omitted(None, None, None)
    member = name.name if name else None
    if target.role is Role.NODE and member is None and len(target.inputs) == 1:
        member = next(iter(target.inputs))
    port = target.name if target.role is Role.HOST_OUTPUT else member
    index: tuple[str, ...] | None = None
    if arrow.index is None:
        own = names.shapes[source].fields if source in names.shapes else ()
        usable = {*own, *(i.name.name for i in arrow.iterators)}
        index = tuple(f if f in usable else "*" for f in target.fields)
    value = _value(names, text, source, arrow, port) if arrow.value is None else None
    return Omitted(None if name else member, index, value)


def _value(names: Names, text: Text, source: str, arrow: ast.Arrow, port: str | None) -> str | None:
    shape = names.shapes.get(source)
    if shape is None or shape.role is Role.HOST_INPUT:
        return source if shape is not None else None
    found = list(shape.inputs) if len(shape.inputs) == 1 else []
    last: str | None = None
    for statement in _above(names, source, arrow):
        if isinstance(statement, ast.Assign):
            last = statement.name.name
            if last == port:
                found.insert(0, last)
        else:
            last = f"({text.slice(statement.value.span)})"
    if len(found) == 1:
        return found[0]
    return None if found else last


def _above(names: Names, node: str, arrow: ast.Arrow) -> list[ast.Assign | ast.Bare]:
    """The assignments and expressions of a node above an arrow."""
    statements = [
        s for item in names.shapes[node].items if isinstance(item, ast.NodeBlock) for s in item.body
    ]
    at = next((n for n, s in enumerate(statements) if s is arrow), len(statements))
    return [s for s in statements[:at] if isinstance(s, ast.Assign | ast.Bare)]
