"""Native code: a lowered program (func, scf, arith, math, memref, linalg) to machine code and to C."""
