"""Which findings are told: the configuration's ``[diagnostics]``, comments in the source, and a baseline.

    finding -> select, ignore, per-file-ignores, severity -> comments -> baseline -> told

What cannot be ignored (``may_be_suppressed``) passes all of it unchanged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

from mdh_core.diagnostics import CODES, Diagnostic
from mdh_core.source import SourceFile
from mdh_lift import baseline
from mdh_lift.files import is_python
from mdh_lift.findings import Finding
from mdh_lift.splice import Original
from mdh_lift.suppressions import Suppression, may_be_suppressed, read_suppressions

_BY_OTHER_VERBS = re.compile(r"MDH(6|7|8|410|411)")  # which `check` never reports, so none of them is unused


def matches(code: str, patterns: Iterable[str]) -> bool:
    """Is it one of these codes, or does it begin like one (``MDH2``)?"""
    return any(code.startswith(p) for p in patterns)


def unknown_codes(patterns: Iterable[str]) -> list[str]:
    """Those that no code begins like."""
    return [p for p in patterns if not p or not any(code.startswith(p) for code in CODES)]


@dataclass(frozen=True, slots=True)
class Rules:
    """What configuration and command line say about the findings of one file; paths count from ``root``."""

    select: Sequence[str] = ("MDH",)
    ignore: Sequence[str] = ()
    severity: Mapping[str, str] = field(default_factory=dict)
    per_file_ignores: Mapping[str, Sequence[str]] = field(default_factory=dict)
    root: Path = Path()

    def applied(self, f: Finding) -> Finding | None:
        """The finding with the severity that it shall have; None where it is not to be told."""
        code = f.diagnostic.code
        if not may_be_suppressed(code):
            return f
        if not self.tells(code, f.file):
            return None
        # the longest pattern says it
        stated = [p for p in sorted(self.severity, key=len) if code.startswith(p)]
        if not stated:
            return f
        return replace(f, diagnostic=replace(f.diagnostic, severity=self.severity[stated[-1]]))

    def tells(self, code: str, file: str) -> bool:
        """Whether findings of a code in a file may be told at all."""
        if not matches(code, self.select) or matches(code, self.ignore):
            return False
        return not any(
            matches(code, codes) and _is_file(file, pattern, self.root)
            for pattern, codes in self.per_file_ignores.items()
        )


def _is_file(file: str, pattern: str, root: Path) -> bool:
    path = Path(file).resolve()
    name = str(path.relative_to(root.resolve())) if path.is_relative_to(root.resolve()) else str(path)
    return fnmatch(name, pattern) or fnmatch(path.name, pattern) or fnmatch(name, f"{pattern.rstrip('/')}/*")


@dataclass
class _Known:
    """A file's comments, and what is needed to compare them with findings."""

    bare: Original
    text: SourceFile
    comments: list[Suppression]

    def line(self, f: Finding) -> int:
        """Of a finding, in the text without regions."""
        if f.source is None:
            return 0
        line = f.start[0]
        offset = f.source.offset_of_line(line) if line <= f.source.line_count else 0
        if f.diagnostic.span:
            offset = f.diagnostic.span.start
        return self.text.line_col(self.bare.in_original(offset))[0]


@dataclass
class Selection:
    """The findings of one run; ``allowed`` by a baseline that lies in ``directory``."""

    allowed: Counter[baseline.Key] = field(default_factory=Counter)
    directory: Path = field(default_factory=Path.cwd)
    suppressed: int = 0  # by comments
    in_baseline: int = 0
    files: dict[str, _Known] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.left = Counter(self.allowed)

    def read(self, source: SourceFile, bare: Original) -> list[Finding]:
        """Take note of a file's comments; what is wrong with them."""
        text = SourceFile(source.path, bare.data)
        comments, wrong = read_suppressions(text, is_python(source.path))
        self.files[source.path] = _Known(bare, text, comments)
        return [Finding(_moved(d, bare), source) for d in wrong]

    def kept(self, findings: Iterable[Finding], rules: Rules, nest_line: int = 0) -> list[Finding]:
        """Those that are to be told.  ``nest_line``: of the directive of the nest that they are about."""
        out = []
        for f in findings:
            told = rules.applied(f)
            if told is None or self._is_commented(told, nest_line) or self._is_allowed(told):
                continue
            out.append(told)
        return out

    def _is_commented(self, f: Finding, nest_line: int) -> bool:
        known = self.files.get(f.file)
        code = f.diagnostic.code
        if known is None or not may_be_suppressed(code):
            return False
        lines = {known.line(f)}
        if nest_line and f.source is not None:
            start = f.source.offset_of_line(nest_line)
            lines.add(known.text.line_col(known.bare.in_original(start))[0])
        found = [s for s in known.comments if code in s.codes and any(line in s.lines for line in lines)]
        for s in found:
            s.used.add(code)
        self.suppressed += bool(found)
        return bool(found)

    def _is_allowed(self, f: Finding) -> bool:
        if not self.left or not baseline.in_baseline(f):
            return False
        key = baseline.key_of(f, self.directory)
        if not self.left[key]:
            return False
        self.left[key] -= 1
        self.in_baseline += 1
        return True

    def unused(self, source: SourceFile, rules: Rules) -> list[Finding]:
        """Codes of comments that nothing was reported for (MDH422), once all findings of a file are known.

        Codes that are not told in this run are not judged.
        """
        known = self.files[source.path]
        return [
            Finding(_moved(
                Diagnostic("MDH422", f"`{code}` is ignored here but not reported", source.path, at,
                           help="remove it"), known.bare,
            ), source)
            for s in known.comments for code, at in s.codes.items()
            if code not in s.used and not _BY_OTHER_VERBS.match(code) and rules.tells(code, source.path)
        ]  # fmt: skip

    def gone(self, files: Iterable[str], rules: Callable[[str], Rules]) -> int:
        """How many findings of these files the baseline allows that are not there, among those told now."""
        names = {baseline.key_of(Finding(Diagnostic("MDH001", "", f)), self.directory)[0]: f for f in files}
        return sum(
            n for (name, _, code), n in self.left.items()
            if name in names and rules(names[name]).tells(code, names[name])
        )  # fmt: skip


def _moved(d: Diagnostic, bare: Original) -> Diagnostic:
    """Into the file as it stands."""
    start = bare.in_file(d.span.start)
    return replace(d, span=replace(d.span, start=start, end=start + d.span.end - d.span.start))
