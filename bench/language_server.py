"""The time from a key to what a language server says of it: a client types a mistake into programs of 100 nodes."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

import upl_mlir as upl
from bench.report import Row, interleaved

NODES = 100
TIMES = 7  # that each mistake is typed
REST_S = 0.5  # between two keys: the figures of the text before are there
AIM = "<= 0.3"

T = TypeVar("T")


def chain() -> str:
    """Nodes in a row on a vector of symbolic length."""
    lines = ["program chain", "param n >= 2", "input X<i> in 0<=i<n { -> N1.x }", "output Y<i>"]
    for k in range(1, NODES + 1):
        target = f"N{k + 1}.x" if k < NODES else "Y"
        lines.append(f"node N{k}<i> {{ in x; y = x*x + {k}; y -> {target} }}")
    return "\n".join(lines) + "\n"


def layers() -> str:
    """Layers of four nodes, each with a product, a sum, a branch and a multicast."""
    lines = ["program layers", "param M >= 1", "input X<i> in 0<=i<M { #M -> A0.x<i,*> }", "output Y<i>"]
    for k in range(NODES // 4):
        after = f"#M -> A{k + 1}.x<i,*>" if 4 * (k + 1) < NODES else "-> Y"
        lines += [
            f"input W{k}<i,j> in 0<=i<M, 0<=j<M {{ -> A{k}.w }}",
            f"node A{k}<i,j> {{ in x, w; x*w -> S{k}.s<j> }}",
            f"node S{k}<i> {{ in @(+) s[M]; -> F{k} }}",
            f"node F{k}<i> {{ in s; b: bool = s > 0; b*s -> G{k}.r }}",
            f"node G{k}<i> {{ in r; r+1 {after} }}",
        ]
    return "\n".join(lines) + "\n"


MISTAKES = {  # of a program: (what is typed, the text before, the text after, the code of the error)
    "chain": (
        ("text", "y -> N50.x", "y -> ", "UPL1002"),
        ("names", "y -> N50.x", "y -> N50.z", "UPL1104"),
        ("proofs", "y -> N50.x", "y #2 -> N50.x", "UPL1304"),
    ),
    "layers": (
        ("text", "-> S12.s<j>", "-> ", "UPL1002"),
        ("names", "-> S12.s<j>", "-> S12.z<j>", "UPL1104"),
        ("proofs", "s[M]; -> F12", "s[M+1]; -> F12", "UPL1305"),
    ),
}


class Client:
    """A client with one server and one document."""

    def __init__(self, name: str, text: str) -> None:
        self.uri, self.version = f"file:///bench/{name}.upl", 1
        self.loop, self.client = asyncio.new_event_loop(), LanguageClient("bench", "1")
        self.told: asyncio.Queue[list[lsp.Diagnostic]] = asyncio.Queue()

        @self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(p: lsp.PublishDiagnosticsParams) -> None:
            self.told.put_nowait(list(p.diagnostics))

        _ = published
        self.wait(self.client.start_io(sys.executable, "-m", "upl_mlir", "lsp", "--stdio"))
        self.wait(self.client.initialize_async(lsp.InitializeParams(lsp.ClientCapabilities())))
        self.client.initialized(lsp.InitializedParams())
        item = lsp.TextDocumentItem(self.uri, "upl", self.version, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        self.wait(self.until(lambda found: not found))

    def wait(self, what: Coroutine[Any, Any, T]) -> T:
        """The result of something asynchronous."""
        return self.loop.run_until_complete(asyncio.wait_for(what, 60))

    async def until(self, when: Callable[[list[lsp.Diagnostic]], bool]) -> None:
        """Wait for diagnostics."""
        while not when(await self.told.get()):
            pass

    def seconds(self, text: str, when: Callable[[list[lsp.Diagnostic]], bool]) -> float:
        """From a new text to its diagnostics."""
        self.wait(asyncio.sleep(REST_S))
        self.version += 1
        what = lsp.VersionedTextDocumentIdentifier(version=self.version, uri=self.uri)
        change = lsp.TextDocumentContentChangeWholeDocument(text)
        begin = time.perf_counter()
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(what, [change]))
        self.wait(self.until(when))
        return time.perf_counter() - begin

    def end(self) -> None:
        """End the server."""
        self.wait(self.client.shutdown_async(None))
        self.client.exit(None)
        self.wait(self.client.stop())
        self.loop.close()


def checked(text: str) -> Callable[[], float]:
    """Seconds of reading and checking a text in this process, counts and critical path included."""

    def once() -> float:
        begin = time.perf_counter()
        assert upl.load(text).check().ok
        return time.perf_counter() - begin

    return once


def has(code: str, found: list[lsp.Diagnostic]) -> bool:
    """Whether there is an error of a code."""
    return any(d.code == code for d in found)


def rows() -> list[Row]:
    """Each kind of mistake in each program, beside the whole of `check` without a server."""
    out: list[Row] = []
    for name, text in (("chain", chain()), ("layers", layers())):
        (alone,) = interleaved(checked(text))
        client = Client(name, text)
        for what, old, new, code in MISTAKES[name]:
            assert old in text
            times: list[float] = []
            for _ in range(TIMES):
                times.append(client.seconds(text.replace(old, new, 1), partial(has, code)))
                client.seconds(text, lambda found: not found)
            title = f"from a key to an error of {what}, {name} of {NODES} nodes"
            out.append(Row(title, statistics.median(times), "s", AIM, "load and check alone", alone))
        client.end()
    return out
