"""The example programs, loaded once, with their data: what the tests of this folder share."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LOWEST = re.compile(r"^param (\w+)(?:\[0:(\w+)(-1)?\])? >= (\d+)", re.MULTILINE)


@cache
def text(name: str) -> str:
    """The text of an example."""
    return (EXAMPLES / f"{name}.upl").read_text(encoding="utf-8")


@cache
def _report(name: str, constants: str) -> upl.Report:
    return upl.load(text(name), **json.loads(constants)).expanded().check()


def report(name: str, constants: dict[str, Any]) -> upl.Report:
    """What is proved of an example with `adjoint of` expanded and all sizes open, some constants overridden."""
    return _report(name, json.dumps(constants))


def bound(name: str, params: dict[str, Any]) -> upl.Program:
    """An example for given parameters, as its author wrote it."""
    return upl.load(text(name), **params)


@cache
def _expanded(name: str, params: str) -> upl.Program:
    return bound(name, json.loads(params)).expanded().infer_domains()


def expanded(name: str, params: dict[str, Any]) -> upl.Program:
    """An example for given parameters, `adjoint of` expanded, domains inferred; not to be changed."""
    return _expanded(name, json.dumps(params))


def least(name: str, given: dict[str, int] | None = None) -> dict[str, Any]:
    """Values of all parameters: those `given`, entries of arrays as ``N[1]``, else the least that is allowed."""
    known = given or {}
    out: dict[str, Any] = {}
    for found, size, less, low in LOWEST.findall(text(name)):
        if size:
            out[found] = [known.get(f"{found}[{i}]", int(low)) for i in range(out[size] + (0 if less else 1))]
        else:
            out[found] = known.get(found, int(low))
    return out


def random_inputs(p: upl.Program, rng: np.random.Generator, **params: int) -> dict[str, Any]:
    """Inputs of the right shapes: reals between 0.5 and 1.5, integers 0."""
    return {
        n: rng.uniform(0.5, 1.5, v.shape(**params)) * (1 if v.dtype.kind == "f" else 0) for n, v in p.inputs.items()
    }


class Examples:
    """The functions above, as a fixture: test modules cannot import one another."""

    text = staticmethod(text)
    report = staticmethod(report)
    bound = staticmethod(bound)
    expanded = staticmethod(expanded)
    least = staticmethod(least)
    random_inputs = staticmethod(random_inputs)


@pytest.fixture(scope="session")
def ex() -> type[Examples]:
    """Example programs and their data."""
    return Examples
