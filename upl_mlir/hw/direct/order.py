"""The order in which the host sends, where places are used again: value by value of the field that streams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from upl_mlir.hw.direct.ranks import Ranks
from upl_mlir.hw.image import ProgramImage
from upl_mlir.hw.results import HostToken


def host_order(image: ProgramImage, ranks: Ranks, tokens: Sequence[HostToken]) -> NDArray[np.intp]:
    """Places in the sequence of boot tokens and tokens, in the order of sending: what has no value of the field first.

    A token that was put off waits for those of smaller values, and the host sends nothing more while many do.
    """
    keys = np.zeros(len(image.boot) + len(tokens), np.int64)
    first = np.iinfo(np.int64).min
    for n, token in enumerate((*image.boot, *tokens)):
        field = ranks.stream.get(image.nodes[token.node].name)
        value = None if field is None else token.index[field]
        keys[n] = first if value is None else value
    return np.argsort(keys, kind="stable")
