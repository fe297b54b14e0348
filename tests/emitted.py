"""Compile emitted kernels and run them in a process of their own, to compare with the interpreter.

``run_emitted(cases)`` writes one C file with every case's kernel and data, compiles it once, runs it and
returns per case what the kernel returned and the buffers afterwards.  Cases that differ in sizes and data
only share a kernel.  Arrays end at a guard page-like
margin of canaries, so that a write outside is seen; with the address sanitizer, a read is, too.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from emit.c_text import Printer, c_type, constant
from emit.render import emit_openmp
from emit.request import KernelRequest
from lowering.machine import GENERIC, Machine
from lowering.parameters import Configuration
from mdh_core.evaluate import Value
from mdh_core.expr import INT64, Affine, Expr, Function, RecordType, Type, Var, stmt_exprs, walk
from mdh_core.interpreter import BufferValue, same
from mdh_core.ir import HostLoop, MdhProgram, Param, Size

FLAGS = (  # a seventh of the time of -O1: see OPTIMISED
    "-O0", "-fopenmp", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-tautological-compare",
)  # fmt: skip
OPTIMISED = (*FLAGS, "-O1")  # what a compiler makes of it, and the warnings that it gives only then
CANARY = 64
POISON = (  # where the address sanitizer is on, reads of margins are errors, too
    "#ifdef __SANITIZE_ADDRESS__", "#include <sanitizer/asan_interface.h>", "#else",
    *(f"#define ASAN_{word}POISON_MEMORY_REGION(p, n) (void)(p)" for word in ("", "UN")), "#endif",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A program, one configuration, values of its parameters, and its buffers before the run.

    in_region   it stands in a host loop of one iteration, which is inside of one parallel region
    known       sizes for which the kernel has a second function
    about       for messages: which of a program's configurations it is
    """

    program: MdhProgram
    configuration: Configuration
    params: Mapping[str, Value]
    buffers: Mapping[str, BufferValue]
    machine: Machine = GENERIC
    in_region: bool = False
    known: Mapping[str, int] = field(default_factory=dict)
    about: str = ""


def described(case: Case) -> str:
    """Which case it is: enough to run it again."""
    of = f" ({case.about})" if case.about else ""
    fixed = f", known {dict(case.known)}" if case.known else ""
    return f"{case.program.name}{of} with {dict(case.params)}{fixed}, {case.configuration}"


def with_extents(
    program: MdhProgram, buffers: Mapping[str, BufferValue], symbolic: bool = False
) -> tuple[MdhProgram, dict[str, Value]]:
    """The program with the extents of its buffers declared: as numbers or as extra parameters."""
    new, params, extra = [], [], {}
    for b in program.buffers:
        extents: list[Affine | None] = []
        for t, n in enumerate(buffers[b.name].extents):
            if symbolic and t:
                name = f"{b.name}_n{t}"
                params.append(Param(name, INT64, name, "long"))
                extra[name] = n
                extents.append(Affine.of(name))
            else:
                extents.append(Affine.number(n) if t else None)
        new.append(replace(b, extents=tuple(extents), base=b.name, c_type="", restrict=True))
    return replace(program, buffers=tuple(new), params=(*program.params, *params)), extra


def _literal(value: Value, t: Type) -> str:
    if isinstance(t, RecordType):
        assert isinstance(value, tuple)
        fields = zip(value, t.fields, strict=True)
        return "{" + ", ".join(_literal(v, u) for v, (_, u) in fields) + "}"
    assert not isinstance(value, tuple)
    return constant(value, t)


def records_of(program: MdhProgram) -> list[RecordType]:
    found: dict[str, RecordType] = {}

    def note(t: Type) -> None:
        if isinstance(t, RecordType):
            found[t.name] = t

    for b in program.buffers:
        note(b.type)
    for t in program.component_types:
        note(t)
    for f in program.functions:
        note(f.type)
        for _, t in f.params:
            note(t)
    return list(found.values())


def function_text(f: Function, functions: tuple[Function, ...]) -> str:
    """A user function in C, written from its body."""

    def leaf(e: Expr) -> str:
        assert isinstance(e, Var)
        return e.name

    printer = Printer(leaf, functions=functions)
    params = ", ".join(f"{c_type(t)} {n}" for n, t in f.params)
    body = "\n".join("  " + line for line in printer.statements(f.body))
    if f.out_param:
        (a, t), (b, _) = f.params
        inner = f"static {c_type(t)} {f.name}_value({params}) {{\n{body}\n}}\n"
        head = f"static void {f.name}({c_type(t)} *res, const {c_type(t)} *{a}, const {c_type(t)} *{b})"
        return inner + f"{head} {{ *res = {f.name}_value(*{a}, *{b}); }}\n"
    return f"static {c_type(f.type)} {f.name}({params}) {{\n{body}\n}}\n"


