"""Edits of several files: all or none, whatever fails; interrupted ones are finished."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mdh_core.diagnostics import Refusal
from mdh_lift import files, journal
from mdh_lift.files import Change


def edit(directory: Path) -> Change:
    """A source changes, one file beside it is new, one changes, one goes."""
    old = {"f.c": b"source", "f_b.h": b"header", "f_c.mk": b"rule"}
    for name, data in old.items():
        (directory / name).write_bytes(data)
    path = str(directory / "f.c")
    beside = (
        Change(str(directory / "f_a.cu"), None, b"kernel"),
        Change(str(directory / "f_b.h"), b"header", b"new header"),
    )
    return Change(path, b"source", b"new source", (), beside, (Change(str(directory / "f_c.mk"), b"rule", None),))


OLD = {"f.c": b"source", "f_b.h": b"header", "f_c.mk": b"rule"}
NEW = {"f.c": b"new source", "f_a.cu": b"kernel", "f_b.h": b"new header"}
JOURNAL = ".f.c.mdh-lift-journal"


def content(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in directory.iterdir()}


def test_all_are_made(tmp_path):
    assert journal.make(edit(tmp_path)) == 4
    assert content(tmp_path) == NEW


@pytest.mark.parametrize("failing", range(4))
def test_one_that_fails_undoes_the_others(tmp_path, monkeypatch, failing):
    change, calls = edit(tmp_path), iter(range(100))
    real = journal.beside.write

    def write(part, source):
        if next(calls) == failing:
            raise Refusal(files.Diagnostic("MDH803", "disk full"))
        real(part, source)

    monkeypatch.setattr(journal.beside, "write", write)
    with pytest.raises(Refusal):
        journal.make(change)
    assert content(tmp_path) == OLD


def interrupt(directory: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """As if the writer was killed: neither undone nor ended; its process is dead."""
    calls, real = iter(range(100)), journal.beside.write

    def write(part, source):
        if next(calls) == after:
            raise KeyboardInterrupt
        real(part, source)

    with monkeypatch.context() as patch:
        patch.setattr(journal.beside, "write", write)
        patch.setattr(journal, "_undo", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            journal.make(edit(directory))
    assert (directory / JOURNAL).exists() == (after > 0)
    if after:
        written = json.loads((directory / JOURNAL).read_text())
        (directory / JOURNAL).write_text(json.dumps(written | {"writer": 2**22 + 1}))


@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_interrupted_edit_is_told_and_finished(tmp_path, monkeypatch, after):
    interrupt(tmp_path, monkeypatch, after)
    source = str(tmp_path / "f.c")
    told = journal.interrupted(source)
    assert told is not None and told.code == "MDH825"
    assert [d.code for d in journal.finish(source)] == ["MDH826"]
    assert content(tmp_path) == NEW
    assert journal.interrupted(source) is None
    assert not list(journal.finish(source))


def test_files_that_were_changed_since_stay(tmp_path, monkeypatch):
    interrupt(tmp_path, monkeypatch, 2)
    (tmp_path / "f.c").write_bytes(b"by hand")
    before = content(tmp_path)
    assert [d.code for d in journal.finish(str(tmp_path / "f.c"))] == ["MDH825"]
    del before[JOURNAL]
    assert content(tmp_path) == before


def test_a_writer_at_work_is_left_alone(tmp_path, monkeypatch):
    interrupt(tmp_path, monkeypatch, 2)
    written = json.loads((tmp_path / JOURNAL).read_text())
    (tmp_path / JOURNAL).write_text(json.dumps(written | {"writer": os.getppid()}))
    source = str(tmp_path / "f.c")
    assert journal.interrupted(source) is None
    assert [d.code for d in journal.finish(source)] == ["MDH827"]
    with pytest.raises(Refusal) as refusal:
        journal.make(Change(source, b"source", b"x", (), (Change(str(tmp_path / "n"), None, b"n"),)))
    assert refusal.value.diagnostic.code == "MDH827"
    assert (tmp_path / JOURNAL).exists()


@pytest.mark.parametrize("name", ["../victim", "/etc/victim", "link", "sub/victim"])
def test_a_journal_of_somebody_else_reaches_nothing_else(tmp_path, name):
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "f.c").write_text("")
    (tree / "sub").mkdir()
    (tree / "link").symlink_to(tmp_path / "victim")
    entry = {"path": name, "old": None, "new": "aGFybQ=="}
    (tree / JOURNAL).write_text(json.dumps({"schema_version": 1, "writer": 0, "changes": [entry]}))
    assert [d.code for d in journal.finish(str(tree / "f.c"))] == ["MDH825"]
    assert not list(tmp_path.rglob("victim"))
    assert not (tree / JOURNAL).exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"changes": 3}', '{"changes": [{"path": 1}]}', "\0"])
def test_what_is_no_journal(tmp_path, text):
    (tmp_path / "f.c").write_text("x")
    (tmp_path / JOURNAL).write_text(text)
    assert [d.code for d in journal.finish(str(tmp_path / "f.c"))] == ["MDH825"]
    assert os.listdir(tmp_path) == ["f.c"]
