"""The Eclipse Layout Kernel, compiled to JavaScript (`elkjs` 0.12.1, EPL-2.0), run inside the process by V8 (mini-racer).

`elk-worker.min.js` is the file of that name of the npm package, unmodified; `SHA256SUMS` says which bytes it has.
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import resources
from typing import Any, cast

from upl_mlir.diagnostics import not_installed

_SHIM = """
var global = globalThis;
var console = {log: function(){}, warn: function(){}, error: function(){}, info: function(){}, debug: function(){}};
var setTimeout = function(f) { f(); return 0; };
var module = {exports: {}}, exports = module.exports;
"""
"""What the library expects of its surroundings.  It has its own message loop; here every message is answered at once."""

_CALL = """
var answer = null, worker = new module.exports.Worker();
worker.onmessage = function(m) { answer = m.data; };
worker.postMessage({id: 0, cmd: 'register', algorithms: ['layered']});
function layout(text) {
  answer = null;
  worker.postMessage({id: 1, cmd: 'layout', graph: JSON.parse(text), layoutOptions: {}, options: {}});
  if (answer && answer.error) {
    var e = answer.error;
    return JSON.stringify({failed: String(e.message || (e.type ? e.type + ': ' + JSON.stringify(e) : e))});
  }
  return JSON.stringify(answer.data);
}
"""

_ANY_THREAD = "--no-memory-protection-keys"
"""On processors with protection keys, V8 locks its memory for all threads but the one that starts it: another crashes."""


@cache
def _runtime() -> Any:
    """V8 with the library loaded (0.3 s)."""
    try:
        from py_mini_racer import DEFAULT_V8_FLAGS, MiniRacer, init_mini_racer
    except ImportError as e:
        raise not_installed("the layout of pictures needs", "mini-racer", "draw", "write a .dot file for Graphviz") from e
    code = resources.files("upl_mlir.picture.elk").joinpath("elk-worker.min.js").read_text(encoding="utf-8")
    init_mini_racer(flags=(*DEFAULT_V8_FLAGS, _ANY_THREAD), ignore_duplicate_init=True)
    with ThreadPoolExecutor(1) as apart:  # where no event loop runs, V8 gets one of its own; another's may end, or be busy
        v8 = apart.submit(MiniRacer).result()
    atexit.register(v8.close)  # later, when Python takes itself apart, closing it can wait for ever
    v8.eval(_SHIM)
    v8.eval(code)
    v8.eval(_CALL)
    return v8


def layout(graph: Mapping[str, Any]) -> dict[str, Any]:
    """Lay out a graph in ELK's JSON; returns it with positions.  Raises UplError (UPL1804) without the JavaScript engine."""
    answer = cast("dict[str, Any]", json.loads(_runtime().call("layout", json.dumps(graph))))
    if "failed" in answer:
        raise RuntimeError(f"the layout failed: {answer['failed'][:300]}")
    return answer
