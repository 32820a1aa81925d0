"""The server of `upl view --edit`: the page, its state, and the acts on it.

| request            | answers                                                                                     |
|--------------------|---------------------------------------------------------------------------------------------|
| GET `/KEY/`        | the page                                                                                    |
| GET `/KEY/state?n` | the state of the program, as soon as its number is not n, at the latest after some seconds  |
| GET `/KEY/fixes?v,e` | `{"titles": […]}`: edits that mend the error of number e in the state of version v          |
| POST `/KEY/act`    | `{"version": v, "act": {"do": …, …}}`: does an act (`Act`) on the text of version v; the state |

An act that cannot be done changes nothing; then the state has `"refused": {"code": …, "message": …, "help": …}`, too.
It listens to this computer alone.  KEY is a secret of this run, so that other users of the computer cannot read.  A request
must name the server as its host, and one that writes must come from the server's own page, so that no other page can write.
"""

from __future__ import annotations

import hmac
import json
import secrets
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import msgspec

from upl_mlir.diagnostics import UplError, error
from upl_mlir.picture.page import editor
from upl_mlir.tools.editor import acts
from upl_mlir.tools.editor.acts import Draft
from upl_mlir.tools.editor.session import LATE, NO_FILE, Session, block

HOST = "127.0.0.1"
WAIT = 20.0
"""Seconds after which a request for the next state is answered in any case. Chosen: below the patience of browsers."""
MOST_BYTES = 16 << 20
"""Of a request."""


class _Act(msgspec.Struct, forbid_unknown_fields=True, tag_field="do"):
    """What the page asks for."""


class Add(_Act, tag="add"):
    """Declare a node or host port."""

    kind: Literal["node", "input", "output"]
    name: str
    fields: str = ""
    inputs: str = ""
    domain: str = ""
    after: str | None = None


class Draw(_Act, tag="draw"):
    """An arrow from a node or host input to an input of a node, or to a host output."""

    source: str
    target: str
    port: str | None = None


class Rewrite(_Act, tag="rewrite"):
    """Another text for an arrow of the picture, or for a block of a node or host port."""

    text: str
    arrow: str | None = None
    box: str = ""
    block: int = 0


class Rename(_Act, tag="rename"):
    """Another name for a node or host port, or (`of` is its node) for a field, input or variable."""

    name: str
    new: str
    of: str = ""


class Delete(_Act, tag="delete"):
    """Delete an arrow of the picture, or a node or host port with the arrows to it."""

    arrow: str | None = None
    box: str = ""


class Type(_Act, tag="type"):
    """The whole text, as somebody has typed it."""

    text: str


class Mend(_Act, tag="mend"):
    """Do what the help of an error of the state says; `title` is one of those that `fixes` has answered."""

    error: int
    title: str


class Undo(_Act, tag="undo"):
    """Back to the text before the last change."""


class Redo(_Act, tag="redo"):
    """Forward to the text that `undo` left."""


Act = Add | Draw | Rewrite | Rename | Delete | Type | Mend | Undo | Redo


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """An act, and the version of the text that it is about."""

    version: int
    act: Act


def do(session: Session, request: Request) -> dict[str, Any]:
    """Do an act; the state afterwards.  Raises UplError where it cannot be done."""
    version, act = request.version, request.act
    match act:
        case Undo() | Redo():
            return session.undo(version, again=isinstance(act, Redo))
        case Type():
            return session.change(version, lambda d: acts.type_text(d, act.text), typed=True)
        case Mend():
            fix = next((f for f in session.fixes(version, act.error) if f.title == act.title), None)
            if fix is None:
                raise error(LATE, "this error has another fix by now")
            return session.change(version, lambda d: d.edit(fix.edits), typed=True)
        case _:
            return session.change(version, _edit(session, act))


def _edit(session: Session, act: Add | Draw | Rewrite | Rename | Delete) -> Callable[[Draft], object]:
    match act:
        case Add():
            return lambda d: acts.add(
                d, act.kind, act.name, fields=act.fields, inputs=act.inputs, domain=act.domain, after=act.after
            )
        case Draw():
            return lambda d: acts.draw(d, act.source, act.target, act.port)
        case Rewrite(arrow=str(name)):
            return lambda d: acts.rewrite(d, d.arrow(session.arrow(name))[1].span, act.text)
        case Rewrite():
            return lambda d: acts.rewrite(d, block(d, act.box, act.block).span, act.text)
        case Rename():
            return lambda d: acts.rename_to(d, (act.of, act.name), act.new)
        case Delete(arrow=str(name)):
            return lambda d: acts.delete_arrow(d, session.arrow(name))
        case Delete():
            return lambda d: acts.delete(d, act.box)


