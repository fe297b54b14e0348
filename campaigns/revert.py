"""Generated C files, spliced and reverted: the same bytes; spliced twice: as once; off: the same object code.

    python -m campaigns.revert [--count N] [--seed S] [--compile EVERY] [--read EVERY]

Files have LF, CR LF or both, a BOM, Latin-1 or UTF-8, tabs, form feeds, continued lines and comments, what
looks like trigraphs and like our markers, ``#line``, comments around nests, and often no final newline.  Each
is spliced with all its nests; every fourth also with some, and then with the others.  Every so many files are
read by the product, which must find the nests where the generator put them (with ``#line`` it may say that it
does not), and compiled: the objects of the original and of the spliced file with ``-DMDH_LIFT_OFF`` must be
equal.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from mdh_core.source import SourceFile
from mdh_lift import pipeline
from mdh_lift.splice import SplicePart, regions, revert, splice

_BETWEEN = (
    "", "/* caf\xe9 */", "static int unused_#;", "// a comment", "// continued \\@ comment", "\f", "\v\f",
    " \t ",
    "#define M_#(x) \\@  ((x) + \\@ 1)", '#define S_# "/* mdh-lift begin x call */"', "/* for (;;) {@ } */",
    "/* what??/ */", "// what??/", "/* mdh-lift begin f0::0 call version=1 source=- */ /* not at all */",
    '#line 77 "other.h"', "#line 1", "#if 0@ } } { for (;;) ' \"@#endif", "#pragma once_#",
    'static const char *t_# = "}{??/??>";', "#ifdef NEVER@#pragma mdh@#endif", "static int a_#,\\@b_#;",
    "\t\t\t", "/*@\t*/", "static int z_#; /* mdh-lift end */",
    "/* " + "x" * 300 + " */", "typedef int t_#_t;",
)  # fmt: skip
_BEFORE_FUNCTION = (
    *("", "", "static ", "extern ", "/* doc */ ", "/* doc@ */ ", "int before_#; ", "\t", "/* \xfc */ "),
)
_BEFORE_NEST = ("    ", "    ", "\t", "", "/* here */ ", "// there@    ", " \f ", "  \t ")
_NESTS = (
    "for (int i = 0; i < n; i++)@\ta[i] += 1;", "for (int i = 0; i < n; i++) {@\t\ta[i] += 2;@    }",
    "for (int i = 0; i < n; ++i) a[i] = a[i] * 2;", "for (int i = 0;@\ti < n;@ i++)@ a[i] = /* x */ 3;",
    "for (int i = 0; i < n; i++) \\@    a[i] -= 1;",
)  # fmt: skip
_AFTER_NEST = ("@", "@", " /* x */@", "  \t@", " /* y@ */ @", " ", "@@", " // z@")
_ENDS = ("@", "", "@@", "@// no final newline", "@\f", "@\t", "@/* end */", "@#undef X", "@   @")


@dataclass(frozen=True, slots=True)
class Generated:
    """A file, and of each nest its name, and the offsets of its function and of itself."""

    data: bytes
    nests: tuple[tuple[str, int, int], ...]


def generated(chance: random.Random) -> Generated:
    eol = chance.choice(("\n", "\n", "\r\n", "\r\n", "mixed"))
    encoding = chance.choice(("latin-1", "utf-8"))
    out = bytearray(b"\xef\xbb\xbf" if encoding == "utf-8" and chance.random() < 0.3 else b"")
    nests = []
    names = iter(range(10**6))

    def add(text: str) -> None:
        text = text.replace("#", "\0") if text.startswith("#") or "@#" in text else text
        text = text.replace("_\0", f"_{next(names)}").replace("_#", f"_{next(names)}").replace("\0", "#")
        for k, piece in enumerate(text.split("@")):
            end = chance.choice(("\n", "\r\n")) if eol == "mixed" else eol
            out.extend((end if k else "").encode() + piece.encode(encoding))

    for f in range(chance.randint(1, 3)):
        for _ in range(chance.randint(0, 3)):
            add(chance.choice(_BETWEEN) + "@")
        add(chance.choice(_BEFORE_FUNCTION))
        before = bytes(out)
        line = before[before.rfind(b"\n") + 1 :].removeprefix(b"\xef\xbb\xbf")
        at = len(out) - (len(b"static ") if line.endswith((b"static ", b"extern ")) else 0)
        add(f"void f{f}(int n, float *restrict a)" + chance.choice((" {@", "@{@", "{ @", "@\t{ /* { */@")))
        for k in range(chance.randint(1, 3)):
            add(chance.choice(("", "  ", "\t")))
            add(chance.choice(("#pragma mdh", "#pragma\tmdh", "#  pragma mdh \\@")) + "@")
            add(chance.choice(_BEFORE_NEST))
            nests.append((f"f{f}::{k}", at, len(out)))
            add(chance.choice(_NESTS))
            add(chance.choice(_AFTER_NEST[:5] if k < 2 else _AFTER_NEST))
            if not bytes(out).endswith(b"\n"):
                add("@")
        add("}" + (chance.choice(("@", "@@", " /* } */@"))))
    if chance.random() < 0.5:
        add(chance.choice(_ENDS))
    return Generated(bytes(out), tuple(nests))


def part(nest: tuple[str, int, int], chance: random.Random) -> SplicePart:
    name, function, at = nest
    kernel = name.replace("::", "_") + "_mdh"
    text = f"static int {kernel}(int n, float *a)\n{{\n    (void)a;\n    return n < 0;\n}}\n"
    after = chance.choice(("", "n = 0;"))
    return SplicePart(name, function, at, text, f"{kernel}(n, a)", after, source="0123456789abcdef")


def faults_of(made: Generated, chance: random.Random, in_parts: bool) -> list[str]:
    parts = [part(nest, chance) for nest in made.nests]
    spliced = splice(made.data, parts)
    found = []
    if revert(spliced) != made.data:
        found.append("revert does not restore the bytes")
    if splice(spliced, parts) != spliced:
        found.append("splicing twice is not as once")
    if [r.state for r in regions(spliced)] != ["fresh"] * 2 * len(parts):
        found.append("a region is not fresh")
    if not in_parts:
        return found
    some = [p for p in parts if chance.random() < 0.5]
    step = splice(made.data, some) if some else made.data
    if splice(step, [p for p in parts if p not in some] or parts) != spliced:
        found.append("the order of splicing matters")
    if some and len(some) < len(parts) and revert(spliced, [p.name for p in some]) != splice(
        made.data, [p for p in parts if p not in some]
    ):
        found.append("reverting some is not as never having spliced them")
    return found


def faults_of_reading(made: Generated) -> list[str]:
    report = pipeline.check_source(SourceFile("f.c", made.data))
    at = {(n.name.partition("::")[2], n.lifted.nest.span.start) for n in report.nests if n.lifted is not None}
    missing = [n for n in made.nests if (n[0], n[2]) not in at]
    if b"#line" in made.data and report.all_findings:  # what is read may be another file's, and is told so
        return []
    codes = sorted({f.diagnostic.code for f in report.all_findings if f.diagnostic.severity == "error"})
    return [f"{len(missing)} nests are not found where they are: {codes}"] if missing else []


def faults_of_compiling(made: Generated, chance: random.Random, compiler: str) -> list[str]:
    spliced = splice(made.data, [part(nest, chance) for nest in made.nests])
    objects = []
    for name, data in (("on", spliced), ("off", spliced), ("bare", made.data)):
        with tempfile.TemporaryDirectory(prefix="revert-") as directory:
            source, made_of = Path(directory, "f.c"), Path(directory, "f.o")
            source.write_bytes(data)
            off = ["-DMDH_LIFT_OFF"] if name == "off" else []
            command = [compiler, "-w", "-O1", *off, "-c", "f.c", "-o", "f.o"]
            done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
            if done.returncode:
                return [f"{name} does not compile: {done.stderr[:300]}"]
            objects.append(made_of.read_bytes())
    return [] if objects[1] == objects[2] else ["switched off, the object code differs"]


def campaign(count: int, seed: int, compile_every: int, read_every: int, compiler: str) -> int:
    counts: Counter[str] = Counter()
    bad = 0
    started = time.monotonic()
    for k in range(count):
        chance = random.Random(f"{seed}/{k}")
        made = generated(chance)
        found = faults_of(made, chance, k % 4 == 0)
        counts["files"] += 1
        counts["nests"] += len(made.nests)
        if compile_every and k % compile_every == 0:
            counts["compiled"] += 1
            found += faults_of_compiling(made, chance, compiler)
        if read_every and k % read_every == 0:
            counts["read"] += 1
            found += faults_of_reading(made)
        if k % 1000 == 999:
            print(f"... {k + 1} files, {bad} with faults", flush=True)
        if found:
            bad += 1
            print(f"WRONG seed {seed}, file {k}: {'; '.join(found)}")
    print(f"{dict(counts)}; {bad} files with faults; {time.monotonic() - started:.0f} s")
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns.revert", description=__doc__)
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", type=int, default=100, metavar="EVERY")
    parser.add_argument("--read", type=int, default=100, metavar="EVERY")
    parser.add_argument("--compiler", default="gcc")
    chosen = parser.parse_args()
    return campaign(chosen.count, chosen.seed, chosen.compile, chosen.read, chosen.compiler)


if __name__ == "__main__":
    sys.exit(main())
