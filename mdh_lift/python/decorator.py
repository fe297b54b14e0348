"""``@mdh``: the loops of a function as a compiled kernel, made when it is first called.

    call -> kinds of the variables -> LoopNest -> programs -> kernel -> verified library -> pointers

What the front end or the lifter refuses runs as it is, with one warning that says why.  Errors in what the
caller passes (dtype, shape, strides) are raised.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
import sys
import threading
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import numpy as np

from emit.targets import OPENMP
from frontend_py.annotations import kind_of, kind_of_text
from frontend_py.directives import Found
from frontend_py.factory import assigns_in_reduction, combined
from frontend_py.files import PythonFile
from frontend_py.flow import assigned_in, flow, names_in
from frontend_py.kinds import Array, Kind, Scalar
from frontend_py.nest import parts
from frontend_py.read import FunctionRead, Refused, read_function
from frontend_py.scopes import LocalScope
from lifter.annotations import Directive, parse_directive
from lifter.lift import lift
from mdh_core.diagnostics import Diagnostic, Refusal
from mdh_core.evaluate import EvaluationError
from mdh_core.expr import INT64, Assign, ScalarType
from mdh_core.source import SourceFile
from mdh_lift import entry, gpu_entry
from mdh_lift.python import build
from mdh_lift.python.arguments import apart, check_array, check_layout, check_shapes, described, number
from mdh_lift.python.bounds import leaves_arrays
from mdh_lift.python.call import cell, dtype_of, pointers
from mdh_lift.python.cases import cases, derived_values, interpreted_cases
from mdh_lift.python.clauses import BufferType, Clause, clause_of_keyword
from mdh_lift.python.device_arrays import Held, extremes, held, in_device_memory, ready
from mdh_lift.python.expression import Built, Expression, interpreted, is_expression
from mdh_lift.python.expression import build as build_expression
from mdh_lift.python.made import Made, Specialization
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
_MISSING = ("MDH801", "MDH805", "MDH806")  # what this machine lacks
_MOST_KEPT = 1 << 24  # bytes of inputs that are kept for the next kernel


class MdhWarning(UserWarning):
    """A decorated function runs as plain Python, or means something else than plain Python."""


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
                seen = self._held({name: value}).get(name)
                value = value if seen is None else seen.view
                check_array(self._where(name), name, value, kind, self._records)
            elif name in self._converts:
                bound.arguments[name] = number(name, value, self._converts[name])
        return bound.args, bound.kwargs

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
        self._used = names_in(whole.loops)
        return with_call(self.original, whole, self._nest, self._results)

    def _plain(self, why: str) -> Callable[..., Any]:
        self._warn(why)
        return self.original

    def _warn(self, why: str) -> None:
        how = "runs in the interpreter" if self._expression else "runs as plain Python"
        self._tell(f"{how}: {why}")

    def _tell(self, what: str) -> None:
        """A warning, once."""
        if what not in self.warned:
            self.warned.add(what)
            warnings.warn(f"`{self.original.__name__}` {what}", MdhWarning, stacklevel=_outside())

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
        held = self._held({n: v for n, v in variables.items() if n in self._used})
        variables = variables | {n: h.view for n, h in held.items()}
        disjoint = apart([v for v in variables.values() if isinstance(v, np.ndarray)])
        key = (disjoint, *((n, sort_of_value(v)) for n, v in variables.items()))
        with self.lock:
            found = self.specializations.get(key)
            if found is None or not found.scope.unchanged():
                found = self.specializations[key] = self._specialize(variables, disjoint)
        if found.read is None or found.lifted is None:
            self._warn(found.why)
            return None
        return self._run(found, variables, held)

    def _held(self, variables: Mapping[str, object]) -> dict[str, Held]:
        """The arrays in device memory, where kernels may take them."""
        if "cuda" not in self.targets:
            return {}
        return {n: held(v, self._where(n)) for n, v in variables.items() if in_device_memory(v)}

    @functools.cached_property
    def targets(self) -> tuple[str, ...]:
        """What to make kernels for; the first that works here is used."""
        return self.directive()[0].targets or (OPENMP,)

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
            unknown = [n for n, k in known.items() if k is None and n in self._used]
            odd = [n for n in unknown if not callable(variables[n])]
            if odd and read.diagnostics[0].code == "MDH212":
                return Specialization(None, None, scope, f"`{odd[0]}` is {described(variables[odd[0]])}")
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

    def _run(
        self, found: Specialization, variables: Mapping[str, Any], held: Mapping[str, Held]
    ) -> tuple[Any, ...] | None:
        """``variables``: with the views of arrays in device memory, which ``held`` has."""
        read, lifted = found.read, found.lifted
        assert read is not None and lifted is not None
        nest = lifted.nest
        arrays = {b.name: variables[read.variables[b.name]] for b in nest.buffers}
        check_layout(read, found.written, arrays, self._where)
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
        check_shapes(read, arrays, ints, self._where)
        if not self._stays_inside(found, ints, shapes, arrays, held):
            if found.combines:
                raise IndexError(f"{self.original.__name__}(): {self.problem}")
            return None
        made = self._kernel(found, ints, bool(held))
        if made is None:
            return self._otherwise(found, ints, arrays, held)
        values: list[np.ndarray[Any, Any]] = []
        scalars: dict[str, np.ndarray[Any, Any]] = {}
        for p in nest.params:
            value = ints[p.name] if p.name in derived else variables[read.variables[p.name]]
            values.append(cell(value, p.type))
        values += [arrays[b.name] for b in nest.buffers]
        for s in nest.scalars:
            scalars[s.name] = cell(variables.get(read.variables[s.name]), s.type)
            values.append(scalars[s.name])
        values += [cell(arrays[name].shape[k], INT64) for name, k in made.extents]
        for name, h in held.items():
            ready(made.library, self._where(name), h)
        if made.entry(pointers(values)) != 1:
            why = "the kernel declined, because arrays overlap or an `assume` does not hold"
            device = ", or the device failed, which standard error tells"
            self._warn(why if made.target == OPENMP else why + device)
            return self._otherwise(found, ints, arrays, held)
        return self._answers(read, scalars, {**variables, **{n: h.array for n, h in held.items()}})

    def _otherwise(
        self, found: Specialization, ints: Mapping[str, int], arrays: Mapping[str, np.ndarray[Any, Any]],
        held: Mapping[str, Held],
    ) -> tuple[Any, ...] | None:  # fmt: skip
        """Without a kernel: the loops; the interpreter where they mean something else."""
        if not found.combines:
            return None
        if held:
            where = self._where(next(iter(held)))
            raise TypeError(f"{where} is in device memory, and there is no kernel that takes it")
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

    def _stays_inside(
        self, found: Specialization, ints: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]],
        arrays: Mapping[str, np.ndarray[Any, Any]], held: Mapping[str, Held],
    ) -> bool:  # fmt: skip
        assert found.lifted is not None and found.read is not None
        names = found.read.variables
        by_data = False

        def data(buffer: str) -> tuple[int, int] | None:
            nonlocal by_data
            by_data = True
            a = arrays[buffer]
            if a.dtype.kind not in "iub" or buffer in found.written:
                return None
            whole = held[names[buffer]].array if names[buffer] in held else a
            return extremes(whole) if a.size else (0, -1)

        key = (tuple(sorted(ints.items())), tuple(sorted(shapes.items())))
        problem = found.inside.get(key)
        if problem is None:
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

    def _kernel(self, found: Specialization, ints: dict[str, int], on_device: bool) -> Made | None:
        """``on_device``: for arrays in device memory, which only kernels for CUDA take."""
        key = (on_device, tuple(v.bit_length() // 4 for n, v in sorted(ints.items()) if n in found.sizes))
        with self.lock:
            if key not in found.made:
                alike = [made for (device, _), made in found.made.items() if device == on_device]
                if len(alike) >= MOST_KERNELS:
                    return next((made for made in alike if made is not None), None)
                found.made[key] = self._first_made(found, ints, on_device)
            return found.made[key]

    def _first_made(self, found: Specialization, ints: dict[str, int], on_device: bool) -> Made | None:
        """A kernel for the first target that has one here; says why others have none."""
        targets = [t for t in self.targets if t == "cuda" or not on_device]
        reasons: dict[str, str] = {}
        wrong: list[str] = []  # reasons that are not this machine's
        for target in targets:
            try:
                made = self._make(found, target, ints)
            except build.Rejected as error:
                reasons[target] = str(error)
                wrong.append(target)
            except Refusal as refusal:
                reasons[target] = self._told([refusal.diagnostic])
                wrong += [] if refusal.diagnostic.code in _MISSING else [target]
            else:
                for t in wrong:
                    self._tell(f"runs on {target}, not on {t}: {reasons[t]}")
                return made
        self._warn("; ".join(f"{t}: {why}" if len(targets) > 1 else why for t, why in reasons.items()))
        return None

    def _make(self, found: Specialization, target: str, ints: dict[str, int]) -> Made:
        assert found.lifted is not None
        if target == OPENMP:
            written = entry.program(found.lifted, ints)
        else:
            written = gpu_entry.program(found.lifted, target, ints)

        def verified_with() -> list[build.Case]:
            kept = found.cases.get(written.slots)
            if kept is None:
                kept = self._cases(found, written)
                if sum(x.nbytes for case in kept for x in case.inputs) <= _MOST_KEPT:
                    found.cases[written.slots] = kept
            return kept

        library = build.load(build.library(written, found.lifted.nest.directive.fp, verified_with))
        extents = tuple(s.of for s in written.slots if s.role == "extent")
        return Made(target, library, build.entry_of(library), extents)

    def _cases(self, found: Specialization, written: entry.Program) -> list[build.Case]:
        """Inputs, and what Python makes of them."""
        lifted, read = found.lifted, found.read
        assert lifted is not None and read is not None
        if found.combines:
            return interpreted_cases(read, lifted, written.slots)
        results = tuple(read.variables[s.name] for s in lifted.nest.scalars)
        inputs = tuple(
            dict.fromkeys(
                read.variables[s.name]
                for s in written.slots
                if s.role != "extent" and s.name not in read.derived
            )
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
        held = self._held(given)
        variables = given | {n: h.view for n, h in held.items()}
        for b in self._built.read.nest.buffers:
            kind = Array(b.type, (None,) * b.rank)
            check_array(self._where(b.name), b.name, variables[b.name], kind, self._records)
        variables |= self._built.params
        variables |= {p: given[n].shape[k] for p, (n, k) in self._built.shapes.items()}
        self._run(self._found, variables, held)

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


def _outside() -> int:
    """How many frames up the first one is that is not ours."""
    here = str(Path(__file__).parent)
    level, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        level, frame = level + 1, frame.f_back
    return level + 1


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
