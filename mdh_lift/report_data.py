"""Findings for programs: json, jsonl, github, gitlab; SARIF is in ``sarif``, JUnit in ``report_tests``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from mdh_lift import places
from mdh_lift.findings import Finding, fingerprints, full_message

SCHEMA_VERSION = 1


def json_object(content: Mapping[str, object]) -> str:
    """One JSON object with ``schema_version``, indented, ending in a newline."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **content}, indent=2) + "\n"


def jsonl(records: Iterable[Mapping[str, object]]) -> str:
    """One JSON object per line."""
    return "".join(
        json.dumps({"schema_version": SCHEMA_VERSION, **record}, separators=(",", ":")) + "\n"
        for record in records
    )


def github(findings: Sequence[Finding]) -> str:
    """Workflow commands that GitHub turns into annotations."""
    kinds = {"error": "error", "warning": "warning", "info": "notice"}
    lines = []
    for f in findings:
        line, column = f.start
        end_line, end_column = f.end
        file = places.relative(f.file) if f.file else ""
        place = {"file": file, "line": line, "endLine": end_line, "title": f.diagnostic.code}
        if end_line == line:  # GitHub takes columns on one line only
            place |= {"col": column, "endColumn": end_column}
        properties = ",".join(
            f"{key}={_github_escape(str(value), ':,')}" for key, value in place.items() if value
        )
        lines.append(f"::{kinds[f.diagnostic.severity]} {properties}::{_github_escape(full_message(f))}\n")
    return "".join(lines)


def _github_escape(value: str, also: str = "") -> str:
    for c in "%\r\n" + also:
        value = value.replace(c, f"%{ord(c):02X}")
    return value


def gitlab(findings: Sequence[Finding]) -> str:
    """A code quality report; fingerprints are unique and do not depend on lines."""
    severities = {"error": "major", "warning": "minor", "info": "info"}
    rows = [
        {
            "description": full_message(f),
            "check_name": f.diagnostic.code,
            "fingerprint": fingerprint,
            "severity": severities[f.diagnostic.severity],
            "location": {
                "path": places.readable(places.relative(f.file)),
                "lines": {"begin": f.start[0], "end": max(f.start[0], f.end[0])},
            },
        }
        for f, fingerprint in zip(findings, fingerprints(findings, places.relative), strict=True)
    ]
    return json.dumps(rows, indent=2) + "\n"
