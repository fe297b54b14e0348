"""The decorator ``@mdh(...)`` in the text of a file, as the clauses of a directive.

@mdh("combine_ops(cc, pw(+)) fp(exact)")            the clauses of C
@mdh(combine_ops(i=cc, k=pw(add)), fp("exact"))     the same as objects
@mdh(combine_ops="cc, pw(+)", fp="exact")           the same as keywords
@mdh(out(w=Buffer[T]), inp(M=Buffer[T], v=Buffer[T]), combine_ops(cc, pw(add)))
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from frontend_py.annotations import kind_of
from frontend_py.files import Dotted, PythonFile, Scope, dotted
from frontend_py.kinds import Kind
from lifter.annotations import CLAUSES, Directive, parse_directive
from mdh_core.diagnostics import Diagnostic
from mdh_core.source import Span

OPERATOR_WORDS = {
    "add": "+", "mul": "*", "multiply": "*", "and_": "&", "or_": "|", "xor": "^", "bitwise_and": "&",
    "bitwise_or": "|", "bitwise_xor": "^", "logical_and": "&&", "logical_or": "||", "minimum": "min",
    "maximum": "max", "scalar_plus": "+", "fmin": "min", "fmax": "max",
}  # fmt: skip
_DECORATORS = ("mdh_lift.mdh", "mdh_lift.python.mdh", "mdh_lift.python.decorator.mdh")


@dataclass(frozen=True)
class Found:
    """A decorated function: its directive, the types it declares, whether it has the factory spelling."""

    function: ast.FunctionDef
    directive: Directive
    span: Span
    kinds: dict[str, Kind] = field(default_factory=dict)
    factory: bool = False
    problems: tuple[Diagnostic, ...] = ()


def decorated(file: PythonFile, scope: Scope) -> list[Found]:
    """Every function of the file that ``mdh`` decorates, in the order of the text."""
    out = []
    for node in ast.walk(file.tree):
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if is_mdh(decorator, scope):
                    out.append(found(node, decorator, file, scope))
                    break
    return sorted(out, key=lambda f: f.function.lineno)


def is_mdh(decorator: ast.expr, scope: Scope) -> bool:
    callee = decorator.func if isinstance(decorator, ast.Call) else decorator
    thing = dotted(callee, scope)
    return isinstance(thing, Dotted) and thing.name in _DECORATORS


def found(node: ast.FunctionDef, decorator: ast.expr, file: PythonFile, scope: Scope) -> Found:
    """The directive that a decorator states."""
    span = file.span(decorator)
    if not isinstance(decorator, ast.Call) or not (decorator.args or decorator.keywords):
        return Found(node, Directive(), span)
    if len(decorator.args) == 1 and not decorator.keywords:
        only = decorator.args[0]
        if isinstance(only, ast.Constant) and isinstance(only.value, str):
            directive, problems = parse_directive(only.value, _offsets(only, file))
            return Found(node, directive, span, problems=problems)
    builder = _Builder(file, scope)
    for arg in decorator.args:
        builder.positional(arg)
    for keyword in decorator.keywords:
        builder.keyword(keyword)
    directive, problems = parse_directive(" ".join(builder.text), builder.offsets())
    return Found(node, directive, span, builder.kinds, builder.factory, (*builder.problems, *problems))


def _offsets(node: ast.Constant, file: PythonFile) -> list[int] | None:
    """Where each character of a string literal stands, if the literal is written plainly."""
    span = file.span(node)
    raw = file.source.data[span.start : span.end]
    text = str(node.value)
    for quote in (b'"""', b"'''", b'"', b"'"):
        if raw.startswith(quote) and raw[len(quote) :].startswith(text.encode()) and text.isascii():
            first = span.start + len(quote)
            return [first + k for k in range(len(text) + 1)]
    return [span.start] * len(text) + [span.end]


