// `simplify` tidies the bodies of adjoint nodes (those with `upl.primal`) and leaves what the author wrote as it is.
// RUN: upl-opt %s --simplify | filecheck %s
// RUN: upl-opt %s --simplify --simplify | filecheck %s

upl.program @tidy {
  upl.output @R <"i"> "real"
  upl.node @DM <"i"> <"d, x, p: bool"> {
  ^bb0(%i: i64, %d: f64, %x: f64, %p: i1):
    %one = arith.constant 1.000000e+00 : f64
    %zero = arith.constant 0.000000e+00 : f64
    // Products by 1, division by 1, double negation, a choice between equals: exact under IEEE rules, so they go.
    %0 = arith.mulf %d, %one : f64
    %1 = arith.mulf %one, %0 : f64
    %2 = arith.divf %1, %one : f64
    %3 = arith.negf %2 : f64
    %4 = arith.negf %3 : f64
    %5 = arith.select %p, %4, %4 : f64
    // Equal operations are one; products by 0 and sums with 0 are not exact (NaN, -0), so they stay.
    %6 = arith.mulf %5, %x : f64
    %7 = arith.mulf %d, %x : f64
    %8 = arith.addf %6, %7 : f64
    %9 = arith.mulf %8, %zero : f64
    %10 = arith.addf %9, %zero : f64
    // Nobody uses this.
    %11 = math.exp %x : f64
    upl.send %10 -> @R <"i"> : f64
  } {upl.primal = "M"}
  upl.node @M <"i"> <"d"> {
  ^bb0(%i: i64, %d: f64):
    %one = arith.constant 1.000000e+00 : f64
    %0 = arith.mulf %d, %one : f64
    upl.send %0 -> @DM::@x <"i"> : f64
  }
}

// CHECK:       upl.node @DM
// CHECK-NEXT:  ^bb0(%i: i64, %d: f64, %x: f64, %p: i1):
// CHECK-NEXT:    %zero = arith.constant 0.000000e+00 : f64
// CHECK-NEXT:    %[[P:.*]] = arith.mulf %d, %x : f64
// CHECK-NEXT:    %[[S:.*]] = arith.addf %[[P]], %[[P]] : f64
// CHECK-NEXT:    %[[Z:.*]] = arith.mulf %[[S]], %zero : f64
// CHECK-NEXT:    %[[R:.*]] = arith.addf %[[Z]], %zero : f64
// CHECK-NEXT:    upl.send %[[R]] -> @R <"i"> : f64
// CHECK-NEXT:  } {upl.primal = "M"}
// CHECK-NEXT:  upl.node @M <"i"> <"d">
// CHECK:         arith.mulf %{{.*}}, %one{{.*}} : f64
