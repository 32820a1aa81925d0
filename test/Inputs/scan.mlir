// Running sums, of which the last is asked for: two places for all of them.
upl_loops.program @scan "relaxed" {
  upl.param @n where <"n>=2">
  upl_loops.array @A <"i"> f64 "input" in <"0<=i<n"> [#upl_loops.all<"i >= 0 && n >= i+1">]
  upl_loops.array @B <""> f64 "output" [#upl_loops.all<"">]
  upl_loops.array @S <"i"> f64 "local" [#upl_loops.all<"i >= 0 && n >= i+1">] kept <"0 from 0 size 2 mod 2">
  upl_loops.statement @S0 writes @S where <"i == 0"> {
    %0 = upl_loops.read @A <"i"> : f64
    upl_loops.yield %0 : f64
  }
  upl_loops.statement @S1 writes @S where <"i >= 1 && n >= i+1"> {
    %0 = upl_loops.read @S <"i-1"> : f64
    %1 = upl_loops.read @A <"i"> : f64
    %2 = arith.addf %0, %1 : f64
    upl_loops.yield %2 : f64
  }
  upl_loops.statement @S2 writes @B where <""> {
    %0 = upl_loops.read @S <"n-1"> : f64
    upl_loops.yield %0 : f64
  }
  upl_loops.schedule {
    upl_loops.run @S0 at <"0">
    upl_loops.for "L1" from <"1"> to <"n-1"> {
      upl_loops.run @S1 at <"L1">
    }
    upl_loops.run @S2 at <"">
  }
}
