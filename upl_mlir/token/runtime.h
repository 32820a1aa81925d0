// What every generated token program is built on: arithmetic as UPL means it, the queue of tokens, the matching stores.
// The generated source defines before it includes this file: Key (uint64_t or unsigned __int128: a packed tag), Token
// (to, key, v, and m where multiplicities are sent), and, for ordered gathers, HAS_ORDER and Ord (comparable by <).
// Compiled with -fno-builtin, so that no call of libm is folded by the compiler: results are those of the C library.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

typedef int64_t i64;
typedef uint64_t u64;
typedef uint32_t u32;
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define COLD __attribute__((noinline, cold, noreturn))

// ---- what goes wrong -------------------------------------------------------------------------------------------------
enum Fault : i64 { NONE, STRANDED, DUPLICATE, TWICE, OUTSIDE, FEW, TRAP, SURPLUS, DISAGREE, TAG, MEMORY };
struct Anomaly { Fault fault; i64 place; Key key; };  // place: a receiver, arrow, source or output, by number
struct Trap {};                                       // an operation without a value; its site is added where it is known
struct OutOfTag {};                                   // a field that the packed tag cannot hold

static COLD void trap() { throw Trap{}; }
static COLD void out_of_tag() { throw OutOfTag{}; }
static COLD void anomaly(Fault f, i64 place, Key key) { throw Anomaly{f, place, key}; }

// ---- memory: zeroed, in huge pages where there is much of it ---------------------------------------------------------
static void *zeroed(size_t bytes) {
    if (bytes < ((size_t)1 << 21)) {
        void *p = calloc(1, bytes);
        if (!p) anomaly(MEMORY, (i64)bytes, 0);
        return p;
    }
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) anomaly(MEMORY, (i64)bytes, 0);
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}
static void release(void *p, size_t bytes) {
    if (!p) return;
    if (bytes < ((size_t)1 << 21)) free(p); else munmap(p, bytes);
}

// ---- values ----------------------------------------------------------------------------------------------------------
static inline u64 bits(double x) { u64 u; memcpy(&u, &x, 8); return u; }
static inline u64 bits(i64 x) { return (u64)x; }
static inline u64 bits(bool x) { return x; }
template <class T> static inline T get(u64 u);
template <> inline double get<double>(u64 u) { double x; memcpy(&x, &u, 8); return x; }
template <> inline i64 get<i64>(u64 u) { return (i64)u; }
template <> inline bool get<bool>(u64 u) { return u != 0; }

// ---- integers: 64 bits, overflow is an error -------------------------------------------------------------------------
static inline i64 add(i64 a, i64 b) { i64 r; if (UNLIKELY(__builtin_add_overflow(a, b, &r))) trap(); return r; }
static inline i64 sub(i64 a, i64 b) { i64 r; if (UNLIKELY(__builtin_sub_overflow(a, b, &r))) trap(); return r; }
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
static const i64 INT_MAX_ = INT64_MAX, INT_MIN_ = INT64_MIN;
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

// ---- hashing -----------------------------------------------------------------------------------------------------------
// Eight neighbours in the last field share a group of eight slots, so that runs of indices stay within cache lines; the
// group is chosen by a multiplicative hash, and its order is permuted, so that strides of eight do not collide.
static inline u64 fold(u64 k) { return k; }
static inline u64 fold(unsigned __int128 k) { return (u64)k ^ ((u64)(k >> 64) * 0xd6e8feb86659fd93u); }
static inline u64 home(Key key, int shift) {
    u64 k = fold(key), h = (k >> 3) * 0x9e3779b97f4a7c15u;
    return ((h >> shift) << 3) | ((k ^ (h >> 20)) & 7);
}

