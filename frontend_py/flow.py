"""Where variables have a value: which reads of a statement list may see a value from before it.

for i in range(n):            exposed: {n, x, s}
    t = x[i]                  assigned afterwards: {}   (the loop may run zero times)
    s = s + t
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(eq=False)
class Flow:
    """Names read before they certainly have a value, with the first such read; names that have one."""

    exposed: dict[str, ast.Name] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)
    left: bool = False  # by a `return` on every path


def flow(body: Sequence[ast.stmt], assigned: Iterable[str] = ()) -> Flow:
    """The flow of a statement list that is entered with some names assigned."""
    out = Flow(assigned=set(assigned))
    for s in body:
        _statement(s, out)
    return out


def _statement(s: ast.stmt, out: Flow) -> None:
    match s:
        case ast.Assign(targets=targets, value=value):
            _read(value, out)
            for t in targets:
                _target(t, out)
        case ast.AnnAssign(target=target, value=value):
            if value is not None:
                _read(value, out)
                _target(target, out)
        case ast.AugAssign(target=target, value=value):
            _read(value, out)
            _read(target, out)
            _target(target, out)
        case ast.If(test=test, body=then, orelse=other):
            _read(test, out)
            _merge(out, flow(then, out.assigned), flow(other, out.assigned))
        case ast.For(target=target, iter=iterable, body=body):
            _read(iterable, out)
            inside = out.assigned | set(stored(target))
            _expose(out, flow(body, inside))
        case ast.While(test=test, body=body):
            _read(test, out)
            _expose(out, flow(body, out.assigned))
        case ast.Return(value=value):
            if value is not None:
                _read(value, out)
            out.left = True
        case ast.FunctionDef(name=name):
            out.assigned.add(name)
        case _:
            for child in ast.iter_child_nodes(s):
                _read(child, out)


def _merge(out: Flow, then: Flow, other: Flow) -> None:
    _expose(out, then)
    _expose(out, other)
    if then.left and other.left:
        out.left = True
    elif then.left or other.left:
        out.assigned |= (other if then.left else then).assigned
    else:
        out.assigned |= then.assigned & other.assigned


def _expose(out: Flow, inner: Flow) -> None:
    for name, node in inner.exposed.items():
        out.exposed.setdefault(name, node)


def _read(node: ast.AST, out: Flow) -> None:
    for n in ast.walk(node):
        if isinstance(n, ast.Name) and n.id not in out.assigned:
            out.exposed.setdefault(n.id, n)


def _target(node: ast.expr, out: Flow) -> None:
    match node:
        case ast.Name(id=name):
            out.assigned.add(name)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            for item in items:
                _target(item, out)
        case _:
            _read(node, out)


# --------------------------------------------------------------------------- plain questions


def stored(node: ast.AST) -> Iterator[str]:
    """Names that a node assigns."""
    for n in ast.walk(node):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
            yield n.id


def names_in(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Names that are read or assigned."""
    return frozenset(n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name))


def read_in(nodes: Iterable[ast.AST]) -> frozenset[str]:
    return frozenset(
        n.id
        for node in nodes
        for n in ast.walk(node)
        if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Store)
    )


def assigned_in(body: Iterable[ast.stmt]) -> frozenset[str]:
    """Variables that are assigned, at any depth; iterators of loops are not."""
    out: set[str] = set()
    for s in body:
        for n in ast.walk(s):
            match n:
                case ast.Assign(targets=targets):
                    out |= {name for t in targets for name in _plain(t)}
                case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                    out |= set(_plain(target))
    return frozenset(out)


def directly_assigned(s: ast.stmt) -> frozenset[str]:
    """Variables that a simple statement assigns."""
    match s:
        case ast.Assign(targets=targets):
            return frozenset(name for t in targets for name in _plain(t))
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return frozenset(_plain(target))
    return frozenset()


def _plain(target: ast.expr) -> Iterator[str]:
    match target:
        case ast.Name(id=name):
            yield name
        case ast.Tuple(elts=items) | ast.List(elts=items):
            for item in items:
                yield from _plain(item)


def mutated_records(body: Iterable[ast.stmt]) -> frozenset[str]:
    """Variables of which single fields are assigned: ``r["x"] = ...``."""
    out: set[str] = set()
    for s in body:
        for n in ast.walk(s):
            targets: Sequence[ast.expr] = ()
            match n:
                case ast.Assign(targets=found):
                    targets = found
                case ast.AugAssign(target=target):
                    targets = (target,)
            for t in targets:
                if isinstance(t, ast.Subscript) and isinstance(t.value, ast.Name):
                    key = t.slice
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        out.add(t.value.id)
    return frozenset(out)
