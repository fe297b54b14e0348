"""A Python file -> the nests of its decorated functions, each read or refused with reasons.

    bytes -> ast -> decorated functions -> types -> nest

Nothing is imported and nothing runs.  Bad input never raises: what cannot be read is in the result, with the
smallest span at fault.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from frontend_py.annotations import kind_of
from frontend_py.directives import Found, decorated
from frontend_py.expressions import Expressions
from frontend_py.files import PythonFile, Scope, UserFunction
from frontend_py.flow import assigned_in, names_in
from frontend_py.kinds import Array, Kind, Scalar
from frontend_py.nest import NestReader, Parts, Shape, parts
from frontend_py.operators import Val
from frontend_py.scopes import FileScope, LocalScope
from frontend_py.statements import MAX_READINGS, Types
from lifter.annotations import BUILTIN_OPERATORS, Directive
from lifter.loop_nest import LoopNest
from mdh_core.diagnostics import Diagnostic, Refusal, refuse
from mdh_core.expr import INT32, INT64, Expr, RecordType, Var
from mdh_core.source import SourceFile, Span

__all__ = ["FunctionRead", "ReadResult", "Refused", "read", "read_function"]


@dataclass(frozen=True)
class Refused:
    """A decorated function whose nest could not be read, and why."""

    name: str
    span: Span
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True)
class ReadResult:
    nests: tuple[LoopNest, ...] = ()
    refused: tuple[Refused, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()  # what belongs to no nest
    factories: frozenset[str] = frozenset()  # names of the nests in the spelling of the MDH project


@dataclass(frozen=True)
class FunctionRead:
    """A nest, and what whoever calls it must know.

    ``derived``: parameters that are computed from others or from an array's shape.
    ``variables``: names of the nest's outer variables -> names in the source.
    """

    nest: LoopNest
    parts: Parts
    derived: Mapping[str, Expr | Shape] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    weak: frozenset[str] = frozenset()  # variables that are plain Python numbers
    truths: frozenset[str] = frozenset()  # variables that are truth values


def read(source: SourceFile) -> ReadResult:
    """Every nest of a file."""
    try:
        file = PythonFile(source)
    except Refusal as refusal:
        return ReadResult(diagnostics=(_placed(refusal.diagnostic, source),))
    except RecursionError:
        deep = Diagnostic("MDH003", "expressions are nested too deeply", source.path)
        return ReadResult(diagnostics=(deep,))
    scope = FileScope(file)
    directives = decorated(file, scope)
    if not directives:
        none = Diagnostic(
            "MDH007", "no directive in the file", source.path, help="decorate a function with `@mdh`"
        )
        return ReadResult(diagnostics=(none,))
    nests: list[LoopNest] = []
    refused: list[Refused] = []
    factories: set[str] = set()
    ordinals: dict[str, int] = {}
    for found in directives:
        if is_expression(found.function):
            continue
        name = found.function.name
        ordinal = ordinals.get(name, 0)
        ordinals[name] = ordinal + 1
        result = read_function(file, scope, found, ordinal=ordinal)
        if isinstance(result, FunctionRead):
            nests.append(result.nest)
            if found.factory:
                factories.add(result.nest.name)
        else:
            refused.append(result)
    return ReadResult(tuple(nests), tuple(refused), (), frozenset(factories))


def is_expression(node: ast.FunctionDef) -> bool:
    """Does a function build ``out_view``, ``md_hom``, ``inp_view`` instead of looping?"""
    return not node.args.args and parts(node) is None and "md_hom" in names_in(node.body)


def read_function(
    file: PythonFile,
    scope: Scope,
    found: Found,
    kinds: Mapping[str, Kind] | None = None,
    ordinal: int = 0,
) -> FunctionRead | Refused:
    """The nest of one function; ``kinds``: what parameters and variables before the nest are known to be."""
    label = found.directive.label or str(ordinal)
    name = f"{file.source.path}::{found.function.name}::{label}"
    problems = list(found.problems)
    known: Mapping[str, Kind | None] = {}
    whole = parts(found.function)
    span = _nest_span(file, whole) if whole else file.span(found.function)
    try:
        if whole is None:
            raise refuse("MDH210", "function holds no loop", file.head(found.function))
        scope = LocalScope(file, scope, whole.before)
        known = _all_kinds(file, scope, whole, found.kinds, kinds)
        reader, body = _read_nest(file, scope, whole, known, static=kinds is None)
        problems += reader.problems
        if not problems:
            statements, params, buffers, scalars = reader.result(body)
            named = _named_functions(found.directive, reader, scope)
            nest = LoopNest(
                name, found.function.name, label, params, buffers, scalars, statements,
                reader.functions.closure([*reader.called, *named]), found.directive, file.source.path,
                span, found.span, file.span(found.function), facts=tuple(dict.fromkeys(reader.facts)),
            )  # fmt: skip
            types = {b.name: reader.types.assumed.get(b.key) for b in reader.outers.values()}
            weak = {name for name, t in types.items() if t is not None and t.weak}
            truths = {name for name, t in types.items() if t is not None and t.truth}
            return FunctionRead(
                nest, whole, dict(reader.extents.sources), {b.name: b.source for b in reader.outers.values()},
                frozenset(weak), frozenset(truths),
            )  # fmt: skip
    except Refusal as refusal:
        problems.append(refusal.diagnostic)
    except RecursionError:
        problems.append(Diagnostic("MDH003", "expressions are nested too deeply", span=span))
    used = names_in(whole.loops) if whole else ()
    problems = _told_together(problems, [n for n, kind in known.items() if kind is None and n in used])
    return Refused(name, span, tuple(dict.fromkeys(_placed(d, file.source) for d in problems)))


def _told_together(problems: Sequence[Diagnostic], unknown: Sequence[str]) -> list[Diagnostic]:
    """One diagnostic for all variables whose types are not declared."""
    first = next((d for d in problems if d.code == "MDH216"), None)
    if first is None or len(unknown) < 2:
        return list(problems)
    *most, last = (f"`{name}`" for name in unknown)
    message = f"the types of {', '.join(most)} and {last} are not declared"
    help_ = "the function is lifted when it is called; to check it here, annotate them, for example "
    told = replace(first, message=message, help=f'{help_}`{unknown[0]}: "float32[:, :]"` or `np.int64`')
    return [told if d is first else d for d in problems if d is first or d.code != "MDH216"]


def _placed(d: Diagnostic, source: SourceFile) -> Diagnostic:
    return d if d.file else replace(d, file=source.path)


def _nest_span(file: PythonFile, whole: Parts) -> Span:
    return Span(file.span(whole.loops[0]).start, file.span(whole.loops[-1]).end)


def _read_nest(
    file: PythonFile, scope: Scope, whole: Parts, kinds: Mapping[str, Kind | None], static: bool
) -> tuple[NestReader, list]:  # type: ignore[type-arg]
    """Readings of the nest until the types of its variables do not change."""
    types = Types()
    for _ in range(MAX_READINGS):
        types.changed = False
        reader = NestReader(file, scope, whole, kinds, types, static)
        body = reader.read()
        if not types.changed:
            return reader, body
    raise refuse("MDH212", "the types of the nest's variables could not be told", _nest_span(file, whole))


def _named_functions(directive: Directive, reader: NestReader, scope: Scope) -> list[str]:
    """Combine functions that the directive names; they must be the ones that the nest calls."""
    out: list[str] = []
    for op in directive.combine_ops:
        for name in op.functions:
            if name in BUILTIN_OPERATORS:
                continue
            thing = scope.find(name)
            if not isinstance(thing, UserFunction):
                raise refuse(
                    "MDH405", f"combine function `{name}` is not defined", op.span,
                    help="define it at the top of the file",
                )  # fmt: skip
            if not reader.functions.has(name):
                raise refuse("MDH404", f"the nest does not call the combine function `{name}`", op.span)
            function = next(f for f in reader.functions.closure([name]) if f.name == name)
            if len(function.params) != 2 or any(t != function.type for _, t in function.params):
                raise refuse(
                    "MDH406", f"`{name}` is no combine function", op.span,
                    help="use `f(lhs, rhs)` that returns what it is given, or `f(res, lhs, rhs)`",
                )  # fmt: skip
            out.append(name)
    return out


# --------------------------------------------------------------------------- types of what is outside


def _all_kinds(
    file: PythonFile, scope: Scope, whole: Parts, declared: Mapping[str, Kind],
    given: Mapping[str, Kind] | None,
) -> dict[str, Kind | None]:  # fmt: skip
    """Kinds of parameters and of variables that are assigned before the nest."""
    args = whole.node.args
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    given = given or {}
    out: dict[str, Kind | None] = {}
    for a in every:
        stated = declared.get(a.arg) or kind_of(a.annotation, scope)
        out[a.arg] = _refined(stated, given.get(a.arg))
    for name in sorted(assigned_in(whole.before)):
        out[name] = given.get(name)
    if not given:
        _infer(file, scope, whole, out)
    _name_extents(whole, out)
    return out


def _refined(stated: Kind | None, given: Kind | None) -> Kind | None:
    """What is known at the call, with the extents that the annotation names."""
    if given is None:
        return stated
    if isinstance(stated, Array) and isinstance(given, Array):
        same = stated.extents is not None and given.extents is not None
        if same and len(stated.extents or ()) == len(given.extents or ()):
            return replace(given, extents=stated.extents, restrict=stated.restrict)
        return replace(given, restrict=stated.restrict)
    return given


class _Prologue(Expressions):
    """Types of expressions before the nest."""

    def __init__(self, file: PythonFile, scope: Scope, kinds: Mapping[str, Kind | None]) -> None:
        super().__init__(file, scope)
        self.kinds = kinds

    def is_variable(self, name: str) -> bool:
        return name in self.kinds

    def variable(self, name: str, node: ast.AST) -> Val | None:
        kind = self.kinds.get(name)
        if isinstance(kind, Scalar):
            return Val(Var(name, INT32 if kind.truth else kind.type), kind.weak, kind.truth)
        if name in self.kinds:
            raise self.unsupported("this value", node)
        return None

    def element(self, node: ast.Subscript) -> Val | None:
        base: ast.expr = node
        while isinstance(base, ast.Subscript):
            base = base.value
        kind = self.kinds.get(base.id) if isinstance(base, ast.Name) else None
        return Val(Var("element", kind.element)) if isinstance(kind, Array) else None

    def shape(self, node: ast.expr) -> Val | None:
        match node:
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="shape")):
                pass
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]):
                pass
            case ast.Attribute(value=ast.Name(id=name), attr="size"):
                pass
            case _:
                return None
        known = isinstance(self.kinds.get(name), Array)
        return Val(Var("size", INT64), weak=True) if known else None

    def convert(self, node: ast.expr) -> Val:
        return self.shape(node) or super().convert(node)


def _infer(file: PythonFile, scope: Scope, whole: Parts, kinds: dict[str, Kind | None]) -> None:
    """Kinds of variables that plain assignments before the nest give."""
    reader = _Prologue(file, scope, kinds)
    for s in whole.before:
        match s:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                kinds[name] = _value_kind(reader, value)
            case ast.Assign(targets=[ast.Tuple(elts=items)], value=ast.Attribute(attr="shape")):
                for item in items:
                    if isinstance(item, ast.Name):
                        kinds[item.id] = Scalar(INT64, weak=True)
            case ast.Assign(targets=[ast.Tuple(elts=items)], value=ast.Tuple(elts=values)):
                found = [_value_kind(reader, v) for v in values]
                for item, kind in zip(items, found, strict=False):
                    if isinstance(item, ast.Name):
                        kinds[item.id] = kind
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                kind = kind_of(annotation, scope)
                kinds[name] = kind if kind is not None or value is None else _value_kind(reader, value)
            case _:
                for name in assigned_in([s]):
                    kinds[name] = None


def _value_kind(reader: _Prologue, value: ast.expr) -> Kind | None:
    try:
        fresh = reader.fresh_record(value)
        if fresh is not None:
            return Scalar(fresh[0])
        made = _new_array(reader, value)
        return made if made is not None else reader.convert(value).kind
    except Refusal:
        return None


def _new_array(reader: _Prologue, value: ast.expr) -> Array | None:
    """``np.zeros((n, k), np.float32)`` and ``np.empty_like(x)``."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or not value.args:
        return None
    word = value.func.attr
    if word in ("zeros_like", "empty_like", "ones_like") and isinstance(value.args[0], ast.Name):
        kind = reader.kinds.get(value.args[0].id)
        return (
            Array(kind.element, (None,) * len(kind.extents))
            if isinstance(kind, Array) and kind.extents
            else None
        )
    if word not in ("zeros", "empty", "ones"):
        return None
    given = [*value.args[1:2], *(k.value for k in value.keywords if k.arg == "dtype")]
    kind = kind_of(given[0], reader.scope) if given else kind_of(ast.Constant("float64"), reader.scope)
    if not isinstance(kind, Scalar) or isinstance(kind.type, RecordType):
        return None
    shape = value.args[0]
    items = shape.elts if isinstance(shape, ast.Tuple | ast.List) else [shape]
    plain = tuple(item if isinstance(item, ast.Name | ast.Constant) else None for item in items)
    return Array(kind.type, plain)


