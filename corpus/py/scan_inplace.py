"""scan_inplace.c: a prefix sum over the result itself."""

from mdh_lift import mdh


@mdh
def row_offsets(out: "int64[:]", a: "int32[:]", n: "int32"):
    out[0] = a[0]
    for i in range(1, n):
        out[i] = out[i - 1] + a[i]