def _printed(name: str, t: Type) -> list[str]:
    """printf statements for one element as a JSON value."""
    if isinstance(t, RecordType):
        lines = ['printf("[");']
        for k, (field, u) in enumerate(t.fields):
            lines += _printed(f"{name}.{field}", u)
            if k + 1 < len(t.fields):
                lines.append('printf(",");')
        return [*lines, 'printf("]");']
    if t.is_float:
        return [f'printf("\\"%a\\"", (double){name});']
    sign = "%llu" if t.kind in ("uint", "bool") else "%lld"
    long = "unsigned long long" if t.kind in ("uint", "bool") else "long long"
    return [f'printf("{sign}", ({long}){name});']


def _openmp(case: Case, name: str) -> tuple[str, str]:
    """The text of a case's kernel, and its call."""
    steps = (HostLoop("turn", Size(Affine.number(1)), (case.program,)),) if case.in_region else (case.program,)
    kernel = emit_openmp(
        KernelRequest(
            name, case.program.name, steps, (case.configuration,), case.machine, regions=(case.in_region,),
            known=tuple(case.known.items()),
        )
    )
    assert not any(word in kernel.text for word in ("#include", "fast-math", "Ofast")), kernel.text
    return kernel.text, kernel.call


def program_text(cases: list[Case], emitted: Callable[[Case, str], tuple[str, str]] = _openmp) -> str:
    out = ["#include <stdio.h>", "#include <string.h>", "#include <stdint.h>", *POISON]
    # what calls the kernels need not be optimised: half of what clang did
    out += ["#ifdef __clang__", "#define UNCHANGED __attribute__((noinline, optnone))", "#else", "#define UNCHANGED", "#endif"]
    main = ["int main(void) {"]
    known: dict[str, str] = {}  # kernels that differ in their names only are compiled once
    for k, case in enumerate(cases):
        p = case.program
        for r in records_of(p):
            fields = " ".join(f"{c_type(t)} {n};" for n, t in r.fields)
            out += [f"#define {r.name} {r.name}_{k}", f"typedef struct {{ {fields} }} {r.name};"]
        out += [function_text(f, p.functions) for f in p.functions]
        name = f"kernel_{k}"
        kernel, call = emitted(case, name)
        text = kernel.replace(name, f"kernel {k}" if records_of(p) else "kernel")
        if known.setdefault(text, name) == name:
            out.append(kernel)
        run = [f"UNCHANGED static void case_{k}(void) {{"]
        for q in p.params:
            assert not isinstance(q.type, RecordType)
            run.append(f"  {c_type(q.type)} {q.name} = {_literal(case.params[q.name], q.type)}; (void){q.name};")
        for b in p.buffers:
            value = case.buffers[b.name]
            n = len(value.data)
            data = ", ".join(_literal(v, b.type) for v in value.data)
            run.append(f"  static {c_type(b.type)} {b.name}_all[{n} + 2*{CANARY}];")
            run.append(f"  memset({b.name}_all, 0xAB, sizeof {b.name}_all);")
            run.append(f"  {c_type(b.type)} *{b.name} = {b.name}_all + {CANARY};")
            if n:
                run.append(f"  static const {c_type(b.type)} {b.name}_data[] = {{{data}}};")
                run.append(f"  memcpy({b.name}, {b.name}_data, sizeof {b.name}_data);")
            margins = [f"{b.name}_all, {CANARY} * sizeof *{b.name}", f"{b.name} + {n}, {CANARY} * sizeof *{b.name}"]
            run += [f"  ASAN_POISON_MEMORY_REGION({margin});" for margin in margins]
        run.append(f'  printf("{{\\"returned\\": %d, ", {call.replace(name, known[text])});')
        for b in p.buffers:
            run.append(f"  ASAN_UNPOISON_MEMORY_REGION({b.name}_all, sizeof {b.name}_all);")
            n = len(case.buffers[b.name].data)
            run.append(f'  printf("\\"{b.name}\\": [");')
            run.append(f"  for (long at = 0; at < {n}; at++) {{")
            run.append('    if (at) printf(",");')
            run += ["    " + line for line in _printed(f"{b.name}[at]", b.type)]
            run.append('  }\n  printf("], ");')
            run.append(
                f"  for (long at = 0; at < {CANARY} * (long)sizeof({c_type(b.type)}); at++)"
                f" if (((unsigned char *){b.name}_all)[at] != 0xAB ||"
                f" ((unsigned char *)({b.name} + {n}))[at] != 0xAB)"
                f' {{ printf("\\"outside\\": \\"{b.name}\\", "); break; }}'
            )
        run += ['  printf("\\"end\\": 0}\\n");', "  fflush(stdout);", "}"]
        out += run
        for r in records_of(p):
            out.append(f"#undef {r.name}")
        main.append(f"  case_{k}();")
    return "\n".join([*out, *main, "  return 0;", "}", ""])


