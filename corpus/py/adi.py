"""Heat in a square plate with cold borders by alternating directions: every time step solves a tridiagonal system in
each row, then one in each column."""

from mdh_lift import mdh


@mdh
def adi(
    steps: "int32",
    n: "int32",
    r: "float64",
    u: "float64[n, n]",
    v: "float64[n, n]",
    p: "float64[n, n]",
    q: "float64[n, n]",
):
    diag = 1.0 + 2.0 * r

    for t in range(steps):
        # from u to v: implicit along the rows
        for i in range(1, n - 1):
            v[i, 0] = 0.0
            p[i, 0] = 0.0
            q[i, 0] = 0.0
            for j in range(1, n - 1):
                p[i, j] = r / (diag - r * p[i, j - 1])
                q[i, j] = (r * u[i - 1, j] + (1.0 - 2.0 * r) * u[i, j] + r * u[i + 1, j] + r * q[i, j - 1]) / (
                    diag - r * p[i, j - 1]
                )
            v[i, n - 1] = 0.0
            for j in range(n - 2, 0, -1):
                v[i, j] = p[i, j] * v[i, j + 1] + q[i, j]
        # from v to u: implicit along the columns
        for j in range(1, n - 1):
            p[0, j] = 0.0
            q[0, j] = 0.0
            for i in range(1, n - 1):
                p[i, j] = r / (diag - r * p[i - 1, j])
                q[i, j] = (r * v[i, j - 1] + (1.0 - 2.0 * r) * v[i, j] + r * v[i, j + 1] + r * q[i - 1, j]) / (
                    diag - r * p[i - 1, j]
                )
            u[n - 1, j] = 0.0
            for i in range(n - 2, 0, -1):
                u[i, j] = p[i, j] * u[i + 1, j] + q[i, j]
