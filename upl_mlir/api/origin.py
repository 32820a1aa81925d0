"""Where a program comes from, so that a later process need not make it before it runs.

A program made of a text, and what is derived from it, has a key that follows from the text and all that was done, with
this package's version.  Once native code was made of it, the cache holds its `Facts` under that key; whoever makes it
again gets a program that is not made until its operations are asked for.  Only what was made without an error is known
so: errors come when they always came.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp

from upl_mlir.dialects.upl.facts import Facts
from upl_mlir.host.cache import digest, open_cache, package_key


@dataclass(frozen=True, eq=False)
class Origin:
    """How a program was made: its key, a function that makes it (another one each time), and what it was made of.

    `recalled`: an earlier process kept it.  `by_content`: the key is one of content, which no other text or comment changes.
    """

    key: str
    make: Callable[[], ModuleOp]
    facts: Facts
    parent: Origin | None
    recalled: bool
    by_content: bool = False

    def keep(self) -> None:
        """Tell later processes of the program, and of those that it was made of."""
        store, at = open_cache(), self
        while at is not None:
            if not at.recalled:
                store.write(_name(at.key), json.dumps(asdict(at.facts)).encode())
            at = at.parent


def key_of_text(kind: str, text: str, file: str, overrides: Mapping[str, Any]) -> str | None:
    """The key of what is made of a text; None if a value is not a plain one, whose content is its `repr`."""
    return digest(kind, text, file, repr(sorted(overrides.items())), package_key()) if _plain(overrides) else None


def key_of_content(module: ModuleOp) -> str:
    """The key of a program that no text says."""
    return digest("content", str(module), package_key())


def key_of_derived(parent: Origin, how: Sequence[str]) -> str:
    """The key of what is derived from a program."""
    return digest(parent.key, *how)


def _plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_plain(v) for v in cast("Mapping[str, Any]", value).values())
    if isinstance(value, list | tuple):
        return all(map(_plain, cast("list[Any]", value)))
    return type(value) in (int, float, bool, str)


def known(key: str) -> Facts | None:
    """What an earlier process kept of the program with this key."""
    data = open_cache().read(_name(key))
    if data is None:
        return None
    d = json.loads(data)
    inputs, outputs = ({name: tuple(fields) for name, fields in d[which].items()} for which in ("inputs", "outputs"))
    return Facts(d["name"], tuple(d["params"]), inputs, outputs, d["adjoint"])


def _name(key: str) -> str:
    return f"{key}.program"
