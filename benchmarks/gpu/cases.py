"""The cases of the GPU benchmark: those of the CPU's at the sizes of a GPU, and two nests of its own.

An own nest lies in ``nests/`` and says here what the manifest of the corpus says of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.cases import CASES as ON_CPU
from benchmarks.cases import Case

NESTS = "../benchmarks/gpu/nests"  # from the corpus
_BY_NAME = {c.name: c for c in ON_CPU}


@dataclass(frozen=True, slots=True)
class OwnCase(Case):
    """``facts``: function, nest, sizes of quick tests, operations and bytes, as in the manifest."""

    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def entry(self) -> Mapping[str, Any]:
        return {"nest": "0", "bench": {}, **self.facts}


def _resized(name: str, other: str, macros: Mapping[str, int]) -> Case:
    return replace(_BY_NAME[other], name=name, macros=macros)


def _matmul_t(n: int) -> OwnCase:
    return OwnCase(
        f"matmul_t_{n}", "gemm", f"{NESTS}/matmul_t", {"M": n, "N": n, "K": n}, "m=M n=N kk=K",
        operation="gemm", roles=("c", "b", "a"), extents="N M K",
        facts={"function": "matmul_transposed", "sizes": {"M": 16, "N": 24, "K": 20},
               "flops": "2*M*N*K", "bytes": "4*(M*K + K*N + 2*M*N)"},
    )  # fmt: skip


def _histogram(exponent: int, bins: int) -> OwnCase:
    return OwnCase(
        f"histogram_2^{exponent}", "streams", f"{NESTS}/histogram", {"E": 1 << exponent, "B": bins},
        "n=E bins=B", operation="bincount", roles=("count", "bin"), extents="E B", work="0",
        facts={"function": "histogram", "sizes": {"E": 2000, "B": 16}, "flops": "E", "bytes": "4*(E + 2*B)"},
    )  # fmt: skip


CASES: tuple[Case, ...] = (
    _BY_NAME["dot_2^24"],
    _resized("dot_2^28", "dot_2^24", {"N": 1 << 28}),
    _BY_NAME["matvec_8192"],
    _BY_NAME["matmul_1024"],
    _resized("matmul_4096", "matmul_1024", {"M": 4096, "N": 4096, "K": 4096}),
    _BY_NAME["matmul_16x1000x2048"],
    _matmul_t(1024),
    _BY_NAME["bmatmul_16x10x500x64"],
    _BY_NAME["conv2d_4096"],
    _BY_NAME["jacobi3d_512"],
    _BY_NAME["mcc_resnet50_1"],
    _BY_NAME["mcc_resnet50_16"],
    replace(_BY_NAME["ccsdt_gdab_efgc"], name="ccsdt_i1"),
    _BY_NAME["prl_2^15"],
    _BY_NAME["scan_2^26"],
    _histogram(26, 256),
)
