"""Heat in a cube, there and back between two linearised arrays in every time step; the surface keeps its values."""

from mdh_lift import mdh


@mdh
def heat_3d(steps: "int32", n: "int32", c: "float64", a: "float64[:]", b: "float64[:]"):
    for t in range(1, steps + 1):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                for k in range(1, n - 1):
                    b[(i * n + j) * n + k] = (
                        a[(i * n + j) * n + k]
                        + c * (a[((i - 1) * n + j) * n + k] - 2.0 * a[(i * n + j) * n + k]
                               + a[((i + 1) * n + j) * n + k])
                        + c * (a[(i * n + j - 1) * n + k] - 2.0 * a[(i * n + j) * n + k]
                               + a[(i * n + j + 1) * n + k])
                        + c * (a[(i * n + j) * n + k - 1] - 2.0 * a[(i * n + j) * n + k]
                               + a[(i * n + j) * n + k + 1])
                    )  # fmt: skip
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                for k in range(1, n - 1):
                    a[(i * n + j) * n + k] = (
                        b[(i * n + j) * n + k]
                        + c * (b[((i - 1) * n + j) * n + k] - 2.0 * b[(i * n + j) * n + k]
                               + b[((i + 1) * n + j) * n + k])
                        + c * (b[(i * n + j - 1) * n + k] - 2.0 * b[(i * n + j) * n + k]
                               + b[(i * n + j + 1) * n + k])
                        + c * (b[(i * n + j) * n + k - 1] - 2.0 * b[(i * n + j) * n + k]
                               + b[(i * n + j) * n + k + 1])
                    )  # fmt: skip
