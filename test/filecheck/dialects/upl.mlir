// Every operation and attribute of the dialect, in its own syntax: printed as written, and read again from the generic form.
// RUN: upl-opt %s | filecheck %s --match-full-lines --strict-whitespace
// RUN: upl-opt %s -o %t.mlir && upl-opt %t.mlir -o %t.again.mlir && diff %t.mlir %t.again.mlir
// RUN: upl-opt %s --print-op-generic -o %t.generic.mlir && upl-opt %t.generic.mlir | diff %t.mlir -
// RUN: upl-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

upl.program @all {
  upl.param @D where <"D>=1">
  upl.const @K = 3 : i64
  upl.const @M as <"K+1"> = 4 : i64
  upl.const @eta = 5.000000e-01 : f64
  upl.array @N <"0"> to <"K-1"> from 0 : i64 = array<i64: 2, 3, 2>
  upl.array @c <"1"> to <"2"> from 1 : i64 = array<f64: 5.000000e-01, 1.500000e+00>
  upl.input @X <"d,i"> "f32" in <"1<=d<=D && 1<=i<=N[0]"> {
  ^bb0(%d: i64, %i: i64, %X: f32):
    %0 = arith.extf %X : f32 to f64
    upl.send %0 -> @A::@x <"d,i"> : f64
  }
  upl.input @n <"d"> "int" in <"1<=d<=D"> {
  ^bb0(%d_1: i64, %n: i64):
    upl.send %n -> @A::@n <"d,*"> count <"##"> : i64
  }
  upl.input @p <""> "real" in <"D>0"> {
  ^bb0(%p: f64):
    upl.send %p -> @Z::@p <""> : f64
  }
  upl.output @R <"d"> "real"
  upl.output @S <""> "bool" in <"D>=1"> domain <"D>0">
  upl.node @A <"d,i"> <"x, n: int"> in <"1<=d<=D && 1<=i<=2"> {
  ^bb0(%d_2: i64, %i_1: i64, %x: f64, %n_1: i64):
    %1 = upl.lookup @c[%i_1] : f64
    %2 = arith.mulf %x, %1 : f64
    %3 = upl.ref @eta : f64
    %4 = arith.addf %2, %3 : f64
    %y = upl.let "y" %4 : f64
    %5 = upl.sigmoid %y : f64
    %6 = arith.constant 5.000000e-01 : f64
    %7 = arith.cmpf ogt, %5, %6 : f64
    %8 = arith.constant 2 : i64
    %9 = upl.mod %n_1, %8
    %10 = arith.constant 0 : i64
    %11 = arith.cmpi eq, %9, %10 : i64
    %12 = arith.andi %7, %11 : i1
    %z = upl.let "z" %12 : i1
    %13 = arith.constant 0.000000e+00 : f64
    %14 = arith.cmpf ogt, %y, %13 : f64
    %15 = upl.stop_gradient %y : f64
    upl.send %15 -> @G::@s <"d"> when <"d<D"> if %14 : f64
    %16 = arith.constant 3 : i64
    %17 = arith.cmpi slt, %n_1, %16 : i64
    upl.send %y -> @B::@v <"d,i+n"> if %17 for <"a in 0..1, b in 0..a"> when_point <"a!=b"> : f64
  }
  upl.node @G <"d"> <"@(max) s[n], n: int"> {
  ^bb0(%d_3: i64, %s: f64, %n_2: i64):
    %g = upl.let "g" %s : f64
    upl.send %g -> @R <"d"> rule "duality" : f64
  }
  upl.node @B <"d,j"> <"@(*) v[#]"> in <"1<=d<=D && 0<=j<=D"> domain <"1<=d<=D && 0<=j<=D"> {
  ^bb0(%d_4: i64, %j: i64, %v: f64):
  }
  upl.node @Z <""> <"p"> {
  ^bb0(%p_1: f64):
    %18 = arith.constant 0.000000e+00 : f64
    %19 = arith.cmpf ogt, %p_1, %18 : f64
    upl.send %19 -> @S <""> : i1
  }
  upl.adjoint of @R seed @G::@g wrt [@A::@x, @p] into [@A::@x, @Z::@p]
  upl.adjoint of @G::@s wrt [@p]
}

