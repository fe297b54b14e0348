"""reduce_prod_int.c: a product, accumulated in an array of no dimension."""

from mdh_lift import mdh


@mdh
def multiply_all(prod: "int64[()]", factor: "int32[:]", n: "uint32"):
    for i in range(n):
        prod[()] *= factor[i]
