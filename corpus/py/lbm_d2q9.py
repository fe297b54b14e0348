"""One step of a lattice Boltzmann flow with nine directions on a torus: collide in place, then stream."""

from mdh_lift import mdh


@mdh
def lbm_d2q9(
    h: "int32",
    w: "int32",
    omega: "float64",
    cy: "int32[:]",
    cx: "int32[:]",
    weight: "float64[:]",
    f: "restrict float64[9, h, w]",
    g: "restrict float64[9, h, w]",
):
    q: "int32"
    for y in range(h):
        for x in range(w):
            rho = 0.0
            vy = 0.0
            vx = 0.0

            for q in range(9):
                rho += f[q, y, x]
                vy += cy[q] * f[q, y, x]
                vx += cx[q] * f[q, y, x]
            vy /= rho
            vx /= rho
            for q in range(9):
                cv = cy[q] * vy + cx[q] * vx
                equal = weight[q] * rho * (1.0 + 3.0 * cv + 4.5 * cv * cv - 1.5 * (vy * vy + vx * vx))
                f[q, y, x] += omega * (equal - f[q, y, x])
    for q in range(9):
        for y in range(h):
            for x in range(w):
                from_y = y - cy[q]
                from_x = x - cx[q]
                from_y = from_y + h if from_y < 0 else from_y - h if from_y >= h else from_y
                from_x = from_x + w if from_x < 0 else from_x - w if from_x >= w else from_x
                g[q, y, x] = f[q, from_y, from_x]
