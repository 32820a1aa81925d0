// LANES cores as lanes of vectors, for processors with AVX-512: a bit of all cores is a mask, a number of all a vector.
#pragma once
#include <cstddef>
#include <immintrin.h>
#include "model.h"

using Vector = u64 __attribute__((vector_size(8 * LANES)));
using Mask = uint8_t;
constexpr Mask ALL = Mask((1u << LANES) - 1), NONE = 0;

// The instructions for 2, 4 and 8 lanes.
template <int N> struct Instructions;
#define UPL_INSTRUCTIONS(N, T, NAME, GATHER)                                                       \
    template <> struct Instructions<N> {                                                           \
        using type = T;                                                                            \
        static Mask eq(T a, T b) { return NAME##_cmpeq_epi64_mask(a, b); }                         \
        static Mask ne(T a, T b) { return NAME##_cmpneq_epi64_mask(a, b); }                        \
        static Mask lt(T a, T b) { return NAME##_cmplt_epu64_mask(a, b); }                         \
        static Mask le(T a, T b) { return NAME##_cmple_epu64_mask(a, b); }                         \
        static Mask slt(T a, T b) { return NAME##_cmplt_epi64_mask(a, b); }                        \
        static Mask sle(T a, T b) { return NAME##_cmple_epi64_mask(a, b); }                        \
        static Mask test(T a, T b) { return NAME##_test_epi64_mask(a, b); }                        \
        static Mask zero(T a) { return NAME##_testn_epi64_mask(a, a); }                            \
        static T pick(Mask c, T yes, T no) { return NAME##_mask_blend_epi64(c, no, yes); }         \
        static T word(Mask a, u64 x) { return NAME##_maskz_set1_epi64(a, i64(x)); }                \
        static T sllv(T a, T b) { return NAME##_sllv_epi64(a, b); }                                \
        static T srlv(T a, T b) { return NAME##_srlv_epi64(a, b); }                                \
        static T srav(T a, T b) { return NAME##_srav_epi64(a, b); }                                \
        static T srai(T a, unsigned by) { return NAME##_srai_epi64(a, by); }                       \
        static T least(T a, T b) { return NAME##_min_epu64(a, b); }                                \
        static T gather(T at, const void* from) { return GATHER; }                                 \
        static T affine(T a, const u64& map) {                                                     \
            asm("vgf2p8affineqb $0, %2%{1to" #N "%}, %1, %0" : "=v"(a) : "v"(a), "m"(map));        \
            return a;                                                                              \
        }                                                                                          \
    }
UPL_INSTRUCTIONS(2, __m128i, _mm, _mm_i64gather_epi64(static_cast<const long long*>(from), at, 1));
UPL_INSTRUCTIONS(4, __m256i, _mm256, _mm256_i64gather_epi64(static_cast<const long long*>(from), at, 1));
UPL_INSTRUCTIONS(8, __m512i, _mm512, _mm512_i64gather_epi64(at, from, 1));
#undef UPL_INSTRUCTIONS
using In = Instructions<LANES>;
using Raw = In::type;

inline Vector all(u64 x) { return Vector{} + x; }
inline Mask inv(Mask a) { return Mask(a ^ ALL); }
inline Mask eq(Vector a, Vector b) { return In::eq(Raw(a), Raw(b)); }
inline Mask ne(Vector a, Vector b) { return In::ne(Raw(a), Raw(b)); }
inline Mask lt(Vector a, Vector b) { return In::lt(Raw(a), Raw(b)); }
inline Mask le(Vector a, Vector b) { return In::le(Raw(a), Raw(b)); }
inline Mask slt(Vector a, Vector b) { return In::slt(Raw(a), Raw(b)); }
inline Mask sle(Vector a, Vector b) { return In::sle(Raw(a), Raw(b)); }
inline Mask test(Vector a, Vector b) { return In::test(Raw(a), Raw(b)); }
inline Mask test(Vector a) { return test(a, a); }
inline Mask zero(Vector a) { return In::zero(Raw(a)); }
inline Mask bit(Vector a, unsigned n) { return test(a, all(1ull << n)); }
inline Vector pick(Mask c, Vector yes, Vector no) { return Vector(In::pick(c, Raw(yes), Raw(no))); }
inline Mask pick(Mask c, Mask yes, Mask no) { return Mask((c & yes) | (~c & no)); }
inline Vector word(Mask a, unsigned at) { return Vector(In::word(a, 1ull << at)); }
inline Vector as_vector(Vector a) { return a; }
inline Vector as_vector(Mask a) { return word(a, 0); }
// The processor's shifts by more than there are bits give what yosys' cells do.
inline Vector sllv(Vector a, Vector by) { return Vector(In::sllv(Raw(a), Raw(by))); }
inline Vector srlv(Vector a, Vector by) { return Vector(In::srlv(Raw(a), Raw(by))); }
inline Vector srav(Vector a, Vector by) { return Vector(In::srav(Raw(a), Raw(by))); }
template <unsigned BITS> inline Vector sext(Vector a) {
    return BITS < 64 ? Vector(In::srai(Raw(a << (64 - BITS) % 64), (64 - BITS) % 64)) : a;
}
inline Mask parity(Vector a) {
    for (unsigned n = 32; n; n /= 2) a ^= a >> n;
    return bit(a, 0);
}

// A number of 128 bits in each lane. Shifts by 64 and more, or by less than 0, of a vector leave nothing: so of the terms of a
// shift those that have no meaning vanish.
struct Pair {
    Vector low{}, high{};
};
inline Vector word(const Pair& a, unsigned from) {
    const Vector high = from < 64 ? a.high << (64 - from) % 64 : a.high >> from % 64;
    return from == 0 ? a.low : from < 64 ? a.low >> from | high : high;
}
inline Pair operator&(const Pair& a, const Pair& b) { return {a.low & b.low, a.high & b.high}; }
inline Pair operator|(const Pair& a, const Pair& b) { return {a.low | b.low, a.high | b.high}; }
inline Pair operator^(const Pair& a, const Pair& b) { return {a.low ^ b.low, a.high ^ b.high}; }
inline Pair operator+(const Pair& a, const Pair& b) {
    const Vector low = a.low + b.low;
    return {low, a.high + b.high + word(lt(low, b.low), 0)};
}
inline Pair operator-(const Pair& a, const Pair& b) {
    return {a.low - b.low, a.high - b.high - word(lt(a.low, b.low), 0)};
}
inline Pair shl128(const Pair& a, Vector by) {
    return {sllv(a.low, by), sllv(a.high, by) | srlv(a.low, all(64) - by) | sllv(a.low, by - all(64))};
}
inline Pair shr128(const Pair& a, Vector by) {
    return {srlv(a.low, by) | sllv(a.high, all(64) - by) | srlv(a.high, by - all(64)), srlv(a.high, by)};
}
inline Pair sar128(const Pair& a, Vector by) {
    const Vector near = srlv(a.low, by) | sllv(a.high, all(64) - by);
    return {pick(lt(by, all(64)), near, srav(a.high, by - all(64))), srav(a.high, by)};
}
inline Vector shift(Vector a, Vector by) { return srlv(a, by) | sllv(a, all(0) - by); }
inline Pair shift128(const Pair& a, Vector by) { return shr128(a, by) | shl128(a, all(0) - by); }
template <unsigned BITS> inline Pair sext128(const Pair& a) {
    const Vector low = sext<(BITS < 64 ? BITS : 64)>(a.low);
    return {low, BITS > 64 ? sext<(BITS > 64 ? BITS - 64 : 64)>(a.high) : Vector(In::srai(Raw(low), 63))};
}
inline Mask eq(const Pair& a, const Pair& b) { return zero((a.low ^ b.low) | (a.high ^ b.high)); }
inline Mask ne(const Pair& a, const Pair& b) { return inv(eq(a, b)); }
inline Mask lt(const Pair& a, const Pair& b) { return Mask(lt(a.high, b.high) | (eq(a.high, b.high) & lt(a.low, b.low))); }
inline Mask slt(const Pair& a, const Pair& b) { return Mask(slt(a.high, b.high) | (eq(a.high, b.high) & lt(a.low, b.low))); }
inline Mask le(const Pair& a, const Pair& b) { return inv(lt(b, a)); }
inline Mask sle(const Pair& a, const Pair& b) { return inv(slt(b, a)); }
template <typename T> inline Mask gt(const T& a, const T& b) { return lt(b, a); }
template <typename T> inline Mask ge(const T& a, const T& b) { return le(b, a); }
template <typename T> inline Mask sgt(const T& a, const T& b) { return slt(b, a); }
template <typename T> inline Mask sge(const T& a, const T& b) { return sle(b, a); }

inline u64 lane(const Vector& a, int k) {
    u64 x;
    std::memcpy(&x, reinterpret_cast<const char*>(&a) + 8 * k, sizeof x);
    return x;
}
inline u64 lane(Mask a, int k) { return a >> k & 1; }
inline void spill(u64* to, Vector a) { std::memcpy(to, &a, sizeof a); }
inline void spill(u64* to, Mask a) { spill(to, word(a, 0)); }
inline void fill(Vector& a, const u64* from) { std::memcpy(&a, from, sizeof a); }
inline void fill(Mask& a, const u64* from) {
    Vector x;
    fill(x, from);
    a = bit(x, 0);
}

// A row of a memory for each lane; `rows` is that of the first. 8 bytes after a row may be read. Beyond the last row there is
// none: what is read there is not used.
template <typename T> inline Vector cut(Vector x) { return sizeof(T) < 8 ? x & all((1ull << 8 * (sizeof(T) % 8)) - 1) : x; }
template <typename Core, typename T, std::size_t N> inline Vector row(const Core (&)[LANES], const T (&rows)[N], Vector at) {
    Vector place;
    for (int k = 0; k < LANES; k++) place[k] = k * sizeof(Core);
    place += Vector(In::least(Raw(at), Raw(all(N - 1)))) * sizeof(T);
    return cut<T>(Vector(In::gather(Raw(place), rows)));
}

template <typename T, unsigned BYTES> inline Vector linear(const Linear<T, BYTES>& map, Vector x) {
    Vector result{};
#ifdef __GFNI__
    for (unsigned to = 0; to < sizeof(T); to++) {
        Vector sum{};
#pragma GCC unroll 8
        for (unsigned n = 0; n < BYTES; n++) sum ^= Vector(In::affine(Raw(x >> 8 * n), map.matrix[n][to]));
        result |= (sum & all(255)) << 8 * to;
    }
#else
#pragma GCC unroll 8
    for (unsigned n = 0; n < BYTES; n++) result ^= Vector(In::gather(Raw((x >> 8 * n & all(255)) * sizeof(T)), map.row[n]));
    result = cut<T>(result);
#endif
    return result;
}
