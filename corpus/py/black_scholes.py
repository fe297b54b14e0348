"""Prices of European options after Black and Scholes; the normal distribution by a polynomial."""

import numpy as np

from mdh_lift import mdh


def cumulative(d):
    """Abramowitz and Stegun 26.2.17"""
    t = 1.0 / (1.0 + 0.2316419 * np.fabs(d))
    tail = (
        0.39894228 * np.exp(-0.5 * d * d) * t
        * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    )  # fmt: skip

    return tail if d < 0.0 else 1.0 - tail


@mdh
def black_scholes(
    n: "int32",
    rate: "float32",
    vol: "float32",
    spot: "restrict float32[:]",
    strike: "restrict float32[:]",
    years: "restrict float32[:]",
    call: "restrict float32[:]",
    put: "restrict float32[:]",
):
    for i in range(n):
        root = vol * np.sqrt(years[i])
        d1 = (np.log(spot[i] / strike[i]) + (rate + 0.5 * vol * vol) * years[i]) / root
        d2 = d1 - root
        later = strike[i] * np.exp(-rate * years[i])
        c = spot[i] * cumulative(d1) - later * cumulative(d2)

        call[i] = c
        put[i] = c + later - spot[i]