// An open addressing table with linear probing; a slot is free while its `mask` is 0.
template <class E> struct Table {
    E *slots = nullptr;
    u64 size = 0, used = 0;
    int shift = 0;
    bool *big = nullptr;  // told when the table no longer fits the cache

    ~Table() { release(slots, size * sizeof(E)); }
    void start(bool *flag) { big = flag; resize(64); }
    void resize(u64 to) {
        E *old = slots;
        u64 count = size;
        slots = (E *)zeroed(to * sizeof(E));
        size = to;
        shift = 64 - (__builtin_ctzll(to) - 3);
        if (size * sizeof(E) > ((u64)1 << 19)) *big = true;
        for (u64 i = 0; i < count; i++)
            if (old[i].mask) {
                u64 at = home(old[i].key, shift);
                while (slots[at].mask) at = (at + 1) & (size - 1);
                slots[at] = old[i];
            }
        release(old, count * sizeof(E));
    }
    inline void prefetch(Key key) const { __builtin_prefetch(&slots[home(key, shift)], 1); }
    inline E *find(Key key) const {
        u64 at = home(key, shift);
        for (; slots[at].mask; at = (at + 1) & (size - 1))
            if (slots[at].key == key) return &slots[at];
        return nullptr;
    }
    // The entry of a key, or a free slot with the key written in: the caller sets its mask at once.
    inline E *place(Key key) {
        u64 at = home(key, shift);
        for (; slots[at].mask; at = (at + 1) & (size - 1))
            if (slots[at].key == key) return &slots[at];
        if (UNLIKELY(2 * used >= size)) {
            resize(size * 2);
            for (at = home(key, shift); slots[at].mask; at = (at + 1) & (size - 1)) {}
        }
        used++;
        slots[at].key = key;
        return &slots[at];
    }
    // Close the gap by moving later entries of the run back: no tombstones, so probes stay short.
    inline void erase(E *e) {
        u64 gap = (u64)(e - slots), at = gap;
        used--;
        for (;;) {
            at = (at + 1) & (size - 1);
            if (!slots[at].mask) break;
            u64 h = home(slots[at].key, shift);
            if (((at - h) & (size - 1)) >= ((at - gap) & (size - 1))) {
                slots[gap] = slots[at];
                gap = at;
            }
        }
        slots[gap].mask = 0;
    }
};

// ---- sets of keys: 64 neighbours a word --------------------------------------------------------------------------------
struct Done {
    struct Word { Key key; u64 mask; };
    Table<Word> words;
    void start(bool *flag) { words.start(flag); }
    inline bool has(Key key) const {
        const Word *w = words.find(key >> 6);
        return w && (w->mask >> ((u64)key & 63) & 1);
    }
    inline void insert(Key key) {
        Word *w = words.place(key >> 6);
        w->mask |= (u64)1 << ((u64)key & 63);  // a free slot has mask 0
    }
    inline void prefetch(Key key) const { words.prefetch(key >> 6); }
};

// ---- stores that are searched by parts of the tag ------------------------------------------------------------------------
static const u32 NIL = 0xffffffff;
struct Cell { Key key; u32 mask, head, tail; };  // of an index: the tokens that agree in some fields, oldest first
static const i64 FOREVER = INT64_MAX;            // the multiplicity `##`

// Tokens by key, and by `N` parts of it, each part a mask of key bits.  Entries lie in one pool and never move.
template <int N> struct Store {
    struct Entry { Key key; u64 v; i64 left; u32 next[N ? N : 1], prev[N ? N : 1]; };
    Entry *pool = nullptr;
    u32 room = 0, top = 0, open = NIL;
    Table<Cell> keys, parts[N ? N : 1];
    Key masks[N ? N : 1];

    ~Store() { release(pool, (size_t)room * sizeof(Entry)); }
    void start(bool *flag) {
        keys.start(flag);
        for (int i = 0; i < N; i++) parts[i].start(flag);
    }
    inline u32 find(Key key) const { const Cell *c = keys.find(key); return c ? c->head : NIL; }
    inline u32 first(int part, Key key) const { const Cell *c = parts[part].find(key); return c ? c->head : NIL; }
    u32 take() {
        if (open != NIL) { u32 e = open; open = pool[e].next[0]; return e; }
        if (top == room) {
            u32 more = room ? room * 2 : 64;
            if (more <= room || more == NIL) anomaly(MEMORY, 0, 0);
            Entry *p = (Entry *)zeroed((size_t)more * sizeof(Entry));
            if (room) memcpy(p, pool, (size_t)room * sizeof(Entry));
            release(pool, (size_t)room * sizeof(Entry));
            pool = p;
            room = more;
        }
        return top++;
    }
    u32 insert(Key key, u64 v, i64 left) {  // the key is not there
        u32 e = take();
        pool[e].key = key; pool[e].v = v; pool[e].left = left;
        Cell *c = keys.place(key);
        c->mask = 1; c->head = e;
        for (int i = 0; i < N; i++) {
            Cell *p = parts[i].place(key & masks[i]);
            pool[e].next[i] = NIL;
            pool[e].prev[i] = p->mask ? p->tail : NIL;
            if (p->mask) pool[p->tail].next[i] = e; else p->head = e;
            p->mask = 1; p->tail = e;
        }
        return e;
    }
    void remove(u32 e) {
        Entry &x = pool[e];
        keys.erase(keys.find(x.key));
        for (int i = 0; i < N; i++) {
            Cell *p = parts[i].find(x.key & masks[i]);
            if (x.prev[i] != NIL) pool[x.prev[i]].next[i] = x.next[i]; else p->head = x.next[i];
            if (x.next[i] != NIL) pool[x.next[i]].prev[i] = x.prev[i]; else p->tail = x.prev[i];
            if (p->head == NIL) parts[i].erase(p);
        }
        x.next[0] = open;
        open = e;
    }
};

