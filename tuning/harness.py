"""The program that runs the original nest and a candidate on the same inputs.

Two translation units make one program.  The *subject* is the user's file with, directly behind the function
that holds the nest, the candidate's kernel and two functions of equal signature: one contains the original
nest, the other exactly the splice form ``if (CALL) { AFTER } else NEST``.  So macros, types and static
functions of the file are visible, and both are compiled alike.  The *driver* (``driver.c``) is the same for
all nests, knows arguments only through a table, and is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mdh_core.expr import RecordType, ScalarType, Type

Sizes = Mapping[str, int]
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A scalar that the nest only reads.  Integers need a value in every case; other values are generated."""

    name: str
    c_type: str
    type: Type


@dataclass(frozen=True, slots=True)
class ArrayArg:
    """An array; ``inner`` holds the extents behind the first as C text.

    ``no_alias``: ``restrict`` in the source, or an array object of its own.
    """

    name: str
    c_type: str  # of an element, with its qualifiers
    type: Type
    inner: tuple[str, ...] = ()
    written: bool = True
    read: bool = True
    no_alias: bool = False


@dataclass(frozen=True, slots=True)
class OuterScalarArg:
    """A scalar declared outside the nest and written in it.

    ``live``: its value may be read after the nest.  If not, it may end as anything and is not compared.
    ``given``: the nest reads it before, as a size: it needs a value in every case.
    """

    name: str
    c_type: str
    type: Type
    live: bool = True
    given: bool = False


@dataclass(frozen=True, slots=True)
class IteratorArg:
    """A loop iterator declared outside the nest.  ``live``: its final value is compared.

    ``given``: a loop begins where it stands: it needs a value in every case.
    """

    name: str
    c_type: str
    type: ScalarType
    live: bool = True
    given: bool = False


@dataclass(frozen=True, slots=True)
class DerivedArg:
    """A parameter defined by a C expression over arguments before it."""

    name: str
    c_type: str
    value: str


Arg = ScalarArg | ArrayArg | OuterScalarArg | IteratorArg | DerivedArg


@dataclass(frozen=True, slots=True)
class IndexData:
    """Values that are used as indices: from ``first`` to ``below - 1``, at random or ``ascending``."""

    below: int
    ascending: bool = False
    first: int = 0


@dataclass(frozen=True, slots=True)
class Subject:
    """A nest, its file and its arguments (in an order in which later ones may use earlier ones).

    counts      elements of each array for given sizes; None where the sizes make no sense together
    diagonals   of matrices: elements from one diagonal element to the next
    indices     of arrays whose values are used as indices
    length      of the longest chain of combined values, for the floating-point tolerance
    noalias     groups of arrays that are promised not to overlap
    prelude     C statements at the start of both functions, for names that are no argument
    postlude    C statements at their end
    """

    data: bytes
    path: str
    insert_at: int  # offset behind the function that holds the nest
    nest: bytes
    nest_line: int
    args: tuple[Arg, ...]
    counts: Callable[[Sizes], Mapping[str, int] | None] = field(compare=False)
    length: Callable[[Sizes], int] = field(default=lambda sizes: max(1, *sizes.values(), 1), compare=False)
    diagonals: Callable[[Sizes], Mapping[str, int]] = field(default=lambda sizes: {}, compare=False)
    indices: Callable[[Sizes], Mapping[str, IndexData]] = field(default=lambda sizes: {}, compare=False)
    noalias: tuple[tuple[str, ...], ...] = ()
    prelude: str = ""
    postlude: str = ""
    directory: str = ""  # of the file, for its `#include "..."`; empty: that of ``path``

    def array(self, name: str) -> ArrayArg:
        return next(a for a in self.args if isinstance(a, ArrayArg) and a.name == name)

    @property
    def arrays(self) -> tuple[ArrayArg, ...]:
        return tuple(a for a in self.args if isinstance(a, ArrayArg))


