"""Square roots, and quotients by them, from the machine's approximate reciprocal root: three times as fast in vectors.

A root and a division take some 35 cycles for a vector of eight; both from one approximation of 14 bits by Goldschmidt's
iteration take 12.  For numbers from 1e-280 on results are within 0.75 ulp of the root and 1.5 ulp of the quotient by it
(`test/native/test_roots.py`), for smaller ones within 1e-14 of them.  Zeros, infinities, NaN and negative numbers give what
IEEE 754 says.

Used in `relaxed` code on f64, in loops that can become vectors, where AVX-512 is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdsl.dialects import arith, math, memref, scf
from xdsl.dialects.builtin import Float64Type
from xdsl.ir import Block, Operation, SSAValue

from upl_mlir.native.lanes import F64, Lanes
from upl_mlir.native.text import ATTRIBUTES

if TYPE_CHECKING:
    from upl_mlir.native.emit import Library

WIDTH = 8
_STRAIGHT = (scf.ForOp, scf.WhileOp, scf.ParallelOp, memref.AllocOp, memref.AllocaOp)


def over_root(op: arith.DivfOp) -> SSAValue | None:
    """The number under the root that a quotient is taken by; None if it is taken by something else."""
    root = op.rhs.owner
    return root.operand if isinstance(root, math.SqrtOp) else None


def quick(library: Library, number: SSAValue) -> bool:
    """Whether roots of a number are taken by way of its reciprocal root: something is divided by one, in a vector loop."""
    if library.ordered or library.vector_bytes != 8 * WIDTH or number.type != Float64Type():
        return False
    users = [u.operation for u in number.uses]
    roots = [u for u in users if isinstance(u, math.SqrtOp)]
    divided = any(isinstance(q := u.operation, arith.DivfOp) and q.rhs is r.result for r in roots for u in r.result.uses)
    return divided and innermost(roots[0])


def innermost(op: Operation) -> bool:
    """Whether an operation stands straight in a loop that has no other one inside."""
    block = op.parent
    loop = None if block is None else block.parent_op()
    return isinstance(block, Block) and isinstance(loop, scf.ForOp | scf.ParallelOp) and not any(
        isinstance(o, _STRAIGHT) for o in block.ops
    )  # fmt: skip


def definitions(name: str) -> tuple[str, dict[str, str]]:
    """As `vector_math.definition` for the functions `root(x)` and `over_root(a, x)` on `double`."""
    b = Lanes(F64)
    y = b.code.let("call double @upl.rsqrt.f64(double %x)")
    first, half = b.mul("%x", y), b.mul(0.5, y)
    rest = _fma(b, b.negative(first), half, "0x3FE0000000000000")
    better, half = _fma(b, first, rest, first), _fma(b, half, rest, half)
    root = _fma(b, _fma(b, b.negative(better), better, "%x"), half, better)
    if name == "root":
        infinite_or_0 = b.test("oeq", b.add(y, y), y)
        result, params = b.choose(infinite_or_0, "%x", root), "double %x"
    else:
        inverse = b.add(half, half)
        first = b.mul("%a", inverse)
        found = _fma(b, _fma(b, b.negative(first), root, "%a"), inverse, first)
        result = b.choose(b.test("uno", found, found), b.mul("%a", y), found)  # of zeros and infinities
        params = "double %a, double %x"
    full = f"@upl.{name}.f64"
    body = [f"define internal double {full}({params}) #1 {{", *b.code.lines, f"  ret double {result}", "}"]
    vector = f"<{WIDTH} x double>"
    attributes = f"willreturn memory(none) {ATTRIBUTES}"
    variant = f'"vector-function-abi-variant"="_ZGV_LLVM_N{WIDTH}v_upl.rsqrt.f64(upl.rsqrt.f64.v{WIDTH})"'
    machine = "@llvm.x86.avx512.rsqrt14.pd.512"
    return full, {
        full: "\n".join(body),
        "@upl.rsqrt.f64": (
            f"define internal double @upl.rsqrt.f64(double %x) noinline speculatable {attributes} {variant} {{\n"
            "  %r = call double @llvm.sqrt.f64(double %x)\n  %y = fdiv double 1.0, %r\n  ret double %y\n}\n"
        ),
        f"@upl.rsqrt.f64.v{WIDTH}": (
            f"declare {vector} {machine}({vector}, {vector}, i8)\n"
            f"define internal {vector} @upl.rsqrt.f64.v{WIDTH}({vector} %x) alwaysinline {attributes} {{\n"
            f"  %y = call {vector} {machine}({vector} %x, {vector} zeroinitializer, i8 -1)\n  ret {vector} %y\n}}\n"
        ),
        "used upl.rsqrt.f64": f"ptr @upl.rsqrt.f64.v{WIDTH}",
    }


def _fma(b: Lanes, x: str, y: str, z: str) -> str:
    return b.code.let(f"call double @llvm.fma.f64(double {x}, double {y}, double {z})")
