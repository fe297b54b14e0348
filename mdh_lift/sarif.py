"""Findings as SARIF 2.1.0: one run, with rules, places, flows of dependences, and fixes.

Names of files are relative to ``%SRCROOT%``; columns count UTF-16 code units, as the format has it for text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from mdh_core.diagnostics import CODES, Code, Fix
from mdh_core.source import SourceFile, Span
from mdh_lift import places
from mdh_lift.findings import Finding, fingerprints, full_message
from mdh_lift.version import VERSION

HOMEPAGE = "https://pypi.org/project/mdh-lift/"
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_DEPENDENCES = ("MDH207", "MDH208", "MDH213", "MDH412")
_ROOT = "%SRCROOT%"
Json = dict[str, object]


def sarif(findings: Sequence[Finding], status: int = 0, files: Iterable[str] = ()) -> str:
    """The log of one run; ``status`` is its exit status, ``files`` is what it looked at."""
    codes = sorted({f.diagnostic.code for f in findings})
    prints = fingerprints(findings, places.relative)
    results = [_result(f, codes, one) for f, one in zip(findings, prints, strict=True)]
    driver = {
        "name": "mdh-lift",
        "version": VERSION,
        "semanticVersion": VERSION,
        "informationUri": HOMEPAGE,
        "rules": [_rule(CODES[code]) for code in codes],
    }
    run: Json = {
        "tool": {"driver": driver},
        "automationDetails": {"id": "mdh-lift/"},
        "originalUriBaseIds": {_ROOT: {"description": {"text": "the root of the repository"}}},
        "invocations": [{"executionSuccessful": status < 2, "exitCode": status}],
        "artifacts": [{"location": _artifact(name)} for name in sorted(set(files))],
        "columnKind": "utf16CodeUnits",
        "results": results,
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(row: Code) -> Json:
    example = f"`mdh-lift explain {row.code}` prints this text."
    return {
        "id": row.code,
        "name": "".join(word.capitalize() for word in row.title.replace("-", " ").split()),
        "shortDescription": {"text": row.title},
        "fullDescription": {"text": row.explanation},
        "help": {
            "text": f"{row.explanation}\n\n{example}",
            "markdown": f"**{row.code}: {row.title}**\n\n{row.explanation}\n\n{example}",
        },
        "helpUri": f"{HOMEPAGE}#{row.code.lower()}",
        "defaultConfiguration": {"level": _LEVELS[row.severity]},
        "properties": {"tags": [_kind(row.code)], "precision": "very-high"},
    }


_KINDS = ("reading", "lifted", "not-liftable", "meaning", "directive", "freshness", "tuning", "wrong-result",
          "environment", "internal")  # fmt: skip


def _kind(code: str) -> str:
    return _KINDS[int(code[3])]


def _result(f: Finding, codes: Sequence[str], fingerprint: str) -> Json:
    d = f.diagnostic
    result: Json = {
        "ruleId": d.code,
        "ruleIndex": codes.index(d.code),
        "level": _LEVELS[d.severity],
        "message": {"text": full_message(f)},
        "locations": [_location(f)] if f.file else [],
        "partialFingerprints": {"mdhLift/v2": fingerprint},
    }
    related = [r for r in d.related if r.span and f.source is not None]
    if related and f.source is not None:
        places_ = [_place(f.file, _region(f.source, r.span), r.label) for r in related]
        result["relatedLocations"] = [p | {"id": k} for k, p in enumerate(places_)]
        if d.code in _DEPENDENCES:
            steps = [*places_, _location(f, d.label or d.message)]
            result["codeFlows"] = [{"threadFlows": [{"locations": [{"location": p} for p in steps]}]}]
    if d.fix is not None and f.source is not None:
        result["fixes"] = [_fix(f.source, d.fix, f.file)]
    return result


def _artifact(file: str) -> Json:
    name = places.relative(file)
    if name.startswith("/"):
        return {"uri": f"file://{places.quoted(name)}"}
    return {"uri": places.quoted(name), "uriBaseId": _ROOT}


def _location(f: Finding, label: str = "") -> Json:
    d = f.diagnostic
    if f.source is not None and d.span:
        region = _region(f.source, d.span)
    else:
        region = {"startLine": f.start[0]}
    place = _place(f.file, region, label)
    if f.nest:
        name = "::".join(f.nest.rsplit("::", 2)[1:])
        place["logicalLocations"] = [{"fullyQualifiedName": places.readable(name), "kind": "function"}]
    return place


def _place(file: str, region: Json, label: str = "") -> Json:
    place: Json = {"physicalLocation": {"artifactLocation": _artifact(file), "region": region}}
    return place | ({"message": {"text": places.readable(label)}} if label else {})


def _region(source: SourceFile, span: Span) -> Json:
    line, column = _position(source, span.start)
    end_line, end_column = _position(source, span.end)
    return {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}


def _position(source: SourceFile, offset: int) -> tuple[int, int]:
    """Line, and column in UTF-16 code units, both from 1."""
    line, column = source.line_col(offset)
    before = source.text(Span(offset - column + 1, offset))
    return line, len(before.encode("utf-16-le", "replace")) // 2 + 1


def _fix(source: SourceFile, fix: Fix, file: str) -> Json:
    replacement = {"deletedRegion": _region(source, fix.span), "insertedContent": {"text": fix.text}}
    change = {"artifactLocation": _artifact(file), "replacements": [replacement]}
    return {"description": {"text": fix.title}, "artifactChanges": [change]}
