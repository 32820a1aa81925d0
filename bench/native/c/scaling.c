// Stress of multidimensional scaling in the plane, and its gradient: pairs i<j once, vectors along j; the gradient of i is
// summed in registers, that of j in an array. One reciprocal square root, by Newton's method, serves root and quotient.
#include "vector.h"
#ifdef __AVX512F__
#include <immintrin.h>
#endif

INLINE vec reciprocal_root(vec s) {
#ifdef __AVX512F__
  vec y = (vec)_mm512_rsqrt14_pd((__m512d)s), half = 0.5 * s;
  y = y * (1.5 - half * y * y);  // 14, 28, 53 bits
  vec e = 0.5 - half * y * y;
  return y + y * e;
#else
  for (int l = 0; l < LANES; l++) s[l] = 1 / sqrt(s[l]);
  return s;
#endif
}

// The numbers at p where m holds, zeros elsewhere; only what m asks for is read.
INLINE vec load_where(lanes_mask m, const real *p) {
#ifdef __AVX512DQ__
  return (vec)_mm512_maskz_loadu_pd(_mm512_movepi64_mask((__m512i)m), p);
#else
  vec v = {0};
  for (int l = 0; l < LANES; l++)
    if (m[l]) v[l] = p[l];
  return v;
#endif
}

// x, dx: n by 2; target: n-1 by n-1, for pair (i, j) at row i, column j-1.
double stress(long n, const double *x, const double *target, double *dx) {
  long padded = (n + 2 * LANES) / LANES * LANES;
  SCRATCH(block, 4 * padded);
  double *px = block, *py = px + padded, *gx = py + padded, *gy = gx + padded;
  for (long i = 0; i < n; i++) px[i] = x[2 * i], py[i] = x[2 * i + 1];
  memset(gx, 0, sizeof(double) * 2 * padded);
  vec total = {0};
  const lanes_mask steps = {0, 1, 2, 3, 4, 5, 6, 7};
  for (long i = 0; i < n - 1; i++) {
    const double *t = target + i * (n - 1) - 1;
    vec xi = fill(px[i]), yi = fill(py[i]), sx = {0}, sy = {0};
    for (long j = (i + 1) / LANES * LANES; j < n; j += LANES) {  // aligned, so that what row i stored row i+1 finds
      lanes_mask inside = (steps < n - j) & (steps > i - j);       // all but at a row's ends; outside: distance 1, error 0
      vec ex = xi - load(px + j), ey = yi - load(py + j);
      vec s = where(inside, ex * ex + ey * ey) + where(~inside, fill(1)), inverse = reciprocal_root(s);
      vec e = where(inside, s * inverse - load_where(inside, t + j)), g = (e + e) * inverse;
      total += e * e;
      sx += g * ex;
      sy += g * ey;
      store(gx + j, load(gx + j) - g * ex);
      store(gy + j, load(gy + j) - g * ey);
    }
    gx[i] += sum(sx);
    gy[i] += sum(sy);
  }
  for (long i = 0; i < n; i++) dx[2 * i] = gx[i], dx[2 * i + 1] = gy[i];
  return sum(total);
}
