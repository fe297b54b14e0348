"""Trees that try to have something executed, or to make the command fall over, when they are only looked at."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from campaigns.lsp_client import Client, Message
from frontend_c import compilers
from frontend_c.preprocess import CompileCommand, analysis_compiler, analysis_flags, find_compiler
from mdh_lift import compile_command

NEST = "void f(float *y, int n)\n{\n#pragma mdh\n    for (int i = 0; i < n; i++)\n        y[i] = 2 * y[i];\n}\n"
COMMAND = str(Path(sys.executable).with_name("mdh-lift"))
LOOKING = ("check", "status", "scan")


def evil(path: Path) -> Path:
    """A program that leaves a note when it is run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho \"$0\" >> '{path.parent}/ran'\nexec gcc \"$@\"\n")
    path.chmod(0o755)
    return path


def looked(
    tree: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> tuple[subprocess.CompletedProcess[bytes], list[str]]:
    """The command in the tree, and the programs that were executed meanwhile."""
    log = tree.parent / "executed"
    done = subprocess.run(
        [*watched(log), *arguments], cwd=tree, capture_output=True, timeout=120,
        env={**os.environ, **(environment or {})}, check=False,
    )  # fmt: skip
    return done, executed_in(log)


def watched(log: Path) -> list[str]:
    """The command, watched for what it executes."""
    watch = ["strace", "--seccomp-bpf", "-f", "-qq", "-e", "trace=execve,execveat", "-o", str(log)]
    return [*watch, "--", COMMAND]


def executed_in(log: Path) -> list[str]:
    """Programs that the command executed, itself left out."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.endswith(" = 0")]
    return [m[1] for line in lines if (m := re.search(r'execve(?:at)?\("([^"]*)"', line))][1:]


QUESTIONS = ("hover", "inlayHint", "codeLens", "codeAction", "completion", "documentSymbol", "foldingRange")


def edited(
    tree: Path, names: Sequence[str | bytes], trusted: bool, environment: Mapping[str, str] | None = None,
    asked: bool = True,
) -> tuple[dict[str, list[Message]], list[str]]:
    """What the language server tells of files once all was asked that an editor asks, and what it executed.

    Every file is opened and edited; with ``asked``, every question is asked about it, and it is asked for each
    change that the server can make.
    """
    log = tree.parent / "executed"
    told = {}
    with Client([*watched(log), "lsp"], tree, environment) as client:
        client.start(trusted=trusted)
        for name in names:
            path = Path(os.fsdecode(os.fsencode(tree) + b"/" + os.fsencode(name)))
            text = path.read_text()
            client.open(path, text, "python" if path.suffix == ".py" else "c")
            client.diagnostics(path, 1)
            client.change(path, 2, (0, 0), "/**/ " if path.suffix == ".c" else "# \n")
            told[os.fsdecode(name)] = client.diagnostics(path, 2)
            uri = {"uri": path.as_uri()}
            place = {"line": 2, "character": 4}
            whole = {"start": {"line": 0, "character": 0}, "end": {"line": 5, "character": 0}}
            for question in QUESTIONS if asked else ():
                context = {"diagnostics": told[os.fsdecode(name)], "triggerKind": 1}
                client.ask(
                    f"textDocument/{question}",
                    {"textDocument": uri, "position": place, "range": whole, "context": context},
                )
            changes = (("splice", "f::0"), ("revert", "f::0"), ("show", "f::0"), ("annotate", 4))
            for verb, about in changes if asked else ():
                command = {"command": f"mdhLift.{verb}", "arguments": [path.as_uri(), about]}
                client.ask("workspace/executeCommand", command)
        client.send(method="workspace/didChangeWatchedFiles", params={"changes": []})
        client.stop()
    return told, executed_in(log)


def ours(program: str) -> bool:
    """The interpreter that analyses, beside what may always be executed."""
    return allowed(program) or Path(program).resolve() == Path(sys.executable).resolve()


def allowed(program: str) -> bool:
    """The system's compiler and the parts that it consists of, for preprocessing."""
    name = Path(program).name
    system = str(Path(program).resolve()).startswith(("/usr/", "/opt/", "/lib/"))
    return system and (compilers.is_reader(name) or name in ("cc1", "clang", "python3", "env"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = tmp_path / "tree"
    made.mkdir()
    (made / "f.c").write_text(NEST)
    return made


def database(tree: Path, *arguments: str, **rest: str) -> None:
    entry = {"directory": str(tree), "file": "f.c", "arguments": [*arguments, "-c", "f.c"], **rest}
    (tree / "compile_commands.json").write_text(json.dumps([entry]))


def _plugin(tree: Path) -> list[str]:
    source = tree / "plugin.c"
    source.write_text(
        f'#include <stdio.h>\n__attribute__((constructor)) static void c(void) {{ fopen("{tree}/ran", "w"); }}\n'
        "int plugin_is_GPL_compatible; int plugin_init(void) { return 0; }\n"
    )
    made = tree / "evil.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, source], check=True)
    (tree / "args").write_text(f"-fplugin={made}")
    (tree / "@args").write_text("")
    (tree / "spec").write_text(f"*cpp:\n%:exec({tree}/evil.sh)\n")
    return [
        "gcc -fplugin=./evil.so", f"gcc -fplugin={made}", f"clang -fpass-plugin={made}",
        f"clang -Xclang -load -Xclang {made}", "gcc @args", "gcc -include @args", "gcc -imacros @args",
        "gcc -D @args", "gcc -I @args", "gcc -wrapper ./evil.sh", "gcc -wrapper ./evil.sh,-x", "gcc -specs=spec",
        "gcc -specs spec", "gcc --specs=spec", "gcc -B.", "gcc -B ./", f"gcc -B{tree}/", "gcc --sysroot=.",
        "gcc -isysroot .", "gcc -no-integrated-cpp -B.", "gcc -Wp,-fplugin=evil.so", "gcc -Xpreprocessor @args",
        "gcc -o f.c", "gcc -of.c", "gcc -MD -MF f.c", "gcc -dumpdir f.c", "gcc -save-temps", "gcc -M -MF f.c",
        "gcc -include /dev/zero", "gcc -imacros /dev/zero", "gcc -fdump-tree-all=f.c", "gcc -aux-info f.c",
        "gcc -fprofile-use=./x", "gcc -fopenmp", "gcc -march=native", "clang --config=./args", "gcc -x c++",
        "gcc -std=@args", "gcc --param @args", "gcc -Wa,@args", "gcc -Wl,@args", "ccache gcc -fplugin=./evil.so",
        "gcc -fuse-ld=./evil.sh", "gcc -ftrack-macro-expansion=@args", "gcc -iprefix . -iwithprefix @args",
    ]  # fmt: skip


def test_flags_of_a_database_execute_nothing(tree: Path) -> None:
    """Every command line in a database of its own, all looked at in one run."""
    evil(tree / "evil.sh"), evil(tree / "cc1"), evil(tree / "as")
    entries = []
    lines = _plugin(tree)
    for k, line in enumerate(lines):
        (tree / f"f{k}.c").write_text(NEST)
        entries.append({"directory": str(tree), "file": f"f{k}.c", "command": f"{line} -c f{k}.c"})
    (tree / "compile_commands.json").write_text(json.dumps(entries))
    names = [f"f{k}.c" for k in range(len(lines))]
    done, executed = looked(tree, "check", *names)
    assert b"Traceback" not in done.stdout + done.stderr
    assert len(executed) >= len(lines)
    assert [p for p in executed if not allowed(p)] == []
    assert not (tree / "ran").exists()
    assert (tree / "f.c").read_text() == NEST
    assert done.stdout.count(b"is ignored while reading") >= 20


@pytest.mark.parametrize("trusted", [True, False])
def test_an_editor_executes_nothing_of_a_database(tree: Path, trusted: bool) -> None:
    """The same flags, and compilers and a configuration that the tree brings, with the language server."""
    evil(tree / "evil.sh"), evil(tree / "cc1"), evil(tree / "gcc")
    lines = [*_plugin(tree)[::6], "./gcc", f"{tree}/gcc", "./evil.sh"]
    entries = []
    for k, line in enumerate(lines):
        (tree / f"f{k}.c").write_text(NEST)
        entries.append({"directory": str(tree), "file": f"f{k}.c", "command": f"{line} -c f{k}.c"})
    (tree / "compile_commands.json").write_text(json.dumps(entries))
    (tree / "g.py").write_text("from mdh_lift import mdh\nopen('ran', 'w')\n@mdh\ndef g(x: 'float32[:]'):\n    pass\n")
    for name in ("pycparser", "mdh_core", "sitecustomize", "json", "pygls"):
        (tree / f"{name}.py").write_text("open('ran', 'w')\n")
    path = f".:{tree}:{os.environ['PATH']}"
    told, executed = edited(tree, [*(f"f{k}.c" for k in range(len(lines))), "g.py"], trusted, {"PATH": path})
    assert [p for p in executed if not ours(p)] == []
    readers = [p for p in executed if compilers.is_reader(p)]
    if trusted:  # each version of each file was read
        assert len(readers) >= 2 * len(lines)
        for k in range(len(lines) - 3, len(lines)):
            assert any("is not started" in d["message"] for d in told[f"f{k}.c"]), told[f"f{k}.c"]
    else:
        assert readers == []  # no preprocessor, and nobody asks a compiler for its version
    assert not any(d.get("code") in ("MDH821", "MDH901") for found in told.values() for d in found), told
    assert not list(tree.rglob("ran"))
    assert (tree / "f.c").read_text() == NEST and (tree / "f0.c").read_text() == NEST


def test_an_editor_with_a_configuration_that_names_what_does_not_belong_to_it(tree: Path) -> None:
    evil(tree / "evil.sh")
    (tree / "mdh-lift.toml").write_text(
        '[build]\ncompiler = "./evil.sh"\nflags = ["-fplugin=./evil.so", "@args", "-wrapper", "./evil.sh"]\n'
        '[lock]\npath = "/dev/zero"\n[database]\npath = "/dev/null/x"\n'
    )
    _, executed = edited(tree, ["f.c"], True)
    assert [p for p in executed if not ours(p)] == []
    assert not (tree / "ran").exists()


def test_an_editor_with_names_of_files(tree: Path) -> None:
    for name in NAMES:
        Path(os.fsdecode(os.fsencode(tree) + b"/" + name)).write_text(NEST)
    told, executed = edited(tree, NAMES[::4], True, asked=False)
    assert [p for p in executed if not ours(p)] == []
    assert len([p for p in executed if compilers.is_reader(p)]) >= len(NAMES[::4])
    assert not any(found for found in told.values()), told
    assert not (tree / "ran").exists()


def test_compilers_in_the_tree_are_not_started(tree: Path) -> None:
    for name in ("gcc", "x86_64-linux-gnu-gcc-12", "evil.sh"):
        evil(tree / name)
    (tree / "link-gcc").symlink_to(shutil.which("gcc") or "/usr/bin/gcc")
    (tree / "sub").mkdir()
    named = ["./gcc", f"{tree}/gcc", "sub/../gcc", f"{tree}/x86_64-linux-gnu-gcc-12", "evil.sh", "./evil.sh",
             f"{tree}/link-gcc", "/bin/sh", "sh", f"{tree}/../tree/gcc"]  # fmt: skip
    entries = []
    for k, compiler in enumerate(named):
        (tree / f"f{k}.c").write_text(NEST)
        entries.append({"directory": str(tree), "file": f"f{k}.c", "arguments": [compiler, "-c", f"f{k}.c"]})
    (tree / "compile_commands.json").write_text(json.dumps(entries))
    done, executed = looked(tree, "check", *(f"f{k}.c" for k in range(len(named))))
    assert done.returncode == 0, done
    for compiler in named:
        told = f"the project's compiler `{compiler}` is not started".encode()
        assert told in done.stdout, compiler
    assert done.stdout.count(b"help: name the compiler yourself") == len(named)
    assert [p for p in executed if not allowed(p)] == []
    done = subprocess.run([COMMAND, "tune", "f0.c"], cwd=tree, capture_output=True, check=False)
    assert done.returncode == 2 and b"MDH829" in done.stderr, done
    (tree / "mdh-lift.toml").write_text('[build]\ncompiler = "./evil.sh"\n')
    done = subprocess.run([COMMAND, "verify", "f.c"], cwd=tree, capture_output=True, check=False)
    assert done.returncode == 2 and b"MDH829" in done.stderr, done
    assert not (tree / "ran").exists()


def test_compilers_that_a_project_may_name(tree: Path) -> None:
    trees = compilers.project_of(str(tree / "f.c"))
    assert trees == (str(tree),)
    for name in ("gcc", "cc", "clang", "/usr/bin/gcc", "x86_64-linux-gnu-gcc", "gcc-99", "mpicc", "clang-19"):
        assert compilers.why_not(name, trees) == "", name
    assert compilers.why_not("./anything", ()) == ""  # the user's own word
    assert analysis_compiler(CompileCommand("gcc", trees=trees)) == shutil.which("gcc")


def test_path_with_places_in_the_tree(tree: Path) -> None:
    for directory in ("bin", ""):
        for name in ("gcc", "cc", "clang", "cc1", "as"):
            evil(tree / directory / name)
    database(tree, "gcc")
    path = f".:bin::{tree}/bin:{tree}:{os.environ['PATH']}"
    for verb in LOOKING:
        done, executed = looked(tree, verb, "f.c", environment={"PATH": path})
        assert done.returncode == 0, done
        assert executed and [p for p in executed if not allowed(p)] == []
    assert not list(tree.rglob("ran"))


def test_absolute_places_of_path_count_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f".:{evil(tmp_path / 'bin' / 'cc').parent}:/usr/bin")
    assert find_compiler() == str(tmp_path / "bin" / "cc")  # the user's own PATH
    assert find_compiler((str(tmp_path),)) == "/usr/bin/cc"


def test_words_that_compilers_read_flags_from() -> None:
    kept, _ = analysis_flags(CompileCommand(flags=("-include", "@x", "-imacros@y", "-D", "@z"), directory="/d"))
    assert kept == ("-include", "./@x", "-imacros", "./@y", "-D@z")


NAMES = [b"with blank.c", b"quo\"te'.c", b"new\nline.c", b"-dash.c", b"--help.c", b"latin-\xe9.c", b"a::b.c",
         b"@at.c", b"semi;colon.c", b"$(touch ran).c", b"`touch ran`.c", b"*.c", b"tab\t.c", b"%s.c",
         b"back\\slash.c", b"\xf0\x9f\x90\x9f.c", b"[31m\x1b.c", b"a" * 253 + b".c"]  # fmt: skip


def test_names_of_files(tree: Path) -> None:
    for name in NAMES:
        Path(os.fsdecode(os.fsencode(tree) + b"/" + name)).write_text(NEST)
    for verb in LOOKING:
        done, executed = looked(tree, verb, ".")
        assert done.returncode == 0, done
        assert b"Traceback" not in done.stderr and b"MDH9" not in done.stdout + done.stderr
        assert [p for p in executed if not allowed(p)] == []
        assert len([p for p in executed if compilers.is_reader(p)]) >= len(NAMES)
    assert not (tree / "ran").exists()
    done = subprocess.run([COMMAND, "revert", "-w", "."], cwd=tree, capture_output=True, check=False)
    assert done.returncode == 0, done


def _special(tree: Path) -> Iterator[str]:
    (tree / "loop.c").symlink_to("loop.c")
    (tree / "dangling.c").symlink_to("nothing")
    (tree / "round").symlink_to(".")
    (tree / "zero.c").symlink_to("/dev/zero")
    os.mkfifo(tree / "pipe.c")
    (tree / "directory.c").mkdir()
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tree / "socket.c"))
    with (tree / "huge.c").open("wb") as file:
        file.truncate(1 << 36)
    yield from ("loop.c", "dangling.c", "zero.c", "pipe.c", "socket.c", "huge.c")


