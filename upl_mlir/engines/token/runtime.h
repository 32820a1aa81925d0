// What every generated token program is built on: arithmetic as UPL means it, the queue of tokens, the matching stores.
#pragma once
//
// The generated source defines before it includes this file: Key (uint64_t or unsigned __int128: a packed tag), SOURCES and
// ARROWS (how many there are), VALUES (how many values a fault tells), and where they are needed COUNTS (tokens carry a
// multiplicity), POINTS (tokens carry the origin of a summand that is folded in order: so many iterators) and RANK (there are
// open gathers: so many numbers in a rank).
//
// Compiled with -fno-builtin, so that no call of libm is folded by the compiler: results are those of the C library.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <sys/mman.h>
#ifdef RANK
#include <algorithm>
#include <array>
#include <map>
#include <new>
#include <utility>
#include <vector>
#endif

typedef int64_t i64;
typedef uint64_t u64;
typedef uint32_t u32;
typedef uint8_t u8;
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define COLD __attribute__((noinline, cold, noreturn))

// ---- what goes wrong -------------------------------------------------------------------------------------------------
// `place` is a source (nodes, then host inputs), a receiver, a gathering input or an output, by its number in the program.
enum Fault : i64 { NONE, DUPLICATE, TWICE, TRAP, SURPLUS, UNKNOWN_SURPLUS, DISAGREE, OVERFLOW_, COUNT, TAG, MEMORY, RUNAWAY, LATE };
struct Anomaly { i64 fault, place; u64 low, high, v[VALUES]; };
struct Trap {};      // an operation without a value, or a multiplicity below 1; where is added by who catches it
struct OutOfTag {};  // a field that the packed tag cannot hold

static COLD void trap() { throw Trap{}; }
static COLD void out_of_tag() { throw OutOfTag{}; }
template <class... T> static COLD void anomaly(Fault f, i64 place, Key key, T... v) {
    Anomaly a = {f, place, (u64)key, (u64)((unsigned __int128)key >> 64), {(u64)v...}};
    throw a;
}

// ---- tags and tokens -------------------------------------------------------------------------------------------------
template <int BITS, int SHIFT> static inline Key packed(i64 x, i64 lower) {
    u64 d = (u64)x - (u64)lower;
    if (UNLIKELY(d >> BITS)) out_of_tag();
    return (Key)d << SHIFT;
}
template <int BITS, int SHIFT> static inline i64 unpacked(Key key, i64 lower) {
    return (i64)((u64)(key >> SHIFT) & (((u64)1 << BITS) - 1)) + lower;
}
#ifdef POINTS
struct Ord {  // where a summand comes from: LANGUAGE 3.10
    Key source;
    i64 point[POINTS ? POINTS : 1];
    u32 arrow;
    bool operator<(const Ord &o) const {
        if (arrow != o.arrow) return arrow < o.arrow;
        if (source != o.source) return source < o.source;
        for (int i = 0; i < POINTS; i++)
            if (point[i] != o.point[i]) return point[i] < o.point[i];
        return false;
    }
};
#endif
struct Token {
    Key key;
    u64 v;
#ifdef COUNTS
    i64 m;
#endif
#ifdef POINTS
    Ord ord;
#endif
    u32 to;
};

// ---- memory: zeroed, in huge pages where there is much of it ---------------------------------------------------------
// A run is made, used and deleted by one thread.
static thread_local u64 held = 0, may_hold = ~(u64)0;

static void *zeroed(u64 bytes) {
    void *p = nullptr;
    if (bytes < may_hold && held <= may_hold - bytes) {
        if (bytes < ((u64)1 << 21)) p = calloc(1, bytes);
        else {
            p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (p == MAP_FAILED) p = nullptr;
            else madvise(p, bytes, MADV_HUGEPAGE);
        }
    }
    if (!p) anomaly(MEMORY, 0, 0, bytes, held);
    held += bytes;
    return p;
}
static void release(void *p, u64 bytes) {
    if (!p) return;
    held -= bytes;
    if (bytes < ((u64)1 << 21)) free(p); else munmap(p, bytes);
}
template <class T> static void enlarge(T *&pool, u32 &room, u32 least) {
    u32 more = room ? room * 2 : least;
    if (more <= room || more == 0xffffffff) anomaly(MEMORY, 0, 0, (u64)room * sizeof(T), held);
    T *p = (T *)zeroed((u64)more * sizeof(T));
    if (room) __builtin_memcpy((void *)p, (void *)pool, (u64)room * sizeof(T));
    release(pool, (u64)room * sizeof(T));
    pool = p;
    room = more;
}

