"""The language server: what `check` and `show` know, beside the text that is being edited.

    editor --protocol--> server --values--> child: check, lift      (server.py, worker.py, child.py)
           <-----------         <---------         analysis.py, edits.py

The server reads; whatever changes a text is an edit that it hands to the editor.  Nothing of the tree is
compiled or run; the preprocessor runs only where the workspace is trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mdh_core.diagnostics import Diagnostic
from mdh_lift.findings import Finding

if TYPE_CHECKING:
    from mdh_lift.session import Session


def run(session: Session) -> int:
    """Serve until the client ends it; the exit status.  Without the extra, MDH820."""
    try:
        import pygls  # noqa: F401 - is it there?
    except ModuleNotFoundError:
        message = "the language server is not installed"
        session.findings.append(Finding(Diagnostic("MDH820", message, help="pip install 'mdh-lift[lsp]'")))
        return session.finish()
    from mdh_lift.lsp.server import serve

    return serve(session.verbose)
