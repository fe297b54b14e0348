"""Conway's game of life on a torus, some generations: into a second board and back."""

import numpy as np

from mdh_lift import mdh


@mdh("noalias(cell, next)")
def game_of_life(steps: "int32", h: "int32", w: "int32", cell: "uint8[:]", next: "uint8[:]"):
    for t in range(steps):
        for y in range(h):
            for x in range(w):
                up = h - 1 if y == 0 else y - 1
                down = 0 if y == h - 1 else y + 1
                left = w - 1 if x == 0 else x - 1
                right = 0 if x == w - 1 else x + 1
                alive = (
                    np.int32(cell[up * w + left]) + cell[up * w + x] + cell[up * w + right]
                    + cell[y * w + left] + cell[y * w + right]
                    + cell[down * w + left] + cell[down * w + x] + cell[down * w + right]
                )  # fmt: skip

                next[y * w + x] = 1 if alive == 3 or (alive == 2 and cell[y * w + x] == 1) else 0
        for y in range(h):
            for x in range(w):
                cell[y * w + x] = next[y * w + x]
