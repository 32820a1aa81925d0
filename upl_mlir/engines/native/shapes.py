"""What calls were like, kept for later processes: which parameters and shapes of results follow from the arrays given.

Neither needs the program then, which is made only for calls of another kind.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from upl_mlir.host.cache import digest, open_cache

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Call:
    """A kind of call: parameters, shapes of inputs and outputs by name, the bytes of outputs and arrays between."""

    params: dict[str, int]
    inputs: Shapes
    outputs: Shapes
    bytes: int


def keep(key: str, signature: tuple[object, ...], call: Call) -> None:
    """Keep a kind of call of the code `key`; `signature` is what decides it, made of names and numbers."""
    open_cache().write(_name(key, signature), json.dumps(asdict(call)).encode())


def known(key: str, signature: tuple[object, ...]) -> Call | None:
    """What was kept."""
    data = open_cache().read(_name(key, signature))
    if data is None:
        return None
    d = json.loads(data)
    inputs, outputs = (tuple((str(name), tuple(shape)) for name, shape in d[which]) for which in ("inputs", "outputs"))
    return Call(d["params"], inputs, outputs, d["bytes"])


def _name(key: str, signature: tuple[object, ...]) -> str:
    return f"{digest(key, repr(signature))}.call"
