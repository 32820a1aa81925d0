// The host of a compiled machine: joins models of cores and fabric, loads them, feeds tokens, collects outputs, counts.
// A core's ports depend on registers only, so its outputs are there before its inputs are; the fabric's need not.
// `wires.h` is made for each machine: names of ports, widths, layouts. Structures are those of `compiled.py`.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>
#ifdef __linux__
#include <sched.h>
#endif
#include "core.h"
#include "fabric.h"

#include "wires.h"

struct Token {
    uint64_t tag;
    uint32_t kind, node, input, multiplicity, value, unused;
};

struct Bits {
    uint32_t word[TOKEN_WORDS + 3];
    Bits() : word() {}
    void put(Span s, uint64_t value) {
        const unsigned low = s.first % 32;
        uint32_t* w = word + s.first / 32;
        if (s.width < 64) value &= (1ull << s.width) - 1;
        w[0] |= uint32_t(value << low);
        if (low + s.width > 32) w[1] |= uint32_t(value >> (32 - low));
        if (low + s.width > 64) w[2] |= uint32_t(value >> (64 - low));
    }
    uint64_t get(Span s) const {
        const unsigned low = s.first % 32;
        const uint32_t* w = word + s.first / 32;
        uint64_t value = w[0] >> low;
        if (low + s.width > 32) value |= uint64_t(w[1]) << (32 - low);
        if (low + s.width > 64) value |= uint64_t(w[2]) << (64 - low);
        return s.width < 64 ? value & ((1ull << s.width) - 1) : value;
    }
};

template <typename Port> inline void read(uint32_t* to, const Port& from) { std::memcpy(to, &from, sizeof from); }
template <typename Port> inline void write(Port& to, const uint32_t* from) { std::memcpy(&to, from, sizeof to); }

struct CoreReport {
    uint64_t used_peak, used_sum, queued_peak, failing_tag;
    uint32_t failure, failing_node, failing_input, spilled, patterns, left;
    uint64_t fired[NODES], taken[NODES];
};

struct Report {
    uint64_t cycles, injected, outputs, seen, last_injection, injection_bound, under_way_peak, under_way_sum;
    uint64_t ports[PORTS], moved[64], waits[64];
    uint32_t ended, unused;  // 0 limit of cycles, 1 idle, 2 failure, 3 no room, 4 stuck
};

// How often each pattern of events was there, in the order in which they came, and a table with open addresses of where they
// are. The last one is the most likely one to come again.
class Counter {
    std::vector<uint32_t> entry = std::vector<uint32_t>(1 << 8);  // from 1 on; 0: none
    std::vector<uint64_t> pattern, times;
    size_t last = 0;

    uint32_t& place(uint64_t p) {
        size_t at = p * 0x9E3779B97F4A7C15ull >> 32;
        for (;; at++) {
            uint32_t& e = entry[at & (entry.size() - 1)];
            if (!e || pattern[e - 1] == p) return e;
        }
    }
    size_t find(uint64_t p) {
        if (uint32_t& e = place(p)) return e - 1;
        pattern.push_back(p);
        times.push_back(0);
        if (2 * pattern.size() > entry.size()) {
            entry.assign(2 * entry.size(), 0);
            for (size_t n = 0; n < pattern.size(); n++) place(pattern[n]) = uint32_t(n + 1);
        } else {
            place(p) = uint32_t(pattern.size());
        }
        return pattern.size() - 1;
    }

public:
    void clear() {
        entry.assign(entry.size(), 0);
        pattern.clear();
        times.clear();
    }
    void add(uint64_t p) {
        if (last >= pattern.size() || pattern[last] != p) last = find(p);
        times[last]++;
    }
    size_t size() const { return pattern.size(); }
    void tell(uint64_t* patterns, uint64_t* often) const {
        std::copy(pattern.begin(), pattern.end(), patterns);
        std::copy(times.begin(), times.end(), often);
    }
};

struct Record {
    uint64_t tag;
    uint32_t valid, kind, node, left, present, total;
};

struct Seen {
    uint64_t cycle;
    uint32_t core, used, word[WATCH_WORDS];
} __attribute__((packed));

constexpr int REST = 4;  // cycles after which an idle core does not change any more

constexpr int MODELS = (CORES + WIDTH - 1) / WIDTH;  // of WIDTH cores

