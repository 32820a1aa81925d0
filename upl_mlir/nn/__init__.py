"""Neural networks as pure functions on arrays: layers, initial weights, losses, optimisers, files.

    from upl_mlir import nn

    model = nn.chain(nn.conv(8, 3), nn.batch_norm(), nn.relu, nn.max_pool(2), nn.flatten, nn.dense(10))
    params, state = model.init(0, (1, 8, 8))                 # the shape of one example
    logits, state = model(params, state, x, train=True)      # in a traced function, or on numpy arrays

Parameters are tuples and dicts of arrays.  Everything is written with numpy's functions, so it runs on numpy arrays as it
stands, and becomes UPL inside of `upl.function`, where `upl.grad` differentiates it.  Nothing here has a derivative or an
engine of its own.
"""

from __future__ import annotations

from upl_mlir.frontend.trace.tree import map_tree
from upl_mlir.nn import initial, schedules
from upl_mlir.nn.files import load, save
from upl_mlir.nn.functions import attention, convolution, gru_cell, log_softmax, normalise, sigmoid, softmax, windows
from upl_mlir.nn.layers import (
    Layer,
    activation,
    batch_norm,
    chain,
    conv,
    dense,
    flatten,
    layer_norm,
    max_pool,
    mean_pool,
    relu,
    tanh,
)
from upl_mlir.nn.losses import accuracy, cross_entropy, mse
from upl_mlir.nn.optimisers import Optimiser, adam, clipped, sgd
from upl_mlir.nn.sequences import gru, self_attention

__all__ = [
    "Layer", "Optimiser", "accuracy", "activation", "adam", "attention", "batch_norm", "chain", "clipped", "conv",
    "convolution", "cross_entropy", "dense", "flatten", "gru", "gru_cell", "initial", "layer_norm", "load", "log_softmax",
    "map_tree", "max_pool", "mean_pool", "mse", "normalise", "relu", "save", "schedules", "self_attention", "sgd", "sigmoid",
    "softmax", "tanh", "windows",
]  # fmt: skip
