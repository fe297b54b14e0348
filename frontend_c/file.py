"""A C file -> its loop nests, if there are any: the way into this package.

    preprocess -> tokens -> directives, and where there are some, all that ``read.py`` does with them

Most files of a tree have no directive.  Preprocessor and lexer find that out; parser, types and expressions,
which take longer to load than such a file to read, are loaded for those that have one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from frontend_c.directives import Found, find_directives
from frontend_c.hole import Preprocessed, preprocessed
from frontend_c.positions import Positions
from frontend_c.preprocess import CompileCommand, analysis_flags, compiler_not_started, preprocess
from mdh_core.diagnostics import Diagnostic, Refusal
from mdh_core.source import SourceFile, Span

if TYPE_CHECKING:
    from frontend_c.data_regions import DataRegion
    from lifter.loop_nest import LoopNest

__all__ = ["CompileCommand", "Preprocessing", "ReadResult", "Refused", "placed", "read"]


@dataclass(frozen=True)
class Refused:
    """A directive whose nest could not be read, and why."""

    name: str
    span: Span  # the nest where it is known, else the directive
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True)
class ReadResult:
    """``parts``: for a nest of several statements, by its name, what there is if it does not lift.

    ``regions``: of data directives; what is wrong with others is in ``diagnostics``.
    """

    nests: tuple[LoopNest, ...] = ()
    refused: tuple[Refused, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()  # what belongs to no nest
    parts: Mapping[str, tuple[LoopNest | Refused, ...]] = field(default_factory=dict)
    regions: tuple[DataRegion, ...] = ()


class Preprocessing:
    """A file behind the preprocessor, and the directives in it.  Raises ``Refusal`` MDH002 and others."""

    def __init__(self, source: SourceFile, command: CompileCommand, accept: Collection[str] = ()) -> None:
        self.source = source
        self.command = command
        self.whole: Preprocessed = preprocessed(preprocess(source, command))
        self.positions = Positions(source, self.whole.stream)
        found = find_directives(self.positions, accept)
        self.data: list[Found] = [d for d in found if d.is_data]
        self.directives: list[Found] = [d for d in found if not d.is_data]


def read(source: SourceFile, command: CompileCommand, accept: Collection[str] = ()) -> ReadResult:
    """Every nest of a file.  ``accept``: other directives that count, of "scop", "omp" and "acc".

    Bad input never raises: what cannot be read is in the result, with the smallest span at fault.
    """
    _, warnings = analysis_flags(command)
    other = compiler_not_started(command)
    if other is not None:
        warnings = (*warnings, other)
    notes = tuple(replace(w, file=source.path) for w in warnings)
    try:
        file = Preprocessing(source, command, accept)
    except Refusal as refusal:
        return ReadResult(diagnostics=(*notes, placed(refusal.diagnostic, source)))
    if not file.directives:
        none = Diagnostic(
            "MDH007", "no directive in the file", source.path, help="write `#pragma mdh` above a loop nest"
        )
        return ReadResult(diagnostics=(*notes, none))
    from frontend_c.read import read_directives

    found = read_directives(file)
    return replace(found, diagnostics=(*notes, *found.diagnostics))


def placed(d: Diagnostic, source: SourceFile) -> Diagnostic:
    """The diagnostic with a file, if it names none."""
    return d if d.file else replace(d, file=source.path)
