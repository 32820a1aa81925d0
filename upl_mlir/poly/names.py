"""Names in index expressions."""

from __future__ import annotations

from typing import ClassVar


class Var:
    """A field, iterator, parameter, constant or integer input, by name.

    There is one object for each name: names are most of what is hashed and compared, and this way Python does both itself.
    """

    __slots__ = ("name",)
    __match_args__ = ("name",)
    name: str
    _known: ClassVar[dict[str, Var]] = {}

    def __new__(cls, name: str) -> Var:
        found = cls._known.get(name)
        if found is None:
            found = object.__new__(cls)
            found.name = name
            found = cls._known.setdefault(name, found)  # another thread may have been quicker
        return found

    def __reduce__(self) -> tuple[type[Var], tuple[str]]:
        return Var, (self.name,)

    def __repr__(self) -> str:
        return f"Var({self.name!r})"

    def __str__(self) -> str:
        return self.name