class _Builder:
    """Writes the clauses' text, and for each character where it comes from."""

    def __init__(self, file: PythonFile, scope: Scope) -> None:
        self.file, self.scope = file, scope
        self.text: list[str] = []
        self.spans: list[Span] = []
        self.kinds: dict[str, Kind] = {}
        self.factory = False
        self.problems: list[Diagnostic] = []

    def offsets(self) -> list[int]:
        out: list[int] = []
        for text, span in zip(self.text, self.spans, strict=True):
            out += [span.start] * len(text) + [span.end]
        return out or [0]

    def add(self, text: str, node: ast.AST) -> None:
        self.text.append(text)
        self.spans.append(self.file.span(node))

    def positional(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.add(node.value, node)
            return
        name = _called(node)
        if not isinstance(node, ast.Call) or name not in CLAUSES:
            what = f"`{ast.unparse(node)}` is no clause that can be read here"
            self.problems.append(Diagnostic("MDH402", what, span=self.file.span(node)))
            return
        if name in ("out", "inp"):
            self.buffers(name, node)
        elif name == "combine_ops":
            items = [self.operator(a) for a in node.args]
            items += [f"{k.arg}: {self.operator(k.value)}" for k in node.keywords]
            self.add(f"combine_ops({', '.join(items)})", node)
        elif name == "sizes":
            items = [f"{k.arg}={ast.unparse(k.value)}" for k in node.keywords]
            self.add(f"sizes({', '.join(items)})", node)
        else:
            self.add(f"{name}({', '.join(self.word(a) for a in node.args)})", node)

    def keyword(self, node: ast.keyword) -> None:
        name, value = node.arg or "**", node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            inner = value.value.strip()
        elif isinstance(value, ast.Tuple | ast.List):
            parts = [self.operator(v) if name == "combine_ops" else self.word(v) for v in value.elts]
            inner = ", ".join(parts)
        elif isinstance(value, ast.Dict):
            pairs = zip(value.keys, value.values, strict=True)
            separator = "=" if name == "sizes" else ": "
            inner = ", ".join(
                f"{self.word(k)}{separator}{self.operator(v) if name == 'combine_ops' else self.word(v)}"
                for k, v in pairs
                if k is not None
            )
        else:
            inner = self.operator(value) if name == "combine_ops" else self.word(value)
        self.add(f"{name}({inner})", node)

    def buffers(self, clause: str, node: ast.Call) -> None:
        """``out(w=Buffer[T])`` declares types, ``out("w")`` names only."""
        names = [self.word(a) for a in node.args]
        for k in node.keywords:
            kind = kind_of(k.value, self.scope)
            if kind is None or k.arg is None:
                what = f"`{ast.unparse(k.value)}` is no type of a buffer"
                self.problems.append(
                    Diagnostic(
                        "MDH402",
                        what,
                        span=self.file.span(k.value),
                        help="write `Buffer[float32]` or the like",
                    )
                )
                continue
            self.kinds[k.arg] = kind
            self.factory = True
            names.append(k.arg)
        self.add(f"{clause}({', '.join(names)})", node)

    def operator(self, node: ast.expr) -> str:
        """``cc``, ``pw(add)``, ``ps(f)``, ``"pw(+)"``."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        name = _called(node)
        if isinstance(node, ast.Call) and name in ("pw", "ps", "PW", "PS") and not node.keywords:
            return f"{name.lower()}({', '.join(self.function(a) for a in node.args)})"
        if isinstance(node, ast.Name | ast.Attribute) and name in ("cc", "CC"):
            return "cc"
        return self.function(node)

    def function(self, node: ast.expr) -> str:
        if isinstance(node, ast.Tuple):
            return f"({', '.join(self.function(e) for e in node.elts)})"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        name = _called(node)
        if not name:
            return ast.unparse(node)
        thing = dotted(node, self.scope)
        of_library = isinstance(thing, Dotted)
        return OPERATOR_WORDS.get(name, name) if of_library else name

    def word(self, node: ast.expr) -> str:
        return str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node)


def _called(node: ast.expr) -> str:
    """The last part of a name, or of what is called."""
    callee = node.func if isinstance(node, ast.Call) else node
    if isinstance(callee, ast.Attribute):
        return callee.attr
    return callee.id if isinstance(callee, ast.Name) else ""
