"""``check`` for continuous integration: the six questions, known findings, exit status, formats; and that it is static."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from mdh_core.diagnostics import CODES
from mdh_lift.cli import cli
from mdh_lift.suppressions import may_be_suppressed

ROOT = Path(__file__).parent.parent
SCHEMA = json.loads((ROOT / "tests/data/sarif-2.1.0-rtm.5.json").read_text())

GOOD = """\
void scale(int n, float *restrict y, const float *restrict x)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = 2 * x[i];
}
"""
BAD = """\
void square(int n, float *restrict y, const float *restrict x)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i * i] = x[i];
}
"""
GEMV = """\
void gemv(int n, int m, float *restrict w, const float *restrict A, const float *restrict v)
{
#pragma mdh sizes(n=24, m=24)
    for (int i = 0; i < n; i++) {
        float s = 0;
        for (int k = 0; k < m; k++)
            s += A[i * m + k] * v[k];
        w[i] = s;
    }
}
"""


def run(*arguments: str, **kwargs):
    return CliRunner().invoke(cli, list(arguments), **kwargs)


def codes(*arguments: str) -> list[str]:
    """Codes of errors and warnings, and of what is told about the lock."""
    found = json.loads(run("check", *arguments, "--format", "json").stdout)
    every = [d for n in found["nests"] for d in n["diagnostics"]] + found["diagnostics"]
    return sorted(d["code"] for d in every if d["severity"] != "info" or d["code"][:5] in ("MDH42", "MDH50"))


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ".state"))
    (tmp_path / "good.c").write_text(GOOD)
    (tmp_path / "bad.c").write_text(BAD)
    return tmp_path


# --------------------------------------------------------------------------- the six questions


@pytest.fixture(scope="module")
def spliced_once(tmp_path_factory):
    """A directory with a nest that was tuned (by the cost model) and spliced for real."""
    place = tmp_path_factory.mktemp("spliced")
    (place / "gemv.c").write_text(GEMV)
    done = subprocess.run(
        [sys.executable, "-m", "mdh_lift", "-w", "--force", "--budget", "0", "-q", "gemv.c"],
        cwd=place, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "mdh-lift begin" in (place / "gemv.c").read_text(), done.stdout + done.stderr
    return place


@pytest.fixture
def spliced(spliced_once, tmp_path, monkeypatch):
    place = tmp_path / "tree"
    shutil.copytree(spliced_once, place)
    monkeypatch.chdir(place)
    return place


def edit(path: Path, old: str, new: str, count: int = 1) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, count))


def test_what_was_just_spliced_is_clean_also_elsewhere_in_the_file(spliced):
    assert codes("gemv.c") == [] and run("check").exit_code == 0
    source = spliced / "gemv.c"
    source.write_text("/* a comment */\n\n\n" + source.read_text())
    assert codes("gemv.c") == []
    edit(source, "float s = 0;", "float  s  =  0; /* sum */")
    assert codes("gemv.c") == []
    source.write_bytes(source.read_bytes().replace(b"\n", b"\r\n"))
    assert codes("gemv.c") == []


def test_a_nest_that_changed_is_stale(spliced):
    edit(spliced / "gemv.c", "s += A[i * m + k] * v[k];", "s += 2 * A[i * m + k] * v[k];")
    assert codes("gemv.c") == ["MDH501"]


def test_declared_operators_that_contradict_are_told_of_spliced_nests_too(spliced):
    edit(spliced / "gemv.c", "#pragma mdh sizes", "#pragma mdh combine_ops(cc, pw(max)) sizes")
    assert "MDH404" in codes("gemv.c")


def test_an_edit_of_generated_text_is_told(spliced):
    edit(spliced / "gemv.c", "return 1;", "return 0;")
    assert codes("gemv.c") == ["MDH502"]


def test_the_lock_must_have_the_nest_and_the_required_targets(spliced):
    lock = spliced / "mdh-lift.lock"
    text = lock.read_text()
    edit(lock, "gemv.c::gemv::0", "other.c::gemv::0")
    assert codes("gemv.c") == ["MDH505"] and run("check").exit_code == 1
    lock.unlink()
    assert codes("gemv.c") == ["MDH505"]
    lock.write_text(text)
    (spliced / "mdh-lift.toml").write_text('[lock]\ntargets = ["openmp", "cuda"]\n')
    told = run("check", "gemv.c").stdout
    assert codes("gemv.c") == ["MDH505"] and "no entry for cuda" in told and "tune --target cuda" in told
    (spliced / "mdh-lift.toml").write_text('[lock]\ntargets = ["openmp"]\n')
    assert codes("gemv.c") == []


def test_the_text_must_be_what_the_locked_configuration_generates(spliced):
    lock = spliced / "mdh-lift.lock"
    text = lock.read_text()
    lock.write_text(re.sub(r'("block_i": )\d+', r"\g<1>3", text))
    assert codes("gemv.c") == ["MDH506"]
    # an entry for another nest of that name
    lock.write_text(re.sub(r'("source_hash": )"\w+"', r'\1"0123456789abcdef"', text))
    assert codes("gemv.c") == ["MDH506"]
    # a configuration that is none
    for wrong in ('"point": {"rows_q": 1, "', '"point": "none", "was": {"'):
        lock.write_text(re.sub(r'"point": \{\s*"', wrong, text))
        assert codes("gemv.c") == ["MDH506"], wrong


def test_that_it_was_tuned_elsewhere_is_information(spliced, monkeypatch):
    from mdh_lift import lock_check

    monkeypatch.setattr(lock_check, "_here", lambda: "linux-x86_64-other-1of1t")
    assert codes("gemv.c") == ["MDH504"]
    assert run("check", "gemv.c").exit_code == 0
    assert run("check", "gemv.c", "--fail-on", "warning").exit_code == 0


SCAN = """\
void starts(int n, const unsigned *count, unsigned *start)
{
    unsigned run = 0;
#pragma mdh sizes(n=100000)
    for (int i = 0; i < n; i++) {
        start[i] = run;
        run += count[i];
    }
}
"""


def test_text_is_generated_for_the_machine_that_the_lock_names(tree, monkeypatch):
    """Of this nest, text depends on the caches: it was made on a machine that is not this one."""
    from dataclasses import replace

    from lowering.machine import this_machine
    from mdh_lift import kernels, pipeline, recorded
    from tuning import lock
    from tuning.results import text_hash

    other = replace(this_machine(), l3=1 << 20, cores=64)
    (tree / "scan.c").write_text(SCAN)
    report = pipeline.check_file("scan.c")
    (nest,) = report.nests
    lines, known = pipeline.lines_of(report, nest), pipeline.macros_of(report)
    here = kernels.planned(nest.lifted, {"n": 100000}, lines, known)
    plan = replace(here, machine=other)
    point = plan.default
    assert plan.kernel(point).text != here.kernel(point).text
    kernel, after = plan.kernel(point), kernels.after_text(nest.lifted)
    part = pipeline.splice_part(report, nest.lifted.nest, kernel.text, kernel.call, after)
    change = pipeline.splice_file(report, [part])
    (tree / "scan.c").write_bytes(change.new)
    entry = lock.Entry(
        "scan.c::starts::0", "linux-x86_64-other-64of64t-01234567", "n=100000", part.source,
        {"point": dict(point), **recorded.written_for(plan)}, text_hash(plan.candidate(point, described=True)),
    )  # fmt: skip
    lock.update(tree / "mdh-lift.lock", [entry])
    assert codes("scan.c") == ["MDH504"]  # equal, but for another machine
    lock.update(tree / "mdh-lift.lock", [replace(entry, configuration={"point": dict(point)})])
    assert codes("scan.c") == ["MDH504"] and "cannot be compared" in run("check", "-v", "scan.c").stdout
    this = replace(entry, configuration={"point": dict(point), **recorded.written_for(here)})
    lock.update(tree / "mdh-lift.lock", [this])
    assert codes("scan.c") == ["MDH506"]


def test_a_newer_generator_is_information(spliced, monkeypatch):
    """Only where it makes another text; and not where the text is none of the locked configuration either."""
    from emit import render
    from mdh_lift import lock_check

    monkeypatch.setattr(lock_check, "VERSION", "0.2.0")
    assert codes("gemv.c") == []
    lock = spliced / "mdh-lift.lock"
    text = lock.read_text()
    lock.write_text(re.sub(r'("block_i": )\d+', r"\g<1>3", text).replace('"text_hash"', '"was"'))
    emit = render.emit_openmp
    lock.write_text(text)

    def newer(request):
        from dataclasses import replace

        kernel = emit(request)
        return replace(kernel, text=kernel.text + "/* newer */\n")

    monkeypatch.setattr("mdh_lift.kernels.emit_openmp", newer)
    assert codes("gemv.c") == ["MDH503"] and run("check", "gemv.c").exit_code == 0


def test_a_lock_that_cannot_be_read_is_an_error_of_the_setup(spliced):
    (spliced / "mdh-lift.lock").write_text("<<<<<<< HEAD\n{}\n")
    result = run("check", "gemv.c")
    assert result.exit_code == 2 and "MDH511" in result.stdout and "merge conflict" in result.stdout
    assert run("check", "gemv.c", "--exit-zero").exit_code == 2


def test_splice_check_only_says(spliced):
    before = (spliced / "gemv.c").read_bytes()
    result = run("splice", "--check", "gemv.c")
    assert (result.exit_code, result.stdout) == (0, "")
    edit(spliced / "gemv.c", "s += A", "s += 2 * A")
    result = run("splice", "--check", "gemv.c")
    assert (result.exit_code, result.stdout) == (1, "would change gemv.c::gemv::0: stale\n")
    (spliced / "gemv.c").write_bytes(before)
    assert run("revert", "-w", "gemv.c").exit_code == 0
    lock = spliced / "mdh-lift.lock"
    lock.write_text(re.sub(r'("low": )[\d.]+', r"\g<1>0.5", lock.read_text()))
    assert run("splice", "--check", "gemv.c").exit_code == 0  # nothing that would be spliced
    lock.write_text(re.sub(r'("low": )[\d.]+', r"\g<1>1.5", lock.read_text()))
    result = run("splice", "--check", "gemv.c")
    assert result.exit_code == 1 and "in the lock file, not in the source" in result.stdout
    assert (spliced / "gemv.c").read_text() == GEMV
    assert run("splice", "--check", "-w", "gemv.c").exit_code == 2


# --------------------------------------------------------------------------- static

_WATCHED = """
import sys
log = open({log!r}, "a")
def watch(event, arguments):
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.spawn", "pty.spawn"):
        print(event, [str(a) for a in (arguments[1] if event == "subprocess.Popen" else arguments)], file=log)
        log.flush()
