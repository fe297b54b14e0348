"""Macros that a kernel depends on: their values as a preprocessor condition, the definitions of the others.

A nest is lifted after preprocessing: in ``i < N`` with ``#define N 512`` the lifter sees 512, and so does the
kernel.  Where the file is later compiled with another N, the condition ``(N) == 512`` lets the original run.

The values come from the preprocessor itself: the file is preprocessed once more with one line per name in
front of the nest, and a name that expands to an integer constant expression is such a macro.

No condition can ask for what other macros stand for (``FOR(i, n)``, ``SQ(x)``); where the definition of one
changes, what was spliced is stale (``used``).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence

from frontend_c.lexer import closing, tokens
from frontend_c.preprocess import CompileCommand, preprocess
from mdh_core.diagnostics import Refusal
from mdh_core.source import SourceFile, Span

_PROBE = "mdh_lift_probe"
_DEFINE = re.compile(r"#define (\w+)(.*)")
_MARKER = re.compile(r'# \d+ "(?:\\.|[^"\\])*"(.*)')
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_DEEPEST = 32  # macros within one another
_PREDEFINED = re.compile(r"__\w*|linux|unix|i386")
_ARITHMETIC = (ast.Expression, ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)


def condition(source: SourceFile, command: CompileCommand, function: Span, nest: Span) -> str:
    """Asks for the value of every integer macro that the nest may depend on: ``(K) == 64 && (N) == 512``.

    These are the macros in file-scope declarations and in the function up to the end of the nest; empty
    where there are none.
    """
    names = sorted(_reached(_names(source.data, function, nest), definitions(source, command)))
    before, inside = (_values(source, command, names, at) for at in (function.start, nest.start))
    values = {name: value for name, value in before.items() if inside.get(name) == value}
    return " && ".join(
        f"({name}) == {value}{'U' if value >= 1 << 63 else ''}" for name, value in values.items()
    )


def defined(source: SourceFile, command: CompileCommand) -> frozenset[str]:
    """Names of all macros of the file and its headers; nothing else in a kernel may be called like one."""
    try:
        text = preprocess(source, command, dump="-dM").decode("utf-8", "replace")
    except Refusal:
        return frozenset()
    return frozenset(re.findall(r"^#define (\w+)", text, re.MULTILINE))


Definitions = Mapping[str, frozenset[str]]  # of each macro, from behind its name: `(x) x` has a parameter


def definitions(source: SourceFile, command: CompileCommand) -> Definitions:
    """Every definition of each macro that the file, its own headers and the command line define."""
    try:
        text = preprocess(source, command, dump="-dD").decode("utf-8", "replace")
    except Refusal:
        return {}
    found: dict[str, frozenset[str]] = {}
    system = False
    for line in text.splitlines():
        if marker := _MARKER.match(line):
            system = "3" in marker[1].split()
        elif not system and (define := _DEFINE.match(line)) and not _PREDEFINED.fullmatch(define[1]):
            found[define[1]] = found.get(define[1], frozenset()) | {define[2].rstrip()}
    return found


def used(table: Definitions, data: bytes, nest: Span) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The macros that the nest mentions, also through others, with their definitions; without integers."""
    inside = tokens(data[nest.start : nest.end])
    names = {t.text.decode("utf-8", "replace") for t in inside if t.kind == "id"}
    reached = _reached(names, table) & table.keys()
    return tuple((n, tuple(sorted(table[n]))) for n in sorted(reached) if not _is_integer(n, table))


def _reached(names: Collection[str], table: Definitions) -> set[str]:
    """The names, and those that the definitions of macros among them mention, but for integers."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            if name in table and not _is_integer(name, table):
                left += [word for text in table[name] for word in _WORD.findall(text)]
    return found


def _is_integer(name: str, table: Definitions, depth: int = 0) -> bool:
    """Does each definition make an integer constant expression of it, whose value says all?"""

    def stands_for(text: str) -> bool:
        words = set(_WORD.findall(text))
        return (
            not text.startswith("(")
            and depth < _DEEPEST
            and all(word in table and _is_integer(word, table, depth + 1) for word in words)
            and integer(_WORD.sub("1", text)) is not None
        )

    return all(map(stands_for, table[name]))


def _names(data: bytes, function: Span, nest: Span) -> set[str]:
    """Identifiers outside of function bodies, and in the function up to the end of the nest."""
    stream = tokens(data)
    found: set[str] = set()
    k = 0
    while k < len(stream):
        token = stream[k]
        inside = function.start <= token.start < nest.end
        if token.kind == "id":
            found.add(token.text.decode("utf-8", "replace"))
        elif token.text == b"{" and not inside and k and stream[k - 1].text == b")":
            k = closing(stream, k) or k  # the body of another function
        elif token.start >= nest.end and token.start < function.end:
            k = max(k, next((j for j, t in enumerate(stream) if t.start >= function.end), len(stream)) - 1)
        k += 1
    return {name for name in found if not _PREDEFINED.fullmatch(name) and name.isascii()}


def _values(source: SourceFile, command: CompileCommand, names: Sequence[str], at: int) -> dict[str, int]:
    """Values of the names that stand for an integer at an offset of the file."""
    lines = "".join(f"\n{_PROBE} {k} {name}" for k, name in enumerate(names))
    probed = source.data[:at] + lines.encode() + b"\n" + source.data[at:]
    try:
        text = preprocess(source, command, probed).decode("utf-8", "replace")
    except Refusal:
        return {}
    found = {}
    for k, name in enumerate(names):
        expanded = re.search(rf"^{_PROBE} {k} (.*)$", text, re.MULTILINE)
        value = integer(expanded[1]) if expanded and expanded[1].strip() != name else None
        if value is not None:
            found[name] = value
    return found


def integer(text: str) -> int | None:
    """The value of a C integer constant expression of literals and operators, or None.

    >>> integer("(4096UL - 1)"), integer("sizeof(int)"), integer("1.5")
    (4095, None, None)
    """
    plain = re.sub(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]*\b", r"\1", text)
    plain = re.sub(r"\b0([0-7]+)\b", r"0o\1", plain).replace("/", "//")
    try:
        tree = ast.parse(plain.strip(), mode="eval")
        if not all(isinstance(node, _ARITHMETIC) for node in ast.walk(tree)):
            return None
        value = eval(compile(tree, "macro", "eval"), {"__builtins__": {}})
    except (SyntaxError, ValueError, ArithmeticError, MemoryError, RecursionError):
        return None
    return value if type(value) is int and -(2**63) <= value < 2**64 else None
