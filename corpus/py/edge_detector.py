"""Edges by a ring and a cross: the mean of the eight neighbours of every pixel goes to a second image, from whose
diagonal differences the edges overwrite the first one."""

from mdh_lift import mdh, truncdiv


def distance(a, b):
    return a - b if a > b else b - a


@mdh
def edge_detector(h: "int32", w: "int32", img: "int32[:, w]", ring: "int32[:, w]"):
    for y in range(1, h - 1):
        for x in range(1, w - 1):
            ring[y, x] = truncdiv(
                img[y - 1, x - 1] + img[y - 1, x] + img[y - 1, x + 1]
                + img[y, x - 1] + img[y, x + 1]
                + img[y + 1, x - 1] + img[y + 1, x] + img[y + 1, x + 1],
                8,
            )  # fmt: skip
    for y in range(1, h - 2):
        for x in range(2, w - 1):
            img[y, x] = distance(ring[y, x], ring[y + 1, x - 1]) + distance(ring[y + 1, x], ring[y, x - 1])
