// u + 0.1*u*lap(u), T steps on an m by m grid: the sum of the last state, and its gradient by the first.
//
// The adjoint needs every state. Kept are every SEGMENT-th only; the others are made again, segment by segment from the last,
// in the same wavefront of rows that consumes them: while step t's rows go down, the adjoint's rows follow, and of a
// state only as many rows exist as lie between the two. These fit the second-level cache.
#include "grid.h"

enum { SEGMENT = 10 };

INLINE void forward_row(double *out, const double *n, const double *c, const double *s, long m) {
  for (long j = 0; j < m; j += LANES) {
    vec around = (load(n + j) + load(s + j)) + (load(c + j - 1) + load(c + j + 1));
    vec u = load(c + j);
    store(out + j, u * ((1 - 0.4 * u) + 0.1 * around));
  }
}

// out = g * (1 + 0.1*around(u) - 0.8*u) + 0.1*around(u*g); n, c, s: rows of the state; gn, gc, gs: of the adjoint.
INLINE void backward_row(double *out, const double *n, const double *c, const double *s, const double *gn, const double *gc,
                         const double *gs, long m) {
  for (long j = 0; j < m; j += LANES) {
    vec un = load(n + j), us = load(s + j), uw = load(c + j - 1), ue = load(c + j + 1);
    vec around = (un + us) + (uw + ue);
    vec products = (un * load(gn + j) + us * load(gs + j)) + (uw * load(gc + j - 1) + ue * load(gc + j + 1));
    store(out + j, load(gc + j) * ((1 - 0.8 * load(c + j)) + 0.1 * around) + 0.1 * products);
  }
}

// A row of a state of a segment: the border rows and step 0 lie in `start`; of step t the last 2*(steps-t)+2 rows exist.
typedef struct {
  const double *start;
  double *rows[SEGMENT];
  long m, pitch, steps;
} States;
INLINE long held(const States *u, long t) { return 2 * (u->steps - t) + 2; }
INLINE double *state_row(const States *u, long t, long i) {
  if (t == 0 || i == 0 || i == u->m - 1) return (double *)u->start + i * u->pitch;
  return u->rows[t] + i % held(u, t) * u->pitch;
}

// Step t's row i from step t-1, into `out`.
INLINE void advance(const States *u, long t, long i, double *out) {
  forward_row(out, state_row(u, t - 1, i - 1), state_row(u, t - 1, i), state_row(u, t - 1, i + 1), u->m);
  const double *border = u->start + i * u->pitch;
  out[0] = border[0], out[u->m - 1] = border[u->m - 1];
}

static States states(long m, long steps, const double *start) {
  long pitch = pitch_of(m);
  SCRATCH(windows, (SEGMENT + 1) * (SEGMENT + 2) * pitch);
  States u = {start, {0}, m, pitch, steps};
  double *at = windows + LANES;
  for (long t = 1; t < steps; t++, at += held(&u, t - 1) * pitch) u.rows[t] = at;
  return u;
}

// The state `steps` later.
static void forward(long m, long steps, const double *start, double *to) {
  States u = states(m, steps, start);
  memcpy(to, start, sizeof(double) * m);
  memcpy(to + (m - 1) * u.pitch, start + (m - 1) * u.pitch, sizeof(double) * m);
  for (long wave = 1; wave < m - 1 + steps - 1; wave++)
    for (long t = 1; t <= steps && wave - t + 1 >= 1; t++) {
      long i = wave - t + 1;
      if (i < m - 1) advance(&u, t, i, t == steps ? to + i * u.pitch : state_row(&u, t, i));
    }
}

// The adjoint `steps` earlier, on the inner points (the border of `after` and `before` is 0); `edge` collects what the border gets.
static void backward(long m, long steps, const double *start, const double *after, double *before, double *edge) {
  States u = states(m, steps, start);
  SCRATCH(adjoints, (SEGMENT * 4 + 1) * u.pitch + 2 * LANES);
  double *zero = adjoints + LANES;
#define ADJOINT(q, i)                                       \
  ((i) == 0 || (i) == m - 1 ? zero                          \
   : (q) == 0             ? (double *)after + (i) * u.pitch \
   : (q) == steps         ? before + (i) * u.pitch          \
                          : zero + (1 + (q) * 4 + (i) % 4) * u.pitch)  // row i, q steps before the end
  for (long wave = 1; wave < m - 1 + 2 * steps - 1; wave++) {
    for (long t = 1; t < steps && wave - t + 1 >= 1; t++) {
      long i = wave - t + 1;
      if (i < m - 1) advance(&u, t, i, state_row(&u, t, i));
    }
    for (long q = 1; q <= steps; q++) {
      long t = steps - q, i = wave - (steps - 1) - (q - 1);
      if (i < 1 || i >= m - 1) continue;
      const double *c = state_row(&u, t, i), *gc = ADJOINT(q - 1, i);
      double *out = ADJOINT(q, i);
      backward_row(out, state_row(&u, t, i - 1), c, state_row(&u, t, i + 1), ADJOINT(q - 1, i - 1), gc, ADJOINT(q - 1, i + 1), m);
      out[0] = out[m - 1] = 0;
      for (long j = 1; i == 1 && j < m - 1; j++) edge[j] += c[j] * gc[j];
      for (long j = 1; i == m - 2 && j < m - 1; j++) edge[m + j] += c[j] * gc[j];
      edge[2 * m + i] += c[1] * gc[1];
      edge[3 * m + i] += c[m - 2] * gc[m - 2];
    }
  }
}

// u0, du: m by m.  Returns the sum after `steps` steps; du may be NULL.
double reaction(long steps, long m, const double *u0, double *du) {
  long pitch = pitch_of(m), grid = m * pitch, segments = (steps + SEGMENT - 1) / SEGMENT;
  SCRATCH(grids, ((du ? segments + 1 : 2) + 2) * grid + 2 * LANES);
  SCRATCH(edge, 4 * m);
#define STATE(k) (grids + LANES + (du ? (k) : (k) % 2) * grid)
  for (long i = 0; i < m; i++) memcpy(STATE(0) + i * pitch, u0 + i * m, sizeof(double) * m);
  for (long k = 0; k < segments; k++)
    forward(m, k < segments - 1 ? SEGMENT : steps - k * SEGMENT, STATE(k), STATE(k + 1));
  double total = 0;
  for (long i = 0; i < m; i++)
    for (long j = 0; j < m; j++) total += STATE(segments)[i * pitch + j];
  if (!du) return total;

  double *now = STATE(segments + 1), *next = now + grid, *old;
  memset(edge, 0, sizeof(double) * 4 * m);
  memset(now, 0, sizeof(double) * 2 * grid);
  for (long i = 1; i < m - 1; i++)
    for (long j = 1; j < m - 1; j++) now[i * pitch + j] = 1;
  for (long k = segments - 1; k >= 0; k--) {
    backward(m, k < segments - 1 ? SEGMENT : steps - k * SEGMENT, STATE(k), now, next, edge);
    old = now, now = next, next = old;
  }
  for (long i = 0; i < m; i++) memcpy(du + i * m, now + i * pitch, sizeof(double) * m);
  for (long j = 0; j < m; j++) {
    du[j] = 1 + 0.1 * edge[j];
    du[(m - 1) * m + j] = 1 + 0.1 * edge[m + j];
    if (j == 0 || j == m - 1) continue;
    du[j * m] = 1 + 0.1 * edge[2 * m + j];
    du[j * m + m - 1] = 1 + 0.1 * edge[3 * m + j];
  }
  return total;
}
