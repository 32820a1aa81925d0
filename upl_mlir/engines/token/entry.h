// How Python drives a run; included after the generated `struct Run`, which has receive(token) and prefetch(token).
// A function that can fail returns a status and fills in the anomaly; a run that failed is only looked at and deleted.
#include "store.h"

enum Status : i64 { DONE, MORE, FAILED };

template <class F> static i64 guarded(Anomaly *fault, F f) {
    try {
        return f();
    } catch (const Anomaly &a) {
        *fault = a;
#ifdef RANK
    } catch (const std::bad_alloc &) {
        *fault = {MEMORY, 0, 0, 0, {0, held}};
#endif
    } catch (const OutOfTag &) {  // of a host input, before it fires
        *fault = {TAG, NODES, 0, 0, {}};
    }
    return FAILED;
}

// MT19937 as Python's `random` has it, from its state.
struct Twister {
    u32 state[624];
    u32 at;
    u32 next() {
        if (at >= 624) {
            for (u32 i = 0; i < 624; i++) {
                u32 y = (state[i] & 0x80000000u) | (state[(i + 1) % 624] & 0x7fffffffu);
                state[i] = state[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
            }
            at = 0;
        }
        u32 y = state[at++];
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c5680u;
        y ^= (y << 15) & 0xefc60000u;
        return y ^ (y >> 18);
    }
    double random() {
        u32 a = next() >> 5, b = next() >> 6;
        return (a * 67108864.0 + b) * (1.0 / 9007199254740992.0);
    }
};

struct Whole : Run {
    Twister twister;
    u64 head = 0, batch_begin = 0, batch_end = 0, steps = 0;

    void check(u64 limit) {
        u64 total = 0;
        for (int i = 0; i < NODES; i++) total += fired[i];
        if (total > limit) anomaly(RUNAWAY, 0, 0, total);
    }
    // Nothing is in flight: the open gathers of least rank end, until a token is sent.  `random`: in any order.
    bool quiet(bool random) {
#ifdef RANK
        while (head == queue.tail() && !strata.by_rank.empty()) {
            auto found = strata.pop();
            for (u64 i = found.size() - 1; random && i > 0; i--)
                std::swap(found[i], found[(u64)(twister.random() * (double)(i + 1))]);
            for (const auto &[node, key] : found) end(node, key);
        }
        return head != queue.tail();
#else
        return random && false;
#endif
    }
    // As the interpreter: the number of firings is looked at between two batches, a batch being what the one before sent.
    i64 fifo(u64 budget, u64 limit, u64 every) {
        while (budget) {
            if (head == batch_end) {
                steps += batch_end - batch_begin;
                if (steps >= every) { steps = 0; check(limit); }
                if (head == queue.tail() && !quiet(false)) { check(limit); return DONE; }
                const u64 tail = queue.tail();
                batch_begin = batch_end;
                batch_end = tail;
            }
            u64 count = CHUNK - (head & (CHUNK - 1));  // to the end of the chunk, of the batch, or of the budget
            if (count > batch_end - head) count = batch_end - head;
            if (count > budget) count = budget;
            const Token *t = queue.at(head), *end = t + count;
            for (; t != end; t++) {
                if (big) prefetch(t[AHEAD]);
                receive(*t);
            }
            head += count;
            budget -= count;
            queue.passed(head);
        }
        return MORE;
    }
    i64 shuffled(u64 budget, u64 limit, u64 every) {
        for (; budget; budget--) {
            const u64 count = queue.tail();
            if (count == 0 && quiet(true)) continue;
            if (count == 0) { check(limit); return DONE; }
            Token *t = queue.at((u64)(twister.random() * (double)count));
            const Token chosen = *t;
            *t = *queue.at(count - 1);
            queue.drop_last();
            receive(chosen);
            if (++steps >= every) { steps = 0; check(limit); }
        }
        return MORE;
    }
};

extern "C" {
void *upl_new(u64 memory, Anomaly *fault) {
    held = 0;
    may_hold = memory;
    Whole *run = nullptr;
    guarded(fault, [&] { run = new Whole; run->start(); return (i64)DONE; });
    return run;
}
void upl_delete(Whole *run) { delete run; }
i64 upl_input(Whole *run, i64 number, const void *data, const u8 *inside, const i64 *lower, const i64 *shape, Anomaly *f) {
    return guarded(f, [&] { run->input(number, data, inside, lower, shape); return (i64)DONE; });
}
void upl_output(Whole *run, i64 number, void *data, u8 *have, const u8 *inside, const i64 *lower, const i64 *shape) {
    run->output(number, data, have, inside, lower, shape);
}
i64 upl_empty(Whole *run, i64 node, i64 count, const i64 *indices, Anomaly *f) {
    return guarded(f, [&] { run->empty(node, count, indices); return (i64)DONE; });
}
i64 upl_fifo(Whole *run, u64 budget, u64 limit, u64 every, Anomaly *f) {
    return guarded(f, [&] { return run->fifo(budget, limit, every); });
}
void upl_seed(Whole *run, const u32 *state) {
    for (int i = 0; i < 624; i++) run->twister.state[i] = state[i];
    run->twister.at = state[624];
}
i64 upl_random(Whole *run, u64 budget, u64 limit, u64 every, Anomaly *f) {
    return guarded(f, [&] { return run->shuffled(budget, limit, every); });
}
void upl_counts(const Whole *run, u64 *fired, u64 *sent, i64 *waiting, i64 *peak) {
    for (int i = 0; i < SOURCES; i++) fired[i] = run->fired[i];
    for (int i = 0; i < ARROWS; i++) sent[i] = run->sent[i];
    *waiting = run->waiting;
    *peak = run->peak;
}
i64 upl_left(const Whole *run, i64 store, Left *out) { return run->left(store, out); }
i64 upl_outside(const Whole *run, i64 output, i64 *out) { return run->outside(output, out); }
}