def test_what_is_no_file(tree: Path) -> None:
    names = list(_special(tree))
    done, executed = looked(tree, "check", ".")
    assert b"Traceback" not in done.stdout + done.stderr and b"MDH9" not in done.stdout + done.stderr
    assert done.returncode == 2
    for name in names:
        assert f"error[MDH001]: `{name}` cannot be read".encode() in done.stdout, (name, done.stdout)
    assert [p for p in executed if not allowed(p)] == []
    assert b"1 nest" in done.stderr  # of f.c: the others do not stand in its way


def test_modules_in_the_tree_are_not_imported(tree: Path) -> None:
    for name in ("pycparser", "click", "mdh_core", "frontend_c", "sitecustomize", "json", "islpy"):
        (tree / f"{name}.py").write_text("open('ran', 'w')\n")
    for command in ([COMMAND], [sys.executable, "-m", "mdh_lift"]):
        done = subprocess.run([*command, "check", "f.c"], cwd=tree, capture_output=True, check=False)
        assert done.returncode == 0, done
    assert not (tree / "ran").exists()


def test_python_files_of_the_tree_are_not_run(tree: Path) -> None:
    (tree / "g.py").write_text("from mdh_lift import mdh\nopen('ran', 'w')\n@mdh\ndef g(x: 'float32[:]'):\n    pass\n")
    done, executed = looked(tree, "check", "g.py")
    assert b"Traceback" not in done.stdout + done.stderr
    assert [p for p in executed if not allowed(p)] == []
    assert not (tree / "ran").exists()