// What threads read in every cycle is in lines of memory in which the caller writes nothing during a run: here the models. Of all
// else they read `rest` only.
struct alignas(64) Simulation {
    std::array<std::unique_ptr<Core>, MODELS> model;
    alignas(64) std::unique_ptr<Fabric> fabric;
    std::vector<std::unique_ptr<Lane>> core;
    Counter counter[CORES];
    uint64_t shown[CORES] = {};  // records in each store, as what is watched has them last
    int rest[MODELS * WIDTH] = {};
    bool offered[PORTS] = {};
    Simulation() : fabric(new Fabric) {
        for (auto& m : model) m.reset(new Core);
        for (int n = 0; n < CORES; n++) {
            core.emplace_back(new Lane(*model[n / WIDTH], n % WIDTH));
            core[n]->number = n;
        }
        for (int n = CORES; n < MODELS * WIDTH; n++) rest[n] = REST;  // lanes without a core
        for (auto& m : model) m->ports(), m->settle();
    }
    static void edge(Core& m) { m.ports(), m.edge(), m.settle(); }
    void step() {
        for (auto& m : model) edge(*m);
        fabric->settle();
        fabric->edge();
    }
    bool rests(int n) const {  // all cores of a model
        bool all = true;
        for (int k = 0; k < WIDTH; k++) all &= rest[n * WIDTH + k] == REST;
        return all;
    }
    void evaluate(int first, int last) {
        for (int n = first; n < last; n++)
            if (!rests(n)) model[n]->edge(), model[n]->settle();
    }
};

// Processors that threads are on. A new thread begins on the one of its maker, and where both are busy it takes the system
// milliseconds to part them; a run may be over by then.
class Processors {
#ifdef __linux__
    cpu_set_t taken;

public:
    Processors() {
        CPU_ZERO(&taken);
        take();
    }
    void take() {
        const int here = sched_getcpu();
        if (here >= 0 && here < CPU_SETSIZE) CPU_SET(here, &taken);
    }
    void leave() {  // goes to another one, if there is one, but does not stay there for ever
        cpu_set_t all, rest, both;
        if (sched_getaffinity(0, sizeof all, &all)) return;
        CPU_AND(&both, &all, &taken);
        CPU_XOR(&rest, &all, &both);
        if (CPU_COUNT(&rest) == 0 || sched_setaffinity(0, sizeof rest, &rest)) return;
        take();
        sched_setaffinity(0, sizeof all, &all);
    }
#else
public:
    void leave() {}
#endif
};

// Threads that evaluate models beside the one that runs the machine. A helper always has the same ones, whose state is in its
// cache. What it is asked for are *rounds*, cycles one after the other. A helper that is late, as the machine has other work,
// loses its round to the caller, which then works alone for a while.
class alignas(64) Crew {
    static constexpr int PATIENCE = 5000, ALONE = 500;  // looks without giving way (some 200 us); cycles
    static constexpr uint64_t END = ~0ull;
    // Numbers of rounds, in a cache line for each writer. Who writes `lost` or `begun` and then reads the other one has a fence
    // between; so of the two that want a round at most one gets it. If both see each other, the helper declines.
    struct Helper {
        alignas(64) std::atomic<uint64_t> asked{0}, lost{0};        // by the caller: up to this one
        alignas(64) std::atomic<uint64_t> begun{0};                 // by the helper: the last one
        alignas(64) std::atomic<uint64_t> done{0}, declined{0};
        alignas(64) std::atomic<bool> there{false};  // and what does not change
        int first = 0, last = 0;
        std::thread thread;
    };
    Simulation& s;
    std::vector<std::unique_ptr<Helper>> helpers;
    const uint32_t late;  // looks after which a helper is late, at least PATIENCE
    alignas(64) uint64_t round = 0;
    int own = MODELS, alone = 0;

    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    void help(Helper& h, Processors& processors) {
        processors.leave();
        h.there = true;
        uint64_t seen = 0;
        for (int looks = 0;; looks++) {
            const uint64_t asked = h.asked.load(std::memory_order_acquire);
            if (asked == END) return;
            if (asked == seen) {
                looks < PATIENCE ? pause() : std::this_thread::yield();
                continue;
            }
            looks = 0;
            seen++;
            h.begun.store(seen, std::memory_order_relaxed);
            std::atomic_thread_fence(std::memory_order_seq_cst);
            if (h.lost.load(std::memory_order_relaxed) < seen) {
                s.evaluate(h.first, h.last);
                h.done.store(seen, std::memory_order_release);
            } else {
                h.declined.store(seen, std::memory_order_release);
            }
        }
    }
    // Waits until the helper has done this round. False: it has lost the round, and is not at work on an earlier one any more.
    bool done_by(Helper& h) {
        for (uint32_t looks = 0;; looks++) {
            if (h.done.load(std::memory_order_acquire) >= round) return true;
            if (h.declined.load(std::memory_order_acquire) >= round) return false;
            if (h.lost.load(std::memory_order_relaxed) >= round) {
                const uint64_t last = h.begun.load(std::memory_order_relaxed);
                const bool ended = h.done.load(std::memory_order_acquire) >= last || h.declined.load(std::memory_order_acquire) >= last;
                if (last < round && ended) return false;
            } else if (looks >= PATIENCE && looks >= late) {
                alone = ALONE;
                h.lost.store(h.asked.load(std::memory_order_relaxed), std::memory_order_relaxed);
                std::atomic_thread_fence(std::memory_order_seq_cst);
                continue;
            }
            looks < PATIENCE ? pause() : std::this_thread::yield();
        }
    }
    void ask(uint64_t number) {
        for (auto& h : helpers) h->asked.store(number, std::memory_order_release);
    }

public:
    Crew(Simulation& s, int threads, uint32_t late) : s(s), late(late) {
        if (threads > MODELS) threads = MODELS;
        Processors processors;
        for (int k = 1; k < threads; k++) {
            helpers.emplace_back(new Helper);
            Helper& h = *helpers.back();
            h.first = MODELS * k / threads;
            h.last = MODELS * (k + 1) / threads;
            if (k == 1) own = h.first;
            h.thread = std::thread([this, &h, &processors] { help(h, processors); });
            while (!h.there) std::this_thread::yield();
        }
    }
    ~Crew() {
        ask(END);
        for (auto& h : helpers) h->thread.join();
    }
    void cycle() {
        if (helpers.empty() || alone > 0) {
            alone -= alone > 0;
            s.evaluate(0, MODELS);
            return;
        }
        round++;
        ask(round);
        s.evaluate(0, own);
        for (auto& h : helpers)
            if (!done_by(*h)) s.evaluate(h->first, h->last);
    }
};

