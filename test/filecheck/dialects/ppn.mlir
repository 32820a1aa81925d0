// Every operation of the dialect of circuits, in its own syntax: printed as written, and read again from the generic form.
// RUN: upl-opt %s | filecheck %s --match-full-lines --strict-whitespace
// RUN: upl-opt %s -o %t.mlir && upl-opt %t.mlir | diff %t.mlir -
// RUN: upl-opt %s --print-op-generic -o %t.generic.mlir && upl-opt %t.generic.mlir | diff %t.mlir -
// RUN: upl-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

ppn.circuit @wave {
  upl_loops.program @wave "ordered" {
    upl.const @n = 8 : i64
    upl_loops.array @A <"i"> f32 "input" in <"0<=i<n"> [#upl_loops.all<"i >= 0 && 7 >= i">]
    upl_loops.array @H <"k"> f32 "input" in <"0<=k<2"> [#upl_loops.all<"k >= 0 && 1 >= k">]
    upl_loops.array @B <"i"> f32 "input" in <"0<=i<n"> [#upl_loops.all<"i >= 0 && 7 >= i">]
    upl_loops.array @U.u <"t,i"> f32 "local" [#upl_loops.all<"t >= 0 && 3 >= t && i >= 0 && 7 >= i">]
    upl_loops.array @Y <"i"> f32 "output" in <"0<=i<n"> [#upl_loops.all<"i >= 0 && 7 >= i">]
    upl_loops.statement @S0 writes @U.u where <"t == 0 && i >= 0 && 7 >= i"> {
      %0 = upl_loops.read @A <"i"> : f32
      upl_loops.yield %0 : f32
    }
  }
  ppn.process @U.process computes @U.u over <"t in 0..3, i in -1..7"> lanes 3 along "i" order <"t,i"> every <"57, 1"> skew 2 slots 230 result 57 cycles 259
  ppn.unit @up_0 "up 1" latency 6 interval 1
  ppn.unit @neg_0 "neg" latency 0 interval 1
  ppn.bind @up_0 to @U.process at 0
  ppn.bind @neg_0 to @U.process at 6
  ppn.channel @U_0 from @U.process to @U.process of <"t-1,i"> at 6 "varying" depth 50 reads 16 
  ppn.channel @U_1 from @U.process to @U.process at 0 "delay" depth 0 reads 0
  ppn.channel @A_0 from @A to @U.process of <"i"> at 56 "windows" depth 16 reads 8
  ppn.channel @H_0 from @H to @U.process of <"i mod 2"> at 56 "window" depth 2 reads 8
  ppn.channel @B_0 from @B to @U.process of <"i"> at 56 "dealt" depth 4 reads 8 {"note" = "in turn"}
  ppn.port @A "in" order <"i block, i lane"> words 8 need <"loop 2: 2 x 3, 1 x 2, 9 x 0"> free <"loop 0: 1 x 8">
  ppn.port @H "in" order <"k"> words 2
  ppn.port @B "in" order <"i"> words 8 free <"loop 1: 4 x 2">
  ppn.port @Y "out" order <"i"> words 8 wait 172 depth 3
}

//      CHECK:builtin.module {
// CHECK-NEXT:  ppn.circuit @wave {
// CHECK-NEXT:    upl_loops.program @wave "ordered" {
// CHECK-NEXT:      upl.const @n = 8 : i64
// CHECK-NEXT:      upl_loops.array @A <"i"> f32 "input" in <"0<=i<n"> [#upl_loops.all<"i >= 0 && 7 >= i">]
// CHECK-NEXT:      upl_loops.array @H <"k"> f32 "input" in <"0<=k<2"> [#upl_loops.all<"k >= 0 && 1 >= k">]
// CHECK-NEXT:      upl_loops.array @B <"i"> f32 "input" in <"0<=i<n"> [#upl_loops.all<"i >= 0 && 7 >= i">]
// CHECK-NEXT:      upl_loops.array @U.u <"t,i"> f32 "local" [#upl_loops.all<"t >= 0 && 3 >= t && i >= 0 && 7 >= i">]
// CHECK-NEXT:      upl_loops.array @Y <"i"> f32 "output" in <"0<=i<n"> [#upl_loops.all<"i >= 0 && 7 >= i">]
// CHECK-NEXT:      upl_loops.statement @S0 writes @U.u where <"t == 0 && i >= 0 && 7 >= i"> {
// CHECK-NEXT:        %0 = upl_loops.read @A <"i"> : f32
// CHECK-NEXT:        upl_loops.yield %0 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:    }
// CHECK-NEXT:    ppn.process @U.process computes @U.u over <"t in 0..3, i in -1..7"> lanes 3 along "i" order <"t,i"> every <"57, 1"> skew 2 slots 230 result 57 cycles 259
// CHECK-NEXT:    ppn.unit @up_0 "up 1" latency 6 interval 1
// CHECK-NEXT:    ppn.unit @neg_0 "neg" latency 0 interval 1
// CHECK-NEXT:    ppn.bind @up_0 to @U.process at 0
// CHECK-NEXT:    ppn.bind @neg_0 to @U.process at 6
// CHECK-NEXT:    ppn.channel @U_0 from @U.process to @U.process of <"t-1,i"> at 6 "varying" depth 50 reads 16
// CHECK-NEXT:    ppn.channel @U_1 from @U.process to @U.process at 0 "delay" depth 0 reads 0
// CHECK-NEXT:    ppn.channel @A_0 from @A to @U.process of <"i"> at 56 "windows" depth 16 reads 8
// CHECK-NEXT:    ppn.channel @H_0 from @H to @U.process of <"i mod 2"> at 56 "window" depth 2 reads 8
// CHECK-NEXT:    ppn.channel @B_0 from @B to @U.process of <"i"> at 56 "dealt" depth 4 reads 8 {note = "in turn"}
// CHECK-NEXT:    ppn.port @A "in" order <"i block, i lane"> words 8 need <"loop 2: 2 x 3, 1 x 2, 9 x 0"> free <"loop 0: 1 x 8">
// CHECK-NEXT:    ppn.port @H "in" order <"k"> words 2
// CHECK-NEXT:    ppn.port @B "in" order <"i"> words 8 free <"loop 1: 4 x 2">
// CHECK-NEXT:    ppn.port @Y "out" order <"i"> words 8 wait 172 depth 3
// CHECK-NEXT:  }
// CHECK-NEXT:}

// GENERIC: "ppn.process"() <{sym_name = "U.process", array = @U.u, over = #ppn.ranges<"t in 0..3, i in -1..7">, lanes = 3 : i64, along = "i", order = #upl.names<"t,i">, every = #ppn.numbers<"57, 1">
// GENERIC: "ppn.bind"() <{unit = @neg_0, process = @U.process, stage = 6 : i64}> : () -> ()
// GENERIC: "ppn.channel"() <{sym_name = "U_1", source = @U.process, target = @U.process, stage = 0 : i64, kind = "delay", depth = 0 : i64, reads = 0 : i64}> : () -> ()
// GENERIC: "ppn.port"() <{sym_name = "A", role = "in", order = #ppn.order<"i block, i lane">, words = 8 : i64, need = #ppn.runs<"loop 2: 2 x 3, 1 x 2, 9 x 0">, free = #ppn.runs<"loop 0: 1 x 8">}> : () -> ()
