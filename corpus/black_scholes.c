/* Prices of European options after Black and Scholes; the normal distribution by a polynomial. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 20011
#endif

/* Abramowitz and Stegun 26.2.17 */
static inline float cumulative(float d)
{
    const float t = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    const float tail = 0.39894228f * expf(-0.5f * d * d) * t
        * (0.31938153f + t * (-0.356563782f + t * (1.781477937f + t * (-1.821255978f + t * 1.330274429f))));

    return d < 0.0f ? tail : 1.0f - tail;
}

void black_scholes(int n, float rate, float vol, const float *restrict spot, const float *restrict strike,
                   const float *restrict years, float *restrict call, float *restrict put)
{
#pragma mdh
    for (int i = 0; i < n; ++i) {
        float root = vol * sqrtf(years[i]);
        float d1 = (logf(spot[i] / strike[i]) + (rate + 0.5f * vol * vol) * years[i]) / root;
        float d2 = d1 - root;
        float later = strike[i] * expf(-rate * years[i]);
        float c = spot[i] * cumulative(d1) - later * cumulative(d2);

        call[i] = c;
        put[i] = c + later - spot[i];
    }
}

static double normal(double d)
{
    return 0.5 * erfc(-d * 0.70710678118654752440);
}

int main(void)
{
    const double rate = 0.03125, vol = 0.25;
    float *spot = malloc(N * sizeof *spot), *strike = malloc(N * sizeof *strike), *years = malloc(N * sizeof *years);
    float *call = malloc(N * sizeof *call), *put = malloc(N * sizeof *put);
    int bad = 0;

    if (!spot || !strike || !years || !call || !put)
        return 2;
    for (int i = 0; i < N; i++) {
        spot[i] = (float)(20 + i % 61);
        strike[i] = (float)(15 + i * 7 % 83);
        years[i] = 0.25f * (float)(1 + i % 17);
    }
    black_scholes(N, (float)rate, (float)vol, spot, strike, years, call, put);
    for (int i = 0; i < N && !bad; i++) {
        const double s = spot[i], t = years[i], later = strike[i] * exp(-rate * t), spread = vol * sqrt(t);
        const double up = log(s / later) / spread + 0.5 * spread;
        const double expected_put = later * normal(spread - up) - s * normal(-up);
        const double expected_call = s - later + expected_put;
        if (!(fabs(call[i] - expected_call) <= 1e-3 && fabs(put[i] - expected_put) <= 1e-3)) {
            printf("black_scholes: mismatch at %d got (%g, %g) expected (%g, %g)\n", i, call[i], put[i],
                   expected_call, expected_put);
            bad = 1;
        }
    }
    free(spot);
    free(strike);
    free(years);
    free(call);
    free(put);
    if (!bad)
        puts("black_scholes: ok");
    return bad;
}
