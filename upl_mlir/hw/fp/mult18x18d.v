// MULT18X18D of Lattice ECP5, for simulation: what the units use of it, which is the product of operands without sign, or
// both with it, a register for each operand and one for the product, clock 0 with its enable and synchronous reset. Written
// from Lattice's description (FPGA-TN-02205, ECP5 sysDSP). Synthesis has the block itself.
module MULT18X18D #(
    parameter REG_INPUTA_CLK = "NONE", REG_INPUTA_CE = "CE0", REG_INPUTA_RST = "RST0",
    parameter REG_INPUTB_CLK = "NONE", REG_INPUTB_CE = "CE0", REG_INPUTB_RST = "RST0",
    parameter REG_INPUTC_CLK = "NONE", REG_PIPELINE_CLK = "NONE",
    parameter REG_OUTPUT_CLK = "NONE", REG_OUTPUT_CE = "CE0", REG_OUTPUT_RST = "RST0",
    parameter GSR = "ENABLED", SOURCEB_MODE = "B_SHIFT"
) (
    input CLK0, CLK1, CLK2, CLK3, CE0, CE1, CE2, CE3, RST0, RST1, RST2, RST3, SIGNEDA, SIGNEDB, SOURCEA, SOURCEB,
    input A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0,
    input B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0,
    input C17, C16, C15, C14, C13, C12, C11, C10, C9, C8, C7, C6, C5, C4, C3, C2, C1, C0,
    output ROA17, ROA16, ROA15, ROA14, ROA13, ROA12, ROA11, ROA10, ROA9, ROA8, ROA7, ROA6, ROA5, ROA4, ROA3, ROA2,
      ROA1, ROA0,
    output ROB17, ROB16, ROB15, ROB14, ROB13, ROB12, ROB11, ROB10, ROB9, ROB8, ROB7, ROB6, ROB5, ROB4, ROB3, ROB2,
      ROB1, ROB0,
    output P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18, P17, P16, P15,
      P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0
);
  wire [17:0] a = {A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0};
  wire [17:0] b = {B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0};
  reg [17:0] a_held = 0, b_held = 0;
  reg [35:0] product_held = 0;
  wire [17:0] x = REG_INPUTA_CLK == "NONE" ? a : a_held;
  wire [17:0] y = REG_INPUTB_CLK == "NONE" ? b : b_held;
  wire [35:0] plain = x * y;
  wire signed [35:0] with_signs = $signed(x) * $signed(y);
  wire [35:0] product = SIGNEDA & SIGNEDB ? with_signs : plain;
  always @(posedge CLK0)
    if (RST0) begin
      a_held <= 0;
      b_held <= 0;
      product_held <= 0;
    end else if (CE0) begin
      a_held <= a;
      b_held <= b;
      product_held <= product;
    end
  assign {ROA17, ROA16, ROA15, ROA14, ROA13, ROA12, ROA11, ROA10, ROA9, ROA8, ROA7, ROA6, ROA5, ROA4, ROA3, ROA2,
      ROA1, ROA0} = x;
  assign {ROB17, ROB16, ROB15, ROB14, ROB13, ROB12, ROB11, ROB10, ROB9, ROB8, ROB7, ROB6, ROB5, ROB4, ROB3, ROB2,
      ROB1, ROB0} = y;
  assign {P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18, P17, P16, P15,
      P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0} = REG_OUTPUT_CLK == "NONE" ? product :
      product_held;
endmodule
