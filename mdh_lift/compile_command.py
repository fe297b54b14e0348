"""Which command compiles a file: the text after ``--``, a compile database, or the configuration.

A database is looked for as clang tools do: ``compile_commands.json`` in the file's directory and the
directories above it (and their ``build*/``), or ``compile_flags.txt``.  Nothing found here is run by a
shell; ``frontend_c.preprocess`` decides which flags a look at a file may use.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from frontend_c.compilers import project_of
from frontend_c.preprocess import CompileCommand

_LAUNCHERS = frozenset({"ccache", "sccache", "distcc", "icecc"})
_OUTPUT = frozenset({"-o", "-MF", "-MT", "-MQ"})  # flags with an argument that concern outputs
_STEPS = frozenset({"-c", "-S", "-E", "-M", "-MM", "-MD", "-MMD", "-MP", "-MG"})
_PATHS = ("-I", "-isystem", "-iquote", "-idirafter", "-include", "-imacros")


def from_words(words: Sequence[str], directory: str = ".", source: str = "") -> CompileCommand:
    """A command line as compiler and flags; inputs, outputs and the compilation step are dropped.

    Paths count from ``directory``; in the result they count from the working directory.

    >>> from_words(["gcc", "-O2", "-c", "f.c", "-o", "f.o"])
    CompileCommand(compiler='gcc', flags=('-O2',), directory='.')
    """
    rest = list(words)
    while rest and Path(rest[0]).name in _LAUNCHERS:
        rest.pop(0)
    compiler = rest.pop(0) if rest and not rest[0].startswith("-") else ""  # "" stands for any
    flags: list[str] = []
    while rest:
        word = rest.pop(0)
        if word in _OUTPUT:
            del rest[:1]
        elif directory != "." and (option := next((o for o in _PATHS if word.startswith(o)), None)):
            argument = word.removeprefix(option) or (rest.pop(0) if rest else "")
            path = str(Path(directory, argument))
            searched = option in ("-include", "-imacros") and not Path(path).exists()
            flags += [option, argument if searched else path]
        elif word not in _STEPS and word != "--" and not _is_input(word, directory, source, flags):
            flags.append(word)
    return CompileCommand(compiler, tuple(flags))


def _is_input(word: str, directory: str, source: str, before: list[str]) -> bool:
    if word.startswith("-") or (before and before[-1] in ("-include", "-imacros")):
        return False
    if source and Path(os.path.realpath(Path(directory, word))) == Path(os.path.realpath(source)):
        return True
    return word.endswith((".c", ".o", ".a"))


def find(source: str, build_dir: str = "") -> CompileCommand | None:
    """The command of a file in the nearest database, or None where no database knows it."""
    path = Path(os.path.realpath(source))
    directories = [Path(build_dir)] if build_dir else list(path.parents)
    for directory in directories:
        builds = [] if build_dir else sorted(p for p in directory.glob("build*") if p.is_dir())
        for place in (directory, *builds):
            database = place / "compile_commands.json"
            if database.is_file():
                known = _commands(database, database.stat().st_mtime_ns).get(path)
                return known and replace(known, trees=project_of(source, str(directory)))
        flags = directory / "compile_flags.txt"
        if flags.is_file():
            words = [line.strip() for line in flags.read_text(errors="surrogateescape").splitlines()]
            given = from_words(["", *(w for w in words if w)], str(directory))
            return replace(given, trees=project_of(source, str(directory)))
    return None


class DatabaseError(Exception):
    """A compile database that cannot be read; the text says which and why."""


@lru_cache(maxsize=16)
def _commands(database: Path, changed: int) -> dict[Path, CompileCommand]:
    """All entries of a database by absolute file name; the first of several wins."""
    try:
        entries = json.loads(database.read_text(errors="surrogateescape"))
        found: dict[Path, CompileCommand] = {}
        for entry in entries:
            directory = str(Path(database.parent, entry.get("directory", ".")))
            file = Path(os.path.realpath(Path(directory, entry["file"])))
            words = entry["arguments"] if "arguments" in entry else shlex.split(entry["command"])
            found.setdefault(file, from_words(words, directory, str(file)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DatabaseError(f"{database}: not a compile database: {error}") from None
    return found
