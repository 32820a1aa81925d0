"""Training runs as one program: in native code on handwritten digits, and a step on the simulated machine."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir import nn

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "digits_cnn.py"
_SPEC = importlib.util.spec_from_file_location("examples_digits_cnn", SCRIPT)
assert _SPEC is not None and _SPEC.loader is not None
digits_cnn = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(digits_cnn)


@pytest.mark.parametrize("engine", ["native"], indirect=True)
def test_digits_are_learned(engine: str) -> None:
    x, y = digits_cnn.digits()
    count, batch = digits_cnn.TRAINED, digits_cnn.BATCH
    xs, ys = x[:count].reshape(-1, batch, 1, 8, 8), y[:count].reshape(-1, batch)
    run = upl.function(digits_cnn.train, static_argnums=4, engine=engine)
    params, state, losses = run(*digits_cnn.MODEL.init(0, (1, 8, 8)), xs, ys, digits_cnn.EPOCHS)
    assert losses.shape == (digits_cnn.EPOCHS,) and losses[-1] < 0.05 < losses[0]
    logits, _ = digits_cnn.MODEL(params, state, x[count:])
    assert np.mean(np.argmax(logits, axis=1) == y[count:]) >= 0.97


def test_one_program_is_the_loop_in_python() -> None:
    """The interpreter's run of the whole program, and Python's loop over programs of one gradient each."""
    x, y = digits_cnn.digits()
    xs, ys = x[:12, :, 2:6, 2:6].reshape(3, 4, 1, 4, 4), y[:12].reshape(3, 4)
    params, state = digits_cnn.MODEL.init(0, (1, 4, 4))
    found = upl.function(digits_cnn.train, static_argnums=4)(params, state, xs, ys, 2)
    wanted = digits_cnn.train(params, state, xs, ys, 2)
    nn.map_tree(lambda f, w: np.testing.assert_allclose(f, w, rtol=1e-7, atol=1e-9), found, wanted)


def single(tree: Any) -> Any:
    return nn.map_tree(np.float32, tree)


def steps_on_the_machine(model: nn.Layer, loss_of: Any, data: Any, folder: Path) -> None:
    """A step by Adam for each (x, y), from the interpreter's result of the one before, on both: all results bit for bit."""
    adam = nn.adam(0.01, decay=1e-3)

    def step(params: Any, state: Any, moments: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            found, new = model(params, state, x, train=True)
            return loss_of(found, y), new

        (value, new), gradient = upl.value_and_grad(loss, has_aux=True)(params)
        return (*adam.update(gradient, moments, params), new, value)

    params, state = single(model.init(np.random.default_rng(4), data[0][0].shape[1:]))
    moments = adam.init(params)
    machine = folder / "machine.toml"
    machine.write_text('[token]\nnode_bits = 8\nmax_fields = 8\n[matching]\norganisation = "hashed"\n')
    traced = upl.function(step)
    for x, y in data:
        args = params, state, moments, single(x), single(y)
        call = traced.bind(args, {})
        program = traced.program(*args)
        given = {n: v for n, v in call.traced.named(call.values).items() if n in program.inputs}
        soft = upl.compile(program, real="f32", gather="ordered")(**given)
        hard = upl.compile(program, "rtl", machine=machine, gather="ordered")(**given)
        for name, values in soft.items():
            assert np.float32(hard[name]).tobytes() == np.float32(values).tobytes(), name
        params, moments, state, _ = single(call.traced.unpacked(soft))


def test_steps_on_the_machine(tmp_path: Path) -> None:
    """Convolution, batch normalisation, cross-entropy and Adam: two steps have the interpreter's bits.

    In the order of arrival the first step has two other last bits.  `exp` and `log` are within an ulp; here they are right.
    """
    model = nn.chain(nn.conv(1, (1, 2), bias=False), nn.batch_norm(), nn.relu, nn.flatten, nn.dense(2))
    rng = np.random.default_rng(4)
    data = [(rng.normal(size=(2, 1, 1, 3)), np.eye(2)) for _ in range(2)]
    steps_on_the_machine(model, nn.cross_entropy, data, tmp_path)


@pytest.mark.slow
def test_all_parts_on_the_machine(tmp_path: Path) -> None:
    """The layers of the example on parts of its images: only `+ - * / sqrt max`, whose bits are the same everywhere."""
    model = nn.chain(nn.conv(2, 3, bias=False), nn.batch_norm(), nn.relu, nn.max_pool(2), nn.flatten, nn.dense(10))
    x, y = digits_cnn.digits()
    data = [(x[n : n + 2, :, 2:6, 2:6], np.eye(10)[y[n : n + 2].astype(int)]) for n in (0, 2)]
    steps_on_the_machine(model, nn.mse, data, tmp_path)