// ---- values ----------------------------------------------------------------------------------------------------------
static inline u64 bits(double x) { u64 u; __builtin_memcpy(&u, &x, 8); return u; }
static inline u64 bits(i64 x) { return (u64)x; }
static inline u64 bits(bool x) { return x; }
template <class T> static inline T get(u64 u);
template <> inline double get<double>(u64 u) { double x; __builtin_memcpy(&x, &u, 8); return x; }
template <> inline i64 get<i64>(u64 u) { return (i64)u; }
template <> inline bool get<bool>(u64 u) { return u != 0; }

// ---- integers: 64 bits, overflow is an error -------------------------------------------------------------------------
static inline i64 add(i64 a, i64 b) { i64 r; if (UNLIKELY(__builtin_add_overflow(a, b, &r))) trap(); return r; }
static inline i64 sub(i64 a, i64 b) { i64 r; if (UNLIKELY(__builtin_sub_overflow(a, b, &r))) trap(); return r; }
// A truth value as a number, of which GCC 12 must not know where it comes from: it crashes on (double)(3 * (x > 2)).
static inline i64 truth(bool b) { i64 r = b; __asm__("" : "+r"(r)); return r; }
static inline i64 mul(i64 a, i64 b) { i64 r; if (UNLIKELY(__builtin_mul_overflow(a, b, &r))) trap(); return r; }
static inline i64 divide_to_zero(i64 a, i64 b) {
    if (UNLIKELY(b == 0 || (a == INT64_MIN && b == -1))) trap();
    return a / b;
}
static inline i64 remainder_to_zero(i64 a, i64 b) {
    if (UNLIKELY(b == 0)) trap();
    return b == -1 ? 0 : a % b;
}
static inline i64 floordiv(i64 a, i64 b) {
    i64 q = divide_to_zero(a, b);
    return q - (q * b != a && (a < 0) != (b < 0));
}
static inline i64 ceildiv(i64 a, i64 b) {
    i64 q = divide_to_zero(a, b);
    return q + (q * b != a && (a < 0) == (b < 0));
}
static inline i64 mod(i64 a, i64 b) {
    i64 r = remainder_to_zero(a, b);
    return r && (r < 0) != (b < 0) ? r + b : r;
}
static inline i64 int_power(i64 a, i64 b) {
    if (b < 0) {
        if (a == 0) trap();
        return a == 1 || (a == -1 && (b & 1)) ? a : a == -1 ? 1 : 0;
    }
    if (a == 0 || a == 1) return b ? a : 1;
    if (a == -1) return b & 1 ? -1 : 1;
    i64 r = 1;
    for (; b; b--) r = mul(r, a);  // at most 63 turns before it overflows
    return r;
}
static inline i64 int_abs(i64 a) { if (UNLIKELY(a == INT64_MIN)) trap(); return a < 0 ? -a : a; }
static inline i64 min(i64 a, i64 b) { return a < b ? a : b; }
static inline i64 max(i64 a, i64 b) { return a > b ? a : b; }
static inline i64 to_int(double x) {
    if (UNLIKELY(!(-9.223372036854775808e18 <= x && x < 9.223372036854775808e18))) trap();
    return (i64)x;
}

// ---- reals: IEEE, no traps; an f32 is a double that was rounded --------------------------------------------------------
static const double INF = __builtin_inf(), NAN_ = __builtin_nan("");
#undef NAN
#define NAN NAN_
static inline double round_f32(double x) { return (double)(float)x; }
static inline double real(i64 x) { return (double)x; }
static inline double minimum(double a, double b) {
    return a < b ? a : b < a ? b : a == b ? (__builtin_signbit(a) ? a : b) : NAN;
}
static inline double maximum(double a, double b) {
    return a > b ? a : b > a ? b : a == b ? (__builtin_signbit(a) ? b : a) : NAN;
}
static inline double min_number(double a, double b) { return a != a ? b : b != b ? a : minimum(a, b); }
static inline double max_number(double a, double b) { return a != a ? b : b != b ? a : maximum(a, b); }
static inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
static inline double sigmoid(double x) {
    if (x >= 0) return 1.0 / (1.0 + exp(-x));
    double e = exp(x);
    return e / (1.0 + e);
}
template <class T> struct Entries {  // a constant array; reading outside is an error
    const T *at;
    i64 lower, size;
    inline T operator[](i64 i) const {
        if (UNLIKELY((u64)i - (u64)lower >= (u64)size)) trap();
        return at[i - lower];
    }
};
