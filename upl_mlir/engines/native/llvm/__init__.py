"""Lowered functions as LLVM IR: operations, loops, elementary functions, vectors, threads."""
