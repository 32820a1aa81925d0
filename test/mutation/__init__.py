"""Compiler bugs made on purpose: every seeded one is caught by a test that is named, and random ones by most."""
