// Errors in the machine's dialect: the message, and where it is.
// RUN: not upl-opt %s --split-input-file 2>&1 | filecheck %s

ttm.program @tag {
  ttm.node @M <"i from 0 bits 2"> <"x: f32"> {
  ^bb0(%i: i32, %x: f32):
    // CHECK: ttm-invalid.mlir:[[# @LINE + 1]]:{{[0-9]+}}: error[UPL1002]: operand is used with type i32, but has been previously used or defined with type f32
    ttm.send %x -> @M::@x tag %x as "x" : f32
  }
}

// -----

ttm.program @condition {
  ttm.node @M <"i from 0 bits 2"> <"x: f32"> {
  ^bb0(%i: i32, %x: f32):
    // CHECK: ttm-invalid.mlir:[[# @LINE + 1]]:5: error[UPL1100]: operand 'condition' at position 0 does not verify: Expected attribute i1 but got i32
    "ttm.when"(%i) ({
    ^bb1():
    }) : (i32) -> ()
  }
}

// -----

ttm.program @twice {
  ttm.table @N from 0 : i64 = array<i64: 1> : i32
  // CHECK: ttm-invalid.mlir:[[# @LINE - 2]]:1: error[UPL1100]: Redefinition of symbol "N"
  ttm.table @N from 0 : i64 = array<i64: 1> : i32
}
