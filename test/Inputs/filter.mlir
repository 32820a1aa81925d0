builtin.module {
  ppn.circuit @fir {
    upl_loops.program @fir "ordered" {
      upl.const @K = 2 : i64
      upl.const @n = 6 : i64
      upl_loops.array @X <"i"> f32 "input" in <"0<=i<K+n-1"> [#upl_loops.all<"i >= 0 && 6 >= i">]
      upl_loops.array @H <"k"> f32 "input" in <"0<=k<K"> [#upl_loops.all<"k >= 0 && 1 >= k">]
      upl_loops.array @Y <"i"> f32 "output" in <"0<=i<n"> [#upl_loops.all<"i >= 0 && 5 >= i">]
      upl_loops.statement @S0 writes @Y where <"i >= 0 && 5 >= i"> {
        %0 = upl_loops.fold "+" {
          upl_loops.part <"k_1"> where <"k_1 >= 0 && 1 >= k_1"> [] {
            %1 = upl_loops.read @X <"i+k_1"> : f32
            %2 = upl_loops.read @H <"k_1"> : f32
            %3 = arith.mulf %1, %2 : f32
            upl_loops.yield %3 : f32
          }
        } : f32
        upl_loops.yield %0 : f32
      }
    }
    ppn.process @Y.process computes @Y over <"i in 0..5, k_1 in 0..1"> lanes 2 along "k_1" order <"i,k_1"> every <"1, 1"> skew 13 slots 7 result 26 cycles 62
    ppn.unit @select_0 "select" latency 1 interval 1
    ppn.unit @mul_0 "mul" latency 14 interval 1
    ppn.unit @add_0 "add" latency 12 interval 1
    ppn.bind @select_0 to @Y.process at 13
    ppn.bind @mul_0 to @Y.process at 0
    ppn.bind @add_0 to @Y.process at 14
    ppn.channel @Y_0 from @Y.process to @Y.process at 13 "delay" depth 0 reads 6
    ppn.channel @X_0 from @X to @Y.process of <"i+k_1"> at 0 "windows" depth 64 reads 12
    ppn.channel @H_0 from @H to @Y.process of <"k_1"> at 0 "dealt" depth 16 reads 12
    ppn.port @X "in" order <"i"> words 7 need <"loop 1: 1 x 2, 5 x 1"> free <"loop 1: 5 x 1, 1 x 2">
    ppn.port @H "in" order <"k"> words 2 need <"loop 0: 1 x 2"> free <"loop 0: 1 x 2">
    ppn.port @Y "out" order <"i"> words 6
  }
}

