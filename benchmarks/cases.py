"""The cases: one row each, a nest of the corpus at one size.

    program     a nest of ``corpus/manifest.toml``, which knows its file, operations and bytes
    macros      ``-D`` of the file; where nothing is said those of the manifest's ``bench``
    variables   of the nest, as formulas of the macros: ``ldc=M``
    naive       where ``#pragma omp parallel for`` goes: the ordinals of the loops in the nest, ``1:CLAUSE``
                with a clause; nothing: no loop of it can run in parallel as it is written
    operation   what the peers in Python know it as; nothing: they do not have it
    roles       the arrays of the operation, its result first
    extents     of the operation, as formulas of the macros

Operations are counted only where they are multiplications and additions that the peak is about.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parent.parent / "corpus"


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    group: str
    program: str  # FILE or FILE:FUNCTION or FILE:FUNCTION:NEST, without ".c"
    macros: Mapping[str, int] = field(default_factory=dict)
    variables: str = ""
    values: Mapping[str, float] = field(default_factory=dict)  # of floating-point parameters
    naive: str = "0"
    operation: str = ""
    roles: tuple[str, ...] = ()
    extents: str = ""
    work: str | None = None  # operations, where those of the manifest are none of the peak's
    loose: float = 0.0  # share of the results that may differ: decisions that hang on one rounding

    @property
    def source(self) -> str:
        return self.program.split(":")[0] + ".c"

    @property
    def entry(self) -> Mapping[str, Any]:
        """The nest in the manifest."""
        stem, *rest = self.program.split(":")
        wanted = dict(zip(("function", "nest"), rest, strict=False))
        return next(
            p
            for p in _manifest()
            if p["source"] == stem + ".c" and all(p[key] == value for key, value in wanted.items())
        )

    @property
    def all_macros(self) -> dict[str, int]:
        """Those of the file, of the manifest, of the case; the later wins."""
        return {**_defaults(self.source), **self.entry["bench"], **self.macros}

    @property
    def defines(self) -> tuple[str, ...]:
        return tuple(f"-D{name}={value}" for name, value in self.all_macros.items())

    @property
    def sizes(self) -> dict[str, int]:
        """Values of the nest's integer variables."""
        pairs = (part.split("=", 1) for part in self.variables.split())
        return {name: self.value(formula) for name, formula in pairs}

    @property
    def dimensions(self) -> list[int]:
        return [self.value(formula) for formula in self.extents.split()]

    @property
    def operations(self) -> int:
        return self.value(self.entry["flops"] if self.work is None else self.work)

    @property
    def traffic(self) -> int:
        """Bytes that must be moved: every input once, every output once, twice if it is added to."""
        return self.value(self.entry["bytes"])

    def value(self, formula: str) -> int:
        """Of a formula of the macros: sums, differences, products and quotients."""
        # nothing but numbers, names of macros and operators is evaluated
        if not re.fullmatch(r"[\w\s()+*/-]*", formula):
            raise ValueError(formula)
        return int(eval(formula, {"__builtins__": {}}, dict(self.all_macros)))

    def small(self) -> Case:
        """The same at the manifest's sizes for quick tests."""
        known = self.entry["sizes"]
        return replace(self, macros={**{k: v for k, v in self.macros.items() if k in ("SH", "SW")}, **known})


@functools.cache
def _manifest() -> tuple[Mapping[str, Any], ...]:
    return tuple(tomllib.loads((CORPUS / "manifest.toml").read_text())["program"])


@functools.cache
def _defaults(source: str) -> dict[str, int]:
    """Macros of a file that are numbers."""
    text = (CORPUS / source).read_text()
    return {name: int(value) for name, value in re.findall(r"^#define (\w+) (\d+)$", text, re.MULTILINE)}


# --------------------------------------------------------------------------- gemm


def _matmul(m: int, n: int, k: int) -> Case:
    cube = f"{m}" if m == n == k else f"{m}x{n}x{k}"
    sizes = {"M": m, "N": n, "K": k}
    return Case(f"matmul_{cube}", "gemm", "matmul", sizes, naive="0" if m > 1 else "1",
                operation="gemm", roles=("C", "A", "B"), extents="M N K")  # fmt: skip


def _matmul_double(n: int) -> Case:
    return Case(f"matmul_double_{n}", "gemm", "gemm", {"M": n, "N": n, "P": n}, "m=M n=N p=P",
                operation="gemm", roles=("C", "A", "B"), extents="M N P")  # fmt: skip


