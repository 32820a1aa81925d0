"""Renaming: every place of a name; and where a default follows from names, what it meant is written out."""

from __future__ import annotations

import unicodedata

from upl_mlir.diagnostics import error
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.lexer import RESERVED
from upl_mlir.frontend.upl_text.scope import Role
from upl_mlir.tools.lsp.names import Key, Names
from upl_mlir.tools.lsp.omitted import omitted
from upl_mlir.tools.lsp.text import Edit, Text, extent
from upl_mlir.tools.lsp.tolerant import read

CODE = "UPL1811"
GLOBALS = frozenset({Role.CONSTANT, Role.ARRAY, Role.PARAMETER})
"""What no name in a node may be called like."""


def rename(text: Text, file: str, names: Names, key: Key, new: str) -> list[Edit]:
    """The edits that give a name another one everywhere; the program means the same afterwards.

    An index that an arrow leaves out follows from the names of fields, so it is written out where it would change.  Raises
    UplError (UPL1811): the new name is none or is taken; or the value that an arrow leaves out would change.
    """
    declared = names.declared[key]
    new = a_name(new)
    if new == key[1]:
        return []
    require_free(names, key[0], new, declared.role, key)
    edits = [Edit(*extent(o.span), new) for o in names.of(key)]
    after = Text(text.edited(edits), text.encoding)
    renamed = Names(read(after.content, file).program)
    for (source, before), (source_now, now) in zip(list(names.arrows()), list(renamed.arrows()), strict=True):
        was, will = omitted(names, text, source, before), omitted(renamed, after, source_now, now)
        fields = _mapping(key, new, source, before)
        index = None if was.index is None else tuple(fields.get(f, f) for f in was.index)
        value = None if was.value is None else fields.get(was.value, was.value)
        element = declared.role is Role.HOST_INPUT and source == key[1]  # its value has its name
        if value is not None and value != will.value and not value.startswith("(") and not element:
            message = f"with the name `{new}` the arrow `{text.slice(before.span)}` would send something else"
            raise error(CODE, message, before.span, help=f"write the value in front first: `{was.value} -> …`")
        if index != will.index and index:
            end = extent(before.target.span)[1]
            edits.append(Edit(end, end, f"<{','.join(index)}>"))
    return edits


def _mapping(key: Key, new: str, source: str, arrow: ast.Arrow) -> dict[str, str]:
    """What the renaming makes of names that mean fields, iterators and values at an arrow's source."""
    scope = f"{source}@{arrow.span.line}:{arrow.span.col}"
    return {key[1]: new} if key[0] in (source, scope) else {}


def a_name(text: str) -> str:
    """A text as a name, in normal form.  Raises UplError (UPL1811) if it is none."""
    name = unicodedata.normalize("NFC", text.strip())
    if name in RESERVED or not name.isidentifier():
        raise error(CODE, f"`{name}` is no name: letters, digits and `_`, not a reserved word")
    return name


def require_free(names: Names, owner: str, new: str, role: Role, old: Key | None = None) -> None:
    """Raise UplError (UPL1811) if a new name is taken where it would be known; `old` is the name that it replaces."""
    owner = owner.partition("@")[0]
    for (other, name), found in names.declared.items():
        inside = other.partition("@")[0]
        apart = found.role is Role.ITERATOR and role is Role.ITERATOR and (old is None or other != old[0])
        if name != new or apart:  # iterators of two arrows may have one name
            continue
        if inside == owner or (inside == "" and found.role in GLOBALS) or (owner == "" and role in GLOBALS):
            where = f" in `{inside}`" if inside else ""
            raise error(CODE, f"the name `{new}` is taken: it is {found.role.article}{where}", found.span)
