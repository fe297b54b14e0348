"""``@mdh``: the loops of a function as a compiled kernel, made when it is first called.

    call -> kinds of the variables -> LoopNest -> programs -> kernel -> verified library -> pointers

What the front end or the lifter refuses runs as it is, with one warning that says why.  Errors in what the
caller passes (dtype, shape, strides) are raised.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import os
import sys
import threading
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, overload

import numpy as np

from frontend_py.annotations import kind_of, kind_of_text
from frontend_py.directives import Found
from frontend_py.factory import assigns_in_reduction, combined
from frontend_py.files import PythonFile
from frontend_py.flow import assigned_in, flow, names_in
from frontend_py.kinds import Array, Kind, Scalar, numpy_name
from frontend_py.nest import parts
from frontend_py.read import FunctionRead, Refused, read_function
from frontend_py.scopes import LocalScope
from lifter.annotations import Directive, parse_directive
from lifter.lift import LiftedNest, lift
from mdh_core.diagnostics import Diagnostic, Refusal
from mdh_core.evaluate import EvaluationError
from mdh_core.expr import Assign, RecordType, ScalarType
from mdh_core.source import SourceFile
from mdh_lift import entry
from mdh_lift.python import build
from mdh_lift.python.bounds import leaves_arrays
from mdh_lift.python.call import cell, dtype_of, pointers
from mdh_lift.python.cases import cases, derived_values, interpreted_cases
from mdh_lift.python.clauses import BufferType, Clause, clause_of_keyword
from mdh_lift.python.expression import Built, Expression, interpreted, is_expression
from mdh_lift.python.expression import build as build_expression
from mdh_lift.python.scope import (
    NoSource,
    Records,
    RuntimeScope,
    kind_of_value,
    sort_of_value,
    source_of,
    type_of,
)
from mdh_lift.python.splicing import loops_alone, with_call

MOST_KERNELS = 8  # of one specialization; every kernel is right for every size
_MOST_KEPT = 1 << 24  # bytes of inputs that are kept for the next kernel


class MdhWarning(UserWarning):
    """A decorated function runs as plain Python, or means something else than plain Python."""


@dataclass(eq=False)
class Made:
    """A kernel of one size class."""

    entry: Callable[[Any], int]


@dataclass(eq=False)
class Specialization:
    """What is known for one combination of kinds: the nest and its kernels, or why there are none."""

    read: FunctionRead | None
    lifted: LiftedNest | None
    scope: RuntimeScope
    why: str = ""
    combines: bool = False  # the MDH project's meaning of `=`: the loops in Python mean something else
    made: dict[tuple[int, ...], Made | None] = field(default_factory=dict)
    inside: dict[tuple[Any, ...], str] = field(default_factory=dict)  # sizes -> why a subscript may leave
    cases: list[build.Case] | None = None  # what every kernel is verified with

    @functools.cached_property
    def sizes(self) -> frozenset[str]:
        """Parameters that say how much there is to do."""
        assert self.lifted is not None
        return frozenset(entry.size_names(self.lifted.program))

    @functools.cached_property
    def written(self) -> frozenset[str]:
        assert self.lifted is not None
        stores = {s.buffer for p in self.lifted.programs for s in p.out.stores}
        return frozenset(stores | entry.written(self.lifted.nest.body))


class MdhFunction:
    """A decorated function; call it like the original, which is ``.original``."""

    def __init__(self, function: types.FunctionType, clauses: Sequence[Clause]) -> None:
        functools.update_wrapper(self, function)
        self.original = function
        self.clauses = tuple(clauses)
        self.warned: set[str] = set()
        self.specializations: dict[tuple[Any, ...], Specialization] = {}
        self.lock = threading.RLock()
        self._ready: Callable[..., Any] | None = None
        self._converts: dict[str, np.dtype[Any]] = {}
        self._declared: dict[str, Kind] = {}
        self._file: PythonFile | None = None
        self._node: ast.FunctionDef | None = None
        self._records = Records()
        self._signature = inspect.signature(function)
        self._expression = False
        self.problem = ""  # of the last call's subscripts

    # ------------------------------------------------------------------ calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if os.environ.get("MDH_LIFT_OFF"):
            return self.original(*args, **kwargs)
        if self._ready is None:
            with self.lock:
                if self._ready is None:
                    self._ready = self._prepare()
        if self._converts or self._declared:
            args, kwargs = self._converted(args, kwargs)
        return self._ready(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def _converted(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Numbers in the types that the annotations declare; arrays are checked, never converted."""
        bound = self._signature.bind(*args, **kwargs)
        for name, kind in self._declared.items():
            if name not in bound.arguments:
                continue
            value = bound.arguments[name]
            if isinstance(kind, Array):
                self._check_array(name, value, kind)
            elif name in self._converts:
                bound.arguments[name] = _number(name, value, self._converts[name])
        return bound.args, bound.kwargs

    def _check_array(self, name: str, value: object, kind: Array) -> None:
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{self._where(name)} is a {type(value).__name__}, not a NumPy array")
        t = type_of(value.dtype, self._records)
        if t != kind.element:
            if (
                isinstance(t, RecordType)
                and isinstance(kind.element, RecordType)
                and t.fields == kind.element.fields
            ):
                return
            wanted = numpy_name(kind.element)
            raise TypeError(
                f"{self._where(name)} has dtype {value.dtype}, declared {wanted}; "
                f"pass `{name}.astype({wanted!r})`"
                if not isinstance(kind.element, RecordType)
                else f"{self._where(name)} has dtype {value.dtype}, declared {wanted}"
            )
        if kind.extents is not None and value.ndim != len(kind.extents):
            raise ValueError(
                f"{self._where(name)} has {value.ndim} dimensions, declared with {len(kind.extents)}"
            )

    def _where(self, name: str) -> str:
        return f"{self.original.__name__}(): argument `{name}`"

    # ------------------------------------------------------------------ the first call

    def _prepare(self) -> Callable[..., Any]:
        """The function with its loops replaced, or the original."""
        flags = self.original.__code__.co_flags
        if flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            return self._plain("a generator or coroutine is not lifted")
        try:
            self._file, self._node = source_of(self.original)
        except (NoSource, OSError, TypeError) as error:
            return self._plain(str(error))
        whole = parts(self._node)
        if whole is None:
            return self._plain("the function holds no loop")
        scope = self._scope()
        self._declare(scope)
        self._results = tuple(sorted(assigned_in(whole.loops) & set(flow(whole.after).exposed)))
        self._whole = whole
        return with_call(self.original, whole, self._nest, self._results)

    def _plain(self, why: str) -> Callable[..., Any]:
        self._warn(why)
        return self.original

    def _warn(self, why: str) -> None:
        if why not in self.warned:
            self.warned.add(why)
            how = "runs in the interpreter" if self._expression else "runs as plain Python"
            warnings.warn(f"`{self.original.__name__}` {how}: {why}", MdhWarning, stacklevel=_outside())

    def _scope(self) -> RuntimeScope:
        assert self._file is not None
        return RuntimeScope(self.original, self._file, self._records)

    def _declare(self, scope: RuntimeScope) -> None:
        """Kinds that annotations and ``out(w=Buffer[T])`` declare."""
        assert self._node is not None and self._file is not None
        around = LocalScope(self._file, scope, self._node.body)
        args = self._node.args
        for a in (*args.posonlyargs, *args.args, *args.kwonlyargs):
            kind = kind_of(a.annotation, around)
            if kind is not None:
                self._declared[a.arg] = kind
        for clause in self.clauses:
            for name, buffer in clause.buffers.items():
                self._declared[name] = self._buffer_kind(name, buffer, around)
        for name, kind in self._declared.items():
            if isinstance(kind, Scalar) and not kind.weak and isinstance(kind.type, ScalarType):
                self._converts[name] = dtype_of(kind.type)

    def _buffer_kind(self, name: str, buffer: BufferType, scope: LocalScope) -> Array:
        if isinstance(buffer.dtype, str):
            kind = kind_of_text(buffer.dtype, scope)
            element = kind.type if isinstance(kind, Scalar) else None
        else:
            element = type_of(np.dtype(buffer.dtype), self._records)
        if element is None:
            raise TypeError(f"{self.original.__name__}(): `{name}` is declared with the dtype {buffer.dtype}")
        if buffer.extents is None:
            return Array(element)
        extents: list[ast.expr | None] = []
        for e in buffer.extents:
            extents.append(None if e is None else ast.parse(str(e), mode="eval").body)
        return Array(element, tuple(extents))

    def directive(self) -> tuple[Directive, tuple[Diagnostic, ...]]:
        return parse_directive(" ".join(c.text for c in self.clauses))

    # ------------------------------------------------------------------ the nest of a call

    def _nest(self, variables: dict[str, Any]) -> tuple[Any, ...] | None:
        """Runs the kernel on the variables before the loops; None where the loops shall run themselves."""
        apart = _apart([v for v in variables.values() if isinstance(v, np.ndarray)])
        key = (apart, *((n, sort_of_value(v)) for n, v in variables.items()))
        with self.lock:
            found = self.specializations.get(key)
            if found is None or not found.scope.unchanged():
                found = self.specializations[key] = self._specialize(variables, apart)
        if found.read is None or found.lifted is None:
            self._warn(found.why)
            return None
        return self._run(found, variables)

    def _specialize(self, variables: Mapping[str, object], apart: bool) -> Specialization:
        """``apart``: the arrays of the call share no memory."""
        assert self._file is not None and self._node is not None
        known = {n: kind_of_value(v, self._records) for n, v in variables.items()}
        scope = self._scope()
        directive, problems = self.directive()
        found = Found(
            self._node, directive, self._file.span(self._node), dict(self._declared), False, problems
        )
        given = {n: k for n, k in known.items() if k is not None}
        read = read_function(self._file, scope, found, given)
        if isinstance(read, Refused):
            used = names_in(self._whole.loops)
            odd = [n for n, k in known.items() if k is None and n in used and not callable(variables[n])]
            if odd and read.diagnostics[0].code == "MDH212":
                is_ = _described(variables[odd[0]])
                why = f"`{odd[0]}` is {is_}, not a NumPy array or a number that C has"
                return Specialization(None, None, scope, why)
            return Specialization(None, None, scope, self._told(read.diagnostics))
        if self._factory and (store := assigns_in_reduction(read.nest)) is not None:
            return self._factory_specialization(read, store, scope, apart)
        lifted = lift(entry.prepared(read.nest, apart))
        if not lifted.program:
            return Specialization(None, None, scope, self._told(lifted.diagnostics))
        return Specialization(read, lifted, scope)

    @property
    def _factory(self) -> bool:
        """The spelling of the MDH project: ``out`` and ``inp`` declare types."""
        return any(c.buffers for c in self.clauses)

    def _factory_specialization(
        self, read: FunctionRead, store: Assign, scope: RuntimeScope, apart: bool
    ) -> Specialization:
        try:
            lifted = combined(entry.prepared(read.nest, apart), store)
        except Refusal as refusal:
            return Specialization(None, None, scope, self._told([refusal.diagnostic]))
        self._warn_meaning(self._told(lifted.diagnostics))
        return Specialization(read, lifted, scope, combines=True)

    def _warn_meaning(self, what: str) -> None:
        if what not in self.warned:
            self.warned.add(what)
            warnings.warn(f"`{self.original.__name__}`: {what}", MdhWarning, stacklevel=_outside())

    def _told(self, diagnostics: Sequence[Diagnostic]) -> str:
        d = next((d for d in diagnostics if d.severity == "error"), diagnostics[0])
        at = ""
        if d.span and self._file is not None:
            line, column = self._file.source.line_col(d.span.start)
            at = f"{Path(self._file.source.path).name}:{line}:{column}: "
        return f"{at}{d.code}: {d.message}" + (f" (help: {d.help})" if d.help else "")

    # ------------------------------------------------------------------ running

    def _run(self, found: Specialization, variables: dict[str, Any]) -> tuple[Any, ...] | None:
        read, lifted = found.read, found.lifted
        assert read is not None and lifted is not None
        nest = lifted.nest
        arrays = {b.name: variables[read.variables[b.name]] for b in nest.buffers}
        self._check_layout(found, arrays)
        shapes = {name: a.shape for name, a in arrays.items()}
        sources = {read.variables[name]: shape for name, shape in shapes.items()}
        ints: dict[str, int] = {}
        for p in nest.params:
            if p.name not in read.derived and isinstance(p.type, ScalarType) and p.type.is_integer:
                ints[p.name] = int(variables[read.variables[p.name]])
        try:
            derived = derived_values(read.derived, ints, sources)
        except (EvaluationError, ZeroDivisionError):
            return None
        ints |= derived
        self._check_shapes(found, arrays, ints)
        if not self._stays_inside(found, ints, shapes, arrays):
            if found.combines:
                raise IndexError(f"{self.original.__name__}(): {self.problem}")
            return None
        made = self._kernel(found, ints)
        if made is None:
            return self._otherwise(found, ints, arrays)
        values: list[np.ndarray[Any, Any]] = []
        scalars: dict[str, np.ndarray[Any, Any]] = {}
        for p in nest.params:
            value = ints[p.name] if p.name in derived else variables[read.variables[p.name]]
            values.append(cell(value, p.type))
        values += [arrays[b.name] for b in nest.buffers]
        for s in nest.scalars:
            scalars[s.name] = cell(variables.get(read.variables[s.name]), s.type)
            values.append(scalars[s.name])
        if made.entry(pointers(values)) != 1:
            self._warn("the kernel declined, because arrays overlap or an `assume` does not hold")
            return self._otherwise(found, ints, arrays)
        return self._answers(read, scalars, variables)

    def _otherwise(
        self, found: Specialization, ints: Mapping[str, int], arrays: Mapping[str, np.ndarray[Any, Any]]
    ) -> tuple[Any, ...] | None:
        """Without a kernel: the loops; the interpreter where they mean something else."""
        if not found.combines:
            return None
        assert found.lifted is not None
        interpreted(found.lifted, ints, arrays)
        return ()

    def _answers(
        self, read: FunctionRead, scalars: Mapping[str, np.ndarray[Any, Any]], variables: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """Values of the variables that are read after the loops."""
        by_source = {read.variables[name]: (name, value) for name, value in scalars.items()}
        out = []
        for source in self._results:
            if source not in by_source:
                out.append(variables[source])
                continue
            name, memory = by_source[source]
            value: Any = memory[()]
            if memory.dtype.fields is not None:
                old = variables[source]
                value = np.void(value.item(), old.dtype if isinstance(old, np.void) else memory.dtype)
            elif name in read.weak:
                value = bool(value) if name in read.truths else value.item()
            elif name in read.truths:
                value = np.bool_(value)
            out.append(value)
        return tuple(out)

    def _check_layout(self, found: Specialization, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        assert found.read is not None
        for name, a in arrays.items():
            shown = self._where(found.read.variables[name])
            if not a.flags.c_contiguous:
                raise ValueError(
                    f"{shown} has strides {a.strides} for shape {a.shape}, which is not C-contiguous; "
                    "pass `np.ascontiguousarray(...)`"
                )
            if not a.flags.aligned:
                raise ValueError(f"{shown} is not aligned; pass a copy")
            if name in found.written and not a.flags.writeable:
                raise ValueError(f"{shown} is read-only, and the function writes it")
        for name, a in arrays.items():
            if not found.read.nest.buffer(name).restrict:
                continue
            for other, c in arrays.items():
                if other != name and {name, other} & found.written and np.may_share_memory(a, c):
                    raise ValueError(
                        f"{self._where(found.read.variables[name])} is declared `restrict` and overlaps "
                        f"`{found.read.variables[other]}`"
                    )

    def _check_shapes(
        self, found: Specialization, arrays: Mapping[str, np.ndarray[Any, Any]], ints: Mapping[str, int]
    ) -> None:
        assert found.read is not None and found.lifted is not None
        for b in found.read.nest.buffers:
            a = arrays[b.name]
            for k, extent in enumerate(b.extents):
                if extent is None:
                    continue
                wanted = extent.evaluate(dict(ints))
                if (a.shape[k] < wanted) if k == 0 else (a.shape[k] != wanted):
                    declared = "".join(f"[{'' if e is None else e}]" for e in b.extents)
                    raise ValueError(
                        f"{self._where(found.read.variables[b.name])} has shape {a.shape}, declared "
                        f"{declared} with {extent} = {wanted}"
                    )

    def _stays_inside(
        self, found: Specialization, ints: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]],
        arrays: Mapping[str, np.ndarray[Any, Any]],
    ) -> bool:  # fmt: skip
        assert found.lifted is not None
        by_data = False

        def data(buffer: str) -> tuple[int, int] | None:
            nonlocal by_data
            by_data = True
            a = arrays[buffer]
            if a.dtype.kind not in "iub" or buffer in found.written:
                return None
            return (int(a.min()), int(a.max())) if a.size else (0, -1)

        key = (tuple(sorted(ints.items())), tuple(sorted(shapes.items())))
        problem = found.inside.get(key)
        if problem is None:
            assert found.read is not None
            problem = leaves_arrays(found.read.nest, ints, shapes, data)
            if not by_data:
                found.inside[key] = problem
                if len(found.inside) > 4096:
                    found.inside.clear()
        self.problem = problem
        if problem and not found.combines:
            self._warn(problem)
        return not problem

    # ------------------------------------------------------------------ kernels

    def _kernel(self, found: Specialization, ints: dict[str, int]) -> Made | None:
        assert found.lifted is not None and found.read is not None
        size_class = tuple(v.bit_length() // 4 for n, v in sorted(ints.items()) if n in found.sizes)
        with self.lock:
            if size_class not in found.made and len(found.made) >= MOST_KERNELS:
                return next((made for made in found.made.values() if made is not None), None)
            if size_class not in found.made:
                try:
                    found.made[size_class] = self._make(found, ints)
                except build.Rejected as error:
                    self._warn(str(error))
                    found.made[size_class] = None
                except Refusal as refusal:
                    self._warn(self._told([refusal.diagnostic]))
                    found.made[size_class] = None
            return found.made[size_class]

    def _make(self, found: Specialization, ints: dict[str, int]) -> Made:
        assert found.lifted is not None
        written = entry.program(found.lifted, ints)

        def verified_with() -> list[build.Case]:
            if found.cases is None:
                made = self._cases(found, written)
                if sum(x.nbytes for case in made for x in case.inputs) > _MOST_KEPT:
                    return made
                found.cases = made
            return found.cases

        return Made(build.load(build.library(written, found.lifted.nest.directive.fp, verified_with)))

    def _cases(self, found: Specialization, written: entry.Program) -> list[build.Case]:
        """Inputs, and what Python makes of them."""
        lifted, read = found.lifted, found.read
        assert lifted is not None and read is not None
        if found.combines:
            return interpreted_cases(read, lifted, written.slots)
        results = tuple(read.variables[s.name] for s in lifted.nest.scalars)
        inputs = tuple(
            dict.fromkeys(read.variables[s.name] for s in written.slots if s.name not in read.derived)
        )
        plain = loops_alone(self.original, self._whole, inputs, results)
        weak: dict[str, object] = {}
        for s in written.slots:
            if s.name in read.weak and isinstance(s.type, ScalarType):
                weak[s.name] = bool if s.name in read.truths else float if s.type.is_float else int
        return cases(read, written.slots, plain, weak, written.exact)


class MdhExpression(MdhFunction):
    """A function that builds ``out_view``, ``md_hom`` and ``inp_view``; call it with outputs, then inputs."""

    def __init__(self, function: types.FunctionType, clauses: Sequence[Clause]) -> None:
        super().__init__(function, clauses)
        self._expression = True
        self._built: Built | None = None
        self._found: Specialization | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self.lock:
            if self._built is None:
                self._build()
        assert self._built is not None and self._found is not None
        names = (*self._built.outputs, *(n for n in self._built.inputs if n not in self._built.outputs))
        if len(args) > len(names):
            raise TypeError(f"{self.original.__name__}() takes {len(names)} arrays: {', '.join(names)}")
        given = dict(zip(names, args, strict=False))
        for n, value in kwargs.items():
            if n not in names or n in given:
                raise TypeError(f"{self.original.__name__}() got an unexpected argument `{n}`")
            given[n] = value
        missing = [n for n in names if n not in given]
        if missing:
            raise TypeError(f"{self.original.__name__}() misses the arrays {', '.join(missing)}")
        for b in self._built.read.nest.buffers:
            self._check_array(b.name, given[b.name], Array(b.type, (None,) * b.rank))
        variables = dict(given)
        variables |= self._built.params
        variables |= {p: given[n].shape[k] for p, (n, k) in self._built.shapes.items()}
        self._run(self._found, variables)

    def _build(self) -> None:
        result = self.original()
        expression = Expression(*result) if isinstance(result, tuple) and len(result) == 3 else result
        if not isinstance(expression, Expression):
            raise TypeError(f"{self.original.__name__}() returns no `out_view`, `md_hom`, `inp_view`")
        directive, _ = self.directive()
        name = self.original.__name__.removeprefix("mdh_")
        try:
            self._built = build_expression(name, expression, self.clauses, self._records, directive.fp)
        except Refusal as refusal:
            d = refusal.diagnostic
            raise TypeError(f"{self.original.__name__}(): {d.code}: {d.message}") from None
        except NoSource as error:
            raise TypeError(f"{self.original.__name__}(): {error}") from None
        scope = RuntimeScope(self.original, _NO_FILE, self._records)
        read = replace(self._built.read, variables={**self._built.read.variables, **_same_names(self._built)})
        self._found = Specialization(read, self._built.lifted, scope, combines=True)
        self._results = ()


_NO_FILE = PythonFile(SourceFile("", b""))


def _same_names(built: Built) -> dict[str, str]:
    return {p.name: p.name for p in built.read.nest.params}


def _apart(arrays: Sequence[np.ndarray[Any, Any]]) -> bool:
    return not any(np.may_share_memory(a, b) for a, b in itertools.combinations(arrays, 2))


def _outside() -> int:
    """How many frames up the first one is that is not ours."""
    here = str(Path(__file__).parent)
    level, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        level, frame = level + 1, frame.f_back
    return level + 1


def _described(value: object) -> str:
    if isinstance(value, np.ndarray | np.generic):
        return f"of dtype {value.dtype}"
    return "an integer beyond 64 bits" if isinstance(value, int) else f"of type {type(value).__name__}"


def _number(name: str, value: object, dtype: np.dtype[Any]) -> Any:
    """A number in the declared type; raises where it does not fit."""
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError(f"argument `{name}` is an array, declared as the number {dtype}")
    if dtype.kind in "iu" and isinstance(value, float | np.floating):
        raise TypeError(f"argument `{name}` is a {type(value).__name__}, declared {dtype}")
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        if not info.min <= int(value) <= info.max:  # type: ignore[call-overload]
            raise OverflowError(f"argument `{name}` is {value}, which does not fit {dtype}")
    return dtype.type(value)


# --------------------------------------------------------------------------- the decorator


@overload
def mdh(function: types.FunctionType, /) -> MdhFunction: ...


@overload
def mdh(*clauses: object, **keywords: object) -> Callable[[Callable[..., Any]], Any]: ...


def mdh(*clauses: Any, **keywords: Any) -> Any:
    """Decorates a function whose loops are to be lifted; see docs/python.md."""
    if len(clauses) == 1 and isinstance(clauses[0], types.FunctionType) and not keywords:
        return (MdhExpression if is_expression(clauses[0]) else MdhFunction)(clauses[0], ())
    items: list[Clause] = []
    for c in clauses:
        if isinstance(c, str):
            items.append(Clause(c))
        elif isinstance(c, Clause):
            items.append(c)
        else:
            raise TypeError(f"@mdh: {c!r} is no clause")
    items += [clause_of_keyword(word, value) for word, value in keywords.items()]
    given = tuple(items)
    _, problems = parse_directive(" ".join(c.text for c in given))
    if problems:
        d = problems[0]
        raise ValueError(f"@mdh: {d.code}: {d.message}" + (f" ({d.help})" if d.help else ""))

    def decorate(function: Callable[..., Any]) -> MdhFunction:
        if not isinstance(function, types.FunctionType):
            raise TypeError("@mdh decorates functions")
        made = MdhExpression if is_expression(function) else MdhFunction
        return made(function, given)

    return decorate
