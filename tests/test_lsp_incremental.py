"""What is kept up to date after edits is what a whole analysis finds; and the process that does it can be killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from campaigns.lsp import campaign, difference, edits, program
from mdh_lift.lsp import incremental
from mdh_lift.lsp.child import HEAD, framed
from mdh_lift.lsp.tasks import Tasks
from mdh_lift.lsp.values import Answer, Request
from mdh_lift.lsp.worker import Limits, Stopped, Worker

PATH = "/nowhere/a.c"


class Counting(Tasks):
    """Notes which texts are analysed."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.seen: list[bytes] = []
        original = incremental.checked

        def checked(data, check, memory, salt=b""):
            def noted(text):
                self.seen.append(text)
                return check(text)

            return original(data, noted, memory, salt)

        monkeypatch.setattr("mdh_lift.lsp.incremental.checked", checked)

    def of(self, text: str):
        return self.analyse(Request(1, "analyse", PATH, text.encode(), trusted=True))


def whole(text: str):
    return Tasks().analyse(Request(1, "analyse", PATH, text.encode(), trusted=True))


def test_only_the_edited_function_is_read_again(monkeypatch):
    tasks, text = Counting(monkeypatch), program(60)
    tasks.of(text)
    changed = text.replace("s += x[i] * y[i]", "s += x[i] / y[i]", 1)
    assert difference(tasks.of(changed), whole(changed)) == ""
    first, second = tasks.seen[0], tasks.seen[1]
    assert first == text.encode() and len(second) == len(changed.encode())
    assert second.count(b"\n") == changed.count("\n")
    assert second.count(b"#pragma mdh") == 1 and b"x[i] / y[i]" in second
    # the text of before is known, too
    tasks.of(text)
    assert tasks.seen[-1].count(b"#pragma mdh") == 0


@pytest.mark.parametrize(
    ("old", "new", "read"),
    [
        ("#define SCALE 3", "#define SCALE 4", "all"),
        ("static double shared[64]", "static double shared[32]", "all"),
        ("return 2.0 * x", "return 3.0 * x", "callers"),
        ("/* Matrix", "/* Another matrix", "none"),
        ("#include <math.h>\n", "\n#include <math.h>\n", "none"),
    ],
)
def test_what_others_depend_on(monkeypatch, old, new, read):
    tasks, text = Counting(monkeypatch), program(60)
    tasks.of(text)
    changed = text.replace(old, new, 1)
    assert changed != text
    assert difference(tasks.of(changed), whole(changed)) == ""
    nests = tasks.seen[-2 if len(tasks.seen) > 2 else -1].count(b"#pragma mdh")
    assert nests == {"all": text.count("#pragma mdh"), "none": 0, "callers": text.count("twice(a")}[read]


@pytest.mark.parametrize(
    "text",
    [
        "#define DIRECTIVE _Pragma(\"mdh\")\nvoid f(int n, double *x) { DIRECTIVE for (int i = 0; i < n; i++) x[i] = 0; }\n",
        "static double s[8];\ndouble *p(void) { return &s[0]; }\nvoid f(int n, double *x) {\n#pragma mdh\nfor (int i = 0; i < 8; i++) s[i] = x[i]; }\n",
        "#ifdef A\nvoid f(int n, double *x)\n#else\nvoid f(long n, double *x)\n#endif\n{\n#pragma mdh\nfor (int i = 0; i < n; i++) x[i] = 0;\n}\n",
        "void f(n, x) int n; double *x; {\n#pragma mdh\nfor (int i = 0; i < n; i++) x[i] = 0;\n}\n",
        "struct s { int a; } v = { 1 };\nvoid f(int n, double x[n]) {\n#if 1\n#pragma mdh\nfor (int i = 0; i < n; i++) x[i] = 0;\n#endif\n}\n",
        "void f(int n, double x[n]) {\n#pragma mdh name(a)\nfor (int i = 0; i < n; i++) x[i] = 0;\n#pragma mdh name(a)\nfor (int i = 0; i < n; i++) x[i] = 1;\n}\n",
    ],
)
def test_files_of_many_kinds(text):
    """Each edit of any of them leaves what a whole analysis finds."""
    tasks = Tasks()
    extra = "void g(int n, double *x) {\n#pragma mdh\nfor (int i = 0; i < n; i++) x[i] += 1;\n}\n"
    for t in (text, text + extra, extra + text, text.replace("= 0;", "= 2;") + extra, text):
        found = tasks.analyse(Request(1, "analyse", PATH, t.encode(), trusted=True))
        assert difference(found, whole(t)) == ""


@pytest.mark.parametrize("moved", ["#define SCALE 3", "static double shared[64];", "}", "(", "typedef int n;"])
def test_what_stands_between_functions_may_move(moved):
    """The same tokens at another place mean something else to the functions between."""
    functions = program(60).split("\n\n")
    rest = [f.replace(moved, "") if len(moved) > 1 else f for f in functions]
    tasks = Tasks()
    for place in range(0, len(rest), 2):
        text = "\n\n".join([*rest[:place], moved, *rest[place:]])
        found = tasks.analyse(Request(1, "analyse", PATH, text.encode(), trusted=True))
        assert difference(found, whole(text)) == "", place


