"""The server of `upl view --edit`: who may ask what, and what the command line refuses."""

from __future__ import annotations

import errno
import http.client
import json
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from upl_mlir.tools.editor.server import Server
from upl_mlir.tools.upl import main

TEXT = "program p\ninput A { -> Y }\noutput Y\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "p.upl"
    found.write_text(TEXT, encoding="utf-8")
    return found


@pytest.fixture
def server(path: Path, serve: Callable[[Path], Server]) -> Server:
    return serve(path)


def _ask(server: Server, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
    """Status and text of an answer; `{}` in the path is the key."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path.replace("{}", server.key), data, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def _act(server: Server, act: dict[str, Any], version: int = 0, **headers: str) -> tuple[int, str]:
    own = {"Origin": f"http://127.0.0.1:{server.server_port}", "Content-Type": "application/json"}
    return _ask(server, "POST", "/{}/act", {"version": version, "act": act}, **{**own, **headers})


ADD = {"do": "add", "kind": "output", "name": "Z"}


def test_the_page_and_its_state(server: Server) -> None:
    status, page = _ask(server, "GET", "/{}/")
    assert status == 200 and "connect-src 'self'" in page and "UPL program p.upl" in page
    status, text = _ask(server, "GET", "/{}/state?-1")
    assert status == 200 and json.loads(text)["text"] == TEXT


def test_only_who_knows_the_key_may_read(server: Server) -> None:
    for path in ("/", "/state", "/wrong/", f"/{server.key[:-1]}/", f"/{server.key}x/state", "/{}/none"):
        assert _ask(server, "GET", path)[0] == 404, path
    assert server.server_address[0] == "127.0.0.1", "nobody elsewhere can connect"


def test_another_name_of_the_host_is_refused(server: Server) -> None:
    """A page elsewhere may give our address a name of its own."""
    assert _ask(server, "GET", "/{}/", Host=f"evil.example:{server.server_port}")[0] == 404
    assert _ask(server, "GET", "/{}/", Host=f"localhost:{server.server_port}")[0] == 200


def test_only_our_page_may_write(server: Server, path: Path) -> None:
    for origin in ("http://evil.example", "null", f"http://localhost:{server.server_port}", ""):
        assert _act(server, ADD, Origin=origin)[0] == 403, origin
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        assert _act(server, ADD, **{"Content-Type": kind})[0] == 403
    assert path.read_text(encoding="utf-8") == TEXT
    status, text = _act(server, ADD)
    assert status == 200 and json.loads(text)["version"] == 1 and "output Z\n" in path.read_text(encoding="utf-8")


def test_what_is_no_act(server: Server, path: Path) -> None:
    for act in ({"do": "shout"}, {**ADD, "more": 1}, {"do": "add", "kind": "program", "name": "x"}, {}):
        status, text = _act(server, act)
        assert status == 400 and text.startswith("this is no act"), act
    assert _ask(server, "POST", "/{}/act", b"")[0] == 403
    assert _ask(server, "PUT", "/{}/act", b"")[0] == 501
    assert path.read_text(encoding="utf-8") == TEXT


def test_every_act(server: Server, path: Path) -> None:
    version = 0
    for act, expected in (
        ({"do": "add", "kind": "node", "name": "M", "inputs": "a"}, TEXT + "node M { in a }\n"),
        ({"do": "draw", "source": "M", "target": "Y"}, TEXT + "node M { in a; -> Y }\n"),
        ({"do": "rename", "of": "M", "name": "a", "new": "b"}, TEXT + "node M { in b; -> Y }\n"),
        ({"do": "rewrite", "arrow": "a0", "text": "-> M"}, TEXT.replace("-> Y", "-> M") + "node M { in b; -> Y }\n"),
        ({"do": "rewrite", "box": "M", "text": "node M { in b; b*b -> Y }"},
         TEXT.replace("-> Y", "-> M") + "node M { in b; b*b -> Y }\n"),
        ({"do": "delete", "arrow": "a0"}, TEXT.replace("-> Y ", "") + "node M { in b; b*b -> Y }\n"),
        ({"do": "delete", "box": "M"}, TEXT.replace("-> Y ", "")),
        ({"do": "undo"}, TEXT.replace("-> Y ", "") + "node M { in b; b*b -> Y }\n"),
        ({"do": "redo"}, TEXT.replace("-> Y ", "")),
        ({"do": "type", "text": TEXT}, TEXT),
    ):  # fmt: skip
        status, text = _act(server, act, version)
        state = json.loads(text)
        assert status == 200 and state.get("text") == expected, (act, state)
        version = state["version"]
        assert path.read_text(encoding="utf-8") == expected
    refused = json.loads(_act(server, ADD, 0)[1])
    assert refused["text"] == TEXT and refused["refused"] == {
        "code": "UPL1813", "message": "the text has changed meanwhile", "help": "look at it, and do it again",
    }  # fmt: skip


def test_the_command_serves_until_it_is_interrupted(path: Path) -> None:
    command = [sys.executable, "-m", "upl_mlir", "view", "--edit", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        first = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", first)
        assert found and str(path) in first
        with socket.create_connection(("127.0.0.1", int(found[1])), 10):
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0 and process.stderr.read() == ""


def test_what_ends_a_connection_is_not_told(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """An interrupt may close a connection that a thread has just been given; other errors are told."""
    for error, told in ((ConnectionResetError(), False), (OSError(errno.EBADF, "closed"), False), (ValueError("x"), True)):
        try:
            raise error
        except Exception:
            server.handle_error(None, ("127.0.0.1", 1))
        assert bool(capsys.readouterr().err) == told


def test_what_the_command_refuses(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(status: int, *words: str) -> str:
        assert main(["view", "--edit", *words]) == status
        out, err = capsys.readouterr()
        assert out == ""
        return err

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        err = refused(1, str(path), "--port", str(port))
        assert f"error[UPL1812]: port {port} cannot be used: Address already in use" in err and "leave out --port" in err
    assert "ports are numbers up to 65535" in refused(1, str(path), "--port", "70000")
    assert "only `.upl` text can be edited" in refused(1, str(tmp_path))
    assert "there is no such file" in refused(1, str(tmp_path / "none.upl"))
    assert "the standard input is none" in refused(2, "-")
    assert "leave out --of, -D" in refused(2, str(path), "--of", "Y", "-D", "n=3")
    path.chmod(stat.S_IREAD)
    assert f"{path}: error[UPL1812]: this file is read-only" in refused(1, str(path))
    assert main(["view", str(path), "--port", "1"]) == 2
    assert "--port goes with --edit" in capsys.readouterr().err
