"""Parameters in files: safetensors, a format of arrays with names, which many systems read.

Needs the Python package of that name, the extra `nn`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import did_you_mean, error, not_installed
from upl_mlir.frontend.trace import tree

Array = NDArray[Any]


def save(path: str | Path, params: Any) -> None:
    """Write a tree of arrays; names are the keys that lead to an array, with points between: ``0.w``.

    Raises UplError: UPL1804 (safetensors is not installed), UPL1504 (what cannot be written).
    """
    arrays: dict[str, Array] = {}
    for name, leaf in tree.leaves(params, separator="."):
        if name in arrays:
            raise error("UPL1504", f"two arrays have the name `{name}`", help="no points in the keys of dicts")
        arrays[name] = np.ascontiguousarray(leaf)
    try:
        _library("safetensors.numpy").save_file(arrays, str(path))
    except (OSError, _library("safetensors").SafetensorError, KeyError, ValueError) as e:
        help = "is the folder there, and are these arrays of numbers?"
        raise error("UPL1504", f"cannot write {path}: {e}", help=help) from None


def load(path: str | Path, like: Any = None) -> Any:
    """The arrays of a file, as a dict by name; with `like`, in the structure of this tree, whose arrays have the same names
    and shapes.

    Raises UplError: UPL1804 (safetensors is not installed), UPL1504 (no such file, or another format), UPL1501 (names),
    UPL1503 (shapes).
    """
    try:
        found: dict[str, Array] = _library("safetensors.numpy").load_file(str(path))
    except (OSError, _library("safetensors").SafetensorError) as e:
        help = "give a file that nn.save has written, or another in this format"
        raise error("UPL1504", f"cannot read {path}: {e}", help=help) from None
    if like is None:
        return found
    wanted = dict(tree.leaves(like, separator="."))
    for one, other, text in ((wanted, found, "holds no"), (found, wanted, "holds, beside what is asked for,")):
        missing = next((n for n in one if n not in other), None)
        if missing is not None:
            help = did_you_mean(missing, other) or f"it has {', '.join(f'`{n}`' for n in found)}"
            raise error("UPL1501", f"{path} {text} `{missing}`", help=help)
    for name, leaf in wanted.items():
        if np.shape(leaf) != found[name].shape:
            message = f"`{name}` has shape {found[name].shape} in {path}, expected {np.shape(leaf)}"
            raise error("UPL1503", message, help="load it into the model that it was saved from")
    return tree.rebuilt(like, [found[n] for n in wanted])


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise not_installed("files of parameters need", "safetensors", "nn") from None