@pytest.mark.parametrize(
    ("line", "removed"),
    [
        ("#define n 7", ""),
        ("#define SCALE a[0] *", "#define SCALE 3"),
        ("#undef SCALE", ""),
        ('#pragma pop_macro("SCALE")', ""),
        ("#if 0\n}\n#endif", ""),
    ],
)
def test_preprocessor_lines_inside_of_functions_are_about_others(line, removed):
    """Put into one body after the other: functions behind it, which are known already, mean something else."""
    text = program(60).replace(removed, "") if removed else program(60)
    text = text.replace("#define", '#define SCALE 5\n#pragma push_macro("SCALE")\n#undef SCALE\n#define', 1)
    if "pop" not in line:
        text = text.replace('#pragma push_macro("SCALE")\n', "")
    tasks = Tasks()
    for place in ("return 2.0", "#pragma mdh combine", "    return s;"):
        for edited in (text, text.replace(place, f"\n{line}\n{place}", 1), text):
            found = tasks.analyse(Request(1, "analyse", PATH, edited.encode(), trusted=True))
            assert difference(found, whole(edited)) == "", place


def test_random_edits(capsys):
    """The short form of ``python -m campaigns.lsp``."""
    count = int(os.environ.get("MDH_LSP_EDITS", "24"))
    result = asyncio.run(campaign(count, 7, 4, True, lambda line: None))
    with capsys.disabled():
        print(f" {result['edits']} edits, {result['compared']} compared with a whole analysis ", end="")
    assert result["edits"] == count and result["compared"] == count // 4
    assert (result["deaths"], result["internal errors"], result["different"]) == (0, 0, 0), result["problems"]


def test_random_edits_make_programs_and_other_texts():
    rng = random.Random(3)
    texts = [t for t, _ in zip(edits(program(60), rng), range(200), strict=False)]
    assert len(set(texts)) > 100 and program(60) in texts


# --------------------------------------------------------------------------- the process


SMALL = b"void f(int n, double *x) {\n#pragma mdh\nfor (int i = 0; i < n; i++) x[i] = 0;\n}\n"


def running(session: int) -> list[int]:
    """Processes of a session that are alive."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, _, its = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except OSError:
                continue
            if int(its) == session and state != "Z":
                found.append(int(entry.name))
    return found


def gone(session: int) -> bool:
    for _ in range(300):
        if not running(session):
            return True
        time.sleep(0.1)
    return False


def test_a_death_is_told_and_the_next_question_is_answered():
    async def story() -> list[str]:
        worker = Worker(Limits(restarts=2))
        told = []
        for _ in range(2):
            answer = await worker.ask("analyse", PATH, SMALL, trusted=True)
            assert answer.analysis is not None and [n.name for n in answer.analysis.nests] == ["f::0"]
            assert worker._process is not None
            group = worker._process.pid
            os.kill(group, signal.SIGSTOP)
            question = asyncio.create_task(worker.ask("analyse", PATH, SMALL, trusted=True))
            await asyncio.sleep(0.2)
            os.kill(group, signal.SIGKILL)
            with pytest.raises(Stopped) as stopped:
                await question
            told.append(str(stopped.value))
            assert gone(group)
        worker.deaths = 3
        with pytest.raises(Stopped, match="stopped 3 times"):
            await worker.ask("analyse", PATH, SMALL)
        return told

    assert asyncio.run(story()) == ["the analysis ended with SIGKILL"] * 2


def test_what_takes_too_long_is_killed_with_what_it_started(tmp_path):
    """A header that is a pipe: the preprocessor waits for ever."""
    os.mkfifo(tmp_path / "pipe.h")
    text = b'#include "pipe.h"\n' + SMALL

    async def story() -> str:
        worker = Worker(Limits(seconds=6))
        await worker.ask("analyse", PATH, SMALL, trusted=True)
        worker.limits = Limits(seconds=1)
        assert worker._process is not None
        group = worker._process.pid
        question = asyncio.create_task(worker.ask("analyse", str(tmp_path / "a.c"), text, trusted=True))
        await asyncio.sleep(0.5)
        assert len(running(group)) > 2, "the preprocessor is there"
        with pytest.raises(Stopped) as stopped:
            await question
        assert gone(group)
        worker.limits = Limits(seconds=60)
        answer = await worker.ask("analyse", PATH, SMALL, trusted=True)
        assert answer.analysis is not None and worker.deaths == 1
        await worker.close()
        return str(stopped.value)

    assert asyncio.run(story()) == "the analysis took longer than 1 seconds"


def test_large_documents_are_not_analysed():
    async def story() -> None:
        worker = Worker(Limits(bytes=10))
        with pytest.raises(Stopped, match="the limit is 10"):
            await worker.ask("analyse", PATH, SMALL)
        assert worker._process is None

    asyncio.run(story())


def test_too_little_memory_is_told():
    async def story() -> str:
        worker = Worker(Limits(megabytes=80, seconds=60))
        try:
            answer = await worker.ask("analyse", PATH, SMALL, trusted=True)
            return answer.problem or "it was enough"
        except Stopped as stopped:
            return str(stopped)
        finally:
            await worker.close()

    said = asyncio.run(story())
    assert "memory" in said or "internal error" in said or "ended with" in said, said


def test_the_process_ends_with_its_input_even_while_it_works():
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "mdh_lift.lsp.child", "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(framed(Request(5, "analyse", PATH, SMALL, trusted=True)))
    child.stdin.flush()
    (size,) = HEAD.unpack(child.stdout.read(HEAD.size))
    answer = msgspec.json.decode(child.stdout.read(size), type=Answer)
    assert answer.number == 5 and answer.analysis is not None
    text = Path(__file__).parent.parent.joinpath("corpus", "adi.c").read_bytes()  # takes seconds
    child.stdin.write(framed(Request(6, "analyse", PATH, text, trusted=True)))
    child.stdin.flush()
    time.sleep(0.3)
    child.stdin.close()
    child.wait(timeout=60)
    assert gone(child.pid)
    child.stdout.close()
