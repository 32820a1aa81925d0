// The associative memory of organisation `cam`: `Cam` of cam.py, where the ports are described, in the same cycles. Loops over
// arrays keep thousands of entries a short text for the tools that read it. Entries lie in banks, which have a word with
// a bit for each of their entries; a simulation does nothing for a search, or for who is next, that is not asked for.
// `unroll_disable` is a statement to Verilator: in a block of its own, or it would be what an `if` before it is about.
module upl_cam #(
    parameter BANKS = 2,
    parameter BANK = 4,  // entries of a bank, at most 64; a power of two if there are several banks
    parameter BANK_BITS = 2,  // width of an entry's number in its bank
    parameter ENTRY_BITS = 3,
    parameter EXACT_BITS = 4,
    parameter TAG_BITS = 4,
    parameter LEVELS = 1,
    parameter LEVEL_BITS = 1
) (
    input wire clk,
    input wire rst,
    input wire [EXACT_BITS-1:0] key_exact,
    input wire [TAG_BITS-1:0] key_tag,
    input wire [TAG_BITS-1:0] key_wild,
    input wire [LEVEL_BITS-1:0] level,
    input wire search,
    input wire pick,
    output reg found,
    output reg [ENTRY_BITS-1:0] partner,
    input wire drop,
    input wire seek,
    input wire [ENTRY_BITS-1:0] last_entry,
    output reg vacant,
    output reg [ENTRY_BITS-1:0] vacancy,
    input wire write,
    input wire free,
    input wire [ENTRY_BITS-1:0] entry,
    input wire [ENTRY_BITS-1:0] look,
    output wire looked
);
    localparam [BANK-1:0] ONE = 1;

    // Registers, not memories: all are read in one cycle.
    (* mem2reg *) reg [EXACT_BITS-1:0] exact [0:BANKS*BANK-1];
    (* mem2reg *) reg [TAG_BITS-1:0] tag [0:BANKS*BANK-1];
    (* mem2reg *) reg [TAG_BITS-1:0] care [0:BANKS*BANK-1];  // bits of the tag that must match
    (* mem2reg *) reg [BANK-1:0] occupied [0:BANKS-1];
    (* mem2reg *) reg [BANK-1:0] untried [0:LEVELS*BANKS-1];

    initial begin : begin_empty
        integer b;
        for (b = 0; b < BANKS; b = b + 1) occupied[b] = 0;
        for (b = 0; b < LEVELS * BANKS; b = b + 1) untried[b] = 0;
    end

    // The number of the lowest 1, 0 if there is none.
    function [5:0] lowest(input [63:0] word);
        reg [63:0] one;
        begin
            one = word & (~word + 64'd1);
            lowest[0] = |(one & 64'haaaaaaaaaaaaaaaa);
            lowest[1] = |(one & 64'hcccccccccccccccc);
            lowest[2] = |(one & 64'hf0f0f0f0f0f0f0f0);
            lowest[3] = |(one & 64'hff00ff00ff00ff00);
            lowest[4] = |(one & 64'hffff0000ffff0000);
            lowest[5] = |(one & 64'hffffffff00000000);
        end
    endfunction

    // ---- the lowest untried entry of a level
    reg [BANK-1:0] picked;  // those of its bank
    integer picked_bank;
    always @* begin : next_untried
        integer b, n;
        reg [BANK-1:0] word;
        {b, n, word} = 0;  // no latches
        found = 0;
        picked = 0;
        picked_bank = 0;
        if (pick) begin
            /* verilator unroll_disable */
            for (b = BANKS - 1; b >= 0; b = b - 1) begin
                word = 0;
                for (n = 0; n < LEVELS; n = n + 1) if (level == n) word = untried[n*BANKS+b];
                if (word != 0) begin
                    found = 1;
                    picked = word;
                    picked_bank = b;
                end
            end
        end
        partner = (picked_bank << BANK_BITS) | lowest(picked);
    end

    // ---- the lowest entry that is empty
    always @* begin : next_vacancy
        integer b, bank, last;
        reg [BANK-1:0] word, spare;
        {b, word} = 0;
        vacant = 0;
        spare = 0;
        bank = 0;
        last = last_entry >> BANK_BITS;
        if (seek) begin
            /* verilator unroll_disable */
            for (b = BANKS - 1; b >= 0; b = b - 1)
                if (b <= last) begin
                    word = ~occupied[b];
                    if (b == last) word = word & ((ONE << last_entry[BANK_BITS-1:0]) * 2 - 1);
                    if (word != 0) begin
                        vacant = 1;
                        spare = word;
                        bank = b;
                    end
                end
        end
        vacancy = (bank << BANK_BITS) | lowest(spare);
    end

    // ---- a comparator for each entry
    function [BANK-1:0] hits(input integer b);  // in bank b
        integer e;
        begin
            hits = occupied[b];
            for (e = 0; e < BANK; e = e + 1)
                if (exact[b*BANK+e] != key_exact || ((tag[b*BANK+e] ^ key_tag) & care[b*BANK+e] & ~key_wild) != 0)
                    hits[e] = 0;
        end
    endfunction

    always @(posedge clk) begin : compare
        integer b, n;
        if (search) begin
            /* verilator unroll_disable */
            for (b = 0; b < BANKS; b = b + 1)
                for (n = 0; n < LEVELS; n = n + 1) if (level == n) untried[n*BANKS+b] <= hits(b);
        end else if (drop) begin
            for (n = 0; n < LEVELS; n = n + 1)
                if (level == n) untried[n*BANKS+picked_bank] <= picked & (picked - 1);
        end
    end

    // ---- the entries
    assign looked = occupied[look>>BANK_BITS][look[BANK_BITS-1:0]];
    always @(posedge clk) begin : keep
        integer b;
        if (write) begin
            exact[entry] <= key_exact;
            tag[entry] <= key_tag;
            care[entry] <= ~key_wild;
            occupied[entry>>BANK_BITS] <= occupied[entry>>BANK_BITS] | ONE << entry[BANK_BITS-1:0];
        end else if (free) begin
            occupied[entry>>BANK_BITS] <= occupied[entry>>BANK_BITS] & ~(ONE << entry[BANK_BITS-1:0]);
        end
        if (rst) for (b = 0; b < BANKS; b = b + 1) occupied[b] <= 0;
    end
endmodule
