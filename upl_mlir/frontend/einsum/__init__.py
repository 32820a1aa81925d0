"""The einsum front end: a kernel such as ``C<4,8>[i,j] = A<4,6>[i,k]*B<6,8>[k,j];`` as a UPL program.

    p = einsum.load("conv.json")                       # a Program like any other: check it, differentiate it, run it
    g = einsum.gradient("conv.json")                   # with d_<out> as inputs and d_<grad_to> as outputs
    print(einsum.cpp_of(einsum.read("conv.json")))     # as a C++ function
    print(einsum.recognise(p).kernel)                  # back to a kernel, where the program is one
"""

from __future__ import annotations

from upl_mlir.frontend.einsum.emit import cpp_of
from upl_mlir.frontend.einsum.load import Loaded, gradient, load, read
from upl_mlir.frontend.einsum.recognise import recognise

__all__ = ["Loaded", "cpp_of", "gradient", "load", "read", "recognise"]
