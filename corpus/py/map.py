"""map.c: a polynomial, clamped."""

from mdh_lift import mdh


@mdh
def shade(dst: "restrict float32[:]", src: "restrict float32[:]", n: "int32"):
    for i in range(n):
        x = src[i]
        y = (x * x - 3.0 * x) * 0.5 + 1.0
        if y > 100.0:
            y = 100.0
        dst[i] = y
