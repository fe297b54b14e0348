"""The parser behind one door: declarations of a preprocessed file, parsed one by one.

pycparser knows C but few extensions, and it records where a node starts but not where it ends.
So the text is cut into top-level declarations, each is parsed alone with ``typedef int T;`` for
every type name that it uses, and only what is asked for has to parse.  Each token goes on a line
of its own: the line of a node then *is* the index of its first token, and ``positions.py`` knows
the bytes of that.

No other module imports pycparser; ``c_ast`` is passed on from here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pycparser import c_ast, c_generator, c_parser

from frontend_c.lexer import Token, statement_end
from frontend_c.positions import PreToken

__all__ = ["Chunk", "Node", "Unit", "c_ast", "c_text", "first_token", "walk_nodes"]

Node = Any  # a node of c_ast, which has no types

# After our shims, glibc's `typedef float _Float32;` for clang says `typedef float float;`.
_KEYWORDS = frozenset(
    [
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "_Bool",
        "_Complex",
    ]
)
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")


class UnparsedError(Exception):
    """The parser does not know this declaration; ``token`` is where it gave up."""

    def __init__(self, message: str, token: int) -> None:
        super().__init__(message)
        self.message = message
        self.token = token


@dataclass(eq=False)
class Chunk:
    """Tokens ``[start, end)`` of one top-level declaration; ``kind`` by its look alone."""

    start: int
    end: int
    kind: str  # "function", "typedef" or "other"
    name: str = ""  # of a function
    names: frozenset[str] = frozenset()  # all identifiers in it
    tree: Node | None = field(default=None, repr=False)
    failure: UnparsedError | None = field(default=None, repr=False)
    blanked: list[tuple[int, int, UnparsedError]] = field(
        default_factory=list, repr=False
    )  # statements left out


class Unit:
    """A preprocessed translation unit, parsed as far as somebody asks."""

    def __init__(self, stream: Sequence[PreToken]) -> None:
        self.stream = stream
        self.chunks = _cut(stream)
        self._parser = c_parser.CParser()
        self._typedefs: dict[str, Chunk] = {}
        self._mentions: dict[str, list[Chunk]] = {}
        self.typeof: dict[str, list[str]] = {}  # names that stand for `typeof (...)`
        for chunk in self.chunks:
            for name in chunk.names:
                self._mentions.setdefault(name, []).append(chunk)
        for chunk in self.chunks:
            if chunk.kind == "typedef":
                self._learn(chunk)

    def _learn(self, chunk: Chunk) -> None:
        """Note the type names of a typedef, by a guess where it does not parse."""
        tree = self.tree(chunk)
        names = [d.name for d in tree.ext if isinstance(d, c_ast.Typedef)] if tree else []
        for name in names or _guess_typedef(self.stream[chunk.start : chunk.end]):
            self._typedefs.setdefault(name, chunk)

    def tree(self, chunk: Chunk) -> Node | None:
        """The syntax tree of a chunk, or None where it does not parse (see ``failure``)."""
        if chunk.tree is None and chunk.failure is None:
            try:
                chunk.tree = self._parse(chunk)
            except UnparsedError as failure:
                chunk.failure = failure
        return chunk.tree

    def _parse(self, chunk: Chunk) -> Node:
        """The tree.  In a function, statements that the parser does not know are left out (``blanked``)."""
        lines = ["" if t.kind == "pragma" else t.text for t in self.stream[chunk.start : chunk.end]]
        made = plain_words(lines)
        self.typeof.update({name: list(words) for name, words in made.items()})
        first: UnparsedError | None = None
        for _ in range(_MOST_BLANKS):
            try:
                return self._parsed(chunk, lines, made)
            except UnparsedError as failure:
                first = first or failure
                found = (
                    _statement_at(lines, failure.token - chunk.start) if chunk.kind == "function" else None
                )
                if found is None:
                    break
                begin, end = found
                chunk.blanked.append((chunk.start + begin, chunk.start + end, failure))
                names = {w for w in lines[begin:end] if _NAME.match(w) and w not in _KEYWORDS}
                names -= {n for n in names if n in self._typedefs or n in made}
                # what it names may change in it; the address of a name says so
                lines[begin:end] = [
                    "".join(f"&{n};" for n in sorted(names)) or ";",
                    *[""] * (end - begin - 1),
                ]
        assert first is not None
        chunk.blanked.clear()
        raise first

    def _parsed(self, chunk: Chunk, lines: Sequence[str], made: Mapping[str, Sequence[str]]) -> Node:
        known = [n for n in chunk.names if n in self._typedefs and self._typedefs[n].start < chunk.start]
        known += made
        prefix = "".join(f"typedef int {name};" for name in sorted(known))
        # Line 1 holds the prefix, line 2 + k the k-th token.
        key = (chunk.start, prefix, *lines) if chunk.kind == "typedef" else ()
        if key in _TYPEDEFS:
            return _TYPEDEFS[key]
        try:
            tree = self._parser.parse("\n".join([prefix, *lines]) + "\n", "")
        except Exception as error:  # whatever stops the parser, the declaration is unreadable
            found = re.match(r"[^:]*:(?:(\d+)(?::\d+)?:)? *(.*)", str(error))
            line = int(found[1]) if found and found[1] else self._stopped_at()
            message = found[2] if found else type(error).__name__
            token = min(max(chunk.start + line - 2, chunk.start), chunk.end - 1)
            raise UnparsedError(_message(message), token) from error
        tree.ext = tree.ext[len(known) :]
        _number(tree, chunk.start)
        if key:
            if len(_TYPEDEFS) >= _MOST_TYPEDEFS:
                _TYPEDEFS.clear()
            _TYPEDEFS[key] = tree
        return tree

    def expression(self, words: Sequence[str]) -> Node | None:
        """The expression, or else the type name, that these tokens spell."""
        known = "".join(f"typedef int {n};" for n in words if n in self._typedefs)
        for text, kind in (
            (f"int f(void) {{ ({' '.join(words)}); }}", "body"),
            (f"{' '.join(words)} f;", "type"),
        ):
            try:
                last = self._parser.parse(known + text, "").ext[-1]
            except Exception:
                continue
            node = last.body.block_items[0] if kind == "body" else last.type
            for n in walk_nodes(node):
                n.coord = None
            return node
        return None

    def _stopped_at(self) -> int:
        """The line at which the parser gave up, for the errors that do not say."""
        stream = getattr(self._parser, "_tokens", None)
        token = stream.peek() if stream is not None else None
        return 2 if token is None else int(token.lineno)

    def typedef(self, name: str) -> Node | None:
        """The type that a name stands for, or None."""
        chunk = self._typedefs.get(name)
        tree = self.tree(chunk) if chunk else None
        for node in tree.ext if tree else ():
            if isinstance(node, c_ast.Typedef) and node.name == name:
                return node.type
        return None

    def mentions(self, name: str) -> Iterator[Chunk]:
        """Declarations in which a name occurs, in order."""
        yield from self._mentions.get(name, ())

    def record(self, tag: str) -> Node | None:
        """The definition of ``struct tag`` at file level."""
        for chunk in self.mentions(tag):
            tree = self.tree(chunk) if chunk.kind != "function" else None
            for node in walk_nodes(tree) if tree else ():
                if isinstance(node, c_ast.Struct) and node.name == tag and node.decls:
                    return node
        return None

    def enumerators(self, name: str) -> Node | None:
        """The file-level enum that defines the constant ``name``."""
        for chunk in self.mentions(name):
            tree = self.tree(chunk) if chunk.kind != "function" else None
            for node in walk_nodes(tree) if tree else ():
                values = node.values.enumerators if isinstance(node, c_ast.Enum) and node.values else ()
                if any(getattr(e, "name", None) == name for e in values):
                    return node
        return None

    def variable(self, name: str) -> Node | None:
        """The file-level declaration of a variable; the one with an initialiser or extents if any."""
        found = None
        for chunk in self.mentions(name):
            tree = self.tree(chunk) if chunk.kind == "other" else None
            for node in tree.ext if tree else ():
                if not isinstance(node, c_ast.Decl) or node.name != name or _is_function(node):
                    continue
                if found is None or node.init is not None or "extern" in (found.storage or ()):
                    found = node
        return found

    def is_pointed_to(self, name: str) -> bool:
        """May a pointer hold the address of a file-level variable?"""
        found = self.variable(name)
        if found is None or "static" not in (found.storage or ()):
            return True
        stream = self.stream
        return any(
            stream[k].text == name and stream[k - 1].text == "&"
            for chunk in self.mentions(name) for k in range(chunk.start + 1, chunk.end)
        )  # fmt: skip

    def function(self, name: str) -> tuple[Chunk, Node] | None:
        """The definition of a function, wherever it stands in the unit."""
        for chunk in self.mentions(name):
            if chunk.kind == "function" and chunk.name == name:
                tree = self.tree(chunk)
                node = definition_in(tree) if tree else None
                if node is not None:
                    return chunk, node
        return None

    def function_chunk(self, name: str) -> Chunk | None:
        """Where a function is defined, whether or not it parses."""
        return next((c for c in self.mentions(name) if c.kind == "function" and c.name == name), None)


_MOST_BLANKS = 40
_MOST_TYPEDEFS = 4000
# Trees of type definitions by their tokens and place: those of headers are the same from file to file.
_TYPEDEFS: dict[tuple[object, ...], Node] = {}
_NAME = re.compile(r"[A-Za-z_]\w*$")
_TYPEOF = ("typeof", "__typeof__", "__typeof", "typeof_unqual")


def plain_words(lines: list[str]) -> dict[str, Sequence[str]]:
    """Take words out that the parser does not know; each ``typeof (e)`` becomes a name, which is returned."""
    made: dict[str, Sequence[str]] = {}
    k = 0
    while k < len(lines):
        if lines[k] in _TYPEOF and k + 1 < len(lines) and lines[k + 1] == "(":
            close = _partner(lines, k + 1)
            inside = lines[k + 2 : close]
            name = _stands_for(inside)
            made[name] = inside
            lines[k : close + 1] = [name, *[""] * (close - k)]
        elif lines[k] == "__auto_type" and lines[k + 2 : k + 3] == ["="]:
            inside = lines[k + 3 : _simple_end(lines, k + 3)]
            lines[k] = _stands_for(inside)
            made[lines[k]] = inside
        elif (
            lines[k] == "[" and lines[k + 1 : k + 2] == ["["] and (not k or lines[k - 1] in _BEFORE_ATTRIBUTE)
        ):
            close = _partner(lines, k)
            lines[k : close + 1] = [""] * (close + 1 - k)
        k += 1
    return made


def _stands_for(words: Sequence[str]) -> str:
    """A name for ``typeof`` of these tokens, always the same."""
    return "mdh_typeof_" + hashlib.sha256(" ".join(words).encode("latin-1", "replace")).hexdigest()[:12]


def _simple_end(lines: Sequence[str], k: int) -> int:
    """Index of the ``;`` or ``,`` that ends an initialiser."""
    while k < len(lines) and lines[k] not in (";", ","):
        k = _partner(lines, k) + 1 if lines[k] in _OPEN else k + 1
    return k


_BEFORE_ATTRIBUTE = frozenset((";", "{", "}", ")", ":", ""))


def _partner(lines: Sequence[str], k: int) -> int:
    """Index of the bracket that closes the one at ``k`` (at worst, the last token)."""
    depth = 0
    for j in range(k, len(lines)):
        depth += (lines[j] in _OPEN) - (lines[j] in _CLOSE)
        if not depth:
            return j
    return len(lines) - 1


def _statement_at(lines: Sequence[str], k: int) -> tuple[int, int] | None:
    """The smallest statement of a function's body around token ``k``: ``[begin, end)``."""
    begin = k
    depth = 0
    while begin > 0:
        text = lines[begin - 1]
        if depth == 0 and text in (";", "{", "}"):
            break
        depth += (text in (")", "]")) - (text in ("(", "["))
        depth = max(depth, 0)  # from inside of brackets to what is before them
        begin -= 1
    if not any(text == "{" for text in lines[:begin]):
        return None
    words = [
        Token("id" if _NAME.match(t) else "punct", j, j + 1, t.encode("latin-1", "replace"))
        for j, t in enumerate(lines)
    ]
    while begin < len(lines) and not lines[begin]:
        begin += 1
    end = statement_end([w if w.text else Token("directive", w.start, w.end, b"") for w in words], begin)
    return (begin, end) if end is not None and begin <= k < end else None


