"""A nest with ``#pragma omp parallel for`` before some of its loops, and their other iterators private.

before   for (i = 0; i < n; i++)
             for (j = 0; j < m; j++) ...
after    #pragma omp parallel for private(j)
         for (i = 0; i < n; i++)
             for (j = 0; j < m; j++) ...
"""

from __future__ import annotations

import re

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_FOR = re.compile(r"\bfor\s*(?=\()")


def with_directives(nest: str, where: str, outer: list[str]) -> str:
    """``where``: ordinals of loops with their clauses; ``outer``: scalars declared outside of the nest."""
    text = _COMMENT.sub(" ", nest).replace("\\\n", " ")
    starts = [found.start() for found in _FOR.finditer(text)]
    inserted = []
    for part in where.split():
        ordinal, _, clause = part.partition(":")
        start = starts[int(ordinal)]
        body = text[start : _statement_end(text, start)]
        own = [name for name in outer if _is_assigned(name, body) and name not in re.findall(r"\w+", clause)]
        clauses = ([f"private({', '.join(own)})"] if own else []) + ([clause] if clause else [])
        inserted.append((start, f"\n#pragma omp parallel for {' '.join(clauses)}\n"))
    for start, directive in reversed(inserted):
        text = text[:start] + directive + text[start:]
    return text


def _is_assigned(name: str, text: str) -> bool:
    changed = rf"\b{name}\s*(?:[-+*/]?=(?!=)|\+\+|--)|(?:\+\+|--)\s*{name}\b"
    return re.search(changed, text) is not None


def _statement_end(text: str, at: int) -> int:
    """Behind the statement that begins at ``at``."""
    while text[at].isspace():
        at += 1
    if text[at] == "{":
        return _closed(text, at)
    if control := re.compile(r"(for|while|if)\s*(?=\()").match(text, at):
        at = _statement_end(text, _closed(text, control.end()))
        other = re.compile(r"\s*else\b").match(text, at)
        return _statement_end(text, other.end()) if other else at
    return text.index(";", at) + 1


def _closed(text: str, at: int) -> int:
    """Behind the bracket that closes the one at ``at``."""
    depth = 0
    for k in range(at, len(text)):
        depth += (text[k] in "({[") - (text[k] in ")}]")
        if depth == 0:
            return k + 1
    raise ValueError(f"a bracket is never closed: {text[at : at + 40]}")
