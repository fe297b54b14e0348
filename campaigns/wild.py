"""C that nobody here wrote: every outermost ``for`` of foreign files, read and lifted, and a tally by code.

    python -m campaigns.wild DIR_OR_ARCHIVE... [--limit N] [--per-source N] [--time S] [--json FILE]

Files stay where they are: ``#pragma mdh`` is put before the loops of a copy in memory.  Each file is worked
on by a process of its own with a time limit.  A file counts as *answered* if it gives nests (lifted,
partial or refused) or a diagnostic with a code; a traceback or a time-out is a bug of ours.  Headers are
looked for in the file's own tree; an empty one stands for those that are nowhere.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from frontend_c.lexer import Token, closing, statement_end, tokens
from frontend_c.preprocess import CompileCommand
from frontend_c.read import ReadResult, read
from lifter.lift import lift
from mdh_core.diagnostics import Diagnostic
from mdh_core.source import SourceFile

_PRAGMA = b"\n#pragma mdh\n"
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^">\n]+)[">]', re.M)
_MOST_STUBS = 60
_CONFIGURED = ("-DHAVE_CONFIG_H=1", "-DSIZEOF_VOID_P=8", "-DSIZEOF_SIZE_T=8")  # what a `configure` finds out
_ARCHIVES = (".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar")

# --------------------------------------------------------------------------- one file


def outermost_loops(data: bytes) -> list[int]:
    """Offsets of the ``for`` statements that no other one of their function encloses."""
    stream = tokens(data)
    out: list[int] = []
    k, depth = 0, 0
    while k < len(stream):
        token = stream[k]
        if token.kind == "id" and token.text == b"for" and depth:
            end = statement_end(stream, k)
            if end is not None:
                out.append(token.start)
                k = end
                continue
        elif token.kind == "punct" and token.text == b"{":
            depth += 1 if depth or _is_body(stream, k) else 0
            if not depth:
                k = closing(stream, k) or k  # a struct, an initialiser, extern "C"
        elif token.kind == "punct" and token.text == b"}":
            depth = max(0, depth - 1)
        k += 1
    return out


def _is_body(stream: Sequence[Token], k: int) -> bool:
    before = next((t for t in reversed(stream[:k]) if t.kind != "directive"), None)
    return before is not None and before.text in (b")", b";")


def marked(data: bytes, offsets: Sequence[int]) -> bytes:
    """The text with a directive before each loop."""
    out, position = [], 0
    for offset in offsets:
        out += [data[position:offset], _PRAGMA]
        position = offset
    return b"".join([*out, data[position:]])


@lru_cache(maxsize=4)
def _headers(root: str) -> dict[str, list[str]]:
    """Every header below a directory by its last component."""
    found: dict[str, list[str]] = defaultdict(list)
    for folder, _, names in os.walk(root):
        for name in names:
            if name.endswith((".h", ".def", ".inc", ".c")):
                found[name].append(str(Path(folder, name)))
    return found


def include_directories(path: Path, root: Path) -> list[str]:
    """Directories of the tree that hold what the file, or a header that it includes, asks for."""
    found: dict[str, None] = {}
    todo, seen = [path], {path}
    while todo and len(seen) < 400:
        current = todo.pop()
        with suppress(OSError):
            for name in _INCLUDE.findall(current.read_bytes()):
                target = _nearest(name.decode("latin-1"), current, root)
                if target is not None:
                    header, directory = target
                    found[str(directory)] = None
                    if header not in seen:
                        seen.add(header)
                        todo.append(header)
    return list(found)


def _nearest(name: str, origin: Path, root: Path) -> tuple[Path, Path] | None:
    """The header of that name which is closest in the tree, and the directory to search for it."""
    parts = Path(name).parts
    if ".." in parts or not parts:
        return None
    choices = [p for p in _headers(str(root)).get(parts[-1], ()) if Path(p).parts[-len(parts) :] == parts]
    if not choices:
        return None

    def shared(p: str) -> int:
        return len(os.path.commonpath([p, str(origin)]))

    best = Path(max(choices, key=lambda p: (shared(p), -len(p))))
    return best, best.parents[len(parts) - 1]


def look_at(path: Path, root: Path) -> dict[str, Any]:
    """What becomes of a file; never raises."""
    started = time.monotonic()
    try:
        answer = _look_at(path, root)
    except Exception as error:
        answer = {"crash": f"{type(error).__name__}: {error}"[:300], "where": traceback.format_exc()[-1500:]}
    return {"file": str(path), "seconds": round(time.monotonic() - started, 2), **answer}


def _look_at(path: Path, root: Path) -> dict[str, Any]:
    data = path.read_bytes()
    offsets = outermost_loops(data)
    if not offsets:
        return {"nests": [], "codes": []}
    source = SourceFile(str(path), marked(data, offsets))
    flags = [f"-I{d}" for d in include_directories(path, root)]
    with tempfile.TemporaryDirectory(prefix="mdh-wild-") as stubs:
        result, missing = _read(source, [*flags, "-I", stubs, *_CONFIGURED], Path(stubs), root)
    nests = []
    for nest in result.nests:
        lifted = lift(nest)
        nests.append(_entry(source, nest.name, lifted.status, lifted.diagnostics))
    for refused in result.refused:
        nests.append(_entry(source, refused.name, "refused", refused.diagnostics))
    codes = [f"{d.code} {d.message}" for d in result.diagnostics if d.severity == "error"]
    return {"nests": nests, "codes": codes, "stubs": missing, "loops": len(offsets)}


def _read(source: SourceFile, flags: list[str], stubs: Path, root: Path) -> tuple[ReadResult, list[str]]:
    """The nests; for headers that are missing others of that name stand in, or empty ones, in ``stubs``."""
    missing: list[str] = []
    while True:
        result = read(source, CompileCommand(flags=tuple(flags), directory=str(Path(source.path).parent)))
        found = [
            m[1] for d in result.diagnostics if (m := re.match(r"header `(.*)` is not found", d.message))
        ]
        if not found or found[0] in missing or len(missing) >= _MOST_STUBS or ".." in found[0]:
            return result, missing
        missing.append(found[0])
        stub = stubs / found[0]
        stub.parent.mkdir(parents=True, exist_ok=True)
        near = _headers(str(root)).get(Path(found[0]).name, [])
        best = max(near, key=lambda p: len(os.path.commonpath([p, source.path])), default="")
        stub.write_bytes(f'#include "{best}"\n'.encode() if best else b"")


def _entry(source: SourceFile, name: str, status: str, found: Sequence[Diagnostic]) -> dict[str, Any]:
    errors = [d for d in found if d.severity == "error"]
    first = min(errors, key=lambda d: d.span.start if d.span else 1 << 60) if errors else None
    line = first.position(source)[0] if first is not None else 0
    return {
        "name": name.split("::", 1)[-1],
        "status": status,
        "codes": sorted({d.code for d in errors}),
        "message": first.message if first is not None else "",
        "line": line - 2 * source.data[: source.offset_of_line(line)].count(_PRAGMA) if line else 0,
    }


# --------------------------------------------------------------------------- many files


def roots(arguments: Sequence[str], scratch: Path) -> Iterator[Path]:
    """The directories that are meant; archives are unpacked into ``scratch``."""
    for argument in arguments:
        path = Path(argument).resolve()
        if path.is_dir():
            yield path
        elif path.name.endswith(_ARCHIVES):
            target = scratch / path.name
            with tarfile.open(path) as archive:
                archive.extractall(target, filter="data")
            yield target
        else:
            raise SystemExit(f"{argument}: neither a directory nor a tar archive")


def choose(root: Path, count: int | None) -> list[Path]:
    """Files with loops, evenly spread over the tree."""
    found = [p for p in sorted(root.rglob("*.c")) if p.is_file() and not p.is_symlink()]
    found = [p for p in found if b"for" in p.read_bytes() and outermost_loops(p.read_bytes())]
    if count is None or len(found) <= count:
        return found
    return [found[k * len(found) // count] for k in range(count)]


def in_child(path: Path, root: Path, limit: float) -> dict[str, Any]:
    """``look_at`` in a process of its own, killed with all of its children after ``limit`` seconds."""
    words = [sys.executable, "-m", "campaigns.wild", "--one", str(path), "--root", str(root)]
    started = time.monotonic()
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    try:
        out, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"file": str(path), "seconds": round(time.monotonic() - started, 2), "hang": True}
    try:
        answer: dict[str, Any] = json.loads(out)
    except ValueError:
        return {"file": str(path), "crash": f"exit {process.returncode}", "where": errors.decode()[-1500:]}
    return answer


def tally(answers: Sequence[dict[str, Any]]) -> str:
    """The result as text: files, nests, codes with examples, and what is our fault."""
    nests = [(a, n) for a in answers for n in a.get("nests", ())]
    status = Counter(n["status"] for _, n in nests)
    crashed = [a for a in answers if "crash" in a]
    hung = [a for a in answers if a.get("hang")]
    unread = [a for a in answers if a.get("codes")]
    lines = [
        f"{len(answers)} files, {len(nests)} nests: {status['lifted']} lifted, {status['partial']} partial, "
        f"{status['refused']} refused; {len(unread)} files not readable, {len(crashed)} tracebacks, "
        f"{len(hung)} time-outs"
    ]
    codes: dict[str, list[str]] = defaultdict(list)
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for a, n in nests:
        for code in n["codes"] if n["status"] == "refused" else ():
            codes[code].append(f"{a['file']}:{n['line']}")
            kinds[code][re.sub(r"`[^`]*`", "`…`", n["message"])] += 1
    for a in unread:
        code = a["codes"][0].split()[0]
        codes[code].append(a["file"])
        kinds[code][re.sub(r"`[^`]*`", "`…`", a["codes"][0][7:])] += 1
    for code, where in sorted(codes.items(), key=lambda item: -len(item[1])):
        lines.append(f"{code} {len(where):5}  for example {where[0]}")
        lines += [f"        {number:5}  {text}" for text, number in kinds[code].most_common(8)]
    lines += [f"traceback: {a['file']}: {a['crash']}" for a in crashed]
    lines += [f"time-out: {a['file']}" for a in hung]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns.wild", description=__doc__.split("\n")[0])
    parser.add_argument("sources", nargs="*", metavar="DIR_OR_ARCHIVE")
    parser.add_argument("--limit", type=int, help="files in all")
    parser.add_argument("--per-source", type=int, help="files of each source, evenly spread")
    parser.add_argument("--time", type=float, default=120, metavar="S", help="seconds for one file (120)")
    parser.add_argument("--jobs", type=int, default=2, help="files at a time (2)")
    parser.add_argument("--json", metavar="FILE", help="all answers, one JSON object per line")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--root", help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.one:
        print(json.dumps(look_at(Path(given.one), Path(given.root))))
        return 0
    with tempfile.TemporaryDirectory(prefix="mdh-wild-") as scratch:
        chosen = [
            (path, root) for root in roots(given.sources, Path(scratch))
            for path in choose(root, given.per_source)
        ][: given.limit]  # fmt: skip
        with ThreadPoolExecutor(given.jobs) as pool:
            answers = list(pool.map(lambda pair: in_child(pair[0], pair[1], given.time), chosen))
    if given.json:
        Path(given.json).write_text("".join(json.dumps(a) + "\n" for a in answers), encoding="utf-8")
    print(tally(answers))
    return 1 if any("crash" in a or a.get("hang") for a in answers) else 0


if __name__ == "__main__":
    sys.exit(main())
