"""Splice and revert: laws over generated files, the states of regions, atomic replacement."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from frontend_c.lexer import tokens
from mdh_core import replacing
from mdh_core.diagnostics import Refusal
from mdh_lift.files import source_files, write_atomic
from mdh_lift.splice import SplicePart, original, regions, revert, splice
from mdh_lift.version import VERSION

# --------------------------------------------------------------------------- generated files

BLANKS = st.text(" \t\f\v", max_size=3)
FILLERS = st.sampled_from(
    [
        "",
        "/* caf\xe9 */",
        "int unused;",
        "// comment",
        "#define M(x) \\@  (x)",
        '#define S "/* mdh-lift begin x call */"',
        "/* for (;;) {@ } */",
        "int a; \\@int b;",
        "\f",
    ]
)


@st.composite
def sources(draw):
    """A file, and the function and nest offsets of its nests (bytes), and the ends of some."""
    eol = draw(st.sampled_from(["\n", "\r\n"]))
    mixed = draw(st.booleans())
    ends = st.sampled_from(["\n", "\r\n"]) if mixed else st.just(eol)
    encoding = draw(st.sampled_from(["latin-1", "utf-8"]))
    out = b"\xef\xbb\xbf" if encoding == "utf-8" and draw(st.booleans()) else b""
    places = []

    def add(text):
        nonlocal out
        out += text.replace("@", draw(ends)).encode(encoding)

    for f in range(draw(st.integers(1, 3))):
        for line in draw(st.lists(FILLERS, max_size=2)):
            add(line + "@")
        add(draw(st.sampled_from(["", "  ", "int before; ", "/* doc */ ", "/* doc@ */ ", "/* cr */\r"])))
        function = len(out)
        add(f"void f{f}(int n, float *a){draw(BLANKS)}{{@")
        for k in range(draw(st.integers(1, 3))):
            add(draw(BLANKS) + "#pragma mdh@")
            add(draw(st.sampled_from(["", "    ", "\t", "/* here */ ", "// there@    ", " \f ", "if (n) "])))
            nest = (f"f{f}::{k}", function, len(out))
            several = draw(st.booleans())
            add(
                "for (int i = 0; i < n; i++)@\ta[i] += 1;"
                + several * draw(st.sampled_from([" n = 0;", "@n++;"]))
            )
            places.append((*nest, len(out)) if several else nest)
            add(draw(st.sampled_from(["@", " /* x */@", "  \t@", " /* y@ */ @", *[" "] * (not several)])))
        add("}")
        add(draw(st.sampled_from(["@", " ", "@@"])))
    add(draw(st.sampled_from(["", "@", "// no final newline"])))
    return out, places


def part(place, text="static int k(void)\n{\n    return 0;\n}\n", **rest):
    name, function, nest, *end = place
    stem = name.replace("::", "_")
    if end:
        rest["end"] = end[0]
    return SplicePart(
        name, function, nest, text.replace("k(", f"{stem}_mdh("), f"{stem}_mdh()", source="ab12", **rest
    )


@given(sources())
def test_revert_undoes_splice_and_splicing_twice_is_splicing_once(generated):
    data, places = generated
    parts = [part(p, after="n = 0;") for p in places]
    spliced = splice(data, parts)
    assert revert(spliced) == data
    assert splice(spliced, parts) == spliced
    assert all(region.state == "fresh" for region in regions(spliced))
    assert [r.name for r in regions(spliced) if r.kind == "call"] == [p.name for p in parts]
    assert [r.name for r in regions(spliced) if r.kind == "close"] == [p.name for p in parts if p.end]
    inside, depth = re.sub(rb"/\*.*?\*/", b"", spliced, flags=re.S), 0
    for brace in re.findall(rb"else \{|^[ \t\f\v]*\}\r?$", inside, re.M):
        depth += 1 if brace.startswith(b"else") else -1
        assert depth <= 1


@given(sources(), st.data())
def test_parts_may_come_and_go_in_any_order(generated, choice):
    data, places = generated
    parts = [part(p) for p in places]
    order = choice.draw(st.permutations(parts))
    one_by_one = data
    for p in order:
        one_by_one = splice(one_by_one, [p])
    assert one_by_one == splice(data, parts)
    dropped = choice.draw(st.sampled_from(parts))
    assert revert(one_by_one, [dropped.name]) == splice(data, [p for p in parts if p is not dropped])


@given(sources())
def test_offsets_of_the_original_are_found_in_the_file(generated):
    data, places = generated
    spliced = splice(data, [part(p) for p in places])
    bare = original(spliced)
    assert bare.data == data
    for token in tokens(data):
        at = bare.in_file(token.start)
        assert spliced[at : at + len(token.text)] == token.text


@given(sources())
def test_other_line_endings_are_no_edit(generated):
    data, places = generated
    plain = data.replace(b"\r\n", b"\n")
    assume(b"\r" not in plain)
    places = [
        (name, *(len(data[:at].replace(b"\r\n", b"\n")) for at in offsets)) for name, *offsets in places
    ]
    converted = splice(plain, [part(p) for p in places]).replace(b"\n", b"\r\n")
    assert all(region.state == "fresh" for region in regions(converted))
    assert revert(converted) == plain.replace(b"\n", b"\r\n")


# --------------------------------------------------------------------------- states

SOURCE = b"""\
int g;

