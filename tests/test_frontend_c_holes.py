"""The hole test for many nests at once says what it says for one nest after the other."""

from __future__ import annotations

import pytest

from frontend_c import file, hole
from frontend_c import read as reading
from frontend_c.read import CompileCommand, ReadResult, read
from mdh_core.source import SourceFile

NEST = "#pragma mdh\n    for (int i = 0; i < n; i++)\n        y[i] = {value};\n"
TWO = NEST.format(value=1) + NEST.format(value=2)
HEAD = "{before}void f(int n, int *y)\n{{\n"

CASES = {
    "plain": HEAD.format(before="#include <stdio.h>\n") + TWO + "}\n",
    "comments": HEAD.format(before="") + TWO.replace("y[i] = 1", "/* for */ y[i] // ;\n = 1") + "}\n",
    "macros inside": HEAD.format(before="#define V 3 + \\\n 4\n") + TWO.replace("= 1", "= V") + "}\n",
    "a head that is a macro": HEAD.format(before="#define EACH for (int i = 0; i < n; i++)\n")
    + TWO.replace("for (int i = 0; i < n; i++)", "EACH", 1) + "}\n",
    "a body that is a macro": HEAD.format(before="#define SET y[i] = 5;\n")
    + TWO.replace("y[i] = 1;", "SET") + "}\n",
    "half of a body is a macro": HEAD.format(before="#define END y[i] = 5; }\n")
    + TWO.replace("i++)\n        y[i] = 1;", "i++) {\n        END", 1) + "}\n",
    "an #if around one": HEAD.format(before="") + "#if 1\n" + NEST.format(value=1) + "#endif\n" + TWO + "}\n",
    "an #if through one": HEAD.format(before="")
    + TWO.replace("y[i] = 1;", "{\n#if 1\n        y[i] = 1; }\n#else\n }\n#endif", 1) + "}\n",
    "one that defines": HEAD.format(before="")
    + TWO.replace("y[i] = 1;", "{\n#define W 7\n        y[i] = W; }", 1).replace("= 2", "= W") + "}\n",
    "a counter": HEAD.format(before="") + TWO.replace("= 1", "= __COUNTER__").replace("= 2", "= __COUNTER__") + "}\n",
    "arguments of a macro": "#define BOTH(a) a a\n" + HEAD.format(before="") + f"BOTH({TWO})\n" + TWO + "}\n",
    "a directive inside another nest": HEAD.format(before="")
    + TWO.replace("y[i] = 1;", "{\n" + NEST.format(value=3).replace("i", "k").replace("knt", "int") + "}", 1) + "}\n",
    "the last line has no end": (HEAD.format(before="") + TWO + "}").rstrip("\n"),
    "a name of ours": HEAD.format(before="int __MDH_HOLE__;\n") + TWO + "}\n",
}  # fmt: skip


def outcome(result: ReadResult) -> tuple[object, ...]:
    """Where nests were found and what was refused."""
    refused = [(r.name, [(d.code, d.message) for d in r.diagnostics]) for r in result.refused]
    return [(n.name, n.span, n.body) for n in result.nests], refused, result.diagnostics


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_together_is_one_by_one(text, monkeypatch):
    source = SourceFile("t.c", text.encode())
    together = outcome(read(source, CompileCommand()))
    monkeypatch.setattr(reading, "all_exact", lambda *_: False)
    assert outcome(read(source, CompileCommand())) == together
    assert together[0] or together[1]


def runs_of_the_preprocessor(text: str, monkeypatch) -> int:
    count = 0

    def counted(*arguments):
        nonlocal count
        count += 1
        return real(*arguments)

    real = hole.preprocess
    monkeypatch.setattr(hole, "preprocess", counted)
    monkeypatch.setattr(file, "preprocess", counted)
    assert len(read(SourceFile("t.c", text.encode()), CompileCommand()).nests) >= 2
    return count


def test_many_nests_take_two_runs_of_the_preprocessor(monkeypatch):
    assert runs_of_the_preprocessor(HEAD.format(before="") + TWO * 5 + "}\n", monkeypatch) == 2


def test_nests_that_define_are_tried_alone(monkeypatch):
    nest = NEST.format(value=1).replace("y[i] = 1;", "{\n#undef W\n        y[i] = 1; }")
    assert runs_of_the_preprocessor(HEAD.format(before="") + TWO + nest + "}\n", monkeypatch) == 3
