"""Nine-point smoothing in place: every cell takes the mean of its neighbourhood, some of which is already new."""

from mdh_lift import mdh


@mdh
def seidel_2d(steps: "int32", n: "int32", u: "float64[:, n]"):
    for t in range(steps):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                u[i, j] = (
                    u[i - 1, j - 1] + u[i - 1, j] + u[i - 1, j + 1]
                    + u[i, j - 1] + u[i, j] + u[i, j + 1]
                    + u[i + 1, j - 1] + u[i + 1, j] + u[i + 1, j + 1]
                ) / 9.0  # fmt: skip
