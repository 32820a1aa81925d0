// The perceptron 784-128-64-10 with ReLU, softmax and cross-entropy: value and gradient by all weights.
// Many examples: six matrix products. One example: each weight matrix is read once forward (rows of it times x_i into
// registers), its gradient is an outer product written once.
#include "product.h"

enum { I = 784, A = 128, B = 64, C = 10, CLASSES = 16 };  // CLASSES: a row of C numbers with room for one whole vector

// z (n numbers, n a multiple of LANES) = bias + x (m numbers) * w (m by n)
INLINE void row_times_matrix(long m, int n, const real *x, const real *w, const real *bias, real *z) {
  enum { MOST = A / LANES };
  vec sums[MOST];
  UNROLL for (int v = 0; v < n / LANES; v++) sums[v] = load(bias + v * LANES);
  for (long i = 0; i < m; i++) {
    UNROLL for (int v = 0; v < n / LANES; v++) sums[v] += x[i] * load(w + i * n + v * LANES);
  }
  UNROLL for (int v = 0; v < n / LANES; v++) store(z + v * LANES, sums[v]);
}

INLINE void outer(long m, int n, const real *x, const real *delta, real *dw) {
  vec d[A / LANES];
  UNROLL for (int v = 0; v < n / LANES; v++) d[v] = load(delta + v * LANES);
  for (long i = 0; i < m; i++) {
    UNROLL for (int v = 0; v < n / LANES; v++) store(dw + i * n + v * LANES, x[i] * d[v]);
  }
}

INLINE void add_rows(long count, long n, const real *rows, real *out) {
  memset(out, 0, sizeof(real) * n);
  for (long d = 0; d < count; d++)
    for (long j = 0; j < n; j++) out[j] += rows[d * n + j];
}

// Softmax and cross-entropy of z (count by CLASSES, the first C used); delta = derivative by z.
static double softmax(long count, const real *z, const real *y, real *delta) {
  double loss = 0;
  for (long d = 0; d < count; d++) {
    const real *row = z + d * CLASSES;
    real most = row[0], total = 0, right = 0, e[C];
    for (int c = 1; c < C; c++) most = row[c] > most ? row[c] : most;
    for (int c = 0; c < C; c++) total += e[c] = exp(row[c] - most), right += y[d * C + c] * (row[c] - most);
    loss += log(total) - right;
    for (int c = 0; c < C; c++) delta[d * CLASSES + c] = (e[c] / total - y[d * C + c]) / count;
  }
  return loss / count;
}

// x: D by I; y: D by C; weights and gradients dense. With dw1 == NULL only the value.
double mlp(long D, const real *x, const real *y, const real *w1, const real *w2, const real *w3, const real *b1, const real *b2,
           const real *b3, real *dw1, real *dw2, real *dw3, real *db1, real *db2, real *db3) {
  SCRATCH(block, (2 * A + 2 * B + 2 * CLASSES) * D + 2 * B * CLASSES + A * B + CLASSES);
  real *h1 = block, *d1 = h1 + A * D, *h2 = d1 + A * D, *d2 = h2 + B * D, *z = d2 + B * D, *d3 = z + CLASSES * D;
  real *wide3 = d3 + CLASSES * D, *dwide3 = wide3 + B * CLASSES, *across2 = dwide3 + B * CLASSES;
  for (long b = 0; b < B; b++)
    for (long c = 0; c < CLASSES; c++) wide3[b * CLASSES + c] = c < C ? w3[b * C + c] : 0;
  for (long d = 0; d < D; d++)
    for (long c = 0; c < CLASSES; c++) z[d * CLASSES + c] = c < C ? b3[c] : 0, d3[d * CLASSES + c] = 0;

  if (D == 1) {
    row_times_matrix(I, A, x, w1, b1, h1);
    for (long a = 0; a < A; a++) h1[a] = h1[a] > 0 ? h1[a] : 0;
    row_times_matrix(A, B, h1, w2, b2, h2);
  } else {
    for (long d = 0; d < D; d++) memcpy(h1 + d * A, b1, sizeof(real) * A), memcpy(h2 + d * B, b2, sizeof(real) * B);
    multiply(D, A, I, x, I, 1, w1, A, h1, A);
    for (long k = 0; k < D * A; k++) h1[k] = h1[k] > 0 ? h1[k] : 0;
    multiply(D, B, A, h1, A, 1, w2, B, h2, B);
  }
  for (long k = 0; k < D * B; k++) h2[k] = h2[k] > 0 ? h2[k] : 0;
  multiply(D, CLASSES, B, h2, B, 1, wide3, CLASSES, z, CLASSES);
  double loss = softmax(D, z, y, d3);
  if (!dw1) return loss;

  memset(dwide3, 0, sizeof(real) * B * CLASSES);
  multiply(B, CLASSES, D, h2, 1, B, d3, CLASSES, dwide3, CLASSES);
  for (long b = 0; b < B; b++) memcpy(dw3 + b * C, dwide3 + b * CLASSES, sizeof(real) * C);
  real sums[CLASSES];
  add_rows(D, CLASSES, d3, sums);
  memcpy(db3, sums, sizeof(real) * C);
  for (long c = 0; c < CLASSES; c++)  // w3 across: C by B, and w2 across: B by A
    for (long b = 0; b < B; b++) dwide3[c * B + b] = wide3[b * CLASSES + c];
  memset(d2, 0, sizeof(real) * D * B);
  multiply(D, B, C, d3, CLASSES, 1, dwide3, B, d2, B);
  for (long k = 0; k < D * B; k++) d2[k] = h2[k] > 0 ? d2[k] : 0;
  add_rows(D, B, d2, db2);
  if (D == 1) {
    for (long a = 0; a < A; a++) {
      vec s = {0};
      for (long b = 0; b < B; b += LANES) s += load(w2 + a * B + b) * load(d2 + b);
      d1[a] = h1[a] > 0 ? sum(s) : 0;
    }
    memcpy(db1, d1, sizeof(real) * A);
    outer(A, B, h1, d2, dw2);
    outer(I, A, x, d1, dw1);
    return loss;
  }
  memset(dw2, 0, sizeof(real) * A * B);
  multiply(A, B, D, h1, 1, A, d2, B, dw2, B);
  for (long a = 0; a < A; a++)
    for (long b = 0; b < B; b++) across2[b * A + a] = w2[a * B + b];
  memset(d1, 0, sizeof(real) * D * A);
  multiply(D, A, B, d2, B, 1, across2, A, d1, A);
  for (long k = 0; k < D * A; k++) d1[k] = h1[k] > 0 ? d1[k] : 0;
  add_rows(D, A, d1, db1);
  memset(dw1, 0, sizeof(real) * I * A);
  multiply(I, A, D, x, 1, I, d1, A, dw1, A);
  return loss;
}
