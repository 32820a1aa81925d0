// The associative memory of organisation `cam` for compiled simulation: what upl_cam.v describes, where its ports are to be
// found, with its parameters. A bank has a word for each bit of its entries' keys, with a bit for each entry, so that all are
// compared at once, and only until none of them is left; no more is done for a thing than it asks for.
#pragma once
#include "model.h"

template <unsigned BANKS, unsigned BANK, unsigned BANK_BITS, unsigned EXACT_BITS, unsigned TAG_BITS, unsigned LEVELS>
class UplCam {
    static constexpr u64 ALL = ~0ull >> (64 - BANK), PLACES = (1ull << BANK_BITS) - 1;

    struct Bank {
        u64 occupied, exact[EXACT_BITS], tag[TAG_BITS], care[TAG_BITS];  // care: bits of the tag that must match
    };

    struct Banks {  // a set of banks
        static constexpr unsigned WORDS = (BANKS + 63) / 64;
        u64 word[WORDS] = {};
        void put(u64 b, bool in) { word[b / 64] = (word[b / 64] & ~(1ull << b % 64)) | u64(in) << b % 64; }
        u64 lowest() const {  // BANKS or more if there is none
            unsigned n = 0;
            while (n < WORDS && !word[n]) n++;
            return n < WORDS ? n * 64 + unsigned(__builtin_ctzll(word[n])) : n * 64;
        }
    };

    Bank bank[BANKS] = {};
    u64 untried[LEVELS][BANKS] = {};  // entries to try in banks that `some` has
    Banks some[LEVELS], used, spare;  // with entries: to try, that are occupied, that are empty

    static u64 shown(u64 b, u64 entries) { return (b << BANK_BITS | unsigned(__builtin_ctzll(entries))) << 1 | 1; }

    static void put(u64& column, u64 place, u64 bit) { column = (column & ~place) | (-bit & place); }

    u64 hits(const Bank& b, u64 exact, u64 tag, u64 tame) const {
        u64 same = b.occupied;
        for (unsigned n = 0; n < EXACT_BITS; n++) same &= ~(b.exact[n] ^ -(exact >> n & 1));
        for (; same && tame; tame &= tame - 1) {
            const unsigned n = unsigned(__builtin_ctzll(tame));
            same &= ~((b.tag[n] ^ -(tag >> n & 1)) & b.care[n]);
        }
        return same;
    }

    void search(u64 level, u64 exact, u64 tag, u64 tame) {
        for (unsigned w = 0; w < Banks::WORDS; w++) {
            u64 found = 0;
            for (u64 rest = used.word[w]; rest; rest &= rest - 1) {
                const unsigned n = unsigned(__builtin_ctzll(rest));
                const u64 entries = hits(bank[w * 64 + n], exact, tag, tame);
                if (entries) untried[level][w * 64 + n] = entries, found |= 1ull << n;
            }
            some[level].word[w] = found;
        }
    }

    void drop(u64 level) {
        const u64 b = some[level].lowest();
        if (b >= BANKS) return;
        u64& entries = untried[level][b];
        entries &= entries - 1;
        some[level].put(b, entries);
    }

    void change(u64 b, u64 occupied) {
        bank[b].occupied = occupied;
        used.put(b, occupied);
        spare.put(b, occupied != ALL);
    }

public:
    UplCam() {
        for (unsigned b = 0; b < BANKS; b++) spare.put(b, true);
    }

    u64 picked(u64 pick, u64 level) const {  // found, partner
        const u64 b = pick && level < LEVELS ? some[level].lowest() : BANKS;
        return b < BANKS ? shown(b, untried[level][b]) : 0;
    }

    u64 sought(u64 seek, u64 last_entry) const {  // vacant, vacancy
        const u64 b = seek ? spare.lowest() : BANKS;
        const u64 found = b < BANKS ? shown(b, ~bank[b].occupied & ALL) : 0;
        return found >> 1 <= last_entry ? found : 0;
    }

    u64 looked(u64 look) const {
        const u64 b = look >> BANK_BITS;
        return b < BANKS && bank[b].occupied >> (look & PLACES) & 1;
    }

    void edge(u64 key_exact, u64 key_tag, u64 key_wild, u64 level, u64 search_, u64 pick, u64 drop_, u64 write, u64 free,
              u64 entry) {
        if (level < LEVELS && search_)
            search(level, key_exact, key_tag, ~key_wild & (~0ull >> (64 - TAG_BITS)));
        else if (level < LEVELS && pick && drop_)
            drop(level);
        const u64 n = entry >> BANK_BITS, place = 1ull << (entry & PLACES) & ALL;
        if (n >= BANKS || !(write || free)) return;
        Bank& b = bank[n];
        change(n, write ? b.occupied | place : b.occupied & ~place);
        if (!write) return;
        for (unsigned k = 0; k < EXACT_BITS; k++) put(b.exact[k], place, key_exact >> k & 1);
        for (unsigned k = 0; k < TAG_BITS; k++) {
            put(b.tag[k], place, key_tag >> k & 1);
            put(b.care[k], place, ~key_wild >> k & 1);
        }
    }
};
