"""The language server as an editor sees it: a real server process, spoken to over its standard streams."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import pytest_lsp
from lsprotocol import types as lsp
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

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
WRONG = GEMM.replace("#pragma mdh", "/* ü𝟙 */\n#pragma mdh combine_ops(i: cc, j: cc, k: pw(*))")


def initialisation(client: str = "visual-studio-code", **options: object) -> lsp.InitializeParams:
    given = {"trusted": True, **options}
    return lsp.InitializeParams(client_capabilities(client), initialization_options=given)


@pytest_lsp.fixture(config=ClientServerConfig([sys.executable, "-m", "mdh_lift", "lsp"]))
async def client(lsp_client: LanguageClient):
    await lsp_client.initialize_session(initialisation())
    yield lsp_client
    await lsp_client.shutdown_session()


async def opened(client: LanguageClient, path: Path, text: str, version: int = 1) -> str:
    path.write_text(text, encoding="utf-8")
    uri = path.as_uri()
    client.text_document_did_open(
        lsp.DidOpenTextDocumentParams(lsp.TextDocumentItem(uri, "c", version, text))
    )
    await client.wait_for_notification(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    return uri


@pytest.mark.asyncio
async def test_first(client, tmp_path):
    uri = await opened(client, tmp_path / "a.c", WRONG)
    print(client.diagnostics[uri])
    doc = lsp.TextDocumentIdentifier(uri)
    print(await client.text_document_hover_async(lsp.HoverParams(doc, lsp.Position(3, 3))))
    print(await client.text_document_code_lens_async(lsp.CodeLensParams(doc)))
    r = lsp.Range(lsp.Position(0, 0), lsp.Position(20, 0))
    print(await client.text_document_inlay_hint_async(lsp.InlayHintParams(doc, r)))
    print(await client.text_document_code_action_async(lsp.CodeActionParams(doc, r, lsp.CodeActionContext([]))))
    print(await client.text_document_document_symbol_async(lsp.DocumentSymbolParams(doc)))
    print(await client.text_document_folding_range_async(lsp.FoldingRangeParams(doc)))
    assert 0