def test_a_configuration_that_names_what_does_not_belong_to_it(tree: Path) -> None:
    evil(tree / "evil.sh")
    (tree / "mdh-lift.toml").write_text(
        '[build]\ncompiler = "./evil.sh"\nflags = ["-fplugin=./evil.so", "@args", "-wrapper", "./evil.sh"]\n'
        'compile-commands = "/dev"\n[lock]\npath = "/dev/zero"\n[database]\npath = "/dev/null/x"\n'
    )
    for verb in ("show",):
        done, executed = looked(tree, verb, "f.c")
        assert b"Traceback" not in done.stdout + done.stderr
        assert [p for p in executed if not allowed(p)] == []
    assert not (tree / "ran").exists()


@pytest.mark.parametrize(
    "text", ["[", "{}", "[1]", '[{"file": 3}]', '[{"file": "f.c", "command": "\'"}]', "\0", "[" * 99999]
)
def test_what_is_no_database(tree: Path, text: str) -> None:
    (tree / "compile_commands.json").write_text(text)
    if text == "{}":
        assert compile_command.find(str(tree / "f.c")) is None
        return
    with pytest.raises(compile_command.DatabaseError):
        compile_command.find(str(tree / "f.c"))


def test_output_that_cannot_be_written(tree: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [COMMAND, "check", "-v", "f.c"], cwd=tree, stdout=full, stderr=subprocess.PIPE, check=False
        )
        assert done.returncode == 2
        assert done.stderr == b"Error: the output cannot be written: no space left on device\n"
        assert subprocess.run([COMMAND, "check", "f.c"], cwd=tree, stderr=full, check=False).returncode == 2