@dataclass(frozen=True, slots=True)
class Candidate:
    """What would be spliced: functions, a call (nonzero = handled), and what to do after it.

    ``unit``: the text of a file of its own; ``kernel_text`` then declares what it has.
    ``begin``, ``end``: statements between which arrays stay on the device, for times without copies.
    """

    kernel_text: str
    call: str
    after: str = ""
    configuration_json: str = "{}"
    unit: str = ""
    begin: str = ""
    end: str = ""


ORIGINAL_ONLY = Candidate("", "0")  # builds the original by itself


def driver_text() -> bytes:
    abi, confine = (_HERE / "harness_abi.h").read_bytes(), (_HERE / "confine.h").read_bytes()
    first, define, rest = (_HERE / "driver.c").read_bytes().partition(b"#define _GNU_SOURCE\n")
    line = first.count(b"\n") + 2
    return first + define + abi + b'#line 1 "confine.h"\n' + confine + b'#line %d "driver.c"\n' % line + rest


def subject_text(subject: Subject, candidate: Candidate) -> bytes:
    """The translation unit of the subject.  ``main`` of the user's file gets another name."""
    data, cut = subject.data.removeprefix(b"\xef\xbb\xbf"), subject.insert_at
    cut -= len(subject.data) - len(data)
    next_line = data[:cut].count(b"\n") + 1
    path = _c_string(subject.path)
    inserted = _inserted(subject, candidate, path)
    head = b"#define main mdh_user_main\n#line 1 " + path + b"\n" + data[:cut]
    return head + inserted + b"\n#line %d %s\n" % (next_line, path) + data[cut:] + b"\n"


def _c_string(path: str) -> bytes:
    raw = path.encode("utf-8", "surrogateescape")
    plain = b"".join(b"\\%03o" % c if c < 32 or c in b'"\\' else bytes([c]) for c in raw)
    return b'"' + plain + b'"'


def _inserted(subject: Subject, candidate: Candidate, path: bytes) -> bytes:
    nest_at = b"\n#line %d %s\n" % (subject.nest_line, path)
    back = b'\n#line 1 "mdh-lift harness"\n'
    nest = nest_at + subject.nest + back
    text = candidate.kernel_text.encode()
    original = b"{" + nest + b"}\n"
    call = f"if ({candidate.call}) {{ mdh_handled = 1; {candidate.after}\n}} else".encode()
    return b"".join(
        [
            b'\n#line 1 "mdh-lift kernel"\n',
            text,
            back,
            _table(subject).encode(),
            _function(subject, "mdh_original", original),
            _function(subject, "mdh_candidate", call + nest),
            _function(subject, "mdh_begin", candidate.begin.encode()),
            _function(subject, "mdh_end", candidate.end.encode()),
            _thunk(subject, "void mdh_begin_candidate", "mdh_begin").encode(),
            _thunk(subject, "void mdh_end_candidate", "mdh_end").encode(),
            _thunk(subject, "void mdh_run_original", "mdh_original").encode(),
            _thunk(subject, "int mdh_run_candidate", "return mdh_candidate").encode(),
        ]
    )


# --------------------------------------------------------------------------- the two functions


def _in_out(arg: Arg) -> bool:
    return isinstance(arg, OuterScalarArg | IteratorArg)


def needs_value(arg: Arg) -> bool:
    """Is it one of the sizes of a case?"""
    return isinstance(arg, ScalarArg) or (isinstance(arg, OuterScalarArg | IteratorArg) and arg.given)


def _parameter(arg: Arg) -> str:
    if isinstance(arg, ArrayArg):
        restrict = "__restrict__ " if arg.no_alias else ""
        if not arg.inner:
            return f"{arg.c_type} *{restrict}{arg.name}"
        return f"{arg.c_type} (*{restrict}{arg.name})" + "".join(f"[{e}]" for e in arg.inner)
    if _in_out(arg):
        return f"{arg.c_type} *mdh_at_{arg.name}"
    return f"{arg.c_type} {arg.name}"


