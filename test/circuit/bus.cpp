// A circuit on its bus: a memory of which every answer may take its time, and the driver that the C header has.
//
// Beside this file lie `wishbone.h`, the model of the hardware (class `Wishbone`), and `driver.h`, which includes the header
// that is tested behind UPL_READ and UPL_WRITE, and names of it: RUNS, ARRAYS.
#include <cstdint>
#include <cstdlib>
#include <new>

#include "wishbone.h"

namespace {
struct Bench;
Bench* now = nullptr;  // the one whose driver runs
uint32_t bus_read(uintptr_t address);
void bus_write(uintptr_t address, uint32_t value);
}  // namespace

#define UPL_READ(address) bus_read(address)
#define UPL_WRITE(address, value) bus_write(address, value)
#include "driver.h"

namespace {
// Bursts by registered feedback (Wishbone B4, chapter 4): after a word with CTI=010 the next one is asked for at once, of the
// next address.
struct Bench {
    Wishbone model;
    uint32_t* memory;
    uint64_t words, latency, hold, state;
    uint64_t clock = 0, limit = ~0ull, bursts = 0, passed = 0;
    const char* fault = nullptr;  // what the master did wrong
    // The master's last word, and what the next one must be.
    bool asked = false, follows = false;
    u64 adr = 0, we = 0, cti = 0, dat = 0, wait = 0;

    bool draw() {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return (state >> 32 & 255) < hold;
    }
    void check(bool holds, const char* what) {
        if (!holds && !fault) fault = what;
    }
    void step() {
        model.settle();
        const bool asks = model.wbm_cyc && model.wbm_stb, acked = model.wbm_ack, failed = model.wbm_err;
        const u64 now_adr = model.wbm_adr, now_cti = model.wbm_cti;
        check(model.wbm_cyc == model.wbm_stb, "STB without CYC, or a pause");
        check(model.wbm_bte == 0 && (!asks || model.wbm_sel == 15), "BTE or SEL");
        if (asked)  // no answer yet: everything stays
            check(asks && now_adr == adr && model.wbm_we == we && now_cti == cti && (!we || model.wbm_dat_w == dat),
                  "a word was changed before its answer");
        if (follows)
            check(asks && now_adr == adr + 1 && model.wbm_we == we && now_cti != 0, "a burst does not go on as it said");
        if (asks) check(now_cti == 0 || now_cti == 2 || now_cti == 7, "CTI");
        const bool first = asks && !asked && !follows;
        if (first) bursts++, check(now_cti != 7, "a burst ends with its first word"), wait = latency;
        const bool passes = asks && acked, ends = asks && failed;
        if (passes) {
            passed++;
            if (model.wbm_we) memory[now_adr] = uint32_t(model.wbm_dat_w);
        }
        adr = now_adr, we = model.wbm_we, cti = now_cti, dat = model.wbm_dat_w;
        follows = passes && now_cti == 2;
        asked = asks && !passes && !ends;
        // What the slave answers in the next clock: it knows the address of the word that it is asked for then.
        const u64 next = passes ? now_adr + 1 : now_adr;
        const bool there = follows || asked;
        bool answers = there;
        if (answers && wait) wait--, answers = false;
        if (answers && draw()) answers = false;
        model.edge();
        model.wbm_err = answers && next >= words;
        model.wbm_ack = answers && next < words;
        model.wbm_dat_r = model.wbm_ack && !we ? memory[next] : 0xdeadbeef;
        clock++;
    }
    uint32_t access(uintptr_t address, bool write, uint32_t value) {
        model.wbs_adr = address >> 2, model.wbs_we = write, model.wbs_dat_w = value, model.wbs_sel = 15;
        model.wbs_cyc = model.wbs_stb = 1;
        for (int n = 0; n < 10; n++) {
            model.settle();
            const bool acked = model.wbs_ack;
            const uint32_t found = uint32_t(model.wbs_dat_r);
            step();
            if (acked) {
                model.wbs_cyc = model.wbs_stb = 0;
                step();
                if (clock > limit && !write) return 0;  // a run that does not end: neither under way nor complete
                return found;
            }
        }
        check(false, "no answer of a register");
        return 0;
    }
};
uint32_t bus_read(uintptr_t address) { return now->access(address, false, 0); }
void bus_write(uintptr_t address, uint32_t value) { now->access(address, true, value); }
}  // namespace

extern "C" {
// A bench after a reset: a memory of so many words, clocks until the first word of a burst, and of 256 clocks those in which a
// word has to wait.
void* upl_bus_new(uint32_t* memory, uint64_t words, uint64_t latency, uint64_t hold, uint64_t seed) {
    Bench* b = new Bench();
    b->memory = memory, b->words = words, b->latency = latency, b->hold = hold, b->state = seed | 1;
    return b;
}
void upl_bus_free(void* bench) { delete static_cast<Bench*>(bench); }
// The driver of the header: how many runs are complete; each is given up after so many clocks.
uint32_t upl_bus_runs(void* bench, const uint32_t* at, uint32_t count, uint64_t limit) {
    now = static_cast<Bench*>(bench);
    now->limit = now->clock + limit;
    const uint32_t done = RUNS(0, reinterpret_cast<const ARRAYS*>(at), count);
    now->limit = ~0ull;
    return done;
}
uint32_t upl_bus_read(void* bench, uint32_t address) { return static_cast<Bench*>(bench)->access(address, false, 0); }
void upl_bus_write(void* bench, uint32_t address, uint32_t value) { static_cast<Bench*>(bench)->access(address, true, value); }
void upl_bus_clocks(void* bench, uint64_t count) {
    while (count--) static_cast<Bench*>(bench)->step();
}
uint64_t upl_bus_bursts(void* bench) { return static_cast<Bench*>(bench)->bursts; }
uint64_t upl_bus_words(void* bench) { return static_cast<Bench*>(bench)->passed; }
const char* upl_bus_fault(void* bench) { return static_cast<Bench*>(bench)->fault; }
}
