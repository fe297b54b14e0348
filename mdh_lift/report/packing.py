"""Data inside a page: objects with the same keys as columns, compressed, as text.

    plain JSON value  ->  columns  ->  gzip  ->  base 85     and back: ``unpacked``, in the page ``page.js``

A list of objects that all have the same keys becomes ``{"%": keys, "=": [one list for each key]}``, so that
what is alike stands together and compresses; an object that has the key ``%`` itself becomes
``{"%": null, "=": object}``.  The digits are those of Python's base 85 without ``<``, so that nothing ends
the element that holds them; they are a sixteenth shorter than base 64.  Shown right by tests/test_report.py,
and for the other half by what the page saves (tests/test_report_browser.py).
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Any

_KEYS, _COLUMNS = "%", "="


def packed(value: Any) -> str:
    """Of plain values without numbers that JSON does not have."""
    text = json.dumps(columns(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return compressed(text.encode())


def unpacked(text: str) -> Any:
    return rows(json.loads(gzip.decompress(base64.b85decode(text.replace(",", "<")))))


def compressed(data: bytes) -> str:
    return base64.b85encode(gzip.compress(data, 9, mtime=0)).decode().replace("<", ",")


def columns(value: Any) -> Any:
    """
    >>> columns([{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    {'%': ['a', 'b'], '=': [[1, 3], [2, 4]]}
    """
    if isinstance(value, Mapping):
        plain = {k: columns(v) for k, v in value.items()}
        return {_KEYS: None, _COLUMNS: plain} if _KEYS in plain else plain
    if not isinstance(value, list | tuple):
        return value
    keys = list(value[0]) if len(value) > 1 and isinstance(value[0], Mapping) else []
    if keys and all(isinstance(v, Mapping) and list(v) == keys for v in value):
        return {_KEYS: keys, _COLUMNS: [columns([v[k] for v in value]) for k in keys]}
    return [columns(v) for v in value]


def rows(value: Any) -> Any:
    """What ``columns`` made it of."""
    if isinstance(value, list):
        return [rows(v) for v in value]
    if not isinstance(value, dict):
        return value
    if _KEYS not in value:
        return {k: rows(v) for k, v in value.items()}
    keys, inner = value[_KEYS], value[_COLUMNS]
    if keys is None:
        return {k: rows(v) for k, v in inner.items()}
    return [dict(zip(keys, row, strict=True)) for row in zip(*map(rows, inner), strict=True)]
