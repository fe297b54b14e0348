"""Emitted CUDA on the CPU, for tests: its text as C++ for ``cuda_on_cpu.h``, where all checks are described.

before   __shared__ float tile[256];      after   MDH_SHARED(float, tile, (256), 1);
         (const float *__restrict__ A)            (mdh::Pointer<const float> A)
         float *p = A + n;                        mdh::Pointer<float> p = mdh::named<float>("p", A + n);
         (float *)(memory + 4096)                 (mdh::Pointer<float>)(memory + 4096)
         C[i].x                                   MDH_FIELD(C[i], x)
         k<<<grid, 256>>>(n, C);                  mdh::launch("k", k, 0, mdh::Shape(grid, 256), n, C);

Host code stays as it is but for launches.  The text is the regular one of our emitter: what is not understood
and would run unchecked (several pointers in one declaration, pointers to pointers, shared matrices, device
variables) raises ``ValueError``; the rest does not compile.  Unchecked are only pointers in structs and what
macros hide.  Lines keep their numbers, since reports name them.

``python -m tuning.cuda_on_cpu [nvcc's options] -c FILE.cu -o OBJECT`` stands in for nvcc where there is no
GPU: ``CUDACXX='python -m tuning.cuda_on_cpu' mdh-lift verify --target cuda f.c``.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_HEADER = Path(__file__).with_name("cuda_on_cpu.h")
_RUNTIME = re.compile(r'#[ \t]*include[ \t]*[<"]cuda_runtime(?:_api)?\.h[>"]')
_SKIPPED = r"\s+|//[^\n]*|/\*.*?\*/|\#(?:[^\\\n]|\\.)*"  # directives as well
_TOKEN = re.compile(
    rf"(?P<skipped>{_SKIPPED})"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<other>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\.?\d(?:[eEpP][+-]|[\w.])*|<<<|>>>|->|::|.)",
    re.DOTALL,
)
_PAIRS = {"(": ")", "[": "]", "{": "}", "<<<": ">>>"}
_QUALIFIERS = {"const", "restrict", "__restrict", "__restrict__"}
_NO_TYPES = {"return", "else", "case", "goto", "throw", "delete", "new", "sizeof", "do"}


@dataclass(frozen=True, slots=True)
class _Token:
    """A token and what stands before it: space, comments, directives."""

    text: str
    is_name: bool = False
    before: str = ""


@dataclass(frozen=True, slots=True)
class _Function:
    """Token positions of a function of the device: its parameters and its body (none of a prototype)."""

    is_kernel: bool
    parameters: slice
    body: slice | None


def command(compiler: str, source: str | Path, program: str | Path, *others: str) -> list[str]:
    """For a translated file; ``others`` are options, objects and files whose suffix tells what they are."""
    # jumps between stacks are what _FORTIFY_SOURCE, which some distributions turn on, takes for an attack
    options = ["-std=c++17", "-O1", "-g0", "-U_FORTIFY_SOURCE", "-I", str(_HEADER.parent)]
    return [compiler, *options, "-x", "c++", str(source), "-x", "none", *others, "-o", str(program)]


def translated(text: str) -> str:
    """Native CUDA as C++ for the header; several files may be linked together."""
    include = f'#include "{_HEADER.name}"'
    text = _RUNTIME.sub(include, text) if _RUNTIME.search(text) else f"{include}\n#line 1\n{text}"
    code = _tokens(text)
    bounds: dict[str, str] = {}
    for function in reversed(list(_functions(code, bounds))):
        if function.body is not None:
            code[function.body] = _body(code[function.body])
        parameters, names = _parameters(code[function.parameters])
        if function.is_kernel and function.body is not None:
            made = "".join(f" MDH_PARAMETER({name});" for name in names)
            code.insert(function.body.start, _Token(made))
        code[function.parameters] = parameters
    _launches(code, bounds)
    return _joined(code)


def _tokens(text: str) -> list[_Token]:
    """All tokens; the last one is empty and has the end of the text before it."""
    code: list[_Token] = []
    before = ""
    for match in _TOKEN.finditer(text):
        if match["skipped"] is not None:
            before += match[0]
        else:
            code.append(_Token(match[0], match["name"] is not None, before))
            before = ""
    return [*code, _Token("", before=before)]


def _joined(code: Sequence[_Token]) -> str:
    return "".join(token.before + token.text for token in code)


def _replace(code: list[_Token], first: int, end: int, text: str) -> None:
    """Puts one token for several; as many lines as before follow it."""
    lines = _joined(code[first:end]).count("\n") - code[first].before.count("\n") - text.count("\n")
    code[first:end] = [_Token(text + "\n" * lines, True, code[first].before)]


def _closing(code: Sequence[_Token], opening: int) -> int:
    """Position of the bracket that belongs to the one at ``opening``."""
    expected: list[str] = []
    for k in range(opening, len(code)):
        if code[k].text in _PAIRS:
            expected.append(_PAIRS[code[k].text])
        elif expected and code[k].text == expected[-1]:
            expected.pop()
            if not expected:
                return k
    raise ValueError(f"no bracket closes {_near(code, opening)}")


def _opening(code: Sequence[_Token], closing: int, opened: str, closed: str) -> int:
    depth = 0
    for k in range(closing, -1, -1):
        depth += (code[k].text == closed) - (code[k].text == opened)
        if depth == 0:
            return k
    raise ValueError(f"no bracket opens {_near(code, closing)}")


def _near(code: Sequence[_Token], k: int) -> str:
    return "`" + " ".join(token.text for token in code[max(0, k - 4) : k + 8]) + "`"


def _texts(code: Sequence[_Token]) -> list[str]:
    return [token.text for token in code]


def _functions(code: Sequence[_Token], bounds: dict[str, str]) -> Iterator[_Function]:
    """Functions of the device, in order; ``bounds`` gets the threads that `__launch_bounds__` allows."""
    k = 0
    while k < len(code):
        if code[k].text not in ("__global__", "__device__"):
            k += 1
            continue
        is_kernel, bound = code[k].text == "__global__", None
        while code[k].text != "(" or code[k - 1].text in ("__launch_bounds__", "__attribute__", "__align__"):
            if code[k].text == "(":
                end = _closing(code, k)
                if code[k - 1].text == "__launch_bounds__":
                    bound = _joined(_split(code[k + 1 : end])[0]).strip()
                k = end
            k += 1
            if k >= len(code) or code[k].text in {";", "=", "[", "{"}:
                raise ValueError(f"no function: {_near(code, k - 1)}")  # a variable, which nothing checks
        if bound is not None:
            bounds[code[k - 1].text] = bound
        end = _closing(code, k)
        parameters = slice(k + 1, end)
        if code[end + 1].text == "{":
            k = _closing(code, end + 1)
            yield _Function(is_kernel, parameters, slice(end + 2, k))
        elif code[end + 1].text == ";":
            k = end + 1
            yield _Function(is_kernel, parameters, None)
        else:
            raise ValueError(f"neither a body nor `;` follows the parameters in {_near(code, end)}")


def _split(code: Sequence[_Token]) -> list[list[_Token]]:
    """At commas outside of brackets."""
    parts: list[list[_Token]] = [[]]
    depth = 0
    for token in code:
        depth += (token.text in "([{") - (token.text in ")]}") if token.text else 0
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _parameters(code: Sequence[_Token]) -> tuple[list[_Token], list[str]]:
    """With checked pointers, and the names of these."""
    result: list[_Token] = []
    names = []
    for part in _split(code):
        texts = _texts(part)
        if "*" in texts:
            star = texts.index("*")
            if texts.count("*") > 1 or not part[-1].is_name or not set(texts[star + 1 : -1]) <= _QUALIFIERS:
                raise ValueError(f"no plain pointer: `{' '.join(texts)}`")
            names.append(texts[-1])
            _replace(part, 0, len(part), f"mdh::Pointer<{' '.join(texts[:star])}> {texts[-1]}")
        elif "[" in texts or "&" in texts:
            raise ValueError(f"no plain parameter: `{' '.join(texts)}`")
        result += [_Token(","), *part] if result else part
    return result, names


def _body(code: Sequence[_Token]) -> list[_Token]:
    body = list(code)
    for k in range(len(body) - 1, -1, -1):  # from the end, so that positions before stay
        if body[k].text == "__shared__":
            _shared(body, k)
        elif body[k].text == "*" and k and body[k - 1].is_name:
            _pointer(body, k)
    k = 0
    while k < len(body) - 1:
        if body[k].text in (".", "->") and body[k + 1].is_name:
            k = _field(body, k)
        k += 1
    return body


def _shared(code: list[_Token], k: int) -> None:
    """A declaration of shared memory: one array of one dimension, one variable, or all dynamic memory."""
    first = k - 1 if k and code[k - 1].text == "extern" else k
    end = next(j for j in range(k, len(code)) if code[j].text == ";")
    declared, alignment = code[k + 1 : end], "1"
    texts = _texts(declared)
    if "__align__" in texts:
        at = texts.index("__align__")
        closing = _closing(declared, at + 1)
        alignment = _joined(declared[at + 2 : closing]).strip()
        del declared[at : closing + 1]
        texts = _texts(declared)
    bracket = texts.index("[") if "[" in texts else len(texts)
    size = " ".join(texts[bracket + 1 : -1])
    one = bracket == len(texts) or _closing(declared, bracket) == len(texts) - 1
    if not one or {"*", ",", "="} & set(texts[:bracket]):
        raise ValueError(f"no plain shared variable: `{' '.join(texts)}`")
    kind, name = " ".join(texts[: bracket - 1]), texts[bracket - 1]
    if first < k:
        made = f"MDH_DYNAMIC({kind}, {name})"
    elif bracket < len(texts):
        made = f"MDH_SHARED({kind}, {name}, ({size}), {alignment})"
    else:
        made = f"MDH_SHARED_VALUE({kind}, {name}, {alignment})"
    _replace(code, first, end, made)


def _pointer(code: list[_Token], star: int) -> None:
    """A `*` that belongs to a type: that of a cast, or of a local pointer, at the start of a statement."""
    first = star
    while first and code[first - 1].is_name and code[first - 1].text not in _NO_TYPES:
        first -= 1
    end = star + 1
    while end < len(code) and code[end].text in _QUALIFIERS:
        end += 1
    if first == star or end + 1 >= len(code):
        return
    pointer = f"mdh::Pointer<{' '.join(_texts(code[first:star]))}>"
    before = code[first - 1].text if first else "{"
    if before == "(" and code[end].text == ")":
        _replace(code, first, end, pointer)
        return
    if not _starts(code, first):
        return
    follows = code[end + 1].text
    if follows == "=" and code[end].is_name:
        stop = end + 2
        while stop < len(code) and code[stop].text not in (";", ","):
            stop = (_closing(code, stop) if code[stop].text in _PAIRS else stop) + 1
        if code[stop : stop + 1] and code[stop].text == ";":
            code.insert(stop, _Token(")"))
            value = f'{pointer} {code[end].text} = mdh::named<{pointer[13:-1]}>("{code[end].text}", '
            _replace(code, first, end + 2, value)
            return
    elif follows == ";" and code[end].is_name:
        _replace(code, first, end + 1, f"{pointer} {code[end].text}")
        return
    raise ValueError(f"not one plain pointer: {_near(code, star)}")


def _starts(code: Sequence[_Token], k: int) -> bool:
    """Whether a statement starts here: not a value in the braces of an initialiser."""
    before = code[k - 1].text if k else "{"
    if before == "(":
        return k > 1 and code[k - 2].text == "for"
    while k and code[k - 1].text == "{":
        k -= 1
    if k == 0 or code[k - 1].text in {";", "}"}:
        return True
    return before == "{" and code[k - 1].text in {")", "else", "do"}


def _field(code: list[_Token], k: int) -> int:
    """A field of an element: `a[i].x`, `p->x`, and fields of these; where it stands afterwards."""
    first = k - 1
    if code[k].text == "." and code[first].text != "]" and not code[first].text.startswith("MDH_FIELD"):
        return k
    while True:
        while first >= 0 and code[first].text == "]":
            first = _opening(code, first, "[", "]") - 1
        if first < 0 or not code[first].is_name:
            return k  # of no element; where it is, it does not compile
        if first == 0 or code[first - 1].text != ".":
            break
        first -= 2
    element = _joined(code[first:k])[len(code[first].before) :]
    if code[k].text == "->":
        element = f"({element})[0]"
    _replace(code, first, k + 2, f"MDH_FIELD({element}, {code[k + 1].text})")
    return first


def _launches(code: list[_Token], bounds: dict[str, str]) -> None:
    k = len(code) - 1
    while k >= 0:
        if code[k].text == "<<<":
            first = k - 1
            if code[first].text == ">":
                first = _opening(code, first, "<", ">") - 1
            closing = _closing(code, k)
            if first < 0 or not code[first].is_name or code[closing + 1].text != "(":
                raise ValueError(f"no plain launch: {_near(code, k)}")
            end = _closing(code, closing + 1)
            kernel, name = _joined(code[first:k]).strip(), code[first].text
            shape, arguments = _joined(code[k + 1 : closing]), _joined(code[closing + 2 : end])
            made = f'mdh::launch("{kernel}", {kernel}, {bounds.get(name, "0")}, mdh::Shape({shape})'
            _replace(code, first, end + 1, made + (f", {arguments})" if arguments.strip() else ")"))
            k = first
        k -= 1


def main(arguments: Sequence[str]) -> int:
    """Compile one file; the exit status of the C++ compiler, 2 for text that is not understood."""
    parser = argparse.ArgumentParser(prog="python -m tuning.cuda_on_cpu")
    parser.add_argument("--version", action="version", version="CUDA on the CPU, release 1")
    parser.add_argument("-c", dest="source", metavar="FILE", required=True)
    parser.add_argument("-o", dest="output", metavar="OBJECT", required=True)
    given, others = parser.parse_known_args(arguments)
    kept = [x for x in others if x.startswith(("-D", "-I", "-fPIC"))]
    kept += ["-ffp-contract=off"] if "-fmad=false" in others else []
    try:
        text = translated(Path(given.source).read_text())
    except (OSError, ValueError) as error:
        print(f"{given.source}: error: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="mdh-lift-") as directory:
        source = Path(directory, "translated.cpp")
        source.write_text(text)
        return subprocess.run(command("g++", source, given.output, "-c", *kept), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
