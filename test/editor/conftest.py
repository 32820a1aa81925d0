"""The server of an editor in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from upl_mlir.tools.editor.server import Server


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Server]]:
    """Starts servers of files, and ends them."""
    running: list[tuple[Server, threading.Thread]] = []

    def start(path: Path) -> Server:
        server = Server(path)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        running.append((server, thread))
        return server

    yield start
    for server, thread in running:
        server.shutdown()
        thread.join()
        server.server_close()
