"""Programs that data decide, as texts; others are in `examples`."""

COO = """program coo
output Y<i> in 0<=i<m
node Elem<e> { in v, row: int, col: int; v -> Mul.v<col,e>; row -> Mul.row<col,e> }
node Mul<j,e> { in x, v, row: int; x*v -> Sum.s<row> }
node Sum<i> in 0<=i<m { in @(+) s[##]; s -> Y }
input X<j> in 0<=j<n { ## -> Mul.x<j,*> }
input Col<e>: int in 0<=e<z { -> Elem.col }
input Row<e>: int in 0<=e<z { -> Elem.row }
input V<e> in 0<=e<z { -> Elem.v }
param z >= 1
param n >= 1
param m >= 1
"""
RANK = """program pagerank
output Rank<v>
node Edge<e> { in src: int, dst: int; dst -> Msg.dst<t,src,e> for t in 0..T-1 }
node R<t,v> in 0<=t<=T, 0<=v<n { in r, out; if t<T: r/out ## -> Msg.r<t,v,*>; if t==T: r -> Rank<v> }
node Msg<t,v,e> { in r, dst: int; r -> Sum.s<t,dst> }
node Sum<t,v> in 0<=t<T, 0<=v<n { in @(+) s[##]; 0.15/n + 0.85*s -> R.r<t+1,v> }
input R0<v> in 0<=v<n { -> R.r<0,v> }
input Out<v> in 0<=v<n { #T+1 -> R.out<*,v> }
input To<e>: int in 0<=e<m { -> Edge.dst }
input From<e>: int in 0<=e<m { -> Edge.src }
param T >= 1
param m >= 1
param n >= 1
"""
ROWS = """program rows
param b >= 1
param k >= 1
param r >= 1
input Id<i>: int in 0<=i<b { -> Row.id<i> }
input Table<j,c> in 0<=j<r, 0<=c<k { ## -> Get.w<j,*,c> }
output Y<i,c>
node Row<i> in 0<=i<b { in id: int; 1 -> Get.one<id,i,c> for c in 0..k-1 }
node Get<j,i,c> { in w, one: int; w*one -> Y<i,c> }
"""
MESSAGES = """program messages
output Y<v,c>
node E<e> { in s: int, d: int, g; g -> M.g<s,e,c> for c in 0..f-1; d -> M.d<s,e,c> for c in 0..f-1 }
node M<v,e,c> { in h, g, d: int; g*h -> Sum.x<d,c> }
node Sum<v,c> in 0<=v<n, 0<=c<f { in @(+) x[##]; x -> Y }
input H<v,c> in 0<=v<n, 0<=c<f { ## -> M.h<v,*,c> }
input G<e> in 0<=e<m { -> E.g<e> }
input To<e>: int in 0<=e<m { -> E.d<e> }
input From<e>: int in 0<=e<m { -> E.s<e> }
param f >= 1
param m >= 1
param n >= 1
"""
