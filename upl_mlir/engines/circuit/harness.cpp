// Runs a model of a circuit: feeds its input streams, takes its output streams, notes what its sites read.
//
// `pins.h`, which is generated, has the class `Pins`: pointers to the ports of the model, `INPUTS`, `OUTPUTS`, `WATCHES`.
#include <new>

#include "circuit.h"
#include "pins.h"

namespace {
// Xorshift by Marsaglia; a port that holds back does so with `often` of 256.
struct Draw {
    u64 state;
    bool operator()(unsigned often) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return (state >> 32 & 255) < often;
    }
};
}  // namespace

extern "C" {
struct Stream {
    uint32_t* words;
    uint8_t* last;  // of outputs: whether each word had its mark
    uint64_t* clocks;  // when each word passed
    uint64_t count, room;
};
struct Watch {
    uint32_t* words;
    uint64_t count, room;
};

// A circuit begins as after a reset.
Circuit* upl_circuit_new() { return new Circuit(); }
void upl_circuit_delete(Circuit* model) { delete model; }
void upl_circuit_reset(Circuit* model) {
    model->~Circuit();
    new (model) Circuit();
}

// Goes on from where the circuit stands. Returns the clocks until all words of the inputs have been taken, all outputs have
// `room` words, and `after` clocks more have passed; or `limit`.
uint64_t upl_circuit_run(
    Circuit* model, Stream* in, Stream* out, Watch* watch, uint64_t limit, uint64_t after, uint64_t seed, uint32_t hold_in,
    uint32_t hold_out
) {
    Pins pins(*model);
    Draw draw{seed | 1};
    bool offered[INPUTS + 1] = {};
    uint64_t at[INPUTS + 1] = {}, clock = 0, rest = after;
    for (; clock < limit; clock++) {
        bool done = true;
        for (int n = 0; n < INPUTS; n++) {
            offered[n] = at[n] < in[n].count && (offered[n] || !hold_in || !draw(hold_in));
            *pins.in_valid[n] = offered[n];
            *pins.in_data[n] = offered[n] ? in[n].words[at[n]] : 0;
            *pins.in_last[n] = offered[n] && in[n].last[at[n]];
            done = done && at[n] == in[n].count;
        }
        for (int n = 0; n < OUTPUTS; n++) {
            *pins.out_ready[n] = !hold_out || !draw(hold_out);
            done = done && out[n].count == out[n].room;
        }
        if (done && !rest--) break;
        model->settle();
        for (int n = 0; n < INPUTS; n++)
            if (offered[n] && *pins.in_ready[n]) in[n].clocks[at[n]++] = clock, offered[n] = false;
        for (int n = 0; n < OUTPUTS; n++)
            if (*pins.out_valid[n] && *pins.out_ready[n]) {
                Stream& s = out[n];
                if (s.count == s.room) {
                    s.count = ~0ull;  // a word too many
                    return clock;
                }
                s.words[s.count] = uint32_t(*pins.out_data[n]), s.last[s.count] = uint8_t(*pins.out_last[n]);
                s.clocks[s.count++] = clock;
            }
        for (int n = 0; n < WATCHES; n++)
            if (*pins.watch[n]) {
                Watch& w = watch[n];
                if (w.count < w.room) w.words[w.count] = uint32_t(*pins.watch_word[n]);
                w.count++;
            }
        model->edge();
    }
    return clock;
}
}
