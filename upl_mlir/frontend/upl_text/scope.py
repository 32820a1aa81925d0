"""Names: what a name stands for, what is visible where, and the errors about names.

A program has one name space for constants, parameters, host ports and nodes.  Inside a node there are also its index
fields, inputs and variables, none of which may have the name of a constant, parameter or of one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, StringAttr
from xdsl.ir import SSAValue

from upl_mlir.diagnostics import Note, Span, UplError, did_you_mean, error
from upl_mlir.frontend.upl_text.ranks import Rank


class Role(Enum):
    """What a name is."""

    CONSTANT = "constant"
    ARRAY = "constant array"
    PARAMETER = "parameter"
    HOST_INPUT = "host input"
    HOST_OUTPUT = "host output"
    NODE = "node"
    FIELD = "index field"
    INPUT = "input"
    VARIABLE = "variable"
    ELEMENT = "element of the host input"
    ITERATOR = "iterator"

    @property
    def article(self) -> str:
        """The role with its article."""
        return f"{'an' if self.value[0] in 'aeiou' else 'a'} {self.value}"


@dataclass(frozen=True)
class Symbol:
    """A declared name.

    `rank` is its type (of an entry, for an array), None if it has none or if its declaration has an error of its own;
    `value` is what it stands for in a body, None for constants and parameters.
    """

    name: str
    role: Role
    span: Span | None
    rank: Rank | None = None
    value: SSAValue | None = None


Scope = dict[str, Symbol]


class Poisoned(Exception):
    """A name is used whose declaration has an error that is already reported."""


VALUES = frozenset(
    {Role.CONSTANT, Role.ARRAY, Role.PARAMETER, Role.FIELD, Role.INPUT, Role.VARIABLE, Role.ELEMENT, Role.ITERATOR}
)
"""The roles of names that mean a value."""

DATA = frozenset({Role.INPUT, Role.VARIABLE, Role.ELEMENT})
"""The roles of names whose values arrive at run time."""


def loc(span: Span) -> FileLineColLoc:
    """A position as an IR location."""
    return FileLineColLoc(StringAttr(span.file), IntAttr(span.line), IntAttr(span.col))


def declared_at(symbol: Symbol) -> tuple[Note, ...]:
    """The note that shows where a name was declared."""
    return (Note(f"{symbol.role.article} `{symbol.name}` is declared here", symbol.span),) if symbol.span else ()


def unknown_name(name: str, span: Span, visible: Iterable[str], code: str = "UPL1103", what: str = "name") -> UplError:
    """The error about a name that means nothing here."""
    return error(code, f"unknown {what} `{name}`", span, help=did_you_mean(name, visible))


def clash(name: str, span: Span, new: Role, old: Symbol) -> UplError:
    """The error about a second declaration of a name."""
    message = f"`{name}` is declared twice"
    if new is not old.role:
        message = f"{new.article} cannot be called `{name}`: that is already {old.role.article}"
    return error("UPL1102", message, span, notes=declared_at(old))


def declare(scope: Scope, symbol: Symbol, span: Span) -> None:
    """Add a name.  Raises UplError (UPL1102) if it is taken."""
    old = scope.get(symbol.name)
    if old is not None:
        raise clash(symbol.name, span, symbol.role, old)
    scope[symbol.name] = symbol


def visible_values(scope: Mapping[str, Symbol], *, data: bool = True) -> list[str]:
    """The names in scope that mean a value."""
    roles = VALUES if data else VALUES - DATA
    return [s.name for s in scope.values() if s.role in roles]