extern "C" {

uint32_t upl_sizes(int which) {
    const uint32_t sizes[] = {sizeof(Token), sizeof(Report), sizeof(CoreReport), sizeof(Record), sizeof(Seen)};
    return sizes[which];
}

void* upl_new() { return new Simulation; }

void upl_free(void* handle) { delete static_cast<Simulation*>(handle); }

void upl_config(void* handle, uint32_t select, uint32_t address, uint64_t data) {
    auto& s = *static_cast<Simulation*>(handle);
    auto set = [&](auto& model, int enable) {
        model.config_en = enable;
        model.config_select = select;
        model.config_address = address;
        model.config_data = data;
    };
    for (auto& c : s.core) set(*c, 1);
    set(*s.fabric, 1);
    s.step();
    for (auto& c : s.core) set(*c, 0);
    set(*s.fabric, 0);
}

void upl_run(void* handle, const Token* tokens, uint64_t count, Token* out, uint64_t room, Seen* seen, uint64_t seen_room,
             uint64_t limit, uint32_t* checksums, uint64_t checks, uint64_t patience, uint64_t moves, uint32_t threads,
             uint32_t late, Report* report, CoreReport* reports) {
    auto& s = *static_cast<Simulation*>(handle);
    for (auto& m : s.model) m->ports();
    Crew crew(s, int(threads), late);
    Fabric& f = *s.fabric;
    Report& r = *report;
    Lane* core[CORES];
    for (int n = 0; n < CORES; n++) core[n] = s.core[n].get();
    const Ports ports(f);
    uint64_t cycle = r.cycles, next = r.injected;
    if (cycle == 0)
        for (Counter& c : s.counter) c.clear();
    const uint64_t stop = cycle + limit;
    uint64_t moved = cycle;  // the last cycle with one of the events that `moves` selects
    r.ended = 0;
    r.outputs = r.seen = 0;
    for (int p = 0; p < PORTS; p++) *ports.result_ready[p] = 1;
    const auto room_left = [&] { return r.outputs + PORTS <= room && (!seen || r.seen + CORES <= seen_room); };
    const auto edge = [&] {
        for (int n = 0; n < CORES; n++) {
            const bool comes = from_fabric(f, *core[n], n);
            s.rest[n] = core[n]->idle && !comes ? s.rest[n] + (s.rest[n] < REST) : 0;
        }
        crew.cycle();
        f.edge();
    };
    while (cycle < stop) {
        if (!room_left()) {
            r.ended = 3;
            break;
        }
        for (int p = 0; p < PORTS; p++) {
            if (!s.offered[p] && next < count) {
                const Token& t = tokens[next++];
                Bits bits;
                bits.put(KIND, t.kind);
                bits.put(NODE, t.node);
                bits.put(INPUT, t.input);
                bits.put(TAG, t.tag);
                bits.put(MULTIPLICITY, t.multiplicity);
                bits.put(VALUE, t.value);
                write(*ports.port_data[p], bits.word);
                s.offered[p] = true;
            }
            *ports.port_valid[p] = s.offered[p];
        }
        bool over = next >= count;
        for (int p = 0; p < PORTS; p++) over = over && !s.offered[p];
        host_over(f, over);
        to_fabric(f, core);
        f.settle();
        if (cycle < checks) {
            uint32_t sum = 0;
            for (Lane* c : core) sum = (sum << 1 | sum >> 31) ^ c->checksum;
            checksums[cycle] = sum;
        }
        bool failed = false;
        for (Lane* c : core) failed |= c->failure != 0;
        if (failed) {
            r.ended = 2;
            break;
        }
        if (f.idle) {
            r.ended = 1;
            break;
        }
        uint64_t all = 0;
        for (int n = 0; seen && n < MODELS; n++) s.model[n]->probe();
        for (int n = 0; n < CORES; n++) {
            const Lane& c = *core[n];
            CoreReport& q = reports[n];
            const uint64_t events = c.events;
            all |= events;
            s.counter[n].add(events);
            if (events & TAKEN) q.taken[c.taken_node]++;
            if (events & FIRED) q.fired[c.fired_node]++;
            const uint64_t used = c.used, queued = c.queued;
            if (used > q.used_peak) q.used_peak = used;
            if (queued > q.queued_peak) q.queued_peak = queued;
            q.used_sum += used;
            if (seen) {
                Seen& e = seen[r.seen];
                uint32_t word[WATCH_WORDS + 3];
                read(word, c.watch);
                bool any = used != s.shown[n];
                for (unsigned bit : WATCHED) any |= word[bit / 32] >> bit % 32 & 1;
                if (any) {
                    e.cycle = cycle;
                    e.core = n;
                    e.used = s.shown[n] = used;
                    std::memcpy(e.word, word, sizeof e.word);
                    r.seen++;
                }
            }
        }
        if (CORES > 1) {
            for (uint64_t rest = f.moved; rest; rest &= rest - 1) r.moved[__builtin_ctzll(rest)]++;
            for (uint64_t rest = f.waits; rest; rest &= rest - 1) r.waits[__builtin_ctzll(rest)]++;
            r.under_way_sum += f.under_way;
            if (f.under_way > r.under_way_peak) r.under_way_peak = f.under_way;
        }
        int used_ports = 0;
        for (int p = 0; p < PORTS; p++) {
            if (s.offered[p] && *ports.port_ready[p]) {
                s.offered[p] = false;
                r.ports[p]++;
                r.last_injection = cycle;
                used_ports++;
            }
            if (*ports.result_valid[p]) {
                Bits bits;
                read(bits.word, *ports.result_data[p]);
                Token& o = out[r.outputs++] = {};
                o.node = uint32_t(bits.get(NODE));
                o.tag = bits.get(TAG);
                o.value = uint32_t(bits.get(VALUE));
                all |= moves;
            }
        }
        r.injection_bound += used_ports == PORTS;
        if (used_ports || f.moved || (all & moves)) moved = cycle;
        if (cycle - moved > patience) {
            r.ended = 4;
            break;
        }
        cycle++;
        edge();
    }
    r.cycles = cycle;
    r.injected = next;
    for (int n = 0; n < CORES; n++) {
        const Lane& c = *core[n];
        CoreReport& q = reports[n];
        q.spilled = c.spilled;
        q.left = c.used;
        q.patterns = uint32_t(s.counter[n].size());
        q.failure = c.failure;
        q.failing_node = c.failing_node;
        q.failing_input = c.failing_input;
        q.failing_tag = c.failing_tag;
    }
}

// The patterns of events of a core, in the last run, and how often each was there.
void upl_patterns(void* handle, uint32_t core, uint64_t* patterns, uint64_t* times) {
    static_cast<Simulation*>(handle)->counter[core].tell(patterns, times);
}

void upl_look(void* handle, uint32_t core, uint32_t set, uint32_t way, uint32_t spilled, Record* record) {
    Lane& c = *static_cast<Simulation*>(handle)->core[core];
    c.look_set = set;
    c.look_way = way;
    c.look_spilled = spilled;
    for (int cycle = 0; cycle < 3; cycle++) Simulation::edge(c.model);
    record->valid = c.look_valid;
    record->kind = c.look_class;
    record->node = c.look_node;
    record->tag = c.look_tag;
    record->left = c.look_left;
    record->present = c.look_present;
    record->total = c.look_total;
}
}
