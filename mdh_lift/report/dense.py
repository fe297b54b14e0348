"""HTML without what its parser supplies by itself: the same document in fewer bytes.

    page  ->  page: no optional end tags in tables and lists, no quotes around simple values, no lines between

Blocks whose blanks count (``pre``) or whose hashes do (``script``, ``style``) stay as they are.  Text has no
bare ``<`` or ``>``, so whatever is between them is a tag.  Shown right by a browser that makes the same
document of both (tests/test_report_browser.py).
"""

from __future__ import annotations

import re

_APART = re.compile(r"(<(pre|script|style)\b.*?</\2>)", re.DOTALL)
_BETWEEN = re.compile(r">\s*\n\s*<")
_OPTIONAL = re.compile(r"</(?:td|th|tr|li|dt|dd|thead|tbody)>")
_QUOTED = re.compile(r'([\w:-]+)="([\w./:#%-]*[\w.:#%-])"')
_TAG = re.compile(r"<[a-zA-Z][^<>]*>")


def dense(page: str) -> str:
    parts = _APART.split(page)  # text, block, its tag, text, ...
    out = [_denser(parts[0])]
    for block, text in zip(parts[1::3], parts[3::3], strict=True):
        end = block.index(">") + 1
        out += [_unquoted(block[:end]), block[end:], _denser(text)]
    return "".join(out)


def _denser(text: str) -> str:
    text = _OPTIONAL.sub("", _BETWEEN.sub("><", text))
    return _TAG.sub(lambda tag: _unquoted(tag[0]), text)


def _unquoted(tag: str) -> str:
    """A value before ``/>`` keeps its quotes: the slash would become part of it."""
    return tag if tag.endswith("/>") else _QUOTED.sub(r"\1=\2", tag)
