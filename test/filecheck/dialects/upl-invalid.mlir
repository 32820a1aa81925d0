// Structural errors of the upl dialect: the message, and the line and column of the operation at fault.
// RUN: upl-opt %s --split-input-file --verify-diagnostics | filecheck %s
// RUN: not upl-opt %s --split-input-file -o %t.out 2>&1 | filecheck %s
// RUN: not test -e %t.out

// CHECK: upl-invalid.mlir:[[# @LINE + 1]]:1: error[UPL1100]: Redefinition of symbol "D"
upl.program @twice {
  upl.param @D
  upl.const @D = 7 : i64
}

// -----

upl.program @foreign {
  // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:3: error[UPL1100]: `builtin.module` does not belong in a program
  builtin.module {
  }
}

// -----

upl.program @domain {
  // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:3: error[UPL1100]: unknown name `n` in the declared domain of `R`
  upl.output @R <"i"> "real" in <"0<=i<n">
}

// -----

upl.program @field {
  upl.const @i = 7 : i64
  // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:3: error[UPL1100]: index field `i` of `R` has the name of a constant
  upl.output @R <"i"> "real" in <"0<=i<3">
}

// -----

upl.program @arity {
  upl.input @X <"i"> "real" in <"0<=i<3"> {
  ^bb0(%i: i64, %X: f64):
    // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:5: error[UPL1100]: `R` has 2 index fields, the arrow gives 1
    upl.send %X -> @R <"i"> : f64
  }
  upl.output @R <"i,j"> "real"
}

// -----

upl.program @target {
  upl.input @X <"i"> "real" in <"0<=i<3"> {
  ^bb0(%i: i64, %X: f64):
    // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:5: error[UPL1100]: unknown target `M`
    upl.send %X -> @M::@x <"i"> : f64
  }
}

// -----

upl.program @port {
  upl.input @X <"i"> "real" in <"0<=i<3"> {
  ^bb0(%i: i64, %X: f64):
    // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:5: error[UPL1100]: node `M` has no input `y`
    upl.send %X -> @M::@y <"i"> : f64
  }
  upl.node @M <"i"> <"x"> {
  ^bb0(%i: i64, %x: f64):
  }
}

// -----

upl.program @type {
  upl.input @X <"i"> "int" in <"0<=i<3"> {
  ^bb0(%i: i64, %X: i64):
    // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:5: error[UPL1100]: `R` takes real, the arrow sends i64
    upl.send %X -> @R <"i"> : i64
  }
  upl.output @R <"i"> "real"
}

// -----

upl.program @star {
  upl.input @X <"i"> "real" in <"0<=i<3"> {
  ^bb0(%i: i64, %X: f64):
    // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:5: error[UPL1100]: a token for `M.s` carries no `*`
    upl.send %X -> @M::@s <"*"> count <"3"> : f64
  }
  upl.node @M <"i"> <"@(+) s[#]"> {
  ^bb0(%i: i64, %s: f64):
  }
}

// -----

upl.program @iterator {
  upl.input @X <"i"> "real" in <"0<=i<3"> {
  ^bb0(%i: i64, %X: f64):
    // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:5: error[UPL1100]: iterator `i` has the name of something else
    upl.send %X -> @R <"i"> for <"i in 0..2"> : f64
  }
  upl.output @R <"i"> "real"
}

// -----

upl.program @multiplicity {
  upl.input @X <"i"> "real" in <"0<=i<3"> {
  ^bb0(%i: i64, %X: f64):
    // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:5: error[UPL1100]: `#` alone is not a multiplicity
    upl.send %X -> @R <"i"> count <"#"> : f64
  }
  upl.output @R <"i"> "real"
}

// -----

upl.program @gather {
  // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:3: error[UPL1100]: `@(&&)` cannot gather `s: real`
  upl.node @M <"i"> <"@(&&) s[#]"> {
  ^bb0(%i: i64, %s: f64):
  }
}

// -----

upl.program @arguments {
  // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:3: error[UPL1100]: the block arguments of `M` are not its fields and inputs
  upl.node @M <"i"> <"x: bool"> {
  ^bb0(%i: i64, %x: f64):
  }
}

// -----

upl.program @body {
  // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:3: error[UPL1100]: Region 'body' at position 0 expected a single block
  upl.node @M <"i"> <"x"> {
  }
}

// -----

upl.program @assigned {
  upl.node @M <"i"> <"x"> {
  ^bb0(%i: i64, %x: f64):
    // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:5: error[UPL1100]: `x` is assigned twice, or is a field or an input
    upl.let "x" %x : f64
  }
}

// -----

upl.program @constant {
  upl.const @eta = 5.0e-01 : f64
  upl.node @M <"i"> <"x"> {
  ^bb0(%i: i64, %x: f64):
    // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:5: error[UPL1100]: `eta` is real
    upl.ref @eta : i64
  }
}

// -----

upl.program @seed {
  upl.output @R <"i"> "real"
  upl.node @M <"i"> <"x"> {
  ^bb0(%i: i64, %x: f64):
  }
  // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:3: error[UPL1100]: the seed `M.v` is not a variable of a node
  upl.adjoint of @R seed @M::@v wrt [@M::@x]
}

// -----

upl.program @wrt {
  upl.output @R <"i"> "real"
  // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:3: error[UPL1100]: `wrt` names `R`, which is not such a port
  upl.adjoint of @R wrt [@R]
}

// -----

// CHECK: upl-invalid.mlir:[[# @LINE + 2]]:{{[0-9]+}}: error[UPL1002]: in `0<=i<`:
upl.program @syntax {
  upl.output @R <"i"> "real" in <"0<=i<">
}

// -----

upl.program @type {
  // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:{{[0-9]+}}: error[UPL1002]: in `x: quad`: unknown type `quad`
  upl.node @M <"i"> <"x: quad"> {
  ^bb0(%i: i64, %x: f64):
  }
}

// -----

upl.program @unknown {
  upl.output @R <"i"> "real"
  // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:{{[0-9]+}}: error[UPL1002]: Operation upl.arrow is not registered
  upl.arrow @R
}

// -----

upl.program @dtype {
  // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:3: error[UPL1100]: `R` has the unknown type `quad`
  upl.output @R <"i"> "quad"
}

// -----

upl.program @dtype {
  // CHECK: upl-invalid.mlir:[[# @LINE + 1]]:3: error[UPL1100]: `X` has the unknown type `quad`
  upl.input @X <"i"> "quad" in <"0<=i<3"> {
  ^bb0(%i: i64, %X: f64):
  }
}
