"""What a client may choose (``initializationOptions``); unknown names and wrong values are told and ignored.

{"trusted": true, "inlayHints": false}  ->  Settings(trusted=True, inlay_hints=False), []
"""

from __future__ import annotations

from typing import Any

import msgspec

from mdh_lift.lsp.worker import Limits


class Settings(msgspec.Struct, frozen=True, rename="camel"):
    """``trusted``: the preprocessor may run, the project's configuration counts; the client asks the user."""

    trusted: bool = False
    inlay_hints: bool = True
    code_lens: bool = True
    debounce: float = 0.3  # seconds without an edit, at most, before a document is analysed
    shows_results: bool = False  # the client displays what commands return
    seconds: float = 20.0  # for an analysis
    megabytes: int = 4096  # of address space for it; 0: no limit
    bytes: int = 2_000_000  # of a document
    restarts: int = 5  # of the analysis, after it was killed or died

    @property
    def limits(self) -> Limits:
        return Limits(self.seconds, self.megabytes, self.bytes, self.restarts)


def settings_from(options: object) -> tuple[Settings, list[str]]:
    """The settings, and what is wrong with the options."""
    if not isinstance(options, dict):
        return Settings(), []
    known = dict(zip(Settings.__struct_encode_fields__, Settings.__struct_fields__, strict=True))
    taken: dict[str, Any] = {}
    wrong: list[str] = []
    for name, value in options.items():
        if name not in known:
            wrong.append(f"unknown option `{name}`")
            continue
        try:
            one = msgspec.convert({name: value}, Settings)
        except msgspec.ValidationError as error:
            wrong.append(f"option `{name}`: {error}")
            continue
        taken[known[name]] = getattr(one, known[name])
    return msgspec.structs.replace(Settings(), **taken), wrong
