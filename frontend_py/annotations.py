"""Types in annotations.

"float32[n, k_max]"    an array whose extents have names       "restrict float32[n]"   ... that overlaps none
"float32[:, COLS]"     ... nothing said of the first one       "int64[()]"             ... of no dimension
"int32", np.int32      a NumPy number (Python's are converted)  int, float             a Python number
Buffer[float32, 2], Buffer[float32, "n", "k"], Buffer[float32, [N, K]], NDArray[np.float32]
"""

from __future__ import annotations

import ast
import re

from frontend_py.files import Dotted, Record, Scope, dotted, scalar_type
from frontend_py.kinds import NUMPY_TYPES, PYTHON_FLOAT, PYTHON_INT, Array, Kind, Scalar
from mdh_core.expr import BOOL, Type

_TEXT = re.compile(r"\s*(restrict\s+)?([A-Za-z_][\w.]*)\s*(\[(.*)\])?\s*\Z", re.DOTALL)
_BUFFERS = ("mdh_lift.Buffer", "mdh_lift.python.Buffer")
_PLAIN = {"int": PYTHON_INT, "float": PYTHON_FLOAT, "bool": Scalar(BOOL, weak=True, truth=True)}


def kind_of(node: ast.expr | None, scope: Scope) -> Kind | None:
    """What an annotation says; None where it says nothing that is known here."""
    if node is None:
        return None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return kind_of_text(node.value, scope)
    if isinstance(node, ast.Subscript):
        return _generic(node, scope)
    if (
        isinstance(node, ast.Name)
        and node.id in _PLAIN
        and scope.find(node.id) == Dotted(f"builtins.{node.id}")
    ):
        return _PLAIN[node.id]
    t = _element(node, scope)
    return None if t is None else Scalar(t)


def kind_of_text(text: str, scope: Scope) -> Kind | None:
    """The same for the text of a string annotation."""
    found = _TEXT.match(text)
    if found is None:
        return None
    restrict, name, brackets, inner = found.groups()
    if brackets is None:
        if name in _PLAIN and not restrict:
            return _PLAIN[name]
        t = _named(name, scope)
        return None if t is None or restrict else Scalar(t)
    t = _named(name, scope)
    if t is None:
        try:
            node = ast.parse(text.strip(), mode="eval").body
        except SyntaxError:
            return None
        return _generic(node, scope) if isinstance(node, ast.Subscript) else None
    extents = _extents(inner)
    return None if extents is None else Array(t, extents, bool(restrict))


def _extents(text: str) -> tuple[ast.expr | None, ...] | None:
    """``n, k + 1``, ``:, :`` or ``()``."""
    try:
        node = ast.parse(f"_[{text}]", mode="eval").body
    except SyntaxError:
        return None
    assert isinstance(node, ast.Subscript)
    return _items(node.slice)


def _items(node: ast.expr) -> tuple[ast.expr | None, ...]:
    items = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    return tuple(None if isinstance(item, ast.Slice) else item for item in items)


def _named(name: str, scope: Scope) -> Type | None:
    if name in NUMPY_TYPES:
        return NUMPY_TYPES[name]
    try:
        return _element(ast.parse(name, mode="eval").body, scope)
    except SyntaxError:
        return None


def _element(node: ast.expr, scope: Scope) -> Type | None:
    """A type of elements: NumPy's scalars, Python's (``float`` is ``float64``), or a structured dtype."""
    found = scalar_type(node, scope)
    if found is not None:
        return found
    thing = dotted(node, scope)
    if isinstance(thing, Record):
        return thing.type
    if isinstance(thing, Dotted) and thing.name in ("builtins.int", "builtins.float", "builtins.bool"):
        return _PLAIN[thing.name.partition(".")[2]].type
    return None


def _generic(node: ast.Subscript, scope: Scope) -> Array | None:
    """``Buffer[T]``, ``Buffer[T, rank]``, ``Buffer[T, [extents]]`` and ``NDArray[T]``."""
    base = dotted(node.value, scope)
    if not isinstance(base, Dotted):
        return None
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if base.name in _BUFFERS:
        t = _element(items[0], scope)
        return None if t is None else Array(t, _buffer_extents(items[1:]))
    if base.name == "numpy.typing.NDArray":
        t = _element(items[0], scope)
        return None if t is None else Array(t)
    if base.name == "numpy.ndarray" and len(items) == 2 and isinstance(items[1], ast.Subscript):
        t = _element(items[1].slice, scope)  # np.ndarray[shape, np.dtype[np.float32]]
        return None if t is None else Array(t)
    return None


def _buffer_extents(items: list[ast.expr]) -> tuple[ast.expr | None, ...] | None:
    if not items:
        return None
    if len(items) == 1 and isinstance(items[0], ast.Constant) and isinstance(items[0].value, int):
        return (None,) * items[0].value
    if len(items) == 1 and isinstance(items[0], ast.List | ast.Tuple):
        items = items[0].elts
    return tuple(_extent(item) for item in items)


def _extent(node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return ast.parse(node.value, mode="eval").body
    return None if isinstance(node, ast.Slice) else node
