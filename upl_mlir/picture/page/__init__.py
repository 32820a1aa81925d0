"""Pages of `upl view` and `upl draw`: HTML files that need nothing else, made of the files beside this one and of data."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from upl_mlir.picture.style import DARK, LIGHT, SHARED, rules
from upl_mlir.picture.text import escape

_FOLDER = resources.files("upl_mlir.picture.page")


def page(title: str, data: dict[str, Any]) -> str:
    """The page of a program.  `data` is what `page.js` and `replay.js` read; its text is shown as text, whatever it says."""
    style = _file("page.css") + _styles(SHARED)
    script = _file("page.js") + _file("replay.js") + "upl.begin();\n"
    return _filled(
        "page.html", TITLE=escape(title), STYLE=style, DATA=_json(data), SCRIPT=script, TOOLS="", CONNECT=""
    )  # fmt: skip


def editor(title: str, state: dict[str, Any]) -> str:
    """The page on which a program is edited: `edit.js` shows states of the program, and asks the page's server for acts."""
    step = {"name": "program", "note": "as it is written", "picture": 0, "text": state["text"], "ir": state["ir"]}
    data = {
        "steps": [step], "pictures": [state["picture"]], "boxes": state["boxes"], "sources": {}, "rules": [], "kept": {},
        "trace": None, "edit": state,
    }  # fmt: skip
    style = _file("page.css") + _file("edit.css") + _styles(SHARED)
    script = _file("page.js") + _file("edit.js") + "upl.begin();\n"
    return _filled(
        "page.html", TITLE=escape(title), STYLE=style, DATA=_json(data), SCRIPT=script, TOOLS=_file("edit.html"),
        CONNECT="; connect-src 'self'",
    )  # fmt: skip


def player(title: str, rest: str, picture: str, data: object, *, shared: str = SHARED, unit: str, note: str = "") -> str:
    """A page that shows a picture in steps: `rest`.html draws a step from `data`; `shared` are the picture's styles, `unit`
    is what a step is, and `note` a text for the reader."""
    own = {"UNIT": escape(unit), "NOTE": escape(note)}
    return _filled(
        "player.html", TITLE=escape(title), STYLE=_styles(shared), KIND=rest, PICTURE=picture, DATA=_json(data),
        REST=_filled(f"{rest}.html", **own), **own,
    )  # fmt: skip


def _filled(name: str, **parts: str) -> str:
    """A file with its `{{PARTS}}` put in."""
    pieces = _file(name).split("{{")
    return pieces[0] + "".join(parts[key] + rest for key, rest in (p.split("}}", 1) for p in pieces[1:]))


def _file(name: str) -> str:
    return _FOLDER.joinpath(name).read_text(encoding="utf-8")


def _styles(shared: str) -> str:
    return shared + rules(LIGHT) + rules(DARK, '[data-theme="dark"] ')


def _json(data: object) -> str:
    """Data within a page, where `<` and `&` begin markup."""
    return json.dumps(data).replace("<", "\\u003c").replace("&", "\\u0026")
