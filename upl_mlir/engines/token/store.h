// Where tokens are: in flight, in the matching stores, in gathers under way, at the host outputs.
#pragma once
#include "runtime.h"

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
                while (slots[at].mask) at = after(at);
                slots[at] = old[i];
            }
        release(old, count * sizeof(E));
    }
    inline u64 after(u64 at) const { return (at + 1) & (size - 1); }
    inline void prefetch(Key key) const {
        const E *e = &slots[home(key, shift)];
        __builtin_prefetch(e, 1);
        __asm__ volatile("" : : "r"(e));  // without an effect that it sees, the compiler takes the function for nothing
    }
    inline E *find(Key key) const {
        u64 at = home(key, shift);
        for (; slots[at].mask; at = after(at))
            if (slots[at].key == key) return &slots[at];
        return nullptr;
    }
    // The entry of a key, or a free slot with the key written in: the caller sets its mask at once.
    inline E *place(Key key) {
        u64 at = home(key, shift);
        for (; slots[at].mask; at = after(at))
            if (slots[at].key == key) return &slots[at];
        if (UNLIKELY(2 * used >= size)) {
            resize(size * 2);
            for (at = home(key, shift); slots[at].mask; at = after(at)) {}
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
            at = after(at);
            if (!slots[at].mask) break;
            const u64 first = home(slots[at].key, shift);
            if (((at - first) & (size - 1)) >= ((at - gap) & (size - 1))) {
                slots[gap] = slots[at];
                gap = at;
            }
        }
        slots[gap].mask = 0;
    }
    inline void take(Key key, u64 bit) {  // one of the tokens of a record, which is there
        E *e = find(key);
        if (!(e->mask &= ~bit)) erase(e);
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
};

