// Convolution (valid positions, R by R kernels) and its two adjoints: out[b,g,i,j] = sum of x[b,f,i+p,j+q] * w[g,f,p,q].
//
// All three are the same two loops over *flat* images: with the input's row length kept for the output too, an output point
// is at one number m, its input for tap (p, q) at m + p*h + q, so rows need no ends. The output gets a few points too many
// at each row's end, which are not stored; the adjoints get zeros there. So the adjoint by x is again a gather, and the
// adjoint by w a dot product of two long rows.
#include "vector.h"

enum { R = 3, TAPS = R * R, OUT = 8, WIDE = 3 };  // 8 output channels by 3 vectors: 24 accumulators

// y[g][m] for OUT channels and `vectors` vectors at m: sum over f and taps of x[f*plane + m + step*(p*h+q)] * w[f][p][q][g].
INLINE void gather(int vectors, long channels, const real *x, long plane, long h, long step, const real *w, real *y, long row) {
  vec sums[OUT][WIDE] = {0};
  for (long f = 0; f < channels; f++)
    UNROLL for (int tap = 0; tap < TAPS; tap++) {
      const real *at = x + f * plane + step * (tap / R * h + tap % R), *weights = w + (f * TAPS + tap) * OUT;
      vec in[WIDE];
      UNROLL for (int v = 0; v < vectors; v++) in[v] = load(at + v * LANES);
      UNROLL for (int g = 0; g < OUT; g++) {
        real weight = weights[g];
        UNROLL for (int v = 0; v < vectors; v++) sums[g][v] += weight * in[v];
      }
    }
  UNROLL for (int g = 0; g < OUT; g++) {
    UNROLL for (int v = 0; v < vectors; v++) store(y + g * row + v * LANES, sums[g][v]);
  }
}

// `count` points of all `outs` channels (a multiple of OUT); y has rows of `row` numbers with room for whole vectors.
static void convolve(long count, long channels, long outs, const real *x, long plane, long h, long step, const real *w, real *y, long row) {
  long m = 0;
  for (; m + WIDE * LANES <= count; m += WIDE * LANES)
    for (long g = 0; g < outs; g += OUT)
      gather(WIDE, channels, x + m, plane, h, step, w + g * channels * TAPS, y + g * row + m, row);
  for (; m < count; m += LANES)
    for (long g = 0; g < outs; g += OUT) gather(1, channels, x + m, plane, h, step, w + g * channels * TAPS, y + g * row + m, row);
}

// sums[g][q] += d[g][m] * x[m + q] for m < count, OUT channels d (rows of `row`) and R taps of one row of the kernel.
INLINE void correlate(long count, const real *d, long row, const real *x, vec *sums) {
  vec s[OUT][R];
  UNROLL for (int k = 0; k < OUT * R; k++) s[k / R][k % R] = sums[k];
  for (long m = 0; m < count; m += LANES) {
    vec in[R];
    UNROLL for (int q = 0; q < R; q++) in[q] = load(x + m + q);
    UNROLL for (int g = 0; g < OUT; g++) {
      vec v = load(d + g * row + m);
      UNROLL for (int q = 0; q < R; q++) s[g][q] += v * in[q];
    }
  }
  UNROLL for (int k = 0; k < OUT * R; k++) sums[k] = s[k / R][k % R];
}

// n images, c channels in, k out (both multiples of OUT), o by o results. x: n,c,h,h with h = o+2; w: k,c,3,3; y: n,k,o,o.
// dy: the results' derivatives; dx, dw as x, w. With dy == NULL only the value.
void convolution(long n, long c, long k, long o, const real *x, const real *w, real *y, const real *dy, real *dx, real *dw) {
  long h = o + R - 1, plane = h * h, flat = o * h, row = (flat + WIDE * LANES) / LANES * LANES;
  long before = (2 * h + 2 + LANES - 1) / LANES * LANES;         // zeros before and after a flat image of derivatives
  long padded = before + row + (2 * h + WIDE * LANES) / LANES * LANES, taps = c * k * TAPS;
  SCRATCH(weights, 2 * taps);
  SCRATCH(image, c * plane + WIDE * LANES + 2 * h + 2);
  SCRATCH(result, (k > c ? k : c) * (plane + WIDE * LANES));
  SCRATCH(derivatives, k * padded);
  real *by_out = weights, *by_in = weights + taps;  // [block of 8 outputs][input][tap][output in block]
  for (long g = 0; g < k; g++)
    for (long f = 0; f < c; f++)
      for (long tap = 0; tap < TAPS; tap++) {
        real v = w[(g * c + f) * TAPS + tap];
        by_out[((g / OUT * c + f) * TAPS + tap) * OUT + g % OUT] = v;
        by_in[((f / OUT * k + g) * TAPS + tap) * OUT + f % OUT] = v;
      }
  enum { CHUNK = 448 };                               // points of one correlation: eight rows of it fit the first-level cache
  static vec *sums;
  static size_t sums_held;
  if (dy) sums = (vec *)scratch((real **)&sums, &sums_held, taps * LANES), memset(sums, 0, sizeof(vec) * taps);

  for (long b = 0; b < n; b++) {
    const real *in = x + b * c * plane;
    if (b == n - 1) in = memcpy(image, in, sizeof(real) * c * plane);  // vectors read a little beyond an image's end
    convolve(flat, c, k, in, plane, h, 1, by_out, result, row);
    for (long g = 0; g < k; g++)
      for (long i = 0; i < o; i++) memcpy(y + ((b * k + g) * o + i) * o, result + g * row + i * h, sizeof(real) * o);
    if (!dy) continue;
    for (long g = 0; g < k; g++)
      for (long i = 0; i < o; i++)
        memcpy(derivatives + g * padded + before + i * h, dy + ((b * k + g) * o + i) * o, sizeof(real) * o);
    long wide = (plane + WIDE * LANES) / LANES * LANES;
    convolve(plane, k, c, derivatives + before, padded, h, -1, by_in, result, wide);
    for (long f = 0; f < c; f++) memcpy(dx + (b * c + f) * plane, result + f * wide, sizeof(real) * plane);
    for (long g = 0; g < k; g += OUT)
      for (long m = 0; m < flat; m += CHUNK)
        for (long f = 0; f < c; f++)
          for (long p = 0; p < R; p++)
            correlate(flat - m < CHUNK ? flat - m : CHUNK, derivatives + g * padded + before + m, padded,
                      in + f * plane + m + p * h, sums + ((g / OUT * c + f) * R + p) * OUT * R);
  }
  for (long g = 0; dy && g < k; g++)
    for (long f = 0; f < c; f++)
      for (long tap = 0; tap < TAPS; tap++)
        dw[(g * c + f) * TAPS + tap] = sum(sums[(((g / OUT * c + f) * R + tap / R) * OUT + g % OUT) * R + tap % R]);
}