GEMM = [
    _matmul(1024, 1024, 1024),
    _matmul(2048, 2048, 2048),
    _matmul(1000, 1000, 1000),
    *(_matmul_double(n) for n in (1024, 2048, 1000)),
    _matmul(16, 1000, 2048),
    _matmul(1, 1000, 2048),
    _matmul(16, 4096, 25088),
    _matmul(10, 500, 64),
    Case("matmul_t_1024", "gemm", "matmul_t", {}, "m=M n=N kk=K",
         operation="gemm", roles=("c", "b", "a"), extents="N M K"),
    Case("bmatmul_16x10x500x64", "gemm", "bmatmul", {}, "batches=B m=M n=N depth=K",
         operation="bmm", roles=("out", "lhs", "rhs"), extents="B M N K"),
]  # fmt: skip

# --------------------------------------------------------------------------- streams


def _matvec(n: int) -> Case:
    return Case(f"matvec_{n}", "streams", "matvec", {"I": n, "K": n}, "n=I k_max=K",
                operation="gemv", roles=("w", "M", "v"), extents="I K")  # fmt: skip


def _matvec_t(n: int) -> Case:
    return Case(f"matvec_t_{n}", "streams", "matvec_init:matvec_pair:backward", {"N": n, "K": n}, "n=N kk=K",
                operation="gemv_t", roles=("z", "A", "u"), extents="N K")  # fmt: skip


def _scan(exponent: int) -> Case:
    return Case(f"scan_2^{exponent}", "streams", "scan", {"N": 1 << exponent}, "n=N", naive="",
                operation="scan", roles=("out", "a", "s"), extents="N")  # fmt: skip


STREAMS = [
    Case("dot_2^24", "streams", "dot", {}, "n=N", naive="0:reduction(+:sum)",
         operation="dot", roles=("sum", "x", "y"), extents="N"),
    _matvec(4096), _matvec(8192), _matvec_t(4096), _matvec_t(8192),
    _scan(24), _scan(26),
    Case("mbbs_4096", "streams", "mbbs:bottom_box_sums", {}, "rows=ROWS cols=COLS",
         naive="1:reduction(+:s)", operation="mbbs", roles=("out", "a", "s"), extents="ROWS COLS"),
    Case("transpose_2048", "streams", "transpose", {"M": 2048, "N": 2048}, "m=M n=N",
         operation="transpose", roles=("b", "a"), extents="M N"),
    Case("transpose_4096", "streams", "transpose", {}, "m=M n=N",
         operation="transpose", roles=("b", "a"), extents="M N"),
    Case("halve_4096", "streams", "halve", {}, "h=H w=W",
         operation="halve", roles=("out", "img"), extents="H W", work="0"),
    Case("softmax_4096", "streams", "softmax", {}, "rows=ROWS cols=COLS",
         operation="softmax", roles=("y", "x"), extents="ROWS COLS"),
    Case("histogram_2^24x256", "streams", "histo", {"E": 1 << 24, "B": 256}, work="E",
         naive="0:reduction(+:out[:B])", operation="histogram", roles=("out", "elems", "bins"),
         extents="E B"),
    Case("weighted_histogram_2^24x256", "streams", "weighted_histogram", {}, "ne=E nb=B",
         naive="0:reduction(+:hist[:nb])", operation="bincount", roles=("hist", "bin", "weight"),
         extents="E B"),
]  # fmt: skip

# --------------------------------------------------------------------------- stencils and convolutions


def _jacobi3d(n: int) -> Case:
    """A box of n³ with its border."""
    inner = n - 2
    return Case(f"jacobi3d_{n}", "stencils", "jacobi3d", {"N1": inner, "N2": inner, "N3": inner},
                "n1=N1 n2=N2 n3=N3", {"c": 0.125}, operation="jacobi3d", roles=("out", "in"),
                extents="N1 N2 N3")  # fmt: skip


def _conv2d(n: int) -> Case:
    return Case(f"conv2d_{n}", "stencils", "conv2d:conv2d:conv", {"P": n, "Q": n},
                "rows=P cols=Q frows=R fcols=S", operation="conv2d", roles=("out", "img", "flt"),
                extents="P Q R S")  # fmt: skip


STENCILS = [_jacobi3d(256), _jacobi3d(512), _conv2d(4096), _conv2d(224)]


