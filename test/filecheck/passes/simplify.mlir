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
    // x + x is 2*x, exactly; the 2 goes to the front.
    %9 = arith.mulf %8, %zero : f64
    %10 = arith.addf %9, %zero : f64
    // Nobody uses this.
    %11 = math.exp %x : f64
    upl.send %10 -> @R <"i"> : f64
  } {upl.primal = "M"}
  upl.node @DN <"i"> <"d, x, p: bool"> {
  ^bb0(%i: i64, %d: f64, %x: f64, %p: i1):
    %true = arith.constant true
    %half = arith.constant 5.000000e-01 : f64
    %zero = arith.constant 0.000000e+00 : f64
    // d*(-0.5*x) + d*x*(-0.5) is -d*x: powers of two move and add up.
    %0 = arith.negf %half : f64
    %1 = arith.negf %x : f64
    %2 = arith.mulf %1, %half : f64
    %3 = arith.mulf %d, %2 : f64
    %4 = arith.mulf %d, %x : f64
    %5 = arith.mulf %4, %half : f64
    %6 = arith.subf %3, %5 : f64
    // A choice that was written as a sum, and its arms in turn.
    %not = arith.xori %p, %true : i1
    %8 = arith.select %p, %zero, %6 : f64
    %9 = arith.select %not, %zero, %x : f64
    %10 = arith.addf %8, %9 : f64
    upl.send %10 -> @R <"i"> : f64
  } {upl.primal = "N"}
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
// CHECK-NEXT:    %[[TWO:.*]] = arith.constant 2.000000e+00 : f64
// CHECK-NEXT:    %[[P:.*]] = arith.mulf %[[TWO]], %d : f64
// CHECK-NEXT:    %[[S:.*]] = arith.mulf %[[P]], %x : f64
// CHECK-NEXT:    %[[Z:.*]] = arith.mulf %zero, %[[S]] : f64
// CHECK-NEXT:    %[[R:.*]] = arith.addf %[[Z]], %zero : f64
// CHECK-NEXT:    upl.send %[[R]] -> @R <"i"> : f64
// CHECK-NEXT:  } {upl.primal = "M"}
// CHECK-NEXT:  upl.node @DN
// CHECK-NEXT:  ^bb0(%[[I:.*]]: i64, %[[D:.*]]: f64, %[[X:.*]]: f64, %[[C:.*]]: i1):
// CHECK-NEXT:    %[[NEG:.*]] = arith.negf %[[D]] : f64
// CHECK-NEXT:    %[[P:.*]] = arith.mulf %[[NEG]], %[[X]] : f64
// CHECK-NEXT:    %[[A:.*]] = arith.select %[[C]], %[[X]], %[[P]] : f64
// CHECK-NEXT:    upl.send %[[A]] -> @R <"i"> : f64
// CHECK-NEXT:  } {upl.primal = "N"}
// CHECK-NEXT:  upl.node @M <"i"> <"d">
// CHECK:         arith.mulf %{{.*}}, %one{{.*}} : f64