def _name_extents(whole: Parts, kinds: dict[str, Kind | None]) -> None:
    """``n, k = M.shape`` names the extents of ``M``."""
    body = [*whole.before, *whole.loops]
    assigned: dict[str, int] = {}
    for s in body:
        for n in ast.walk(s):
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
                assigned[n.id] = assigned.get(n.id, 0) + 1

    def name_it(array: str, k: int, node: ast.expr) -> None:
        kind = kinds.get(array)
        once = isinstance(node, ast.Name) and assigned.get(node.id) == 1 and array not in assigned
        if not isinstance(kind, Array) or kind.extents is None or not once:
            return
        if k < len(kind.extents) and kind.extents[k] is None:
            new = (*kind.extents[:k], node, *kind.extents[k + 1 :])
            kinds[array] = replace(kind, extents=new)

    for s in whole.before:
        match s:
            case ast.Assign(
                targets=[ast.Tuple(elts=items)], value=ast.Attribute(value=ast.Name(id=array), attr="shape")
            ):
                for k, item in enumerate(items):
                    name_it(array, k, item)
            case ast.Assign(
                targets=[ast.Name() as target],
                value=ast.Subscript(
                    value=ast.Attribute(value=ast.Name(id=array), attr="shape"),
                    slice=ast.Constant(value=int(k)),
                ),
            ):
                name_it(array, k, target)
            case ast.Assign(
                targets=[ast.Name() as target],
                value=ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=array)]),
            ):
                name_it(array, 0, target)
