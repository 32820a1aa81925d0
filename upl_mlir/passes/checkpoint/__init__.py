"""Checkpointing: parts of a gradient's forward half that fire again."""
