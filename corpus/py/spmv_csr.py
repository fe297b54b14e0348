"""Sparse matrix times vector: rows compressed, the vector gathered through the column numbers."""

from mdh_lift import mdh


@mdh
def spmv_csr(
    n: "int32",
    m: int,
    nnz: int,
    rowptr: "restrict int32[:]",
    col: "restrict int32[:]",
    val: "restrict float64[:]",
    x: "restrict float64[:]",
    y: "restrict float64[:]",
):
    for i in range(n):
        sum = 0.0
        for k in range(rowptr[i], rowptr[i + 1]):
            sum += val[k] * x[col[k]]
        y[i] = sum
