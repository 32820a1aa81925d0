// The perceptron [4,4,5,6,4,3,3], ReLU, trained example by example: forward, backward and update in one pass.
// A row of a weight matrix is one vector (8 doubles hold any layer's width). The weights live twice, by rows and by columns,
// so that neither direction needs a horizontal sum; 52 rows stay in the first-level cache, most of them in registers.
#include "vector.h"

typedef long index8 __attribute__((vector_size(64)));
enum { LAYERS = 6, WIDTH = 6 };
static const int N[LAYERS + 1] = {4, 4, 5, 6, 4, 3, 3};

#define LANE(v, i) __builtin_shuffle(v, (index8){i, i, i, i, i, i, i, i})

// y = sum over i < n of x_i * rows[i], in two chains to halve the latency.
INLINE vec combine(const vec *rows, vec x, int n) {
  vec even = LANE(x, 0) * rows[0], odd = LANE(x, 1) * rows[1];
  even += LANE(x, 2) * rows[2];
  if (n > 3) odd += LANE(x, 3) * rows[3];
  if (n > 4) even += LANE(x, 4) * rows[4];
  if (n > 5) odd += LANE(x, 5) * rows[5];
  return even + odd;
}

// rows[i] -= x_i * y for i < n
INLINE void update(vec *rows, vec x, vec y, int n) {
  UNROLL for (int i = 0; i < WIDTH; i++) if (i < n) rows[i] -= LANE(x, i) * y;
}

// x: count by 4; y: count by 3; w and out: 6 by 6 by 6, layer by row by column.
void train(long count, const double *x, const double *y, const double *w, double eta, double *out) {
  vec rows[LAYERS][WIDTH] = {0}, columns[LAYERS][WIDTH] = {0};
  for (int k = 0; k < LAYERS; k++)
    for (int i = 0; i < N[k]; i++)
      for (int j = 0; j < N[k + 1]; j++) rows[k][i][j] = columns[k][j][i] = w[(k * WIDTH + i) * WIDTH + j];
  for (long d = 0; d < count; d++) {
    vec r[LAYERS + 1];
    r[0] = (vec){x[4 * d], x[4 * d + 1], x[4 * d + 2], x[4 * d + 3]};
    UNROLL for (int k = 0; k < LAYERS; k++) {
      r[k + 1] = relu(combine(rows[k], r[k], N[k]));
    }
    vec delta = r[LAYERS] - (vec){y[3 * d], y[3 * d + 1], y[3 * d + 2]};
    UNROLL for (int k = LAYERS - 1; k >= 0; k--) {
      delta = where(r[k + 1] > 0, delta);
      vec down = combine(columns[k], delta, N[k + 1]);
      vec step = eta * delta;
      update(rows[k], r[k], step, N[k]);
      update(columns[k], step, r[k], N[k + 1]);
      delta = down;
    }
  }
  memset(out, 0, sizeof(double) * LAYERS * WIDTH * WIDTH);
  for (int k = 0; k < LAYERS; k++)
    for (int i = 0; i < N[k]; i++)
      for (int j = 0; j < N[k + 1]; j++) out[(k * WIDTH + i) * WIDTH + j] = rows[k][i][j];
}
