"""A text as the preprocessor would leave it, as far as the text alone tells; nothing is started or opened.

    #define N 10                                # 1 "<stdin>"
    for (i = 0; i < N; i++)             ->      for (i = 0; i < 10; i++)

For workspaces that are not trusted.  Macros without parameters are replaced, conditions that the text decides
are obeyed (of others, the first branch counts), and what standard headers name as types is declared; all else
of headers is unknown, so a refusal of what comes out is no finding about the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from frontend_c.lexer import Token, closing, tokens

_TYPES = {
    "int": "int8_t int16_t int32_t int_fast8_t int_least8_t wchar_t FILE time_t clock_t",
    "long": "int64_t intptr_t ptrdiff_t ssize_t intmax_t off_t",
    "unsigned int": "uint8_t uint16_t uint32_t",
    "unsigned long": "uint64_t uintptr_t size_t uintmax_t",
    "_Bool": "bool",
}
_EXACT = {
    "int8_t": "signed char", "uint8_t": "unsigned char", "int16_t": "short", "uint16_t": "unsigned short",
}  # fmt: skip
_WORDS = {
    b"__restrict": b"restrict", b"__restrict__": b"restrict", b"__inline": b"inline",
    b"__inline__": b"inline", b"__const": b"const", b"__volatile__": b"volatile", b"__signed__": b"signed",
    b"__extension__": b"",
}  # fmt: skip
_DROPPED = (b"__attribute__", b"__attribute", b"__declspec", b"__asm__")
_LINE = re.compile(rb"#\s*([a-z_]+)\b(.*)", re.DOTALL)
_DEFINE = re.compile(rb"\s*([A-Za-z_]\w*)(\(?)(.*)", re.DOTALL)
_GAP = re.compile(rb"\\[ \t]*\r?\n|/\*.*?(?:\*/|\Z)|//[^\n]*", re.DOTALL)
_NAME = re.compile(rb"\s*(!?)\s*(?:defined\s*\(?\s*)?([A-Za-z_]\w*)\s*\)?\s*$")
_DEEPEST = 20


def buffer_text(data: bytes) -> bytes:
    """What stands for the output of ``cc -E``, with line markers."""
    out = [b'# 1 "<known>"\n', _prelude(), b'# 1 "<stdin>"\n']
    line, at = 1, 0  # of what has been put out; up to where lines of the text are counted
    number = 1
    for token in _active(data):
        number += data.count(b"\n", at, token.start)
        at = token.start
        if number > line:
            out.append(b"\n" * (number - line))
            line = number
        out.append(token.text + (b"" if token.kind == "directive" else b" "))
    return b"".join(out) + b"\n"


def _prelude() -> bytes:
    lines = []
    for meaning, names in _TYPES.items():
        lines += [f"typedef {_EXACT.get(name, meaning)} {name};\n" for name in names.split()]
    return "".join(lines).encode()


def _active(data: bytes) -> Iterator[Token]:
    """Tokens that are compiled, with macros replaced; of preprocessor lines, pragmas on one line."""
    macros: dict[bytes, tuple[bytes, ...]] = {}
    taken: list[tuple[bool, bool]] = []  # per open condition: is this branch compiled; was one before
    stream = tokens(data)
    k = 0
    while k < len(stream):
        token = stream[k]
        k += 1
        if token.kind == "directive":
            word, rest = _parts(token.text)
            if word in (b"if", b"ifdef", b"ifndef"):
                holds = _holds(word, rest, macros)
                taken.append((holds, holds))
            elif word in (b"elif", b"else") and taken:
                _, before = taken.pop()
                holds = not before and (word == b"else" or _holds(b"if", rest, macros))
                taken.append((holds, before or holds))
            elif word == b"endif" and taken:
                taken.pop()
            elif all(now for now, _ in taken):
                if word == b"pragma":
                    yield Token("directive", token.start, token.end, b"#pragma " + rest.strip())
                _learn(word, rest, macros)
        elif not all(now for now, _ in taken):
            continue
        elif token.text in _DROPPED and k < len(stream) and stream[k].text == b"(":
            k = (closing(stream, k) or k) + 1
        else:
            yield from (Token(token.kind, token.start, token.end, text) for text in _expanded(token, macros))


def _parts(text: bytes) -> tuple[bytes, bytes]:
    found = _LINE.match(_GAP.sub(b" ", text))
    return (found[1], found[2]) if found else (b"", b"")


def _learn(word: bytes, rest: bytes, macros: dict[bytes, tuple[bytes, ...]]) -> None:
    found = _DEFINE.match(rest)
    if found and word == b"undef":
        macros.pop(found[1], None)
    elif found and word == b"define":
        macros.pop(found[1], None)
        if not found[2]:
            macros[found[1]] = tuple(t.text for t in tokens(found[3]))


def _holds(word: bytes, rest: bytes, macros: Mapping[bytes, tuple[bytes, ...]]) -> bool:
    """A condition; true where the text does not decide it."""
    text = rest.strip()
    if word == b"if" and text.isdigit():
        return int(text) != 0
    found = _NAME.match(rest)
    if found is None or (word == b"if" and b"defined" not in rest):
        return True
    negated = (word == b"ifndef") != (found[1] == b"!")
    return (found[2] in macros) != negated


def _expanded(token: Token, macros: Mapping[bytes, tuple[bytes, ...]], depth: int = 0) -> Iterator[bytes]:
    if token.kind != "id":
        yield token.text
    elif token.text in macros and depth < _DEEPEST:
        for text in macros[token.text]:
            kind = "id" if re.match(rb"[A-Za-z_]", text) and text != token.text else "punct"
            yield from _expanded(Token(kind, 0, 0, text), macros, depth + 1)
    else:
        yield _WORDS.get(token.text, token.text)
