"""An editor, as far as a language server can tell: pygls's client, which starts `upl lsp` and speaks with it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

T = TypeVar("T")


class Editor:
    """A client with one server; its methods wait for what they ask."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.client = LanguageClient("test", "1")
        self.told: dict[str, list[list[lsp.Diagnostic]]] = {}
        self.messages: list[str] = []
        self.versions: dict[str, int] = {}

        @self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(p: lsp.PublishDiagnosticsParams) -> None:
            self.told.setdefault(p.uri, []).append(list(p.diagnostics))

        @self.client.feature(lsp.WINDOW_SHOW_MESSAGE)
        def shown(p: lsp.ShowMessageParams) -> None:
            self.messages.append(p.message)

        _ = published, shown
        self.wait(self.client.start_io(sys.executable, "-m", "upl_mlir", "lsp", "--stdio"))
        params = lsp.InitializeParams(lsp.ClientCapabilities(), root_uri="file:///p")
        self.can = self.wait(self.client.initialize_async(params)).capabilities
        self.client.initialized(lsp.InitializedParams())

    def wait(self, what: Coroutine[Any, Any, T], seconds: float = 60) -> T:
        """The result of something asynchronous."""
        return self.loop.run_until_complete(asyncio.wait_for(what, seconds))

    def write(self, uri: str, text: str) -> None:
        """Open a document, or give it another text."""
        version = self.versions[uri] = self.versions.get(uri, 0) + 1
        if version == 1:
            item = lsp.TextDocumentItem(uri, "upl", version, text)
            self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        else:
            what = lsp.VersionedTextDocumentIdentifier(version=version, uri=uri)
            change = lsp.TextDocumentContentChangeWholeDocument(text)
            self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(what, [change]))

    def until(self, uri: str, when: Any, seconds: float = 60) -> list[lsp.Diagnostic]:
        """Wait until diagnostics come for which something holds; those that came before do not count."""
        seen, end = len(self.told.get(uri, [])), time.monotonic() + seconds
        while time.monotonic() < end:
            for found in self.told.get(uri, [])[seen:]:
                seen += 1
                if when(found):
                    return found
            self.wait(asyncio.sleep(0.01))
        raise AssertionError(f"only {self.told.get(uri, [])[-3:]}")

    def end(self) -> int | None:
        """Shut the server down; its exit status."""
        self.wait(self.client.shutdown_async(None))
        self.client.exit(None)
        self.wait(self.client.stop())
        self.loop.close()
        server = self.client._server
        return server.returncode if server is not None else None


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    found = Editor()
    yield found
    assert found.end() == 0
    assert found.messages == [], "the server has reported errors of its own"
