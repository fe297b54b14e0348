"""Programs whose order of iterations must be kept: a parallel form of them would be wrong.

The first line of each file says what must not happen:

    //! refused          the whole nest is left alone
    //! ordered: i, j    no md_hom has all of these loops as dimensions (host loops are right, refusal too)
    //! guarded: a, b    the emitted kernel tests whether these two overlap

Whatever does become steps is run and compared with the loops.
"""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path

import pytest

from campaigns.nests import check_c
from frontend_c.read import CompileCommand, read
from lifter.lift import lift
from mdh_core.source import SourceFile
from mdh_lift.kernels import plan

PROGRAMS = sorted((Path(__file__).parent / "must_refuse").glob("*.c"))


def claim(text: str) -> tuple[str, frozenset[str]]:
    kind, _, names = text.splitlines()[0].removeprefix("//! ").partition(":")
    assert kind in ("refused", "ordered", "guarded") and (kind == "refused") == (not names), text
    return kind, frozenset(names.replace(",", " ").split())


def test_there_are_enough():
    assert len(PROGRAMS) >= 200


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_is_not_accepted(path):
    text = path.read_text(encoding="utf-8")
    kind, names = claim(text)
    result = read(SourceFile(path.name, path.read_bytes()), CompileCommand())
    assert len(result.nests) + len(result.refused) == 1, result
    codes = {d.code for r in result.refused for d in r.diagnostics if d.severity == "error"}
    unread = codes & {"MDH002", "MDH003", "MDH901"}  # it shall be refused for what it does
    assert not unread or path.stem == "inline_assembly", codes
    for nest in result.nests:
        lifted = lift(nest)
        if lifted.status == "refused":
            assert any(d.severity == "error" for d in lifted.diagnostics)
            continue
        homs = [
            {d.name: str(op) for d, op in zip(p.hom.dims, p.hom.combine, strict=True)} for p in lifted.programs
        ]
        assert kind != "refused", homs
        if kind == "ordered":
            assert all(re.search(rf"for \(int {i} ", text) for i in names)
            for dims in homs:
                assert not names <= {re.sub(r"_\d+$", "", name) for name in dims}, dims
        else:
            plan_ = plan(lifted)
            kernel = plan_.kernel(plan_.default).text
            assert any(f"/* {' and '.join(pair)} overlap */" in kernel for pair in permutations(names)), kernel
    assert not [o for o in check_c(text) if o.failure]

