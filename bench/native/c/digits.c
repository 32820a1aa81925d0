// A whole training run of the perceptron 64-32-10 (tanh, softmax, cross-entropy) in mini-batches: five small products for
// each, the weights in place. The second layer's rows have room for whole vectors.
#include "product.h"

enum { I = 64, A = 32, C = 10, CLASSES = 16, BATCH = 32 };

// p = softmax of z, of which C of CLASSES numbers count; delta = p - y. With r, p goes there too. z is changed.
INLINE void softmax(long count, real *z, const real *y, real *delta, real *r) {
  for (long d = 0; d < count; d++) {
    real *row = z + d * CLASSES, most = row[0];
    for (int c = 1; c < C; c++) most = row[c] > most ? row[c] : most;
    for (int c = 0; c < CLASSES; c++) row[c] = c < C ? row[c] - most : 0;
  }
  for (long k = 0; k < count * CLASSES; k++) z[k] = exp(z[k]);
  for (long d = 0; d < count; d++) {
    real total = 0;
    for (int c = 0; c < C; c++) total += z[d * CLASSES + c];
    for (int c = 0; c < C; c++) {
      real p = z[d * CLASSES + c] / total;
      delta[d * CLASSES + c] = p - y[d * C + c];
      if (r) r[d * C + c] = p;
    }
  }
}

// x: M by I, y and r: M by C; w1 (I by A) and w2 (A by C) are changed.
void train(long epochs, long M, double eta, const real *x, const real *y, real *w1, real *w2, real *r) {
  SCRATCH(block, 2 * BATCH * A + 2 * BATCH * CLASSES + 2 * A * CLASSES + C * A);
  real *h = block, *d1 = h + BATCH * A, *z = d1 + BATCH * A, *d2 = z + BATCH * CLASSES;
  real *wide = d2 + BATCH * CLASSES, *dwide = wide + A * CLASSES, *across = dwide + A * CLASSES;
  memset(d2, 0, sizeof(real) * BATCH * CLASSES);
  for (long a = 0; a < A; a++)
    for (long c = 0; c < CLASSES; c++) wide[a * CLASSES + c] = c < C ? w2[a * C + c] : 0;
  for (long e = 0; e < epochs; e++) {
    for (long at = 0; at < M; at += BATCH) {
      long n = M - at < BATCH ? M - at : BATCH;
      memset(h, 0, sizeof(real) * n * A);
      multiply(n, A, I, x + at * I, I, 1, w1, A, h, A);
      for (long k = 0; k < n * A; k++) h[k] = tanh(h[k]);
      memset(z, 0, sizeof(real) * n * CLASSES);
      multiply(n, CLASSES, A, h, A, 1, wide, CLASSES, z, CLASSES);
      softmax(n, z, y + at * C, d2, e == epochs - 1 ? r + at * C : NULL);
      for (long c = 0; c < C; c++)
        for (long a = 0; a < A; a++) across[c * A + a] = wide[a * CLASSES + c];
      memset(d1, 0, sizeof(real) * n * A);
      multiply(n, A, C, d2, CLASSES, 1, across, A, d1, A);
      for (long k = 0; k < n * A; k++) d1[k] *= -eta * (1 - h[k] * h[k]);
      memset(dwide, 0, sizeof(real) * A * CLASSES);
      multiply(A, CLASSES, n, h, 1, A, d2, CLASSES, dwide, CLASSES);
      for (long k = 0; k < A * CLASSES; k++) wide[k] -= eta * dwide[k];
      multiply(I, A, n, x + at * I, 1, I, d1, A, w1, A);
    }
  }
  for (long a = 0; a < A; a++)
    for (long c = 0; c < C; c++) w2[a * C + c] = wide[a * CLASSES + c];
}
