// A matrix product: a contraction, and loops that do the same.
builtin.module {
  upl_loops.program @matmul "relaxed" {
    upl.param @m where <"m>=1">
    upl.param @n where <"n>=1">
    upl.param @r where <"r>=1">
    upl_loops.array @A <"i,k"> f64 "input" in <"0<=i<m && 0<=k<r"> [#upl_loops.all<"i >= 0 && m >= i+1 && k >= 0 && r >= k+1">]
    upl_loops.array @B <"k,j"> f64 "input" in <"0<=k<r && 0<=j<n"> [#upl_loops.all<"k >= 0 && r >= k+1 && j >= 0 && n >= j+1">]
    upl_loops.array @C <"i,j"> f64 "output" in <"0<=i<m && 0<=j<n"> [#upl_loops.all<"i >= 0 && m >= i+1 && j >= 0 && n >= j+1">]
    upl_loops.statement @S0 writes @C where <"i >= 0 && m >= i+1 && j >= 0 && n >= j+1"> {
      %0 = upl_loops.fold "+" {
        upl_loops.part <"k_1"> where <"k_1 >= 0 && r >= k_1+1"> [] {
          %1 = upl_loops.read @A <"i,k_1"> : f64
          %2 = upl_loops.read @B <"k_1,j"> : f64
          %3 = arith.mulf %1, %2 : f64
          upl_loops.yield %3 : f64
        }
      } : f64
      upl_loops.yield %0 : f64
    }
    upl_loops.schedule {
      upl_loops.contract @S0 at <"*,*"> around <""> over <"i in 0..m-1; j in 0..n-1"> index <"i,j"> {
        upl_loops.product [@A, @B] [#upl.index<"i,k_1">, #upl.index<"k_1,j">, #upl.index<"i,j">] reads [#upl.index<"i,k_1">, #upl.index<"k_1,j">] where <""> around <""> over <"i in 0..m-1; j in 0..n-1"> summed <"k_1 in 0..r-1">
      } plain {
        upl_loops.for "L1" from <"0"> to <"m-1"> parallel {
          upl_loops.for "L2" from <"0"> to <"n-1"> parallel {
            upl_loops.run @S0 at <"L1,L2">
          }
        }
      }
    }
  }
}
