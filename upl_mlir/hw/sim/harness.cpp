// The host of a compiled machine: loads it, feeds tokens, collects outputs, counts; called through C functions.
// The layouts of Token and Report are those of `interface.py` (a test compares their sizes).
#include <cstdint>
#include <cstring>
#include "Vmachine.h"
#include "verilated.h"

struct Token {
    uint64_t tag;
    uint32_t kind, node, input, multiplicity, value, unused;
};

struct Report {
    uint64_t cycles, injected, outputs, used_peak, used_sum, queued_peak, last_injection;
    uint64_t events[64], fired[4096], taken[4096];
    uint64_t failing_tag;
    uint32_t failure, failing_node, failing_input, ended, spilled, unused;  // ended: 0 limit of cycles, 1 idle, 2 failure, 3 no room, 4 stuck
};

struct Record {
    uint64_t tag;
    uint32_t valid, kind, node, left, present, total;
};

struct Simulation {
    VerilatedContext context;
    Vmachine top;
    Simulation() : top(&context) {
        top.rst = 1;
        top.clk = 0;
        top.eval();
        edge();
        top.rst = 0;
    }
    void settle() {
        top.clk = 0;
        top.eval();
    }
    void edge() {
        top.clk = 1;
        top.eval();
    }
};

extern "C" {

uint32_t upl_sizes(int which) { return which == 0 ? sizeof(Token) : which == 1 ? sizeof(Report) : sizeof(Record); }

void* upl_new() { return new Simulation; }

void upl_free(void* handle) { delete static_cast<Simulation*>(handle); }

void upl_config(void* handle, uint32_t select, uint32_t address, uint64_t data) {
    auto& s = *static_cast<Simulation*>(handle);
    s.top.config_en = 1;
    s.top.config_select = select;
    s.top.config_address = address;
    s.top.config_data = data;
    s.settle();
    s.edge();
    s.top.config_en = 0;
}

void upl_run(void* handle, const Token* tokens, uint64_t count, Token* out, uint64_t room, uint64_t limit,
             uint32_t* checksums, uint64_t checks, uint64_t patience, uint64_t moves, Report* report) {
    auto& s = *static_cast<Simulation*>(handle);
    Vmachine& top = s.top;
    Report& r = *report;
    uint64_t cycle = r.cycles, next = r.injected;
    const uint64_t stop = cycle + limit;
    uint64_t moved = cycle;  // the last cycle with one of the events that `moves` selects
    r.ended = 0;
    r.outputs = 0;
    top.output_ready = 1;
    while (cycle < stop) {
        const bool more = next < count;
        top.token_valid = more;
        if (more) {
            const Token& t = tokens[next];
            top.token_kind = t.kind;
            top.token_node = t.node;
            top.token_input = t.input;
            top.token_tag = t.tag;
            top.token_multiplicity = t.multiplicity;
            top.token_value = t.value;
        }
        s.settle();
        if (cycle < checks) checksums[cycle] = top.checksum;
        if (top.failure) {
            r.ended = 2;
            break;
        }
        if (top.idle) {
            r.ended = 1;
            break;
        }
        if (top.output_valid) {
            if (r.outputs == room) {
                r.ended = 3;
                break;
            }
            Token& o = out[r.outputs++];
            o.node = top.output_node;
            o.tag = top.output_tag;
            o.value = top.output_value;
        }
        uint64_t events = top.events;
        if (events & moves) moved = cycle;
        if (cycle - moved > patience) {
            r.ended = 4;
            break;
        }
        if (events & 1) r.taken[top.taken_node]++;
        if (events & 2) r.fired[top.fired_node]++;
        for (uint64_t rest = events; rest; rest &= rest - 1) r.events[__builtin_ctzll(rest)]++;
        if (more && top.token_ready) {
            next++;
            r.last_injection = cycle;
        }
        const uint64_t used = top.used, queued = top.queued;
        if (used > r.used_peak) r.used_peak = used;
        if (queued > r.queued_peak) r.queued_peak = queued;
        r.used_sum += used;
        s.edge();
        cycle++;
    }
    r.cycles = cycle;
    r.injected = next;
    r.spilled = top.spilled;
    r.failure = top.failure;
    r.failing_node = top.failing_node;
    r.failing_input = top.failing_input;
    r.failing_tag = top.failing_tag;
}

void upl_look(void* handle, uint32_t set, uint32_t way, uint32_t spilled, Record* record) {
    auto& s = *static_cast<Simulation*>(handle);
    s.top.token_valid = 0;
    s.top.look_set = set;
    s.top.look_way = way;
    s.top.look_spilled = spilled;
    for (int cycle = 0; cycle < 2; cycle++) {
        s.settle();
        s.edge();
    }
    s.settle();
    record->valid = s.top.look_valid;
    record->kind = s.top.look_class;
    record->node = s.top.look_node;
    record->tag = s.top.look_tag;
    record->left = s.top.look_left;
    record->present = s.top.look_present;
    record->total = s.top.look_total;
}
}