sys.addaudithook(watch)
sys.argv = ["mdh-lift", *sys.argv[1:]]
from mdh_lift.__main__ import main
main()
"""


def test_of_other_programs_only_the_preprocessor_runs(spliced, tmp_path):
    """In a tree that names programs of its own wherever it can; they leave a mark if they run."""
    mark = tmp_path / "ran"
    evil = spliced / "tools"
    evil.mkdir()
    for name in ("gcc", "cc", "clang", "mdh-lift-helper"):
        program = evil / name
        program.write_text(f"#!/bin/sh\necho {name} >> {mark}\nexec /bin/false\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    for k in range(5):
        (spliced / f"f{k}.c").write_text(GOOD.replace("scale", f"scale{k}"))
    commands = [
        {"directory": str(spliced), "file": "gemv.c", "command": f"{evil}/gcc -c gemv.c"},
        {"directory": str(spliced), "file": "f0.c", "command": "tools/cc -fplugin=./evil.so -c f0.c"},
        {"directory": str(spliced), "file": "f1.c", "command": "gcc -B./tools -c f1.c; touch ran"},
        {"directory": str(spliced), "file": "f2.c", "arguments": ["gcc", "-wrapper", "./tools/cc", "f2.c"]},
        {"directory": str(spliced), "file": "f3.c", "arguments": ["mdh-lift-helper", "@flags", "f3.c"]},
        {"directory": str(spliced), "file": "f4.c", "arguments": ["gcc", "-specs=s", "f4.c"]},
    ]
    (spliced / "compile_commands.json").write_text(json.dumps(commands))
    (spliced / "mdh-lift.toml").write_text(f'[build]\ncompiler = "{evil}/cc"\n')
    (spliced / "conftest.py").write_text(f"open({str(mark)!r}, 'w')\n")
    (spliced / "p.py").write_text(
        f"open({str(mark)!r}, 'w')\nfrom mdh_lift import mdh\n\n@mdh\ndef f(n: 'int', x: 'float32[n]'):\n"
        "    for i in range(n):\n        x[i] = 2 * x[i]\n"
    )
    log = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", _WATCHED.format(log=str(log)), "check"],
        cwd=spliced, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "7 files" in done.stderr and "1 spliced" in done.stderr, done.stderr
    assert not mark.exists() and not (spliced / "ran").exists()
    lines = log.read_text().splitlines()
    assert lines  # the preprocessor is seen
    for line in lines:
        event, _, rest = line.partition(" ")
        assert event == "subprocess.Popen" and "'-E'" in rest, line
        program = rest.split("'")[1]
        assert not program.startswith(str(spliced)) and re.search(r"(gcc|cc|clang)$", program), line


# --------------------------------------------------------------------------- exit status


def test_fail_on(tree):
    (tree / "warn.c").write_text("int x;\n")  # MDH007, a warning without consequence
    for severity, good, warn, bad in [
        ("error", 0, 0, 1), ("warning", 0, 1, 1), ("info", 0, 1, 1), ("never", 0, 0, 0),
    ]:  # fmt: skip
        found = tuple(run("check", f, "--fail-on", severity).exit_code for f in ("good.c", "warn.c", "bad.c"))
        assert found == (good, warn, bad), severity
    assert run("check", "bad.c", "--exit-zero").exit_code == 0
    assert run("check", "missing.c", "--exit-zero").exit_code == 2
    assert run("check", "missing.c", "--fail-on", "never").exit_code == 2
    (tree / "mdh-lift.toml").write_text('fail-on = "warning"\n')
    assert run("check", "warn.c").exit_code == 1 and run("check", "warn.c", "--fail-on", "error").exit_code == 0
    (tree / "mdh-lift.toml").write_text('fail-on = "errors"\n')
    assert run("check", "good.c").exit_code == 2


def test_a_run_that_looked_at_nothing_is_2(tree):
    (tree / "empty").mkdir()
    assert run("check", "empty").exit_code == 2
    (tree / "mdh-lift.toml").write_text('exclude = ["*.c"]\n')
    assert run("check").exit_code == 2 and run("check", "--exit-zero").exit_code == 2


def test_the_configuration_says_what_is_told(tree):
    configuration = tree / "mdh-lift.toml"
    (tree / "sub").mkdir()
    (tree / "sub/bad.c").write_text(BAD)
    assert codes() == ["MDH201", "MDH201"]
    configuration.write_text('[diagnostics]\nignore = ["MDH2"]\n')
    assert codes() == [] and run("check").exit_code == 0
    configuration.write_text('[diagnostics]\nselect = ["MDH4"]\n')
    assert codes() == []
    configuration.write_text('[diagnostics.per-file-ignores]\n"sub/*" = ["MDH201"]\n')
    assert codes() == ["MDH201"] and codes("sub/bad.c") == []
    configuration.write_text('[diagnostics.severity]\nMDH201 = "warning"\n')
    assert run("check").exit_code == 0 and run("check", "--fail-on", "warning").exit_code == 1
    configuration.write_text('[diagnostics.severity]\nMDH2 = "info"\nMDH201 = "error"\n')
    assert run("check").exit_code == 1
    configuration.write_text('[diagnostics]\nignore = ["MDH001", "MDH9"]\n')
    assert run("check", "missing.c").exit_code == 2  # cannot be ignored
    for wrong in ('ignore = ["MDH77"]', 'select = [""]', 'severity = {MDH201 = "bad"}'):
        configuration.write_text(f"[diagnostics]\n{wrong}\n")
        assert run("check").exit_code == 2, wrong
    configuration.unlink()
    assert codes("--ignore", "MDH2") == [] and run("check", "--ignore", "MDH77").exit_code == 2


# --------------------------------------------------------------------------- comments


@pytest.mark.parametrize(
    "old, new",
    [
        ("y[i * i] = x[i];", "y[i * i] = x[i]; // mdh-lift: ignore[MDH201] known"),
        ("        y[i", "        // mdh-lift: ignore[MDH201] known\n        y[i"),
        ("        y[i", "        /* mdh-lift: ignore[MDH201, MDH203] known */\n\n        y[i"),
        ("#pragma mdh", "#pragma mdh // mdh-lift: ignore[MDH201] known"),
        ("#pragma mdh", "/* mdh-lift: ignore[MDH201] known */\n#pragma mdh"),
    ],
)
def test_comments_make_findings_known(tree, old, new):
    (tree / "bad.c").write_text(BAD.replace(old, new))
    found = codes("bad.c")
    assert "MDH201" not in found and found in ([], ["MDH422"])
    assert ("MDH203" in new) == (found == ["MDH422"])  # nothing overlaps there
    result = run("check", "bad.c")
    assert result.exit_code == 0 and "1 ignored by comments" in result.stderr


@pytest.mark.parametrize(
    "comment, found",
    [
        ("// mdh-lift: ignore[MDH201]", ["MDH201", "MDH420"]),  # no reason
        ("// mdh-lift: ignore known", ["MDH201", "MDH420"]),
        ("// mdh-lift: ignroe[MDH201] known", ["MDH201", "MDH420"]),
        ("// mdh-lift: ignore[MDH2O1] known", ["MDH201", "MDH421"]),
        ("// mdh-lift: ignore[MDH202] known", ["MDH201", "MDH422"]),
        ("// mdh-lift: ignore[MDH001] known", ["MDH201", "MDH423"]),
        ("// mdh-lift: ignore[MDH603] no use", ["MDH201"]),  # what `tune` reports
        ('char *s = "// mdh-lift: ignore[MDH201] a string";', ["MDH201"]),
    ],
)
def test_comments_that_are_wrong(tree, comment, found):
    where = "#pragma mdh" if "char" in comment else "        y[i"
    (tree / "bad.c").write_text(BAD.replace(where, f"{comment}\n{where}"))
    assert [c for c in codes("bad.c") if c != "MDH004"] == found


def test_what_a_run_does_not_tell_is_not_judged(tree):
    """A comment or an entry of the baseline is not out of date because this run leaves its code out."""
    known = "        y[i"
    (tree / "bad.c").write_text(BAD.replace(known, f"// mdh-lift: ignore[MDH201,MDH202] known\n{known}"))
    assert codes("bad.c") == ["MDH422"]  # MDH202
    for left_out in (["--select", "MDH4,MDH5"], ["--ignore", "MDH2"]):
        assert codes("bad.c", *left_out) == []
    (tree / "bad.c").write_text(BAD)
    assert run("check", "--write-baseline").exit_code == 0
    (tree / "mdh-lift.toml").write_text('baseline = "mdh-lift-baseline.json"\n')
    (tree / "bad.c").write_text(GOOD.replace("scale", "square"))
    assert codes() == ["MDH424"] and codes("--select", "MDH4,MDH5") == []


def test_a_comment_behind_code_is_about_its_line_only(tree):
    text = BAD.replace("i < n; i++)", "i < n; i++) // mdh-lift: ignore[MDH201] known")
    (tree / "bad.c").write_text(text)
    assert codes("bad.c") == ["MDH201", "MDH422"]


def test_comments_hold_where_something_is_spliced_between(spliced):
    source = spliced / "gemv.c"
    edit(source, "#pragma mdh sizes", "// mdh-lift: ignore[MDH501] is made again at night\n#pragma mdh sizes")
    edit(source, "s += A", "s += 2 * A")
    assert codes("gemv.c") == []
    line = next(k for k, text in enumerate(source.read_text().splitlines()) if "mdh-lift: ignore" in text)
    assert line > 20  # the kernel stands before it


def test_comments_in_python(tree):
    text = (
        "from mdh_lift import mdh\n\n\n@mdh\ndef f(n: 'int', x: 'float32[n]', y: 'float32[n]'):\n"
        "    for i in range(n):\n        é = 1; y[i * i] = x[i]  # mdh-lift: ignore[MDH201] known\n"
    ).replace("é = 1; ", "")
    (tree / "p.py").write_text(text)
    assert codes("p.py") == []
    (tree / "p.py").write_text(text.replace("MDH201", "MDH202"))
    assert codes("p.py") == ["MDH201", "MDH422"]


def test_what_cannot_be_ignored():
    kept = {code for code in CODES if not may_be_suppressed(code)}
    assert kept >= {"MDH001", "MDH509", "MDH511", "MDH701", "MDH702", "MDH801", "MDH901"}
    assert not kept & {"MDH201", "MDH404", "MDH501", "MDH505", "MDH603"}


# --------------------------------------------------------------------------- baselines


def test_a_baseline_adopts_a_tree(tree):
    result = run("check", "--write-baseline")
    assert result.exit_code == 0 and "1 finding allowed" in result.stderr
    file = tree / "mdh-lift-baseline.json"
    assert run("check").exit_code == 1  # nothing uses it
    (tree / "mdh-lift.toml").write_text('baseline = "mdh-lift-baseline.json"\n')
    result = run("check")
    assert result.exit_code == 0 and "1 in the baseline" in result.stderr
    assert run("check", "--baseline", str(file), "--isolated").exit_code == 0
    before = file.read_bytes()
    assert run("check", "--write-baseline").exit_code == 0 and file.read_bytes() == before

    (tree / "bad.c").write_text("\n\n\n" + BAD)  # lines do not matter
    assert run("check").exit_code == 0
    (tree / "bad.c").write_text(BAD + BAD.replace("square", "another"))  # new ones do
    assert run("check").exit_code == 1 and codes() == ["MDH201"]
    (tree / "bad.c").write_text(GOOD.replace("scale", "square"))
    assert codes() == ["MDH424"] and run("check").exit_code == 0
    assert run("check", "--write-baseline").exit_code == 0
    assert json.loads(file.read_text()) == {"schema_version": 1, "findings": []}


def test_a_baseline_holds_from_every_directory(tree):
    (tree / "sub").mkdir()
    (tree / "sub/bad.c").write_text(BAD)
    (tree / "mdh-lift.toml").write_text('baseline = "known.json"\n')
    assert run("check", "--write-baseline").exit_code == 0
    known = json.loads((tree / "known.json").read_text())["findings"]
    assert [(e["file"], e["nest"], e["code"], e["count"]) for e in known] == [
        ("bad.c", "square::0", "MDH201", 1), ("sub/bad.c", "square::0", "MDH201", 1),
    ]  # fmt: skip
    assert run("-C", "sub", "check").exit_code == 0
    assert run("-C", "sub", "check", "--write-baseline").exit_code == 0 and run("check").exit_code == 0
    assert json.loads((tree / "known.json").read_text())["findings"] == known
    # what was not looked at stays allowed
    assert run("check", "--write-baseline", "bad.c").exit_code == 0 and run("check").exit_code == 0


def test_a_baseline_does_not_hide_what_must_be_told(tree):
    assert run("check", "--write-baseline", "--baseline", "known.json", "bad.c", "missing.c").exit_code == 2
    assert run("check", "--baseline", "known.json", "missing.c").exit_code == 2
    assert run("check", "--baseline", "none.json").exit_code == 2
    for wrong in ("[]", "{}", '{"schema_version": 2, "findings": []}', "nothing"):
        (tree / "known.json").write_text(wrong)
        assert run("check", "--baseline", "known.json").exit_code == 2, wrong
    assert run("check", "--write-baseline", "--baseline", "none/known.json").exit_code == 2


# --------------------------------------------------------------------------- formats

ODD = [b"a b.c", b"a\nb.c", b"\xff.c", b"100%:,[x](y)<z>|.c", "größe.c".encode()]


@pytest.fixture
def odd(tree):
    """Files with names that other tools stumble over, one of them below a directory."""
    (tree / "sub").mkdir()
    for name in ODD:
        with open(os.path.join(os.fsencode(tree), b"sub", name), "wb") as file:
            file.write(BAD.encode())
    return tree


def sarif(*arguments: str):
    log = json.loads(run("check", *arguments, "--format", "sarif").stdout)
    jsonschema.Draft4Validator(SCHEMA).validate(log)
    return log["runs"][0]


def test_sarif_is_valid_and_its_places_are_right(odd):
    out = sarif()
    names = {a["location"]["uri"] for a in out["artifacts"]}
    assert {"sub/a%20b.c", "sub/a%0Ab.c", "sub/%FF.c", "sub/gr%C3%B6%C3%9Fe.c", "bad.c"} <= names
    assert str(odd) not in json.dumps(out)  # the same on every machine
    found = [r for r in out["results"] if r["ruleId"] == "MDH201"]
    assert len(found) == len(ODD) + 1
    for r in found:
        place = r["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uriBaseId"] in out["originalUriBaseIds"]
        assert place["region"] == {"startLine": 5, "startColumn": 9, "endLine": 5, "endColumn": 17}
    prints = [r["partialFingerprints"]["mdhLift/v2"] for r in out["results"]]
    assert len(set(prints)) == len(prints)
    for rule in out["tool"]["driver"]["rules"]:
        assert rule["help"]["text"] and rule["help"]["markdown"] and rule["helpUri"].startswith("https://")
    assert all(out["tool"]["driver"]["rules"][r["ruleIndex"]]["id"] == r["ruleId"] for r in out["results"])
    assert sarif("missing.c")["invocations"] == [{"executionSuccessful": False, "exitCode": 2}]


def test_paths_count_from_the_repository(tree):
    (tree / ".git").mkdir()
    (tree / "sub").mkdir()
    (tree / "sub/bad.c").write_text(BAD)
    out = sarif("-C", "sub", "bad.c")
    assert out["artifacts"][0]["location"]["uri"] == "sub/bad.c"
    assert "::error file=sub/bad.c,line=5," in run("-C", "sub", "check", "--format", "github").stdout
    (row,) = [r for r in json.loads(run("-C", "sub", "check", "--format", "gitlab").stdout)
              if r["severity"] == "major"]  # fmt: skip
    assert row["location"]["path"] == "sub/bad.c"


def test_fingerprints_do_not_depend_on_lines(tree):
    def prints():
        gitlab = json.loads(run("check", "bad.c", "--format", "gitlab").stdout)
        found = {r["fingerprint"] for r in gitlab}
        assert len(found) == len(gitlab)
        return found, {r["partialFingerprints"]["mdhLift/v2"] for r in sarif("bad.c")["results"]}

    bare = "\n// mdh-lift: ignore\n"  # twice the same fault
    (tree / "bad.c").write_text(BAD + bare + BAD.replace("square", "other") + bare)
    before = prints()
    assert len(before[1]) == 4
    (tree / "bad.c").write_text("\n\n" + BAD + bare + "\n\n/* */\n" + BAD.replace("square", "other") + bare)
    assert prints() == before


def test_columns_count_utf16_code_units(tree):
    (tree / "bad.c").write_text(BAD.replace("        y[i", "    /* ä😀 */ y[i"), encoding="utf-8")
    (r,) = [r for r in sarif("bad.c")["results"] if r["ruleId"] == "MDH201"]
    region = r["locations"][0]["physicalLocation"]["region"]
    assert (region["startColumn"], region["endColumn"]) == (15, 23)


def test_a_dependence_is_a_flow_and_a_fix_is_an_edit(tree):
    text = (
        "void f(int n, float *restrict y)\n{\n#pragma mdh\n    for (int i = 1; i < n; i++) {\n"
        "        y[i] = y[i - 1] * y[i - 1] + 1;\n    }\n}\n"
    )
    (tree / "f.c").write_text(text)
    found = [r for r in sarif("f.c")["results"] if "codeFlows" in r]
    if not found:  # what the analysis tells of this nest has related places
        (tree / "f.c").write_text(text.replace("#pragma mdh", "#pragma omp parallel for"))
        found = [r for r in sarif("--accept", "omp", "f.c")["results"] if "codeFlows" in r]
    (result,) = found
    steps = result["codeFlows"][0]["threadFlows"][0]["locations"]
    assert len(steps) == len(result["relatedLocations"]) + 1
    (tree / "f.c").write_text(GEMV.replace("sizes(n=24, m=24)", "combine_ops(cc, pw(max))"))
    (result,) = [r for r in sarif("f.c")["results"] if r["ruleId"] == "MDH404"]
    (change,) = result["fixes"][0]["artifactChanges"]
    (replacement,) = change["replacements"]
    region = replacement["deletedRegion"]
    line = (tree / "f.c").read_text().splitlines()[region["startLine"] - 1]
    assert line[region["startColumn"] - 1 : region["endColumn"] - 1] == "pw(max)"
    assert replacement["insertedContent"] == {"text": "pw(+)"}


def test_github_and_gitlab_take_odd_names(odd):
    lines = run("check", "sub", "--format", "github").stdout_bytes.splitlines()
    errors = [line for line in lines if line.startswith(b"::error ")]
    assert len(errors) == len(ODD) and all(b"line=5," in line for line in errors)
    assert any(b"file=sub/a%0Ab.c," in line for line in errors)
    assert any(b"file=sub/100%25%3A%2C[x](y)<z>|.c," in line for line in errors)
    rows = json.loads(run("check", "sub", "--format", "gitlab").stdout)
    for row in rows:
        row["location"]["path"].encode()
        assert set(row) == {"description", "check_name", "fingerprint", "severity", "location"}
    assert len({row["fingerprint"] for row in rows}) == len(rows)


def test_every_line_for_editors_has_its_place(odd):
    lines = run("check", "sub", "--format", "concise").stdout_bytes.splitlines()
    assert len(lines) == len(ODD) and all(b":5:9: error[MDH201]: " in line for line in lines)
    assert any(line.startswith(b"sub/\xff.c:5:") for line in lines)


def test_junit_has_a_case_per_nest(odd):
    (odd / "none.c").write_text("int x;\n")
    (odd / "two.c").write_text(GOOD + BAD)
    suites = ET.fromstring(run("check", "--format", "junit").stdout_bytes)
    names = {s.attrib["name"]: s for s in suites}
    cases = {c.attrib["name"]: c for c in names["two.c"]}
    assert set(cases) == {"scale::0", "square::0"}
    assert cases["scale::0"].find("failure") is None
    assert cases["square::0"].find("failure").attrib["type"] == "MDH201"
    assert [c.attrib["name"] for c in names["none.c"]] == ["none.c"]
    assert suites.attrib["failures"] == str(len(ODD) + 2)
    for s in suites:
        assert int(s.attrib["tests"]) == len(s.findall("testcase"))
    missing = ET.fromstring(run("check", "missing.c", "--format", "junit").stdout)
    assert missing.find(".//failure").attrib["type"] == "MDH001"


def test_verify_and_bench_have_a_case_per_nest_and_target(tree, monkeypatch):
    """A wrong result is an error, what is refused is skipped, no speedup is a failure of `bench`."""
    from mdh_core.diagnostics import Diagnostic
    from mdh_lift import improve
    from mdh_lift.findings import Finding

    (tree / "three.c").write_text(GOOD + BAD + GOOD.replace("scale", "wrong"))

    def improved(report, nest, options, stage, tell):
        d = Diagnostic("MDH701" if "wrong" in nest.name else "MDH603", "told", report.source.path)
        found = (Finding(d, report.source),) if stage == "bench" or "wrong" in nest.name else ()
        return improve.Improvement(nest.name, "md_hom(...)", "cuda", findings=found)

    monkeypatch.setattr(improve, "improve", improved)
    for verb, status, expected in [
        ("verify", 3, {"scale::0 [cuda]": None, "square::0 [cuda]": "skipped", "wrong::0 [cuda]": "error"}),
        ("bench", 3, {"scale::0 [cuda]": "failure", "square::0 [cuda]": "skipped", "wrong::0 [cuda]": "error"}),
    ]:
        result = run(verb, "--target", "cuda", "three.c", "--format", "junit")
        assert result.exit_code == status
        (suite,) = ET.fromstring(result.stdout)
        found = {case.attrib["name"]: next((x.tag for x in case if x.tag != "system-out"), None) for case in suite}
        assert found == expected
        assert (suite.attrib["tests"], suite.attrib["errors"], suite.attrib["skipped"]) == ("3", "1", "1")
        assert suite.find(".//skipped").attrib["message"] == "MDH201"
    table = run("bench", "--target", "cuda", "three.c", "--format", "md").stdout
    assert "| three.c::scale::0 | lifted | cuda |" in table


def test_markdown_is_not_broken_by_names(odd):
    text = run("check", "sub", "--format", "md").stdout
    rows = [line for line in text.splitlines() if line.startswith("| ❌")]
    assert len(rows) == len(ODD)
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == 5, row
    assert "[x](y)" not in text and "<z>" not in text


def test_an_output_file_is_all_or_nothing(tree, monkeypatch):
    (tree / "out").write_text("before")
    (tree / "link").symlink_to("out")
    assert run("check", "bad.c", "--format", "json", "-o", "link").exit_code == 1
    assert (tree / "link").is_symlink() and json.loads((tree / "out").read_text())["nests"]
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "no space left")))
    kept = (tree / "out").read_bytes()
    result = run("check", "bad.c", "-o", "out")
    assert result.exit_code == 2 and "no space left" in result.output
    assert (tree / "out").read_bytes() == kept and sorted(p.name for p in tree.glob(".out*")) == []


def test_the_footer_counts(tree):
    (tree / "mixed.c").write_text(BAD.replace("y[i * i]", "y[i * i]") + GOOD)
    told = run("check").stderr
    assert "3 files, 4 nests, 2 lifted, 2 refused (2 MDH201), 2 errors" in told