class Server(ThreadingHTTPServer):
    """The server of one file.  Raises UplError (UPL1812) for a port that is taken."""

    daemon_threads = True

    def __init__(self, path: Path, port: int = 0):
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as e:
            why = e.strerror if isinstance(e, OSError) else "ports are numbers up to 65535"
            help_ = "leave out --port: then a free one is found"
            raise error(NO_FILE, f"port {port} cannot be used: {why}", help=help_) from None
        try:
            self.session = Session(path)
        except BaseException:
            self.server_close()
            raise
        self.key = secrets.token_urlsafe(18)

    @property
    def hosts(self) -> tuple[str, ...]:
        """What a request may call this server."""
        return tuple(f"{name}:{self.server_port}" for name in (HOST, "localhost"))

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{self.hosts[0]}/{self.key}/"

    def server_close(self) -> None:
        """Stop listening and proving."""
        super().server_close()
        if hasattr(self, "session"):
            self.session.close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A page that has gone away is no error, nor is a connection that an interrupt closes before it is served."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # pyright: ignore[reportArgumentType]


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    server_version = "upl"
    timeout = 60

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not told."""

    def do_GET(self) -> None:
        """The page or its state."""
        path, _, query = self._asked()
        session = self.server.session
        match path:
            case "":
                page = editor(f"UPL program {session.path.name}", session.state())
                self._answer(HTTPStatus.OK, page, "text/html")
            case "state":
                seen = int(query) if query.isdecimal() else -1
                self._state(lambda: session.wait(seen, WAIT))
            case "fixes":
                version, _, number = query.partition(",")
                asked = (int(version), int(number)) if version.isdecimal() and number.isdecimal() else (-1, 0)
                self._state(lambda: {"titles": [f.title for f in session.fixes(*asked)]})
            case _:
                self._answer(HTTPStatus.NOT_FOUND, "there is no such page", "text/plain")

    def do_POST(self) -> None:
        """An act."""
        path, own, _ = self._asked()
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self.close_connection = True
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the request has no length, or is too long", "text/plain")
            return
        body = self.rfile.read(int(length))
        if path != "act":
            self._answer(HTTPStatus.NOT_FOUND, "there is no such page", "text/plain")
        elif not own or self.headers.get_content_type() != "application/json":
            self._answer(HTTPStatus.FORBIDDEN, "only the page of this server may write", "text/plain")
        else:
            self._state(lambda: do(self.server.session, msgspec.json.decode(body, type=Request)))

    def _asked(self) -> tuple[str | None, bool, str]:
        """What is asked for, None for nobody that knows the key; whether our page asks; and what stands behind `?`."""
        path, _, query = self.path.partition("?")
        host = self.headers.get("Host", "")
        prefix = f"/{self.server.key}/"
        known = hmac.compare_digest(path[: len(prefix)].encode(), prefix.encode()) and host in self.server.hosts
        own = self.headers.get("Origin") == f"http://{host}"
        return (path[len(prefix) :] if known else None), own, query

    def _state(self, find: Callable[[], dict[str, Any]]) -> None:
        try:
            found = find()
        except UplError as e:
            d = e.diagnostics[0]
            found = self.server.session.state() | {"refused": {"code": d.code, "message": d.message, "help": d.help}}
        except OSError as e:
            told = {"code": "UPL1001", "message": f"cannot write this file: {e.strerror or e}", "help": None}
            found = self.server.session.state() | {"refused": told}
        except msgspec.DecodeError as e:
            self._answer(HTTPStatus.BAD_REQUEST, f"this is no act: {e}", "text/plain")
            return
        self._answer(HTTPStatus.OK, json.dumps(found), "application/json")

    def _answer(self, status: HTTPStatus, text: str, kind: str) -> None:
        body = text.encode("utf-8")
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body)), "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }.items():  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
