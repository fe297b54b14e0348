"""Project configuration: the nearest ``.mdh-lift.toml``, ``mdh-lift.toml`` or ``[tool.mdh-lift]``.

The file nearest to a source decides alone; nothing is merged but the flags of the command line,
which go over it.  Unknown keys are errors.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from frontend_c.directives import ACCEPTED
from lifter.annotations import TARGETS
from mdh_core.diagnostics import CODES
from mdh_lift.findings import FAIL_ON, SEVERITIES
from tuning.budget import parse_budget

STYLES = ("inline", "outline")  # where kernels for the processor stand: in the source, or in a file beside it
NAMES = (".mdh-lift.toml", "mdh-lift.toml", "pyproject.toml")


class ConfigurationError(Exception):
    """A configuration that cannot be used; the text names file, key and what would be right."""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    pass


class Build(_Table, frozen=True):
    compiler: str = ""
    flags: list[str] = msgspec.field(default_factory=list)
    compile_commands: str = ""  # directory that holds compile_commands.json


class Tune(_Table, frozen=True):
    strategy: str = "auto"
    budget: str = "30ev"
    seed: int = 0
    min_speedup: float = 1.05
    measure_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 3.0  # of original and result in turn
    jobs: int = 0  # 0: as many as there are cores
    target: str = ""  # openmp, cuda, opencl; empty: the first of the nest's clause, without one openmp


class Lift(_Table, frozen=True):
    accept: list[str] = msgspec.field(default_factory=list)  # other directives that count: scop, omp, acc
    seconds: float = 30.0  # wall time for the analysis of one nest; 0: no limit


class Splice(_Table, frozen=True):
    style: str = "inline"


class Place(_Table, frozen=True):
    path: str = ""


class Lock(_Table, frozen=True):
    path: str = "mdh-lift.lock"
    targets: list[str] = msgspec.field(default_factory=list)  # that every spliced nest must have an entry for


class Diagnostics(_Table, frozen=True):
    """Codes, or what they begin with: ``MDH2``."""

    select: list[str] = msgspec.field(default_factory=lambda: ["MDH"])
    ignore: list[str] = msgspec.field(default_factory=list)
    severity: dict[str, str] = msgspec.field(default_factory=dict)
    per_file_ignores: dict[str, list[str]] = msgspec.field(default_factory=dict)  # by pattern


class Program(_Table, frozen=True):
    """A program of a suite; commands are argument lists; ``directory`` counts from the configuration."""

    name: str
    run: list[str]
    build: list[str] = msgspec.field(default_factory=list)
    compare: str | float | list[str] = "exact"  # or a relative tolerance of numbers, or a command
    directory: str = "."


class Suite(_Table, frozen=True):
    programs: list[Program] = msgspec.field(default_factory=list)
    rounds: int = 7  # runs of original and ported program in turn
    seconds: float = 600.0  # for each build and each run


class Config(_Table, frozen=True):
    """All keys with their defaults; ``file`` is where they come from."""

    schema: int = 1
    exclude: list[str] = msgspec.field(default_factory=list)
    fail_on: str = "error"  # or warning, info, never
    baseline: str = ""  # file with findings that are allowed
    diagnostics: Diagnostics = msgspec.field(default_factory=Diagnostics)
    build: Build = msgspec.field(default_factory=Build)
    lift: Lift = msgspec.field(default_factory=Lift)
    tune: Tune = msgspec.field(default_factory=Tune)
    splice: Splice = msgspec.field(default_factory=Splice)
    lock: Lock = msgspec.field(default_factory=Lock)
    suite: Suite = msgspec.field(default_factory=Suite)
    database: Place = msgspec.field(default_factory=lambda: Place(".mdh-lift/tune.sqlite"))


def find(source: str) -> Path | None:
    """The configuration file that holds for a source file (or directory)."""
    path = Path(os.path.realpath(source))
    for directory in (path, *path.parents):
        for name in NAMES:
            file = directory / name
            if file.is_file() and (name != "pyproject.toml" or "mdh-lift" in _toml(file).get("tool", {})):
                return file
    return None


def root(source: str, file: Path | None) -> Path:
    """The directory that relative paths of the configuration count from: that of the file, or else of the
    repository, or else the working directory."""
    if file is not None:
        return file.resolve().parent
    return next((d for d in Path(os.path.realpath(source)).parents if (d / ".git").exists()), Path.cwd())


def load(file: Path | None) -> Config:
    """The values of a configuration file, typed; the defaults for None.  Raises ConfigurationError."""
    if file is None:
        return Config()
    content = _toml(file)
    if file.name == "pyproject.toml":
        content = content["tool"]["mdh-lift"]
    try:
        config = msgspec.convert(content, Config)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{file}: {_explain(str(error), content)}") from None
    try:
        parse_budget(config.tune.budget)
    except ValueError as error:
        raise ConfigurationError(f"{file}: `tune.budget`: {error}") from None
    for word in config.lift.accept:
        if word not in ACCEPTED:
            raise ConfigurationError(f"{file}: `lift.accept`: `{word}` is none of {', '.join(ACCEPTED)}")
    if config.tune.target not in ("", *TARGETS):
        raise ConfigurationError(
            f"{file}: `tune.target`: `{config.tune.target}` is none of {', '.join(TARGETS)}"
        )
    for program in config.suite.programs:
        if not program.run or (isinstance(program.compare, str) and program.compare != "exact"):
            raise ConfigurationError(
                f"{file}: `suite.programs`, `{program.name}`: `run` is a list with a command;"
                ' `compare` is "exact", a tolerance, or a list with a command'
            )
    if config.splice.style not in STYLES:
        raise ConfigurationError(
            f"{file}: `splice.style`: `{config.splice.style}` is none of {', '.join(STYLES)}"
        )
    _check_diagnostics(config, file)
    return config


def _check_diagnostics(config: Config, file: Path) -> None:
    d = config.diagnostics
    lists = {"select": d.select, "ignore": d.ignore, "severity": list(d.severity)}
    lists |= {f'per-file-ignores."{p}"': codes for p, codes in d.per_file_ignores.items()}
    for key, patterns in lists.items():
        for pattern in patterns:
            if not pattern or not any(code.startswith(pattern) for code in CODES):
                raise ConfigurationError(
                    f"{file}: `diagnostics.{key}`: no diagnostic has a code like `{pattern}`"
                )
    for code, severity in d.severity.items():
        if severity not in SEVERITIES:
            raise ConfigurationError(
                f"{file}: `diagnostics.severity.{code}`: `{severity}` is none of {', '.join(SEVERITIES)}"
            )
    if config.fail_on not in FAIL_ON:
        raise ConfigurationError(f"{file}: `fail-on`: `{config.fail_on}` is none of {', '.join(FAIL_ON)}")
    for target in config.lock.targets:
        if target not in TARGETS:
            raise ConfigurationError(f"{file}: `lock.targets`: `{target}` is none of {', '.join(TARGETS)}")


def _toml(file: Path) -> dict[str, Any]:
    import tomllib  # most runs have no configuration file

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{file}: {error}") from None


def _explain(message: str, content: Mapping[str, object]) -> str:
    """msgspec's message with the full key and the nearest known one."""
    unknown = re.search(r"unknown field `([^`]+)`(?: - at `\$\.?([^`]*)`)?", message)
    if unknown is None:
        return message[:1].lower() + message[1:]
    key, table = unknown[1], unknown[2] or ""
    full = f"{table}.{key}" if table else key
    near = difflib.get_close_matches(full, list(_keys(Config())), 1, 0.5)
    return f"unknown key `{full}`" + (f"; did you mean `{near[0]}`?" if near else "")


def _keys(value: msgspec.Struct, prefix: str = "") -> Iterator[str]:
    for key, _ in flat(value, prefix):
        yield key
        if "." in key:
            yield key.rsplit(".", 1)[0]


def flat(value: msgspec.Struct, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every key with its value, tables joined by dots."""
    for field in msgspec.structs.fields(value):
        inner = getattr(value, field.name)
        key = prefix + field.encode_name
        if isinstance(inner, msgspec.Struct):
            yield from flat(inner, key + ".")
        else:
            yield key, msgspec.to_builtins(inner)