def _function(subject: Subject, name: str, body: bytes) -> bytes:
    """A function whose parameters look like those of the user's function, so that it is optimised alike."""
    parameters = ", ".join(_parameter(a) for a in subject.args) or "void"
    held = [a for a in subject.args if _in_out(a)]
    load = "".join(f"{a.c_type} {a.name} = *mdh_at_{a.name};\n" for a in held)
    kept = [a for a in held if not isinstance(a, OuterScalarArg | IteratorArg) or a.live]
    store = "".join(f"*mdh_at_{a.name} = {a.name};\n" for a in kept)
    head = f"static __attribute__((__noinline__)) int {name}({parameters})\n{{\nint mdh_handled = 0;\n"
    tail = f"{subject.postlude}{store}return mdh_handled;\n}}\n"
    return (head + load + subject.prelude + "\n").encode() + body + tail.encode()


def _thunk(subject: Subject, head: str, callee: str) -> str:
    lines: list[str] = []
    passed: list[str] = []
    slot = 0
    for arg in subject.args:
        if isinstance(arg, DerivedArg):
            lines.append(f"{arg.c_type} {arg.name} = {arg.value};")
        elif isinstance(arg, ScalarArg):
            lines.append(f"{arg.c_type} {arg.name} = *({arg.c_type} *)mdh_slot[{slot}];")
        passed.append(arg.name if isinstance(arg, DerivedArg | ScalarArg) else f"mdh_slot[{slot}]")
        slot += not isinstance(arg, DerivedArg)
    return f"{head}(void **mdh_slot)\n{{\n" + "\n".join(lines) + f"\n{callee}({', '.join(passed)});\n}}\n"


# --------------------------------------------------------------------------- the table of arguments

_KINDS = {"float": 0, "int": 1, "uint": 2, "bool": 3}


def _fields(arg: ScalarArg | ArrayArg | OuterScalarArg | IteratorArg) -> list[str]:
    c_type = _unqualified(arg.c_type)
    if isinstance(arg.type, RecordType):
        return [
            f'{{"{n}", __builtin_offsetof({c_type}, {n}), {_KINDS[t.kind]}, {t.size * 8}}}'
            for n, t in arg.type.fields
        ]
    return [f'{{"", 0, {_KINDS[arg.type.kind]}, {arg.type.size * 8}}}']


def _unqualified(c_type: str) -> str:
    return " ".join(w for w in c_type.split() if w not in ("const", "volatile", "register", "static"))


def _role_and_flags(arg: Arg) -> tuple[int, int]:
    if isinstance(arg, ScalarArg):
        return 0, 2
    if isinstance(arg, ArrayArg):
        return 1, arg.written + 2 * arg.read
    return (2 if isinstance(arg, OuterScalarArg) else 3), 3


def _table(subject: Subject) -> str:
    """Descriptions of all arguments that have memory behind them, in the order of the slots."""
    abi = (_HERE / "harness_abi.h").read_text()
    fields: list[str] = []
    rows: list[str] = []
    for k, arg in enumerate(a for a in subject.args if not isinstance(a, DerivedArg)):
        parts = _fields(arg)
        role, flags = _role_and_flags(arg)
        fields.append(f"static const struct mdh_field mdh_fields_{k}[] = {{{', '.join(parts)}}};\n")
        size = f"(unsigned long)sizeof({_unqualified(arg.c_type)})"
        rows.append(f'{{"{arg.name}", {role}, {size}, {len(parts)}, mdh_fields_{k}, {flags}}},\n')
    table = "".join(rows) or '{"", 0, 0, 0, 0, 0}'
    count = f"const int mdh_arg_count = {len(rows)};\n"
    return abi + "".join(fields) + f"const struct mdh_arg mdh_args[] = {{\n{table}}};\n" + count
