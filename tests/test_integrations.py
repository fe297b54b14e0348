"""What other tools start: pre-commit, GitHub, GitLab, CMake and make, each run as it would be."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
FILES = ROOT / "mdh_lift/integrations"
GOOD = """\
void scale(int n, float *restrict y, const float *restrict x)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = FACTOR * x[i];
}
"""
BAD = GOOD.replace("y[i]", "y[i * i]")
MAIN = "void scale(int, float *, const float *);\nint main(void) { scale(0, 0, 0); return 0; }\n"


@pytest.fixture
def outside(monkeypatch):
    """An environment in which `mdh-lift` is the one that is tested; no configuration of whoever runs it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "PYTEST", "MDH"))}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    assert shutil.which("mdh-lift", path=environment["PATH"]) == str(Path(sys.executable).parent / "mdh-lift")
    return environment | {
        "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.org",
        "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@example.org",
    }  # fmt: skip


def call(*words: object, env, cwd, **rest):
    return subprocess.run(
        [str(w) for w in words], env=env, cwd=cwd, capture_output=True, text=True, check=False, **rest
    )


# --------------------------------------------------------------------------- pre-commit


@pytest.fixture(scope="module")
def hooks(tmp_path_factory):
    """A repository with what is packaged, and with the hooks; as `pre-commit` would clone it."""
    place = tmp_path_factory.mktemp("hooks") / "repository"
    project = (ROOT / "pyproject.toml").read_text()
    packages = json.loads(re.search(r"^packages = (\[.*\])$", project, re.MULTILINE)[1])
    for package in packages:
        shutil.copytree(ROOT / package, place / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml"):
        shutil.copy(ROOT / file, place / file)
    return place


def commit(place: Path, env) -> None:
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        done = call("git", *words, env=env, cwd=place)
        assert done.returncode == 0, done.stderr


def test_pre_commit(hooks, tmp_path, outside):
    """Both hooks, with an environment that pre-commit makes and installs into."""
    commit(hooks, outside)
    user = tmp_path / "user"
    user.mkdir()
    (user / "a file.c").write_text("#define FACTOR 2\n" + BAD)
    (user / "plain.py").write_text("x = 1\n")
    (user / "notes.txt").write_text("none\n")
    commit(user, outside)
    env = outside | {"PRE_COMMIT_HOME": str(tmp_path / "home"), "PRE_COMMIT_COLOR": "never"}
    command = ("pre-commit", "try-repo", hooks, "--all-files", "--verbose")
    done = call(Path(sys.executable).parent / command[0], *command[1:], env=env, cwd=user, timeout=900)
    told = done.stdout + done.stderr
    assert done.returncode == 1, told
    assert re.search(r"mdh-lift check\.+Failed", told) and "MDH201" in told and "a file.c" in told, told
    assert re.search(r"mdh-lift splice --check\.+Passed", told), told
    assert "2 files" in told and "MDH007" not in told  # both languages were looked at
    (user / "a file.c").write_text("#define FACTOR 2\n" + GOOD)
    commit(user, outside)
    done = call(Path(sys.executable).parent / command[0], *command[1:], env=env, cwd=user, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


# --------------------------------------------------------------------------- GitHub


class Runner:
    """Does with the steps of a composite action what the runner of GitHub does, but for `uses`."""

    def __init__(self, action: Path, inputs: dict[str, str], cwd: Path, env) -> None:
        self.action = yaml.safe_load(action.read_text())
        self.cwd, self.env = cwd, env
        self.temp = cwd / ".runner"
        self.temp.mkdir()
        self.values = {f"inputs.{k}": str(v.get("default", "")) for k, v in self.action["inputs"].items()}
        self.values |= {f"inputs.{k}": v for k, v in inputs.items()} | {"github.action_path": str(action.parent)}
        self.failed = False
        self.used: list[tuple[str, dict[str, str]]] = []
        self.told = ""

    def text(self, value: object) -> str:
        return re.sub(r"\$\{\{\s*([\w.-]+)\s*\}\}", lambda m: self.values.get(m[1], ""), str(value))

    def holds(self, condition: str) -> bool:
        words = re.sub(r"^\$\{\{|\}\}$", "", condition).strip()
        runs = "always()" in words or not self.failed
        for term in (t.strip() for t in words.split("&&")):
            m = re.fullmatch(r"([\w.-]+) (==|!=) '([^']*)'", term)
            assert m or term == "always()", term
            if m and (self.values.get(m[1], "") == m[3]) != (m[2] == "=="):
                return False
        return runs

    def run(self) -> int:
        status = 0
        for k, step in enumerate(self.action["runs"]["steps"]):
            if not (self.holds(step["if"]) if "if" in step else not self.failed):
                continue
            if "uses" in step:
                self.used.append((step["uses"], {n: self.text(v) for n, v in step.get("with", {}).items()}))
                continue
            assert step["shell"] == "bash"
            files = {n: self.temp / n.lower() for n in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
            script = self.temp / f"{k}.sh"
            script.write_text(self.text(step["run"]))
            env = self.env | {n: self.text(v) for n, v in step.get("env", {}).items()}
            env |= {n: str(p) for n, p in files.items()} | {"RUNNER_TEMP": str(self.temp)}
            done = call("bash", "--noprofile", "--norc", "-eo", "pipefail", script, env=env, cwd=self.cwd)
            self.told += done.stdout + done.stderr
            for line in files["GITHUB_OUTPUT"].read_text().splitlines() if "id" in step else ():
                name, _, value = line.partition("=")
                self.values[f"steps.{step['id']}.outputs.{name}"] = value
            if done.returncode:
                self.failed, status = True, done.returncode
        return status


def test_github_action(tmp_path, outside):
    (tmp_path / "good.c").write_text("#define FACTOR 2\n" + GOOD)
    (tmp_path / "bad.c").write_text("#define FACTOR 2\n" + BAD)
    runner = Runner(ROOT / "action.yml", {"package": "none", "paths": "good.c bad.c"}, tmp_path, outside)
    assert runner.run() == 1, runner.told
    assert [name.partition("@")[0] for name, _ in runner.used] == [
        "actions/setup-python", "github/codeql-action/upload-sarif",
    ]  # fmt: skip
    log = json.loads(Path(runner.used[1][1]["sarif_file"]).read_text())
    assert "MDH201" in [r["ruleId"] for r in log["runs"][0]["results"]]
    assert "::error file=bad.c,line=6," in runner.told
    assert "1 error" in (runner.temp / "github_step_summary").read_text()
    for name in re.findall(r"\$\{\{\s*(inputs\.[\w-]+)", (ROOT / "action.yml").read_text()):
        assert name in runner.values, name


@pytest.mark.parametrize(
    "inputs, status",
    [
        ({"paths": "good.c"}, 0),
        ({"paths": "bad.c", "fail-on": "never"}, 0),
        ({"paths": "bad.c", "baseline": "known.json", "upload": "false"}, 0),
        ({"paths": "$(touch ran) ; touch ran"}, 2),  # words, not commands
    ],
)
def test_github_action_with_inputs(tmp_path, outside, inputs, status):
    (tmp_path / "good.c").write_text("#define FACTOR 2\n" + GOOD)
    (tmp_path / "bad.c").write_text("#define FACTOR 2\n" + BAD)
    done = call("mdh-lift", "check", "--write-baseline", "--baseline", "known.json", env=outside, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    runner = Runner(ROOT / "action.yml", inputs | {"package": "none"}, tmp_path, outside)
    assert runner.run() == status, runner.told
    assert len(runner.used) == (1 if inputs.get("upload") == "false" else 2)
    assert not (tmp_path / "ran").exists()


# --------------------------------------------------------------------------- GitLab


def test_gitlab_template(tmp_path, outside):
    template = yaml.safe_load((FILES / "gitlab-ci.yml").read_text())
    job = template["mdh-lift"]
    (tmp_path / "bad.c").write_text("#define FACTOR 2\n" + BAD)
    env = outside | template["variables"]
    states = []
    for line in job["script"]:
        if "pip install" not in line:
            states.append(call("bash", "-c", line, env=env, cwd=tmp_path).returncode)
    assert states == [0, 0, 1]
    reports = job["artifacts"]["reports"]
    rows = json.loads((tmp_path / reports["codequality"]).read_text())
    assert "MDH201" in [row["check_name"] for row in rows]
    assert "<failure" in (tmp_path / reports["junit"]).read_text()


# --------------------------------------------------------------------------- CMake, make

CMAKE = """\
cmake_minimum_required(VERSION 3.20)
project(user C)
execute_process(COMMAND mdh-lift version --where OUTPUT_VARIABLE MDH_LIFT_DIR OUTPUT_STRIP_TRAILING_WHITESPACE)
include(${MDH_LIFT_DIR}/MdhLift.cmake)
add_executable(app main.c "src/scale it.c")
target_compile_definitions(app PRIVATE FACTOR=2)
mdh_lift_check(app)
"""


def test_cmake(tmp_path, outside):
    """A check that fails fails the build; it is made again when a source changes, and only then."""
    user, build = tmp_path / "user tree", tmp_path / "build"
    (user / "src").mkdir(parents=True)
    (user / "CMakeLists.txt").write_text(CMAKE)
    (user / "main.c").write_text(MAIN)
    source = user / "src/scale it.c"
    source.write_text(GOOD)  # needs the definition, which the compile commands have
    done = call("cmake", "-S", user, "-B", build, "-DCMAKE_C_COMPILER=gcc", env=outside, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    make = ("cmake", "--build", build)
    done = call(*make, env=outside, cwd=tmp_path)
    assert done.returncode == 0 and "mdh-lift check app" in done.stdout, done.stdout + done.stderr
    assert (build / "app").exists() and "1 lifted" in done.stderr
    done = call(*make, env=outside, cwd=tmp_path)
    assert done.returncode == 0 and "mdh-lift check app" not in done.stdout
    source.write_text(BAD)
    done = call(*make, env=outside, cwd=tmp_path)
    assert done.returncode != 0 and re.search(r"scale it\.c:5:\d+: error\[MDH201\]", done.stdout + done.stderr)
    done = call(*make, env=outside, cwd=tmp_path)
    assert done.returncode != 0  # still
    source.write_text(GOOD)
    assert call(*make, env=outside, cwd=tmp_path).returncode == 0


def test_make(tmp_path, outside):
    (tmp_path / "Makefile").write_text(
        "MDH_LIFT_SOURCES := scale.c\nMDH_LIFT_CFLAGS := -DFACTOR=2\n"
        "include $(shell mdh-lift version --where)/mdh_lift.mk\n"
        "app: main.c scale.c mdh-lift-check\n\t$(CC) -DFACTOR=2 -o $@ main.c scale.c\n"
    )
    (tmp_path / "main.c").write_text(MAIN)
    (tmp_path / "scale.c").write_text(GOOD)
    done = call("make", "app", env=outside, cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "app").exists(), done.stdout + done.stderr
    assert call("make", "mdh-lift-splice-check", env=outside, cwd=tmp_path).returncode == 0
    (tmp_path / "app").unlink()
    (tmp_path / "scale.c").write_text(BAD)
    done = call("make", "app", env=outside, cwd=tmp_path)
    assert done.returncode != 0 and "error[MDH201]" in done.stdout and not (tmp_path / "app").exists()
