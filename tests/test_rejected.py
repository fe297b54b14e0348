"""Wrong programs: each names, next to the offending line, the diagnostic that it must get.

y[i] = g(x[i]);        //! MDH204             on the line itself
//!next MDH401                                on the line before (a directive takes no comment)
//!accept omp                                 directives of other languages that count
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from frontend_c.read import CompileCommand, ReadResult, read
from lifter.claims import checked
from lifter.lift import lift
from mdh_core.diagnostics import CODES, Diagnostic
from mdh_core.source import SourceFile

FILES = sorted((Path(__file__).parent / "rejected").glob("*.c"))
_ACCEPTED = re.compile(r"//!accept (\w+)")
_EXPECTATION = re.compile(r"//!(next)?((?:\s+MDH\d{3})+)")


def expected(text: str) -> set[tuple[str, int]]:
    """(code, line) of every expectation in a program."""
    out = set()
    for number, line in enumerate(text.splitlines(), 1):
        for found in _EXPECTATION.finditer(line):
            out |= {(code, number + (found[1] is not None)) for code in found[2].split()}
    return out


def lifted(result: ReadResult) -> list[Diagnostic]:
    """What the lifter says about the nests that could be read."""
    return [d for nest in result.nests for d in checked(lift(nest)).diagnostics]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_rejected(path):
    source = SourceFile(path.name, path.read_bytes())
    accept = _ACCEPTED.findall(path.read_text(encoding="utf-8"))
    result = read(source, CompileCommand(directory=str(path.parent)), accept)
    found = [*result.diagnostics, *(d for r in result.refused for d in r.diagnostics), *lifted(result)]
    wanted = expected(path.read_text(encoding="utf-8"))
    assert wanted, "the program says nothing about what is wrong"
    got = {(d.code, d.position(source)[0]) for d in found}
    errors = {(d.code, d.position(source)[0]) for d in found if d.severity == "error"}
    assert wanted <= got, sorted(got)
    assert errors <= wanted, [d for d in found if (d.code, d.position(source)[0]) not in wanted]
    for d in found:
        assert d.message and d.message[-1] != "." and d.code in CODES
        assert not d.span or 0 <= d.span.start < d.span.end <= len(source.data)
