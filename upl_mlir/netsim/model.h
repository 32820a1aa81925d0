// What the models of netlists are made of: words, and operations on them as yosys' manual defines them.
#pragma once
#include <cstdint>
#include <cstring>

using u64 = uint64_t;
using i64 = int64_t;
using u128 = unsigned __int128;
using i128 = __int128;

// A port of more than 64 bits; the lowest word comes first.
template <unsigned N> struct Wide {
    u64 word[N];
};

inline u64 sext(u64 x, unsigned bits) { return u64(i64(x << (64 - bits)) >> (64 - bits)); }
inline u128 sext128(u128 x, unsigned bits) { return u128(i128(x << (128 - bits)) >> (128 - bits)); }
inline u64 parity(u64 x) {
    x ^= x >> 32, x ^= x >> 16, x ^= x >> 8, x ^= x >> 4;
    return 0x6996 >> (x & 15) & 1;
}
// A linear map over GF(2): what each byte of the argument adds to the result, by its value, and as a matrix for each byte of the
// result.
template <typename T, unsigned BYTES> struct Linear {
    T row[BYTES][256];
    u64 matrix[BYTES][sizeof(T)];
};
template <typename T, unsigned BYTES> inline u64 linear(const Linear<T, BYTES>& map, u64 x) {
    T sum = map.row[0][x & 255];
#pragma GCC unroll 8
    for (unsigned n = 1; n < BYTES; n++) sum ^= map.row[n][x >> 8 * n & 255];
    return sum;
}
inline u64 shl(u64 x, u64 by) { return by < 64 ? x << by : 0; }
inline u64 shr(u64 x, u64 by) { return by < 64 ? x >> by : 0; }
inline u64 sar(u64 x, u64 by) { return u64(i64(x) >> (by < 64 ? by : 63)); }
// Shifts by less than there are bits.
inline u64 shl_less(u64 x, u64 by) { return x << (by & 63); }
inline u64 shr_less(u64 x, u64 by) { return x >> (by & 63); }
inline u64 sar_less(u64 x, u64 by) { return u64(i64(x) >> (by & 63)); }
inline u128 shl128_less(u128 x, u64 by) { return x << (by & 127); }
inline u128 shr128_less(u128 x, u64 by) { return x >> (by & 127); }
inline u128 sar128_less(u128 x, u64 by) { return u128(i128(x) >> (by & 127)); }
inline u64 shift(u64 x, i64 by) { return by < 0 ? shl(x, u64(-by)) : shr(x, u64(by)); }
inline u128 shl128(u128 x, u64 by) { return by < 128 ? x << by : 0; }
inline u128 shr128(u128 x, u64 by) { return by < 128 ? x >> by : 0; }
inline u128 sar128(u128 x, u64 by) { return u128(i128(x) >> (by < 128 ? by : 127)); }
inline u128 shift128(u128 x, i64 by) { return by < 0 ? shl128(x, u64(-by)) : shr128(x, u64(by)); }
template <unsigned N> inline u64 get(const Wide<N>& from, unsigned low, unsigned bits) {
    const unsigned n = low / 64, by = low % 64;
    u64 x = from.word[n] >> by;
    if (by + bits > 64) x |= from.word[n + 1] << (64 - by);
    return bits < 64 ? x & ((1ull << bits) - 1) : x;
}
template <unsigned N> inline void put(Wide<N>& to, unsigned low, unsigned bits, u64 x) {
    const unsigned n = low / 64, by = low % 64;
    to.word[n] |= x << by;
    if (by + bits > 64) to.word[n + 1] |= x >> (64 - by);
}