// A gather under way: how many summands are still to come, of how many; the total so far, or the list of summands.
struct Partial { Key key; i64 left, count; u64 v; u32 mask; };

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

    ~Store() { release(pool, (u64)room * sizeof(Entry)); }
    void start(bool *flag) {
        keys.start(flag);
        for (int i = 0; i < N; i++) parts[i].start(flag);
    }
    inline u32 find(Key key) const { const Cell *c = keys.find(key); return c ? c->head : NIL; }
    inline u32 first(int part, Key key) const { const Cell *c = parts[part].find(key); return c ? c->head : NIL; }
    u32 take() {
        if (open != NIL) { u32 e = open; open = pool[e].next[0]; return e; }
        if (UNLIKELY(top == room)) enlarge(pool, room, 64);
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

// ---- instances whose open gathers have not ended, by rank ------------------------------------------------------------------
#ifdef RANK
struct Strata {
    typedef std::array<i64, RANK> Rank;
    typedef std::pair<i64, Key> Instance;  // node and tag
    std::map<Rank, std::vector<Instance>> by_rank;
    Rank last = {};
    std::vector<Instance> *open = nullptr;  // those of rank `last`, which the next instance often has, too
    inline void add(const Rank &rank, i64 node, Key key) {
        if (!open || rank != last) { open = &by_rank[rank]; last = rank; }
        open->push_back({node, key});
    }
    // Take out those of least rank, each once, in the order of nodes and tags.
    std::vector<Instance> pop() {
        std::vector<Instance> out = std::move(by_rank.begin()->second);
        by_rank.erase(by_rank.begin());
        open = nullptr;
        std::sort(out.begin(), out.end());
        out.erase(std::unique(out.begin(), out.end()), out.end());
        return out;
    }
};
#endif

// ---- summands that wait to be folded in order ----------------------------------------------------------------------------
#ifdef POINTS
struct Summands {
    struct Link { Ord ord; u64 v; u32 next; };
    Link *pool = nullptr;
    u32 room = 0, top = 0, open = NIL;
    ~Summands() { release(pool, (u64)room * sizeof(Link)); }
    u32 push(const Ord &ord, u64 v, u32 next) {
        u32 e = open;
        if (e != NIL) open = pool[e].next;
        else {
            if (UNLIKELY(top == room)) enlarge(pool, room, 1024);
            e = top++;
        }
        pool[e].ord = ord; pool[e].v = v; pool[e].next = next;
        return e;
    }
    u32 merge(u32 a, u32 b) {  // of equal ones, those of `a` first
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
    u32 sorted(u32 list) {  // bottom-up merge sort, latest first to least first: bin k holds a sorted run of 2^k
        u32 bins[32];
        for (u32 &b : bins) b = NIL;
        while (list != NIL) {
            u32 run = list;
            list = pool[list].next;
            pool[run].next = NIL;
            int k = 0;
            for (; bins[k] != NIL; k++) { run = merge(run, bins[k]); bins[k] = NIL; }
            bins[k] = run;
        }
        u32 all = NIL;
        for (u32 b : bins) all = merge(all, b);
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

// ---- tokens in flight --------------------------------------------------------------------------------------------------
// Chunks in a row: new tokens go to the end, chunks that were read through are used again at once, so that few tokens in
// flight stay within the cache however many pass.
static const u64 AHEAD = 32;    // tokens between asking for a slot's cache line and using it
static const u64 CHUNK = 4096;  // tokens

struct Queue {
    struct Chunk { Token t[CHUNK + AHEAD]; Chunk *next; };  // beyond the end: old tokens or zeros, asked for in vain
    struct Slab { Chunk *chunks; u32 count; };
    Chunk **row = nullptr;  // the chunk of token i is row[i / CHUNK mod room]
    u64 room = 0, first = 0, last = 0;
    Token *next = nullptr, *end = nullptr;
    Chunk *open = nullptr;
    Slab *slabs = nullptr;
    u32 slab_room = 0, slab_top = 0;

    ~Queue() {
        for (u32 i = 0; i < slab_top; i++) release(slabs[i].chunks, slabs[i].count * sizeof(Chunk));
        release(slabs, slab_room * sizeof(Slab));
        release(row, room * sizeof(Chunk *));
    }
    void start() {
        room = 16;
        row = (Chunk **)zeroed(room * sizeof(Chunk *));
        use(0);
    }
    inline u64 tail() const { return (last + 1) * CHUNK - (u64)(end - next); }
    inline Token *at(u64 i) const { return &row[i / CHUNK & (room - 1)]->t[i & (CHUNK - 1)]; }
    inline Token &put() {
        if (UNLIKELY(next == end)) extend();
        return *next++;
    }
    void use(u64 place) {  // a free chunk at a place of the row, from now on the last
        if (!open) {
            if (slab_top == slab_room) enlarge(slabs, slab_room, 64);
            u32 count = slab_top < 6 ? 1u << slab_top : 64;
            Chunk *c = (Chunk *)zeroed(count * sizeof(Chunk));
            slabs[slab_top++] = {c, count};
            for (u32 i = 0; i < count; i++) { c[i].next = open; open = &c[i]; }
        }
        last = place;
        Chunk *c = row[place & (room - 1)] = open;
        open = c->next;
        next = c->t;
        end = c->t + CHUNK;
    }
    __attribute__((noinline, cold)) void extend() {
        if (last + 1 - first == room) {
            Chunk **more = (Chunk **)zeroed(2 * room * sizeof(Chunk *));
            for (u64 i = first; i <= last; i++) more[i & (2 * room - 1)] = row[i & (room - 1)];
            release(row, room * sizeof(Chunk *));
            row = more;
            room *= 2;
        }
        use(last + 1);
    }
    void give_back(u64 place) {
        Chunk *c = row[place & (room - 1)];
        c->next = open;
        open = c;
    }
    void passed(u64 head) {  // all tokens before this one were read
        for (; first < head / CHUNK && first < last; first++) give_back(first);
    }
    void drop_last() {  // there is one
        if (next == end - CHUNK) {
            give_back(last--);
            end = row[last & (room - 1)]->t + CHUNK;
            next = end;
        }
        next--;
    }
};

// ---- what remains at the end -------------------------------------------------------------------------------------------
// Each is (low and high word of the key, value, multiplicity or summands to come, summands in all); `out` may be null.
struct Left { u64 low, high, v; i64 left, count; };
static inline void tell(Left *out, i64 at, Key key, u64 v, i64 left, i64 count) {
    if (out) out[at] = {(u64)key, (u64)((unsigned __int128)key >> 64), v, left, count};
}
template <class R> static i64 list_record(const Table<R> &t, u64 bit, int at, Left *out) {
    i64 n = 0;
    for (u64 i = 0; i < t.size; i++)
        if (t.slots[i].mask & bit) tell(out, n++, t.slots[i].key, t.slots[i].v[at], 1, 0);
    return n;
}
static inline i64 list_partial(const Table<Partial> &t, Left *out) {
    i64 n = 0;
    for (u64 i = 0; i < t.size; i++)
        if (t.slots[i].mask) tell(out, n++, t.slots[i].key, t.slots[i].v, t.slots[i].left, t.slots[i].count);
    return n;
}
template <int N> static i64 list_store(const Store<N> &s, Left *out) {
    i64 n = 0;
    for (u64 i = 0; i < s.keys.size; i++)
        if (s.keys.slots[i].mask) {
            const auto &e = s.pool[s.keys.slots[i].head];
            tell(out, n++, e.key, e.v, e.left, 0);
        }
    return n;
}

// ---- host outputs: dense arrays over boxes -------------------------------------------------------------------------------
template <class C, class T, int N> struct Output {  // C: the type of the array's elements, T: of values
    struct Outside { i64 x[N ? N : 1]; u64 v; };
    C *data = nullptr;
    u8 *have = nullptr;
    const u8 *inside = nullptr;
    const i64 *lower = nullptr, *shape = nullptr;
    Outside *outside = nullptr;
    u32 room = 0, top = 0;

    ~Output() { release(outside, (u64)room * sizeof(Outside)); }
    template <class... X> inline void put(i64 number, T value, X... x) {
        const i64 index[N ? N : 1] = {x...};
        u64 at = 0;
        bool in = true;
        for (int i = 0; i < N; i++) {
            u64 d = (u64)index[i] - (u64)lower[i];
            in = in && d < (u64)shape[i];
            at = at * (u64)shape[i] + d;
        }
        if (UNLIKELY(!in || !inside[at])) return put_outside(number, value, index);
        if (UNLIKELY(have[at])) anomaly(TWICE, number, 0, bits((T)data[at]), bits(value), x...);
        have[at] = 1;
        data[at] = (C)value;
    }
    __attribute__((noinline, cold)) void put_outside(i64 number, T value, const i64 *index) {
        for (u32 i = 0; i < top && i < 4096; i++)  // a program that sends more of them fails anyway, at the end
            if (!__builtin_memcmp(outside[i].x, index, N * sizeof(i64))) twice(number, outside[i].v, bits(value), index);
        if (top == room) enlarge(outside, room, 16);
        __builtin_memcpy(outside[top].x, index, N * sizeof(i64));
        outside[top++].v = bits(value);
    }
    void twice(i64 number, u64 old, u64 value, const i64 *index) {
        Anomaly a = {TWICE, number, 0, 0, {old, value}};
        for (int i = 0; i < N; i++) a.v[2 + i] = (u64)index[i];
        throw a;
    }
    i64 list_outside(i64 *out) const {
        for (u32 i = 0; out && i < top; i++) __builtin_memcpy(out + (u64)i * N, outside[i].x, N * sizeof(i64));
        return top;
    }
};
