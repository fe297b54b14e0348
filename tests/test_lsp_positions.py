"""Places in documents: against counting character by character, for texts with all kinds of characters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdh_lift.lsp.documents import Change, Document, edits_between, path_of
from mdh_lift.lsp.positions import ENCODINGS, UTF8, UTF16, UTF32, Text, encoded

TEXTS = st.text(st.sampled_from("ab é𝟙\t\n\r\f\u2028\x85\ud83d"), max_size=30)


def counted(text: str, index: int, encoding: str) -> tuple[int, int]:
    """Line and character of an index, as the protocol's text defines them."""
    line = start = k = 0
    while k < index:
        if text[k : k + 2] == "\r\n":
            k += 2
            if k > index:
                break
        elif text[k] in "\r\n":
            k += 1
        else:
            k += 1
            continue
        line, start = line + 1, k
    part = text[start:index].rstrip("\r\n")
    sizes = {UTF8: lambda c: len(encoded(c)), UTF16: lambda c: 2 if ord(c) > 0xFFFF else 1, UTF32: lambda c: 1}
    return line, sum(sizes[encoding](c) for c in part)


@given(TEXTS, st.sampled_from(ENCODINGS))
@settings(max_examples=300, deadline=None)
def test_every_character_has_its_place(text, encoding):
    document = Text(text)
    assert document.data == encoded(text)
    for index in range(len(text) + 1):
        at = len(encoded(text[:index]))
        position = document.position(at, encoding)
        assert position == counted(text, index, encoding), index
        if text[index - 1 : index + 1] != "\r\n":
            assert document.offset(position, encoding) == at
            assert document.index(position, encoding) == index


@pytest.mark.parametrize(
    ("position", "offset"), [((0, 99), 4), ((7, 0), 9), ((0, 2), 2), ((0, 1), 0), ((1, 0), 5), ((1, 99), 9)]
)
def test_places_outside_and_inside_of_characters(position, offset):
    """``𝟙`` is four bytes and two units; positions beyond a line mean its end."""
    assert Text("𝟙\nabcd").offset(position, UTF16) == {2: 4}.get(offset, offset)


@given(TEXTS, TEXTS, st.data(), st.sampled_from(ENCODINGS))
@settings(max_examples=200, deadline=None)
def test_incremental_changes_mean_the_same_as_whole_texts(text, new, data, encoding):
    first = data.draw(st.integers(0, len(text)))
    last = data.draw(st.integers(first, len(text)))
    if "\r\n" in (text[first - 1 : first + 1], text[last - 1 : last + 1]):
        return  # no position is inside a line ending
    document = Document("file:///a.c", "/a.c", 1, Text(text))
    start, end = (counted(text, k, encoding) for k in (first, last))
    document.change([Change(start, end, new)], 2, encoding)
    assert document.text.text == text[:first] + new + text[last:]
    assert document.version == 2


@given(TEXTS, TEXTS)
@settings(max_examples=200, deadline=None)
def test_edits_make_one_text_of_the_other(old, new):
    text = old
    for start, end, inserted in reversed(edits_between(old, new)):
        text = text[:start] + inserted + text[end:]
    assert text == new


def test_edits_are_small():
    lines = "".join(f"line {k}\n" for k in range(100))
    edits = edits_between(lines, lines.replace("line 50\n", "line 50\nmore\n"))
    assert edits == [(lines.index("line 51"), lines.index("line 51"), "more\n")]


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a/b%20c.c", "/a/b c.c"),
        ("file://localhost/a.c", "/a.c"),
        ("file:///%ff.c", "/\udcff.c"),
        ("untitled:a.c", None),
        ("file://elsewhere/a.c", None),
        ("", None),
    ],
)
def test_paths(uri, path):
    assert path_of(uri) == path
