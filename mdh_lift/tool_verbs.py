"""Verbs that look at no nest: codes with their explanations, the configuration, the version, the machine.

Each writes its result to the session and returns the exit status.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontend_c.preprocess import find_compiler
from mdh_core.diagnostics import CODES, Code, Refusal
from mdh_lift import config as configuration
from mdh_lift import report_data
from mdh_lift.session import Session
from mdh_lift.version import VERSION

if TYPE_CHECKING:
    from lowering.device import Device


def explain(session: Session, row: Code) -> int:
    if session.output_format == "json":
        return _finish_json(session, code_json(row))
    session.result(f"{row.code} ({row.severity}): {row.title}\n\n{textwrap.fill(row.explanation, 96)}\n\n")
    session.result(f"Exit status of a run with this finding: {row.exit_status}\n")
    return _finish_quietly(session)


def codes(session: Session) -> int:
    if session.output_format == "json":
        return _finish_json(session, {"codes": [code_json(row) for row in CODES.values()]})
    for row in CODES.values():
        session.result(f"{row.code}  {row.severity:<7}  {row.title}\n")
    return _finish_quietly(session)


def code_json(row: Code) -> dict[str, object]:
    return {
        "code": row.code,
        "severity": row.severity,
        "title": row.title,
        "explanation": row.explanation,
        "exit_status": row.exit_status,
    }


def config(session: Session, path: str) -> int:
    try:
        file = session.config_file_of(path)
        from_file, effective = configuration.load(file), session.options(path).config
    except configuration.ConfigurationError as error:
        raise click.UsageError(str(error)) from None
    default = dict(configuration.flat(configuration.Config()))
    before = dict(configuration.flat(from_file))
    rows = []
    for key, value in configuration.flat(effective):
        origin = "command line" if value != before[key] else "default" if value == default[key] else str(file)
        rows.append({"key": key, "value": value, "origin": origin})
    if session.output_format == "json":
        return _finish_json(session, {"file": None if file is None else str(file), "values": rows})
    width = max(len(str(row["key"])) + len(json.dumps(row["value"])) for row in rows) + 3
    for row in rows:
        setting = f"{row['key']} = {json.dumps(row['value'])}"
        session.result(f"{setting:<{width}}  # {row['origin']}\n")
    return _finish_quietly(session)


def version(session: Session, where: bool = False) -> int:
    if where:
        session.result(f"{Path(__file__).parent / 'integrations'}\n")
        return _finish_quietly(session)
    if session.output_format == "json":
        return _finish_json(session, {"version": VERSION, "python": platform.python_version()})
    session.result(f"mdh-lift {VERSION}\n")
    return _finish_quietly(session)


def doctor(session: Session, bench: bool = False) -> int:
    """Versions, compiler, cores, GPUs, limits; exit status 4 where no C compiler is found.

    ``bench``: measure the limits of the machine and keep them; else tell those that were measured.
    """
    from mdh_lift.report import limits  # with what measures them

    rows = [("mdh-lift", VERSION, True), ("python", f"{platform.python_version()} ({sys.executable})", True)]
    rows.append(("system", platform.platform(), True))
    rows.append(("cores", str(len(os.sched_getaffinity(0))), True))
    rows.append(_pages())
    for package in ("islpy", "pycparser", "Jinja2", "archspec"):
        rows.append((package, *_installed(package)))
    compiler = _compiler()
    rows.append(("C compiler", compiler or "none found: install gcc or clang", bool(compiler)))
    works = bool(compiler) and _openmp_works(compiler.split()[0])
    rows.append(("OpenMP", "-fopenmp compiles and runs" if works else "-fopenmp does not work", works))
    tuner, found = _installed("kernel-tuner")
    rows.append(
        (
            "tuning extra",
            f"kernel-tuner {tuner}" if found else "not installed: pip install 'mdh-lift[tune]'",
            found,
        )
    )
    rows += _gpus()
    ceilings = limits.measured(session) if bench and compiler else limits.known(session)
    rows += limits.rows(ceilings)
    if session.output_format == "json":
        session.statuses.append(0 if works else 4)
        checks = [{"name": n, "value": v, "ok": ok} for n, v, ok in rows]
        return _finish_json(session, {"checks": checks, "ceilings": ceilings and ceilings.as_json()})
    for name, value, good in rows:
        mark = click.style("ok", fg="green") if good else click.style("--", fg="yellow")
        line = f"{mark}  {name:<13} {value}\n"
        session.result(line if session.colour else click.unstyle(line))
    session.statuses.append(0 if works else 4)
    return _finish_quietly(session)


def _pages() -> tuple[str, str, bool]:
    """What large arrays lie in; long rows are read up to twice as fast from large pages."""
    from lowering.machine import has_huge_pages

    if has_huge_pages(asked=False):
        return "pages", "2 MiB for large arrays", True
    small = f"{os.sysconf('SC_PAGE_SIZE') >> 10} KiB"
    if has_huge_pages(asked=True):
        ask = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 makes malloc ask"
        return "pages", f"{small}; 2 MiB for large arrays of programs that ask for them: {ask}", False
    return "pages", small, False


def _gpus() -> list[tuple[str, str, bool]]:
    """What the GPU targets would use; none of it is needed for the others."""
    from tuning import devices

    program, *options = devices.nvcc_command()
    nvcc = shutil.which(program)
    said = " ".join([nvcc, *options]) if nvcc else f"`{program}` not found: emitted CUDA cannot be compiled"
    rows = [("nvcc", said, nvcc is not None)]
    cuda = devices.cuda_device()
    rows.append(("CUDA device", _described(cuda) if cuda else "none found", cuda is not None))
    found = devices.opencl_devices()
    rows += [(f"OpenCL {k}", _described(d), True) for k, d in enumerate(found)]
    return rows if found else [*rows, ("OpenCL", "no device found, or no headers and loader", False)]


def _described(device: Device) -> str:
    arch = f" ({device.arch})" if device.arch else ""
    return f"{device.name}{arch}, {device.processors} compute units, {device.memory / (1 << 30):.1f} GiB"


def _installed(package: str) -> tuple[str, bool]:
    import importlib.metadata

    try:
        return importlib.metadata.version(package), True
    except importlib.metadata.PackageNotFoundError:
        return "not installed", False


def _compiler() -> str:
    try:
        path = find_compiler()
    except Refusal:
        return ""
    first = subprocess.run(
        [path, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    return f"{path} ({first.stdout.splitlines()[0] if first.stdout else 'unknown version'})"


def _openmp_works(compiler: str) -> bool:
    """Compile and run three lines of our own."""
    program = b"#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n"
    with tempfile.TemporaryDirectory(prefix="mdh-lift-") as directory:
        out = str(Path(directory, "a.out"))
        command = [compiler, "-fopenmp", "-x", "c", "-o", out, "-"]
        compiled = subprocess.run(command, input=program, capture_output=True, check=False)
        return compiled.returncode == 0 and subprocess.run([out], check=False).returncode == 0


def _finish_json(session: Session, content: dict[str, object]) -> int:
    session.result(report_data.json_object(content))
    return _finish_quietly(session)


def _finish_quietly(session: Session) -> int:
    """For verbs that look at no file: results only, in the form they are in."""
    session.quiet, session.output_format = True, "text"
    return session.finish()
