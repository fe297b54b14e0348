"""A lifted nest as the JSON of ``show --as json`` (interface.md, section 2)."""

from __future__ import annotations

from collections.abc import Callable

from lifter.fusion import Fusion, product_text
from lifter.lift import LiftedNest
from mdh_core.diagnostics import Diagnostic
from mdh_core.expr import BOOL, DOUBLE, FLOAT, INT32, Load, Type, walk
from mdh_core.ir import HostLoop, MdhProgram, Sequential, Step
from mdh_core.show import scalar_text
from mdh_core.source import SourceFile, Span

Json = dict[str, object]
LineOf = Callable[[Span], int]


def to_json(lifted: LiftedNest, source: SourceFile | None = None, line_of: LineOf | None = None) -> Json:
    """One entry of ``nests``; ``source`` gives line numbers, without it they are 0.

    ``line_of``: the lines of sequential steps, where spans count in another text than the user's.
    """
    nest = lifted.nest

    def line(span: Span) -> int:
        return source.line_col(span.start)[0] if source is not None and span else 0

    return {
        "name": nest.name,
        "file": nest.file,
        "line": line(nest.span),
        "status": lifted.status,
        "program": [step_json(s, line_of or line) for s in lifted.program],
        "fusions": [fusion_json(f) for f in lifted.fusions],
        "diagnostics": [diagnostic_json(d, source) for d in lifted.diagnostics],
    }


def step_json(step: Step, line_of: LineOf) -> Json:
    match step:
        case MdhProgram():
            return program_json(step)
        case HostLoop(iterator=iterator, size=size, body=body):
            inside = [step_json(s, line_of) for s in body]
            return {"kind": "host_loop", "iterator": iterator, "extent": str(size), "body": inside}
        case Sequential(reason=reason, span=span):
            return {"kind": "sequential", "line": line_of(span), "reason": reason}


def fusion_json(f: Fusion) -> Json:
    """``at``: the numbers of the steps around the first program, and its own, in ``program``."""
    return {
        "at": [*f.path, f.first],
        "count": f.count,
        "kinds": list(f.kinds),
        "program": program_json(f.program),
        "saves": [
            {"buffer": s.buffer, "access": s.access, "cells": product_text(s.cells), "bytes": s.bytes}
            for s in f.saved
        ],
        "unneeded": list(f.unneeded),
        "repeated": product_text(f.repeated),
    }


def program_json(p: MdhProgram) -> Json:
    outputs: dict[str, list[list[str]]] = {}
    for s in p.out.stores:
        outputs.setdefault(s.buffer, []).append([str(a) for a in s.index])
    inputs: dict[str, list[list[str]]] = {}
    for a in p.inp.accesses:
        inputs.setdefault(a.buffer, []).append([str(i) for i in a.index])
    domain: Json = {"domain": [str(c) for c in p.hom.domain]} if p.hom.domain else {}
    return {
        "kind": "md_hom",
        "dims": [
            {"name": d.name, "extent": str(d.size), "op": str(op)}
            for d, op in zip(p.hom.dims, p.hom.combine, strict=True)
        ],
        "inputs": [
            {"buffer": b, "type": type_text(p.buffer(b).type), "accesses": accesses}
            for b, accesses in inputs.items()
        ],
        "outputs": [
            {
                "buffer": b,
                "type": type_text(p.buffer(b).type),
                "accesses": accesses,
                "accumulates": accumulates(p, b),
            }
            for b, accesses in outputs.items()
        ],
        "scalar_function": scalar_text(p),
        **domain,
    }


def accumulates(p: MdhProgram, buffer: str) -> bool:
    """Does a result start from the buffer's old value, or merge with it?"""
    exprs = [e for e in p.out.initial if e is not None]
    exprs += [s.value for s in p.out.stores if s.buffer == buffer]
    return any(isinstance(n, Load) and n.buffer == buffer for e in exprs for n in walk(e))


def diagnostic_json(d: Diagnostic, source: SourceFile | None = None) -> Json:
    line, column = d.position(source)
    return {
        "severity": d.severity,
        "code": d.code,
        "message": d.message,
        "line": line,
        "column": column,
        "label": d.label,
        "notes": list(d.notes),
        "help": d.help,
    }


def type_text(t: Type) -> str:
    """The type in C."""
    if t in (FLOAT, DOUBLE, BOOL):
        return str(t)
    return "int" if t == INT32 else f"{t}_t" if str(t).rstrip("0123456789") in ("int", "uint") else str(t)
