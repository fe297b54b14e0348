"""The language server as an editor sees it: a real server process, spoken to over its standard streams."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import pytest_lsp
from lsprotocol import types as lsp
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

from mdh_core.source import SourceFile
from mdh_lift.lsp.tasks import options_for
from mdh_lift.pipeline import check_source
from tuning import lock as locks

GEMM = """\
/* Größe: 𝟙 */ void gemm(int n, int m, int p, double A[n][p], double B[p][m], double C[n][m])
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            for (int k = 0; k < p; k++)
                C[i][j] += A[i][k] * B[k][j];
}
"""
WRONG = GEMM.replace("#pragma mdh", "    ;\n#pragma mdh combine_ops(i: cc, j: cc, k: pw(*))")
COMMAND = [sys.executable, "-P", "-m", "mdh_lift", "lsp"]


def initialisation(client: str = "visual-studio-code", **options: object) -> lsp.InitializeParams:
    return lsp.InitializeParams(
        client_capabilities(client), initialization_options={"trusted": True, "debounce": 0.1, **options}
    )


def made_quiet(client: LanguageClient) -> None:
    """Answers to what the server asks of editors."""

    @client.feature(lsp.CLIENT_REGISTER_CAPABILITY)
    def registered(params):
        client.registered = params.registrations

    @client.feature(lsp.WORKSPACE_CODE_LENS_REFRESH)
    def refresh(*_):
        client.refreshed = True

    @client.feature(lsp.WORKSPACE_APPLY_EDIT)
    def apply(params):
        client.applied = params.edit
        return lsp.ApplyWorkspaceEditResult(True)


@pytest_lsp.fixture(config=ClientServerConfig(COMMAND))
async def client(lsp_client: LanguageClient):
    made_quiet(lsp_client)
    await lsp_client.initialize_session(initialisation())
    yield lsp_client
    await lsp_client.shutdown_session()


@pytest_lsp.fixture(config=ClientServerConfig(COMMAND))
async def bytes_client(lsp_client: LanguageClient):
    """Not trusted, with UTF-8 positions, an editor that can do little."""
    made_quiet(lsp_client)
    params = initialisation("neovim", trusted=False, inlayHints=False, wrong=1)
    params.capabilities.general = lsp.GeneralClientCapabilities(
        position_encodings=[lsp.PositionEncodingKind.Utf8]
    )
    await lsp_client.initialize_session(params)
    yield lsp_client
    await lsp_client.shutdown_session()


class Doc:
    """A document of the editor, with its text as it should be."""

    def __init__(self, client: LanguageClient, path: Path, text: str) -> None:
        self.client, self.path, self.text, self.version = client, path, text, 1
        path.write_text(text, encoding="utf-8")
        self.uri = path.as_uri()
        self.id = lsp.TextDocumentIdentifier(self.uri)

    async def open(self) -> list[lsp.Diagnostic]:
        item = lsp.TextDocumentItem(self.uri, "c", self.version, self.text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        return await self.told()

    async def told(self) -> list[lsp.Diagnostic]:
        """Diagnostics of the text as it is."""
        while True:
            params = await self.client.wait_for_notification(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
            if params.uri == self.uri and params.version == self.version:
                return list(params.diagnostics)

    def change(self, line: int, start: int, end: int, new: str) -> None:
        """Characters of a line, which must be ASCII before them."""
        lines = self.text.split("\n")
        lines[line] = lines[line][:start] + new + lines[line][end:]
        self.text, self.version = "\n".join(lines), self.version + 1
        where = lsp.Range(lsp.Position(line, start), lsp.Position(line, end))
        self.client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                lsp.VersionedTextDocumentIdentifier(self.version, self.uri),
                [lsp.TextDocumentContentChangePartial(where, new)],
            )
        )

    def replace(self, text: str) -> None:
        self.text, self.version = text, self.version + 1
        self.client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                lsp.VersionedTextDocumentIdentifier(self.version, self.uri),
                [lsp.TextDocumentContentChangeWholeDocument(text)],
            )
        )

    async def actions(self, line: int, *only: str) -> dict[str, lsp.CodeAction]:
        where = lsp.Range(lsp.Position(line, 0), lsp.Position(line, 80))
        context = lsp.CodeActionContext([], only=list(only) or None)
        found = await self.client.text_document_code_action_async(
            lsp.CodeActionParams(self.id, where, context)
        )
        return {a.title: a for a in found or ()}

    def edited(self, edit: lsp.WorkspaceEdit) -> str:
        """The text after an edit, whose version must be that of the document; UTF-16 positions."""
        (change,) = edit.document_changes
        assert change.text_document.version == self.version and change.text_document.uri == self.uri
        data = self.text.encode("utf-16-le")
        starts = [0]
        for line in self.text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line.encode("utf-16-le")))
        for e in sorted(change.edits, key=lambda e: (e.range.start.line, e.range.start.character), reverse=True):
            a, b = (starts[p.line] + 2 * p.character for p in (e.range.start, e.range.end))
            data = data[:a] + e.new_text.encode("utf-16-le") + data[b:]
        return data.decode("utf-16-le")


def heads(text: str) -> int:
    return next(k for k, line in enumerate(text.split("\n")) if line.startswith("#pragma mdh"))


@pytest.mark.asyncio
async def test_what_an_editor_shows(client, tmp_path):
    doc = Doc(client, tmp_path / "ä b.c", WRONG)
    (wrong,) = await doc.open()
    line = heads(WRONG)
    assert (wrong.code, wrong.severity, wrong.source) == ("MDH404", lsp.DiagnosticSeverity.Error, "mdh-lift")
    assert wrong.range == lsp.Range(lsp.Position(line, 41), lsp.Position(line, 46))
    assert wrong.code_description.href == "mdh-lift:/codes/MDH404.md"
    (related,) = wrong.related_information
    assert related.location.range.start == lsp.Position(line + 3, 12) and related.message == "this loop"
    assert "help: write `pw(+)`" in wrong.message

    doc.change(line, 44, 45, "+")
    told = await doc.told()
    assert [d.code for d in told] == ["MDH203", "MDH301"]
    assert {d.range.start.line for d in told} == {line + 1}

    hover = await client.text_document_hover_async(lsp.HoverParams(doc.id, lsp.Position(line, 3)))
    assert "md_hom[i: n, j: m, k: p]" in hover.contents.value and hover.range.start == lsp.Position(line, 0)
    on_loop = await client.text_document_hover_async(lsp.HoverParams(doc.id, lsp.Position(line + 3, 15)))
    assert on_loop.contents.value.startswith("`pw(+)`: iterations are combined by `+`")
    assert await client.text_document_hover_async(lsp.HoverParams(doc.id, lsp.Position(0, 3))) is None

    all_of_it = lsp.Range(lsp.Position(0, 0), lsp.Position(99, 0))
    hints = await client.text_document_inlay_hint_async(lsp.InlayHintParams(doc.id, all_of_it))
    assert [(h.position.line - line, h.label) for h in hints] == [(1, "++"), (2, "++"), (3, "+")]
    first = lsp.Range(lsp.Position(line + 1, 0), lsp.Position(line + 2, 0))
    assert len(await client.text_document_inlay_hint_async(lsp.InlayHintParams(doc.id, first))) == 1

    (lens,) = await client.text_document_code_lens_async(lsp.CodeLensParams(doc.id))
    assert lens.command.title == "lifted: 1 md_hom" and lens.range.start.line == line
    (symbol,) = await client.text_document_document_symbol_async(lsp.DocumentSymbolParams(doc.id))
    assert symbol.name == "gemm::0" and symbol.range.start.line == line
    shown = await client.workspace_execute_command_async(
        lsp.ExecuteCommandParams("mdhLift.show", [doc.uri, "gemm::0"])
    )
    assert "md_hom" in shown and "md_hom" in client.messages[-1].message
    said = await client.workspace_execute_command_async(lsp.ExecuteCommandParams("mdhLift.explain", ["MDH301"]))
    assert said.startswith("**MDH301: floating-point operations are reassociated**")

    client.text_document_did_close(lsp.DidCloseTextDocumentParams(doc.id))
    assert (await client.wait_for_notification(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)).diagnostics == ()


@pytest.mark.asyncio
async def test_completion_and_signature(client, tmp_path):
    doc = Doc(client, tmp_path / "a.c", GEMM)
    await doc.open()
    line = heads(GEMM)
    doc.change(line, 11, 11, " /* ü𝟙 */ out(")
    end = lsp.Position(line, 11 + len(" /* ü𝟙 */ out(") + 1)  # one character of them is two units
    found = await client.text_document_completion_async(lsp.CompletionParams(doc.id, end))
    assert {i.label for i in found} == {"A", "B", "C"}
    help_ = await client.text_document_signature_help_async(lsp.SignatureHelpParams(doc.id, end))
    assert help_.signatures[0].label == "out(buffer, ...)"
    assert await client.text_document_completion_async(lsp.CompletionParams(doc.id, lsp.Position(0, 1))) in ((), [])


@pytest.mark.asyncio
async def test_edits_in_a_row_are_one_analysis_of_the_last_text(client, tmp_path):
    doc = Doc(client, tmp_path / "a.c", WRONG)
    await doc.open()
    line = heads(WRONG)
    for k in range(20):
        doc.change(line, 44, 45, "*+"[k % 2])
    seen = []
    while not seen or seen[-1].version != doc.version:
        seen.append(await client.wait_for_notification(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS))
    assert [d.code for d in seen[-1].diagnostics] == ["MDH203", "MDH301"]
    assert len(seen) < 10 and [p.version for p in seen] == sorted(p.version for p in seen)
    doc.replace("int x;\n")
    assert await doc.told() == []


@pytest.mark.asyncio
async def test_an_action_writes_out_operators(client, tmp_path):
    doc = Doc(client, tmp_path / "a.c", GEMM)
    await doc.open()
    line = heads(GEMM)
    actions = await doc.actions(line)
    action = actions["Write out the inferred combine operators"]
    text = doc.edited(action.edit)
    assert text == GEMM.replace("#pragma mdh", "#pragma mdh combine_ops(i: cc, j: cc, k: pw(+))")
    doc.replace(text)
    assert [d.code for d in await doc.told()] == ["MDH203", "MDH301"]
    assert not any("Write out" in a for a in await doc.actions(line))
    assert not await doc.actions(line, "source.organizeImports")
    assert set(await doc.actions(line, "refactor")) == set()
    assert set(await doc.actions(line + 1, "quickfix")) == {
        "Explain MDH203", "Explain MDH301", "Ignore MDH203 here", "Ignore MDH301 here",
    }  # fmt: skip


def tuned_here(path: Path) -> None:
    """The database and the lock file say of the nest what `mdh-lift tune` would."""
    from mdh_lift import improve, recorded
    from tuning.records import canonical
    from tuning.results import text_hash
    from tuning.store import Store

    options = options_for(str(path), True)
    report = check_source(SourceFile(str(path), path.read_bytes()), options)
    work = improve.prepare(report, report.nests[0], options)
    point = work.plan.default
    with Store(options.database_path) as store:
        record = store.finish(
            store.begin(recorded.context(work, 1), "best estimated", "1ev"),
            winner=canonical(point),
            winner_text=text_hash(recorded.given(work.plan.candidate)(point)),
            locked_text=text_hash(work.plan.candidate(point, described=True)),
            verification={"cases": 3, "calls": 3},
            original=(3.2,),
            pairs=tuple((3.19 + k / 1000, 1.0) for k in range(21)),
            measured="ok",
            stopped="budget",
        )
    locks.write(options.lock_path, locks.merge(locks.empty(), recorded.entry(work, record)))


@pytest.mark.asyncio
async def test_splice_and_revert(client, tmp_path):
    (tmp_path / "mdh-lift.toml").write_text("schema = 1\n")
    doc = Doc(client, tmp_path / "a.c", GEMM)
    tuned_here(doc.path)
    await doc.open()
    line = heads(GEMM)
    splice, revert = "Splice the tuned version of gemm::0", "Revert gemm::0 to its original"
    titles = [x.command.title for x in await client.text_document_code_lens_async(lsp.CodeLensParams(doc.id))]
    assert titles[0].startswith("tuned 3.2 ×") and titles[1] == "splice"
    actions = await doc.actions(line)
    assert splice in actions and actions[splice].edit is None, "computed when it is chosen"
    resolved = await client.code_action_resolve_async(actions[splice])
    text = doc.edited(resolved.edit)
    assert "mdh-lift begin gemm::0 kernel" in text and "ü" not in text and "Größe: 𝟙" in text
    doc.replace(text)
    assert "MDH501" not in [d.code for d in await doc.told()]
    titles = [x.command.title for x in await client.text_document_code_lens_async(lsp.CodeLensParams(doc.id))]
    assert titles[0].startswith("spliced, 3.2 ×") and titles[1] == "revert"
    folds = await client.text_document_folding_range_async(lsp.FoldingRangeParams(doc.id))
    assert [f.collapsed_text for f in folds][-1] == "original of gemm::0"
    actions = await doc.actions(heads(text))
    assert splice not in actions
    assert doc.edited((await client.code_action_resolve_async(actions[revert])).edit) == GEMM
    await client.workspace_execute_command_async(
        lsp.ExecuteCommandParams("mdhLift.revert", [doc.uri, "gemm::0"])
    )
    assert doc.edited(client.applied) == GEMM

    # the nest changes: what is spliced is stale, and so is what was tuned
    doc.replace(text.replace("C[i][j] += A[i][k]", "C[i][j] += 2.0 * A[i][k]"))
    assert "MDH501" in [d.code for d in await doc.told()]
    actions = await doc.actions(heads(doc.text))
    assert splice not in actions and revert in actions
    why = await client.workspace_execute_command_async(
        lsp.ExecuteCommandParams("mdhLift.splice", [doc.uri, "gemm::0"])
    )
    assert why.startswith("MDH525") and "changed since it was tuned" in why

    # what no database of this machine knows is not put in place, whatever the lock file says
    doc.replace(GEMM)
    await doc.told()
    options_for(str(doc.path), True).database_path.unlink()
    why = await client.workspace_execute_command_async(
        lsp.ExecuteCommandParams("mdhLift.splice", [doc.uri, "gemm::0"])
    )
    assert why.startswith("MDH525") and "there is no database" in why


@pytest.mark.asyncio
async def test_headers_and_locks_that_change(client, tmp_path):
    header = tmp_path / "n.h"
    header.write_text("#define OP +\n")
    text = '#include "n.h"\n' + GEMM.replace("+= A[i][k]", "= C[i][j] OP A[i][k]").replace("#pragma mdh", "#pragma mdh combine_ops(cc, cc, pw(+))")
    doc = Doc(client, tmp_path / "a.c", text)
    assert [d.code for d in await doc.open()] == ["MDH203", "MDH301"]
    header.write_text("#define OP -\n")
    changed = lsp.FileEvent(header.as_uri(), lsp.FileChangeType.Changed)
    client.workspace_did_change_watched_files(lsp.DidChangeWatchedFilesParams([changed]))
    told = await doc.told()
    assert "MDH404" in [d.code for d in told] or told != []
    header.write_text("#error no\n")
    client.workspace_did_change_watched_files(lsp.DidChangeWatchedFilesParams([changed]))
    assert [d.code for d in await doc.told()] == ["MDH002"]
    assert any("mdh-lift.lock" in json.dumps(r.register_options, default=str) for r in client.registered)


@pytest.mark.asyncio
async def test_without_trust_and_in_utf8(bytes_client, tmp_path):
    client = bytes_client
    assert any("unknown option `wrong`" in m.message for m in client.messages)
    (tmp_path / "mdh-lift.toml").write_text("not even TOML")
    text = '#include "gone.h"\n' + GEMM.replace("#pragma mdh", "/* ü𝟙 */ ;\n#pragma mdh /* ü𝟙 */ fp(precise)")
    doc = Doc(client, tmp_path / "a.c", text)
    (wrong,) = await doc.open()
    line = heads(text)
    start = len("#pragma mdh /* ü𝟙 */ fp(".encode())
    assert wrong.code == "MDH402" and wrong.range.start.line == line
    assert wrong.range.start.character in (start, start - 3)
    all_of_it = lsp.Range(lsp.Position(0, 0), lsp.Position(99, 0))
    assert not await client.text_document_inlay_hint_async(lsp.InlayHintParams(doc.id, all_of_it))


@pytest.mark.asyncio
async def test_other_documents_are_left_alone(client, tmp_path):
    item = lsp.TextDocumentItem("untitled:a.c", "c", 1, GEMM)
    client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
    item = lsp.TextDocumentItem((tmp_path / "a.rs").as_uri(), "rust", 1, GEMM)
    client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
    doc = Doc(client, tmp_path / "a.c", "int x;\n")
    assert await doc.open() == []
    assert set(client.diagnostics) == {doc.uri}
    assert not await client.text_document_code_lens_async(
        lsp.CodeLensParams(lsp.TextDocumentIdentifier("untitled:a.c"))
    )


# --------------------------------------------------------------------------- ends


def framed(message: dict[str, object]) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    return f"Content-Length: {len(body)}\r\n\r\n".encode() + body


def started(tmp_path: Path, text: str) -> tuple[subprocess.Popen[bytes], int]:
    """A server that has analysed a document, and the process that it does so with."""
    server = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert server.stdin is not None and server.stdout is not None
    options = {"trusted": True}
    server.stdin.write(
        framed({"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": None, "capabilities": {}, "initializationOptions": options}})
        + framed({"method": "initialized", "params": {}})
        + framed({"method": "textDocument/didOpen", "params": {"textDocument": {"uri": (tmp_path / "a.c").as_uri(), "languageId": "c", "version": 1, "text": text}}})
    )
    server.stdin.flush()
    while b"publishDiagnostics" not in server.stdout.read1():
        pass
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    assert len(children) == 1
    return server, int(children[0])


def ended(pid: int) -> bool:
    for _ in range(300):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("way", ["shutdown", "exit", "eof", "kill", "term"])
def test_every_end_leaves_nothing_behind(tmp_path, way):
    server, child = started(tmp_path, GEMM)
    assert server.stdin is not None and server.stdout is not None
    if way == "shutdown":
        server.stdin.write(framed({"id": 2, "method": "shutdown"}) + framed({"method": "exit"}))
        server.stdin.flush()
    elif way == "exit":
        server.stdin.write(framed({"method": "exit"}))
        server.stdin.flush()
    elif way == "eof":
        server.stdin.close()
    else:
        os.kill(server.pid, signal.SIGKILL if way == "kill" else signal.SIGTERM)
    status = server.wait(timeout=60)
    assert ended(child)
    assert status == {"shutdown": 0, "exit": 1, "eof": 1, "kill": -9, "term": -15}[way]
    server.stdout.close()


def test_without_the_extra_it_says_how_to_install_it(tmp_path):
    (tmp_path / "pygls.py").write_text("raise ModuleNotFoundError('No module named pygls')\n")
    done = subprocess.run(
        [sys.executable, "-m", "mdh_lift", "lsp"], capture_output=True, text=True, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 4 and done.stdout == "" and "MDH820" in done.stderr
    assert "pip install 'mdh-lift[lsp]'" in done.stderr


def test_messages_that_make_no_sense_are_survived(tmp_path):
    server, child = started(tmp_path, GEMM)
    assert server.stdin is not None and server.stdout is not None
    uri = (tmp_path / "a.c").as_uri()
    for message in (
        {"method": "textDocument/didChange", "params": {"textDocument": {"uri": "file:///other.c", "version": 1}, "contentChanges": [{"text": "x"}]}},
        {"method": "textDocument/didChange", "params": {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"range": {"start": {"line": 999, "character": 7}, "end": {"line": 3, "character": 99}}, "text": "\ud83d"}]}},
        {"method": "textDocument/didClose", "params": {"textDocument": {"uri": "file:///other.c"}}},
        {"id": 3, "method": "workspace/executeCommand", "params": {"command": "mdhLift.show", "arguments": [uri]}},
        {"id": 4, "method": "workspace/executeCommand", "params": {"command": "mdhLift.splice", "arguments": [7, {}]}},
        {"id": 5, "method": "textDocument/hover", "params": {}},
        {"method": "no/such"},
    ):
        server.stdin.write(framed(message))
    server.stdin.write(framed({"id": 9, "method": "textDocument/hover", "params": {"textDocument": {"uri": uri}, "position": {"line": 2, "character": 3}}}))
    server.stdin.flush()
    seen = b""
    while b'"id": 9' not in seen and b'"id":9' not in seen:
        part = server.stdout.read1()
        assert part, seen[-500:]
        seen += part
    assert server.poll() is None
    server.stdin.close()
    server.wait(timeout=60)
    assert ended(child)
    server.stdout.close()


def test_nothing_is_written_or_run_beside_the_preprocessor(tmp_path):
    """Counted: programs that are started, files that are opened to be written."""
    work = tmp_path / "tree"
    work.mkdir()
    code = "import sys; from mdh_lift.lsp.tasks import Tasks; from mdh_lift.lsp.values import Request\n"
    code += "seen = []\nsys.addaudithook(lambda e, a: seen.append((e, a)) if e in ('subprocess.Popen', 'open') else None)\n"
    code += f"Tasks().answer(Request(1, 'analyse', {str(work / 'a.c')!r}, {GEMM.encode()!r}, trusted=True))\n"
    code += "print([a[0].rsplit('/', 1)[-1] for e, a in seen if e == 'subprocess.Popen'])\n"
    code += "print([a for e, a in seen if e == 'open' and isinstance(a[1], str) and set(a[1]) & set('wax+')])\n"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    programs, written = done.stdout.splitlines()
    assert set(json.loads(programs.replace("'", '"'))) <= {"cc", "gcc", "clang"}, done
    assert str(work) not in written and not list(work.iterdir())

