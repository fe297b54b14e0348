"""Project configuration: the nearest ``.mdh-lift.toml``, ``mdh-lift.toml`` or ``[tool.mdh-lift]``.

The file nearest to a source decides alone; nothing is merged but the flags of the command line,
which go over it.  Unknown keys are errors.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from frontend_c.directives import ACCEPTED
from lifter.annotations import TARGETS
from tuning.budget import parse_budget

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
    jobs: int = 0  # 0: as many as there are cores
    target: str = ""  # openmp, cuda, opencl; empty: the first of the nest's clause, without one openmp


class Lift(_Table, frozen=True):
    accept: list[str] = msgspec.field(default_factory=list)  # other directives that count: scop, omp, acc
    seconds: float = 30.0  # wall time for the analysis of one nest; 0: no limit


class Splice(_Table, frozen=True):
    style: str = "inline"


class Place(_Table, frozen=True):
    path: str = ""


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
    build: Build = msgspec.field(default_factory=Build)
    lift: Lift = msgspec.field(default_factory=Lift)
    tune: Tune = msgspec.field(default_factory=Tune)
    splice: Splice = msgspec.field(default_factory=Splice)
    lock: Place = msgspec.field(default_factory=lambda: Place("mdh-lift.lock"))
    suite: Suite = msgspec.field(default_factory=Suite)
    database: Place = msgspec.field(default_factory=lambda: Place(".mdh-lift/tune.sqlite"))


def find(source: str) -> Path | None:
    """The configuration file that holds for a source file (or directory)."""
    path = Path(source).resolve()
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
    return next((d for d in Path(source).resolve().parents if (d / ".git").exists()), Path.cwd())


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
    if config.splice.style != "inline":
        raise ConfigurationError(
            f"{file}: `splice.style` is `{config.splice.style}`; this version knows `inline`"
        )
    return config


def _toml(file: Path) -> dict[str, Any]:
    import tomllib  # most runs have no configuration file

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
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
