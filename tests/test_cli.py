"""The command: exit status, what goes where, formats, files that must not change."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from lowering.device import DEVICES
from mdh_core.diagnostics import CODES, Diagnostic
from mdh_lift import config, improve, lifting, pipeline
from mdh_lift.cli import cli
from mdh_lift.compile_command import find, from_words
from mdh_lift.findings import Finding
from mdh_lift.splice import regions, splice
from tuning.lock import Entry
from tuning.measure import Ratio
from tuning.runner import Outcome
from tuning.verify import VerifySummary

ROOT = Path(__file__).parent.parent

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
TWO = GOOD + "\n" + GOOD.replace("scale", "again")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A working directory with a file that lifts and one that does not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ".state"))
    for variable in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "good.c").write_text(GOOD)
    (tmp_path / "bad.c").write_text(BAD)
    return tmp_path


def run(*arguments, input=None):  # noqa: A002
    return CliRunner().invoke(cli, [str(a) for a in arguments], input=input)


def hand_made(report, nest, options=None, stage="all", tell=None, **rest):
    """An improvement that nothing had to be run for."""
    stem = pipeline.short_name(nest.name).replace("::", "_") + "_mdh"
    kernel = f"static int {stem}(void)\n{{\n    return 0;\n}}"
    part = pipeline.splice_part(report, nest.lifted.nest, kernel, f"{stem}()")
    speedup = Ratio(4.0, 3.5, 4.5)
    return improve.Improvement(
        nest.name,
        "md_hom(...)",
        verification=VerifySummary(Outcome("ok"), cases=24, sizes=("n=1", "n=2")),
        speedup=speedup,
        **({"part": part} | rest),
    )


@pytest.fixture
def improved(monkeypatch):
    monkeypatch.setattr(improve, "improve", hand_made)
    # no configuration generates what is made by hand
    monkeypatch.setattr("mdh_lift.lock_check.with_lock", lambda report, options: report)


def spliced_text(path):
    report = pipeline.check_file(str(path))
    return splice(report.source.data, [hand_made(report, n).part for n in report.nests])


# --------------------------------------------------------------------------- exit status


def test_a_clean_file_is_0(tree):
    result = run("check", "good.c")
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    assert "1 file, 1 nest, 1 lifted" in result.stderr


def test_a_refusal_is_1_and_names_the_place(tree):
    result = run("check", "bad.c")
    assert result.exit_code == 1
    assert "error[MDH201]" in result.stdout and "--> bad.c:5:" in result.stdout and "^" in result.stdout
    assert "error" not in result.stderr.replace("1 error", "")


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["frobnicate"], "no verb and no file is called `frobnicate`"),
        (["chekc"], "did you mean `check`?"),
        (["check", "missing.c"], "MDH001"),
        (["missing.c"], "MDH001"),
        (["check", "empty"], "no C files and no Python files with `@mdh` in empty"),
        (["check", "good.c::nothing"], "no nest `nothing`"),
        (["check", "--nonsense"], "No such option"),
        (["good.c", "--budget", "soon"], "budget 'soon'"),
        (["good.c", "--style", "aside"], "'aside'"),
        (["explain", "MDH999"], "no diagnostic has the code"),
        (["port", "empty"], "no C files"),
        (["-C", "nowhere", "check"], "nowhere"),
        ([], "Usage"),
    ],
)
def test_misuse_is_2(tree, arguments, says):
    (tree / "empty").mkdir()
    result = run(*arguments)
    assert result.exit_code == 2 and says in result.output, result.output
    assert "Traceback" not in result.output


def test_the_highest_status_wins(tree):
    assert run("check", "bad.c", "good.c", "missing.c").exit_code == 2


def test_our_own_fault_is_101_with_a_report_and_no_traceback(tree, monkeypatch):
    monkeypatch.setattr(lifting, "lift", lambda nest: 1 // 0)
    result = run("check", "good.c", "bad.c")
    assert result.exit_code == 101
    assert "Traceback" not in result.output and "MDH901" in result.output
    reports = re.findall(r"crash report (\S+)", result.output)
    assert len(reports) == 2 and "ZeroDivisionError" in Path(reports[0]).read_text()


def test_the_command_itself(tree):
    command = [sys.executable, "-m", "mdh_lift"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for arguments, status in ([], 2), (["version"], 0), (["check", "good.c"], 0), (["check", "bad.c"], 1):
        result = subprocess.run([*command, *arguments], env=environment, capture_output=True, check=False)
        assert result.returncode == status, result.stderr
    done = subprocess.run(
        [*command, "check", "-"], input=BAD.encode(), env=environment, capture_output=True, check=False
    )
    assert done.returncode == 1 and b"--> <stdin>:5:" in done.stdout


# --------------------------------------------------------------------------- files


def test_a_directory_is_searched(tree):
    (tree / "sub").mkdir()
    (tree / "sub/more.c").write_text(GOOD)
    (tree / "sub/none.c").write_text("int x;\n")
    (tree / "build").mkdir()
    (tree / "build/gen.c").write_text(BAD)
    result = run("check", "sub", "build")
    assert result.exit_code == 1 and "build" in result.stdout  # named by the user
    result = run("check", "sub")
    assert result.exit_code == 0 and "2 files, 1 nest" in result.stderr and result.stdout == ""
    assert "4 files" in run("check").stderr


def test_a_named_file_without_a_directive_is_a_warning(tree):
    (tree / "none.c").write_text("int x;\n")
    result = run("check", "none.c")
    assert result.exit_code == 0 and "MDH007" in result.stdout


def test_excluded_files_are_not_looked_at(tree):
    (tree / ".mdh-lift.toml").write_text('exclude = ["bad*"]\n')
    assert run("check").exit_code == 0
    assert run("check", "bad.c").exit_code == 1  # named


def test_global_options_stand_before_or_after_the_verb(tree):
    before, after = run("--format", "concise", "check", "bad.c"), run("check", "bad.c", "--format", "concise")
    assert before.stdout == after.stdout
    assert re.match(r"bad\.c:5:\d+: error\[MDH201\]: ", before.stdout)


def test_another_directory(tree):
    cwd = os.getcwd()
    (tree / "sub").mkdir()
    (tree / "sub/more.c").write_text(GOOD)
    result = run("-C", "sub", "check", "more.c")
    assert result.exit_code == 0 and os.getcwd() == cwd


def test_output_goes_into_a_file(tree):
    result = run("check", "bad.c", "-o", "out.txt")
    assert result.exit_code == 1 and result.stdout == "" and "MDH201" in (tree / "out.txt").read_text()
    assert run("check", "bad.c", "-o", "none/out.txt").exit_code == 2


def test_colour(tree, monkeypatch):
    assert "\x1b[" not in run("check", "bad.c").stdout
    assert "\x1b[" in run("check", "bad.c", "--color", "always").stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("check", "bad.c").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("check", "bad.c").stdout


# --------------------------------------------------------------------------- formats


def test_json(tree):
    report = json.loads(run("check", "--format", "json", "good.c", "bad.c").stdout)
    assert report["schema_version"] == 1 and report["diagnostics"] == []
    good, bad = report["nests"]
    assert (good["name"], good["file"], good["line"], good["status"]) == (
        "good.c::scale::0",
        "good.c",
        3,
        "lifted",
    )
    (program,) = good["program"]
    assert program["kind"] == "md_hom" and program["dims"] == [{"name": "i", "extent": "n", "op": "cc"}]
    assert bad["status"] == "refused" and bad["diagnostics"][0]["code"] == "MDH201"
    assert bad["diagnostics"][0]["line"] == 5
    shown = json.loads(run("show", "good.c", "--as", "json").stdout)
    assert shown["nests"] == [good]


def test_a_missing_file_in_json_belongs_to_no_nest(tree):
    report = json.loads(run("check", "--format", "json", "missing.c").stdout)
    assert report["nests"] == [] and report["diagnostics"][0]["code"] == "MDH001"


PARTIAL = """\
/* a comment */
void f(int n, int m, double *restrict x, double *restrict y, const int *restrict idx)
{
#pragma mdh
    for (int t = 0; t < n; t++) {
        y[idx[t]] = y[idx[t]] + x[t];
        for (int i = 0; i < m; i++)
            x[i] = x[i] * y[t] + 1.0;
    }
}
"""


def test_host_loops_and_sequential_parts(tree):
    (tree / "partial.c").write_text(PARTIAL)
    result = run("check", "partial.c", "--format", "json")
    assert result.exit_code == 0
    (nest,) = json.loads(result.stdout)["nests"]
    assert nest["status"] == "partial" and {d["severity"] for d in nest["diagnostics"]} == {"info"}
    (loop,) = nest["program"]
    assert (loop["kind"], loop["iterator"], loop["extent"]) == ("host_loop", "t", "n")
    assert loop["body"][0] == {"kind": "sequential", "line": 6, "reason": "MDH214"}
    assert loop["body"][1]["kind"] == "md_hom" and loop["body"][1]["dims"][0]["name"] == "i"
    assert "1 partial" in run("check", "partial.c").stderr
    shown = run("show", "partial.c").stdout
    assert "partial.c::f::0 (partial)" in shown
    assert "  for t in [0, n):\n    sequential\n      y[idx[t]] = y[idx[t]] + x[t];\n    out_view" in shown
    assert "  for t in [0, n):\n" in run("show", "--stage", "low", "partial.c").stdout
    assert "partial, not spliced" in run("status", "partial.c").stdout
    emitted = run("emit", "partial.c", "--target", "openmp").stdout
    assert "for (long t = 0; t < n; t++) {\n    y[" in emitted


def test_lines_of_sequential_parts_count_in_the_file_as_it_stands(tree, improved):
    path = tree / "partial.c"
    path.write_text(PARTIAL)
    path.write_bytes(spliced_text(path))
    line = path.read_text().splitlines().index("        y[idx[t]] = y[idx[t]] + x[t];") + 1
    (nest,) = json.loads(run("show", "--as", "json", "partial.c").stdout)["nests"]
    assert line > 6 and nest["program"][0]["body"][0]["line"] == line


def test_the_formats_of_other_tools(tree):
    lines = run("check", "--format", "jsonl", "bad.c").stdout.splitlines()
    assert "MDH201" in [json.loads(line)["code"] for line in lines]
    sarif = json.loads(run("check", "--format", "sarif", "bad.c").stdout)
    (result,) = [r for r in sarif["runs"][0]["results"] if r["ruleId"] == "MDH201"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 5
    assert sarif["runs"][0]["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "MDH201"
    assert "::error file=bad.c,line=5," in run("check", "--format", "github", "bad.c").stdout
    (row,) = [
        r for r in json.loads(run("check", "--format", "gitlab", "bad.c").stdout) if r["severity"] == "major"
    ]
    assert row["location"]["path"] == "bad.c" and len(row["fingerprint"]) == 32
    suites = ET.fromstring(run("check", "--format", "junit", "good.c", "bad.c").stdout)
    assert suites.attrib["tests"] == "2" and suites.attrib["failures"] == "1"


def test_codes_and_explanations(tree):
    listed = run("codes").stdout
    assert all(code in listed for code in CODES)
    for code, row in CODES.items():
        assert row.title in run("explain", code).stdout
    assert json.loads(run("codes", "--format", "json").stdout)["codes"][0]["code"] == "MDH001"


def test_doctor(tree):
    result = run("doctor")
    assert result.exit_code in (0, 4) and "C compiler" in result.stdout


@pytest.mark.parametrize(
    ("policy", "said"),
    [("always", "ok  pages +2 MiB"), ("madvise", "--  pages +[0-9]+ KiB; .*GLIBC_TUNABLES"), ("", "--  pages +[0-9]+ KiB$")],
)
def test_doctor_tells_the_pages_of_large_arrays(tree, monkeypatch, policy, said):
    def has_huge_pages(asked):
        return policy == "always" or (asked and policy == "madvise")

    usual = run("doctor").exit_code
    monkeypatch.setattr("lowering.machine.has_huge_pages", has_huge_pages)
    result = run("doctor")
    assert result.exit_code == usual and re.search(said, result.stdout, re.MULTILINE)


def test_doctor_knows_gpus_but_needs_none(tree, monkeypatch):
    """With and without any, the exit status is that of the C compiler."""
    usual = run("doctor").exit_code
    none = {"cuda_device": lambda: None, "opencl_devices": list}
    for name, nothing in none.items():
        monkeypatch.setattr(f"tuning.devices.{name}", nothing)
    result = run("doctor")
    assert result.exit_code == usual
    assert re.search(r"--  CUDA device +none found", result.stdout)
    assert re.search(r"--  OpenCL +no device found", result.stdout)
    monkeypatch.setattr("tuning.devices.cuda_device", lambda: DEVICES["h200"])
    monkeypatch.setattr("tuning.devices.opencl_devices", lambda: [DEVICES["opencl"], DEVICES["a100"]])
    result = run("doctor")
    assert result.exit_code == usual
    assert re.search(r"ok  CUDA device +H200 \(sm_90\), 132 compute units, 141.0 GiB", result.stdout)
    assert re.search(r"ok  OpenCL 1 +A100 \(sm_80\), 108 compute units, 40.0 GiB", result.stdout)
    checks = json.loads(run("doctor", "--format", "json").stdout)["checks"]
    assert {"nvcc", "CUDA device", "OpenCL 0"} <= {row["name"] for row in checks}


# --------------------------------------------------------------------------- compile command, configuration


def test_the_compile_command_stands_after_the_dashes(tree):
    (tree / "inc").mkdir()
    (tree / "inc/size.h").write_text("#define N 8\n")
    (tree / "needs.c").write_text('#include "size.h"\n' + GOOD.replace("i < n", "i < N + M"))
    assert run("check", "needs.c").exit_code == 1
    assert run("check", "needs.c", "--", "cc", "-I", "inc", "-DM=3").exit_code == 0
    assert run("check", "needs.c", "--", "-I", "inc", "-DM=3").exit_code == 0


def test_a_compile_database_is_found_above_the_file(tree):
    (tree / "src").mkdir()
    (tree / "build").mkdir()
    (tree / "src/f.c").write_text(GOOD.replace("i < n", "i < M"))
    entry = {
        "directory": str(tree / "build"),
        "file": "../src/f.c",
        "command": "cc -I'../a b' -DM=3 -c ../src/f.c -o f.o",
    }
    (tree / "build/compile_commands.json").write_text(json.dumps([entry]))
    found = find("src/f.c")
    assert found.flags == ("-I", str(tree / "build/../a b"), "-DM=3")
    assert run("check", "src/f.c").exit_code == 0
    (tree / "build/compile_commands.json").write_text("[")
    result = run("check", "src/f.c")
    assert result.exit_code == 2 and "not a compile database" in result.output


def test_flags_of_the_configuration_count_from_its_directory(tree):
    (tree / "sub/inc").mkdir(parents=True)
    (tree / "sub/inc/size.h").write_text("#define N 8\n")
    (tree / "sub/f.c").write_text('#include "size.h"\n' + GOOD.replace("i < n", "i < N"))
    (tree / "sub/mdh-lift.toml").write_text('[build]\nflags = ["-I", "inc"]\n')
    assert run("check", "sub/f.c").exit_code == 0
    assert run("-C", "sub", "check", "f.c").exit_code == 0
    assert run("check", "sub/f.c", "--isolated").exit_code == 1


def test_words_of_a_command():
    command = from_words(["ccache", "gcc-12", "-O3", "-MD", "-MF", "f.d", "-c", "f.c", "-o", "f.o", "-DX=1"])
    assert (command.compiler, command.flags) == ("gcc-12", ("-O3", "-DX=1"))


@pytest.mark.parametrize(
    "text, says",
    [
        ("[tune]\nbudgte = '3ev'\n", "unknown key `tune.budgte`; did you mean `tune.budget`?"),
        ("[tune]\nseed = 'x'\n", "tune.seed"),
        ("[tune]\nmeasure-seconds = 0\n", "`float` > 0.0 - at `$.tune.measure-seconds`"),
        ("[tune]\nmeasure-seconds = inf\n", "tune.measure-seconds"),
        ("nonsense = 1\n", "unknown key `nonsense`"),
        ("[splice]\nstyle = 'aside'\n", "aside"),
        ("[", "mdh-lift.toml"),
    ],
)
def test_a_bad_configuration_is_2(tree, text, says):
    (tree / "mdh-lift.toml").write_text(text)
    result = run("check", "good.c")
    assert result.exit_code == 2 and says in result.output, result.output
    assert run("check", "good.c", "--isolated").exit_code == 0


def test_the_nearest_configuration_decides(tree):
    (tree / "sub").mkdir()
    (tree / "pyproject.toml").write_text("[tool.mdh-lift.tune]\nseed = 7\n")
    (tree / "sub/.mdh-lift.toml").write_text("[tune]\nbudget = '5ev'\n")
    assert config.load(config.find("good.c")).tune.seed == 7
    below = config.load(config.find("sub/f.c")).tune
    assert (below.seed, below.budget) == (0, "5ev")
    shown = run("config", "good.c", "--min-speedup", "2").stdout
    assert re.search(r"tune.seed = 7 +# .*pyproject.toml", shown)
    assert re.search(r"tune.min-speedup = 2.0 +# command line", shown)


# --------------------------------------------------------------------------- the main job


def test_the_main_job_prints_a_diff_and_writes_nothing(tree, improved):
    result = run("good.c")
    assert result.exit_code == 1 and (tree / "good.c").read_text() == GOOD
    assert (
        "md_hom(...)" in result.stdout
        and "24 runs on 2 sizes" in result.stdout
        and "4.00 x, 95% interval 3.50 to 4.50" in result.stdout
    )
    (tree / "p.diff").write_text(result.stdout)
    subprocess.run(["patch", "-s", "-p1", "-i", "p.diff"], check=True)
    assert (tree / "good.c").read_bytes() == spliced_text(tree / "good.c")


def test_the_main_job_writes_with_w(tree, improved):
    for arguments in (["good.c", "-w"], ["-w", "good.c"]):
        result = run(*arguments)
        assert result.exit_code == 0, result.output
        assert [r.state for r in regions((tree / "good.c").read_bytes())] == ["fresh", "fresh"]
        assert run("revert", "good.c", "-w").exit_code == 0
        assert (tree / "good.c").read_text() == GOOD


def test_what_is_written_is_in_the_lock_file(tree, monkeypatch):
    entry = Entry("good.c::scale::0", "here", "n=8", "ab12", {"threads": "i"}, "cd34")
    monkeypatch.setattr(improve, "improve", lambda r, n, *_: hand_made(r, n, entries=(entry,)))
    (tree / "mdh-lift.toml").write_text("")
    assert run("good.c").exit_code == 1 and not (tree / "mdh-lift.lock").exists()
    assert run("good.c", "-w").exit_code == 0
    assert json.loads((tree / "mdh-lift.lock").read_text())["nests"]["good.c::scale::0"]["here"]["n=8"]
    (tree / "mdh-lift.lock").write_text("<<<<<<< ours\n")
    assert run("tune", "good.c").exit_code == 2


def test_splicing_twice_changes_nothing(tree, improved):
    run("good.c", "-w")
    once = (tree / "good.c").read_bytes()
    result = run("good.c")
    assert result.exit_code == 0 and "+++" not in result.stdout
    assert run("good.c", "-w").exit_code == 0 and (tree / "good.c").read_bytes() == once


def test_one_of_several_nests(tree, improved):
    (tree / "two.c").write_text(TWO)
    assert run("two.c::again", "-w").exit_code == 0
    assert {r.name for r in regions((tree / "two.c").read_bytes())} == {"again::0"}
    assert run("two.c::scale::0", "-w").exit_code == 0
    assert run("revert", "two.c::again", "-w").exit_code == 0
    assert {r.name for r in regions((tree / "two.c").read_bytes())} == {"scale::0"}


@pytest.mark.parametrize("code, status", [("MDH603", 1), ("MDH604", 4), ("MDH701", 3), ("MDH802", 4)])
def test_what_is_not_spliced(tree, monkeypatch, code, status):
    finding = Finding(Diagnostic(code, "because", "good.c"))
    monkeypatch.setattr(improve, "improve", lambda r, n, *_: hand_made(r, n, part=None, findings=(finding,)))
    result = run("good.c", "-w")
    assert result.exit_code == status and code in result.stderr
    assert (tree / "good.c").read_text() == GOOD


def test_a_read_only_file_is_left_alone(tree, improved):
    (tree / "good.c").chmod(0o444)
    result = run("good.c", "-w")
    assert result.exit_code == 2 and "MDH803" in result.stderr
    assert (tree / "good.c").read_text() == GOOD and not list(tree.glob(".good.c*"))


def test_a_file_that_changes_meanwhile_is_left_alone(tree, monkeypatch):
    def meanwhile(report, nest, *rest):
        (tree / "good.c").write_text(GOOD + "int mine;\n")
        return hand_made(report, nest)

    monkeypatch.setattr(improve, "improve", meanwhile)
    result = run("good.c", "-w")
    assert result.exit_code == 2 and "MDH507" in result.stderr
    assert (tree / "good.c").read_text() == GOOD + "int mine;\n"


# --------------------------------------------------------------------------- freshness


def test_states_of_a_splice(tree, improved):
    run("good.c", "-w")
    assert run("check", "good.c").exit_code == 0
    assert "spliced" in run("status", "good.c").stdout
    fresh = (tree / "good.c").read_text()

    (tree / "good.c").write_text(fresh.replace("2 * x[i]", "3 * x[i]"))
    result = run("check", "good.c")
    assert result.exit_code == 1 and "MDH501" in result.stdout
    assert run("status", "good.c").exit_code == 1 and "stale" in run("status", "good.c").stdout

    (tree / "good.c").write_text(fresh.replace("return 0;", "return 1;"))
    assert "MDH502" in run("check", "good.c").stdout
    refused = run("good.c", "-w")
    assert (
        refused.exit_code == 1
        and "--force" in refused.stderr
        and "return 1;" in (tree / "good.c").read_text()
    )
    assert run("good.c", "-w", "--force").exit_code in (0, 1)
    assert (tree / "good.c").read_text() == fresh

    (tree / "good.c").write_text(fresh.replace("/* mdh-lift end scale::0 call", "/* gone"))
    for verb in ("check", "revert", "status"):
        result = run(verb, "good.c")
        assert result.exit_code == 2 and "MDH509" in result.output

    (tree / "good.c").write_text(fresh.replace("#pragma mdh\n", "\n"))
    assert "no such nest" in run("check", "good.c").stdout


def test_the_kernel_runs_only_for_the_values_it_was_made_for(tree, improved):
    (tree / "sized.c").write_text(
        "#ifndef N\n#define N 8\n#endif\n#define M (N * 2)\n" + GOOD.replace("i < n", "i < M")
    )
    assert run("sized.c", "-w").exit_code == 0
    assert "#if !defined(MDH_LIFT_OFF) && ((M) == 16)" in (tree / "sized.c").read_text()
    assert run("check", "sized.c", "--", "cc", "-DN=9").exit_code == 0


def test_a_size_inside_of_another_macro_is_asked_for(tree, improved):
    """``N`` stands in the definition of ``ALL`` alone."""
    head = "#ifndef N\n#define N 8\n#endif\n#define M (N * 2)\n#define ALL(i) for (int i = 0; i < M; i++)\n"
    (tree / "sized.c").write_text(head + GOOD.replace("for (int i = 0; i < n; i++)", "ALL(i)"))
    assert run("sized.c", "-w").exit_code == 0
    assert "#if !defined(MDH_LIFT_OFF) && ((M) == 16)" in (tree / "sized.c").read_text()
    assert run("check", "sized.c", "--", "cc", "-DN=9").exit_code == 0  # its value is asked for


@pytest.mark.parametrize(
    ("before", "after"), [("i < (n)", "i < (n) - 1"), ("2 * (x)", "2 * ((x) + 1)"), ("TWO 2.0f", "TWO 2.5f")]
)
def test_a_change_of_a_macro_makes_a_splice_stale(tree, improved, before, after):
    (tree / "macros.h").write_text("#define TWO 2.0f\n#define TWICE(x) (TWO * 2 * (x))\n")
    head = '#include "macros.h"\n#define UNUSED(x) x\n#define FOR(i, n) for (int i = 0; i < (n); i++)\n'
    text = "void f(int n, float *x)\n{\n#pragma mdh\n    FOR(i, n) x[i] = TWICE(x[i]);\n}\n"
    (tree / "macros.c").write_text(head + text)
    assert run("macros.c", "-w").exit_code == 0
    spliced = (tree / "macros.c").read_text()
    (tree / "macros.c").write_text(spliced.replace("UNUSED(x) x", "UNUSED(x) 2"))
    assert "MDH501" not in run("check", "macros.c").output
    for name in ("macros.c", "macros.h"):
        (tree / name).write_text((tree / name).read_text().replace(before, after))
    result = run("check", "macros.c")
    assert result.exit_code == 1 and "MDH501" in result.output


def test_a_change_of_types_makes_a_splice_stale(tree, improved):
    assert run("good.c", "-w").exit_code == 0
    (tree / "good.c").write_text((tree / "good.c").read_text().replace("float", "double"))
    assert "MDH501" in run("check", "good.c").stdout


def test_findings_count_in_the_file_as_it_stands(tree, improved):
    (tree / "both.c").write_text(GOOD + BAD)
    assert run("both.c::scale", "-w").exit_code == 0
    line = (tree / "both.c").read_text().splitlines().index("        y[i * i] = x[i];") + 1
    assert f"--> both.c:{line}:" in run("check", "both.c").stdout


@pytest.mark.parametrize(
    "change", [lambda s: s.replace("\n", "\r\n"), lambda s: s[:-1], lambda s: "\ufeff" + s]
)
def test_revert_gives_the_bytes_back(tree, improved, change):
    before = change(GOOD).encode()
    (tree / "good.c").write_bytes(before)
    assert run("good.c", "-w").exit_code == 0
    assert (tree / "good.c").read_bytes() != before
    assert run("revert", "good.c").exit_code == 1  # a diff
    assert run("revert", "good.c", "-w").exit_code == 0
    assert (tree / "good.c").read_bytes() == before
    again = run("revert", "good.c", "-w")
    assert again.exit_code == 0 and "MDH508" in again.stderr


def test_emit_for_a_device(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice without a search is that for the device; ``this`` is read from the machine."""

    def threads(*more: str) -> str:
        done = run("emit", "good.c", "--target", "opencl", *more)
        assert done.exit_code == 0, done.stderr
        return re.findall(r"reqd_work_group_size\((\d+)", done.stdout)[0]

    assert threads() == threads("--device", "opencl") == "256"
    tiny = replace(DEVICES["opencl"], block_threads=32)
    monkeypatch.setattr("tuning.devices.opencl_devices", lambda: [tiny, DEVICES["opencl"]])
    assert threads("--device", "this") == "32"
    monkeypatch.setenv("MDH_OPENCL_DEVICE", "1")
    assert threads("--device", "this") == "256", "the device that the emitted file takes"
    monkeypatch.setattr("tuning.devices.cuda_device", lambda: None)
    done = run("emit", "good.c", "--target", "cuda", "--device", "this")
    assert done.exit_code == 2 and "no device for cuda" in done.stderr
    done = run("emit", "good.c", "--device", "h200")
    assert done.exit_code == 2 and "--target cuda" in done.stderr
    assert run("emit", "good.c", "--target", "cuda", "--device", "h900").exit_code == 2


