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
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["schema_version"] != SCHEMA_VERSION:
            raise BaselineError(
                f"{path}: schema version {content['schema_version']!r}, this version reads {SCHEMA_VERSION}"
            )
        allowed: Counter[Key] = Counter()
        for entry in content["findings"]:
            allowed[str(entry["file"]), str(entry["nest"]), str(entry["code"])] += int(entry["count"])
    except OSError as error:
        raise BaselineError(f"cannot read the baseline {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        told = str(error).splitlines()[0] if not isinstance(error, KeyError) else f"{error} is missing"
        raise BaselineError(f"{path}: not a baseline of mdh-lift: {told}") from None
    return allowed


def in_baseline(f: Finding) -> bool:
    """May a baseline allow it?  Information needs no leave, and what cannot be ignored gets none."""
    return f.diagnostic.severity != "info" and may_be_suppressed(f.diagnostic.code)


def write(path: Path, findings: Iterable[Finding], kept: Collection[tuple[Key, int]] = ()) -> int:
    """Write the file anew; how many findings it allows.  ``kept``: of files that were not looked at."""
    rows: dict[Key, dict[str, object]] = {}
    counts: Counter[Key] = Counter(dict(kept))
    for f in findings:
        if in_baseline(f):
            key = key_of(f, path.parent)
            counts[key] += 1
            rows.setdefault(key, {"message": places.readable(f.diagnostic.message)})
    entries = [
        {"file": file, "nest": nest, "code": code, "count": counts[file, nest, code]}
        | rows.get((file, nest, code), {})
        for file, nest, code in sorted(counts)
    ]
    text = json.dumps({"schema_version": SCHEMA_VERSION, "findings": entries}, indent=2) + "\n"
    write_output(str(path), text.encode())
    return sum(counts.values())