def _value(x: object, t: Type) -> Value:
    if isinstance(t, RecordType):
        assert isinstance(x, list)
        return tuple(_value(v, u) for v, (_, u) in zip(x, t.fields, strict=True))
    if isinstance(x, str):
        return math.nan if "nan" in x else float.fromhex(x)
    assert isinstance(x, int)
    return x


def unique_functions(cases: list[Case]) -> list[Case]:
    """User functions of different cases have different names in one C file."""
    out = []
    for k, case in enumerate(cases):
        if not case.program.functions:
            out.append(case)
            continue
        out.append(replace(case, program=_renamed(case.program, k)))
    return out


def _renamed(p: MdhProgram, k: int) -> MdhProgram:
    from mdh_core.combine import CombineOp
    from mdh_core.expr import Call, map_stmts, rewrite

    own = {f.name: f"{f.name}_{k}" for f in p.functions}

    def expr(e: Expr) -> Expr:
        return rewrite(
            e, lambda n: replace(n, function=own[n.function]) if isinstance(n, Call) and n.function in own else None
        )

    def op(o: CombineOp) -> CombineOp:
        if o.function is None:
            return o
        return CombineOp(o.kind, replace(o.function, values=tuple(map(expr, o.function.values))))

    functions = tuple(replace(f, name=own[f.name], body=map_stmts(f.body, expr)) for f in p.functions)
    scalar = replace(
        p.hom.scalar,
        results=tuple(map(expr, p.hom.scalar.results)),
        body=map_stmts(p.hom.scalar.body, expr),
    )
    return replace(
        p,
        functions=functions,
        hom=replace(p.hom, scalar=scalar, combine=tuple(map(op, p.hom.combine))),
    )


def run_emitted(
    cases: list[Case],
    directory: Path,
    compiler: str = "gcc",
    flags: tuple[str, ...] = FLAGS,
    threads: int = 3,
    timeout: float = 120,
) -> list[tuple[int, dict[str, list[Value]]]]:
    """Per case: the kernel's return value and the buffers' data afterwards."""
    cases = unique_functions(cases)
    source, program = directory / "cases.c", directory / "cases"
    source.write_text(program_text(cases))
    if compiler == "clang":  # `omp simd` is an offer; it may be declined
        flags = (*flags, "-Wno-pass-failed")
    built = subprocess.run(
        [compiler, *flags, str(source), "-o", str(program), "-lm"], capture_output=True, text=True, timeout=600
    )
    assert built.returncode == 0, built.stderr[:4000]
    return answers_of(cases, program, timeout, {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"})


def answers_of(
    cases: list[Case], program: Path, timeout: float, environment: Mapping[str, str], target: str = "openmp"
) -> list[tuple[int, dict[str, list[Value]]]]:
    """Run a program made from ``program_text``: per case what was returned, and the buffers."""
    ran = subprocess.run([str(program)], capture_output=True, text=True, timeout=timeout, env=dict(environment))
    if ran.returncode != 0:
        done = ran.stdout.count("\n")  # a line for each case
        about = described(cases[done]) if done < len(cases) else "after the last case"
        raise AssertionError(f"{target}: exit status {ran.returncode} in {about}\n{ran.stderr[-2000:]}")
    out = []
    for case, line in zip(cases, ran.stdout.splitlines(), strict=True):
        answer = json.loads(line)
        assert "outside" not in answer, f"{target}: write outside {answer['outside']} in {described(case)}"
        data = {
            b.name: [_value(x, b.type) for x in answer[b.name]] for b in case.program.buffers
        }
        out.append((answer["returned"], data))
    return out


def with_constant_sizes(p: MdhProgram, values: dict[str, int]) -> MdhProgram:
    known = {n: Affine.number(v) for n, v in values.items()}
    dims = tuple(
        replace(d, size=replace(d.size, span=d.size.span.substitute(known))) for d in p.hom.dims
    )
    return replace(p, hom=replace(p.hom, dims=dims))


def check(cases: Sequence[tuple[Case, Mapping[str, BufferValue]]], directory: Path, **how: object) -> None:
    """Every case ends with the buffers that stand beside it."""
    compare(cases, run_emitted([case for case, _ in cases], directory, **how))  # type: ignore[arg-type]


def compare(
    cases: Sequence[tuple[Case, Mapping[str, BufferValue]]],
    answers: list[tuple[int, dict[str, list[Value]]]],
    target: str = "openmp",
) -> None:
    for (case, expected), (returned, found) in zip(cases, answers, strict=True):
        assert returned == 1, f"{target}: declined by {described(case)}"
        for store in case.program.out.stores:
            want = expected[store.buffer].data
            pairs = zip(found[store.buffer], want, strict=True)
            assert all(same(x, y) for x, y in pairs), f"{target}: wrong {store.buffer} of {described(case)}"


__all__ = [
    "Case", "check", "program_text", "run_emitted", "stmt_exprs", "walk", "with_constant_sizes", "with_extents",
]  # fmt: skip