void f(int n, float *a)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        a[i] += 1;
}
"""
PLACE = ("f::0", SOURCE.index(b"void"), SOURCE.index(b"for"))


def test_form():
    spliced = splice(SOURCE, [part(PLACE, after="i = n;", condition="(N) == 8")]).decode()
    assert re.sub(r"sum=\w{16}", "sum=...", spliced).replace(VERSION, "0.1.0") == (
        "int g;\n"
        "\n"
        "/* mdh-lift begin f::0 kernel version=0.1.0 source=ab12 */\n"
        "#if !defined(MDH_LIFT_OFF) && ((N) == 8)\n"
        "static int f_0_mdh(void)\n"
        "{\n"
        "    return 0;\n"
        "}\n"
        "#endif\n"
        "/* mdh-lift end f::0 kernel sum=... */\n"
        "void f(int n, float *a)\n"
        "{\n"
        "#pragma mdh\n"
        "    /* mdh-lift begin f::0 call version=0.1.0 source=ab12 */\n"
        "#if !defined(MDH_LIFT_OFF) && ((N) == 8)\n"
        "    if (f_0_mdh()) { i = n; } else\n"
        "#endif\n"
        "    /* mdh-lift end f::0 call sum=... */\n"
        "    for (int i = 0; i < n; i++)\n"
        "        a[i] += 1;\n"
        "}\n"
    )


def test_an_edited_region_is_kept_unless_forced():
    spliced = splice(SOURCE, [part(PLACE)])
    edited = spliced.replace(b"return 0;", b"return 1;")
    assert [r.state for r in regions(edited)] == ["edited", "fresh"]
    with pytest.raises(Refusal) as refusal:
        splice(edited, [part(PLACE)])
    assert refusal.value.diagnostic.code == "MDH502"
    assert splice(edited, [part(PLACE)], force=True) == spliced
    assert revert(edited) == SOURCE


@pytest.mark.parametrize("lost", ["begin f::0 kernel", "end f::0 kernel", "begin f::0 call", "end f::0 call"])
def test_a_lost_marker_is_damage(lost):
    spliced = splice(SOURCE, [part(PLACE)])
    damaged = b"".join(line for line in spliced.splitlines(True) if lost.encode() not in line)
    assert "damaged" in [r.state for r in regions(damaged)]
    for act in (revert, lambda data: splice(data, [part(PLACE)], force=True)):
        with pytest.raises(Refusal) as refusal:
            act(damaged)
        assert refusal.value.diagnostic.code == "MDH509"
        span = refusal.value.diagnostic.span
        assert b"mdh-lift" in damaged[span.start : span.end]


def test_an_insertion_inside_a_comment_is_refused():
    data = b"/* one\n   two */ void f(void) { for (;;) ; }\n"
    with pytest.raises(Refusal) as refusal:
        splice(data, [part(("f::0", data.index(b"two"), data.index(b"for")))])
    assert refusal.value.diagnostic.code == "MDH005"


def test_names_that_are_no_identifiers_cannot_break_a_marker():
    place = ("f::a*/ b", *PLACE[1:])
    spliced = splice(SOURCE, [SplicePart(*place, "static int f_k(void) { return 0; }", "f_k()")])
    assert revert(spliced) == SOURCE and len(regions(spliced)) == 2
    assert revert(spliced, ["f::a*/ b"]) == SOURCE


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_both_readings_compile_and_run(tmp_path, ending):
    main = (
        b'#include <stdio.h>\nint main(void) { float a[] = {1}; f(1, a); printf("%g\\n", a[0]); return 0; }\n'
    )
    source = (SOURCE + main).replace(b"\n", ending)
    place = ("f::0", source.index(b"void f"), source.index(b"for"))
    kernel = "static int f_mdh(float *a)\n{\n    a[0] = 7;\n    return 1;\n}"
    spliced = splice(source, [SplicePart(*place, kernel, "f_mdh(a)")])
    for flags, expected in ([], "7"), (["-DMDH_LIFT_OFF"], "2"):
        file = tmp_path / "f.c"
        file.write_bytes(spliced)
        compile_command = [
            "gcc",
            "-std=c99",
            "-Wall",
            "-Wno-unknown-pragmas",
            "-Werror",
            *flags,
            "-o",
            tmp_path / "f",
            file,
        ]
        subprocess.run(compile_command, check=True)
        assert (
            subprocess.run([tmp_path / "f"], capture_output=True, text=True, check=True).stdout.strip()
            == expected
        )


# --------------------------------------------------------------------------- replacing files


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "f.c"
    path.write_bytes(SOURCE)
    return path


def code_of(call, *arguments):
    with pytest.raises(Refusal) as refusal:
        call(*arguments)
    return refusal.value.diagnostic.code


def test_replace_keeps_the_mode(file):
    file.chmod(0o751)
    write_atomic(str(file), b"new", SOURCE)
    assert file.read_bytes() == b"new" and stat.S_IMODE(file.stat().st_mode) == 0o751
    assert os.listdir(file.parent) == ["f.c"]


def test_replace_refuses_a_changed_file(file):
    assert code_of(write_atomic, str(file), b"new", b"old") == "MDH507"
    assert file.read_bytes() == SOURCE and os.listdir(file.parent) == ["f.c"]


def test_replace_refuses_a_read_only_file_or_directory(file):
    file.chmod(0o444)
    assert code_of(write_atomic, str(file), b"new", SOURCE) == "MDH803"
    file.chmod(0o644)
    file.parent.chmod(0o555)
    try:
        assert code_of(write_atomic, str(file), b"new", SOURCE) == "MDH803"
    finally:
        file.parent.chmod(0o755)
    assert file.read_bytes() == SOURCE and os.listdir(file.parent) == ["f.c"]


def test_replace_of_a_missing_file(tmp_path):
    assert code_of(write_atomic, str(tmp_path / "none.c"), b"new", b"") == "MDH803"


def test_replace_follows_a_link_once_and_keeps_it(file, tmp_path):
    link = tmp_path / "link.c"
    link.symlink_to(file)
    write_atomic(str(link), b"new", SOURCE)
    assert link.is_symlink() and file.read_bytes() == b"new"


def test_replace_leaves_nothing_when_the_rename_fails(file, monkeypatch):
    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "replace", fail)
    assert code_of(write_atomic, str(file), b"new", SOURCE) == "MDH803"
    assert file.read_bytes() == SOURCE and os.listdir(file.parent) == ["f.c"]


def test_left_over_temporary_files_of_dead_processes_are_swept(file):
    dead = subprocess.Popen(["true"])
    dead.wait()
    here = replacing.this_machine()
    names = {
        "dead": f".f.c.mdh-lift-{dead.pid}-{here}-00aa11bb.tmp",
        "dead, of another file": f".g.h.mdh-lift-{dead.pid}-{here}-00aa11bb.tmp",
        "alive": f".f.c.mdh-lift-{os.getpid()}-{here}-00aa11bb.tmp",
        "of another machine": f".f.c.mdh-lift-{dead.pid}-{here[::-1]}-00aa11bb.tmp",
        "of another machine, old": f".f.c.mdh-lift-{os.getpid()}-{here[::-1]}-11aa11bb.tmp",
        "not ours": f".f.c.mdh-lift-{dead.pid}.tmp",
    }
    for name in names.values():
        (file.parent / name).write_text("")
    os.utime(file.parent / names["of another machine, old"], (1, 1))
    write_atomic(str(file), b"new", SOURCE)
    kept = {names[what] for what in ("alive", "of another machine", "not ours")}
    assert set(os.listdir(file.parent)) == {"f.c", *kept}


def test_a_name_as_long_as_names_may_be(tmp_path):
    long = tmp_path / ("n" * 253 + ".c")
    long.write_bytes(SOURCE)
    write_atomic(str(long), b"new", SOURCE)
    assert long.read_bytes() == b"new" and len(os.listdir(tmp_path)) == 1


def test_a_new_file_where_there_are_no_hard_links(file, monkeypatch):
    def no_links(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    other = file.with_name("g.h")
    write_atomic(str(other), b"new", None, like=str(file))
    assert other.read_bytes() == b"new"
    assert code_of(write_atomic, str(other), b"newer", None, str(file)) == "MDH507"
    assert sorted(os.listdir(file.parent)) == ["f.c", "g.h"] and other.read_bytes() == b"new"


def test_links_in_a_circle(tmp_path):
    a, b = tmp_path / "a.c", tmp_path / "b.c"
    a.symlink_to(b)
    b.symlink_to(a)
    assert code_of(write_atomic, str(a), b"new", b"") == "MDH803"


def test_a_killed_writer_leaves_the_old_or_the_new_file(file):
    script = (
        "import sys; from mdh_lift.files import write_atomic\n"
        "old, new = b'a' * 100000, b'b' * 100000\n"
        "path = sys.argv[1]\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    write_atomic(path, new, old); write_atomic(path, old, new)\n"
    )
    file.write_bytes(b"a" * 100000)
    for k in range(5):
        process = subprocess.Popen([sys.executable, "-c", script, str(file)], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(0.01 + 0.003 * k)
        process.kill()
        process.wait()
        process.stdout.close()
        content = file.read_bytes()
        assert content in (b"a" * 100000, b"b" * 100000)
        file.write_bytes(b"a" * 100000)


def test_directories_are_searched_for_sources(tmp_path):
    for name in ("a.c", "sub/b.c", ".git/c.c", "build/d.c", "build-debug/e.c", "sub/.hidden.c", "sub/f.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = [os.path.relpath(f, tmp_path) for f in source_files(str(tmp_path))]
    assert found == ["a.c", "sub/b.c"]
