// The convolution of convolution.c and its two adjoints for one small shape: 2 images, 16 channels of 7 by 7 in, 8 of 5 by 5 out.
// Here a vector is the channels at one point, so every lane works: one row of points of all channels is summed in registers.
#include "vector.h"

enum { N = 2, C = 16, K = 8, O = 5, R = 3, H = O + R - 1 };
typedef real kvec __attribute__((vector_size(K * sizeof(real)), aligned(sizeof(real)), may_alias));  // the output channels
enum { CV = C / LANES };                                                                             // the input channels

void convolution(long n, long c, long k, long o, const real *x, const real *w, real *y, const real *dy, real *dx, real *dw) {
  (void)n, (void)c, (void)k, (void)o;
  static real by_out[C][R][R][K] __attribute__((aligned(64))), by_in[K][R][R][C] __attribute__((aligned(64)));
  static real across[N][O][O][K] __attribute__((aligned(64)));
  for (int g = 0; g < K; g++)
    for (int f = 0; f < C; f++)
      for (int p = 0; p < R; p++)
        for (int q = 0; q < R; q++) by_in[g][p][q][f] = by_out[f][p][q][g] = w[((g * C + f) * R + p) * R + q];
  for (int b = 0; b < N; b++)
    for (int i = 0; i < O; i++) {
      kvec sums[O] = {0};
      for (int f = 0; f < C; f++)
        for (int p = 0; p < R; p++) {
          const real *row = x + ((b * C + f) * H + i + p) * H;
          UNROLL for (int q = 0; q < R; q++) {
            kvec weights = *(kvec *)by_out[f][p][q];
            UNROLL for (int j = 0; j < O; j++) sums[j] += row[j + q] * weights;
          }
        }
      for (int g = 0; g < K; g++)
        for (int j = 0; j < O; j++) y[((b * K + g) * O + i) * O + j] = sums[j][g];
    }
  if (!dy) return;

  for (int b = 0; b < N; b++)
    for (int g = 0; g < K; g++)
      for (int i = 0; i < O; i++)
        for (int j = 0; j < O; j++) across[b][i][j][g] = dy[((b * K + g) * O + i) * O + j];
  for (int b = 0; b < N; b++)
    for (int i = 0; i < H; i++) {
      vec sums[H][CV] = {0};
      for (int p = i - O + 1 > 0 ? i - O + 1 : 0; p < R && p <= i; p++)
        for (int g = 0; g < K; g++) {
          const real *row = dy + ((b * K + g) * O + i - p) * O;
          UNROLL for (int q = 0; q < R; q++) {
            UNROLL for (int v = 0; v < CV; v++) {
              vec weights = load(by_in[g][p][q] + v * LANES);
              UNROLL for (int j = 0; j < O; j++) sums[j + q][v] += row[j] * weights;
            }
          }
        }
      for (int f = 0; f < C; f++)
        for (int j = 0; j < H; j++) dx[((b * C + f) * H + i) * H + j] = sums[j][f / LANES][f % LANES];
    }
  for (int f = 0; f < C; f++) {
    kvec sums[R][R] = {0};
    for (int b = 0; b < N; b++)
      for (int i = 0; i < O; i++)
        UNROLL for (int j = 0; j < O; j++) {
          kvec d = *(kvec *)across[b][i][j];
          const real *at = x + ((b * C + f) * H + i) * H + j;
          UNROLL for (int p = 0; p < R; p++) {
            UNROLL for (int q = 0; q < R; q++) sums[p][q] += at[p * H + q] * d;
          }
        }
    for (int g = 0; g < K; g++)
      for (int p = 0; p < R; p++)
        for (int q = 0; q < R; q++) dw[((g * C + f) * R + p) * R + q] = sums[p][q][g];
  }
}
