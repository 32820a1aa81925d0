// Square grids of numbers in memory: rows have LANES numbers of padding at their ends and begin at a cache line.
#pragma once
#include "vector.h"

INLINE long pitch_of(long m) { return (m + LANES - 1) / LANES * LANES + 2 * LANES; }