def test_emit_for_a_gpu_from_files_of_any_name(tree: Path) -> None:
    """Functions that other files see are called after the file: a name for C, that text can hold."""
    for name, function in ((b"2mm.c", "mdh_2mm_"), (b"caf\xe9.c", "caf_"), (b"\xc3\xa9t\xc3\xa9.c", "mdh__t_")):
        path = Path(os.fsdecode(name))
        path.write_bytes((tree / "good.c").read_bytes())
        done = run("emit", str(path), "--target", "cuda")
        assert done.exit_code == 0
        assert f'extern "C" int {function}' in done.stdout
        assert done.stdout.encode()


def test_emit_for_a_gpu(tree: Path) -> None:
    """The file, its header and the call; arrays of unknown extent are a diagnostic."""
    for target, words in (
        ("cuda", ("__global__", "cudaMemcpyAsync", 'extern "C" int', "nvcc")),
        ("opencl", ("__kernel", "clEnqueueNDRangeKernel", "-lOpenCL")),
    ):
        done = run("emit", "good.c", "--target", target)
        assert done.exit_code == 0, done.stderr
        assert all(w in done.stdout for w in (*words, "if (good_scale_0_mdh("))
    (tree / "gather.c").write_text(
        "void g(int n, const float *restrict x, const int *restrict at, float *restrict y)\n{\n#pragma mdh\n"
        "    for (int i = 0; i < n; i++) y[i] = x[at[i]];\n}\n"
    )
    done = run("emit", "gather.c", "--target", "cuda")
    assert done.exit_code == 1
    assert "MDH416" in done.stderr
    assert "`x`" in done.stderr
    assert "gather.c:4:" in done.stderr
    (tree / "list.json").write_text("[1]")
    assert run("emit", "good.c", "--config", "list.json").exit_code == 2

    (tree / "product.c").write_text(
        "void p(int n, const float A[n][n], const float B[n][n], float C[n][n])\n{\n#pragma mdh\n"
        "    for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) {\n        float s = 0;\n"
        "        for (int k = 0; k < n; k++) s += A[i][k] * B[k][j];\n        C[i][j] = s;\n    }\n}\n"
    )
    for swizzle, code in (("2,2,3", 0), ("2,2,0", 1), ("2,2", 1), ("9,9,9", 1), ("-1,2,3", 1)):
        (tree / "swizzle.json").write_text(json.dumps({"swizzle_B": swizzle}))
        done = run("emit", "product.c", "--target", "cuda", "--config", "swizzle.json")
        assert done.exit_code == code, swizzle
        assert ("swizzles are bijections" in done.stderr) == ("MDH608" in done.stderr) == bool(code)
    (tree / "row.json").write_text(
        json.dumps({"instruction": "mma_m8n8k4_f64", "threads_i": 8, "threads_j": 4, "rows_i": 1, "rows_j": 2})
    )
    (tree / "doubles.c").write_text((tree / "product.c").read_text().replace("float", "double"))
    done = run("emit", "doubles.c", "--target", "cuda", "--config", "row.json")
    assert done.exit_code == 0 and "mma.sync" in done.stdout
    (tree / "row.json").write_text('{"instruction": "mma_of_nobody"}')
    done = run("emit", "product.c", "--target", "cuda", "--config", "row.json")
    assert (done.exit_code, "MDH608" in done.stderr) == (1, True)

    for target, word in (("cuda", "class"), ("opencl", "global"), ("cuda", "x_first")):
        (tree / "words.c").write_text(
            f"void w(int n, const float *restrict x, float *restrict {word})\n{{\n#pragma mdh\n"
            f"    for (int i = 0; i < n; i++) {word}[i] = x[i];\n}}\n"
        )
        done = run("emit", "words.c", "--target", target)
        assert done.exit_code == 1
        assert "MDH417" in done.stderr
        assert f"`{word}`" in done.stderr
