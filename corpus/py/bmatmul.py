"""bmatmul.c: one matrix product per batch."""

from numpy import float32

from mdh_lift import mdh


@mdh
def batched_matmul(batches: "uint64", m: "uint64", n: "uint64", depth: "uint64",
                   out: "restrict float32[batches, m, n]", lhs: "restrict float32[batches, m, depth]",
                   rhs: "restrict float32[batches, depth, n]"):
    for b in range(batches):
        for i in range(m):
            for j in range(n):
                acc = float32(0)
                for k in range(depth):
                    acc += lhs[b, i, k] * rhs[b, k, j]
                out[b, i, j] = acc
