// c (m by n, row length ldc) = or += a (m by p) * b (p by n, row length ldb), with b packed into panels of two vectors.
// a's element (i, k) is at a[i*row + k*column], so that a may be a transpose. c and b must have room for n rounded up to a
// whole vector; what b holds there is multiplied too.
#pragma once
#include "vector.h"

enum { TILE_ROWS = 8, PANEL = 2, DEPTH = 256 };  // 16 accumulators; a panel of DEPTH rows is 32 KiB

// c tile (rows by `vectors`) += a * packed b, DEPTH deep.
INLINE void tile(int rows, int vectors, long depth, const real *a, long row, long column, const real *b, real *c, long ldc) {
  vec sums[TILE_ROWS][PANEL];
  for (int i = 0; i < rows; i++)
    for (int v = 0; v < vectors; v++) sums[i][v] = load(c + i * ldc + v * LANES);
  for (long k = 0; k < depth; k++) {
    UNROLL for (int i = 0; i < rows; i++) {
      real x = a[i * row + k * column];
      UNROLL for (int v = 0; v < vectors; v++) sums[i][v] += x * *(const vec *)(b + (k * vectors + v) * LANES);
    }
  }
  for (int i = 0; i < rows; i++)
    for (int v = 0; v < vectors; v++) store(c + i * ldc + v * LANES, sums[i][v]);
}

static __attribute__((noinline)) void multiply(long m, long n, long p, const real *a, long row, long column, const real *b, long ldb, real *c, long ldc) {
  static real packed[DEPTH * PANEL * LANES] __attribute__((aligned(64)));
  long vectors = (n + LANES - 1) / LANES;
  for (long k0 = 0; k0 < p; k0 += DEPTH) {
    long depth = p - k0 < DEPTH ? p - k0 : DEPTH;
    for (long v0 = 0; v0 < vectors; v0 += PANEL) {
      int wide = vectors - v0 < PANEL ? vectors - v0 : PANEL;
      for (long k = 0; k < depth; k++)
        for (int v = 0; v < wide; v++) store(packed + (k * wide + v) * LANES, load(b + (k0 + k) * ldb + (v0 + v) * LANES));
      const real *left = a + k0 * column;
      real *out = c + v0 * LANES;
      long i = 0;
      for (; i + TILE_ROWS <= m; i += TILE_ROWS) {
        if (wide == PANEL) tile(TILE_ROWS, PANEL, depth, left + i * row, row, column, packed, out + i * ldc, ldc);
        else tile(TILE_ROWS, 1, depth, left + i * row, row, column, packed, out + i * ldc, ldc);
      }
      for (int rest = m % TILE_ROWS; rest > 0; rest--, i++) {
        if (wide == PANEL) tile(1, PANEL, depth, left + i * row, row, column, packed, out + i * ldc, ldc);
        else tile(1, 1, depth, left + i * row, row, column, packed, out + i * ldc, ldc);
      }
    }
  }
}
