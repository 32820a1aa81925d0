"""The engines: each runs a program with its sizes, arrays in and arrays out; `protocol` says what one is."""
