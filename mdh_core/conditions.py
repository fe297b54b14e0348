"""Conditions of C as text: their parts, and the names in them.

    "(a > 0 && (b > LEAST))"   ->   a > 0,  b > LEAST

``tests/test_assume.py`` compares with what C says.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*", re.ASCII)  # not in 0x1F, 1e5, 2.0f, of a member


def conjuncts(text: str) -> list[str]:
    """Conditions without brackets around them that all hold where ``text`` does, and only there."""
    text, depth, cuts = text.strip(), 0, [0]
    for k, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0 and (text.startswith("||", k) or c in "?,"):
            return [text]
        if depth == 0 and text.startswith("&&", k):
            cuts.append(k)
        if depth == 0 and c == ")" and k == len(text) - 1 and text[0] == "(" and len(cuts) == 1:
            inner = text[1:-1]
            if _is_balanced(inner):
                return conjuncts(inner)
    if len(cuts) == 1:
        return [text]
    ends = [*cuts[1:], len(text)]
    return [x for a, b in zip(cuts, ends, strict=True) for x in conjuncts(text[a:b].removeprefix("&&"))]


def names_in(text: str) -> set[str]:
    """Identifiers and keywords, without members (``s.n`` has the name ``s``, ``p->n`` has both)."""
    return set(_NAME.findall(text))


def _is_balanced(text: str) -> bool:
    """Whether no bracket closes one that opens before the text."""
    depth = 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if depth < 0:
            return False
    return depth == 0
