"""Square roots, and quotients by them, from the machine's approximate reciprocal root: three times as fast in vectors.

A root and a division take some 35 cycles for a vector of eight; both from one approximation of 14 bits by Goldschmidt's
iteration take 12.  Results are within 0.75 ulp of the root and 1.5 ulp of the quotient by it (`test/native/test_roots.py`)
wherever the number is at least `SMALLEST` and the quotient is no NaN.  Zeros, infinities, NaN and negative numbers give a
quotient that is NaN, and so does a quotient of infinities, or one that overflows: `vector_loops` asks for both once for a
vector, and takes the machine's root and division where they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from upl_mlir.engines.native.llvm.lanes import Lanes

WIDTH = 8
"""Numbers that are computed at a time: a vector of AVX-512."""
SMALLEST = 1e-280
"""For smaller numbers what is left after a step is subnormal, and loses bits."""


def root_and_inverse(b: Lanes, x: str) -> tuple[str, str]:
    """The root, and its inverse to 27 bits, of eight reals."""
    y = b.code.let(f"call {b.type} @llvm.x86.avx512.rsqrt14.pd.512({b.type} {x}, {b.type} zeroinitializer, i8 -1)")
    first, half = b.mul(x, y), b.mul(0.5, y)
    rest = b.fma(b.negative(first), half, 0.5)
    better, half = b.fma(first, rest, first), b.fma(half, rest, half)
    root = b.fma(b.fma(b.negative(better), better, x), half, better)
    return root, b.add(half, half)


def quotient(b: Lanes, a: str, root: str, inverse: str) -> str:
    """a / root"""
    first = b.mul(a, inverse)
    return b.fma(b.fma(b.negative(first), root, a), inverse, first)


def usual(b: Lanes, numbers: Sequence[str], quotients: Sequence[str]) -> str:
    """In which lanes the numbers under roots and the quotients by roots are such that both are right."""
    tests = [b.test("oge", x, SMALLEST) for x in numbers]
    tests += [b.test("ord", a, c) for a, c in zip(quotients[::2], [*quotients[1::2], quotients[-1]], strict=False)]
    while len(tests) > 1:
        tests = [b.code.let(f"and <{b.width} x i1> {tests[0]}, {tests[1]}"), *tests[2:]]
    return tests[0]
