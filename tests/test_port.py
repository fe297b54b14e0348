"""``port``: the scoreboard, what one bad file does, and resuming after the run was killed."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from mdh_core.diagnostics import Diagnostic
from mdh_lift import beside, scoreboard, several, verbs, workers
from mdh_lift.cli import cli
from mdh_lift.findings import Finding
from mdh_lift.port_journal import BusyError, Journal
from mdh_lift.scoreboard import Entry, File, Interval, Program, Scoreboard
from tests.port_fake import fake
from tuning.turns import Turns

ROOT = Path(__file__).parent.parent


def function(name, directive="#pragma mdh"):
    return f"""\
void {name}(int n, float *restrict y, const float *restrict x)
{{
{directive}
    for (int i = 0; i < n; i++)
        y[i] = 2 * x[i];
}}
"""


REFUSED = """\
void refused(int n, float *restrict y, const float *restrict x)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i * i] = x[i];
}
"""


@pytest.fixture
def tree(tmp_path):
    """Five files, one in a directory below, with nine nests."""
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "mdh-lift.toml").write_text("schema = 1\n")
    for k in range(4):
        (tmp_path / "src" / f"f{k}.c").write_text(function(f"a{k}") + function(f"b{k}"))
    (tmp_path / "src" / "deep" / "g.c").write_text(REFUSED)
    return tmp_path


def environment(tree, **more):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    cache = {"MDH_LIFT_CACHE_DIR": str(tree / ".cache"), "XDG_STATE_HOME": str(tree / ".state")}
    return {**os.environ, "PYTHONPATH": path, **cache, **more}


def port(tree, *arguments, behaviour=None, cwd=None, factor=1.0):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd or tree)
        patch.setattr(several, "improve", fake(str(tree / "log"), behaviour, 0.0, factor))
        for name in ("MDH_LIFT_CACHE_DIR", "XDG_STATE_HOME"):
            patch.setenv(name, environment(tree)[name])
        return CliRunner().invoke(cli, ["port", *map(str, arguments)])


def process(tree, *arguments, **more):
    """The same in a process of its own, which may be killed."""
    command = [sys.executable, "-m", "tests.port_fake", str(tree / "log"), "port", *arguments]
    return subprocess.Popen(
        command, cwd=tree, env=environment(tree, **more), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def made(tree):
    """How often each nest was made."""
    log = tree / "log"
    return Counter(log.read_text().split()) if log.exists() else Counter()


def contents(tree):
    """The sources; what is beside them must not be there."""
    return {p.relative_to(tree): p.read_bytes() for p in sorted((tree / "src").rglob("*")) if p.is_file()}


# --------------------------------------------------------------------------- the scoreboard of a run


def test_a_tree_is_ported_and_written(tree):
    before = contents(tree)
    result = port(tree, "src", "-w", "--summary", "s.json", "--summary", "s.md", behaviour={"b1": "slow"})
    assert result.exit_code == 0, result.stderr
    board = scoreboard.read(tree / "s.json")
    results = {e.name: (e.result, e.code) for e in board.nests}
    assert results["f0.c::a0::0"] == ("accepted", "")
    assert results["f1.c::b1::0"] == ("not faster", "MDH603")
    assert results["deep/g.c::refused::0"] == ("refused", "MDH201")
    assert Counter(r for r, _ in results.values()) == {"accepted": 7, "not faster": 1, "refused": 1}
    accepted = next(e for e in board.nests if e.name == "f0.c::a0::0")
    assert accepted.operators == "(cc)" and accepted.verified == 24 and accepted.speedup.low > 3.9
    assert accepted.before.median == pytest.approx(0.008, rel=0.02)
    assert "9 nests: 7 accepted, 1 not faster, 1 refused; 8 verified" in result.stdout
    assert "not accepted: 1 MDH201 (index is not affine), 1 MDH603 (" in result.stdout
    assert "| f0.c::a0::0 | (cc) | accepted | 24 runs |" in (tree / "s.md").read_text()
    after = contents(tree)
    changed = {str(p) for p in after if after[p] != before[p]}
    assert changed == {f"src/f{k}.c" for k in range(4)} and after[Path("src/f1.c")].count(b"mdh-lift begin") == 2
    assert len(json.loads((tree / "mdh-lift.lock").read_text())["nests"]) == 7
    for summary in ("s.json", "s.md"):
        assert str(tree) not in (tree / summary).read_text()


def test_without_w_nothing_is_written(tree):
    before = contents(tree)
    result = port(tree, "src")
    assert result.exit_code == 1 and contents(tree) == before and not (tree / "mdh-lift.lock").exists()
    assert "+++ b/src/f0.c" in result.stdout and "would change" in result.stderr


def test_the_same_results_give_the_same_bytes(tree):
    port(tree, "src", "--summary", "1.json", "--summary", "1.md", "--summary", "1.txt", "-j", 1)
    port(tree, tree / "src", "--summary", tree / "2.json", "--summary", tree / "2.md", "--summary", tree / "2.txt",
         "--no-resume", "-j", 3, cwd=tree.parent)  # fmt: skip
    for suffix in ("json", "md", "txt"):
        assert (tree / f"1.{suffix}").read_bytes() == (tree / f"2.{suffix}").read_bytes()
    assert set(made(tree).values()) == {2}


def test_select_and_max_nests(tree):
    port(tree, "src", "--select", "f1.c", "--select", "f2.c::b*")
    assert set(made(tree)) == {"f1.c::a1::0", "f1.c::b1::0", "f2.c::b2::0"}
    (tree / "log").unlink()
    (tree / "src" / "big.c").write_text(
        function("big").replace("y[i] = 2 * x[i]", "for (int j = 0; j < n; j++) y[i] += x[j]").replace("n,", "n,")
    )
    result = port(tree, "src", "--max-nests", 1, "--no-resume", "--summary", "s.json")
    assert set(made(tree)) == {"big.c::big::0"}, result.stderr
    left = [e for e in scoreboard.read(tree / "s.json").nests if e.result == "left out"]
    assert len(left) == 8
    assert port(tree, "src", "--select", "nothing.c").exit_code == 2


def test_directives_on_request(tree):
    (tree / "src" / "plain.c").write_text(function("plain", ""))
    assert not any(n.startswith("plain.c") for n in port(tree, "src") and made(tree))
    result = port(tree, "src", "--annotate", "-w")
    text = (tree / "src" / "plain.c").read_text()
    assert result.exit_code == 0 and made(tree)["plain.c::plain::0"] == 1
    assert "    #pragma mdh\n    /* mdh-lift begin plain::0 call" in text


def test_progress_as_json(tree):
    result = port(tree, "src", "--progress", "json", "-q", "-w")
    events = [json.loads(line) for line in result.stderr.splitlines()]
    kinds = Counter(e["event"] for e in events)
    assert kinds == {"looked": 5, "nest": 8, "written": 4}


# --------------------------------------------------------------------------- one bad file


def test_one_bad_file_never_stops_the_rest(tree):
    (tree / "src" / "unreadable.c").write_text("#error no\nvoid f(void) { }\n")
    (tree / "src" / "hangs.c").write_text(function("h"))
    behaviour = {"a0": "crash", "b1": "broken", "a2": "bug", "b3": "wrong", "h": "hang"}
    result = port(tree, "src", "-w", "--time-limit", 8, "--summary", "s.json", "-j", 2, behaviour=behaviour)
    board = scoreboard.read(tree / "s.json")
    results = {e.name: (e.result, e.code) for e in board.nests}
    assert results["f0.c::a0::0"] == ("failed", "MDH611") and results["f0.c::b0::0"] == ("failed", "MDH611")
    assert results["f1.c::b1::0"] == ("failed", "MDH802") and results["f1.c::a1::0"] == ("accepted", "")
    assert results["f2.c::a2::0"] == ("failed", "MDH901") and results["f2.c::b2::0"] == ("accepted", "")
    assert results["f3.c::b3::0"] == ("failed", "MDH701") and results["f3.c::a3::0"] == ("accepted", "")
    assert results["hangs.c::h::0"] == ("failed", "MDH611")
    codes = {f.name: f.code for f in board.files}
    assert codes == {"unreadable.c": "MDH002", "f0.c": "MDH611", "hangs.c": "MDH611"}
    assert "SIGKILL" in next(f.reason for f in board.files if f.name == "f0.c")
    assert result.exit_code == 101 and "MDH701" in result.stderr and "Traceback" not in result.stderr
    assert (tree / "src" / "f1.c").read_text().count("mdh-lift begin a1::0") == 2


def _kept(tree, result, code, before):
    """The row, standard error and the tree say that ``a0`` was left as it was."""
    assert result.exit_code == 1 and contents(tree) == before, result.stderr
    rows = {e.name: e for e in scoreboard.read(tree / "s.json").nests}
    left = rows["f0.c::a0::0"]
    assert (left.result, left.code) == ("refused", code) and left.speedup is not None
    assert f"left as it is {code}" in result.stderr and f"[{code}]" in result.stderr
    assert f"f0.c::a0::0  {code}" in re.sub(" +", "  ", result.stdout)
    lock = tree / "mdh-lift.lock"
    assert not lock.exists() or "a0" not in lock.read_text()


def test_a_nest_whose_generated_file_was_edited_is_told_and_left(tree, monkeypatch):
    """An edit of a generated file beside the source: the nest is in no file, so it is not accepted either."""
    (tree / "src" / "f0_openmp_mdh.mk").write_bytes(
        beside._signed("f0_openmp_mdh.mk", "f0.c", "all:").replace(b"all", b"mine")
    )
    before = contents(tree)
    texts = SimpleNamespace(name="f0_openmp_mdh", text="", header="", make="all:")
    monkeypatch.setattr(verbs, "spliced", lambda report, *_: beside.files(report.source.path, texts, "openmp"))
    result = port(tree, "src", "-w", "--select", "f0.c::a0", "--summary", "s.json", behaviour={"a0": "apart"})
    _kept(tree, result, "MDH502", before)
    assert "generated file `f0_openmp_mdh.mk` was edited" in result.stderr and "--force" in result.stderr
    again = port(tree, "src", "-w", "--select", "f0.c::a0", "--summary", "s.json", behaviour={"a0": "apart"})
    _kept(tree, again, "MDH502", before)  # it does not count as done


def test_a_nest_left_because_of_its_neighbour_is_told(tree, monkeypatch):
    """``b0`` is in the generated file that ``a0`` goes to, and cannot be made again."""
    before = contents(tree)
    why = Finding(Diagnostic("MDH603", "the neighbour has a reason"))
    monkeypatch.setattr(beside, "included", lambda regions: {"f0_openmp_mdh": "openmp"})
    monkeypatch.setattr(verbs, "_improved", lambda session, *_: session.findings.append(why))
    arguments = ("src", "-w", "--select", "f0.c::a0", "--summary", "s.json")
    result = port(tree, *arguments, behaviour={"a0": "apart"})
    _kept(tree, result, "MDH516", before)
    assert "`b0::0` cannot be made again" in result.stderr and "the neighbour has a reason" in result.stderr


def test_a_wrong_result_is_3(tree):
    assert port(tree, "src", "-w", behaviour={"b3": "wrong"}).exit_code == 3


# --------------------------------------------------------------------------- compared with before


def test_fail_if_worse(tree):
    for name in ("f0.c", "f1.c"):
        (tree / "src" / name).unlink()
    assert port(tree, "src", "--summary", "old.json").exit_code == 1  # a diff
    same = port(tree, "src", "--fail-if-worse", "old.json", "--no-resume")
    assert same.exit_code == 0, same.stderr
    slower = port(tree, "src", "--fail-if-worse", "old.json", "--no-resume", factor=0.5)
    assert slower.exit_code == 1 and slower.stderr.count("MDH610") == 4
    assert "its speedup was 4.03 x" in slower.stderr
    lost = port(tree, "src", "--fail-if-worse", "old.json", "--no-resume", behaviour={"a2": "slow"})
    assert lost.exit_code == 1 and "`f2.c::a2::0`: it was accepted and is not faster" in lost.stderr
    (tree / "src" / "f3.c").unlink()
    gone = port(tree, "src", "--fail-if-worse", "old.json")
    assert gone.exit_code == 1 and gone.stderr.count("is not found any more") == 2
    (tree / "old.json").write_text("{}")
    assert port(tree, "src", "--fail-if-worse", "old.json").exit_code == 2
    assert port(tree, "src", "--fail-if-worse", "absent.json").exit_code == 2


def entry(name="a.c::f::0", result="accepted", **more):
    return Entry(name, 3, "lifted", result, **more)


@pytest.mark.parametrize(
    "old, new, says",
    [
        (entry(speedup=Interval(2, 1.8, 2.2)), entry(speedup=Interval(1.7, 1.6, 1.79)), "its speedup was 2.00 x"),
        (entry(speedup=Interval(2, 1.8, 2.2)), entry(speedup=Interval(1.7, 1.6, 1.81)), ""),
        (entry(speedup=Interval(2, 1.8, 2.2)), entry(speedup=Interval(9, 8, 10)), ""),
        (entry(), entry(result="refused", code="MDH207", reason="why"), "is refused: MDH207 why"),
        (entry(), entry(result="left out"), ""),
        (entry(result="not faster"), entry(result="failed", code="MDH802"), "was not faster and is failed"),
        (entry(result="refused"), entry(result="failed"), ""),
        (entry(result="not faster"), entry(), ""),
    ],
)
def test_what_is_worse(old, new, says):
    found = list(scoreboard.worse(Scoreboard([old]), Scoreboard([new])))
    assert len(found) == bool(says) and says in "".join(why for _, _, why in found)


def test_a_board_survives_writing_and_reading(tmp_path):
    board = Scoreboard(
        [entry("b.c::f::10"), entry("b.c::f::9", verified=3, before=Interval(1, 0.5, 2)), entry("a.c::g::x")],
        [File("c.c", "MDH002", "no | header")], [Program("p", "same output", speedup=Interval(2, 1, 3))], 3,
    )  # fmt: skip
    path = tmp_path / "s.json"
    path.write_text(scoreboard.render_json(board))
    assert scoreboard.read(path) == board.in_order()
    assert [e.name for e in board.in_order().nests] == ["a.c::g::x", "b.c::f::9", "b.c::f::10"]
    assert r"no \| header" in scoreboard.render_markdown(board)
    totals = json.loads(path.read_text())["totals"]
    assert totals["results"] == {"accepted": 3} and totals["codes"] == {"MDH002": 1}
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    with pytest.raises(scoreboard.ScoreboardError, match="schema version 2"):
        scoreboard.read(path)


def test_the_mean_of_speedups_has_an_interval():
    one = scoreboard.geometric_mean([Interval(2, 1.6, 2.5)])
    assert one == Interval(2, 1.6, 2.5)
    uneven = scoreboard.geometric_mean([Interval(0.8, 0.3, 0.9)])
    assert uneven == Interval(0.8, 0.3, 0.9)  # as surely slower as the program itself
    mixed = scoreboard.geometric_mean([Interval(2, 1, 2), Interval(2, 2, 8)])
    assert mixed == Interval(2, 1.41, 4)
    four = scoreboard.geometric_mean([Interval(2, 1.6, 2.5)] * 4)
    assert four.median == 2 and four.low == pytest.approx(2 / 1.25**0.5, rel=0.02)
    assert scoreboard.geometric_mean([]) is None


# --------------------------------------------------------------------------- killed and resumed


def test_killed_at_any_moment_and_resumed(tree):
    """Nothing that was finished is made again, nothing is lost, and the end is that of an undisturbed run."""
    for name in ("f2.c", "f3.c"):
        (tree / "src" / name).unlink()
    undisturbed = tree / "undisturbed"
    undisturbed.mkdir()
    for name in ("src", "mdh-lift.toml"):
        subprocess.run(["cp", "-r", str(tree / name), str(undisturbed)], check=True)
    assert port(undisturbed, "src", "-w", "--summary", "s.json").exit_code == 0
    chance = random.Random(7)
    kills = 0
    for _ in range(12):  # each finishes a nest at least
        known, counts = finished(tree), made(tree)
        child = process(tree, "src", "-w", "-j2", "--summary", "s.json", FAKE_SECONDS="0.1")
        wait_for_progress(tree, known, child)
        try:
            _, errors = child.communicate(timeout=chance.uniform(0.0, 0.2))
            assert child.returncode == 0, errors
            break
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)  # the parent alone: its workers must go with it
            child.communicate()
            kills += 1
        assert all(made(tree)[n] == counts[n] for n in known), "a finished nest was made again"
    assert child.returncode == 0 and kills >= 2
    assert contents(tree) == contents(undisturbed)
    assert (tree / "s.json").read_bytes() == (undisturbed / "s.json").read_bytes()
    assert (tree / "mdh-lift.lock").read_bytes() == (undisturbed / "mdh-lift.lock").read_bytes()
    assert not list(tree.rglob("*.tmp"))


def wait_for_progress(tree, known, child):
    """Until one more nest is finished, or the process ended: the test must end on a slow machine, too."""
    end = time.monotonic() + 60
    while len(finished(tree)) <= len(known) and child.poll() is None and time.monotonic() < end:
        time.sleep(0.01)


def finished(tree):
    """Nests with a whole line in the journal."""
    found = set()
    for path in (tree / ".mdh-lift").glob("port-*.jsonl"):
        for line in path.read_text().split("\n")[:-1]:
            record = json.loads(line)
            if record.get("kind") == "nest":
                found.add(f"{Path(record['file']).name}::{record['name']}")
    return found


@pytest.mark.parametrize("moment", ["before-write", "after-write"])
def test_killed_around_the_write_of_a_file(tree, moment):
    before = contents(tree)
    child = process(tree, "src", "-w", "-j1", KILL_AT=moment)
    child.communicate()
    assert child.returncode == -signal.SIGKILL
    halfway = contents(tree)
    assert sum(halfway[p] != before[p] for p in before) == (moment == "after-write")
    result = port(tree, "src", "-w", "--summary", "s.json")
    assert result.exit_code == 0, result.stderr
    assert set(made(tree).values()) == {1}
    assert all(b"mdh-lift begin" in text for p, text in contents(tree).items() if p.name != "g.c")
    assert scoreboard.totals(scoreboard.read(tree / "s.json")).results == {"accepted": 8, "refused": 1}


def test_a_second_run_makes_nothing_again_and_a_changed_file_is_new(tree):
    port(tree, "src", "-w")
    result = port(tree, "src", "-w")
    assert set(made(tree).values()) == {1} and "8 nests are known from an earlier run" in result.stderr
    f0 = tree / "src" / "f0.c"
    f0.write_text(f0.read_text().replace("2 * x[i]", "3 * x[i]"))
    port(tree, "src", "-w", "--force")
    counts = made(tree)
    assert counts["f0.c::a0::0"] == 2
    assert "3 * x[i]" in f0.read_text()


def test_part_of_the_tree_keeps_what_is_known_of_the_rest(tree):
    port(tree, "src")
    assert "2 nests are known" in port(tree, "src", "--select", "f1.c").stderr
    port(tree, "src")
    assert set(made(tree).values()) == {1}


def test_another_budget_is_another_run(tree):
    port(tree, "src", "--budget", "0")
    port(tree, "src", "--budget", "5ev")
    assert set(made(tree).values()) == {2}


def test_a_journal_keeps_whole_lines_only(tmp_path):
    path = tmp_path / "j.jsonl"
    journal = Journal(path, "s")
    journal.add({"k": 1})
    journal.add({"k": 2})
    with pytest.raises(BusyError):
        Journal(path, "s")
    journal.close()
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        journal = Journal(path, "s")
        journal.close()
        assert journal.records == [{"k": n} for n in (1, 2)][: max(0, whole[:cut].count(b"\n") - 1)]
    path.write_bytes(whole)
    other = Journal(path, "other settings")
    other.close()
    assert other.records == []


# --------------------------------------------------------------------------- processes


def test_workers_report_in_order_and_die_alone():
    def work(job, send):
        for k in range(3):
            send({"job": job, "k": k})
        if job == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if job == 2:
            time.sleep(60)

    found = list(workers.run([0, 1, 2, 3], work, 2, seconds=3.0))
    for job in range(4):
        mine = [m for j, m in found if j == job]
        assert [m["k"] for m in mine[:-1]] == [0, 1, 2] and isinstance(mine[-1], workers.Ended)
    reasons = {j: m.reason for j, m in found if isinstance(m, workers.Ended)}
    assert reasons == {0: "", 1: "its process ended with SIGKILL", 2: "it took longer than 3 s", 3: ""}


def test_nobody_works_while_somebody_measures(tmp_path):
    def work(job, send):
        turns = Turns(tmp_path)
        turns.enter()
        for _ in range(15):
            begin = time.monotonic()
            time.sleep(0.002)
            send({"what": "work", "from": begin, "to": time.monotonic()})
            turns.pause()
            if job != 2:
                with turns.alone():
                    begin = time.monotonic()
                    time.sleep(0.002)
                    send({"what": "measure", "from": begin, "to": time.monotonic()})

    messages = [m for _, m in workers.run([0, 1, 2], work, 3) if not isinstance(m, workers.Ended)]
    spans = sorted((m["from"], m["to"], m["what"]) for m in messages)
    measured = [s for s in spans if s[2] == "measure"]
    assert len(measured) == 30 and len(spans) == 75
    for begin, end, _ in measured:
        others = [s for s in spans if s[0] < end and s[1] > begin]
        assert len(others) == 1, others


def test_a_dry_run_ranks_the_nests_and_does_nothing(tree):
    (tree / "src" / "deep" / "h.c").write_text(
        function("large", "#pragma mdh sizes(n=100000000)") + function("small", "#pragma mdh sizes(n=3)")
    )
    before = {p: p.read_bytes() for p in tree.rglob("*") if p.is_file()}
    done = port(tree, "-n", "src")
    assert done.exit_code == 0, done.output
    names = [line.split()[1] for line in done.stdout.splitlines()]
    assert names[0] == "deep/h.c::large::0" and names[-1] == "deep/h.c::small::0" and len(names) == 10
    assert done.stdout.count("(would be tried)") == 10 and "10 nests would be tried, 1 refused" in done.stderr
    few = port(tree, "--dry-run", "--max-nests", "1", "--format", "json", "src")
    (row,) = json.loads(few.stdout)["nests"]
    assert row["name"] == "deep/h.c::large::0" and not row["known"] and row["work"] >= 1e8
    after = {p: p.read_bytes() for p in tree.rglob("*") if p.is_file() and ".cache" not in p.parts}
    assert after == before
    assert port(tree, "src").exit_code == 1  # a diff
    assert "(known from an earlier run)" in port(tree, "-n", "src").stdout
    assert port(tree, "-n", "-w", "src").exit_code == 2
