"""The language server: requests of an editor, answered from the documents; errors, sent when they are known.

Reading is done at once, in microseconds for each line.  Names, types and proofs follow from a process of their own
(`proofs.py`), which begins when nobody has typed for a moment; what it finds of an older text is dropped.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from upl_mlir import __version__
from upl_mlir.diagnostics import Diagnostic, Severity, UplError
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.scope import Role
from upl_mlir.tools.lsp import completion
from upl_mlir.tools.lsp.document import Document
from upl_mlir.tools.lsp.names import Occurrence
from upl_mlir.tools.lsp.proofs import Proofs
from upl_mlir.tools.lsp.rename import rename
from upl_mlir.tools.lsp.text import Edit, Place, Text, extent

QUIET = 0.02
"""Seconds without a change before a text is looked at. Chosen."""
_SEVERITY = {
    Severity.ERROR: lsp.DiagnosticSeverity.Error, Severity.WARNING: lsp.DiagnosticSeverity.Warning,
    Severity.REMARK: lsp.DiagnosticSeverity.Information,
}  # fmt: skip
_SYMBOLS = {
    Role.NODE: lsp.SymbolKind.Class, Role.HOST_INPUT: lsp.SymbolKind.Interface, Role.HOST_OUTPUT: lsp.SymbolKind.Interface,
    Role.PARAMETER: lsp.SymbolKind.TypeParameter, Role.CONSTANT: lsp.SymbolKind.Constant, Role.ARRAY: lsp.SymbolKind.Array,
    Role.INPUT: lsp.SymbolKind.Field, Role.VARIABLE: lsp.SymbolKind.Variable,
}  # fmt: skip
_ITEMS = {
    Role.NODE: lsp.CompletionItemKind.Class, Role.HOST_OUTPUT: lsp.CompletionItemKind.Interface,
    Role.HOST_INPUT: lsp.CompletionItemKind.Interface, Role.INPUT: lsp.CompletionItemKind.Field,
    Role.FIELD: lsp.CompletionItemKind.Property, Role.VARIABLE: lsp.CompletionItemKind.Variable,
    "keyword": lsp.CompletionItemKind.Keyword, "function": lsp.CompletionItemKind.Function,
    "type": lsp.CompletionItemKind.TypeParameter,
}  # fmt: skip
_T = TypeVar("_T")


class Server(LanguageServer):
    """The server and its documents."""

    def __init__(self) -> None:
        super().__init__("upl", f"v{__version__}", text_document_sync_kind=lsp.TextDocumentSyncKind.Full)
        self.documents: dict[str, Document] = {}
        self.proofs = Proofs()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._shown: dict[str, list[lsp.Diagnostic]] = {}

    # -- changes -------------------------------------------------------------------------------------------------
    def changed(self, uri: str, content: str) -> None:
        """A document has a new text: what can be read is known at once, the rest is looked for."""
        begin = asyncio.get_running_loop().time() + QUIET
        encoding = lsp.PositionEncodingKind(self.workspace.position_encoding or "utf-16").value
        known = self.documents.get(uri)
        d = Document(uri, _file(uri), Text(content, encoding), facts=known.facts if known else {})
        self.documents[uri] = d
        if d.read.errors or (known is not None and known.read.errors):
            self.publish(d)
        if (task := self._tasks.pop(uri, None)) is not None:
            task.cancel()
        if not d.read.errors:
            self._tasks[uri] = asyncio.get_running_loop().create_task(self._look(d, begin))

    async def _look(self, d: Document, begin: float) -> None:
        """From a time on, find out what is wrong with a text that can be read."""
        await asyncio.sleep(begin - asyncio.get_running_loop().time())
        async for answer in self.proofs.prove(d.uri, d.file, d.text.content):
            known = d.meant, d.proved
            d.meant, d.proved, d.facts = answer.meant, answer.proved, answer.facts or d.facts
            if answer.proved is None and not answer.meant and not self._only_meant(d.uri):
                continue  # what was proved of the text before is still shown
            if (d.meant, d.proved) != known:
                self.publish(d)

    def _only_meant(self, uri: str) -> bool:
        """Whether errors are shown that are none of a proof; those of a proof stay until the next one has ended."""
        shown = self._shown.get(uri, [])
        return any(not str(s.code).startswith(("UPL12", "UPL13")) for s in shown)

    def publish(self, d: Document) -> None:
        """Send what is known to be wrong."""
        self._shown[d.uri] = [_diagnostic(d, e) for e in d.diagnostics]
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(d.uri, self._shown[d.uri]))

    def closed(self, uri: str) -> None:
        """A document is closed."""
        if (task := self._tasks.pop(uri, None)) is not None:
            task.cancel()
        self.documents.pop(uri, None)
        self._shown.pop(uri, None)
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))

    # -- questions -----------------------------------------------------------------------------------------------
    def at(
        self, uri: str, position: lsp.Position, ask: Callable[[Document, Place], _T | None]
    ) -> _T | None:
        """What a document says about a place; None for a document that is not open."""
        d = self.documents.get(uri)
        return None if d is None else ask(d, d.text.from_client(position.line, position.character))


def _file(uri: str) -> str:
    return Path(to_fs_path(uri) or uri).name


def _position(d: Document, place: Place) -> lsp.Position:
    return lsp.Position(*d.text.to_client(place))


def _range(d: Document, places: tuple[Place, Place]) -> lsp.Range:
    return lsp.Range(_position(d, places[0]), _position(d, places[1]))


def _diagnostic(d: Document, e: Diagnostic) -> lsp.Diagnostic:
    where = d.placed(e.span) if e.span is not None and e.span.line else ((1, 1), (1, 1))
    message = e.message + (f"\nhelp: {e.help}" if e.help else "")
    notes = [
        lsp.DiagnosticRelatedInformation(lsp.Location(d.uri, _range(d, d.placed(n.span))), n.message)
        for n in e.notes
        if n.span is not None and n.span.line
    ]
    message += "".join(f"\nnote: {n.message}" for n in e.notes if n.span is None or not n.span.line)
    return lsp.Diagnostic(
        _range(d, where), message, _SEVERITY[e.severity], code=e.code, source="upl", related_information=notes or None
    )


def _edits(d: Document, edits: Sequence[Edit]) -> list[lsp.TextEdit]:
    return [lsp.TextEdit(_range(d, (e.start, e.end)), e.text) for e in edits]


def _found(d: Document, place: Place) -> list[Occurrence]:
    """Everywhere the name at a place stands."""
    found = d.names.at(place)
    return [] if found is None else d.names.of(found.key)


def _failed(message: str) -> JsonRpcException:
    """What the editor shows of a request that cannot be answered."""
    return JsonRpcException(message, code=lsp.LSPErrorCodes.RequestFailed)


def _because(e: UplError) -> JsonRpcException:
    first = e.diagnostics[0]
    return _failed(first.message + (f" ({first.help})" if first.help else ""))


def make() -> Server:
    """A server with all that it answers to."""
    server = Server()
    _documents(server)
    _navigation(server)
    _writing(server)
    return server


def _documents(server: Server) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(p: lsp.DidOpenTextDocumentParams) -> None:
        server.changed(p.text_document.uri, p.text_document.text)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def changed(p: lsp.DidChangeTextDocumentParams) -> None:
        uri = p.text_document.uri
        server.changed(uri, server.workspace.get_text_document(uri).source)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(p: lsp.DidCloseTextDocumentParams) -> None:
        server.closed(p.text_document.uri)

    @server.feature(lsp.INITIALIZED)
    async def started(_: lsp.InitializedParams) -> None:
        await server.proofs.start()  # it takes its time: before the first text needs it

    @server.feature(lsp.SHUTDOWN)
    async def ended(_: None) -> None:
        await server.proofs.close()

    _ = opened, changed, closed, started, ended


def _navigation(server: Server) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(p: lsp.HoverParams) -> lsp.Hover | None:
        def ask(d: Document, place: Place) -> lsp.Hover | None:
            found = d.about(place)
            if found is None:
                return None
            return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, found[1]), _range(d, extent(found[0])))

        return server.at(p.text_document.uri, p.position, ask)

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def definition(p: lsp.DefinitionParams) -> list[lsp.Location] | None:
        def ask(d: Document, place: Place) -> list[lsp.Location]:
            return [lsp.Location(d.uri, _range(d, extent(o.span))) for o in _found(d, place) if o.declares]

        return server.at(p.text_document.uri, p.position, ask)

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def references(p: lsp.ReferenceParams) -> list[lsp.Location] | None:
        def ask(d: Document, place: Place) -> list[lsp.Location]:
            wanted = [o for o in _found(d, place) if p.context.include_declaration or not o.declares]
            return [lsp.Location(d.uri, _range(d, extent(o.span))) for o in wanted]

        return server.at(p.text_document.uri, p.position, ask)

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
    def highlight(p: lsp.DocumentHighlightParams) -> list[lsp.DocumentHighlight] | None:
        def ask(d: Document, place: Place) -> list[lsp.DocumentHighlight]:
            return [lsp.DocumentHighlight(_range(d, extent(o.span))) for o in _found(d, place)]

        return server.at(p.text_document.uri, p.position, ask)

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(p: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        d = server.documents.get(p.text_document.uri)
        return [] if d is None else [s for item in d.names.program.items if (s := _symbol(d, item)) is not None]

    @server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
    def hints(p: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        d = server.documents.get(p.text_document.uri)
        if d is None:
            return []
        first, last = p.range.start.line + 1, p.range.end.line + 1
        return [
            lsp.InlayHint(_position(d, at), text, text_edits=_edits(d, [Edit(at, at, text)]), tooltip="left out")
            for at, text in d.hints()
            if first <= at[0] <= last
        ]

    _ = hover, definition, references, highlight, symbols, hints


def _symbol(d: Document, item: ast.Item) -> lsp.DocumentSymbol | None:
    """An item of the outline; a node has its inputs and variables."""
    if isinstance(item, ast.Adjoint):
        return None
    declared = d.names.declared["", item.name.name]
    children: list[lsp.DocumentSymbol] = []
    for statement in item.body if isinstance(item, ast.NodeBlock) else ():
        parts = statement.inputs if isinstance(statement, ast.Inputs) else (statement,)
        for part in parts:
            if isinstance(part, ast.InputDecl | ast.Assign):
                kind = _SYMBOLS[Role.INPUT if isinstance(part, ast.InputDecl) else Role.VARIABLE]
                where, name = _range(d, extent(part.span)), _range(d, extent(part.name.span))
                children.append(lsp.DocumentSymbol(part.name.name, kind, where, name))
    shape = d.names.shapes.get(item.name.name)
    return lsp.DocumentSymbol(
        item.name.name, _SYMBOLS[declared.role], _range(d, extent(item.span)), _range(d, extent(item.name.span)),
        detail=shape.bracketed if shape else declared.role.value, children=children,
    )  # fmt: skip


def _writing(server: Server) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
    def prepare(p: lsp.PrepareRenameParams) -> lsp.Range | None:
        def ask(d: Document, place: Place) -> lsp.Range | None:
            found = d.names.at(place)
            return None if found is None or d.read.errors else _range(d, extent(found.span))

        return server.at(p.text_document.uri, p.position, ask)

    @server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
    def renamed(p: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
        def ask(d: Document, place: Place) -> lsp.WorkspaceEdit | None:
            found = d.names.at(place)
            if found is None:
                return None
            if d.read.errors:
                raise _failed("the text has errors: mend them before names are changed")
            try:
                edits = rename(d.text, d.file, d.names, found.key, p.new_name)
            except UplError as e:
                raise _because(e) from None
            return lsp.WorkspaceEdit({d.uri: _edits(d, edits)})

        return server.at(p.text_document.uri, p.position, ask)

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", ">", "<"]))
    def complete(p: lsp.CompletionParams) -> list[lsp.CompletionItem] | None:
        def ask(d: Document, place: Place) -> list[lsp.CompletionItem]:
            return [
                lsp.CompletionItem(
                    c.label, kind=_ITEMS.get(c.role, lsp.CompletionItemKind.Constant), detail=c.detail, insert_text=c.text
                )
                for c in completion.proposals(d.text, d.names, place)
            ]

        return server.at(p.text_document.uri, p.position, ask)

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def formatted(p: lsp.DocumentFormattingParams) -> list[lsp.TextEdit] | None:
        from upl_mlir.frontend.upl_text.printing.format import format_text

        d = server.documents.get(p.text_document.uri)
        if d is None or d.read.errors:
            return None
        try:
            new = format_text(d.text.content, d.file)
        except UplError as e:
            raise _because(e) from None
        return [] if new == d.text.content else _edits(d, [Edit((1, 1), d.text.end, new)])

    options = lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix])

    @server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, options)
    def actions(p: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        d = server.documents.get(p.text_document.uri)
        return [] if d is None else [a for e in d.diagnostics for a in _actions(d, e, p.range)]

    _ = prepare, renamed, complete, formatted, actions


def _actions(d: Document, e: Diagnostic, asked: lsp.Range) -> list[lsp.CodeAction]:
    """The actions that mend an error; none if it is not in the range that is asked for."""
    shown = _diagnostic(d, e)
    if shown.range.end < asked.start or asked.end < shown.range.start:
        return []

    found = d.fixes(e)
    return [
        lsp.CodeAction(
            fix.title, kind=lsp.CodeActionKind.QuickFix, diagnostics=[shown], is_preferred=len(found) == 1,
            edit=lsp.WorkspaceEdit({d.uri: _edits(d, fix.edits)}),
        )
        for fix in found
    ]  # fmt: skip


def run() -> int:
    """Serve on standard input and output until the client ends; returns the exit status."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # nobody else's words get among the messages
    make().start_io(stdout=out)
    return 0
