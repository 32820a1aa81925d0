"""Products of arrays in LLVM IR: packing, tiles, and the choice among ways to compute one."""
