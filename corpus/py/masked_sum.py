"""Sum and minimum of the elements that a mask and a limit admit."""

import numpy as np

from mdh_lift import mdh

INT_MAX = 2147483647


@mdh
def masked_sum(
    n: "int32", limit: "int32", a: "int32[:]", mask: "uint8[:]", total: "int64[1]", least: "int32[1]"
):
    sum = 0
    low = INT_MAX
    for i in range(n):
        if mask[i] != 0 and a[i] < limit:
            sum += np.int64(a[i])
            if a[i] < low:
                low = a[i]
    total[0] = sum
    least[0] = low
