"""`upl lsp`: a language server, which gives editors errors, names, completion, fixes and hints for `.upl` text.

`server.py` speaks the protocol (by pygls); all else here knows nothing of it, and works on any text, however unfinished.
"""
