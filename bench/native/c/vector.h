// Vectors of one cache line, by the compilers' vector extension: AVX-512 registers where the machine has them, pairs of
// narrower ones elsewhere. REAL is double or float.
#pragma once
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifndef REAL
#define REAL double
#endif
typedef REAL real;
typedef real vec __attribute__((vector_size(64)));
typedef real vec_any __attribute__((vector_size(64), aligned(sizeof(real)), may_alias));  // at any address
enum { LANES = 64 / sizeof(real) };
typedef __typeof__(_Generic((real)0, double: 0LL, float: 0)) lane_int;
typedef lane_int lanes_mask __attribute__((vector_size(64)));

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")

INLINE vec load(const real *p) { return *(const vec_any *)p; }
INLINE void store(real *p, vec v) { *(vec_any *)p = v; }
INLINE vec fill(real x) { return x - (vec){0}; }
INLINE vec where(lanes_mask m, vec v) { return (vec)((lanes_mask)v & m); }  // v where m holds, else 0
INLINE vec relu(vec v) { return where(v > 0, v); }
INLINE real sum(vec v) {
  real s = 0;
  for (int l = 0; l < LANES; l++) s += v[l];
  return s;
}

// Scratch memory that stays between calls: one block per use, grown when needed, never freed.
INLINE real *scratch(real **block, size_t *held, size_t wanted) {
  if (*held < wanted) {
    free(*block);
    *block = aligned_alloc(64, (wanted * sizeof(real) + 127) / 64 * 64);
    memset(*block, 0, wanted * sizeof(real));
    *held = wanted;
  }
  return *block;
}
#define SCRATCH(name, wanted)   \
  static real *name##_block;    \
  static size_t name##_held;    \
  real *name = scratch(&name##_block, &name##_held, (wanted))
