"""Five-point relaxation of a plate over time; the border keeps its values."""

from mdh_lift import mdh


T = 8
N = 67


@mdh
def jacobi2d_time(A: "float64[N, N]", B: "float64[N, N]"):
    for t in range(T):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                B[i, j] = 0.2 * (A[i, j] + A[i, j - 1] + A[i, j + 1] + A[i + 1, j] + A[i - 1, j])
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                A[i, j] = 0.2 * (B[i, j] + B[i, j - 1] + B[i, j + 1] + B[i + 1, j] + B[i - 1, j])
