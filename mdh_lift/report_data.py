"""Diagnostics for programs: json, jsonl, sarif, github, gitlab, junit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from mdh_core.diagnostics import CODES
from mdh_lift.findings import Finding
from mdh_lift.version import VERSION

SCHEMA_VERSION = 1
HOMEPAGE = "https://pypi.org/project/mdh-lift/"


def json_object(content: Mapping[str, object]) -> str:
    """One JSON object with ``schema_version``, indented, ending in a newline."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **content}, indent=2) + "\n"


def jsonl(records: Iterable[Mapping[str, object]]) -> str:
    """One JSON object per line."""
    return "".join(
        json.dumps({"schema_version": SCHEMA_VERSION, **record}, separators=(",", ":")) + "\n"
        for record in records
    )


def sarif(findings: Sequence[Finding]) -> str:
    """SARIF 2.1.0, one run."""
    codes = sorted({f.diagnostic.code for f in findings})
    levels = {"error": "error", "warning": "warning", "info": "note"}
    rules = [
        {
            "id": code,
            "shortDescription": {"text": CODES[code].title},
            "fullDescription": {"text": CODES[code].explanation},
            "defaultConfiguration": {"level": levels[CODES[code].severity]},
        }
        for code in codes
    ]
    results = [
        {
            "ruleId": f.diagnostic.code,
            "ruleIndex": codes.index(f.diagnostic.code),
            "level": levels[f.diagnostic.severity],
            "message": {"text": _full_message(f)},
            "locations": [{"physicalLocation": _sarif_place(f)}] if f.file else [],
            "partialFingerprints": {"mdhLift/v1": _fingerprint(f)},
        }
        for f in findings
    ]
    driver = {"name": "mdh-lift", "version": VERSION, "informationUri": HOMEPAGE, "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", "results": results}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _sarif_place(f: Finding) -> dict[str, object]:
    (line, column), (end_line, end_column) = f.start, f.end
    region = {"startLine": line, "startColumn": column}
    if (end_line, end_column) > (line, column):
        region |= {"endLine": end_line, "endColumn": end_column}
    return {"artifactLocation": {"uri": f.file.replace("\\", "/")}, "region": region}


def github(findings: Sequence[Finding]) -> str:
    """Workflow commands that GitHub turns into annotations."""
    kinds = {"error": "error", "warning": "warning", "info": "notice"}
    lines = []
    for f in findings:
        line, column = f.start
        end_line, end_column = f.end
        place = {"file": f.file, "line": line, "endLine": end_line, "title": f.diagnostic.code}
        if end_line == line:  # GitHub takes columns on one line only
            place |= {"col": column, "endColumn": end_column}
        properties = ",".join(
            f"{key}={_github_escape(str(value), ':,')}" for key, value in place.items() if value
        )
        lines.append(f"::{kinds[f.diagnostic.severity]} {properties}::{_github_escape(_full_message(f))}\n")
    return "".join(lines)


def _github_escape(value: str, also: str = "") -> str:
    for c in "%\r\n" + also:
        value = value.replace(c, f"%{ord(c):02X}")
    return value


def gitlab(findings: Sequence[Finding]) -> str:
    """A code quality report."""
    severities = {"error": "major", "warning": "minor", "info": "info"}
    rows = [
        {
            "description": _full_message(f),
            "check_name": f.diagnostic.code,
            "fingerprint": _fingerprint(f),
            "severity": severities[f.diagnostic.severity],
            "location": {"path": f.file, "lines": {"begin": f.start[0], "end": f.end[0]}},
        }
        for f in findings
    ]
    return json.dumps(rows, indent=2) + "\n"


def junit(findings: Sequence[Finding], files: Sequence[str]) -> str:
    """One test case per file; a finding with a nonzero exit status is a failure of it."""
    from xml.sax.saxutils import escape, quoteattr  # brings in half of the network library

    cases = []
    failed = 0
    for file in sorted({*files, *(f.file for f in findings)}):
        failures = [f for f in findings if f.file == file and f.diagnostic.exit_status]
        failed += bool(failures)
        inner = "".join(
            f'\n      <failure type="{f.diagnostic.code}" message={quoteattr(_xml(f.diagnostic.message))}>'
            f"{escape(_xml(f'{file}:{f.start[0]}:{f.start[1]}: {_full_message(f)}'))}</failure>"
            for f in failures
        )
        close = f"{inner}\n    </testcase>" if inner else "</testcase>"
        cases.append(f'    <testcase classname="mdh-lift" name={quoteattr(_xml(file))}>{close}\n')
    head = f'tests="{len(cases)}" failures="{failed}" errors="0"'
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites name="mdh-lift" {head}>\n  <testsuite name="mdh-lift" {head}>\n'
        f"{''.join(cases)}  </testsuite>\n</testsuites>\n"
    )


def _xml(value: str) -> str:
    """Without the control characters that XML 1.0 cannot hold."""
    return "".join(c if c in "\t\n" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in value)


def _full_message(f: Finding) -> str:
    d = f.diagnostic
    return "\n".join(
        [d.message, *(f"note: {note}" for note in d.notes), *([f"help: {d.help}"] if d.help else [])]
    )


def _fingerprint(f: Finding) -> str:
    """The same for the same fault after lines were added above it."""
    d = f.diagnostic
    at_fault = f.source.text(f.source.line_span(f.start[0])).strip() if f.source is not None else ""
    return hashlib.sha256(
        "\0".join((d.code, f.file, d.message, at_fault)).encode("utf-8", "replace")
    ).hexdigest()[:32]
