"""Lowering of checked affine programs to loops over arrays: equations, schedule, storage, code (docs/native.md)."""
