"""C types as the frontend sees them: scalars, records, arrays, pointers, and the rest.

    ctype ::= Value(type, spelling) | Array(element, extent) | Pointer(target) | Void | Other(why)

Sizes are those of LP64 (long and pointers have 64 bits).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from frontend_c.parsing import Node, Unit, c_ast
from mdh_core.expr import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    RecordType,
    ScalarType,
    Type,
)  # fmt: skip

C_NAMES = {
    "float": "float", "double": "double", "bool": "_Bool", "int8": "signed char", "int16": "short",
    "int32": "int", "int64": "long long", "uint8": "unsigned char", "uint16": "unsigned short",
    "uint32": "unsigned int", "uint64": "unsigned long long",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Value:
    type: Type
    spelling: str  # C text of the type, without qualifiers
    const: bool = False


@dataclass(frozen=True)
class Array:
    element: CType
    extent: Node | None  # expression, or None for []
    restrict: bool = False


@dataclass(frozen=True, slots=True)
class Pointer:
    target: CType
    restrict: bool = False
    const: bool = False


@dataclass(frozen=True, slots=True)
class Void:
    pass


@dataclass(frozen=True)
class Other:
    """A type that cannot occur in a nest; ``why`` continues "`x` has ..."."""

    why: str
    code: str = "MDH212"
    help: str = ""


@dataclass(frozen=True)
class Aggregate(Other):
    """A struct with members that are no scalars: no value of the nest's, but its members may be used.

    ``name`` as in C, empty without a tag; ``odd``: the first such member.
    """

    members: tuple[Node, ...] = ()
    name: str = ""
    odd: str = ""

    @classmethod
    def of(cls, name: str, odd: str, members: tuple[Node, ...]) -> Aggregate:
        why = f"type `{name or 'struct'}` with the member `{odd}` that is no scalar"
        return cls(why, "MDH006", LOCAL_POINTER, members, name, odd)


CType = Value | Array | Pointer | Void | Other

LOCAL_POINTER = "take what is needed before the nest (`T *a = p->a;`) and use that"
SCALAR_MEMBERS = "give each element scalar members only, or each member that is used an array of its own"

_RANKS = {
    "char": (INT8, UINT8), "short": (INT16, UINT16), "int": (INT32, UINT32),
    "long": (INT64, UINT64), "long long": (INT64, UINT64),
}  # fmt: skip


def scalar_of_words(names: list[str], signed_char: bool = True) -> ScalarType | str:
    """The scalar type of specifiers such as ``unsigned long int``, or what is wrong with it."""
    words = sorted(w for w in names if w not in ("const", "register", "static", "auto"))
    if "_Complex" in words or "_Imaginary" in words:
        return "a complex type"
    if words == ["float"]:
        return FLOAT
    if words == ["double"]:
        return DOUBLE
    if words == ["_Bool"] or words == ["bool"]:
        return BOOL
    if words == ["double", "long"]:
        return "type `long double`"
    unsigned = "unsigned" in words or (words == ["char"] and not signed_char)
    rest = [w for w in words if w not in ("signed", "unsigned", "int")]
    rank = " ".join(rest) or "int"
    if rank in _RANKS and set(words) <= {"signed", "unsigned", "int", "char", "short", "long"}:
        return _RANKS[rank][unsigned]
    return f"type `{' '.join(names)}`"


@dataclass
class Types:
    """Resolves type nodes of the parser; typedefs and tags come from the file or from ``local``.

    ``local`` finds definitions inside functions: ("typedef" | "struct" | "enum", name) -> node.
    """

    unit: Unit
    signed_char: bool = True
    local: Callable[[str, str], Node | None] = lambda kind, name: None
    type_of: Callable[[Node], CType] = lambda node: Other("a type that is not known here", "MDH006")

    def resolve(self, node: Node, depth: int = 0) -> CType:
        """The type that a declarator or type name stands for."""
        if depth > 40:
            return Other("a type that is defined by itself", "MDH003")
        if isinstance(node, c_ast.Typename):
            return self.resolve(node.type, depth + 1)
        if isinstance(node, c_ast.TypeDecl):
            return self._qualified(self.resolve(node.type, depth + 1), node.quals or [])
        if isinstance(node, c_ast.ArrayDecl):
            restrict = "restrict" in (node.dim_quals or [])
            return Array(self.resolve(node.type, depth + 1), node.dim, restrict)
        if isinstance(node, c_ast.PtrDecl):
            return self._pointer(node, depth)
        if isinstance(node, c_ast.IdentifierType):
            return self._named(list(node.names), depth)
        if isinstance(node, c_ast.Struct):
            return self._record(node, depth)
        if isinstance(node, c_ast.Enum):
            return Value(_enum_type(node), f"enum {node.name}" if node.name else "int")
        if isinstance(node, c_ast.Union):
            return Other("a union type", "MDH006")
        if isinstance(node, c_ast.FuncDecl):
            return Other("a function type", "MDH006")
        return Other("a type that is not supported")

    def _qualified(self, t: CType, quals: list[str]) -> CType:
        if "volatile" in quals or "_Atomic" in quals:
            return Other("a `volatile` type" if "volatile" in quals else "an `_Atomic` type", "MDH006")
        if isinstance(t, Value) and "const" in quals:
            return replace(t, const=True)
        return t

    def _pointer(self, node: Node, depth: int) -> CType:
        quals = node.quals or []
        if "volatile" in quals:
            return Other("a `volatile` type", "MDH006")
        return Pointer(self.resolve(node.type, depth + 1), "restrict" in quals, "const" in quals)

    def _named(self, names: list[str], depth: int) -> CType:
        if names == ["void"]:
            return Void()
        if len(names) == 1 and names[0] in self.unit.typeof:
            node = self.unit.expression(self.unit.typeof[names[0]])
            if node is None:
                return Other("a type that cannot be read", "MDH006")
            if isinstance(node, c_ast.TypeDecl | c_ast.PtrDecl | c_ast.ArrayDecl):
                return self.resolve(node, depth + 1)
            return self.type_of(node)
        if len(names) == 1:
            target = self.local("typedef", names[0]) or self.unit.typedef(names[0])
            if target is not None:
                return self._respelled(self.resolve(target, depth + 1), names[0])
        found = scalar_of_words(names, self.signed_char)
        return Value(found, " ".join(names)) if isinstance(found, ScalarType) else Other(found)

    def _respelled(self, t: CType, name: str) -> CType:
        """A typedef's type under the typedef's name; a record is called by it, too."""
        if isinstance(t, Aggregate) and not t.name:
            return Aggregate.of(name, t.odd, t.members)
        if not isinstance(t, Value):
            return t
        if isinstance(t.type, RecordType) and not t.type.name.startswith("struct "):
            return Value(replace(t.type, name=name), name, t.const)
        return replace(t, spelling=name)

    def _record(self, node: Node, depth: int) -> CType:
        decls = node.decls
        if not decls and node.name:
            found = self.local("struct", node.name) or self.unit.record(node.name)
            decls = found.decls if found is not None else None
        if not decls:
            return Other(f"the incomplete type `struct {node.name}`")
        spelling = f"struct {node.name}" if node.name else ""
        fields: list[tuple[str, ScalarType]] = []
        for decl in decls:
            t = self.resolve(decl.type, depth + 1) if isinstance(decl, c_ast.Decl) else Other("")
            if not isinstance(t, Value) or not isinstance(t.type, ScalarType) or decl.bitsize:
                return Aggregate.of(spelling, getattr(decl, "name", None) or "?", tuple(decls))
            fields.append((decl.name, t.type))
        return Value(RecordType(spelling, tuple(fields)), spelling)

    def member(self, whole: CType, name: str) -> CType | None:
        """The type of a member of a struct, or None where there is none (or a bit field)."""
        if isinstance(whole, Value) and isinstance(whole.type, RecordType):
            t = dict(whole.type.fields).get(name)
            return None if t is None else Value(t, C_NAMES[t.name])
        for decl in whole.members if isinstance(whole, Aggregate) else ():
            if not isinstance(decl, c_ast.Decl):
                continue
            if decl.name == name:
                return None if decl.bitsize else self.resolve(decl.type)
            if decl.name is None and isinstance(decl.type, c_ast.Struct):
                found = self.member(self.resolve(decl.type), name)
                if found is not None:
                    return found
        return None


def _enum_type(node: Node) -> ScalarType:
    """gcc and clang take ``unsigned int`` unless an enumerator is negative."""
    for enumerator in node.values.enumerators if node.values else ():
        if isinstance(getattr(enumerator, "value", None), c_ast.UnaryOp):
            return INT32
    return UINT32


def promote(t: ScalarType) -> ScalarType:
    """C's integer promotion.

    >>> str(promote(UINT8)), str(promote(UINT32)), str(promote(FLOAT))
    ('int32', 'uint32', 'float')
    """
    return INT32 if t.is_integer and t.bits < 32 else t


def common(a: ScalarType, b: ScalarType) -> ScalarType:
    """C's usual arithmetic conversions.

    >>> str(common(INT32, UINT32)), str(common(INT64, UINT32)), str(common(INT64, FLOAT))
    ('uint32', 'int64', 'float')
    """
    if a.is_float or b.is_float:
        return DOUBLE if DOUBLE in (a, b) else FLOAT
    a, b = promote(a), promote(b)
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    return a if not a.is_signed else b