def _mcc(name: str, n: int, pq: int, k: int, rs: int, stride: int, beyond: int = 0) -> Case:
    """First layers, three channels; ``beyond``: rows and columns of the image that nothing reads."""
    macros = {"N": n, "P": pq, "Q": pq, "K": k, "R": rs, "S": rs, "C": 3, "SH": stride, "SW": stride}
    height, width = f"SH*(P-1)+R+{beyond}", f"SW*(Q-1)+S+{beyond}"
    return Case(f"mcc_{name}_{n}", "convolutions", "mcc_strided", macros,
                f"nn=N np=P nq=Q nk=K nr=R ns=S nc=C height={height} width={width}",
                naive="0" if n > 1 else "1", operation="mcc", roles=("out", "img", "flt"),
                extents=f"N P Q K R S C {height} {width} SH SW")  # fmt: skip


def _capsule(name: str, pq: int, k: int, rs: int, stride: int) -> Case:
    macros = {"N": 1, "P": pq, "Q": pq, "K": k, "R": rs, "S": rs, "C": 3, "STRIDE": stride}
    return Case(f"mcc_capsule_{name}_1", "convolutions", "mcc_capsule", macros,
                "nn=N np=P nq=Q nk=K nr=R ns=S nc=C", naive="1")  # fmt: skip


CONVOLUTIONS = [
    _mcc("resnet50", 1, 112, 64, 7, 2, beyond=1),
    _mcc("resnet50", 16, 112, 64, 7, 2, beyond=1),
    _mcc("vgg16", 1, 224, 64, 3, 1),
    _mcc("vgg16", 16, 224, 64, 3, 1),
    _mcc("mobilenet", 1, 112, 32, 3, 2),
    _mcc("mobilenet", 16, 112, 32, 3, 2),
    Case("mcc_7x7x512", "convolutions", "mcc", {}, naive="1", operation="mcc", roles=("out", "img", "flt"),
         extents="N P Q K R S C P+R-1 Q+S-1 1 1"),
    _capsule("resnet50", 112, 64, 7, 2),
    _capsule("vgg16", 224, 64, 3, 1),
    _capsule("mobilenet", 112, 32, 3, 2),
]  # fmt: skip

# --------------------------------------------------------------------------- contractions


def _contraction(
    left: str, right: str, roles: str, variables: bool, nest: str = "0", naive: str = "0"
) -> Case:
    """``abcdef-LEFT-RIGHT``, the extents of the letters as published."""
    letters = "abcdefg"
    given = " ".join(f"n{x}=N{x.upper()}" for x in letters) if variables else ""
    return Case(f"ccsdt_{left}_{right}", "contractions",
                f"ccsdt_abcdef_{left}_{right}:contract_{left}_{right}:{nest}", {}, given, naive=naive,
                operation=f"{left},{right}->abcdef", roles=tuple(roles.split()),
                extents=" ".join(f"N{x.upper()}" for x in letters))  # fmt: skip


CONTRACTIONS = [
    _contraction("gdab", "efgc", "C A B", True),
    _contraction("gdac", "efgb", "C A B", True),
    _contraction("gdbc", "efga", "out lhs rhs", False),
    _contraction("geab", "dfgc", "out lhs rhs", False),
    _contraction("geac", "dfgb", "t3 t2 v2", False),
    _contraction("gebc", "dfga", "t3 t2 v2", True, naive="1"),
    _contraction("gfab", "degc", "t3 t2 v2", True, "triples"),
    _contraction("gfac", "degb", "T3 T2 V2", False),
    _contraction("gfbc", "dega", "out lhs rhs", True),
]

# --------------------------------------------------------------------------- polyhedral


def _poly(
    program: str,
    macros: str,
    variables: str,
    naive: str,
    roles: str = "",
    extents: str = "",
    values: Mapping[str, float] | None = None,
) -> Case:
    """Sizes near those that the literature uses; fewer time steps where one run takes many seconds."""
    given = {name: int(value) for name, value in (part.split("=") for part in macros.split())}
    operation = program if roles else ""
    name = program.removesuffix("_time")
    return Case(name, "polyhedral", program, given, variables, values or {}, naive, operation,
                tuple(roles.split()), extents)  # fmt: skip


