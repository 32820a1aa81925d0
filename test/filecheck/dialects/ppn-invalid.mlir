// Errors in the dialect of circuits: the message, and where it is.
// RUN: not upl-opt %s --split-input-file 2>&1 | filecheck %s

ppn.circuit @c {
  upl_loops.program @c "ordered" {
    upl_loops.array @X <"i"> f32 "input" [#upl_loops.all<"i >= 0 && 7 >= i">]
    upl_loops.array @Y <"i"> f32 "output" [#upl_loops.all<"i >= 0 && 7 >= i">]
  }
  // CHECK: ppn-invalid.mlir:[[# @LINE + 1]]:{{[0-9]+}}: error[UPL1100]: `X` is no array that the program computes
  ppn.process @P computes @X over <"i in 0..7"> lanes 2 along "i" order <"i"> every <"1"> skew 0 slots 8 result 1 cycles 9
  ppn.unit @neg_0 "neg" latency 0 interval 1
  ppn.bind @neg_0 to @P at 0
  ppn.channel @X_0 from @X to @P of <"i"> at 0 "window" depth 2 reads 8
  ppn.port @X "in" order <"i"> words 8
  ppn.port @Y "out" order <"i"> words 8
}

// -----

ppn.circuit @c {
  upl_loops.program @c "ordered" {
    upl_loops.array @X <"i"> f32 "input" [#upl_loops.all<"i >= 0 && 7 >= i">]
    upl_loops.array @Y <"i"> f32 "output" [#upl_loops.all<"i >= 0 && 7 >= i">]
  }
  // CHECK: ppn-invalid.mlir:[[# @LINE + 1]]:{{[0-9]+}}: error[UPL1100]: an iteration of `i` takes 1 slots or more, found 0
  ppn.process @P computes @Y over <"i in 0..7"> lanes 2 along "i" order <"i"> every <"0"> skew 0 slots 8 result 1 cycles 9
  ppn.unit @neg_0 "neg" latency 0 interval 1
  ppn.bind @neg_0 to @P at 0
  ppn.channel @X_0 from @X to @P of <"i"> at 0 "window" depth 2 reads 8
  ppn.port @X "in" order <"i"> words 8
  ppn.port @Y "out" order <"i"> words 8
}

// -----

ppn.circuit @c {
  upl_loops.program @c "ordered" {
    upl_loops.array @X <"i"> f32 "input" [#upl_loops.all<"i >= 0 && 7 >= i">]
    upl_loops.array @Y <"i"> f32 "output" [#upl_loops.all<"i >= 0 && 7 >= i">]
  }
  // CHECK: ppn-invalid.mlir:[[# @LINE + 1]]:{{[0-9]+}}: error[UPL1100]: a run takes 4 slots or more, found 3
  ppn.process @P computes @Y over <"i in 0..7"> lanes 2 along "i" order <"i"> every <"1"> skew 0 slots 3 result 1 cycles 9
  ppn.unit @neg_0 "neg" latency 0 interval 1
  ppn.bind @neg_0 to @P at 0
  ppn.channel @X_0 from @X to @P of <"i"> at 0 "window" depth 2 reads 8
  ppn.port @X "in" order <"i"> words 8
  ppn.port @Y "out" order <"i"> words 8
}

// -----

ppn.circuit @c {
  upl_loops.program @c "ordered" {
    upl_loops.array @X <"i"> f32 "input" [#upl_loops.all<"i >= 0 && 7 >= i">]
    upl_loops.array @Y <"i"> f32 "output" [#upl_loops.all<"i >= 0 && 7 >= i">]
  }
  // CHECK: ppn-invalid.mlir:[[# @LINE + 1]]:{{[0-9]+}}: error[UPL1100]: 9 lanes are more than the values of `i`
  ppn.process @P computes @Y over <"i in 0..7"> lanes 9 along "i" order <"i"> every <"1"> skew 0 slots 8 result 1 cycles 9
  ppn.unit @neg_0 "neg" latency 0 interval 1
  ppn.bind @neg_0 to @P at 0
  ppn.channel @X_0 from @X to @P of <"i"> at 0 "window" depth 2 reads 8
  ppn.port @X "in" order <"i"> words 8
  ppn.port @Y "out" order <"i"> words 8
}

// -----

ppn.circuit @c {
  upl_loops.program @c "ordered" {
    upl_loops.array @X <"i"> f32 "input" [#upl_loops.all<"i >= 0 && 7 >= i">]
    upl_loops.array @Y <"i"> f32 "output" [#upl_loops.all<"i >= 0 && 7 >= i">]
  }
  ppn.process @P computes @Y over <"i in 0..7"> lanes 2 along "i" order <"i"> every <"1"> skew 0 slots 8 result 1 cycles 9
  ppn.unit @neg_0 "neg" latency 0 interval 1
  // CHECK: ppn-invalid.mlir:[[# @LINE + 1]]:{{[0-9]+}}: error[UPL1100]: no unit is called `add_0`
  ppn.bind @add_0 to @P at 0
  ppn.channel @X_0 from @X to @P of <"i"> at 0 "window" depth 2 reads 8
  ppn.port @X "in" order <"i"> words 8
  ppn.port @Y "out" order <"i"> words 8
}

// -----

ppn.circuit @c {
  upl_loops.program @c "ordered" {
    upl_loops.array @X <"i"> f32 "input" [#upl_loops.all<"i >= 0 && 7 >= i">]
    upl_loops.array @Y <"i"> f32 "output" [#upl_loops.all<"i >= 0 && 7 >= i">]
  }
  ppn.process @P computes @Y over <"i in 0..7"> lanes 2 along "i" order <"i"> every <"1"> skew 0 slots 8 result 1 cycles 9
  ppn.unit @neg_0 "neg" latency 0 interval 1
  ppn.bind @neg_0 to @P at 0
  // CHECK: ppn-invalid.mlir:[[# @LINE + 1]]:{{[0-9]+}}: error[UPL1100]: expected one of `delay`, `varying`, `fifo`, `sticky`, `buffer`, `window`, `windows`, `dealt`, `held`, found `queue`
  ppn.channel @X_0 from @X to @P of <"i"> at 0 "queue" depth 2 reads 8
  ppn.port @X "in" order <"i"> words 8
  ppn.port @Y "out" order <"i"> words 8
}

// -----

ppn.circuit @c {
  upl_loops.program @c "ordered" {
    upl_loops.array @X <"i"> f32 "input" [#upl_loops.all<"i >= 0 && 7 >= i">]
    upl_loops.array @Y <"i"> f32 "output" [#upl_loops.all<"i >= 0 && 7 >= i">]
  }
  ppn.process @P computes @Y over <"i in 0..7"> lanes 2 along "i" order <"i"> every <"1"> skew 0 slots 8 result 1 cycles 9
  ppn.unit @neg_0 "neg" latency 0 interval 1
  ppn.bind @neg_0 to @P at 0
  ppn.channel @X_0 from @X to @P of <"i"> at 0 "window" depth 2 reads 8
  ppn.port @X "in" order <"i"> words 8
  // CHECK: ppn-invalid.mlir:[[# @LINE + 1]]:{{[0-9]+}}: error[UPL1100]: `Y` is no host port of the program with the role `in`
  ppn.port @Y "in" order <"i"> words 8
}

// -----

ppn.circuit @c {
  upl_loops.program @c "ordered" {
    upl_loops.array @X <"i"> f32 "input" [#upl_loops.all<"i >= 0 && 7 >= i">]
    upl_loops.array @Y <"i"> f32 "output" [#upl_loops.all<"i >= 0 && 7 >= i">]
  }
  ppn.process @P computes @Y over <"i in 0..7"> lanes 2 along "i" order <"i"> every <"1"> skew 0 slots 8 result 1 cycles 9
  ppn.unit @neg_0 "neg" latency 0 interval 1
  ppn.bind @neg_0 to @P at 0
  ppn.channel @X_0 from @X to @P of <"i"> at 0 "window" depth 2 reads 8
  // CHECK: ppn-invalid.mlir:[[# @LINE + 1]]:{{[0-9]+}}: error[UPL1100]: expected the fields `i` in some order
  ppn.port @X "in" order <"j"> words 8
  ppn.port @Y "out" order <"i"> words 8
}

// -----

ppn.circuit @c {
  upl_loops.program @c "ordered" {
    upl_loops.array @X <"i"> f32 "input" [#upl_loops.all<"i >= 0 && 7 >= i">]
    upl_loops.array @Y <"i"> f32 "output" [#upl_loops.all<"i >= 0 && 7 >= i">]
  }
  ppn.process @P computes @Y over <"i in 0..7"> lanes 2 along "i" order <"i"> every <"1"> skew 0 slots 8 result 1 cycles 9
  ppn.unit @neg_0 "neg" latency 0 interval 1
  ppn.bind @neg_0 to @P at 0
  ppn.channel @X_0 from @X to @P of <"i"> at 0 "window" depth 2 reads 8
  // CHECK: ppn-invalid.mlir:[[# @LINE + 1]]:{{[0-9]+}}: error[UPL1002]: in `i side`: expected `i`, `i block` or `i lane`, found `i side`
  ppn.port @X "in" order <"i side"> words 8
  ppn.port @Y "out" order <"i"> words 8
}

// -----

// CHECK: ppn-invalid.mlir:[[# @LINE + 1]]:{{[0-9]+}}: error[UPL1100]: expected one program of equations, and processes, found 1 programs and 0 processes
ppn.circuit @c {
  upl_loops.program @c "ordered" {
    upl_loops.array @X <"i"> f32 "input" [#upl_loops.all<"i >= 0 && 7 >= i">]
    upl_loops.array @Y <"i"> f32 "output" [#upl_loops.all<"i >= 0 && 7 >= i">]
  }
  ppn.unit @neg_0 "neg" latency 0 interval 1
  ppn.bind @neg_0 to @P at 0
  ppn.channel @X_0 from @X to @P of <"i"> at 0 "window" depth 2 reads 8
  ppn.port @X "in" order <"i"> words 8
  ppn.port @Y "out" order <"i"> words 8
}

// -----

ppn.circuit @c {
  upl_loops.program @c "ordered" {
    upl_loops.array @X <"i"> f32 "input" [#upl_loops.all<"i >= 0 && 7 >= i">]
    upl_loops.array @Y <"i"> f32 "output" [#upl_loops.all<"i >= 0 && 7 >= i">]
  }
  // CHECK: ppn-invalid.mlir:[[# @LINE + 1]]:{{[0-9]+}}: error[UPL1100]: `Y` is computed by two processes
  ppn.process @P computes @Y over <"i in 0..7"> lanes 2 along "i" order <"i"> every <"1"> skew 0 slots 8 result 1 cycles 9
  ppn.process @Q computes @Y over <"i in 0..7"> lanes 2 along "i" order <"i"> every <"1"> skew 0 slots 8 result 1 cycles 9
  ppn.unit @neg_0 "neg" latency 0 interval 1
  ppn.bind @neg_0 to @P at 0
  ppn.channel @X_0 from @X to @P of <"i"> at 0 "window" depth 2 reads 8
  ppn.port @X "in" order <"i"> words 8
  ppn.port @Y "out" order <"i"> words 8
}