// ---- summands that wait to be folded in order ----------------------------------------------------------------------------
#ifdef HAS_ORDER
struct Summands {
    struct Link { Ord ord; u64 v; u32 next; };
    Link *pool = nullptr;
    u32 room = 0, top = 0, open = NIL;
    ~Summands() { release(pool, (size_t)room * sizeof(Link)); }
    u32 push(const Ord &ord, u64 v, u32 next) {
        u32 e = open;
        if (e != NIL) open = pool[e].next;
        else {
            if (top == room) {
                u32 more = room ? room * 2 : 1024;
                if (more <= room || more == NIL) anomaly(MEMORY, 0, 0);
                Link *p = (Link *)zeroed((size_t)more * sizeof(Link));
                if (room) memcpy(p, pool, (size_t)room * sizeof(Link));
                release(pool, (size_t)room * sizeof(Link));
                pool = p;
                room = more;
            }
            e = top++;
        }
        pool[e].ord = ord; pool[e].v = v; pool[e].next = next;
        return e;
    }
    u32 merge(u32 a, u32 b) {
        u32 head = NIL, *at = &head;
        while (a != NIL && b != NIL) {
            u32 &least = pool[b].ord < pool[a].ord ? b : a;
            *at = least;
            at = &pool[least].next;
            least = *at;
        }
        *at = a != NIL ? a : b;
        return head;
    }
    u32 sorted(u32 list) {  // bottom-up merge sort of a list: bin k holds a sorted run of 2^k
        u32 bins[32];
        for (u32 &b : bins) b = NIL;
        while (list != NIL) {
            u32 run = list;
            list = pool[list].next;
            pool[run].next = NIL;
            int k = 0;
            for (; bins[k] != NIL; k++) { run = merge(bins[k], run); bins[k] = NIL; }
            bins[k] = run;
        }
        u32 all = NIL;
        for (u32 b : bins) all = merge(b, all);
        return all;
    }
    void free_all(u32 list) {
        u32 last = list;
        while (pool[last].next != NIL) last = pool[last].next;
        pool[last].next = open;
        open = list;
    }
};
#endif

// ---- tokens in flight: first in, first out ---------------------------------------------------------------------------------
struct Queue {
    Token *ring = nullptr;
    u64 size = 0, head = 0, tail = 0;
    ~Queue() { release(ring, size * sizeof(Token)); }
    void start() { size = 1024; ring = (Token *)zeroed(size * sizeof(Token)); }
    __attribute__((noinline, cold)) void grow() {
        Token *p = (Token *)zeroed(2 * size * sizeof(Token));
        for (u64 i = head; i != tail; i++) p[i & (2 * size - 1)] = ring[i & (size - 1)];
        release(ring, size * sizeof(Token));
        ring = p;
        size *= 2;
    }
    inline Token &put() {
        if (UNLIKELY(tail - head == size)) grow();
        return ring[tail++ & (size - 1)];
    }
};
