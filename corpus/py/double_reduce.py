"""double_reduce.c: the sum and the greatest of every other element."""

import numpy as np

from mdh_lift import mdh


@mdh
def left_level(samples: "int16[:]", frames: "int32"):
    sum = 0.0
    peak = np.int32(-32768)

    for i in range(0, 2 * frames, 2):
        sum += samples[i]
        peak = samples[i] if samples[i] > peak else peak
    return sum, peak
