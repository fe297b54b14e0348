"""Findings that a tree is allowed to have: ``check --write-baseline`` adopts it, ``--baseline`` reads it.

    { "schema_version": 1, "findings": [ { "file": "src/a.c", "nest": "gemm::0", "code": "MDH201", "count": 1,
                                           "message": "index of `x` is not affine in `i`" } ] }

An entry is a file (relative to the baseline's directory), a nest, a code, and how many there are.  No lines,
so that it holds when code moves; the message of the first is there for readers.  Sorted, to be merged.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from mdh_lift import places
from mdh_lift.files import write_output
from mdh_lift.findings import Finding
from mdh_lift.suppressions import may_be_suppressed

NAME = "mdh-lift-baseline.json"
SCHEMA_VERSION = 1
Key = tuple[str, str, str]  # file, nest, code


class BaselineError(Exception):
    """A baseline that cannot be used; the text says which and why."""


def key_of(f: Finding, directory: Path) -> Key:
    nest = "::".join(f.nest.rsplit("::", 2)[1:])
    file = os.path.relpath(f.file, directory) if f.file and not f.file.startswith("<") else f.file
    return places.readable(file), places.readable(nest), f.diagnostic.code


def read(path: Path) -> Counter[Key]:
    """How many findings of each kind are allowed.  Raises ``BaselineError``."""
    allowed: Counter[Key] = Counter()
    for entry in entries(path):
        allowed[entry["file"], entry["nest"], entry["code"]] += entry["count"]
    return allowed


def entries(path: Path) -> list[dict[str, Any]]:
    """The entries as they stand in the file.  Raises ``BaselineError``."""
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["schema_version"] != SCHEMA_VERSION:
            raise BaselineError(
                f"{path}: schema version {content['schema_version']!r}, this version reads {SCHEMA_VERSION}"
            )
        return [
            {**entry, "count": int(entry["count"])} | {k: str(entry[k]) for k in ("file", "nest", "code")}
            for entry in content["findings"]
        ]
    except OSError as error:
        raise BaselineError(f"cannot read the baseline {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        told = str(error).splitlines()[0] if not isinstance(error, KeyError) else f"{error} is missing"
        raise BaselineError(f"{path}: not a baseline of mdh-lift: {told}") from None


def in_baseline(f: Finding) -> bool:
    """May a baseline allow it?  Information needs no leave, and what cannot be ignored gets none."""
    return f.diagnostic.severity != "info" and may_be_suppressed(f.diagnostic.code)


def write(path: Path, findings: Iterable[Finding], kept: Collection[dict[str, Any]] = ()) -> int:
    """Write the file anew; how many findings it allows.  ``kept``: of files that were not looked at."""
    rows: dict[Key, dict[str, Any]] = {(e["file"], e["nest"], e["code"]): dict(e) for e in kept}
    for f in findings:
        if in_baseline(f):
            file, nest, code = key = key_of(f, path.parent)
            row = rows.setdefault(key, {"file": file, "nest": nest, "code": code, "count": 0})
            row["count"] += 1
            row.setdefault("message", places.readable(f.diagnostic.message))
    content = {"schema_version": SCHEMA_VERSION, "findings": [rows[key] for key in sorted(rows)]}
    write_output(str(path), (json.dumps(content, indent=2) + "\n").encode())
    return sum(row["count"] for row in rows.values())
