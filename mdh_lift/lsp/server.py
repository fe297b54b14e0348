"""The protocol: what comes from the editor, and our values in its words.  The only module that knows pygls.

Documents are analysed by a child (``worker.py``), a moment after the last edit; whoever asks for something
waits until what is known is about the text as it is.  Changes are returned to the editor, with the version of
the document that they are for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Sequence
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer

from mdh_core.diagnostics import CODES
from mdh_lift.lsp import completion
from mdh_lift.lsp.analysis import explanation
from mdh_lift.lsp.documents import Change, Document, edits_between, holds, is_ours, path_of
from mdh_lift.lsp.positions import UTF16, Text, encoded
from mdh_lift.lsp.present import actions_of, folds, lenses, symbols
from mdh_lift.lsp.settings import Settings, settings_from
from mdh_lift.lsp.values import Analysis, Edit, Finding, Place
from mdh_lift.lsp.worker import Stopped, Worker
from mdh_lift.version import VERSION

ANNOTATE, EXPLAIN, SHOW, SPLICE, REVERT, RESTART = (
    "mdhLift.annotate",
    "mdhLift.explain", "mdhLift.show", "mdhLift.splice", "mdhLift.revert", "mdhLift.restart",
)  # fmt: skip
COMPUTED = {"splice": SPLICE, "revert": REVERT, "annotate": ANNOTATE}  # changes that the child works out
# between an edit and the analysis: at least so many seconds, and so much of what the last analysis took;
# one that runs is not stopped, so who types on has at most one core busy
_SHORTEST, _PART = 0.05, 0.25
_SEVERITY = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "info": lsp.DiagnosticSeverity.Information,
}
_ITEM = {
    "clause": lsp.CompletionItemKind.Keyword,
    "operator": lsp.CompletionItemKind.Operator,
    "value": lsp.CompletionItemKind.Value,
    "name": lsp.CompletionItemKind.Variable,
}
_log = logging.getLogger("mdh_lift.lsp")


class Server(LanguageServer):
    def __init__(self) -> None:
        super().__init__("mdh-lift", VERSION)
        self.settings = Settings()
        self.worker = Worker()
        self.documents: dict[str, Document] = {}
        self.others = 0  # saves of files that a document may include
        self.stopping = False
        self.told_given_up = False

    # ------------------------------------------------------------------ in the client's words

    @property
    def encoding(self) -> str:
        return str(getattr(self.workspace.position_encoding, "value", None) or UTF16)

    def position(self, text: Text, offset: int) -> lsp.Position:
        return lsp.Position(*text.position(offset, self.encoding))

    def range(self, text: Text, place: Place) -> lsp.Range:
        return lsp.Range(self.position(text, place.start), self.position(text, place.end))

    def offset(self, document: Document, position: lsp.Position) -> int:
        return document.text.offset((position.line, position.character), self.encoding)

    def text_edits(self, text: Text, edits: Sequence[Edit]) -> list[lsp.TextEdit]:
        return [lsp.TextEdit(self.range(text, e.place), e.new) for e in edits]

    def workspace_edit(self, document: Document, edits: Sequence[lsp.TextEdit]) -> lsp.WorkspaceEdit:
        """Edits of one document, for its version as it is."""
        workspace = self.client_capabilities.workspace
        ways = workspace.workspace_edit if workspace else None
        if ways is not None and ways.document_changes:
            which = lsp.OptionalVersionedTextDocumentIdentifier(document.uri, document.version)
            return lsp.WorkspaceEdit(document_changes=[lsp.TextDocumentEdit(which, list(edits))])
        return lsp.WorkspaceEdit(changes={document.uri: list(edits)})

    def message(self, text: str, kind: lsp.MessageType = lsp.MessageType.Info) -> None:
        self.window_show_message(lsp.ShowMessageParams(kind, text))

    # ------------------------------------------------------------------ documents

    def open(self, uri: str, language: str, version: int, text: str) -> None:
        path = path_of(uri)
        if path is not None and is_ours(path, language):
            self.documents[uri] = Document(uri, path, version, Text(text))
            self.schedule(self.documents[uri], 0.0)

    def close(self, uri: str) -> None:
        document = self.documents.pop(uri, None)
        if document is not None:
            if document.task is not None:
                document.task.cancel()
            document.current.set()
            self.publish(document, Analysis())

    def schedule(self, document: Document, delay: float) -> None:
        """Analyse the document after so many seconds without another call."""
        document.current.clear()
        task = document.task
        if task is not None and not task.done() and task.get_name() == "waiting":
            task.cancel()
        document.task = asyncio.create_task(self._analyse_after(document, delay, task), name="waiting")

    def schedule_all(self) -> None:
        for document in self.documents.values():
            self.schedule(document, 0.0)

    async def _analyse_after(
        self, document: Document, delay: float, before: asyncio.Task[None] | None
    ) -> None:
        await asyncio.sleep(delay)
        me = asyncio.current_task()
        assert me is not None
        me.set_name("running")  # from here on it is not stopped: what it finds out helps the next one
        if before is not None and not before.done():
            await asyncio.wait([before])
        version, text = document.version, document.text
        started = time.monotonic()
        analysis, why = Analysis(), ""
        try:
            answer = await self.worker.ask(
                "analyse", document.path, text.data, trusted=self.settings.trusted, others=self.others
            )
            why = answer.problem
            analysis = answer.analysis or analysis
            if answer.trace:
                _log.error("%s", answer.trace)
        except Stopped as stopped:
            why = str(stopped)
            if self.worker.given_up and not self.told_given_up:
                self.told_given_up = True
                self.message(f"mdh-lift: {why}", lsp.MessageType.Error)
        document.seconds = time.monotonic() - started
        if document.version != version or self.documents.get(document.uri) is not document:
            return  # about a text that is gone; the next task is on its way
        document.stopped = why
        if why:
            head = Place(0, len(text.data.split(b"\n", 1)[0].rstrip()))
            analysis = Analysis((Finding("MDH821", "warning", f"document was not analysed: {why}", head),))
        document.analysis, document.analysed = analysis, version
        self.publish(document, analysis)
        document.current.set()

    async def known(self, uri: str) -> Document | None:
        """The document with what is known of its text as it is."""
        document = self.documents.get(uri)
        while document is not None and not document.current.is_set():
            await document.current.wait()
        return self.documents.get(uri) and document

    def publish(self, document: Document, analysis: Analysis) -> None:
        told = [self.diagnostic(document, f) for f in analysis.findings]
        self.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(document.uri, told, document.version)
        )

    def diagnostic(self, document: Document, f: Finding) -> lsp.Diagnostic:
        text = document.text
        extra = [*(f"note: {n}" for n in f.notes), *([f"help: {f.help}"] if f.help else [])]
        label = f" ({f.label})" if f.label else ""
        related = [
            lsp.DiagnosticRelatedInformation(lsp.Location(document.uri, self.range(text, r.place)), r.label)
            for r in f.related
        ]
        return lsp.Diagnostic(
            self.range(text, f.place),
            "\n".join([f.message + label, *extra]),
            severity=_SEVERITY[f.severity],
            code=f.code,
            code_description=lsp.CodeDescription(f"mdh-lift:/codes/{f.code}.md"),
            source="mdh-lift",
            related_information=related or None,
        )

    # ------------------------------------------------------------------ changes of a text

    async def changed(self, document: Document, task: str, nest: str) -> list[lsp.TextEdit] | str:
        """The edits that splice or revert a nest, or why there are none."""
        text, version = document.text, document.version
        try:
            answer = await self.worker.ask(
                task, document.path, text.data, trusted=self.settings.trusted, others=self.others, nest=nest
            )
        except Stopped as stopped:
            return str(stopped)
        if answer.text is None:
            return answer.problem
        if document.version != version:
            return "the document changed meanwhile"
        new = answer.text.decode("utf-8", "surrogatepass")
        return [
            lsp.TextEdit(
                self.range(text, Place(len(encoded(text.text[:a])), len(encoded(text.text[:b])))),
                inserted,
            )
            for a, b, inserted in edits_between(text.text, new)
        ]

    async def apply(self, uri: str, task: str, nest: str) -> str:
        """Let the editor make a change; empty, or why not."""
        document = self.documents.get(uri)
        if document is None:
            return "the document is not open"
        edits = await self.changed(document, task, nest)
        if isinstance(edits, list):
            edit = self.workspace_edit(document, edits)
            label = f"mdh-lift: {task} {nest}"
            result = await self.workspace_apply_edit_async(lsp.ApplyWorkspaceEditParams(edit, label))
            edits = "" if result.applied else result.failure_reason or "the editor did not apply the edit"
        if edits:
            self.message(f"mdh-lift: {edits}", lsp.MessageType.Warning)
        return str(edits)

    def stop(self) -> None:
        self.worker.kill()


def make_server() -> Server:
    """A server with all its handlers."""
    server = Server()

    # ------------------------------------------------------------------ life

    @server.feature(lsp.INITIALIZE)
    def initialize(params: lsp.InitializeParams) -> None:
        server.settings, wrong = settings_from(_plain(params.initialization_options))
        server.worker = Worker(server.settings.limits)
        for text in wrong:
            server.message(f"mdh-lift: {text}", lsp.MessageType.Warning)

    @server.feature(lsp.INITIALIZED)
    def initialized(_: lsp.InitializedParams) -> None:
        asyncio.get_running_loop().create_task(_watch_client(server))
        workspace = server.client_capabilities.workspace
        watched = workspace.did_change_watched_files if workspace else None
        if watched is not None and watched.dynamic_registration:
            patterns = ["**/*.h", "**/mdh-lift.lock", "**/{.,}mdh-lift.toml", "**/pyproject.toml",
                        "**/compile_commands.json"]  # fmt: skip
            watchers = [lsp.FileSystemWatcher(p) for p in patterns]
            options = lsp.DidChangeWatchedFilesRegistrationOptions(watchers)
            one = lsp.Registration("mdh-lift-files", lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
            server.client_register_capability(lsp.RegistrationParams([one]))

    @server.feature(lsp.SHUTDOWN)
    def shutdown(*_: object) -> None:
        server.stopping = True
        server.stop()

    @server.feature(lsp.EXIT)
    def leave(*_: object) -> None:
        server.stop()
        os._exit(0 if server.stopping else 1)  # a thread still waits for input, which may never come

    # ------------------------------------------------------------------ documents

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: lsp.DidOpenTextDocumentParams) -> None:
        d = params.text_document
        server.open(d.uri, str(d.language_id), d.version, d.text)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: lsp.DidChangeTextDocumentParams) -> None:
        document = server.documents.get(params.text_document.uri)
        if document is None:
            return
        changes = [_change(c) for c in params.content_changes]
        document.change(changes, params.text_document.version, server.encoding)
        longest = max(server.settings.debounce, 0.0)
        server.schedule(document, min(longest, max(_SHORTEST, _PART * document.seconds)))

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    def did_save(params: lsp.DidSaveTextDocumentParams) -> None:
        if path_of(params.text_document.uri) is not None:
            server.others += any(uri != params.text_document.uri for uri in server.documents)
            for uri, document in server.documents.items():
                if uri != params.text_document.uri:
                    server.schedule(document, server.settings.debounce)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: lsp.DidCloseTextDocumentParams) -> None:
        server.close(params.text_document.uri)

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def files_changed(_: lsp.DidChangeWatchedFilesParams) -> None:
        server.others += 1
        server.schedule_all()
        workspace = server.client_capabilities.workspace
        if workspace and workspace.code_lens and workspace.code_lens.refresh_support:
            server.workspace_code_lens_refresh(None)

    # ------------------------------------------------------------------ questions

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    async def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        document = await server.known(params.text_document.uri)
        if document is None:
            return None
        at = server.offset(document, params.position)
        for nest in document.analysis.nests:
            loop = next((x for x in nest.loops if holds(x.place, at)), None)
            if loop is not None or holds(nest.head, at):
                place = loop.place if loop is not None else nest.head
                said = f"{loop.tooltip}\n\n{nest.hover}" if loop is not None and loop.tooltip else nest.hover
                content = lsp.MarkupContent(lsp.MarkupKind.Markdown, said)
                return lsp.Hover(content, server.range(document.text, place))
        return None

    @server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
    async def hints(params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        document = await server.known(params.text_document.uri)
        if document is None or not server.settings.inlay_hints:
            return []
        first, last = (server.offset(document, p) for p in (params.range.start, params.range.end))
        return [
            lsp.InlayHint(
                server.position(document.text, loop.place.end), loop.hint, padding_left=True,
                tooltip=lsp.MarkupContent(lsp.MarkupKind.Markdown, loop.tooltip),
            )
            for nest in document.analysis.nests
            for loop in nest.loops
            if first <= loop.place.end <= last
        ]  # fmt: skip

    @server.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
    async def code_lens(params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        document = await server.known(params.text_document.uri)
        if document is None or not server.settings.code_lens:
            return []
        commands = {"show": SHOW, "splice": SPLICE, "revert": REVERT}
        return [
            lsp.CodeLens(
                server.range(document.text, Place(nest.head.start, nest.head.start)),
                lsp.Command(title, commands[what], arguments=[document.uri, nest.name]),
            )
            for nest in document.analysis.nests
            for title, what in lenses(nest)
        ]

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    async def document_symbol(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        document = await server.known(params.text_document.uri)
        if document is None:
            return []
        return [
            lsp.DocumentSymbol(
                name, lsp.SymbolKind.Operator, server.range(document.text, whole),
                server.range(document.text, head), detail,
            )
            for name, detail, whole, head in symbols(document.analysis)
        ]  # fmt: skip

    @server.feature(lsp.TEXT_DOCUMENT_FOLDING_RANGE)
    async def folding(params: lsp.FoldingRangeParams) -> list[lsp.FoldingRange]:
        document = await server.known(params.text_document.uri)
        if document is None:
            return []
        out = []
        for place, label in folds(document.analysis):
            lines = server.range(document.text, place)
            if lines.end.line > lines.start.line:
                out.append(
                    lsp.FoldingRange(
                        lines.start.line, lines.end.line, kind=lsp.FoldingRangeKind.Region,
                        collapsed_text=label,
                    )
                )  # fmt: skip
        return out

    options = lsp.CompletionOptions(trigger_characters=["(", ",", " "])

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, options)
    def complete(params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        document = server.documents.get(params.text_document.uri)
        if document is None:
            return []
        line, character = _in_characters(server, document, params.position)
        return [
            lsp.CompletionItem(i.label, kind=_ITEM[i.kind], detail=i.detail or None, insert_text=i.insert)
            for i in completion.items(document.text, line, character)
        ]

    @server.feature(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(trigger_characters=["(", ","]))
    def signature(params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
        document = server.documents.get(params.text_document.uri)
        if document is None:
            return None
        found = completion.signature(document.text, *_in_characters(server, document, params.position))
        if found is None:
            return None
        return lsp.SignatureHelp([lsp.SignatureInformation(found[0], documentation=found[1])], 0)

    # ------------------------------------------------------------------ changes

    kinds = [lsp.CodeActionKind.QuickFix, lsp.CodeActionKind.RefactorRewrite]

    @server.feature(
        lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(code_action_kinds=kinds, resolve_provider=True)
    )
    async def code_action(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        document = await server.known(params.text_document.uri)
        if document is None:
            return []
        first, last = (server.offset(document, p) for p in (params.range.start, params.range.end))
        only = params.context.only
        out = []
        for action in actions_of(document.analysis, document.text, first, last):
            kind = lsp.CodeActionKind(action.kind)
            if only and not any(f"{kind.value}.".startswith(f"{_value(k)}.") for k in only):
                continue
            one = lsp.CodeAction(action.title, kind=kind)
            if action.code:
                told = [d for d in params.context.diagnostics if d.code == action.code]
                one.diagnostics = told or None
            if action.preferred:
                one.is_preferred = True
            if action.task in COMPUTED:
                if _resolves(server):
                    one.data = {"uri": document.uri, "nest": action.nest, "task": action.task}
                else:
                    command = COMPUTED[action.task]
                    one.command = lsp.Command(action.title, command, arguments=[document.uri, action.nest])
            elif action.task == "explain":
                one.command = lsp.Command(action.title, EXPLAIN, arguments=[action.code])
            else:
                one.edit = server.workspace_edit(document, server.text_edits(document.text, action.edits))
            out.append(one)
        return out

    @server.feature(lsp.CODE_ACTION_RESOLVE)
    async def resolve(action: lsp.CodeAction) -> lsp.CodeAction:
        data = _plain(action.data)
        document = await server.known(str(data.get("uri"))) if isinstance(data, dict) else None
        if document is not None and data["task"] in COMPUTED:
            edits = await server.changed(document, data["task"], str(data["nest"]))
            if isinstance(edits, str):
                server.message(f"mdh-lift: {edits}", lsp.MessageType.Warning)
                edits = []
            action.edit = server.workspace_edit(document, edits)
        return action

    @server.command(SPLICE)
    async def splice(uri: str, nest: str) -> str:
        return await server.apply(uri, "splice", nest)

    @server.command(REVERT)
    async def revert(uri: str, nest: str) -> str:
        return await server.apply(uri, "revert", nest)

    @server.command(ANNOTATE)
    async def annotate(uri: str, line: str) -> str:
        return await server.apply(uri, "annotate", line)

    @server.command(SHOW)
    async def show(uri: str, nest: str) -> str:
        document = await server.known(uri)
        found = document.nest(nest) if document is not None else None
        return _told(server, found.hover if found is not None else f"no nest `{nest}` here")

    @server.command(EXPLAIN)
    def explain(code: str) -> str:
        return _told(server, explanation(code) if code in CODES else f"no diagnostic has the code `{code}`")

    @server.command(RESTART)
    async def restart() -> None:
        await server.worker.close()
        server.worker = Worker(server.settings.limits)
        server.told_given_up = False
        server.schedule_all()

    return server


def _told(server: Server, text: str) -> str:
    if not server.settings.shows_results:
        server.message(text)
    return text


def _change(c: Any) -> Change:
    """A change of the protocol, of a range or of the whole text."""
    where = getattr(c, "range", None)
    if where is None:
        return Change(None, None, c.text)
    return Change((where.start.line, where.start.character), (where.end.line, where.end.character), c.text)


def _in_characters(server: Server, document: Document, position: lsp.Position) -> tuple[int, int]:
    """Line and column in characters."""
    text = document.text
    line = text.line(position.line)
    at = text.index((position.line, position.character), server.encoding)
    start = text.index((position.line, 0), server.encoding)
    return position.line, min(at - start, len(line))


def _resolves(server: Server) -> bool:
    """Can the client ask for the edit of an action when it is chosen?"""
    document = server.client_capabilities.text_document
    action = document.code_action if document else None
    ways = action.resolve_support if action else None
    return bool(action and action.data_support and ways and "edit" in ways.properties)


def _value(kind: object) -> str:
    return str(getattr(kind, "value", kind))


def _plain(value: Any) -> Any:
    """Objects of unknown shape as dicts (pygls makes named tuples of them)."""
    if hasattr(value, "_asdict"):
        return {k: _plain(v) for k, v in value._asdict().items()}
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


async def _watch_client(server: Server) -> None:
    """End with the client, where its end does not close our input; only if it can be seen from here."""
    pid = server.process_id
    while pid is not None and _alive(pid):
        await asyncio.sleep(5)
        if not _alive(pid):
            server.stop()
            os._exit(1)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def serve(verbose: int = 0) -> int:
    """Serve on standard input and output until the client says so or is gone; the exit status."""
    level = logging.ERROR if not verbose else logging.INFO if verbose == 1 else logging.DEBUG
    logging.basicConfig(level=level, format="%(name)s: %(message)s")
    if not verbose:
        logging.getLogger("pygls").setLevel(logging.CRITICAL)  # its messages quote documents
    server = make_server()
    try:
        server.start_io()
    finally:
        with contextlib.suppress(Exception):
            server.stop()
    return 0 if server.stopping else 1
