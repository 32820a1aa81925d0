"""The engines' names, and the simulators': what a command line lists before anything is loaded."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, get_args


class EngineName(StrEnum):
    """Names of the engines."""

    INTERP = "interp"
    TOKEN = "token"
    NATIVE = "native"
    RTL = "rtl"
    CIRCUIT = "circuit"
    MPI = "mpi"
    REFERENCE = "reference"


Simulator = Literal["amaranth", "compiled", "verilator"]
"""What simulates a machine: Amaranth's simulator, our models, Verilator's."""
SIMULATORS: tuple[Simulator, ...] = get_args(Simulator)
