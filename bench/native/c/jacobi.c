// Jacobi's iteration on an m by m grid: the sum of the last state, and its gradient by the first.
//
// Time tiling: a wavefront of pairs of rows carries LEVELS steps at once; as soon as step l has rows enough, step l+1 makes
// two more. Only six rows of each intermediate step exist, so these stay in the second-level cache and the grid itself is
// read and written once in LEVELS steps. The adjoint is the same stencil, in gather form, on the inner points alone; what
// leaves the inner points is added up on the border.
#include "grid.h"

enum { LEVELS = 20, ROWS = 6 };

// Two rows of one step: 0.2 * (centre + four neighbours), in whole vectors.
INLINE void two_rows(double *out_a, double *out_b, const double *n, const double *a, const double *b, const double *s, long m) {
  for (long j = 0; j < m; j += LANES) {
    vec both = load(a + j) + load(b + j);
    vec first = both + load(n + j) + (load(a + j - 1) + load(a + j + 1));
    vec second = both + load(s + j) + (load(b + j - 1) + load(b + j + 1));
    store(out_a + j, 0.2 * first);
    store(out_b + j, 0.2 * second);
  }
}

// `levels` steps from one grid to another; the border stays. `edge`, if given, collects what each step's inner points next
// to the border hold before it: m numbers each for the rows 1 and m-2 and the columns 1 and m-2.
static void sweep(long m, int levels, const double *from, double *to, double *edge) {
  long pitch = pitch_of(m), pairs = (m - 1) / 2;  // inner rows 1, 2 | 3, 4 | ...; the last pair may be half a one
  SCRATCH(windows, (LEVELS * ROWS + 1) * pitch);
  double *spare = windows + LANES;
#define WINDOW(l, i) (windows + LANES + ((l) * ROWS + (i) % ROWS) * pitch)  // row i of step l; step 0 lies in `from`
  memcpy(to, from, sizeof(double) * m);
  memcpy(to + (m - 1) * pitch, from + (m - 1) * pitch, sizeof(double) * m);
  for (long wave = 0; wave < pairs + levels - 1; wave++)
    for (int l = 1; l <= levels; l++) {
      long pair = wave - (l - 1), i = 2 * pair + 1;
      if (pair < 0) break;
      if (pair >= pairs) continue;
      const double *in[4];
      for (int r = 0; r < 4; r++) {
        long at = i - 1 + r < m ? i - 1 + r : m - 1;
        in[r] = l == 1 || at == 0 || at == m - 1 ? from + at * pitch : WINDOW(l - 1, at);
      }
      double *out[2];
      for (int r = 0; r < 2; r++) {
        out[r] = i + r > m - 2 ? spare : l == levels ? to + (i + r) * pitch : WINDOW(l, i + r);
        if (!edge || i + r > m - 2) continue;
        for (long j = 1; i + r == 1 && j < m - 1; j++) edge[j] += in[1][j];
        for (long j = 1; i + r == m - 2 && j < m - 1; j++) edge[m + j] += in[1 + r][j];
        edge[2 * m + i + r] += in[1 + r][1];
        edge[3 * m + i + r] += in[1 + r][m - 2];
      }
      two_rows(out[0], out[1], in[0], in[1], in[2], in[3], m);
      for (int r = 0; r < 2 && i + r < m - 1; r++) {
        out[r][0] = from[(i + r) * pitch];
        out[r][m - 1] = from[(i + r) * pitch + m - 1];
      }
    }
}

// u0, du: m by m.  Returns the sum after `steps` steps; du may be NULL.
double jacobi(long steps, long m, const double *u0, double *du) {
  long pitch = pitch_of(m);
  SCRATCH(grids, 2 * m * pitch + 2 * LANES);
  SCRATCH(edge, 4 * m);
  double *now = grids + LANES, *next = now + m * pitch, *old, total = 0;
  for (long i = 0; i < m; i++) memcpy(now + i * pitch, u0 + i * m, sizeof(double) * m);
  for (long t = 0; t < steps; t += LEVELS) {
    sweep(m, steps - t < LEVELS ? steps - t : LEVELS, now, next, NULL);
    old = now, now = next, next = old;
  }
  for (long i = 0; i < m; i++)
    for (long j = 0; j < m; j++) total += now[i * pitch + j];
  if (!du) return total;

  memset(edge, 0, sizeof(double) * 4 * m);
  for (long i = 0; i < m; i++)
    for (long j = 0; j < m; j++) now[i * pitch + j] = 0 < i && i < m - 1 && 0 < j && j < m - 1;
  for (long t = 0; t < steps; t += LEVELS) {
    sweep(m, steps - t < LEVELS ? steps - t : LEVELS, now, next, edge);
    old = now, now = next, next = old;
  }
  for (long i = 0; i < m; i++) memcpy(du + i * m, now + i * pitch, sizeof(double) * m);
  for (long j = 0; j < m; j++) {
    du[j] = 1 + 0.2 * edge[j];
    du[(m - 1) * m + j] = 1 + 0.2 * edge[m + j];
    if (j == 0 || j == m - 1) continue;
    du[j * m] = 1 + 0.2 * edge[2 * m + j];
    du[j * m + m - 1] = 1 + 0.2 * edge[3 * m + j];
  }
  return total;
}