_DERICHE = {"b1": 1.2, "b2": -0.4, "gain": 0.5, "a0": 0.3, "a1": 0.2, "a2": 0.25, "a3": -0.1}
POLYHEDRAL = [
    _poly("mm2", "M=800 N=900 P=1100 Q=1200", "m=M n=N p=P q=Q", "0 3", "D A B C T", "M N P Q"),
    _poly("mm3", "M=800 N=900 P=1000 Q=1100 R=1200", "", "0 3 6", "G A B C D E F", "M N P Q R"),
    _poly("adi", "N=1000 T=100", "steps=T n=N", "1 4", values={"r": 0.375, "diag": 1.75}),
    _poly("atax", "M=1900 N=2100", "m=M n=N", "0 1:reduction(+:y[:n])", "y A x", "M N"),
    _poly("bicg", "M=1900 N=2100", "m=M n=N", "0 1:reduction(+:s[:m])", "s q A p r", "N M"),
    _poly("cholesky", "N=2000", "n=N", "2"),
    _poly("correlation", "N=1400 M=1200", "n=N m=M", "0 2 4 6"),
    _poly("covariance", "N=1400 M=1200", "n=N m=M", "0 2 4"),
    _poly("deriche", "H=2160 W=4096", "h=H w=W", "0 2 4 6 8 10", values=_DERICHE),
    _poly("doitgen", "R=150 Q=140 P=160", "nr=R nq=Q ns=P", "2 4"),
    _poly("durbin", "N=2000", "n=N", "1:reduction(+:sum) 2 3"),
    _poly("fdtd_2d", "NX=1000 NY=1200 T=500", "steps=T nx=NX ny=NY", "1 2 4 6",
          values={"ce": 0.5, "ch": 0.7}),
    _poly("floyd_warshall", "N=1400", "n=N", "1"),
    _poly("gemm", "M=1000 N=1100 P=1200", "m=M n=N p=P", "0", "C A B", "M N P"),
    _poly("gemver", "N=2000", "n=N", "0 2 4"),
    _poly("gesummv", "N=1300", "n=N", "0", "y A B x", "N"),
    _poly("gramschmidt", "M=1200 N=1000", "m=M n=N", "1:reduction(+:nrm) 2 3"),
    _poly("heat_3d", "N=120 T=500", "steps=T n=N", "1 4", values={"c": 0.125}),
    _poly("jacobi1d_time", "N=2000 T=500", "steps=T n=N", "1 2"),
    _poly("jacobi2d_time", "N=1300 T=500", "", "1 3"),
    _poly("lu", "N=2000", "n=N", "1"),
    _poly("ludcmp", "N=2000", "n=N", "3"),
    _poly("mvt", "N=2000", "n=N", "0 2:reduction(+:x2[:n])", "x1 x2 a y1 y2", "N"),
    _poly("nussinov", "N=2000", "n=N", ""),
    _poly("seidel_2d", "N=2000 T=100", "steps=T n=N", ""),
    _poly("symm", "M=1000 N=1200", "m=M n=N lda=M ldb=M ldc=M", "0", "c a b", "M N"),
    _poly("syr2k", "N=1200 P=1000", "n=N p=P", "0 2", "C A B", "N P"),
    _poly("syrk", "N=1200 P=1000", "n=N p=P", "0", "C A", "N P"),
    _poly("trisolv", "N=2000", "n=N", "", "x L b", "N"),
    _poly("trmm", "M=1000 N=1200", "m=M n=N", "1", "B L", "M N"),
]  # fmt: skip

# --------------------------------------------------------------------------- others

OTHERS = [
    Case("mandelbrot_2048", "others", "mandelbrot:mandelbrot", {"WIDTH": 2048, "HEIGHT": 2048, "LIMIT": 256},
         "height=HEIGHT width=WIDTH limit=LIMIT", operation="mandelbrot", roles=("count",),
         extents="HEIGHT WIDTH LIMIT", work="0", loose=0.005),
    Case("prl_2^15", "others", "prl", {}, "n_new=NEW n_old=OLD", work="0"),
    Case("nbody_8192", "others", "nbody", {}, "n=N", {"soft": 1e-3}),
    Case("bilateral_1024", "others", "bilateral", {}, "h=H w=W r=R",
         {"space": 0.1, "tone": 0.5}),
    Case("black_scholes_2^22", "others", "black_scholes", {}, "n=N", {"rate": 0.02, "vol": 0.3}),
]  # fmt: skip

CASES = [*GEMM, *STREAMS, *STENCILS, *CONVOLUTIONS, *CONTRACTIONS, *POLYHEDRAL, *OTHERS]
GROUPS = tuple(dict.fromkeys(c.group for c in CASES))
DEFAULT = ("dot_2^24", "matvec_4096", "matmul_1024", "jacobi3d_256", "conv2d_4096")
