"""The page of `upl view`: one HTML file that needs nothing else, made of the files beside this one and of data."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from upl_mlir.picture.style import DARK, LIGHT, SHARED, rules
from upl_mlir.picture.text import escape


def page(title: str, data: dict[str, Any]) -> str:
    """The HTML document.  `data` is what `page.js` reads; text in it is shown as text, whatever it says."""
    folder = resources.files("upl_mlir.picture.page")
    own = folder.joinpath("page.css").read_text(encoding="utf-8")
    parts = {
        "TITLE": escape(title),
        "STYLE": own + SHARED + rules(LIGHT) + rules(DARK, '[data-theme="dark"] '),
        # `<` and `&` begin markup
        "DATA": json.dumps(data, ensure_ascii=True).replace("<", "\\u003c").replace("&", "\\u0026"),
        "SCRIPT": folder.joinpath("page.js").read_text(encoding="utf-8"),
    }
    pieces = folder.joinpath("page.html").read_text(encoding="utf-8").split("{{")
    return pieces[0] + "".join(parts[name] + rest for name, rest in (p.split("}}", 1) for p in pieces[1:]))