//      CHECK:builtin.module {
// CHECK-NEXT:  upl.program @all {
// CHECK-NEXT:    upl.param @D where <"D>=1">
// CHECK-NEXT:    upl.const @K = 3 : i64
// CHECK-NEXT:    upl.const @M as <"K+1"> = 4 : i64
// CHECK-NEXT:    upl.const @eta = 5.000000e-01 : f64
// CHECK-NEXT:    upl.array @N <"0"> to <"K-1"> from 0 : i64 = array<i64: 2, 3, 2>
// CHECK-NEXT:    upl.array @c <"1"> to <"2"> from 1 : i64 = array<f64: 5.000000e-01, 1.500000e+00>
// CHECK-NEXT:    upl.input @X <"d,i"> "f32" in <"1<=d<=D && 1<=i<=N[0]"> {
// CHECK-NEXT:    ^bb0(%d: i64, %i: i64, %X: f32):
// CHECK-NEXT:      %0 = arith.extf %X : f32 to f64
// CHECK-NEXT:      upl.send %0 -> @A::@x <"d,i"> : f64
// CHECK-NEXT:    }
// CHECK-NEXT:    upl.input @n <"d"> "int" in <"1<=d<=D"> {
// CHECK-NEXT:    ^bb0(%d_1: i64, %n: i64):
// CHECK-NEXT:      upl.send %n -> @A::@n <"d,*"> count <"##"> : i64
// CHECK-NEXT:    }
// CHECK-NEXT:    upl.input @p <""> "real" in <"D>0"> {
// CHECK-NEXT:    ^bb0(%p: f64):
// CHECK-NEXT:      upl.send %p -> @Z::@p <""> : f64
// CHECK-NEXT:    }
// CHECK-NEXT:    upl.output @R <"d"> "real"
// CHECK-NEXT:    upl.output @S <""> "bool" in <"D>=1"> domain <"D>0">
// CHECK-NEXT:    upl.node @A <"d,i"> <"x, n: int"> in <"1<=d<=D && 1<=i<=2"> {
// CHECK-NEXT:    ^bb0(%d_2: i64, %i_1: i64, %x: f64, %n_1: i64):
// CHECK-NEXT:      %1 = upl.lookup @c[%i_1] : f64
// CHECK-NEXT:      %2 = arith.mulf %x, %1 : f64
// CHECK-NEXT:      %3 = upl.ref @eta : f64
// CHECK-NEXT:      %4 = arith.addf %2, %3 : f64
// CHECK-NEXT:      %y = upl.let "y" %4 : f64
// CHECK-NEXT:      %5 = upl.sigmoid %y : f64
// CHECK-NEXT:      %6 = arith.constant 5.000000e-01 : f64
// CHECK-NEXT:      %7 = arith.cmpf ogt, %5, %6 : f64
// CHECK-NEXT:      %8 = arith.constant 2 : i64
// CHECK-NEXT:      %9 = upl.mod %n_1, %8
// CHECK-NEXT:      %10 = arith.constant 0 : i64
// CHECK-NEXT:      %11 = arith.cmpi eq, %9, %10 : i64
// CHECK-NEXT:      %12 = arith.andi %7, %11 : i1
// CHECK-NEXT:      %z = upl.let "z" %12 : i1
// CHECK-NEXT:      %13 = arith.constant 0.000000e+00 : f64
// CHECK-NEXT:      %14 = arith.cmpf ogt, %y, %13 : f64
// CHECK-NEXT:      %15 = upl.stop_gradient %y : f64
// CHECK-NEXT:      upl.send %15 -> @G::@s <"d"> when <"d<D"> if %14 : f64
// CHECK-NEXT:      %16 = arith.constant 3 : i64
// CHECK-NEXT:      %17 = arith.cmpi slt, %n_1, %16 : i64
// CHECK-NEXT:      upl.send %y -> @B::@v <"d,i+n"> if %17 for <"a in 0..1, b in 0..a"> when_point <"a!=b"> : f64
// CHECK-NEXT:    }
// CHECK-NEXT:    upl.node @G <"d"> <"@(max) s[n], n: int"> {
// CHECK-NEXT:    ^bb0(%d_3: i64, %s: f64, %n_2: i64):
// CHECK-NEXT:      %g = upl.let "g" %s : f64
// CHECK-NEXT:      upl.send %g -> @R <"d"> rule "duality" : f64
// CHECK-NEXT:    }
// CHECK-NEXT:    upl.node @B <"d,j"> <"@(*) v[#]"> in <"1<=d<=D && 0<=j<=D"> domain <"1<=d<=D && 0<=j<=D"> {
// CHECK-NEXT:    ^bb0(%d_4: i64, %j: i64, %v: f64):
// CHECK-NEXT:    }
// CHECK-NEXT:    upl.node @Z <""> <"p"> {
// CHECK-NEXT:    ^bb0(%p_1: f64):
// CHECK-NEXT:      %18 = arith.constant 0.000000e+00 : f64
// CHECK-NEXT:      %19 = arith.cmpf ogt, %p_1, %18 : f64
// CHECK-NEXT:      upl.send %19 -> @S <""> : i1
// CHECK-NEXT:    }
// CHECK-NEXT:    upl.adjoint of @R seed @G::@g wrt [@A::@x, @p] into [@A::@x, @Z::@p]
// CHECK-NEXT:    upl.adjoint of @G::@s wrt [@p]
// CHECK-NEXT:  }
// CHECK-NEXT:}

// GENERIC: "upl.param"() <{sym_name = "D", condition = #upl.where<"D>=1">}> : () -> ()
// GENERIC: "upl.array"() <{sym_name = "N", lower = #upl.expr<"0">, upper = #upl.expr<"K-1">, base = 0 : i64, values = array<i64: 2, 3, 2>}> : () -> ()
// GENERIC: "upl.send"(%{{.*}}) <{target = @A::@n, index = #upl.index<"d,*">, count = #upl.count<"##">, operandSegmentSizes = array<i32: 1, 0>}> : (i64) -> ()
// GENERIC: "upl.node"() <{sym_name = "A", index = #upl.names<"d,i">, inputs = #upl.ports<"x, n: int">, declared = #upl.where<"1<=d<=D && 1<=i<=2">}> ({
// GENERIC: "upl.let"(%{{.*}}) <{var = "y"}> : (f64) -> f64
// GENERIC: iterators = #upl.iterators<"a in 0..1, b in 0..a">
// GENERIC: "upl.adjoint"() <{of = @R, seed = @G::@g, wrt = [@A::@x, @p], into = [@A::@x, @Z::@p]}> : () -> ()
