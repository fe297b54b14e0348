"""mandelbrot.c: in doubles, and in fixed point."""

import numpy as np

from mdh_lift import mdh, truncdiv

WIDTH = 97
HEIGHT = 61
LIMIT = 50
ONE = 1 << 24


@mdh
def mandelbrot(count: "int32[:]", height: "int32", width: "int32", limit: "int32"):
    for y in range(height):
        for x in range(width):
            cr = -2.0 + 3.0 * x / width
            ci = -1.25 + 2.5 * y / height
            zr = 0.0
            zi = 0.0
            n = np.int32(0)
            while n < limit and zr * zr + zi * zi <= 4.0:
                next = zr * zr - zi * zi + cr
                zi = 2.0 * zr * zi + ci
                zr = next
                n += 1
            count[y * width + x] = n


@mdh
def mandelbrot_fixed(count: "uint16[:, WIDTH]"):
    for y in range(HEIGHT):
        for x in range(WIDTH):
            zr = 0
            zi = 0
            t: int
            n = np.uint16(0)
            while zr * zr + zi * zi <= 4 * ONE * ONE and n < LIMIT:
                t = truncdiv(zr * zr - zi * zi, ONE) + (x * (3 * ONE // WIDTH) - 2 * ONE)
                zi = truncdiv(zr * zi, ONE // 2) + (y * (5 * ONE // 2 // HEIGHT) - 5 * ONE // 4)
                zr = t
                n = np.uint16(n + 1)
            count[y, x] = n
