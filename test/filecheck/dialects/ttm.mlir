// Every operation of the machine's dialect, in its own syntax: printed as written, and read again from the generic form.
// RUN: upl-opt %s | filecheck %s --match-full-lines --strict-whitespace
// RUN: upl-opt %s -o %t.mlir && upl-opt %t.mlir | diff %t.mlir -
// RUN: upl-opt %s --print-op-generic -o %t.generic.mlir && upl-opt %t.generic.mlir | diff %t.mlir -
// RUN: upl-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

ttm.program @sums for "small.toml" streams <"d"> {
  ttm.table @N from 1 : i64 = array<i64: 3, 1> : i32
  ttm.table @c from 1 : i64 = array<f64: 5.000000e-01, 2.000000e+00> : f32
  ttm.node @X host <"d from 1 bits 1, i from 1 bits 1"> <"X: f32"> in <"1<=d<=2 && 1<=i<=2"> {
  ^bb0(%d: i32, %i: i32, %X: f32):
    %0 = arith.constant 2 : i32
    %1 = arith.cmpi slt, %i, %0 : i32
    ttm.when %1 {
      %2 = ttm.load @N[%i] : i32
      ttm.send %X -> @Mul::@x tag %d, %i as "xx*" times %2 : f32
    }
    %3 = ttm.sigmoid %X : f32
    %4 = arith.constant 2 : i32
    %5 = arith.cmpi eq, %i, %4 : i32
    ttm.when %5 {
      %6 = ttm.load @N[%i] : i32
      ttm.send %3 -> @Sum::@s tag %d, %i as "xx" times %6 : f32
    }
  }
  ttm.node @Y host <"j from 1 bits 2"> <"Y: i32"> {
  ^bb0(%j: i32, %Y: i32):
    %7 = arith.constant 1 : i32
    ttm.send %Y -> @Mul::@y tag %7, %j as "*xx" unbounded : i32
  }
  ttm.output @R <"d from 1 bits 1, i from 1 bits 1"> f32 in <"d<=2 && i<=N[1]">
  ttm.node @Mul <"d from 1 bits 1, i from 1 bits 0, j from 1 bits 2"> <"x: f32, y: i32"> {
  ^bb0(%d_1: i32, %i_1: i32, %j_1: i32, %x: f32, %y: i32):
    %8 = ttm.load @c[%i_1] : f32
    %9 = arith.mulf %8, %x : f32
    %10 = arith.sitofp %y : i32 to f32
    %v = arith.mulf %9, %10 : f32
    %11 = arith.constant 0.000000e+00 : f32
    %12 = arith.cmpf ogt, %v, %11 : f32
    ttm.when %12 {
      ttm.send %v -> @Seen::@v tag %d_1, %i_1, %j_1 as "xxx" : f32
    }
    %13 = ttm.load @N[%i_1] : i32
    ttm.send %v -> @Sum::@s tag %d_1, %i_1 as "xx" times %13 : f32
  }
  ttm.node @Sum <"d from 1 bits 1, i from 1 bits 1"> <"@(+) s: f32"> {
  ^bb0(%d_2: i32, %i_2: i32, %s: f32):
    ttm.send %s -> @R tag %d_2, %i_2 as "xx" : f32
  }
  ttm.node @Seen <"d from 1 bits 1, i from 1 bits 0, j from 1 bits 2"> <"v: f32"> {
  ^bb0(%d_3: i32, %i_3: i32, %j_2: i32, %v_1: f32):
    %14 = arith.constant 1 : i32
    %15 = arith.constant 3 : i32
    ttm.for %14 to %15 {
    ^bb0(%a: i32):
      %16 = arith.cmpi eq, %a, %j_2 : i32
      ttm.when %16 {
        ttm.send %v_1 -> @Last::@w tag %d_3, %i_3, %j_2 as "xxx" : f32
      }
    }
  }
  ttm.node @Last <"d from 1 bits 1, i from 1 bits 0, j from 1 bits 2"> <"w: f32"> {
  ^bb0(%d_4: i32, %i_4: i32, %j_3: i32, %w: f32):
  }
  ttm.boot @Empty::@e at array<i64: 1>
  ttm.boot @Empty::@e at array<i64: 2>
  ttm.node @Empty <"d from 1 bits 1"> <"@(max) e: f32"> {
  ^bb0(%d_5: i32, %e: f32):
    ttm.send %e -> @Last2::@x tag %d_5 as "x" : f32
  }
  ttm.node @Last2 <"d from 1 bits 1"> <"x: f32"> {
  ^bb0(%d_6: i32, %x_1: f32):
    %17 = math.floor %x_1 : f32
    %18 = arith.fptosi %17 : f32 to i32
    %19 = arith.constant 2 : i32
    %n = ttm.mod %18, %19
  }
}

