// The rows of a triangular matrix times a vector, and the number of positive products in each.
ttm.program @rows streams <"i"> {
  ttm.table @N from 1 : i64 = array<i64: 1, 3, 2, 5> : i32
  ttm.table @scale from 0 : i64 = array<f64: 0.5, 2.0> : f32
  ttm.node @A host <"i from 1 bits 2, j from 1 bits 3"> <"A: f32"> in <"1<=i<=4 && 1<=j<=N[i]"> {
  ^bb0(%i: i32, %j: i32, %A: f32):
    ttm.send %A -> @Mul::@a tag %i, %j as "xx" : f32
  }
  ttm.node @V host <"j from 1 bits 3"> <"V: i32"> in <"1<=j<=5"> {
  ^bb0(%j: i32, %V: i32):
    ttm.send %V -> @Mul::@v tag %j as "*x" unbounded : i32
  }
  ttm.output @Y <"i from 1 bits 2"> f32
  ttm.output @Count <"i from 1 bits 2"> i32 in <"1<=i<=4">
  ttm.node @Mul <"i from 1 bits 2, j from 1 bits 3"> <"a: f32, v: i32"> in <"1<=i<=4 && 1<=j<=N[i]"> {
  ^bb0(%i: i32, %j: i32, %a: f32, %v: i32):
    %w = arith.sitofp %v : i32 to f32
    %product = arith.mulf %a, %w : f32
    %n = ttm.load @N[%i] : i32
    ttm.send %product -> @Sum::@s tag %i as "x" times %n : f32
    %zero = arith.constant 0.0 : f32
    %positive = arith.cmpf ogt, %product, %zero : f32
    %one = arith.extui %positive : i1 to i32
    ttm.send %one -> @Sum::@n tag %i as "x" times %n : i32
  }
  ttm.node @Sum <"i from 1 bits 2"> <"@(+) s: f32, @(+) n: i32"> in <"1<=i<=4"> {
  ^bb0(%i: i32, %s: f32, %n: i32):
    %two = arith.constant 2 : i32
    %odd = ttm.mod %i, %two
    %factor = ttm.load @scale[%odd] : f32
    %scaled = arith.mulf %s, %factor : f32
    ttm.send %scaled -> @Y tag %i as "x" : f32
    ttm.send %n -> @Count tag %i as "x" : i32
  }
}
