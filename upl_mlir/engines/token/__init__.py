"""The token engine: the interpreter's semantics compiled to C++, for what data decide and for statistics at scale."""