//      CHECK:builtin.module {
// CHECK-NEXT:  ttm.program @sums for "small.toml" streams <"d"> {
// CHECK-NEXT:    ttm.table @N from 1 : i64 = array<i64: 3, 1> : i32
// CHECK-NEXT:    ttm.table @c from 1 : i64 = array<f64: 5.000000e-01, 2.000000e+00> : f32
// CHECK-NEXT:    ttm.node @X host <"d from 1 bits 1, i from 1 bits 1"> <"X: f32"> in <"1<=d<=2 && 1<=i<=2"> {
// CHECK-NEXT:    ^bb0(%d: i32, %i: i32, %X: f32):
// CHECK-NEXT:      %0 = arith.constant 2 : i32
// CHECK-NEXT:      %1 = arith.cmpi slt, %i, %0 : i32
// CHECK-NEXT:      ttm.when %1 {
// CHECK-NEXT:        %2 = ttm.load @N[%i] : i32
// CHECK-NEXT:        ttm.send %X -> @Mul::@x tag %d, %i as "xx*" times %2 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      %3 = ttm.sigmoid %X : f32
// CHECK-NEXT:      %4 = arith.constant 2 : i32
// CHECK-NEXT:      %5 = arith.cmpi eq, %i, %4 : i32
// CHECK-NEXT:      ttm.when %5 {
// CHECK-NEXT:        %6 = ttm.load @N[%i] : i32
// CHECK-NEXT:        ttm.send %3 -> @Sum::@s tag %d, %i as "xx" times %6 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:    }
// CHECK-NEXT:    ttm.node @Y host <"j from 1 bits 2"> <"Y: i32"> {
// CHECK-NEXT:    ^bb0(%j: i32, %Y: i32):
// CHECK-NEXT:      %7 = arith.constant 1 : i32
// CHECK-NEXT:      ttm.send %Y -> @Mul::@y tag %7, %j as "*xx" unbounded : i32
// CHECK-NEXT:    }
// CHECK-NEXT:    ttm.output @R <"d from 1 bits 1, i from 1 bits 1"> f32 in <"d<=2 && i<=N[1]">
// CHECK-NEXT:    ttm.node @Mul <"d from 1 bits 1, i from 1 bits 0, j from 1 bits 2"> <"x: f32, y: i32"> {
// CHECK-NEXT:    ^bb0(%d_1: i32, %i_1: i32, %j_1: i32, %x: f32, %y: i32):
// CHECK-NEXT:      %8 = ttm.load @c[%i_1] : f32
// CHECK-NEXT:      %9 = arith.mulf %8, %x : f32
// CHECK-NEXT:      %10 = arith.sitofp %y : i32 to f32
// CHECK-NEXT:      %v = arith.mulf %9, %10 : f32
// CHECK-NEXT:      %11 = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:      %12 = arith.cmpf ogt, %v, %11 : f32
// CHECK-NEXT:      ttm.when %12 {
// CHECK-NEXT:        ttm.send %v -> @Seen::@v tag %d_1, %i_1, %j_1 as "xxx" : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      %13 = ttm.load @N[%i_1] : i32
// CHECK-NEXT:      ttm.send %v -> @Sum::@s tag %d_1, %i_1 as "xx" times %13 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    ttm.node @Sum <"d from 1 bits 1, i from 1 bits 1"> <"@(+) s: f32"> {
// CHECK-NEXT:    ^bb0(%d_2: i32, %i_2: i32, %s: f32):
// CHECK-NEXT:      ttm.send %s -> @R tag %d_2, %i_2 as "xx" : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    ttm.node @Seen <"d from 1 bits 1, i from 1 bits 0, j from 1 bits 2"> <"v: f32"> {
// CHECK-NEXT:    ^bb0(%d_3: i32, %i_3: i32, %j_2: i32, %v_1: f32):
// CHECK-NEXT:      %14 = arith.constant 1 : i32
// CHECK-NEXT:      %15 = arith.constant 3 : i32
// CHECK-NEXT:      ttm.for %14 to %15 {
// CHECK-NEXT:      ^bb0(%a: i32):
// CHECK-NEXT:        %16 = arith.cmpi eq, %a, %j_2 : i32
// CHECK-NEXT:        ttm.when %16 {
// CHECK-NEXT:          ttm.send %v_1 -> @Last::@w tag %d_3, %i_3, %j_2 as "xxx" : f32
// CHECK-NEXT:        }
// CHECK-NEXT:      }
// CHECK-NEXT:    }
// CHECK-NEXT:    ttm.node @Last <"d from 1 bits 1, i from 1 bits 0, j from 1 bits 2"> <"w: f32"> {
// CHECK-NEXT:    ^bb0(%d_4: i32, %i_4: i32, %j_3: i32, %w: f32):
// CHECK-NEXT:    }
// CHECK-NEXT:    ttm.boot @Empty::@e at array<i64: 1>
// CHECK-NEXT:    ttm.boot @Empty::@e at array<i64: 2>
// CHECK-NEXT:    ttm.node @Empty <"d from 1 bits 1"> <"@(max) e: f32"> {
// CHECK-NEXT:    ^bb0(%d_5: i32, %e: f32):
// CHECK-NEXT:      ttm.send %e -> @Last2::@x tag %d_5 as "x" : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    ttm.node @Last2 <"d from 1 bits 1"> <"x: f32"> {
// CHECK-NEXT:    ^bb0(%d_6: i32, %x_1: f32):
// CHECK-NEXT:      %17 = math.floor %x_1 : f32
// CHECK-NEXT:      %18 = arith.fptosi %17 : f32 to i32
// CHECK-NEXT:      %19 = arith.constant 2 : i32
// CHECK-NEXT:      %n = ttm.mod %18, %19
// CHECK-NEXT:    }
// CHECK-NEXT:  }
// CHECK-NEXT:}

// GENERIC: "ttm.program"() <{sym_name = "sums", machine = "small.toml", streams = #upl.names<"d">}> ({
// GENERIC: "ttm.table"() <{sym_name = "c", lower = 1 : i64, values = array<f64: 5.000000e-01, 2.000000e+00>, element = f32}> : () -> ()
// GENERIC: "ttm.node"() <{sym_name = "Y", host, layout = #ttm.fields<"j from 1 bits 2">, inputs = #ttm.inputs<"Y: i32">}> ({
// GENERIC: "ttm.send"(%Y, %{{.*}}, %j) <{target = @Mul::@y, pattern = "*xx", unbounded, operandSegmentSizes = array<i32: 1, 2, 0>}> : (i32, i32, i32) -> ()
// GENERIC: "ttm.boot"() <{target = @Empty::@e, index = array<i64: 1>}> : () -> ()
