# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What is minimised, and what is counted: numbers, the mean over all examples."""

from __future__ import annotations

from typing import Any

import numpy as np

from upl_mlir.frontend.trace.position import fail
from upl_mlir.nn.functions import log_softmax


def mse(found: Any, wanted: Any) -> Any:
    """The mean of the squared differences.  Raises UplError (UPL1931) for arrays of different shapes."""
    if np.shape(found) != np.shape(wanted):
        help = "make the shapes equal: broadcasting here is mostly a mistake"
        raise fail("UPL1931", f"mse: the shapes {np.shape(found)} and {np.shape(wanted)} differ", help=help)
    return np.mean((found - wanted) ** 2)


def cross_entropy(logits: Any, labels: Any) -> Any:
    """The mean of ``-log softmax(logits)`` at the labels: numbers of classes ``[...]``, or probabilities (one-hot)
    ``[..., classes]``.  Raises UplError (UPL1931) for shapes that do not fit.
    """
    return -np.mean(np.sum(_chosen(logits, labels) * log_softmax(logits), axis=-1))


def accuracy(logits: Any, labels: Any) -> Any:
    """The share of examples whose label has the largest logit; labels as for `cross_entropy`.

    Where several logits are the largest, one at the label counts as right.
    """
    best = np.max(logits, axis=-1)
    return np.mean(np.where(np.sum(_chosen(logits, labels) * logits, axis=-1) >= best, 1.0, 0.0))


def _chosen(logits: Any, labels: Any) -> Any:
    """The probabilities of classes that labels stand for."""
    shape, given = np.shape(logits), np.shape(labels)
    if given == shape:
        return labels
    if given != shape[:-1]:
        help = "labels are numbers of classes [...], or one-hot [..., classes]"
        raise fail("UPL1931", f"labels of shape {given} do not fit logits of shape {shape}", help=help)
    return np.where(labels[..., None] == np.arange(shape[-1]), 1.0, 0.0)
