"""Small types of numbers: f16, bf16, and fixed point q<i.f> (docs/numbers.md)."""