def _message(text: str) -> str:
    """The parser's words in our style."""
    if found := re.match(r"before: (.+)$", text):
        return f"unexpected `{found[1]}`"
    return text[:1].lower() + text[1:].rstrip(".")


def _is_function(node: Node) -> bool:
    return isinstance(node.type, c_ast.FuncDecl)


def _number(tree: Node, start: int) -> None:
    """Turn lines of the parser's input into indices of the token stream."""
    seen: set[int] = set()
    for node in walk_nodes(tree):
        coord = node.coord
        if coord is not None and id(coord) not in seen:
            seen.add(id(coord))
            coord.line += start - 2


def first_token(node: Node) -> int | None:
    """Index of the token where a node starts (an operator's is that of its first operand)."""
    return None if node.coord is None else int(node.coord.line)


def walk_nodes(node: Node) -> Iterator[Node]:
    """The node and all below it, each before what is in it."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        # None: an item that the parser left out
        waiting += [child for _, child in reversed(one.children()) if child is not None]


def c_text(node: Node) -> str:
    """C text of an expression or a type."""
    return str(c_generator.CGenerator(reduce_parentheses=True).visit(node))


def definition_in(tree: Node) -> Node | None:
    """The function that a chunk defines; the parser takes a body behind ``int (f)``, too, which is none."""
    found = (n for n in tree.ext if isinstance(n, c_ast.FuncDef))
    return next((n for n in found if isinstance(n.decl.type, c_ast.FuncDecl)), None)


def _guess_typedef(part: Sequence[PreToken]) -> list[str]:
    """The name that an unreadable typedef most likely defines: the last one outside brackets."""
    depth, name, inner = 0, "", ""
    for k, token in enumerate(part):
        if token.text in _OPEN:
            if token.text == "(" and k + 2 < len(part) and part[k + 1].text == "*" and not inner:
                inner = part[k + 2].text
            depth += 1
        elif token.text in _CLOSE:
            depth -= 1
        elif token.kind == "id" and depth == 0:
            name = token.text
    return [n for n in (inner or name,) if n and n not in _KEYWORDS]


def _cut(stream: Sequence[PreToken]) -> list[Chunk]:
    """Top-level declarations by bracket depth; a stray pragma belongs to none."""
    chunks: list[Chunk] = []
    start, depth, body = 0, 0, False
    for k, token in enumerate(stream):
        if token.kind == "pragma":
            start = k + 1 if start == k else start
        elif token.kind != "punct":
            continue
        elif token.text in _OPEN:
            if depth == 0 and token.text == "{":
                body = _opens_function(stream, start, k)
            depth += 1
        elif token.text in _CLOSE:
            depth = max(0, depth - 1)
            if depth == 0 and token.text == "}" and body:
                chunks.append(_chunk(stream, start, k + 1, True))
                start, body = k + 1, False
        elif token.text == ";" and depth == 0 and not _is_old_style(stream[start:k]):
            chunks.append(_chunk(stream, start, k + 1, False))
            start = k + 1
    if start < len(stream):
        chunks.append(_chunk(stream, start, len(stream), body))
    return [c for c in chunks if c.end - c.start > 1]


def _opens_function(stream: Sequence[PreToken], start: int, k: int) -> bool:
    """Is the ``{`` at ``k`` the body of a function, rather than of a struct or an initialiser?"""
    previous = next((t for t in reversed(stream[start:k]) if t.kind != "pragma"), None)
    return previous is not None and (previous.text == ")" or previous.text == ";")


def _is_old_style(part: Sequence[PreToken]) -> bool:
    """Do these tokens begin a K&R definition, ``double total(x, n) const double *x; ...``?"""
    k = next((j for j, t in enumerate(part) if t.kind != "id" and t.text != "*"), len(part))
    if k == len(part) or part[k].text != "(":
        return False
    close = next((j for j in range(k, len(part)) if part[j].text == ")"), len(part))
    inside = part[k + 1 : close]
    names_only = all(t.kind == "id" or t.text == "," for t in inside)
    return bool(inside) and names_only and close + 1 < len(part) and part[close + 1].kind == "id"


def _chunk(stream: Sequence[PreToken], start: int, end: int, body: bool) -> Chunk:
    part = stream[start:end]
    names = frozenset(t.text for t in part if t.kind == "id")
    if body:
        return Chunk(start, end, "function", _function_name(part), names)
    words = ("__extension__",)
    first = next((t.text for t in part if t.text not in words), "")
    return Chunk(start, end, "typedef" if first == "typedef" else "other", "", names)


def _function_name(part: Sequence[PreToken]) -> str:
    """The identifier before the first parenthesis that follows one."""
    for k, token in enumerate(part):
        if token.text == "(" and k and part[k - 1].kind == "id" and part[k - 1].text not in ("_Alignas",):
            return part[k - 1].text
        if token.text == "{":
            return ""
    return ""
